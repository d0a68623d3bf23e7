#include "backends/paged/ascend.h"

#include "backends/fill/fields.h"
#include "launch/ascend_launch.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kAscendModes[] = {
    ForwardMode::kExtend,        ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,          ForwardMode::kTargetVerify, ForwardMode::kDraftExtend,
    ForwardMode::kDraftExtendV2, ForwardMode::kDllmExtend,   ForwardMode::kDraftDecode};

// The device's lengths and the host's are one buffer here, so they cannot differ (fi.I-108).
constexpr Field kAscendFields[] = {
    field::rows("seq_lens", Ascend::kKvLens, "fi.I-108"),
    field::host_lens("seq_lens_cpu_int", Ascend::kKvLens, "fi.I-108 fi.I-81"),
    field::host_lens("seq_lens_cpu_list", Ascend::kKvLens, "fi.I-108 fi.I-81"),
    field::host_lens("actual_seq_lengths_q", Ascend::kActualSeqLengths, "fi.I-109 fi.I-81"),
    field::host_lens("seq_lens_list_cumsum", Ascend::kActualSeqLengths, "fi.I-109 fi.I-81"),
    field::table("block_tables", Ascend::kPageTable, Ascend::kKvLens, "fi.I-108"),
    field::table("block_tables_swa", Ascend::kSwaPageTable, Ascend::kKvLens, "fi.I-108"),
};

constexpr BufferRole kAscendRoles[] = {
    {Ascend::kKvLens, Role::kKeyLens},
    {Ascend::kCuSeqlensQ, Role::kQueryOffsets},
    {Ascend::kOutCacheLoc, Role::kStored},
    {Ascend::kSwaOutCacheLoc, Role::kStoredInWindow},
    {Ascend::kPoolRows, Role::kPoolRows},
    {Ascend::kActualSeqLengths, Role::kQueryEnds},
    {Ascend::kMaxSeqLenQ, Role::kLongestQuery},
    {Ascend::kMaxSeqLenK, Role::kLongestKeys, Ascend::kKvLens},
    {Ascend::kSumSeqLensQ, Role::kAllQueries},
};

constexpr BackendInfo kAscendInfo{.name = "ascend",
                                  .about = "Ascend NPU attention (SGLang)",
                                  .modes = kAscendModes,
                                  .page_sizes = {},
                                  .tree = false,
                                  .latent = true,
                                  .swa_pool = true,
                                  .empty_padding = true,
                                  .fields = kAscendFields,
                                  .roles = kAscendRoles};

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
