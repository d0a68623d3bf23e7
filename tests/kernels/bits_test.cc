// T3: the same values arranged otherwise give the same bits. Each law varies one thing, on cases
// that between them have every feature, and long enough for several tiles, splits and blocks of
// rows.
#include <gtest/gtest.h>

#include <cstring>

#include "fuzz/arrange.h"

namespace shadowgraph {
namespace {

Case base(CaseKernel kernel, std::vector<RequestExtent> requests) {
  Case x;
  x.kernel = kernel;
  x.data = CaseData::kRandom;
  x.seed = 11;
  x.requests = std::move(requests);
  x.num_qo_heads = 4;
  x.num_kv_heads = 2;
  x.head_dim_qk = x.head_dim_vo = 40;
  x.sm_scale = 0.25f;
  x.page_size = 16;
  return x;
}

std::vector<RequestExtent> decode_requests() {
  return {{0, 1, 1}, {1099, 1, 1100}, {69, 1, 70}, {512, 1, 513}};
}
std::vector<RequestExtent> prefill_requests() {
  return {{200, 100, 300}, {0, 5, 5}, {599, 1, 600}, {0, 70, 60}};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back(base(CaseKernel::kDecodePaged, decode_requests()));
  all.push_back(all[0]);
  all[1].window_left = 530, all[1].sinks = true, all[1].lse_sink = LseSink::kIncluded,
  all[1].q_dtype = DType::kBF16;
  all[1].kv_dtype = DType::kE4M3, all[1].k_scale = 0.5f, all[1].v_scale = 1.7f,
  all[1].out_dtype = DType::kF16;
  all.push_back(all[0]);
  all[2].mask = CustomMask::Kind::kPacked, all[2].logits_soft_cap = 3, all[2].head_dim_vo = 72;
  all.push_back(base(CaseKernel::kPrefillPaged, prefill_requests()));
  all[3].causal = true, all[3].data = CaseData::kPeaked;
  all.push_back(all[3]);
  all[4].window_left = 33, all[4].sinks = true, all[4].q_dtype = all[4].kv_dtype = DType::kF16;
  all.push_back(all[3]);
  all[5].causal = false, all[5].mask = CustomMask::Kind::kBool, all[5].logits_soft_cap = 3,
  all[5].window_right = 5;
  all.push_back(base(CaseKernel::kPrefillRagged, prefill_requests()));
  all[6].num_qo_heads = 2, all[6].kv_dtype = DType::kE5M2, all[6].k_scale = 2, all[6].causal = true;
  // A window longer than a tile, so that where tiles start shows.
  all.push_back(base(CaseKernel::kPrefillPaged, {{500, 100, 600}}));
  all[7].causal = true, all[7].window_left = 290, all[7].data = CaseData::kPeaked;
  all.push_back(base(CaseKernel::kDecodePaged, decode_requests()));
  all[8].kv_dtype = DType::kI8, all[8].v_scale = 1.25f, all[8].window_left = 700;
  all[8].q_dtype = DType::kF16, all[8].sinks = true;
  all.push_back(all[3]);
  all[9].kv_dtype = DType::kI8, all[9].k_scale = 0.625f, all[9].window_left = 290;
  all.push_back(all[5]);
  all[10].kv_dtype = DType::kI8, all[10].head_dim_vo = 72;
  return all;
}

class Bits : public testing::TestWithParam<size_t> {
 protected:
  Case x = cases()[GetParam()];
  LogicalData data = make_data(x);

  void run(const Arrangement& how, RowResults* results) const {
    ArrangedCall call(x, data, how);
    const Status status = call.run();
    ASSERT_EQ(status.to_string(), "ok");
    call.collect(results);
  }
  RowResults plain() const {
    RowResults results(x);
    run(Arrangement::of(x), &results);
    return results;
  }
  static void expect_same(const RowResults& a, const RowResults& b) {
    ASSERT_EQ(a.out.size(), b.out.size());
    ASSERT_EQ(a.lse.size(), b.lse.size());
    EXPECT_EQ(std::memcmp(a.out.data(), b.out.data(), a.out.size()), 0);
    EXPECT_EQ(std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)), 0);
  }
  void expect_plain(const Arrangement& how) const {
    RowResults again(x);
    run(how, &again);
    expect_same(plain(), again);
  }
};

TEST_P(Bits, RunTwice) { expect_same(plain(), plain()); }

TEST_P(Bits, ThreadCountDoesNotMatter) {
  for (int threads : {2, 3, 7}) {
    Arrangement how = Arrangement::of(x);
    how.options.num_threads = threads;
    expect_plain(how);
  }
}

TEST_P(Bits, BatchCompositionDoesNotMatter) {
  const Arrangement whole = Arrangement::of(x);
  RowResults alone(x);
  for (const Slice& slice : whole.slices) {
    Arrangement one = whole;
    one.slices = {slice};
    run(one, &alone);
  }
  expect_same(plain(), alone);
}

TEST_P(Bits, PlaceInTheBatchDoesNotMatter) {
  Arrangement how = Arrangement::of(x);
  std::reverse(how.slices.begin(), how.slices.end());
  how.empty_requests = 2;
  expect_plain(how);
}

TEST_P(Bits, PageIdsAndAlignmentDoNotMatter) {
  for (uint64_t seed : {1, 2, 3}) {
    Arrangement how = Arrangement::of(x);
    how.seed = seed;
    expect_plain(how);
  }
}

/// Numbers of the cases that `keep` takes.
template <class Keep>
std::vector<size_t> cases_where(const Keep& keep) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < cases().size(); ++i) {
    if (keep(cases()[i])) kept.push_back(i);
  }
  return kept;
}
bool has_pages(const Case& x) { return x.kernel != CaseKernel::kPrefillRagged; }
/// Packed K and V have no scales.
bool can_be_ragged(const Case& x) {
  return x.kernel != CaseKernel::kDecodePaged && x.kv_dtype != DType::kI8;
}
class PagedBits : public Bits {};
class RaggedBits : public Bits {};

TEST_P(PagedBits, LayoutPageSizeAndTableFormDoNotMatter) {
  for (int32_t page_size : {1, 3, 256}) {
    for (int layout = 0; layout < (x.head_dim_qk == x.head_dim_vo ? 4 : 2); ++layout) {
      Arrangement how = Arrangement::of(x);
      how.page_size = page_size;
      how.layout = static_cast<CaseLayout>(layout);
      how.table = layout % 2 ? PageTable::Form::kCsr : PageTable::Form::kDense;
      how.through_store_kv = layout == 0;
      expect_plain(how);
    }
  }
}

TEST_P(PagedBits, PanelsDoNotMatter) {
  for (int32_t page_size : {16, 48, 256}) {
    for (std::string_view isa : available_isas()) {
      Arrangement how = Arrangement::of(x);
      how.page_size = page_size;
      how.layout = CaseLayout::kPanels;
      how.through_store_kv = page_size == 48;
      how.options.isa = isa;
      expect_plain(how);
    }
  }
}

TEST_P(Bits, ChunkedPrefillIsTheWhole) {
  if (!x.causal)
    GTEST_SKIP() << "without a causal mask an earlier chunk does not have all its keys";
  for (int32_t chunk : {1, 3, 64}) {
    Arrangement how = Arrangement::of(x);
    how.slices.clear();
    for (size_t i = 0; i < x.requests.size(); ++i) {
      const RequestExtent& r = x.requests[i];
      for (int32_t q = 0; q < r.q_len; q += chunk) {
        const int32_t end = std::min(r.q_len, q + chunk);
        how.slices.push_back(
            {static_cast<int64_t>(i), q, end, std::max(0, r.kv_len - (r.q_len - end))});
      }
    }
    expect_plain(how);
  }
}

TEST_P(Bits, InstructionSetDoesNotMatter) {
  for (std::string_view isa : available_isas()) {
    Arrangement how = Arrangement::of(x);
    how.options.isa = isa;
    expect_plain(how);
  }
}

TEST_P(RaggedBits, RaggedIsPagedPrefill) {
  Arrangement how = Arrangement::of(x);
  how.ragged = !how.ragged;
  expect_plain(how);
}

INSTANTIATE_TEST_SUITE_P(Cases, Bits, testing::Range<size_t>(0, cases().size()));
INSTANTIATE_TEST_SUITE_P(Cases, PagedBits, testing::ValuesIn(cases_where(has_pages)));
INSTANTIATE_TEST_SUITE_P(Cases, RaggedBits, testing::ValuesIn(cases_where(can_be_ragged)));

}  // namespace
}  // namespace shadowgraph
