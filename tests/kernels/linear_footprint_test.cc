// What linear attention's footprint says is what it does.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/footprint_elements.h"
#include "kernels/recurrent/linear_attention.h"
#include "kernels/small_linear.h"

namespace shadowgraph::linear_footprint_test {
namespace {

using Bytes = std::vector<std::byte>;

using Form = LinearAttention::Form;

/// Every feature at once, one row of each kind: whole, fresh, padded, empty.
struct Busy {
  Busy(LinearAttention::StateOrder order, PadRow pad, bool store, Form form = Form::kRecurrent)
      : x([&] {
          LinearShape s;
          s.order = order, s.lens = {3, 2, 2, 0}, s.skip = s.z = true, s.decay_rank = 3;
          return s;
        }()) {
    const ConstTensorView& p = x.call.states;
    x.call.form = form;
    if (form == Form::kRecurrent)
      x.call.draft.states =
          x.tensor(steps, DType::kF32, {5, 4, p.shape[1], p.shape[2], p.shape[3]});
    x.call.chunk_states = x.tensor(chunks, DType::kF32, {4, p.shape[1], p.shape[2], p.shape[3]});
    std::ranges::fill(steps, std::byte{0x3f});
    std::ranges::fill(chunks, std::byte{0x3f});
    x.slots[2] = -1;
    x.call.chunk_size = 2;
    x.call.draft.indices = indices, x.call.rows.has_initial_state = flags;
    x.call.rows.pad = pad, x.call.store = store;
  }
  SmallLinear x;
  Bytes steps, chunks;
  const std::vector<int32_t> indices = {4, 0, 2, 1};
  const std::vector<uint8_t> flags = {1, 0, 1, 1};
};

template <class Test>
void for_every_form(const Test& test) {
  for (const auto order :
       {LinearAttention::StateOrder::kValueKey, LinearAttention::StateOrder::kKeyValue})
    for (const PadRow pad : {PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero})
      for (const bool store : {true, false})
        for (const Form form : {Form::kRecurrent, Form::kChunked}) test(order, pad, store, form);
}

TEST(LinearFootprint, WhatItDoesNotReadHasNoInfluence) {
  for_every_form([](auto order, PadRow pad, bool store, Form form) {
    Busy plain(order, pad, store, form), poisoned(order, pad, store, form);
    const Footprint spans = linear_attention_footprint(poisoned.x.call);
    for (const auto input :
         {&SmallLinear::q, &SmallLinear::k, &SmallLinear::v, &SmallLinear::decay,
          &SmallLinear::beta, &SmallLinear::skip, &SmallLinear::z, &SmallLinear::states}) {
      Bytes& bytes = poisoned.x.*input;
      const std::set<int64_t> read = elements(spans, bytes, Access::kRead);
      for (size_t i = 0; i < bytes.size(); ++i)
        if (!read.contains(static_cast<int64_t>(i / 4))) bytes[i] = std::byte{0xff};
    }
    plain.x.run(), poisoned.x.run();
    EXPECT_TRUE(plain.x.out == poisoned.x.out);
    EXPECT_TRUE(plain.steps == poisoned.steps && plain.chunks == poisoned.chunks);
    for (const int64_t i : elements(spans, poisoned.x.states, Access::kWrite)) {
      const auto at = static_cast<size_t>(i) * 4;
      ASSERT_EQ(std::memcmp(&plain.x.states[at], &poisoned.x.states[at], 4), 0) << i;
    }
  });
}

TEST(LinearFootprint, ItWritesWhatItSays) {
  for_every_form([](auto order, PadRow pad, bool store, Form form) {
    Busy before(order, pad, store, form), b(order, pad, store, form);
    const Footprint spans = linear_attention_footprint(b.x.call);
    b.x.run();
    const auto judge = [&](const Bytes& was, const Bytes& is, const char* what) {
      const std::set<int64_t> written = elements(spans, is, Access::kWrite);
      for (size_t i = 0; i < is.size() / 4; ++i) {
        const bool same = std::memcmp(&was[i * 4], &is[i * 4], 4) == 0;
        // Random numbers do not become themselves.
        ASSERT_EQ(same, !written.contains(static_cast<int64_t>(i))) << what << ' ' << i;
      }
    };
    judge(before.x.out, b.x.out, "out");
    judge(before.steps, b.steps, "steps");
    judge(before.chunks, b.chunks, "chunks");
    judge(before.x.states, b.x.states, "states");
  });
}

TEST(LinearFootprint, SpansBelongToTheirRows) {
  Busy b(LinearAttention::StateOrder::kValueKey, PadRow::kSkip, true);
  const Footprint spans = linear_attention_footprint(b.x.call);
  const int64_t of_token = b.x.call.out.shape[1] * b.x.call.out.shape[2];
  for (const AccessSpan& s : spans) {
    const bool of_all = s.buffer == b.x.skip.data() || s.buffer == b.indices.data();
    EXPECT_EQ(s.row == -1, of_all || s.buffer == b.x.slots.data() ||
                               s.buffer == b.x.cu_seqlens.data() || s.buffer == b.flags.data());
    if (s.buffer != b.x.out.data()) continue;
    EXPECT_EQ(s.row, s.first / of_token < 3 ? 0 : 1);
  }
}

}  // namespace
}  // namespace shadowgraph::linear_footprint_test
