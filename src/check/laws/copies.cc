// What is said twice is the same, in padding, too: a kernel may read either.
#include <vector>

#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// A buffer that says how many queries, or keys, each row has.
struct Copy {
  int buffer = -1;
  Role role = Role::kKeyLens;
  int64_t rows = 0;
};

bool is_offsets(Role role) { return role == Role::kKeyOffsets || role == Role::kQueryOffsets; }

int64_t count_at(const MetaFacts& m, const Copy& c, int64_t row) {
  const int64_t got = m.value(c.buffer, row);
  if (is_offsets(c.role)) return m.value(c.buffer, row + 1) - got;
  const bool ends = c.role == Role::kQueryEnds || c.role == Role::kKeyEnds;
  if (ends && row > 0) return got - m.value(c.buffer, row - 1);
  return got;
}

void compare(const MetaFacts& m, const Copy& a, const Copy& b, LawReport& report) {
  const int64_t first = m.requests() * m.rows_a_request(a.rows);  // rows of requests are exact
  for (int64_t row = first; row < a.rows; ++row) {
    const int64_t want = count_at(m, a, row), got = count_at(m, b, row);
    judged("len.copy");
    if (got != want)
      report.fail("len.copy", at(m.buffer(b.buffer).name, row),
                  number(want) + " as in " + m.buffer(a.buffer).name, number(got));
  }
}

void compare_all(const MetaFacts& m, std::initializer_list<Role> roles, LawReport& report) {
  std::vector<Copy> copies;
  for (const BufferInfo& r : m.info.buffers) {
    for (const Role role : roles) {
      if (r.role != role || m.size(r.buffer) == 0) continue;
      copies.push_back({r.buffer, role, m.size(r.buffer) - (is_offsets(role) ? 1 : 0)});
    }
  }
  for (size_t i = 1; i < copies.size(); ++i)
    if (copies[i].rows == copies[0].rows) compare(m, copies[0], copies[i], report);
}

}  // namespace

void judge_copies(const MetaFacts& m, LawReport& report) {
  compare_all(m, {Role::kKeyLens, Role::kKeyOffsets, Role::kKeyEnds}, report);
  compare_all(m, {Role::kQueryOffsets, Role::kQueryEnds, Role::kQueryLens}, report);
}

}  // namespace shadowgraph
