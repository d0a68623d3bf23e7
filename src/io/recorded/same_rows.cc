#include "io/recorded/same_rows.h"

#include <algorithm>

#include "core/nearest.h"
#include "io/file.h"

namespace shadowgraph {
namespace {

/// The field that makes a promise wrong, and the value that it should have; field "": none does.
struct BadPromise {
  const char* field = "";
  std::string expected, got;
};

BadPromise what_is_wrong(const RecordedCase& c, const RecordedCase& other) {
  const SameRows& rows = *c.same_rows;
  const ConstTensorView &mine = c.gpu().out, &its = other.gpu().out;
  if (mine.dtype != its.dtype || mine.shape[1] != its.shape[1] || mine.shape[2] != its.shape[2])
    return {"rows_of", "a case whose out has the same type, heads and head dim",
            '"' + rows.of + '"'};
  if (rows.from + rows.count > mine.shape[0])
    return {"rows_count", "rows_from + rows_count at most " + std::to_string(mine.shape[0]),
            std::to_string(rows.from + rows.count)};
  if (rows.count > its.shape[0])
    return {"rows_count", "at most the " + std::to_string(its.shape[0]) + " rows of " + rows.of,
            std::to_string(rows.count)};
  return {};
}

}  // namespace

Status find_same_rows(const std::string& name, std::vector<RecordedCase>* cases) {
  Status status;
  std::vector<std::string> bad, ids;
  for (const RecordedCase& c : *cases)
    if (!c.recorded.empty() && c.gpu().out.rank == 3) ids.push_back(c.id);
  for (RecordedCase& c : *cases) {
    if (!c.same_rows) continue;
    SameRows& rows = *c.same_rows;
    const auto other = std::ranges::find(*cases, rows.of, &RecordedCase::id);
    const bool own = rows.of == c.id;
    const bool found = !own && other != cases->end() && std::ranges::count(ids, rows.of) > 0;
    const BadPromise wrong =
        found
            ? what_is_wrong(c, *other)
            : BadPromise{"rows_of",
                         own ? "another case of this file"
                             : "a case of this file that can be read" + did_you_mean(rows.of, ids),
                         '"' + printable(rows.of) + '"' + (own ? ", the case itself" : "")};
    if (!wrong.expected.empty()) {
      status.add(
          file_finding("vector.case", name + '#' + c.id, wrong.field, wrong.expected, wrong.got));
      bad.push_back(c.id);
      continue;
    }
    rows.out = other->gpu().out;
    const Recorded &mine = c.gpu(), &its = other->gpu();
    if (mine.lse_base == its.lse_base && mine.lse_sink == its.lse_sink) rows.lse = its.lse;
    if (!c.attention().appended && !other->attention().appended)
      rows.calls = {other->attention().calls[0]};
    c.storage.insert(c.storage.end(), other->storage.begin(), other->storage.end());
  }
  std::erase_if(*cases, [&](const RecordedCase& c) { return std::ranges::count(bad, c.id) > 0; });
  return status;
}

}  // namespace shadowgraph
