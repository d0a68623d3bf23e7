#include "backends/paged/trtllm_mha.h"

#include "backends/fill/fields.h"

namespace shadowgraph {
namespace {

using Mha = TrtllmMha;

constexpr ForwardMode kTrtllmMhaModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                           ForwardMode::kMixed,         ForwardMode::kIdle,
                                           ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                           ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                           ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};
constexpr int32_t kTrtllmMhaPageSizes[] = {16, 32, 64};

constexpr Field kTrtllmMhaFields[] = {
    field::lens("cache_seqlens_int32", Mha::kKvLens, "fa.I-03 fa.I-19"),
    field::indptr("cu_seqlens_q", Mha::kCuSeqlensQ, "fa.I-15 fa.I-17"),
    field::key_indptr("cu_seqlens_k", Mha::kCuSeqlensK, "fa.I-23"),
    field::bound("max_seq_len_q", Mha::kMaxSeqLenQ, "fa.I-18", FieldRule::kBaked),
    field::bound("max_seq_len_k", Mha::kMaxSeqLenK, "fa.I-21"),
    field::table("page_table", Mha::kPageTable, Mha::kKvLens, "fa.I-28 fa.I-34"),
    field::table("swa_page_table", Mha::kSwaPageTable, Mha::kKvLens, "fa.I-35 fa.I-36"),
    field::slots("swa_out_cache_loc", Mha::kSwaOutCacheLoc, "fa.I-37"),
};

constexpr BufferRole kTrtllmMhaRoles[] = {
    {Mha::kKvLens, Role::kKeyLens},          {Mha::kCuSeqlensQ, Role::kQueryOffsets},
    {Mha::kOutCacheLoc, Role::kStored},      {Mha::kSwaOutCacheLoc, Role::kStoredInWindow},
    {Mha::kPoolRows, Role::kPoolRows},       {Mha::kCuSeqlensK, Role::kKeyOffsets},
    {Mha::kMaxSeqLenQ, Role::kLongestQuery}, {Mha::kMaxSeqLenK, Role::kLongestKeys, Mha::kKvLens},
    {Mha::kSumSeqLensQ, Role::kAllQueries},
};

constexpr BackendInfo kTrtllmMhaInfo{.name = "trtllm_mha",
                                     .about = "TRTLLM-MHA (SGLang)",
                                     .modes = kTrtllmMhaModes,
                                     .page_sizes = kTrtllmMhaPageSizes,
                                     .tree = false,
                                     .swa_pool = true,
                                     .in_graph_tables = true,
                                     .fields = kTrtllmMhaFields,
                                     .roles = kTrtllmMhaRoles};

}  // namespace

const BackendInfo& TrtllmMha::info() const { return kTrtllmMhaInfo; }

void TrtllmMha::bind_own(Binder& binder, const Limits& limits) const {
  binder.ints(kCuSeqlensK, "cu_seqlens_k", {limits.rows + 1});
}

void TrtllmMha::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  const std::span<int32_t> cu_k = filler.ints(kCuSeqlensK);
  cu_k[0] = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const auto at = static_cast<size_t>(i);
    cu_k[at + 1] = cu_k[at] + row_of(batch, limits, i).extent.kv_len;
  }
}

}  // namespace shadowgraph
