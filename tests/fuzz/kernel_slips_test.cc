// Slips of kernels that only some calls show (far pools, many keys, several threads, a NaN that one
// row sees): the plain generator draws such a call soon, and it is judged wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "core/float_formats.h"
#include "fuzz/call/attention_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::kernel_slips_test {
namespace {

/// A kernel with a slip: false if it is right for such a call.
using Slip = std::function<bool(PagedAttention call)>;
using Shows = std::function<bool(const Case& c, const AttentionCase& x)>;

/// Runs calls of the generator with the slip instead of the kernel, of those that can show it.
void expect_found(const Shows& shows, const Slip& slip) {
  constexpr uint64_t kSoon = 20000;  // few calls have neither a mask nor terms
  for (uint64_t number = 0; number < kSoon; ++number) {
    const Case c = fuzz_case(1, number);
    const auto* x = c.as<AttentionCase>();
    if (x == nullptr || x->kernel == CaseKernel::kPrefillRagged || !shows(c, *x)) continue;
    const AttentionData data = make_attention_data(c);
    AttentionScene scene(c, data, AttentionArrangement::of(c));
    scene.lay(0);
    ASSERT_EQ(scene.run().to_string(), "ok") << c.to_string();
    ASSERT_EQ(judge_attention(c, scene).to_string(), "ok") << c.to_string();
    if (!slip(std::get<PagedAttention>(scene.call()))) continue;
    if (judge_attention(c, scene).ok()) continue;
    ::testing::Test::RecordProperty("case", std::to_string(number));
    return;
  }
  FAIL() << "not found";
}

/// A table whose lengths can change without anything else.
bool has_lengths(const AttentionCase& x) {
  return x.table == PageTable::Form::kDense && x.mask == CustomMask::Kind::kNone && !x.terms.any();
}

TEST(KernelSlips, AnOffsetOf32BitsIsFound) {
  expect_found([](const Case& c, auto&) { return c.far; },
               [](PagedAttention call) {
                 const auto& ids = call.pages.form == PageTable::Form::kDense
                                       ? call.pages.page_table
                                       : call.pages.kv_indices;
                 int64_t lowest = std::numeric_limits<int64_t>::max();
                 for (const int32_t id : ids)
                   if (id >= 0 && id < call.cache.num_pages) lowest = std::min<int64_t>(lowest, id);
                 bool wrong = false;
                 for (KvPlane* plane : {&call.cache.k, &call.cache.v}) {
                   if (lowest * plane->page_stride < kFarElements) continue;
                   plane->data -= kFarElements * static_cast<int64_t>(size_of(plane->dtype));
                   wrong = true;
                 }
                 return wrong && execute(AttentionCall(call)).ok();
               });
}

TEST(KernelSlips, KeysFrom1026OnThatAreForgottenAreFound) {
  const auto is_long = [](const RequestExtent& r) { return r.kv_len > 1025; };
  expect_found(
      [&](auto&, const AttentionCase& x) {
        return has_lengths(x) && std::ranges::any_of(x.requests, is_long);
      },
      [](PagedAttention call) {
        std::vector<int32_t> lens(call.pages.cache_seqlens.begin(), call.pages.cache_seqlens.end());
        for (int32_t& len : lens) len = std::min(len, 1025);
        call.pages.cache_seqlens = lens;
        return execute(AttentionCall(call)).ok();
      });
}

TEST(KernelSlips, AKeyThatTheThirdThreadForgetsIsFound) {
  expect_found(
      [](const Case& c, const AttentionCase& x) {
        return c.more_threads == 2 && has_lengths(x) && x.requests.back().kv_len > 1;
      },
      [](PagedAttention call) {
        EXPECT_EQ(call.options.num_threads, 3);
        std::vector<int32_t> lens(call.pages.cache_seqlens.begin(), call.pages.cache_seqlens.end());
        --lens.back();
        call.pages.cache_seqlens = lens;
        return execute(AttentionCall(call)).ok();
      });
}

TEST(KernelSlips, ANanThatReachesTheRowBehindIsFound) {
  expect_found([](auto&, const AttentionCase& x) { return x.nan; },
               [](const PagedAttention& call) {
                 const TensorView& out = call.out;
                 const auto value = [&](int64_t row) {
                   return load_float(out.at(row, 0), out.dtype, 0);
                 };
                 for (int64_t row = out.shape[0] - 1; row > 0; --row) {
                   if (!std::isnan(value(row - 1)) || std::isnan(value(row))) continue;
                   store_float(out.at(row, 0), out.dtype, 0, value(row - 1));
                   return true;
                 }
                 return false;
               });
}

/// Rows of one request, of which one sees the NaN and another does not.
TEST(KernelSlips, NansAreMostlySeenByOneRowAndNotByAnother) {
  int64_t apart = 0, all = 0;
  for (uint64_t number = 0; number < 2000; ++number) {
    const Case c = fuzz_case(1, number);
    const auto* x = c.as<AttentionCase>();
    if (x == nullptr || !x->nan) continue;
    const AttentionData data = make_attention_data(c);
    for (size_t r = 0; r < data.requests.size(); ++r) {
      const RequestData& d = data.requests[r];
      std::set<int64_t> tokens;
      for (const LogicalTensor* t : {&d.k, &d.v})
        for (int64_t i = 0; i < t->count(); ++i)
          if (std::isnan(load_float(t->bytes.data(), t->dtype, i)))
            tokens.insert(i / (t->heads * t->dim));
      if (tokens.empty()) continue;
      ASSERT_EQ(tokens.size(), 1u);
      std::set<bool> seen;
      for (int64_t q = 0; q < x->requests[r].q_len; ++q)
        for (int64_t head = 0; head < x->num_qo_heads; ++head)
          seen.insert(sees(*x, data, r, head, q, *tokens.begin()));
      EXPECT_TRUE(seen.contains(true)) << c.to_string();
      ++all, apart += seen.size() == 2 ? 1 : 0;
    }
  }
  EXPECT_GT(all, 20);
  EXPECT_GT(apart, 5);
}

TEST(KernelSlips, AStateAtAnOffsetOf32BitsIsFound) {
  int64_t found = 0;
  for (uint64_t number = 0; number < 3000 && found < 3; ++number) {
    const Case c = fuzz_case(1, number);
    const auto* x = c.as<RecurrentCase>();
    if (x == nullptr || !c.far) continue;
    const RecurrentData data = make_recurrent_data(c);
    RecurrentScene scene(c, data, RecurrentArrangement::of(c));
    scene.lay(0);
    std::vector<int32_t> slots;
    StateCall slip = scene.call();
    std::visit(
        [&](auto& call) {
          // The place that an offset without its upper bits names lies before the pool's own slots.
          slots.assign(call.rows.state_indices.begin(), call.rows.state_indices.end());
          const int64_t behind = far_rows(call.states.numel() / call.states.shape[0]);
          for (int32_t& slot : slots)
            if (slot >= behind) slot -= static_cast<int32_t>(behind);
          call.rows.state_indices = slots;
        },
        slip);
    ASSERT_EQ(execute(slip).to_string(), "ok") << c.to_string();
    found += judge_recurrent(c, scene).ok() ? 0 : 1;
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace shadowgraph::kernel_slips_test
