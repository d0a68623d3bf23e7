// Generated calls over chosen keys: clean as they are, and each planted slip is seen by its law.
#include "fuzz/sparse_case.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace shadowgraph {
namespace {

SparseCase case_number(uint64_t number) {
  Choices choices(Rng::stream(1, number));
  return generate_sparse(choices);
}

TEST(SparseCases, AreClean) {
  std::map<std::string, int> layouts;
  for (uint64_t number = 0; number < 150; ++number) {
    const SparseCase x = case_number(number);
    EXPECT_EQ(check_sparse_case(x, {}).to_string(), "ok") << number << ": " << x.to_string();
    ++layouts[std::to_string(static_cast<int>(x.layout)) + (x.has_extra ? " extra" : "") +
              (x.sinks ? " sinks" : "")];
  }
  EXPECT_EQ(layouts.size(), 12U);
}

TEST(SparseCases, TheSimplestChoicesAreACase) {
  Choices choices(std::span<const uint32_t>{});
  const SparseCase x = generate_sparse(choices);
  EXPECT_EQ(x.to_string(),
            "sparse_attention uniform seed 0 heads 1 dims 16/16 q f32 out f32 keys rows[0] rows "
            "f32");
  EXPECT_EQ(check_sparse_case(x, {}).to_string(), "ok");
}

/// The laws that see the slip in any of the cases on which it acts.
std::set<std::string> seen_by(const std::function<bool(const SparseCase&)>& on,
                              const SparseSlip& slip) {
  std::set<std::string> laws;
  for (uint64_t number = 0; number < 80; ++number) {
    const SparseCase x = case_number(number);
    if (!on(x)) continue;
    const Status status = check_sparse_case(x, {}, slip);
    for (const Finding& f : status.findings()) laws.insert(f.id);
  }
  return laws;
}

TEST(SparseCases, PlantedSlipsAreSeen) {
  const auto any = [](const SparseCase&) { return true; };
  std::vector<int32_t> changed;
  const std::set<std::string> all = {"num.bits", "num.bound", "num.exact", "num.lse_bound"};
  // The last key of a list is left out.
  const auto short_list = [&](SparseAttention& call) {
    changed.assign(call.keys.lengths.begin(), call.keys.lengths.end());
    for (int32_t& n : changed) n -= n > 1;
    call.keys.lengths = changed;
  };
  EXPECT_EQ(seen_by([](const SparseCase& x) { return x.seen[0] > 1; }, short_list), all);
  // -1 is taken for slot 0, which may be nobody's: poison.
  const auto none_as_zero = [&](SparseAttention& call) {
    changed.assign(call.keys.indices.begin(), call.keys.indices.end());
    std::replace(changed.begin(), changed.end(), -1, 0);
    call.keys.indices = changed;
  };
  EXPECT_TRUE(seen_by([](const SparseCase& x) { return x.seen[0] == 0; }, none_as_zero)
                  .contains("num.empty_row"));
  const auto no_sink = [](SparseAttention& call) { call.sinks = {}; };
  EXPECT_TRUE(seen_by([](const SparseCase& x) { return x.sinks && x.seen[0] > 0; }, no_sink)
                  .contains("num.exact"));
  const auto no_extra = [](SparseAttention& call) { call.extra = {}; };
  EXPECT_TRUE(
      seen_by([](const SparseCase& x) { return x.has_extra; }, no_extra).contains("num.exact"));
  const auto scale = [](SparseAttention& call) { call.sm_scale *= 1.001F; };
  EXPECT_TRUE(seen_by(any, scale).contains("num.lse_bound"));
  const auto lse = [](SparseAttention& call) {
    call.options.lse_sink =
        call.options.lse_sink == LseSink::kIncluded ? LseSink::kExcluded : LseSink::kIncluded;
  };
  EXPECT_TRUE(seen_by([](const SparseCase& x) { return x.sinks; }, lse).contains("num.lse_bound"));
  const auto other_row = [](SparseAttention& call) { call.out.data += size_of(call.out.dtype); };
  EXPECT_TRUE(seen_by([](const SparseCase& x) { return x.head_dim_v == 512; }, other_row)
                  .contains("num.write_set"));
}

}  // namespace
}  // namespace shadowgraph
