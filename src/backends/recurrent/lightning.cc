#include "backends/recurrent/lightning.h"

#include "backends/recurrent/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kLightningFamilies[] = {RecurrentFamily::kLightning};

constexpr BackendInfo kLightningInfo{.name = "lightning",
                                     .about = "decaying linear attention over state slots",
                                     .modes = kRecurrentModes,
                                     .page_sizes = {},
                                     .tree = false,
                                     .dense = false,
                                     .recurrent = kLightningFamilies,
                                     .track_states = true,
                                     .fields = {},
                                     .roles = kRecurrentRoles};

}  // namespace

const BackendInfo& Lightning::info() const { return kLightningInfo; }

PadRow Lightning::pad_row(bool /*verify*/) const { return PadRow::kSkip; }

}  // namespace shadowgraph
