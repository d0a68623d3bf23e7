// Rows of a backend's table of buffers (BackendInfo::buffers). Most are a buffer and its role; with
// the engine's name for it, the role says how a trace records it, too. Tested by
// tests/backends/buffer_rows_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "backends/fill/graph_storage.h"
#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph::field {

// Recorded fields by shape. Their rows have no role unless recorded() gives it.

constexpr BufferInfo shaped(FieldShape shape, int buffer, std::string_view name,
                            std::string_view refs, int lens = -1) {
  BufferInfo row{.buffer = buffer, .lens = lens};
  row.recorded = name, row.shape = shape, row.refs = refs;
  return row;
}
constexpr BufferInfo rows(int buffer, std::string_view name, std::string_view refs) {
  return shaped(FieldShape::kRows, buffer, name, refs);
}
constexpr BufferInfo indptr(int buffer, std::string_view name, std::string_view refs) {
  return shaped(FieldShape::kIndptr, buffer, name, refs);
}
constexpr BufferInfo ends(int buffer, std::string_view name, std::string_view refs) {
  return shaped(FieldShape::kEnds, buffer, name, refs);
}
/// Offsets into keys.
constexpr BufferInfo key_indptr(int buffer, std::string_view name, std::string_view refs) {
  BufferInfo row = indptr(buffer, name, refs);
  row.of_queries = false;
  return row;
}
constexpr BufferInfo table(int buffer, int lens, std::string_view name, std::string_view refs,
                           bool pages = true) {
  BufferInfo row = shaped(FieldShape::kTable, buffer, name, refs, lens);
  row.pages = pages;
  return row;
}
/// Rows of slots in one list, by their indptr.
constexpr BufferInfo list(int buffer, int indptr, std::string_view name, std::string_view refs,
                          bool pages = false) {
  BufferInfo row = shaped(FieldShape::kList, buffer, name, refs, indptr);
  row.pages = pages;
  return row;
}
/// A packed mask, by the offsets of its rows and those of their keys; one that is not there shows
/// everything.
constexpr BufferInfo packed_mask(int buffer, int indptr, int keys, std::string_view name,
                                 std::string_view refs) {
  BufferInfo row = shaped(FieldShape::kMask, buffer, name, refs, indptr);
  row.unsaid = 1, row.keys = keys;
  return row;
}
constexpr BufferInfo scalar(int scalar, std::string_view name, std::string_view refs,
                            FieldRule rule) {
  BufferInfo row = shaped(FieldShape::kScalar, scalar, name, refs);
  row.rule = rule;
  return row;
}
/// A field that nothing reads in the modes where the twin has no other row of its name.
constexpr BufferInfo dead(FieldShape shape, std::string_view name, std::string_view why) {
  BufferInfo row = shaped(shape, -1, name, "");
  row.rule = FieldRule::kDead, row.of_queries = false, row.dead = why;
  return row;
}

// The same field:

/// 32 or 64 bits wide.
constexpr BufferInfo any(BufferInfo row) {
  row.any_integers = true;
  return row;
}
/// With the lengths that padding may have, where a kernel follows them.
constexpr BufferInfo bounded(BufferInfo row, int32_t least, std::optional<int32_t> most = {}) {
  row.least = least, row.most = most;
  return row;
}
/// With as many keys in padding as the engine gives it.
constexpr BufferInfo padded(BufferInfo row) {
  row.of_padding = true;
  return row;
}
/// With keys of the window's pool.
constexpr BufferInfo of_window(BufferInfo row) {
  row.of_window = true;
  return row;
}
/// With rows that are virtual requests.
constexpr BufferInfo of_virtual(BufferInfo row) {
  row.of_virtual = true;
  return row;
}
constexpr BufferInfo with_rule(BufferInfo row, FieldRule rule) {
  row.rule = rule;
  return row;
}

}  // namespace shadowgraph::field

namespace shadowgraph {

/// A buffer with a role, as a trace records it. lens: of kLongestKeys.
constexpr BufferInfo recorded(int buffer, Role role, std::string_view name, std::string_view refs,
                              int lens = -1) {
  BufferInfo row = field::shaped(FieldShape::kRows, buffer, name, refs, lens);
  row.role = role;
  switch (role) {
    case Role::kQueryOffsets:
    case Role::kCutOffsets: row.shape = FieldShape::kIndptr; break;
    case Role::kKeyOffsets: row.shape = FieldShape::kIndptr, row.of_queries = false; break;
    case Role::kStored:
    case Role::kStoredInWindow: row.shape = FieldShape::kSlots; break;
    // No kernel reads them.
    case Role::kQueryEnds: row.shape = FieldShape::kEnds, row.any_integers = true; break;
    case Role::kKeyEnds: row.shape = FieldShape::kEnds, row.of_queries = false; break;
    case Role::kQueryLens: row.any_integers = true; break;
    case Role::kKeyLens:
    case Role::kFlatLens:
    case Role::kWidthLens:
    case Role::kIntraLens: row.of_padding = true; break;
    case Role::kLongestQuery: row.shape = FieldShape::kScalar, row.rule = FieldRule::kBaked; break;
    case Role::kLongestKeys: row.shape = FieldShape::kScalar, row.rule = FieldRule::kAtLeast; break;
    case Role::kAllQueries: row.shape = FieldShape::kScalar; break;
    case Role::kWindow:  // unsaid: no window
      row.shape = FieldShape::kScalar, row.rule = FieldRule::kConstant, row.unsaid = -1;
      break;
    default: break;
  }
  return row;
}

/// A buffer that a fill writes and no law of metadata reads; why says the reason.
constexpr BufferInfo unread(BufferInfo row, std::string_view why) {
  row.role = row.shape == FieldShape::kScalar ? Role::kUnreadScalar : Role::kUnread;
  row.why = why;
  return row;
}
constexpr BufferInfo unread(int buffer, std::string_view why) {
  return unread(BufferInfo{.buffer = buffer}, why);
}

/// The same buffer with the engine's name, which no trace records.
constexpr BufferInfo named(std::string_view name, BufferInfo row) {
  row.recorded = name;
  return row;
}
using Modes = std::initializer_list<ForwardMode>;
/// The same buffer, which no kernel reads in these modes; none: in no mode.
constexpr BufferInfo dead(BufferInfo row, std::string_view why, Modes modes = {}) {
  row.dead = why, row.dead_in = modes.size() == 0 ? ~0U : 0U;
  for (const ForwardMode m : modes) row.dead_in |= 1U << static_cast<uint32_t>(m);
  return row;
}
constexpr bool is_dead_in(const BufferInfo& row, ForwardMode mode) {
  return (row.dead_in >> static_cast<uint32_t>(mode) & 1U) != 0;
}
/// Modes of decode kernels.
inline constexpr Modes kDecodeModes = {ForwardMode::kDecode, ForwardMode::kIdle,
                                       ForwardMode::kDraftDecode, ForwardMode::kTargetVerify};

inline constexpr std::string_view kEncodersInExtends =
    "encoders are stored with their request's first tokens, in extends";

/// The table of a backend: at most n rows.
template <size_t n>
struct BufferTable {
  std::array<BufferInfo, n> rows = {};
  size_t count = 0;

  constexpr void add(const BufferInfo& row) { rows[count++] = row; }
  constexpr operator std::span<const BufferInfo>() const { return {rows.data(), count}; }
};

/// A backend's own rows, and those of its family to which they give no role: buffers before its
/// own, scalars behind.
template <size_t m, size_t n>
constexpr BufferTable<m + n> with_family(const std::array<BufferInfo, m>& family,
                                         const BufferInfo (&own)[n]) {
  BufferTable<m + n> table;
  const auto add_missing = [&](bool scalars) {
    for (const BufferInfo& row : family) {
      const bool has = std::ranges::any_of(own, [&](const BufferInfo& o) {
        return o.role != Role::kNone && o.buffer == row.buffer && is_scalar(o.role) == scalars;
      });
      if (!has && is_scalar(row.role) == scalars) table.add(row);
    }
  };
  add_missing(false);
  for (const BufferInfo& row : own) table.add(row);
  add_missing(true);
  return table;
}

/// The same table, of whose buffers no kernel reads those from the first on.
template <size_t n>
constexpr BufferTable<n> dead_from(int first, BufferTable<n> table, std::string_view why) {
  for (BufferInfo& row : table.rows)
    if (row.buffer >= first && !is_scalar(row.role)) row = dead(row, why);
  return table;
}

}  // namespace shadowgraph
