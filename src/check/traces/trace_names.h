// The words of engine traces: modes, keys, backends and fields that engines have.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {

struct TraceMode {
  std::string_view name;
  ForwardMode mode;
  std::string_view needs;  // keys of config and input, next to those that every line needs
  std::string_view what;
};
inline constexpr TraceMode kTraceModes[] = {
#define SG_TRACE_MODE(name, mode, needs, what) {#name, ForwardMode::mode, needs, what},
#include "check/traces/trace_names.inc"
#undef SG_TRACE_MODE
};

struct TraceKey {
  std::string_view of;  // "line", "config", "input"
  std::string_view name;
  std::string_view value;  // "integer", "string", "[rows]", ...
  std::string_view what;
};
inline constexpr TraceKey kTraceKeys[] = {
#define SG_TRACE_KEY(of, name, value, what) {#of, #name, value, what},
#include "check/traces/trace_names.inc"
#undef SG_TRACE_KEY
};

/// nullptr if there is none.
const TraceMode* find_trace_mode(std::string_view name);

/// Names of the keys of a member: what a misspelt one may have meant.
std::vector<std::string> names_of_keys(std::string_view of);
bool is_trace_key(std::string_view of, std::string_view name);

/// A backend of some engine that has no twin.
bool is_foreign_backend(std::string_view name);
/// A field that some backend records, with a twin or without.
bool is_field_of_any(std::string_view name);

bool has_field(const BackendInfo& backend, std::string_view name);
/// Names of the fields of a backend, each once. With its metadata of a mode: that something reads
/// in the mode.
std::vector<std::string> names_of_fields(const BackendInfo& backend, const Meta* meta = nullptr);

/// "; did you mean page_table?": of these names those that other engines use for the same thing
/// (block_table), else the nearest; or nothing.
std::string meant_by(std::string_view name, const std::vector<std::string>& names);

/// Laws that a field of this shape and rule may be found to break: "table.slot table.unit".
std::string laws_of(const BufferInfo& field);

}  // namespace shadowgraph
