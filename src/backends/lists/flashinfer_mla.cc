#include "backends/lists/flashinfer_mla.h"

#include "backends/fill/buffer_rows.h"
#include "backends/fill/csr_rows.h"
#include "backends/lists/flashinfer_wrapper.h"
#include "launch/attention_launch.h"
#include "launch/row_numbers.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kFlashInferMlaModes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill, ForwardMode::kDraftDecode};

constexpr CsrIds kList{.indptr = FlashInferMla::kKvIndptr, .indices = FlashInferMla::kKvIndices};

using FiMla = FlashInferMla;

constexpr BufferInfo kFlashInferMlaBuffers[] = {
    recorded(FiMla::kQoIndptr, Role::kQueryOffsets, "qo_indptr", "fi.I-3 fi.I-4"),
    recorded(FiMla::kKvIndptr, Role::kKeyOffsets, "kv_indptr", "fi.I-1 fi.I-16 fi.I-27"),
    field::list(FiMla::kKvIndices, FiMla::kKvIndptr, "kv_indices", "fi.I-6 fi.I-15"),
    recorded(FiMla::kKvLens, Role::kKeyLens, "kv_len_arr", "fi.I-16 fi.I-27 fi.I-85"),
    {FiMla::kOutCacheLoc, Role::kStored},
};

constexpr BackendInfo kFlashInferMlaInfo{.name = "flashinfer_mla",
                                         .about = "FlashInfer's MLA: lists of slots (SGLang)",
                                         .modes = kFlashInferMlaModes,
                                         .page_sizes = {},
                                         .heads = false,
                                         .latent = true,
                                         .graph_storage = kOneForAllModes,
                                         .buffers = kFlashInferMlaBuffers};

Status check_flash_infer_mla(const Limits& limits) {
  Status status = serves(kFlashInferMlaInfo, limits);
  const ModelConfig& m = limits.model;
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerKind& kind = m.layers[i];
    if (has_window(kind) || kind.params.num_kv_heads > 1)
      refuse(&status, "layers", "one latent head, and all keys", static_cast<int64_t>(i));
  }
  if (const int64_t keys = most_listed_keys(limits, limits.max_kv_len); keys > INT32_MAX)
    refuse(&status, "max_kv_len", "offsets of 32 bits", keys);
  return status;
}

}  // namespace

const BackendInfo& FlashInferMla::info() const { return kFlashInferMlaInfo; }

Status FlashInferMla::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check_flash_infer_mla(limits);
  if (!status.ok()) return status;
  Binder b(*this, arena, limits, kNumBuffers);
  b.query_offsets(kQoIndptr, "qo_indptr", limits.rows);
  bind_csr(b, kList, "kv", limits.rows, most_listed_keys(limits, limits.max_kv_len));
  b.ints(kKvLens, "kv_len_arr", {limits.rows});
  b.scratch(kLastPageLen, "kv_last_page_len", DType::kI32, {limits.rows}, 1);
  b.slots(kOutCacheLoc, "out_cache_loc", limits.tokens);
  return b.bind(meta);
}

Status FlashInferMla::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  Status status = fits(batch, limits);
  if (!status.ok()) return status;
  Filler f(meta);
  CsrRows rows(f, kList);
  const std::span<int32_t> lens = f.ints(kKvLens);
  std::span<int32_t> qo_indptr;
  if (!is_decode_or_idle(limits.mode)) qo_indptr = f.ints(kQoIndptr);
  if (!qo_indptr.empty()) qo_indptr[0] = 0;
  for_each_row(batch, limits, [&](int64_t i, const RequestRow& row) {
    const auto at = static_cast<size_t>(i);
    lens[at] = row.extent.kv_len;
    if (!qo_indptr.empty()) qo_indptr[at + 1] = qo_indptr[at] + row.extent.q_len;
    rows.add(row, {0, row.extent.kv_len});
  });
  rows.close();
  f.out_cache_loc(batch, kOutCacheLoc, -1);
  return f.take_status();
}

std::vector<KeyList> FlashInferMla::key_lists(const Meta& /*meta*/,
                                              const LayerKind& /*kind*/) const {
  return {list_of_slots(kKvIndices, kKvIndptr, kQoIndptr)};
}

void FlashInferMla::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  // A page is a slot: its only token is a row's last where kv_len_arr and kv_indptr agree.
  const std::span<int32_t> last = written<int32_t>(meta[kLastPageLen]);
  const auto kv_lens = elements<int32_t>(meta[kKvLens]), kv = elements<int32_t>(meta[kKvIndptr]);
  stream.launch(row_lens_launch({kv_lens, kv, 1, -1, 1, last}, {1, meta.limits.first_row}));
  for (const LayerIo& io : step.layers) {
    launch_store(stream, io, meta[kOutCacheLoc], token_rows(meta.limits));
    PagedAttention call;
    call.q = io.q;
    call.cache = slot_view(io.cache);
    call.pages = PageTable::csr(elements<int32_t>(meta[kKvIndptr]),
                                elements<int32_t>(meta[kKvIndices]), last);
    call.cu_seqlens_q = elements<int32_t>(meta[kQoIndptr]);
    call.params = meta.limits.model.layers[static_cast<size_t>(io.kind)].params;
    call.out = io.out;
    call.lse = io.lse;
    call.max_seqlen_q = meta.limits.max_q_len;
    stream.launch(attention_launch(call, {1, meta.limits.first_row}));
  }
}

}  // namespace shadowgraph
