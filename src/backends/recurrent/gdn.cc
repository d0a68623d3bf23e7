#include "backends/recurrent/gdn.h"

#include "backends/recurrent/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kGdnFamilies[] = {RecurrentFamily::kGdn};

constexpr BackendInfo kGdnInfo{.name = "gdn",
                               .about = "gated delta rule over state slots, behind a convolution",
                               .modes = kRecurrentModes,
                               .page_sizes = {},
                               .tree = true,
                               .dense = false,
                               .recurrent = kGdnFamilies,
                               .track_states = true,
                               .fields = {},
                               .roles = kRecurrentRoles};

}  // namespace

const BackendInfo& Gdn::info() const { return kGdnInfo; }

PadRow Gdn::pad_row(bool verify) const { return verify ? PadRow::kFromZero : PadRow::kZeroOut; }

}  // namespace shadowgraph
