#include "backends/paged/ascend.h"

#include "backends/fill/buffer_rows.h"
#include "launch/ascend_launch.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kAscendModes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kDllmExtend,   ForwardMode::kDraftDecode};

// The device's lengths and the host's are one buffer here, so they cannot differ (fi.I-108). Eager
// steps record int32 lengths, graphs of later engines int64: the operator takes the host's list.
constexpr auto kAscendBuffers = with_family(
    kPagedBuffers,
    {field::any(recorded(Ascend::kKvLens, Role::kKeyLens, "seq_lens", "fi.I-108")),
     field::any(field::rows(Ascend::kKvLens, "seq_lens_cpu_int", "fi.I-108 fi.I-81 fa.I-10")),
     field::any(field::rows(Ascend::kKvLens, "seq_lens_cpu_list", "fi.I-108 fi.I-81 fa.I-10")),
     recorded(Ascend::kActualSeqLengths, Role::kQueryEnds, "actual_seq_lengths_q",
              "fi.I-109 fi.I-81"),
     field::any(field::ends(Ascend::kActualSeqLengths, "seq_lens_list_cumsum", "fi.I-109 fi.I-81")),
     field::table(Ascend::kPageTable, Ascend::kKvLens, "block_tables", "fi.I-108"),
     field::table(Ascend::kSwaPageTable, Ascend::kKvLens, "block_tables_swa", "fi.I-108")});

constexpr BackendInfo kAscendInfo{.name = "ascend",
                                  .about = "Ascend NPU attention (SGLang)",
                                  .modes = kAscendModes,
                                  .page_sizes = {},
                                  .latent = true,
                                  .swa_pool = true,
                                  .sinks = true,
                                  .engine = &kSglangNpu,
                                  .graph_storage = kOneTable,
                                  .buffers = kAscendBuffers};

}  // namespace

const BackendInfo& Ascend::info() const { return kAscendInfo; }

void Ascend::bind_offsets(Binder& binder, const Limits& limits) const {
  binder.ints(kActualSeqLengths, "actual_seq_lengths", {limits.rows});
  binder.scratch(kCuSeqlensQ, "cu_seqlens_q", DType::kI32, {limits.rows + 1}, 1);
}

void Ascend::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  int32_t end = 0, row = 0;
  for (int32_t& of_row : filler.ints(kActualSeqLengths))
    of_row = end += row_of(batch, limits, row++).extent.q_len;
}

void Ascend::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  const InclusiveEnds ends(elements<int32_t>(meta[kActualSeqLengths]));
  stream.launch(indptr_launch(ends, elements<int32_t>(meta[kCuSeqlensQ])));
  PagedBackend::forward(stream, meta, step);
}

}  // namespace shadowgraph
