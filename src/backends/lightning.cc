#include "backends/lightning.h"

#include "backends/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kFamilies[] = {RecurrentFamily::kLightning};

constexpr BackendInfo kInfo{.name = "lightning",
                            .about = "decaying linear attention over state slots",
                            .modes = kRecurrentModes,
                            .page_sizes = {},
                            .tree = false,
                            .dense = false,
                            .recurrent = kFamilies,
                            .track_states = true,
                            .fields = {},
                            .roles = kRecurrentRoles};

}  // namespace

const BackendInfo& Lightning::info() const { return kInfo; }

PadRow Lightning::pad_row(bool /*verify*/) const { return PadRow::kSkip; }

}  // namespace shadowgraph
