// Pictures read back from their JSON form.
#pragma once

#include <vector>

#include "report/json_members.h"
#include "report/pictures.h"

namespace shadowgraph {

/// Appends the picture; one whose sizes disagree is a finding.
void read_picture(JsonMembers& members, std::vector<Picture>* pictures);

}  // namespace shadowgraph
