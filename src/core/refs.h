// The facts that laws, fields, faults and comments cite by an id, and the repositories that links
// lead to. Read by `list references` and `explain`; scripts/references.py checks every citation.
#pragma once

#include <string_view>

namespace shadowgraph {

struct Reference {
  std::string_view id, sentence;  // "fa.I-28", what it says
};

struct Repository {
  std::string_view name, path;  // of a link "sglang#26512", of an address "sgl-project/sglang"
};

#define SG_REPOSITORY(name, path)
inline constexpr Reference kReferences[] = {
#define SG_REF(id, sentence) {id, sentence},
#include "core/refs.inc"
#undef SG_REF
};
#undef SG_REPOSITORY

#define SG_REF(id, sentence)
inline constexpr Repository kRepositories[] = {
#define SG_REPOSITORY(name, path) {name, path},
#include "core/refs.inc"
#undef SG_REPOSITORY
};
#undef SG_REF

}  // namespace shadowgraph
