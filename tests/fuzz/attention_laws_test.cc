// The ladder of dense attention and merges sees planted slips: footprints, workspaces and threads
// are held to what they promise.
#include "fuzz/call/attention_laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "attn/page_table.h"
#include "core/float_formats.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/fuzz.h"
#include "fuzz/small_attention.h"

namespace shadowgraph::attention_laws_test {
namespace {

std::string check(CaseData data, const AttentionCase& x) {
  return check_case(exact_case(data, x), RunOptions()).to_string();
}

TEST(CheckCase, AcceptsEveryKind) {
  for (const CaseKernel kernel :
       {CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged, CaseKernel::kPrefillRagged}) {
    for (const CaseData data :
         {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked}) {
      AttentionCase x = small_attention();
      x.kernel = kernel;
      if (kernel == CaseKernel::kDecodePaged) x.requests = {{39, 1, 40}, {0, 1, 1}};
      EXPECT_EQ(check(data, x), "ok");
    }
  }
}

TEST(CheckCase, AcceptsInt8InEveryLayout) {
  for (const CaseData data :
       {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked}) {
    for (int layout = 0; layout < 6; ++layout) {
      for (const bool through_store_kv : {false, true}) {
        AttentionCase x = small_attention();
        x.kv_dtype = DType::kI8;
        x.k_scale = 0.625f, x.v_scale = 1.75f;
        x.layout = static_cast<KvLayout>(layout);
        x.through_store_kv = through_store_kv && x.layout != KvLayout::kMlaLatent;
        if (x.layout == KvLayout::kPanels) x.page_size = 16;
        if (x.layout == KvLayout::kMlaLatent) x.num_kv_heads = 1, x.head_dim_qk = 24;
        for (uint64_t seed = 0; seed < 5; ++seed) {
          const Case c = {data, seed, x};
          EXPECT_EQ(check_case(c, RunOptions()).to_string(), "ok") << c.to_string();
        }
      }
    }
  }
}

TEST(CheckCase, ReportsARefusedCall) {
  AttentionCase x = small_attention();
  x.sm_scale = 0;
  const Status status = check_case(exact_case(CaseData::kRandom, x), RunOptions());
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "param.scale");
}

TEST(MakeData, IsAFunctionOfTheCase) {
  const Case x = exact_case(CaseData::kRandom);
  const AttentionData a = make_attention_data(x), b = make_attention_data(x);
  Case other = x;
  other.seed = 6;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a.requests[i].q.bytes, b.requests[i].q.bytes);
    EXPECT_EQ(a.requests[i].k.bytes, b.requests[i].k.bytes);
    EXPECT_EQ(a.requests[i].v.bytes, b.requests[i].v.bytes);
    EXPECT_NE(a.requests[i].v.bytes, make_attention_data(other).requests[i].v.bytes);
  }
}

TEST(MakeData, MarksTheKeysThatSomeQuerySees) {
  const AttentionData data = make_attention_data(exact_case(CaseData::kUniform));
  // Request 0: queries at 38 and 39, a window of 9 before them.
  for (size_t k = 0; k < 40; ++k) EXPECT_EQ(data.requests[0].visible[k] != 0, k >= 29) << k;
}

TEST(CheckCase, AcceptsALatentCache) {
  for (const CaseData data : {CaseData::kUniform, CaseData::kSelector, CaseData::kPeaked}) {
    AttentionCase x = small_attention();
    x.num_kv_heads = 1;
    x.head_dim_qk = 24;
    x.layout = KvLayout::kMlaLatent;
    EXPECT_EQ(check(data, x), "ok");
    const Laid laid(exact_case(data, x));
    const KvCache& cache = laid.paged().cache;
    EXPECT_EQ(cache.k.data, cache.v.data);
    EXPECT_EQ(cache.k.page_stride, cache.v.page_stride);
  }
}

TEST(CheckCase, AcceptsMerges) {
  for (const LseBase base : {LseBase::kNatural, LseBase::kLog2}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const MergeCase merge = {
          .rows = 3, .states = static_cast<int32_t>(1 + seed % 5), .heads = 2, .lse_base = base};
      const Case x = {seed % 2 ? CaseData::kUniform : CaseData::kRandom, seed, merge};
      EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
    }
  }
}

TEST(AttentionScene, LeavesGapsOfPoisonInThePool) {
  const Case x = exact_case(CaseData::kUniform);
  std::set<int64_t> dense, gapped;  // layouts whose pages were seen packed, and apart
  for (uint64_t seed = 0; seed < 200; ++seed) {
    AttentionArrangement how = AttentionArrangement::of(x);
    how.seed = seed;
    how.layout = static_cast<KvLayout>(seed % 4);
    Laid laid(x, how);
    const KvCache& c = laid.paged().cache;
    const int64_t rows = c.page_size * c.num_kv_heads * (seed % 4 >= 2 ? 2 : 1);
    (c.k.page_stride == rows * c.k.head_dim ? dense : gapped).insert(seed % 4);
    const int64_t head_gap = std::min(c.k.head_stride, c.k.token_stride) - c.k.head_dim;
    const auto at = c.k.offset(0, 0, 0, c.k.head_dim) * static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; i < head_gap * static_cast<int64_t>(sizeof(float)); ++i)
      ASSERT_EQ(c.k.data[at + i], kPoison);
    EXPECT_EQ(laid.scene.run().to_string(), "ok");
  }
  EXPECT_EQ(dense.size(), 4u);
  EXPECT_EQ(gapped.size(), 4u);
}

TEST(AttentionScene, PoisonsAllOfAPanelButItsVisibleTokens) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kE4M3}) {
    AttentionCase x = small_attention();
    x.kv_dtype = type;
    x.head_dim_qk = 5, x.head_dim_vo = 70;
    x.layout = KvLayout::kPanels;
    x.page_size = 32;
    const Case c = exact_case(CaseData::kUniform, x);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      AttentionArrangement how = AttentionArrangement::of(c);
      how.seed = seed;
      const Laid laid(c, how);
      const AttentionData& data = laid.data;
      const PagedAttention& made = laid.paged();
      std::set<const std::byte*> own[2];  // first bytes of the visible tokens' elements
      const auto size = static_cast<int64_t>(size_of(type));
      for (size_t r = 0; r < data.requests.size(); ++r) {
        for (int32_t t = 0; t < x.requests[r].kv_len; ++t) {
          if (!data.requests[r].visible[static_cast<size_t>(t)]) continue;
          const RequestPages pages = request_pages(made.pages, 32, static_cast<int64_t>(r));
          for (const bool key : {true, false}) {
            const KvPlane& p = key ? made.cache.k : made.cache.v;
            const LogicalTensor& from = key ? data.requests[r].k : data.requests[r].v;
            for (int64_t head = 0; head < x.num_kv_heads; ++head) {
              for (int64_t d = 0; d < p.head_dim; ++d) {
                const std::byte* at =
                    p.data + p.offset(pages.page_ids[t / 32], t % 32, head, d) * size;
                own[key].insert(at);
                ASSERT_EQ(std::memcmp(at, from.row(t, head) + d * size, size_of(type)), 0);
              }
            }
          }
        }
      }
      for (const bool key : {true, false}) {
        const KvPlane& p = key ? made.cache.k : made.cache.v;
        const int64_t last =
            p.offset(made.cache.num_pages - 1, 31, x.num_kv_heads - 1, p.head_dim - 1) * size;
        for (int64_t i = 0; i <= last; i += size) {
          const bool poison =
              std::all_of(p.data + i, p.data + i + size, [](std::byte b) { return b == kPoison; });
          ASSERT_EQ(poison, !own[key].contains(p.data + i)) << i;
        }
      }
    }
  }
}

TEST(AttentionScene, PoisonsTheScalesOfWhatNoQuerySees) {
  AttentionCase x = small_attention();
  x.kv_dtype = DType::kI8;
  const Case c = exact_case(CaseData::kPeaked, x);
  for (int layout = 0; layout < 4; ++layout) {
    AttentionArrangement how = AttentionArrangement::of(c);
    how.layout = static_cast<KvLayout>(layout);
    const Laid laid(c, how);
    const AttentionData& data = laid.data;
    const PagedAttention& made = laid.paged();
    std::set<std::pair<bool, int64_t>> own;
    for (size_t r = 0; r < data.requests.size(); ++r) {
      const RequestPages pages = request_pages(made.pages, 4, static_cast<int64_t>(r));
      for (int32_t t = 0; t < x.requests[r].kv_len; ++t) {
        if (!data.requests[r].visible[static_cast<size_t>(t)]) continue;
        for (const bool key : {true, false}) {
          const KvPlane& p = key ? made.cache.k : made.cache.v;
          const LogicalTensor& from = key ? data.requests[r].k : data.requests[r].v;
          for (int64_t head = 0; head < x.num_kv_heads; ++head) {
            const int64_t at = p.scale_offset(pages.page_ids[t / 4], t % 4, head);
            own.emplace(key, at);
            EXPECT_EQ(p.scales[at], from.scale(t, head));
          }
        }
      }
    }
    for (int64_t i = 0; i < made.cache.num_slots() * x.num_kv_heads; ++i) {
      for (const bool key : {true, false}) {
        const KvPlane& p = key ? made.cache.k : made.cache.v;
        const int64_t slot = i / x.num_kv_heads;
        const int64_t at = p.scale_offset(slot / 4, slot % 4, i % x.num_kv_heads);
        EXPECT_EQ(std::isnan(p.scales[at]), !own.contains({key, at}));
      }
    }
  }
}

TEST(AttentionScene, StoreKvRestoresTheSameBytes) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
    AttentionCase x = small_attention();
    x.kv_dtype = type;
    if (is_fp8(type)) x.k_scale = 0.037f, x.v_scale = 2.3f;
    if (type == DType::kI8) x.k_scale = 0.625f, x.v_scale = 1.75f;
    x.through_store_kv = true;
    x.page_size = 16;
    const Case c = exact_case(CaseData::kPeaked, x);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      AttentionArrangement how = AttentionArrangement::of(c);
      how.seed = seed;
      if (seed % 2) how.layout = KvLayout::kPanels;
      EXPECT_EQ(Laid(c, how).scene.run().to_string(), "ok") << name_of(type);
    }
  }
}

/// The first finding's law, of what is found where that footprint is said of a call that ran.
std::string found(const Laid& laid, const Footprint& spans) {
  const Status status = laid.scene.check_writes(spans);
  return status.ok() ? "" : status.findings()[0].id;
}

TEST(AttentionFootprint, ThatIsTooSmallOrTooLargeIsSeen) {
  for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kPanels}) {
    AttentionCase x = small_attention();
    x.layout = layout, x.page_size = 16;
    Laid laid(exact_case(CaseData::kRandom, x));
    ASSERT_EQ(laid.scene.run().to_string(), "ok");
    const Footprint spans = footprint_of(laid.scene.call());
    ASSERT_EQ(found(laid, spans), "");
    const PagedAttention& call = laid.paged();
    for (size_t i = 0; i < spans.size(); ++i) {
      Footprint other = spans;
      AccessSpan& span = other[i];
      if (span.access == Access::kWrite) {
        --span.count;  // too small
        EXPECT_EQ(found(laid, other), "num.write_set");
        span.count = spans[i].count, span.access = Access::kTouch;
        EXPECT_EQ(found(laid, other), "num.write_set");
      }
      if (span.buffer == call.cache.k.data && span.access == Access::kTouch) {
        span.access =
            Access::kRead;  // too large: the padding of a panel, or a token that is hidden
        EXPECT_EQ(found(laid, other), "mem.uninit_read");
      }
    }
    Footprint other = spans;  // too large: a key that the window has left
    other.push_back({call.cache.k.data, 0, int64_t{1} << 20, 4, Access::kRead, 0});
    EXPECT_NE(found(laid, other), "");
    other = spans;
    other.push_back({call.q.data, 0, 1, 4, Access::kWrite, 0});
    EXPECT_EQ(found(laid, other), "num.write_set");
  }
}

TEST(AttentionFootprint, ThatLeavesOutAKeyGivesOtherBits) {
  // As if the footprint did not read the hot key: it is poison in a variant, and the result a NaN.
  const Case x = exact_case(CaseData::kUniform);
  Laid laid(x);
  const PagedAttention& call = laid.paged();
  for (const AccessSpan& span : footprint_of(laid.scene.call())) {
    if (span.buffer != call.cache.v.data || span.access != Access::kRead) continue;
    std::memset(call.cache.v.data + span.first * 4, 0xff, sizeof(float));
    break;
  }
  EXPECT_EQ(execute(laid.scene.call()).to_string(), "ok");
  EXPECT_EQ(judge_attention(x, laid.scene).findings()[0].id, "num.poison");
}

TEST(AttentionWorkspace, AByteBesideItIsSeen) {
  const Case x = exact_case(CaseData::kRandom);
  AttentionArrangement how = AttentionArrangement::of(x);
  how.workspace = true;
  Laid laid(x, how);
  ASSERT_EQ(laid.scene.run().to_string(), "ok");
  const std::span<std::byte> scratch = laid.paged().options.scratch;
  ASSERT_EQ(std::ssize(scratch), attention_scratch_size(laid.paged()));
  for (std::byte* byte : {scratch.data() - 1, scratch.data() + scratch.size()}) {
    *byte = std::byte{0};
    EXPECT_EQ(found(laid, footprint_of(laid.scene.call())), "mem.red_zone");
    *byte = kPoison;
  }
  laid.scene.lay(0);
  EXPECT_EQ(laid.scene.run().to_string(), "ok");
}

TEST(AttentionWorkspace, OneThatIsTooSmallIsRefused) {
  const Case x = exact_case(CaseData::kRandom);
  AttentionArrangement how = AttentionArrangement::of(x);
  how.workspace = true;
  const Laid laid(x, how);
  PagedAttention call = laid.paged();
  call.options.scratch = call.options.scratch.first(64);
  EXPECT_EQ(attention_with_kvcache(call).findings()[0].id, "input.memory");
  EXPECT_EQ(laid.scene.check_untouched().to_string(), "ok");
}

TEST(AttentionBits, SeesARowThatDependsOnThreads) {
  const Case x = exact_case(CaseData::kRandom);
  Laid laid(x);
  ASSERT_EQ(laid.scene.run().to_string(), "ok");
  RowResults one(x), three(x);
  laid.scene.collect(&one);
  three = one;
  three.out[4][7] ^= std::byte{1};  // what another order of sums may give
  EXPECT_EQ(compare_bits(one, three, "3 threads").findings()[0].id, "num.bits");
  three = one;
  three.beside[4][0] ^= std::byte{1};
  EXPECT_EQ(compare_bits(one, three, "3 threads").findings()[0].id, "num.bits");
}

TEST(AttentionBits, VariantsAreOfEveryForm) {
  AttentionCase attention = small_attention();
  attention.requests = {{38, 6, 44}, {17, 3, 20}, {0, 4, 4}};
  const Case x = exact_case(CaseData::kRandom, attention);
  std::map<std::string, int> seen;
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const AttentionArrangement a = vary_attention(x, RunOptions(), rng);
    const auto count = [&](const char* what, bool has) { seen[what] += has ? 1 : 0; };
    std::vector<int32_t> tokens(3, 0);
    bool cut = false;
    for (const auto& call : a.calls) {
      for (const RowPiece& p : call) {
        const auto row = static_cast<size_t>(p.row);
        tokens[row] += p.end - p.begin;
        cut |= p.end < attention.requests[row].q_len;
      }
    }
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(tokens[r], attention.requests[r].q_len);
    count("cut", cut), count("cut in one call", cut && a.calls.size() == 1);
    count("alone", a.calls.size() == 3), count("poison", a.poison_unread);
    count("idle", a.idle_rows > 0), count("ragged", a.ragged), count("planned", a.planned);
    count("workspace", a.workspace), count("threads", a.options.num_threads > 1);
    count("planned by threads", a.planned && a.options.num_threads > 1);
    count("store_kv", a.through_store_kv), count("no lse", !a.with_lse);
  }
  for (const auto& [what, cases] : seen) EXPECT_GT(cases, 3) << what;
}

TEST(MergeWrites, SeesAByteBesideItsRows) {
  const Case x = {CaseData::kRandom, 3, MergeCase{.rows = 3, .states = 4, .heads = 2}};
  const MergeData data = make_merge_data(x);
  MergeScene scene(x, data, MergeArrangement::of(x));
  scene.lay(0);
  ASSERT_EQ(scene.run().to_string(), "ok");
  Footprint spans = footprint_of(scene.call());
  const auto& call = std::get<MergeStates<LseBase::kNatural>>(scene.call());
  call.out.data[-1] ^= std::byte{1};
  EXPECT_EQ(scene.check_writes(spans).findings().size(), 1u);
  scene.lay(0);
  ASSERT_EQ(scene.run().to_string(), "ok");
  spans = footprint_of(scene.call());
  std::erase_if(spans, [&](const AccessSpan& s) { return s.buffer == call.lse.tensor.data; });
  EXPECT_EQ(scene.check_writes(spans).findings()[0].id, "num.write_set");
}

TEST(MergeFootprint, DoesNotReadTheValuesOfAnEmptyState) {
  const Case x = {CaseData::kRandom, 3, MergeCase{.rows = 3, .states = 4, .heads = 2}};
  const MergeData data = make_merge_data(x);
  MergeScene scene(x, data, MergeArrangement::of(x));
  scene.lay(0);
  ASSERT_EQ(scene.run().to_string(), "ok");
  Footprint spans = footprint_of(scene.call());
  const auto& v = std::get<MergeStates<LseBase::kNatural>>(scene.call()).v;
  spans.push_back({v.data, 0, v.stride[0] * 3, 4, Access::kRead, 0});
  EXPECT_FALSE(scene.check_writes(spans).ok());
}

}  // namespace
}  // namespace shadowgraph::attention_laws_test
