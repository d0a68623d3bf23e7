#include "report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace shadowgraph {

std::string place_of(const Finding& f) {
  const Where& where = f.where;
  if (where.row && (f.id == "io.line" || f.id == "io.waiver"))
    return fmt::format("line {}", *where.row) + (where.field == "line" ? "" : ", " + where.field);
  std::string s;
  for (const std::string* part : {&where.backend, &where.mode, &where.phase, &where.field}) {
    if (!part->empty()) s += (s.empty() ? "" : " ") + *part;
  }
  if (where.row) {
    s += fmt::format("[{}", *where.row);
    s += where.col ? fmt::format(", {}]", *where.col) : "]";
  }
  return s;
}

std::vector<size_t> findings_in_order(const Report& r, size_t most) {
  std::vector<size_t> order(r.findings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    const Finding &a = r.findings[i], &b = r.findings[j];
    if (a.waived.empty() != b.waived.empty()) return a.waived.empty();
    return a.severity < b.severity;
  });
  order.resize(std::min(order.size(), most));
  return order;
}

std::vector<std::pair<const char*, std::string>> details_of(const Finding& f) {
  std::vector<std::pair<const char*, std::string>> details = {
      {"where", place_of(f)}, {"expected", f.expected},
      {"got", f.got},         {"refs", fmt::format("{}", fmt::join(f.refs, ", "))},
      {"waived", f.waived},   {"reproduce", f.reproduce}};
  std::erase_if(details, [](const auto& detail) { return detail.second.empty(); });
  return details;
}

std::string head_of(const Report& r) {
  return fmt::format("seed {}  {}  isa {}  arith {}  threads {}  shadowgraph {}", r.seed, r.verb,
                     r.isa, r.arith, r.threads, r.version) +
         (r.shard.empty() ? "" : "  shard " + r.shard);
}

}  // namespace shadowgraph
