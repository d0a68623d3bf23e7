#include "backends/gdn.h"

#include "backends/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kFamilies[] = {RecurrentFamily::kGdn};

constexpr BackendInfo kInfo{.name = "gdn",
                            .about = "gated delta rule over state slots, behind a convolution",
                            .modes = kRecurrentModes,
                            .page_sizes = {},
                            .tree = true,
                            .dense = false,
                            .recurrent = kFamilies,
                            .track_states = true,
                            .fields = {},
                            .roles = kRecurrentRoles};

}  // namespace

const BackendInfo& Gdn::info() const { return kInfo; }

PadRow Gdn::pad_row(bool verify) const { return verify ? PadRow::kFromZero : PadRow::kZeroOut; }

}  // namespace shadowgraph
