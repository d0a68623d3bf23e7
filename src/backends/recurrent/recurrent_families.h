// Backends over recurrent states that differ only in their rules. Facts: docs/metadata.md
// "Recurrent layers". Tested by tests/backends/recurrent_test.cc.
#pragma once

#include "backends/fill/buffer_rows.h"
#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

inline constexpr ForwardMode kRecurrentModes[] = {
    ForwardMode::kExtend, ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,   ForwardMode::kTargetVerify, ForwardMode::kSplitPrefill};

inline constexpr std::string_view kOfTheTree =
    "the batch's tree as it is: the parents that a launch makes of it are read";

/// Rows of the buffers that all have.
inline constexpr auto kRecurrentBuffers = std::to_array<BufferInfo>({
    {RecurrentBackend::kQueryStartLoc, Role::kQueryOffsets},
    {RecurrentBackend::kStateIndices, Role::kStateSlots},
    {RecurrentBackend::kInitialStates, Role::kInitialStates},
    {RecurrentBackend::kParents, Role::kDraftParents},
    {RecurrentBackend::kTrackSlots, Role::kTrackSlots},
    unread(RecurrentBackend::kNextToken, kOfTheTree),
    unread(RecurrentBackend::kNextSibling, kOfTheTree),
    {RecurrentBackend::kTrackConv, Role::kTrackWindows},
    {RecurrentBackend::kTrackFinal, Role::kTrackFinals},
    {RecurrentBackend::kTrackChunks, Role::kTrackChunks},
});

constexpr BackendInfo recurrent_info(std::string_view name, std::string_view about,
                                     std::span<const RecurrentFamily> families, bool tree = true,
                                     std::span<const BufferInfo> buffers = kRecurrentBuffers,
                                     const Engine& engine = kSglang) {
  return {.name = name,
          .about = about,
          .modes = kRecurrentModes,
          .page_sizes = {},
          .tree = tree,
          .engine = &engine,
          .dense = false,
          .recurrent = families,
          .track_states = true,
          .graph_storage = kStateLists,
          .buffers = buffers};
}

inline constexpr RecurrentFamily kGdnFamily[] = {RecurrentFamily::kGdn};
inline constexpr RecurrentFamily kKdaFamily[] = {RecurrentFamily::kKda};
inline constexpr RecurrentFamily kLightningFamily[] = {RecurrentFamily::kLightning};

/// Gated DeltaNet. Its packed decode gives rows without a slot 0; a verify computes them from zero,
/// and keeps that.
inline constexpr RecurrentRules kGdnRules{
    .info = recurrent_info("gdn", "gated delta rule over state slots, behind a convolution",
                           kGdnFamily),
    .pad = PadRow::kZeroOut,
    .pad_in_verify = PadRow::kFromZero};

/// Kimi Delta Attention. Rows without a slot are computed from zero, and a verify keeps that.
inline constexpr RecurrentRules kKdaRules{
    .info = recurrent_info("kda", "delta rule with a decay per channel, behind a convolution",
                           kKdaFamily),
    .pad = PadRow::kFromZero,
    .pad_in_verify = PadRow::kFromZero};

/// Lightning attention. Rows without a slot are skipped. No trees.
inline constexpr RecurrentRules kLightningRules{
    .info = recurrent_info("lightning", "decaying linear attention over state slots",
                           kLightningFamily, /*tree=*/false),
    .pad = PadRow::kSkip,
    .pad_in_verify = PadRow::kSkip};

/// Gated DeltaNet on an NPU. Padding has length 0 and names slot 0, which is nobody's; its kernels
/// take offsets, by which padding has no tokens.
inline constexpr auto kAscendGdnBuffers =
    with_family(kRecurrentBuffers, {{RecurrentBackend::kStateIndices, Role::kStateSlotsZero}});
inline constexpr RecurrentRules kAscendGdnRules{
    .info =
        recurrent_info("ascend_gdn", "gated delta rule over state slots, by an NPU's conventions",
                       kGdnFamily, /*tree=*/true, kAscendGdnBuffers, kSglangNpu),
    .pad = PadRow::kSkip,
    .pad_in_verify = PadRow::kSkip,
    .pad_slot = 0,
    .dense_rows = false};

}  // namespace shadowgraph
