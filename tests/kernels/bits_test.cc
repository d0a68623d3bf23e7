// T3: the same values arranged otherwise give the same bits. Each law varies one thing, on cases
// that between them have every feature, and long enough for several tiles, splits and blocks of
// rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/call/attention_scene.h"

namespace shadowgraph::bits_test {
namespace {

/// With values of that kind.
struct Sample : AttentionCase {
  CaseData data = CaseData::kRandom;
  Case make() const { return {data, 11, AttentionCase(*this)}; }
};

Sample base(CaseKernel kernel, std::vector<RequestExtent> requests) {
  Sample x;
  x.kernel = kernel;
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

std::vector<Sample> cases() {
  std::vector<Sample> all;
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

class Bits : public ::testing::TestWithParam<size_t> {
 protected:
  const Sample x = cases()[GetParam()];
  const Case made = x.make();
  const AttentionData data = make_attention_data(made);

  AttentionArrangement as_made() const { return AttentionArrangement::of(made); }

  void run(const AttentionArrangement& how, RowResults* results) const {
    AttentionScene scene(made, data, how);
    for (size_t i = 0; i < how.calls.size(); ++i) {
      scene.lay(i);
      ASSERT_EQ(scene.run().to_string(), "ok");
      scene.collect(results);
    }
  }
  RowResults plain() const {
    RowResults results(made);
    run(as_made(), &results);
    return results;
  }
  static void expect_same(const RowResults& a, const RowResults& b) {
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(a.beside, b.beside);
  }
  void expect_plain(const AttentionArrangement& how) const {
    RowResults again(made);
    run(how, &again);
    expect_same(plain(), again);
  }
};

TEST_P(Bits, RunTwice) { expect_same(plain(), plain()); }

TEST_P(Bits, ThreadCountDoesNotMatter) {
  for (int threads : {2, 3, 7}) {
    AttentionArrangement how = as_made();
    how.options.num_threads = threads;
    expect_plain(how);
  }
}

TEST_P(Bits, BatchCompositionDoesNotMatter) {
  AttentionArrangement alone = as_made();
  const std::vector<RowPiece> all = alone.calls[0];
  alone.calls.clear();
  for (const RowPiece& request : all) alone.calls.push_back({request});
  expect_plain(alone);
}

/// fa.I-60.
TEST_P(Bits, PlaceInTheBatchDoesNotMatter) {
  AttentionArrangement how = as_made();
  std::ranges::reverse(how.calls[0]);
  how.idle_rows = 2;
  expect_plain(how);
}

TEST_P(Bits, PageIdsAndAlignmentDoNotMatter) {
  for (uint64_t seed : {1, 2, 3}) {
    AttentionArrangement how = as_made();
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
bool has_pages(const AttentionCase& x) { return x.kernel != CaseKernel::kPrefillRagged; }
/// Packed K and V have no scales.
bool can_be_ragged(const AttentionCase& x) {
  return x.kernel != CaseKernel::kDecodePaged && x.kv_dtype != DType::kI8;
}
class PagedBits : public Bits {};
class RaggedBits : public Bits {};

TEST_P(PagedBits, LayoutPageSizeAndTableFormDoNotMatter) {
  for (int32_t page_size : {1, 3, 256}) {
    for (int layout = 0; layout < (x.head_dim_qk == x.head_dim_vo ? 4 : 2); ++layout) {
      AttentionArrangement how = as_made();
      how.page_size = page_size;
      how.layout = static_cast<KvLayout>(layout);
      how.table = layout % 2 ? PageTable::Form::kCsr : PageTable::Form::kDense;
      how.through_store_kv = layout == 0;
      expect_plain(how);
    }
  }
}

TEST_P(PagedBits, PanelsDoNotMatter) {
  for (int32_t page_size : {16, 48, 256}) {
    for (std::string_view isa : available_isas()) {
      AttentionArrangement how = as_made();
      how.page_size = page_size;
      how.layout = KvLayout::kPanels;
      how.through_store_kv = page_size == 48;
      how.options.isa = isa;
      expect_plain(how);
    }
  }
}

/// fa.I-84.
TEST_P(Bits, ChunkedPrefillIsTheWhole) {
  if (!x.causal)
    GTEST_SKIP() << "without a causal mask an earlier chunk does not have all its keys";
  for (int32_t chunk : {1, 3, 64}) {
    AttentionArrangement how = as_made();
    how.calls[0].clear();
    for (size_t i = 0; i < x.requests.size(); ++i) {
      const RequestExtent& r = x.requests[i];
      for (int32_t q = 0; q < r.q_len; q += chunk) {
        const int32_t end = std::min(r.q_len, q + chunk);
        how.calls[0].push_back({static_cast<int64_t>(i), q, end});
      }
    }
    expect_plain(how);
  }
}

TEST_P(PagedBits, APlanAndScratchOfItsSizeDoNotMatter) {
  for (int threads : {1, 3}) {
    AttentionArrangement how = as_made();
    how.planned = how.workspace = true;
    how.options.num_threads = threads;
    expect_plain(how);
  }
}

TEST_P(Bits, InstructionSetDoesNotMatter) {
  for (std::string_view isa : available_isas()) {
    AttentionArrangement how = as_made();
    how.options.isa = isa;
    expect_plain(how);
  }
}

TEST_P(RaggedBits, RaggedIsPagedPrefill) {
  AttentionArrangement how = as_made();
  how.ragged = !how.ragged;
  expect_plain(how);
}

INSTANTIATE_TEST_SUITE_P(Cases, Bits, ::testing::Range<size_t>(0, cases().size()));
INSTANTIATE_TEST_SUITE_P(Cases, PagedBits, ::testing::ValuesIn(cases_where(has_pages)));
INSTANTIATE_TEST_SUITE_P(Cases, RaggedBits, ::testing::ValuesIn(cases_where(can_be_ragged)));

}  // namespace
}  // namespace shadowgraph::bits_test
