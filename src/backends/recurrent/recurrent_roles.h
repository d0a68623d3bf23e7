// What recurrent backends say alike of themselves.
#pragma once

#include <array>

#include "backends/fill/fields.h"
#include "backends/recurrent/recurrent_backend.h"

namespace shadowgraph {

inline constexpr ForwardMode kRecurrentModes[] = {
    ForwardMode::kExtend, ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,   ForwardMode::kTargetVerify, ForwardMode::kSplitPrefill};

inline constexpr std::string_view kOfSnapshots =
    "it says where snapshots are taken: the snapshots are compared";
inline constexpr std::string_view kOfTheTree =
    "the batch's tree as it is: the parents that a launch makes of it are read";
inline constexpr std::string_view kOfEveryBatch = "written at bind, the same for every batch";

/// Roles of what is theirs alike, and of a backend's own. slots: how padding is told among them.
template <size_t n = 0>
constexpr std::array<BufferRole, 11 + n> recurrent_roles(
    Role slots, const std::array<BufferRole, n>& own = {}) {
  using Buffers = RecurrentBackend;
  std::array<BufferRole, 11 + n> all = {{{Buffers::kQueryStartLoc, Role::kQueryOffsets},
                                         {Buffers::kStateIndices, slots},
                                         {Buffers::kInitialStates, Role::kInitialStates},
                                         {Buffers::kParents, Role::kDraftParents},
                                         {Buffers::kTrackSlots, Role::kTrackSlots},
                                         role::unread(Buffers::kNextToken, kOfTheTree),
                                         role::unread(Buffers::kNextSibling, kOfTheTree),
                                         role::unread(Buffers::kDenseRows, kOfEveryBatch),
                                         role::unread(Buffers::kTrackConv, kOfSnapshots),
                                         role::unread(Buffers::kTrackFinal, kOfSnapshots),
                                         role::unread(Buffers::kTrackChunks, kOfSnapshots)}};
  for (size_t i = 0; i < n; ++i) all[11 + i] = own[i];
  return all;
}
inline constexpr auto kRecurrentRoles = recurrent_roles(Role::kStateSlots);

}  // namespace shadowgraph
