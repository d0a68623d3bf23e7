#include "backends/recurrent/kda.h"

#include "backends/recurrent/recurrent_roles.h"

namespace shadowgraph {
namespace {

constexpr RecurrentFamily kKdaFamilies[] = {RecurrentFamily::kKda};

constexpr BackendInfo kKdaInfo{.name = "kda",
                               .about = "delta rule with a decay per channel, behind a convolution",
                               .modes = kRecurrentModes,
                               .page_sizes = {},
                               .tree = true,
                               .dense = false,
                               .recurrent = kKdaFamilies,
                               .track_states = true,
                               .fields = {},
                               .roles = kRecurrentRoles};

}  // namespace

const BackendInfo& Kda::info() const { return kKdaInfo; }

PadRow Kda::pad_row(bool /*verify*/) const { return PadRow::kFromZero; }

}  // namespace shadowgraph
