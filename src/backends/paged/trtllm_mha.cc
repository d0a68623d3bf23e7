#include "backends/paged/trtllm_mha.h"

#include "backends/fill/buffer_rows.h"
#include "launch/row_numbers.h"

namespace shadowgraph {
namespace {

using Mha = TrtllmMha;

constexpr ForwardMode kTrtllmMhaModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                           ForwardMode::kMixed,         ForwardMode::kIdle,
                                           ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                           ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                           ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};
constexpr int32_t kTrtllmMhaPageSizes[] = {16, 32, 64};  // edge: keys

constexpr auto kTrtllmMhaBuffers = with_family(
    kPagedBuffers,
    {recorded(Mha::kKvLens, Role::kKeyLens, "cache_seqlens_int32", "fa.I-03 fa.I-19"),
     recorded(Mha::kCuSeqlensQ, Role::kQueryOffsets, "cu_seqlens_q", "fa.I-15 fa.I-17"),
     dead(recorded(Mha::kCuSeqlensK, Role::kKeyOffsets, "cu_seqlens_k", "fa.I-23"),
          "a decode kernel takes lengths, and no offsets of keys", kDecodeModes),
     recorded(Mha::kMaxSeqLenQ, Role::kLongestQuery, "max_seq_len_q", "fa.I-18"),
     recorded(Mha::kMaxSeqLenK, Role::kLongestKeys, "max_seq_len_k", "fa.I-21", Mha::kKvLens),
     field::table(Mha::kPageTable, Mha::kKvLens, "page_table", "fa.I-28 fa.I-34"),
     field::table(Mha::kSwaPageTable, Mha::kKvLens, "swa_page_table", "fa.I-35 fa.I-36"),
     recorded(Mha::kSwaOutCacheLoc, Role::kStoredInWindow, "swa_out_cache_loc", "fa.I-37"),
     {Mha::kRowCounters, Role::kCounters}});

constexpr BackendInfo kTrtllmMhaInfo{.name = "trtllm_mha",
                                     .about = "TRTLLM-MHA (SGLang)",
                                     .modes = kTrtllmMhaModes,
                                     .page_sizes = kTrtllmMhaPageSizes,
                                     .swa_pool = true,
                                     .in_graph_tables = true,
                                     .sinks = true,
                                     .graph_storage = kDictionariesOfTrtllm,
                                     .buffers = kTrtllmMhaBuffers};

/// The others run the decode kernel.
bool runs_prefill_kernel(ForwardMode mode) {
  return !is_decode_or_idle(mode) && !is_target_verify(mode);
}

}  // namespace

const BackendInfo& TrtllmMha::info() const { return kTrtllmMhaInfo; }

void TrtllmMha::bind_own(Binder& binder, const Limits& limits) const {
  binder.ints(kCuSeqlensK, "cu_seqlens_k", {limits.rows + 1});
  if (runs_prefill_kernel(limits.mode))
    binder.scratch(kPrefillLens, "prefill_lens", DType::kI32, {limits.rows}, 1);
}

/// A prefill kernel is told both lengths and offsets: they must agree.
std::span<const int32_t> TrtllmMha::kernel_lens(Stream& stream, const Meta& meta) const {
  if (!meta.has(kPrefillLens)) return PagedBackend::kernel_lens(stream, meta);
  RowLens c;
  c.lens = elements<int32_t>(meta[kKvLens]), c.of_lens = 2;
  c.counts = elements<int32_t>(meta[kCuSeqlensK]), c.of_counts = -1;
  c.out = written<int32_t>(meta[kPrefillLens]);
  stream.launch(row_lens_launch(c, {1, meta.limits.first_row}));
  return c.out;
}

void TrtllmMha::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  const std::span<int32_t> cu_k = filler.ints(kCuSeqlensK);
  cu_k[0] = 0;
  for (size_t i = 0; i + 1 < cu_k.size(); ++i)
    cu_k[i + 1] = cu_k[i] + row_of(batch, limits, static_cast<int64_t>(i)).extent.kv_len;
}

}  // namespace shadowgraph
