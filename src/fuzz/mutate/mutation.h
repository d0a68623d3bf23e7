// Mutation: one member of a legal call changed. Tested by tests/fuzz/call_grid_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/laws.h"

namespace shadowgraph {

/// The kind of a change of a member, and the laws that may refuse it: ids, or their beginnings.
struct MutationKind {
  std::string_view name;
  std::span<const std::string_view> laws;
  bool names_member;  // a refusal names the member itself
};

namespace mutation_laws {
inline constexpr std::string_view
    kAny[] = {""},
    kLists[] = {"len.",  "slot.",  "list.",      "table.",
                "mask.", "param.", "input.plan", "input.shape"},  // of what is packed by them
    kSizes[] = {"input.shape", "input.overflow", "input.null", "input.dtype", "input.stride",
                "input.plan",  "input.memory",   "len.",       "mask.",       "param.",
                "table.",      "slot.",          "list."},
    kTypes[] = {"input.dtype", "input.null"}, kStrides[] = {"input.stride"},
    kOptions[] = {"input.memory", "input.isa", "input.plan"};
}  // namespace mutation_laws

inline constexpr MutationKind kContradiction{"contradiction", mutation_laws::kAny,
                                             false},  // breakages(), by its own law
    kShapeMutation{"shape", mutation_laws::kSizes, false},
    kTypeMutation{"dtype", mutation_laws::kTypes, false},
    kStrideMutation{"stride", mutation_laws::kStrides, true},
    // Rows at one address hold other numbers, too.
    kListStrideMutation{"stride", mutation_laws::kSizes, false},
    kPresenceMutation{"presence", mutation_laws::kSizes, false},
    kElementMutation{"element", mutation_laws::kLists, false},
    kSizeMutation{"size", mutation_laws::kSizes, false},  // of a list
    kNumberMutation{"number", mutation_laws::kSizes, false},
    kTableMutation{"table", mutation_laws::kSizes, false},
    kOptionMutation{"option", mutation_laws::kOptions, false};

enum class Expect : uint8_t {
  kRefused,  // the call contradicts itself
  kTaken,    // the call says the same in another way
  kEither,   // refused, or right as the call that it now is
};

struct Mutation {
  std::string name;  // "q with axis 0 one longer"
  const MutationKind* kind;
  std::string member;  // "q"
  Expect expect;
  std::optional<LawId> law;  // of kRefused: the one that says so; absent: any that the kind has
  std::function<void()> apply;
};

}  // namespace shadowgraph
