#include "conformance/programs.h"

namespace shadowgraph {
namespace {

constexpr CaptureMode kModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                  CaptureMode::kRelaxed};

/// What lies before the separator; text goes on after it.
std::string_view cut(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return head;
}

std::optional<CaptureMode> parse_mode(std::string_view text) {
  for (const CaptureMode mode : kModes) {
    if (name_of(mode) == text) return mode;
  }
  return std::nullopt;
}

/// "A:global,relaxed": one letter's variants, those of the named modes only.
std::vector<Variant> expand(std::string_view term) {
  struct Set {
    std::string_view name;
    bool blocking, non_blocking, all_modes;
  };
  constexpr Set kSets[] = {{"N", false, true, false},
                           {"D", true, true, false},
                           {"A", true, true, true},
                           {"B3", true, false, true},
                           {"N3", false, true, true}};
  const std::string_view name = cut(term, ':');
  std::vector<CaptureMode> modes;
  while (!term.empty()) {
    if (const auto mode = parse_mode(cut(term, ','))) modes.push_back(*mode);
  }
  std::vector<Variant> variants;
  for (const Set& set : kSets) {
    if (set.name != name) continue;
    if (modes.empty()) modes.assign(kModes, kModes + (set.all_modes ? 3 : 1));
    for (const bool blocking : {true, false}) {
      if (!(blocking ? set.blocking : set.non_blocking)) continue;
      for (const CaptureMode mode : modes) variants.push_back({blocking, mode, ""});
    }
  }
  return variants;
}

}  // namespace

std::string_view name_of(CaptureMode mode) {
  constexpr std::string_view kNames[] = {"global", "thread_local", "relaxed"};
  const auto i = static_cast<size_t>(mode);
  return i < std::size(kNames) ? kNames[i] : "?";
}

std::string_view name_of(CaptureStatus status) {
  constexpr std::string_view kNames[] = {"none", "active", "invalidated"};
  const auto i = static_cast<size_t>(status);
  return i < std::size(kNames) ? kNames[i] : "?";
}

std::string Variant::to_string() const {
  std::string text = (blocking ? "b." : "n.") + std::string(name_of(mode));
  if (!sub.empty()) text += '.' + sub;
  return text;
}

std::optional<Variant> Variant::parse(std::string_view text) {
  std::string_view rest = text;
  const bool blocking = cut(rest, '.') == "b";
  const auto mode = parse_mode(cut(rest, '.'));
  if (!mode) return std::nullopt;
  Variant variant{blocking, *mode, std::string(rest)};
  return variant.to_string() == text ? std::optional(std::move(variant)) : std::nullopt;
}

std::span<const Program> programs() {
  static const std::vector<Program> all = [] {
    std::vector<Program> joined;
    for (const std::span<const Program> theme :
         {programs_baking(), programs_copies(), programs_legality(), programs_legality_beside(),
          programs_events(), programs_launch(), programs_update(), programs_memory_nodes(),
          programs_conditional(), programs_faults(), programs_questions(), programs_matrix()}) {
      joined.insert(joined.end(), theme.begin(), theme.end());
    }
    return joined;
  }();
  return all;
}

const Program* find_program(std::string_view id) {
  for (const Program& program : programs()) {
    if (program.id == id) return &program;
  }
  return nullptr;
}

std::vector<Variant> variants_of(const Program& program) {
  std::vector<Variant> bases;
  std::string_view notation = program.variants;
  while (!notation.empty()) {
    const std::string_view term = cut(notation, '+');
    if (const auto one = Variant::parse(term)) {
      bases.push_back(*one);
    } else {
      for (Variant& v : expand(term)) bases.push_back(std::move(v));
    }
  }
  if (program.subs.empty()) return bases;
  std::vector<Variant> variants;
  for (const Variant& base : bases) {
    for (std::string_view subs = program.subs; !subs.empty();) {
      variants.push_back({base.blocking, base.mode, std::string(cut(subs, ' '))});
    }
  }
  return variants;
}

}  // namespace shadowgraph
