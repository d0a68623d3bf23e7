// What is recorded of a result, and how, does not change which mistake is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "check/mistake_lab.h"
#include "check/mistakes/call_scene.h"

namespace shadowgraph::diagnose_results_test {
namespace {

using Lab = MistakeLab;

/// The likeliest mistake; empty: nothing is wrong.
std::string name_of(const Scene& scene, const Result& result, bool unwritten = true) {
  const std::vector<Explanation> all =
      diagnose(scene, result, *find_arithmetic("ours_portable"), {.unwritten = unwritten});
  return all.empty() ? "" : all[0].mistake;
}

TEST(DiagnoseResults, AnLseMayBeOfAnyBaseAndType) {
  Lab lab;
  lab.run();
  std::vector<float> base2;
  std::vector<double> wide;
  for (const float x : lab.lse) {
    base2.push_back(static_cast<float>(double{x} * std::numbers::log2e));
    wide.push_back(x);
  }
  Result in_base2 = lab.result(), in_double = lab.result();
  in_base2.lse.data = reinterpret_cast<const std::byte*>(base2.data());
  in_base2.lse_base = LseBase::kLog2;
  in_double.lse = ConstTensorView(wide.data(), DType::kF64, {9, kLabHeads});
  Scene narrower = lab.scene();
  narrower.params.window_left = 5;
  for (Result result : {lab.result(), in_base2, in_double}) {
    for (const bool out : {true, false}) {
      if (!out) result.out = {};
      EXPECT_EQ(name_of(lab.scene(), result), "");
      EXPECT_EQ(name_of(narrower, result), "window.ignored");
    }
  }
  wide[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(name_of(lab.scene(), in_double), "merge.empty");
}

TEST(DiagnoseResults, RowsOfNaNInMemoryOfWhichNothingIsKnown) {
  Lab lab;
  lab.run();
  std::memset(lab.row(4), kNanByte, 4 * kLabHeads * kDim);
  EXPECT_EQ(name_of(lab.scene(), lab.result(), false), "values.no_number") << "out alone";
  for (int64_t h = 0; h < kLabHeads; ++h) lab.lse_of(4, h) = NAN;
  EXPECT_EQ(name_of(lab.scene(), lab.result(), false), "row.unwritten") << "and the LSE";
  EXPECT_EQ(name_of(lab.scene(), lab.result(), true), "values.no_number") << "it was filled";
  Result out = lab.result();
  out.lse = {};
  EXPECT_EQ(name_of(lab.scene(), out, false), "row.unwritten");
}

TEST(DiagnoseResults, ANaNOfArithmeticIsKnownWhereMemoryIs) {
  Lab lab;
  lab.run();
  for (int64_t i = 0; i < kLabHeads * kDim; ++i) lab.row(4)[i] = NAN;
  EXPECT_EQ(name_of(lab.scene(), lab.result(), true), "merge.empty");
  EXPECT_EQ(name_of(lab.scene(), lab.result(), false), "values.no_number");
}

TEST(DiagnoseResults, TheRestOfALastPageIsMet) {
  Lab lab;
  lab.run();
  const auto rest = static_cast<size_t>(lab.keys[0].back()) + 1;  // of request 0's last page
  std::memset(&lab.v[rest * kKvHeads * kDim], kNanByte, 4 * kKvHeads * kDim);
  std::memset(lab.row(0), kNanByte, 3 * 4 * kLabHeads * kDim);
  Scene scene = lab.scene();
  EXPECT_EQ(name_of(scene, lab.result()), "values.hidden");
  scene.tokens.num_pages = static_cast<int64_t>(rest);
  EXPECT_EQ(name_of(scene, lab.result()), "values.no_number") << "it is behind the pool";
}

TEST(DiagnoseResults, ARequestWithoutKeysMeetsNothing) {
  Lab lab;
  lab.keys[1].clear();
  lab.run();
  EXPECT_EQ(name_of(lab.scene(), lab.result()), "");
  std::memset(lab.row(3), kNanByte, 2 * 4 * kLabHeads * kDim);
  EXPECT_EQ(name_of(lab.scene(), lab.result()), "values.no_number");
  EXPECT_EQ(name_of(lab.scene(), lab.result(), false), "row.mark") << "of a recorded kernel";
  lab.run();
  lab.lse_of(3, 0) = INFINITY;
  EXPECT_EQ(name_of(lab.scene(), lab.result(), false), "lse.infinite");
}

TEST(DiagnoseResults, OfPartsThatAreNoNumbersNoMergeIsKnown) {
  Lab lab;
  const auto first = static_cast<size_t>(lab.keys[0][0]) * kKvHeads * kDim;
  std::fill_n(lab.v.begin() + static_cast<int64_t>(first), kKvHeads * kDim, NAN);
  lab.run();
  EXPECT_EQ(name_of(lab.scene(), lab.result()), "");
  for (int64_t i = 0; i < 3 * kLabHeads * kDim; ++i) lab.row(0)[i] = 7;
  EXPECT_EQ(name_of(lab.scene(), lab.result()), "unknown");
}

/// The first request's rows, computed by another call.
std::string name_of_call(const std::function<void(Lab&)>& setting,
                         const std::function<void(Lab&)>& mistake) {
  Lab lab, wrong;
  setting(lab), setting(wrong), mistake(wrong);
  lab.run(), wrong.run();
  EXPECT_EQ(name_of(lab.scene(), lab.result()), "");
  return name_of(lab.scene(), wrong.result());
}

TEST(DiagnoseResults, AWindowOnTheRightIsAWindow) {
  const auto right = [](Lab& l) { l.params.causal = false, l.params.window_right = 1; };
  EXPECT_EQ(name_of_call(right, [](Lab& l) { l.params.window_right = -1; }), "window.ignored");
}

TEST(DiagnoseResults, AScaleOfOneCannotBeMissing) {
  const auto one = [](Lab& l) { l.params.sm_scale = 1; };
  EXPECT_EQ(name_of_call([](Lab&) {}, one), "scale.softmax_missing");
  EXPECT_NE(name_of_call(one, [](Lab& l) { l.params.sm_scale = 0.5f; }), "scale.softmax_missing");
}

TEST(DiagnoseResults, OfManyWrongRequestsSomeAreLookedAt) {
  Lab lab;
  lab.keys = {9, lab.keys[2]};
  lab.cu_seqlens_q = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  lab.run();
  Scene scene = lab.scene();
  scene.params.window_left = 5;
  const std::vector<Explanation> all = lab.named(scene);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].mistake, "window.ignored");
  EXPECT_EQ(all[0].wrong, 8 * kLabHeads);
  EXPECT_EQ(all[0].explained, 8 * kLabHeads);
}

/// The lab's pool in codes of 8 bits, with a scale for each token and head; pages of four.
struct CodedPool {
  std::vector<int8_t> k, v;
  std::vector<float> k_scales, v_scales;
  explicit CodedPool(const Lab& lab, bool heads_first = false)
      : k(lab.k.size()), v(k.size()), k_scales(kPoolSlots * kKvHeads), v_scales(k_scales.size()) {
    for (int64_t slot = 0; slot < kPoolSlots; ++slot) {
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const auto from = static_cast<size_t>(slot * kKvHeads + head);
        const int64_t place = (slot / kPage * kKvHeads + head) * kPage + slot % kPage;
        const size_t to = heads_first ? static_cast<size_t>(place) : from;
        k_scales[from] = 0.5f / static_cast<float>(64 + from % 7);
        v_scales[from] = 0.5f / static_cast<float>(64 + from % 5);
        for (size_t d = 0; d < kDim; ++d) {
          k[to * kDim + d] = static_cast<int8_t>(lab.k[from * kDim + d] * 100);
          v[to * kDim + d] = static_cast<int8_t>(lab.v[from * kDim + d] * 100);
        }
      }
    }
  }
  KvCache with_scales(const KvCache& cache, int64_t pages, int64_t page) {
    return cache.with_scales(TensorView(k_scales.data(), DType::kF32, {pages, page, kKvHeads}),
                             TensorView(v_scales.data(), DType::kF32, {pages, page, kKvHeads}));
  }
  KvCache tokens() {
    return with_scales(
        KvCache::nhd(TensorView(k.data(), DType::kI8, {kPoolSlots, 1, kKvHeads, kDim}),
                     TensorView(v.data(), DType::kI8, {kPoolSlots, 1, kKvHeads, kDim})),
        kPoolSlots, 1);
  }
  KvCache heads_first() {
    return with_scales(
        KvCache::hnd(TensorView(k.data(), DType::kI8, {kPages, kKvHeads, kPage, kDim}),
                     TensorView(v.data(), DType::kI8, {kPages, kKvHeads, kPage, kDim})),
        kPages, kPage);
  }
};

TEST(DiagnoseResults, KeysMayHaveScalesOfTheirOwn) {
  Lab lab;
  CodedPool pool(lab), other(lab, true);
  lab.out.assign(9 * kLabHeads * kDim, 0), lab.lse.assign(9 * kLabHeads, 0);
  for (size_t r = 0; r < lab.keys.size(); ++r) lab.run_request(r, pool.tokens());
  Scene scene = lab.scene();
  scene.tokens = pool.tokens();
  EXPECT_EQ(name_of(scene, lab.result()), "");
  scene.params.window_left = 5;
  EXPECT_EQ(name_of(scene, lab.result()), "window.ignored");
  pool.v_scales[static_cast<size_t>(lab.keys[2][3]) * kKvHeads] *= 2;
  scene.params.window_left = -1;
  EXPECT_EQ(name_of(scene, lab.result()), "unknown") << "a scale is not that token's";

  // The same in pages, heads first.
  std::vector<int32_t> table, lens;
  for (const auto& row : lab.keys) {
    for (size_t page = 0; page < 5; ++page)
      table.push_back(page * kPage < row.size() ? row[page * kPage] / kPage : 0);
    lens.push_back(static_cast<int32_t>(row.size()));
  }
  PagedAttention call;
  call.q = lab.scene().q, call.cache = other.heads_first();
  call.pages = PageTable::dense(table, 5, lens);
  call.cu_seqlens_q = lab.cu_seqlens_q;
  call.params = lab.params;
  const CallScene of_pages(call);
  EXPECT_EQ(of_pages.scene().rows.keys, lab.keys);
  EXPECT_EQ(name_of(of_pages.scene(), lab.result()), "");
}

TEST(Diagnose, APrefixThatIsReadApartIsShortByTheExtendTooAndTheNewTokensAreThere) {
  Lab lab;
  lab.cu_seqlens_q = {0, 3, 6, 9};
  lab.run();
  const Scene scene = lab.scene();
  Lab wrong = lab;
  for (auto& row : wrong.keys) row.erase(row.end() - 6, row.end() - 3);
  wrong.run();
  lab.out = wrong.out, lab.lse = wrong.lse;
  const std::vector<Explanation> named = lab.named(scene);
  ASSERT_FALSE(named.empty());
  EXPECT_EQ(named[0].mistake, "extent.short_by_extend");
  EXPECT_EQ(named[0].explained, named[0].wrong);
}

}  // namespace
}  // namespace shadowgraph::diagnose_results_test
