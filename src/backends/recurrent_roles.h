// What recurrent backends say alike of themselves.
#pragma once

#include "backends/recurrent_backend.h"

namespace shadowgraph {

inline constexpr ForwardMode kRecurrentModes[] = {
    ForwardMode::kExtend, ForwardMode::kDecode,       ForwardMode::kMixed,
    ForwardMode::kIdle,   ForwardMode::kTargetVerify, ForwardMode::kSplitPrefill};

inline constexpr BufferRole kRecurrentRoles[] = {
    {RecurrentBackend::kQueryStartLoc, Role::kQueryOffsets},
    {RecurrentBackend::kStateIndices, Role::kStateSlots},
    {RecurrentBackend::kInitialStates, Role::kInitialStates},
    {RecurrentBackend::kParents, Role::kDraftParents},
    {RecurrentBackend::kTrackSlots, Role::kTrackSlots}};

}  // namespace shadowgraph
