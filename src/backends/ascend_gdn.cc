#include "backends/ascend_gdn.h"

#include "backends/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kFamilies[] = {RecurrentFamily::kGdn};

constexpr auto kRoles = recurrent_roles(Role::kStateSlotsZero);

constexpr BackendInfo kInfo{.name = "ascend_gdn",
                            .about = "gated delta rule over state slots, by an NPU's conventions",
                            .modes = kRecurrentModes,
                            .page_sizes = {},
                            .tree = true,
                            .empty_padding = true,
                            .dense = false,
                            .recurrent = kFamilies,
                            .track_states = true,
                            .fields = {},
                            .roles = kRoles};

}  // namespace

const BackendInfo& AscendGdn::info() const { return kInfo; }

}  // namespace shadowgraph
