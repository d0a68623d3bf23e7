#include "backends/paged/trtllm_mla.h"

#include <numeric>

#include "backends/fill/fields.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kTrtllmMlaModes[] = {ForwardMode::kDecode,        ForwardMode::kIdle,
                                           ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                           ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode};
constexpr int32_t kTrtllmMlaPageSizes[] = {32, 64};

// A draft step that counts only the prefix (fa.H7) differs here in seq_lens_k.
constexpr Field kTrtllmMlaFields[] = {
    field::table("block_kv_indices", TrtllmMla::kPageTable, TrtllmMla::kKvLens, "fa.I-28 fa.I-85"),
    field::lens("seq_lens_k", TrtllmMla::kSeqLensK, "fa.I-19 fa.I-87"),
    field::host_lens("seq_lens_q", TrtllmMla::kSeqLensQ, "fa.I-17"),
    field::indptr("cu_seqlens_q", TrtllmMla::kCuSeqlensQ, "fa.I-15 fa.I-97"),
    field::bound("max_seq_len_q", TrtllmMla::kMaxSeqLenQ, "fa.I-18", FieldRule::kBaked),
    field::bound("max_seq_len_k", TrtllmMla::kMaxSeqLenK, "fa.I-21"),
    field::bound("sum_seq_lens_q", TrtllmMla::kSumSeqLensQ, "fa.I-16", FieldRule::kExact),
};

constexpr BufferRole kTrtllmMlaRoles[] = {
    {TrtllmMla::kKvLens, Role::kKeyLens},
    {TrtllmMla::kCuSeqlensQ, Role::kQueryOffsets},
    {TrtllmMla::kOutCacheLoc, Role::kStored},
    {TrtllmMla::kPoolRows, Role::kPoolRows},
    {TrtllmMla::kSeqLensK, Role::kWidthLens},
    {TrtllmMla::kSeqLensQ, Role::kQueryLens},
    {TrtllmMla::kMaxSeqLenQ, Role::kLongestQuery},
    {TrtllmMla::kMaxSeqLenK, Role::kLongestKeys, TrtllmMla::kKvLens},
    {TrtllmMla::kSumSeqLensQ, Role::kAllQueries},
};

constexpr BackendInfo kTrtllmMlaInfo{.name = "trtllm_mla",
                                     .about = "TRTLLM-MLA decode (SGLang)",
                                     .modes = kTrtllmMlaModes,
                                     .page_sizes = kTrtllmMlaPageSizes,
                                     .tree = false,
                                     .heads = false,
                                     .latent = true,
                                     .in_graph_tables = true,
                                     .fields = kTrtllmMlaFields,
                                     .roles = kTrtllmMlaRoles};

}  // namespace

const BackendInfo& TrtllmMla::info() const { return kTrtllmMlaInfo; }

int64_t TrtllmMla::column_multiple(int32_t page_size) const {
  return std::lcm(128 / page_size, 4096 / page_size);
}

void TrtllmMla::bind_own(Binder& binder, const Limits& limits) const {
  MlaBackend::bind_own(binder, limits);
  binder.ints(kSeqLensQ, "seq_lens_q", {limits.rows});
}

void TrtllmMla::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  MlaBackend::fill_own(batch, limits, filler);
  const std::span<int32_t> lens_q = filler.ints(kSeqLensQ);
  for (int32_t i = 0; i < limits.rows; ++i)
    lens_q[static_cast<size_t>(i)] = row_of(batch, limits, i).extent.q_len;
}

}  // namespace shadowgraph
