// The facts that laws, fields, faults and comments cite by an id, and the repositories that links
// lead to. Read by `list references` and `explain`; scripts/references.py checks every citation.
#pragma once

#include <string_view>

namespace shadowgraph {

struct Reference {
  std::string_view id, sentence;  // "fa.I-28", what it says
  std::string_view because = {};  // why nothing here can break it; empty: something holds it
};

struct Repository {
  std::string_view name, path;  // of a link "sglang#26512", of an address "sgl-project/sglang"
};

#define SG_REPOSITORY(name, path)
inline constexpr Reference kReferences[] = {
#define SG_REF(id, sentence) {id, sentence},
#define SG_REF_IMPOSSIBLE(id, sentence, because) {id, sentence, because},
#include "core/refs.inc"
#undef SG_REF
#undef SG_REF_IMPOSSIBLE
};
#undef SG_REPOSITORY

#define SG_REF(id, sentence)
#define SG_REF_IMPOSSIBLE(id, sentence, because)
inline constexpr Repository kRepositories[] = {
#define SG_REPOSITORY(name, path) {name, path},
#include "core/refs.inc"
#undef SG_REPOSITORY
};
#undef SG_REF
#undef SG_REF_IMPOSSIBLE

}  // namespace shadowgraph
