#include "shadowgraph/status.h"

#include <algorithm>
#include <iterator>

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// Made before main: when memory is out, it is too late to make it.
const Finding kOutOfMemory = make_finding("input.memory", at("scratch"), "memory", "out of memory");

}  // namespace

std::string Explanation::to_string() const {
  const bool part = explained > 0 && explained < wrong;
  std::string s = mistake + ": " + sentence + (part ? " (a part: " : " (") +
                  std::to_string(explained) + " of " + std::to_string(wrong) + " wrong results";
  if (broken > 0) s += ", but " + std::to_string(broken) + " right ones would be wrong";
  return s + ")";
}

std::string Finding::to_string() const {
  std::string s = id + ": ";
  if (!case_id.empty()) s += case_id + ": ";
  const std::string place = where.field + where.index();
  if (expected.empty()) return s + (place.empty() ? "" : place + ": ") + got;
  return s + place + " is " + got + ", expected " + expected;
}

Status Status::out_of_memory() noexcept {
  Status status;
  status.out_of_memory_ = true;
  return status;
}

std::span<const Finding> Status::findings() const {
  if (findings_.empty() && out_of_memory_) return {&kOutOfMemory, 1};
  return findings_;
}

void Status::add(Status other) {
  out_of_memory_ = out_of_memory_ || other.out_of_memory_;
  findings_.insert(findings_.end(), std::make_move_iterator(other.findings_.begin()),
                   std::make_move_iterator(other.findings_.end()));
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string s;
  for (const Finding& f : findings()) {
    if (!s.empty()) s += '\n';
    s += f.to_string();
  }
  return s;
}

std::string Where::index() const {
  if (!row) return "";
  std::string s = '[' + std::to_string(*row);
  if (col) s += ", " + std::to_string(*col);
  for (const int64_t i : further) s += ", " + std::to_string(i);
  return s + ']';
}

Where at(std::string field, std::span<const int64_t> index) {
  Where where;
  where.field = std::move(field);
  if (!index.empty()) where.row = index[0];
  if (index.size() > 1) where.col = index[1];
  if (index.size() > 2) where.further.assign(index.begin() + 2, index.end());
  return where;
}

Where at(std::string field, std::optional<int64_t> row, std::optional<int64_t> col) {
  Where where;
  where.field = std::move(field);
  where.row = row;
  where.col = col;
  return where;
}

Finding make_finding(LawId id, Where where, std::string expected, std::string got) {
  const Law& law = id.law();
  Finding f;
  f.id = law.id;
  f.title = law.sentence;
  f.severity = law.severity;
  f.where = std::move(where);
  f.expected = std::move(expected);
  f.got = std::move(got);
  for (std::string_view rest = law.refs; !rest.empty();) {
    const size_t end = rest.find(' ');
    f.refs.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return f;
}

void add_refs(std::span<const std::string> refs, Finding* finding) {
  for (const std::string& ref : refs) {
    if (std::ranges::find(finding->refs, ref) == finding->refs.end()) finding->refs.push_back(ref);
  }
}

}  // namespace shadowgraph
