// Parts of a request's attention: who sees whom is a matter of positions alone, a row's bits are
// its own, and parts merged by their LSE are the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check/bounds/compare.h"
#include "kernels/small_parts.h"

namespace shadowgraph::attend_part_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AttendPart, EverySmallPartSeesWhatItsPositionsSay) {
  for (const bool ragged : {false, true}) {
    for (int32_t tokens = 1; tokens <= 3; ++tokens) {
      for (int32_t keys = 0; keys <= 4; ++keys) {
        PartRequest r(ragged, {.requests = {{tokens, keys}}});
        r.whole.fill_uniform();
        r.whole.fill_v([](int64_t, int64_t t, int64_t, int64_t d) { return t == d ? 1.f : 0.f; });
        for (int64_t ahead = -4; ahead <= 6; ++ahead) {
          for (int32_t window = -1; window <= 3; ++window) {
            for (int options = 0; options < 4; ++options) {
              const bool causal = options % 2 == 1, masked = options / 2 == 1;
              AttentionPart p = r.part({0, tokens}, {0, keys});
              p.q_position = 40 + ahead, p.key_position = 40;
              p.params.causal = causal, p.params.window_left = window;
              std::vector<uint8_t> mask(static_cast<size_t>(tokens * (keys + 2)));
              for (size_t i = 0; i < mask.size(); ++i) mask[i] = i * i % 5 < 2;
              if (masked) p.mask = mask, p.mask_stride = keys + 2;
              PartResults got(r, 1);
              ASSERT_EQ(got.run(p, 0, 0).to_string(), "ok");
              for (int64_t q = 0; q < tokens; ++q) {
                const auto sees = [&](int64_t k) {
                  const int64_t before = ahead + q - k;
                  return k < keys && (!causal || before >= 0) && (window < 0 || before <= window) &&
                         (!masked || mask[static_cast<size_t>(q * (keys + 2) + k)] != 0);
                };
                int count = 0;
                for (int64_t k = 0; k < keys; ++k) count += sees(k) ? 1 : 0;
                for (int64_t k = 0; k < 4; ++k) {
                  const float expected = sees(k) ? 1.f / static_cast<float>(count) : 0;
                  ASSERT_EQ(got.v[static_cast<size_t>(q * 4 + k)], expected)
                      << tokens << " x " << keys << " ahead " << ahead << " window " << window
                      << " causal " << causal << " masked " << masked << ": " << q << ", " << k;
                }
                ASSERT_EQ(got.s[static_cast<size_t>(q)],
                          count == 0 ? -kInfinity
                                     : static_cast<float>(std::log(static_cast<double>(count))));
              }
            }
          }
        }
      }
    }
  }
}

SmallShape long_shape(DType kv_dtype = DType::kF32) {
  return {.requests = {{5, 150}},
          .qo_heads = 6,
          .kv_heads = 2,
          .dim_qk = 20,
          .dim_vo = 12,
          .kv_dtype = kv_dtype};
}

/// Every part of a cut: keys at random places, and the packed rows (token * group + head) likewise.
void run_cut(const PartRequest& r, Rng& rng, int64_t states, PartResults* to) {
  std::vector<int32_t> ends;
  for (int64_t i = 1; i < states; ++i)
    ends.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(r.keys() + 1))));
  std::sort(ends.begin(), ends.end());
  ends.push_back(r.keys());
  for (int32_t c = 0, begin = 0; c < states; begin = ends[static_cast<size_t>(c++)]) {
    const KvRange keys = {begin, ends[static_cast<size_t>(c)]};
    const auto middle = static_cast<int32_t>(rng.below(static_cast<uint32_t>(r.tokens())));
    const auto run = [&](KvRange queries, int32_t head_begin, int32_t head_end) {
      AttentionPart p = r.part(queries, keys);
      p.head_begin = head_begin, p.head_end = head_end;
      ASSERT_EQ(to->run(p, queries.begin, c).to_string(), "ok");
    };
    run({0, middle}, 0, 0);
    run({middle, middle + 1}, 0, 1);
    run({middle, middle + 1}, 1, 3);
    run({middle + 1, r.tokens()}, 0, 0);
  }
}

TEST(AttendPart, PartsMergedByTheirLseAreTheWhole) {
  for (const bool ragged : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      if (ragged && dtype == DType::kI8) continue;
      for (const int32_t window : {-1, 0, 40}) {
        PartRequest r(ragged, long_shape(dtype));
        r.randomise();
        r.whole.params.causal = true;
        r.whole.params.window_left = window;
        r.whole.settle();
        Rng rng(static_cast<uint64_t>(window + 3));
        for (int64_t states = 1; states <= 5; ++states) {
          PartResults partials(r, states);
          run_cut(r, rng, states, &partials);
          partials.merge_into(r.whole);
          const Result result{r.whole.paged.out, r.whole.paged.lse.tensor};
          JudgeOptions how{.bounded = true};
          how.parts.assign(static_cast<size_t>(r.tokens()), static_cast<int32_t>(states));
          const Arithmetic& merged = *find_arithmetic("ours_merged");
          const Judgement j = ragged ? judge(r.whole.ragged, result, merged, how)
                                     : judge(r.whole.paged, result, merged, how);
          EXPECT_TRUE(j.findings.ok()) << states << " " << j.findings.to_string();
        }
      }
    }
  }
}

TEST(AttendPart, EqualPartsOfExactDataAreTheWholeBitForBit) {
  // 4 queries all see 128 keys of equal weight; each part has 32 of them.
  PartRequest r(false, {.requests = {{4, 128}}, .qo_heads = 4, .kv_heads = 2});
  r.whole.fill_uniform();
  ASSERT_EQ(r.whole.run().to_string(), "ok");
  const auto expected = r.whole.out_memory;
  PartResults partials(r, 4);
  for (int32_t c = 0; c < 4; ++c)
    ASSERT_EQ(partials.run(r.part({0, 4}, {32 * c, 32 * c + 32}), 0, c).to_string(), "ok");
  std::fill(r.whole.out_memory.begin(), r.whole.out_memory.end(), std::byte{0xff});
  partials.merge_into(r.whole);
  EXPECT_EQ(r.whole.out_memory, expected);
}

TEST(AttendPart, ARowsBitsAreItsOwnWhateverElseThePartComputes) {
  for (const bool ragged : {false, true}) {
    PartRequest r(ragged, long_shape());
    r.randomise();
    r.whole.params.causal = true;
    r.whole.params.window_left = 60;
    const std::vector<float> sinks = {0.5f, -1, 2, 0, 1, -2};
    r.whole.params.sinks = sinks;
    const KvRange keys = {8, r.keys()};
    PartResults all(r, 1), rows(r, 1), heads(r, 1), moved(r, 1);
    const AttentionPart whole = r.part({0, r.tokens()}, keys);
    ASSERT_EQ(all.run(whole, 0, 0).to_string(), "ok");
    for (int32_t q = 0; q < r.tokens(); ++q)
      ASSERT_EQ(rows.run(r.part({q, q + 1}, keys), q, 0).to_string(), "ok");
    EXPECT_EQ(rows, all);
    for (int32_t g = 0; g < 3; ++g) {
      AttentionPart p = whole;
      p.head_begin = g, p.head_end = g + 1;
      ASSERT_EQ(heads.run(p, 0, 0).to_string(), "ok");
    }
    EXPECT_EQ(heads, all);
    AttentionPart far = whole;
    far.q_position += int64_t{1} << 40, far.key_position += int64_t{1} << 40;
    ASSERT_EQ(moved.run(far, 0, 0).to_string(), "ok");
    EXPECT_EQ(moved, all);
  }
}

TEST(AttendPart, OtherHeadsAreNotWritten) {
  PartRequest r(false, long_shape());
  r.randomise();
  AttentionPart p = r.part({0, 5}, {0, 150});
  p.head_begin = 1, p.head_end = 2;
  PartResults got(r, 1);
  ASSERT_EQ(got.run(p, 0, 0).to_string(), "ok");
  for (size_t i = 0; i < got.s.size(); ++i) EXPECT_EQ(std::isnan(got.s[i]), i % 3 != 1) << i;
}

TEST(AttendPart, ItsFootprintIsTheKeysInReachOnBehalfOfTheRow) {
  PartRequest r(false,
                {.requests = {{2, 16}}, .qo_heads = 4, .kv_heads = 2, .dim_qk = 4, .dim_vo = 4});
  PartResults to(r, 1);
  AttentionPart p = r.part({0, 2}, {4, 16});
  p.params.causal = true, p.params.window_left = 3;
  p.q_position = 9;  // keys 6 to 10
  p.out = r.whole.paged.out;
  const std::vector<float> sinks(4, 1.f);
  p.params.sinks = sinks;
  for (const int32_t head_end : {0, 1}) {
    p.head_end = head_end;
    Footprint spans;
    add_part_footprint(p, 7, &spans);
    int64_t slots = 0, keys = 0, q = 0, out = 0, logits = 0, others = 0;
    for (const AccessSpan& s : spans) {
      const bool of_slots = s.buffer == p.keys.slots.data(), of_sinks = s.buffer == sinks.data();
      EXPECT_EQ(s.row, of_sinks ? -1 : 7);
      if (of_slots) {
        EXPECT_EQ(s.first, 2);
        slots += s.count;
      }
      const bool known = of_slots || of_sinks || s.buffer == p.q.data || s.buffer == p.out.data ||
                         s.buffer == p.keys.cache.k.data || s.buffer == p.keys.cache.v.data;
      keys += s.buffer == p.keys.cache.k.data ? s.count : 0;
      q += s.buffer == p.q.data ? s.count : 0;
      out += s.buffer == p.out.data ? s.count : 0;
      logits += of_sinks ? s.count : 0;
      others += known ? 0 : 1;
    }
    EXPECT_EQ(slots, 5);
    EXPECT_EQ(keys, 5 * 2 * 4);
    EXPECT_EQ(q, head_end == 0 ? 2 * 4 * 4 : 2 * 2 * 4);
    EXPECT_EQ(out, q);
    EXPECT_EQ(logits, 4);
    EXPECT_EQ(others, 0) << "memory of the host";
  }
}

TEST(AttendPart, ABadPartIsRefusedAndNothingIsWritten) {
  PartRequest r(true, long_shape());
  r.randomise();
  const auto refused = [&](const char* law, auto change) {
    AttentionPart p = r.part({0, 5}, {0, 20});
    change(p);
    PartResults got(r, 1);
    const Status status = got.run(p, 0, 0);
    EXPECT_NE(status.to_string().find(law), std::string::npos) << status.to_string();
    EXPECT_TRUE(std::isnan(got.v[0]) && std::isnan(got.s[0]));
  };
  const std::vector<uint8_t> pairs(5 * 21);
  refused("param.heads", [](AttentionPart& p) { p.head_begin = 2, p.head_end = 4; });
  refused("param.heads", [](AttentionPart& p) { p.head_begin = 1; });
  refused("mask.size", [&](AttentionPart& p) { p.mask = pairs, p.mask_stride = 19; });
  refused("mask.size", [&](AttentionPart& p) { p.mask = pairs, p.mask_stride = 22; });
  refused("input.shape", [](AttentionPart& p) { --p.keys.v.shape[0]; });
  refused("param.scale", [](AttentionPart& p) { p.params.sm_scale = 0; });
  const std::vector<float> sinks = {0, 0, 0, 0, 0, NAN};
  refused("param.sinks", [&](AttentionPart& p) { p.params.sinks = sinks, p.head_end = 3; });
  PartRequest paged(false, long_shape());
  AttentionPart p = paged.part({0, 5}, {0, 20});
  p.keys.slots = {};
  const std::vector<int32_t> slots = {0, 1, 1 << 20};
  p.keys.slots = slots;
  PartResults got(paged, 1);
  EXPECT_NE(got.run(p, 0, 0).to_string().find("table.page_id"), std::string::npos);
}

}  // namespace
}  // namespace shadowgraph::attend_part_test
