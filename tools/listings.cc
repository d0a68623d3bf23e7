#include "listings.h"

#include "check/mistakes.h"
#include "check/runner.h"
#include "check/trace_names.h"
#include "faults/faults.h"

namespace shadowgraph::cli {
namespace {

std::string shape_of(const Field& field) {
  switch (field.shape) {
    case FieldShape::kRows:
    case FieldShape::kSteps:
    case FieldShape::kSlots: return "[rows]";
    case FieldShape::kIndptr: return "[rows + 1]";
    case FieldShape::kTable: return field.pages ? "[rows, pages]" : "[rows, slots]";
    case FieldShape::kList: return "slots by indptr";
    case FieldShape::kMask: return "[q_len, kv_len] a row";
    case FieldShape::kSizes: return "[axes]";
    case FieldShape::kScalar: break;
  }
  return "number";
}

/// Scalars are the host's: launches read them eagerly, and at capture what a graph freezes of them.
const char* rule_of_scalar(const Field& field) {
  switch (field.rule) {
    case FieldRule::kAtLeast: return "at least, eager";
    case FieldRule::kBaked: return "at least, eager and capture";
    case FieldRule::kDead: return "nothing reads it";
    case FieldRule::kConstant: return "equal";
    default: return "equal, eager";
  }
}

const char* rule_of(const Field& field) {
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
  return listing;
}

Listing list_fields(const std::string& backend, const std::string& name) {
  Listing listing{"fields", {"backend", "name", "shape", "rule", "laws", "refs"}, {}};
  for (const Backend* b : all_backends()) {
    if (!backend.empty() && b->info().name != backend) continue;
    for (const Field& field : b->info().fields) {
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

Listing list_faults() {
  Listing listing{"faults", {"id", "group", "what is wrong", "refs", "not planted"}, {}};
  for (const Fault& f : all_faults())
    listing.rows.push_back({std::string(f.id), std::string(f.group), std::string(f.title),
                            std::string(f.refs), std::string(f.why_not)});
  return listing;
}

Listing list_mistakes() {
  Listing listing{"mistakes", {"id", "what went wrong"}, {}};
  for (const Mistake& m : all_mistakes())
    listing.rows.push_back({std::string(m.id), std::string(m.sentence)});
  return listing;
}

}  // namespace shadowgraph::cli
