#include "backends/paged/trtllm_mla.h"

#include <numeric>

#include "backends/fill/buffer_rows.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kTrtllmMlaModes[] = {ForwardMode::kDecode,        ForwardMode::kIdle,
                                           ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                           ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode};
constexpr int32_t kTrtllmMlaPageSizes[] = {32, 64};  // edge: keys

// A draft step that counts only the prefix (fa.H7) differs here in seq_lens_k.
constexpr auto kTrtllmMlaBuffers = with_family(
    kPagedBuffers,
    {field::table(TrtllmMla::kPageTable, TrtllmMla::kKvLens, "block_kv_indices", "fa.I-28 fa.I-85"),
     recorded(TrtllmMla::kSeqLensK, Role::kWidthLens, "seq_lens_k", "fa.I-19 fa.I-87"),
     recorded(TrtllmMla::kCuSeqlensQ, Role::kQueryOffsets, "cu_seqlens_q", "fa.I-15 fa.I-97"),
     dead(recorded(TrtllmMla::kSeqLensQ, Role::kQueryLens, "seq_lens_q", "fa.I-17"),
          "draft extends pad queries by it; other requests fill their window", kDecodeModes),
     recorded(TrtllmMla::kMaxSeqLenQ, Role::kLongestQuery, "max_seq_len_q", "fa.I-18"),
     recorded(TrtllmMla::kMaxSeqLenK, Role::kLongestKeys, "max_seq_len_k", "fa.I-21",
              TrtllmMla::kKvLens),
     recorded(TrtllmMla::kSumSeqLensQ, Role::kAllQueries, "sum_seq_lens_q", "fa.I-16"),
     {TrtllmMla::kRowCounters, Role::kCounters}});

constexpr BackendInfo kTrtllmMlaInfo{.name = "trtllm_mla",
                                     .about = "TRTLLM-MLA decode (SGLang)",
                                     .modes = kTrtllmMlaModes,
                                     .page_sizes = kTrtllmMlaPageSizes,
                                     .heads = false,
                                     .latent = true,
                                     .in_graph_tables = true,
                                     .graph_storage = kOneTableOfTrtllm,
                                     .buffers = kTrtllmMlaBuffers};

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
