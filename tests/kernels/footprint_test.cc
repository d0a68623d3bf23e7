// footprint(): what a kernel says it reads is what some row can reach, no more and no less; what
// lies outside has no influence; and nothing outside what it says it writes changes.
#include "kernels/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ostream>
#include <set>

#include "attn/mask.h"
#include "kernels/small_attention.h"
#include "shadowgraph/device/access.h"

namespace shadowgraph::footprint_test {
namespace {

struct FootprintCase {
  CaseKernel kernel;
  bool causal;
  int32_t window_left;
  CustomMask::Kind mask;
  bool panels = false;
  DType kv = DType::kF32;
  int32_t dim_qk = 3, dim_vo = 5;
};

/// Test names must not depend on padding bytes.
void PrintTo(const FootprintCase& c, std::ostream* os) {
  *os << static_cast<int>(c.kernel) << (c.causal ? " causal" : "") << " window_left "
      << c.window_left << " mask " << static_cast<int>(c.mask) << (c.panels ? " panels " : " ")
      << name_of(c.kv) << " " << c.dim_qk << "/" << c.dim_vo;
}

class Footprints : public ::testing::TestWithParam<FootprintCase> {
 protected:
  static Footprint footprint(const SmallAttention& c) {
    return c.ragged_kv() ? attention_footprint(c.ragged) : attention_footprint(c.paged);
  }
  static std::set<int64_t> elements(const Footprint& spans, const void* buffer, Access access) {
    std::set<int64_t> all;
    for (const AccessSpan& s : spans) {
      if (s.buffer != buffer || s.access != access) continue;
      for (int64_t i = 0; i < s.count; ++i) all.insert(s.first + i);
    }
    return all;
  }
  static std::unique_ptr<SmallAttention> make() {
    const FootprintCase& p = GetParam();
    auto c = std::make_unique<SmallAttention>(
        p.kernel, "",
        SmallShape{.requests = {{2, 9}, {0, 4}, {3, 2}, {1, 70}, {2, 0}},
                   .qo_heads = 2,
                   .kv_heads = 2,
                   .dim_qk = p.dim_qk,
                   .dim_vo = p.dim_vo,
                   .kv_dtype = p.kv,
                   .page_size = p.panels ? 32 : 4,
                   .hnd = !p.panels,
                   .panels = p.panels});
    c->params.causal = p.causal;
    c->params.window_left = p.window_left;
    if (p.mask != CustomMask::Kind::kNone) {
      c->set_mask(p.mask, [](int64_t, int64_t q, int64_t k) { return shown(q, k); });
    }
    c->fill_uniform();
    c->settle();
    return c;
  }
  static bool shown(int64_t q, int64_t k) { return (q + k) % 3 != 0; }
  /// The keys of a request that some row can reach (asks the predicate), or of these the ones that
  /// the custom mask shows to such a row.
  static std::vector<int64_t> reachable(const SmallAttention& c, size_t r,
                                        bool must_be_shown = false) {
    std::vector<int64_t> keys;
    const MaskShape mask = {c.q_len(r), c.kv_len(r), c.params.causal, c.params.window_left,
                            c.params.window_right};
    for (int64_t k = 0; k < c.kv_len(r); ++k) {
      bool seen = false;
      for (int64_t q = 0; q < c.q_len(r); ++q) {
        seen = seen || (attends(mask, q, k) && (!must_be_shown || shown(q, k)));
      }
      if (seen) keys.push_back(k);
    }
    return keys;
  }
};

/// Elements of K and V at the given keys of every request; `whole`: of all that is loaded with
/// them, which in panels is the panel.
template <class Keys>
std::pair<std::set<int64_t>, std::set<int64_t>> elements_of(const SmallAttention& c,
                                                            const Keys& keys, bool whole = false) {
  std::set<int64_t> k, v;
  int64_t first_token = 0;
  const int64_t page_size = c.shape.page_size;
  for (size_t r = 0; r < c.shape.requests.size(); ++r) {
    for (int64_t t : keys(r)) {
      for (int64_t head = 0; head < 2; ++head) {
        const auto add = [&](const KvPlane& plane, const ConstTensorView& rows, int64_t dim,
                             std::set<int64_t>* to) {
          if (c.ragged_kv()) {
            for (int64_t d = 0; d < dim; ++d) to->insert(rows.offset(first_token + t, head, d));
            return;
          }
          const int32_t page =
              request_pages(c.paged.pages, c.shape.page_size, static_cast<int64_t>(r))
                  .page_ids[t / page_size];
          if (whole && plane.order != KvOrder::kStrided) {
            const int64_t panel = page * plane.page_stride + head * plane.head_stride +
                                  t % page_size / 16 * plane.token_stride;
            const int64_t count = contiguous_elements(plane.order, plane.dtype, plane.head_dim);
            for (int64_t i = 0; i < count; ++i) to->insert(panel + i);
            return;
          }
          for (int64_t d = 0; d < dim; ++d) to->insert(plane.offset(page, t % page_size, head, d));
        };
        add(c.paged.cache.k, c.ragged.k, c.shape.dim_qk, &k);
        add(c.paged.cache.v, c.ragged.v, c.shape.dim_vo, &v);
      }
    }
    first_token += c.kv_len(r);
  }
  return {k, v};
}

TEST_P(Footprints, ReadsAreTheKeysThatSomeRowSeesAndTouchesTheRestInReach) {
  const auto c = make();
  const Footprint spans = footprint(*c);
  const bool masked = c->params.custom_mask.kind != CustomMask::Kind::kNone;
  const auto [k, v] = elements_of(*c, [&](size_t r) { return reachable(*c, r, masked); });
  EXPECT_EQ(elements(spans, c->k_memory.data(), Access::kRead), k);
  EXPECT_EQ(elements(spans, c->v_memory.data(), Access::kRead), v);
  const auto [k_loaded, v_loaded] = elements_of(
      *c, [&](size_t r) { return reachable(*c, r); }, true);
  const auto loaded = [&](const std::vector<std::byte>& memory) {
    std::set<int64_t> all = elements(spans, memory.data(), Access::kRead);
    all.merge(elements(spans, memory.data(), Access::kTouch));
    return all;
  };
  EXPECT_EQ(loaded(c->k_memory), k_loaded);
  EXPECT_EQ(loaded(c->v_memory), v_loaded);
  std::set<int64_t> q;
  for (int64_t i = 0; i < c->paged.q.numel(); ++i) q.insert(i);
  EXPECT_EQ(elements(spans, c->q_memory.data(), Access::kRead), q);
}

TEST_P(Footprints, ScalesGoWithTheirKeysOneByOne) {
  const auto c = make();
  const Footprint spans = footprint(*c);
  const bool masked = c->params.custom_mask.kind != CustomMask::Kind::kNone;
  for (const bool key : {true, false}) {
    const std::vector<float>& scales = key ? c->k_scales : c->v_scales;
    std::set<int64_t> read, reach;
    for (size_t r = 0; r < c->shape.requests.size() && !scales.empty(); ++r) {
      const auto add = [&](const std::vector<int64_t>& keys, std::set<int64_t>* to) {
        for (const int64_t t : keys) {
          for (int64_t h = 0; h < 2; ++h)
            to->insert(&c->scale(key, static_cast<int64_t>(r), t, h) - scales.data());
        }
      };
      add(reachable(*c, r, masked), &read);
      add(reachable(*c, r), &reach);
    }
    std::set<int64_t> loaded = elements(spans, scales.data(), Access::kRead);
    EXPECT_EQ(loaded, read);
    loaded.merge(elements(spans, scales.data(), Access::kTouch));
    EXPECT_EQ(loaded, reach);
  }
}

TEST_P(Footprints, MetadataIsReadWhole) {
  const auto c = make();
  const Footprint spans = footprint(*c);
  const auto whole = [&](auto s) {
    EXPECT_EQ(elements(spans, s.data(), Access::kRead).size(), s.size());
  };
  whole(c->params.custom_mask.mask_indptr);
  if (c->ragged_kv()) {
    whole(c->ragged.cu_seqlens_q);
    whole(c->ragged.cu_seqlens_k);
  } else {
    whole(c->paged.cu_seqlens_q);
    whole(c->paged.pages.cache_seqlens);
  }
}

TEST_P(Footprints, WritesAreExactlyTheRows) {
  const auto c = make();
  ASSERT_EQ(c->run().to_string(), "ok");
  const Footprint spans = footprint(*c);
  const std::set<int64_t> out = elements(spans, c->out_memory.data(), Access::kWrite);
  const std::set<int64_t> lse = elements(spans, c->lse_memory.data(), Access::kWrite);
  EXPECT_EQ(static_cast<int64_t>(out.size()), c->paged.out.numel());
  EXPECT_EQ(static_cast<int64_t>(lse.size()), c->paged.lse.tensor.numel());
  const auto changed = [](const std::vector<std::byte>& memory) {
    std::set<int64_t> all;
    for (size_t i = 0; i < memory.size(); i += 4) {
      const bool poison = std::all_of(memory.begin() + static_cast<int64_t>(i),
                                      memory.begin() + static_cast<int64_t>(i) + 4,
                                      [](std::byte b) { return b == std::byte{0xff}; });
      if (!poison) all.insert(static_cast<int64_t>(i / 4));
    }
    return all;
  };
  EXPECT_EQ(changed(c->out_memory), out);
  EXPECT_EQ(changed(c->lse_memory), lse);
}

TEST_P(Footprints, WhatLiesOutsideHasNoInfluenceAndIsNotChanged) {
  const auto c = make();
  ASSERT_EQ(c->run().to_string(), "ok");
  const auto out = c->out_memory, lse = c->lse_memory;
  const Footprint spans = footprint(*c);
  for (auto* memory : {&c->q_memory, &c->k_memory, &c->v_memory}) {
    const std::set<int64_t> read = elements(spans, memory->data(), Access::kRead);
    const size_t size = size_of(memory == &c->q_memory ? c->shape.q_dtype : c->shape.kv_dtype);
    for (size_t i = 0; i < memory->size(); ++i) {
      if (!read.contains(static_cast<int64_t>(i / size))) (*memory)[i] = std::byte{0xff};
    }
  }
  for (auto* scales : {&c->k_scales, &c->v_scales}) {
    const std::set<int64_t> read = elements(spans, scales->data(), Access::kRead);
    for (size_t i = 0; i < scales->size(); ++i) {
      if (!read.contains(static_cast<int64_t>(i)))
        (*scales)[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  const auto q = c->q_memory, k = c->k_memory, v = c->v_memory;
  ASSERT_EQ(c->run().to_string(), "ok");
  EXPECT_EQ(c->out_memory, out);
  EXPECT_EQ(c->lse_memory, lse);
  EXPECT_EQ(c->q_memory, q);
  EXPECT_EQ(c->k_memory, k);
  EXPECT_EQ(c->v_memory, v);
}

TEST_P(Footprints, PageIdsThatNoRowNeedsAreNotRead) {
  const auto c = make();
  if (c->ragged_kv()) GTEST_SKIP() << "has no pages";
  const Footprint spans = footprint(*c);
  const int32_t* table = c->paged.pages.page_table.data();
  std::set<int64_t> expected;
  for (size_t r = 0; r < c->shape.requests.size(); ++r) {
    const int32_t page_size = c->shape.page_size;
    const RequestPages pages = request_pages(c->paged.pages, page_size, static_cast<int64_t>(r));
    for (int64_t k : reachable(*c, r)) expected.insert(pages.page_ids - table + k / page_size);
  }
  EXPECT_EQ(elements(spans, table, Access::kRead), expected);
}

TEST_P(Footprints, ACustomMaskIsRead) {
  const auto c = make();
  const CustomMask& mask = c->params.custom_mask;
  if (mask.kind == CustomMask::Kind::kNone) GTEST_SKIP() << "has none";
  std::set<int64_t> expected;
  for (size_t r = 0; r < c->shape.requests.size(); ++r) {
    if (reachable(*c, r).empty()) continue;
    for (int64_t i = mask.mask_indptr[r]; i < mask.mask_indptr[r + 1]; ++i) expected.insert(i);
  }
  EXPECT_EQ(elements(footprint(*c), mask.data.data(), Access::kRead), expected);
}

constexpr auto kNone = CustomMask::Kind::kNone, kBool = CustomMask::Kind::kBool,
               kPacked = CustomMask::Kind::kPacked;
INSTANTIATE_TEST_SUITE_P(
    Kernels, Footprints,
    ::testing::Values(FootprintCase{CaseKernel::kDecodePaged, false, -1, kNone},
                      FootprintCase{CaseKernel::kDecodePaged, false, 5, kNone},
                      FootprintCase{CaseKernel::kDecodePaged, true, 5, kPacked},
                      FootprintCase{CaseKernel::kPrefillPaged, true, -1, kNone},
                      FootprintCase{CaseKernel::kPrefillPaged, true, 3, kNone},
                      FootprintCase{CaseKernel::kPrefillPaged, false, 3, kBool},
                      FootprintCase{CaseKernel::kPrefillRagged, true, -1, kPacked},
                      FootprintCase{CaseKernel::kPrefillRagged, true, 0, kNone}));

/// Whole panels and parts of them, with padding (3 and 5 dims) and without (16 and 80), of one
/// block of dims and of two.
INSTANTIATE_TEST_SUITE_P(
    Panels, Footprints,
    ::testing::Values(
        FootprintCase{CaseKernel::kDecodePaged, false, -1, kNone, true, DType::kF32},
        FootprintCase{CaseKernel::kDecodePaged, false, -1, kNone, true, DType::kBF16},
        FootprintCase{CaseKernel::kDecodePaged, false, 5, kNone, true, DType::kF16, 16, 80},
        FootprintCase{CaseKernel::kDecodePaged, false, 40, kNone, true, DType::kBF16, 16, 80},
        FootprintCase{CaseKernel::kDecodePaged, true, 50, kPacked, true, DType::kBF16, 16, 80},
        FootprintCase{CaseKernel::kPrefillPaged, true, 3, kNone, true, DType::kBF16, 7, 65},
        FootprintCase{CaseKernel::kPrefillPaged, true, -1, kNone, true, DType::kE4M3, 16, 16},
        FootprintCase{CaseKernel::kPrefillPaged, false, 3, kBool, true, DType::kE5M2, 17, 80},
        FootprintCase{CaseKernel::kPrefillPaged, false, -1, kBool, true, DType::kBF16, 80, 16}));

INSTANTIATE_TEST_SUITE_P(
    Int8, Footprints,
    ::testing::Values(
        FootprintCase{CaseKernel::kDecodePaged, false, 5, kNone, false, DType::kI8},
        FootprintCase{CaseKernel::kPrefillPaged, true, 3, kPacked, false, DType::kI8},
        FootprintCase{CaseKernel::kDecodePaged, true, 50, kBool, true, DType::kI8, 16, 80},
        FootprintCase{CaseKernel::kPrefillPaged, true, -1, kNone, true, DType::kI8, 16, 16}));

/// Spans of a buffer.
int64_t spans_of(const Footprint& spans, const void* buffer) {
  return std::count_if(spans.begin(), spans.end(),
                       [&](const AccessSpan& s) { return s.buffer == buffer; });
}

TEST(PanelFootprint, PanelsThatAreReadWholeAreASpanAPageOrLess) {
  for (const int32_t page_size : {16, 32, 64}) {
    for (const DType t : {DType::kF32, DType::kBF16}) {
      SmallAttention c(CaseKernel::kDecodePaged, "",
                       SmallShape{.requests = {{1, 640}},
                                  .qo_heads = 2,
                                  .kv_heads = 2,
                                  .dim_qk = 16,
                                  .dim_vo = 80,
                                  .kv_dtype = t,
                                  .page_size = page_size,
                                  .panels = true});
      c.settle();
      const Footprint backwards = attention_footprint(c.paged);
      EXPECT_EQ(spans_of(backwards, c.k_memory.data()), 640 / page_size);
      EXPECT_EQ(spans_of(backwards, c.v_memory.data()), 640 / page_size);
      std::vector<int32_t> ids(static_cast<size_t>(640 / page_size));
      std::iota(ids.begin(), ids.end(), 1);
      c.paged.pages.page_table = ids;
      const Footprint in_order = attention_footprint(c.paged);
      EXPECT_EQ(spans_of(in_order, c.k_memory.data()), 1);
      EXPECT_EQ(spans_of(in_order, c.v_memory.data()), 1);
    }
  }
}

}  // namespace
}  // namespace shadowgraph::footprint_test
