#include "listings.h"

#include <fmt/format.h>

#include <algorithm>

#include "arithmetic_words.h"
#include "bench/machine.h"
#include "check/bounds/arithmetic.h"
#include "check/laws/metadata_laws.h"
#include "check/mistakes/hints.h"
#include "check/mistakes/mistakes.h"
#include "check/runner.h"
#include "check/traces/trace_names.h"
#include "conformance/records.h"
#include "core/laws.h"
#include "core/refs.h"
#include "faults/faults.h"
#include "fuzz/device/device_program.h"
#include "fuzz/device/update_grid.h"
#include "fuzz/features.h"
#include "fuzz/grid/step_grid.h"
#include "fuzz/mutate/call_grid.h"
#include "io/recorded/form_fields.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph::cli {
namespace {

std::string shape_of(const BufferInfo& field) {
  switch (field.shape) {
    case FieldShape::kRows:
    case FieldShape::kEnds:
    case FieldShape::kSteps: return "[rows]";
    case FieldShape::kSlots: return "[tokens]";
    case FieldShape::kIndptr: return "[rows + 1]";
    case FieldShape::kTable: return field.pages ? "[rows, pages]" : "[rows, slots]";
    case FieldShape::kList: return field.pages ? "pages by indptr" : "slots by indptr";
    case FieldShape::kMask: return "[q_len, kv_len] a row";
    case FieldShape::kSizes: return "[axes]";
    case FieldShape::kNone:
    case FieldShape::kScalar: break;
  }
  return "number";
}

/// A hint's words, with what stands for the parts that a judge fills in.
std::string plain(std::string_view words) {
  std::string s(words);
  std::erase_if(s, [](char c) { return c == '{' || c == '}'; });
  return s;
}

/// Scalars are the host's: launches read them eagerly, and at capture what a graph freezes of them.
const char* rule_of_scalar(const BufferInfo& field) {
  switch (field.rule) {
    case FieldRule::kAtLeast: return "at least, eager";
    case FieldRule::kBaked: return "at least, eager and capture";
    case FieldRule::kDead: return "nothing reads it";
    case FieldRule::kConstant: return "equal";
    default: return "equal, eager";
  }
}

const char* rule_of(const BufferInfo& field) {
  if (field.shape == FieldShape::kScalar) return rule_of_scalar(field);
  switch (field.rule) {
    case FieldRule::kExact: return "equal where it is live";
    case FieldRule::kAtLeast: return "at least";
    case FieldRule::kConstant: return "equal, at capture too";
    case FieldRule::kBaked: return "at least, at capture too";
    case FieldRule::kDead: break;
  }
  return "nothing reads it";
}

/// As seq_lens_semantics has it.
const char* usual_seq_lens(ForwardMode mode) {
  return usual_seq_lens_kind(mode) == SeqLensKind::kFull ? "full" : "prefix_only";
}

/// Kernel, and the kind of recordings that is judged by its arithmetic unless a case declares
/// another.
std::vector<std::pair<std::string, std::string>> kernels_of_recordings() {
  std::vector<std::pair<std::string, std::string>> all;
#define SG_RECORDED_KIND(system, kind, kernel, reader) all.emplace_back(kernel, system " " kind);
#include "io/recorded/recorded_kinds.inc"
#undef SG_RECORDED_KIND
  for (auto& [kernel, kind] : all) {
    if (kind.starts_with(' ')) kind.erase(0, 1);
    if (kind.ends_with('_')) kind += "...";
    if (kind.starts_with('(')) kind = "any of the form " + kind.substr(1, kind.size() - 2);
  }
  return all;
}

template <class Values, class Name>
std::string joined(const Values& values, const Name& name) {
  std::string s;
  for (const auto& value : values) s += (s.empty() ? "" : " ") + std::string(name(value));
  return s;
}

}  // namespace

Listing list_modes() {
  Listing listing{
      "modes", {"name", "extend", "decode", "captured", "seq_lens", "needs", "what"}, {}};
  for (const TraceMode& m : kTraceModes) {
    listing.rows.push_back({std::string(m.name), is_extend(m.mode) ? "yes" : "",
                            is_decode(m.mode) ? "yes" : "", is_captured(m.mode) ? "yes" : "",
                            usual_seq_lens(m.mode), std::string(m.needs), std::string(m.what)});
  }
  return listing;
}

Listing list_keys() {
  Listing listing{"keys", {"of", "name", "value", "what"}, {}};
  for (const TraceKey& key : kTraceKeys) {
    listing.rows.push_back({std::string(key.of), std::string(key.name), std::string(key.value),
                            std::string(key.what)});
  }
  for (const FormField& field : kFormFields)
    listing.rows.push_back({fmt::format("recording {}", field.forms), std::string(field.name),
                            (field.tensor ? "tensor " : "") + std::string(field.value),
                            std::string(field.what)});
  return listing;
}

Listing list_fields(const std::string& backend, const std::string& name) {
  Listing listing{"fields", {"backend", "name", "shape", "rule", "laws", "refs"}, {}};
  for (const Backend* b : all_backends()) {
    if (!backend.empty() && b->info().name != backend) continue;
    for (const BufferInfo& field : b->info().buffers) {
      if (field.shape == FieldShape::kNone) continue;
      if (!name.empty() && field.recorded != name) continue;
      listing.rows.push_back({std::string(b->info().name), std::string(field.recorded),
                              shape_of(field), rule_of(field), laws_of(field),
                              std::string(field.refs)});
    }
  }
  return listing;
}

Listing list_backends() {
  Listing listing{"backends", {"name", "modes", "page_size", "about"}, {}};
  for (const Backend* b : all_backends()) {
    const BackendInfo& info = b->info();
    const std::string sizes =
        joined(info.page_sizes, [](int32_t size) { return std::to_string(size); });
    listing.rows.push_back({std::string(info.name),
                            joined(info.modes, [](ForwardMode m) { return name_of(m); }),
                            sizes.empty() ? "2^n" : sizes, std::string(info.about)});
  }
  return listing;
}

Listing list_engines() {
  Listing listing{"engines",
                  {"name", "padding_len", "max_padding_len", "padding_page", "padding_slot",
                   "reserved_page", "window_columns", "inclusive_ends", "about"},
                  {}};
  const auto number = [](const auto& value, const char* none) {
    return value ? std::to_string(*value) : none;
  };
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  for (const Engine& e : kEngines) {
    listing.rows.push_back({std::string(e.name), std::to_string(e.padding_len),
                            number(e.max_padding_len, "any"), number(e.padding_page, "any"),
                            number(e.padding_slot, "any"), number(e.reserved_page, "none"),
                            truth(e.window_columns), truth(e.inclusive_ends),
                            std::string(e.about)});
  }
  return listing;
}

Listing list_faults() {
  Listing listing{"faults", {"id", "group", "what is wrong", "refs", "not planted"}, {}};
  for (const Fault& f : all_faults())
    listing.rows.push_back({std::string(f.id), std::string(f.group), std::string(f.title),
                            std::string(f.refs), std::string(f.why_not)});
  return listing;
}

Listing list_mistakes() {
  Listing listing{"mistakes", {"id", "what went wrong", "in metadata", "refs"}, {}};
  const auto add = [&](std::string_view id, std::string_view sentence, const Hint& hint) {
    listing.rows.push_back(
        {std::string(id), std::string(sentence), plain(hint.words), std::string(hint.refs)});
  };
  for (const Mistake& m : all_mistakes()) {
    const Hint* hint = find_hint(m.id);
    add(m.id, m.sentence, hint == nullptr ? Hint{} : *hint);
  }
  for (const Hint& hint : kHints) {
    if (std::ranges::find(all_mistakes(), hint.id, &Mistake::id) == all_mistakes().end())
      add(hint.id, "", hint);
  }
  return listing;
}

Listing list_kernels() {
  Listing listing{"kernels", {"name", "computes"}, {}};
#define SG_KERNEL(name, sentence) listing.rows.push_back({#name, sentence});
#include "kernels/kernels.inc"
#undef SG_KERNEL
  return listing;
}

Listing list_laws(const std::string& name) {
  Listing listing{name, {"id", "severity", "metadata", "judged in", "law"}, {}};
  const auto of_metadata = [](const Law& law) {
    return std::ranges::any_of(all_metadata_laws(),
                               [&](const MetadataLaw& i) { return i.law.law().id == law.id; });
  };
  for (const Law& law : kLaws)
    listing.rows.push_back({std::string(law.id), name_of(law.severity),
                            of_metadata(law) ? "yes" : "", std::string(law.judged_in),
                            std::string(law.sentence)});
  return listing;
}

Listing list_arithmetics() {
  Listing listing{"arithmetics", {"kernel", "how it computes", "preset of"}, {}};
  const std::vector<std::pair<std::string, std::string>> presets = kernels_of_recordings();
  for (const Arithmetic& a : kArithmetics) {
    std::string kinds;
    for (const auto& [kernel, kind] : presets)
      if (kernel == a.kernel) kinds += (kinds.empty() ? "" : ", ") + kind;
    listing.rows.push_back({std::string(a.kernel), words_of(a), kinds});
  }
  return listing;
}

Listing list_targets() {
  Listing listing{"targets", {"name", "used"}, {}};
  for (std::string_view isa : available_isas()) {
    listing.rows.push_back({std::string(isa), isa == current_isa() ? "now" : ""});
  }
  for (std::string& isa : bench::missing_isas())
    listing.rows.push_back({std::move(isa), "not on this machine"});
  return listing;
}

Listing list_programs() {
  Listing listing{"programs", {"id", "class", "variants", "title"}, {}};
  for (const Program& program : programs()) {
    listing.rows.push_back({std::string(program.id), std::string(name_of(program.verdict)),
                            std::to_string(variants_of(program).size()),
                            std::string(program.title)});
  }
  return listing;
}

Listing list_grids() {
  Listing listing{"grids", {"name", "programs", "what"}, {}};
  for (const int calls : {3, 4, 5}) {
    const std::string number = std::to_string(calls);
    listing.rows.push_back(
        {"device-" + number, std::to_string(SmallPrograms(calls).size()),
         "all programs of up to " + number + " calls over 2 streams, 1 event and 3 capture modes"});
  }
  listing.rows.push_back(
      {std::string(kUpdateGrid), std::to_string(update_cases().size()),
       "every update of an executable graph that changes one field of one node"});
  listing.rows.push_back({std::string(kCallGrid), std::to_string(call_grid_size()),
                          "legal calls of every kind with one member changed: refused by a law "
                          "that says why, or right"});
  for (const StepGrid& grid : step_grids())
    listing.rows.push_back(
        {std::string(grid.name), std::to_string(count_steps(grid)), std::string(grid.what)});
  return listing;
}

Listing list_features() {
  Listing listing{"features", {"name", "what", "backends"}, {}};
  for (const FuzzFeature& f : describe_features())
    listing.rows.push_back(
        {f.name, f.what, f.backends.empty() ? "" : std::to_string(f.backends.size())});
  return listing;
}

std::string what_it_says(const Reference& r) {
  std::string text(r.sentence);
  if (!r.because.empty())
    text += " Cannot be violated here, because " + std::string(r.because) + '.';
  return text;
}

Listing list_references() {
  Listing listing{"references", {"id", "what it says"}, {}};
  for (const Reference& r : kReferences)
    listing.rows.push_back({std::string(r.id), what_it_says(r)});
  return listing;
}

}  // namespace shadowgraph::cli
