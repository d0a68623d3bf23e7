#include "backends/recurrent/ascend_gdn.h"

#include "backends/recurrent/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kAscendGdnFamilies[] = {RecurrentFamily::kGdn};

constexpr auto kAscendGdnRoles = recurrent_roles(Role::kStateSlotsZero);

constexpr BackendInfo kAscendGdnInfo{
    .name = "ascend_gdn",
    .about = "gated delta rule over state slots, by an NPU's conventions",
    .modes = kRecurrentModes,
    .page_sizes = {},
    .tree = true,
    .empty_padding = true,
    .dense = false,
    .recurrent = kAscendGdnFamilies,
    .track_states = true,
    .fields = {},
    .roles = kAscendGdnRoles};

}  // namespace

const BackendInfo& AscendGdn::info() const { return kAscendGdnInfo; }

}  // namespace shadowgraph
