// Lines of a backend's field table, by shape, and of its table of roles. Read by
// BackendInfo::fields and roles.
#pragma once

#include "shadowgraph/engine/backend.h"

namespace shadowgraph::field {

constexpr Field rows(std::string_view recorded, int buffer, std::string_view refs) {
  return {recorded, buffer, FieldShape::kRows, FieldRule::kExact, -1, true, refs};
}
/// Lengths: a kernel that takes no 0 must not meet one in padding, nor in a warm-up.
constexpr Field lens(std::string_view recorded, int buffer, std::string_view refs) {
  Field f = rows(recorded, buffer, refs);
  f.least = 1;
  return f;
}
constexpr Field slots(std::string_view recorded, int buffer, std::string_view refs) {
  return {recorded, buffer, FieldShape::kSlots, FieldRule::kExact, -1, true, refs};
}
/// The same field, 32 or 64 bits wide.
constexpr Field any(Field f) {
  f.any_integers = true;
  return f;
}
/// Lengths that no kernel reads.
constexpr Field host_lens(std::string_view recorded, int buffer, std::string_view refs) {
  return any(rows(recorded, buffer, refs));
}
constexpr Field indptr(std::string_view recorded, int buffer, std::string_view refs,
                       FieldRule rule = FieldRule::kExact) {
  return {recorded, buffer, FieldShape::kIndptr, rule, -1, true, refs};
}
/// Offsets into keys.
constexpr Field key_indptr(std::string_view recorded, int buffer, std::string_view refs,
                           FieldRule rule = FieldRule::kExact) {
  Field f = indptr(recorded, buffer, refs, rule);
  f.of_queries = false;
  return f;
}
constexpr Field table(std::string_view recorded, int buffer, int lens, std::string_view refs,
                      bool pages = true) {
  return {recorded, buffer, FieldShape::kTable, FieldRule::kExact, lens, pages, refs};
}
/// What an indptr steps by.
constexpr Field steps(std::string_view recorded, int indptr, std::string_view refs) {
  return {recorded, indptr, FieldShape::kSteps, FieldRule::kExact, -1, true, refs};
}
/// Lengths that a kernel follows in padding too.
constexpr Field bounded(Field f, int32_t least, int32_t most) {
  f.least = least, f.most = most;
  return f;
}
/// The same field, with rows that are virtual requests.
constexpr Field of_virtual(Field f) {
  f.of_virtual = true;
  return f;
}
/// Rows of slots in one list, by their indptr.
constexpr Field list(std::string_view recorded, int buffer, int indptr, std::string_view refs) {
  return {recorded, buffer, FieldShape::kList, FieldRule::kExact, indptr, false, refs};
}
/// A mask of a byte a pair, by the offsets of its rows.
constexpr Field mask(std::string_view recorded, int buffer, int indptr, std::string_view refs) {
  return {recorded, buffer, FieldShape::kMask, FieldRule::kExact, indptr, false, refs};
}
/// A packed one, by the offsets of its rows and those of their keys; one that is not there shows
/// everything.
constexpr Field packed_mask(std::string_view recorded, int buffer, int indptr, int keys,
                            std::string_view refs) {
  Field f = mask(recorded, buffer, indptr, refs);
  f.unsaid = 1, f.keys = keys;
  return f;
}
/// A scalar that is a choice; unsaid: what it is where the engine does not say it.
constexpr Field choice(std::string_view recorded, int scalar, std::string_view refs,
                       std::optional<int64_t> unsaid = {}) {
  Field f{recorded, scalar, FieldShape::kScalar, FieldRule::kConstant, -1, true, refs};
  f.unsaid = unsaid;
  return f;
}
/// A scalar; kBaked: a graph freezes it.
constexpr Field bound(std::string_view recorded, int scalar, std::string_view refs,
                      FieldRule rule = FieldRule::kAtLeast) {
  return {recorded, scalar, FieldShape::kScalar, rule, -1, true, refs};
}

}  // namespace shadowgraph::field

namespace shadowgraph::role {

/// What a fill writes and no law of metadata reads, and why none does.
constexpr BufferRole unread(int buffer, std::string_view why) {
  return {buffer, Role::kUnread, -1, -1, why};
}
constexpr BufferRole unread_scalar(int scalar, std::string_view why) {
  return {scalar, Role::kUnreadScalar, -1, -1, why};
}

}  // namespace shadowgraph::role
