#include "report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// Who computed, and how far off that was.
struct Figure {
  const char* name;
  std::optional<double> CaseReport::*value;
};
constexpr Figure kFigures[] = {{"ours", &CaseReport::error_over_bound},
                               {"ours lse", &CaseReport::lse_error_over_bound},
                               {"twin", &CaseReport::twin_error_over_bound},
                               {"twin lse", &CaseReport::twin_lse_error_over_bound},
                               {"gpu", &CaseReport::gpu_error_over_bound},
                               {"gpu lse", &CaseReport::gpu_lse_error_over_bound}};

/// How near a case came to its bound, whoever computed; NaN is the nearest of all.
double closeness(const CaseReport& c) {
  double worst = -1;
  for (const Figure& figure : kFigures) {
    const auto& value = c.*figure.value;
    if (value && !(*value <= worst)) worst = std::isnan(*value) ? HUGE_VAL : *value;
  }
  return worst;
}

}  // namespace

std::string place_of(const Finding& f) {
  const Where& where = f.where;
  if (where.row && (f.id == "io.line" || f.id == "io.waiver"))
    return fmt::format("line {}", *where.row) + (where.field == "line" ? "" : ", " + where.field);
  std::string s;
  for (const std::string* part : {&where.backend, &where.mode, &where.phase, &where.field}) {
    if (!part->empty()) s += (s.empty() ? "" : " ") + *part;
  }
  return s + where.index();
}

namespace {

std::string family_of(const std::string& law) { return law.substr(0, law.find('.')); }

/// "latent.*" for a family of which no law judged anything, else each law.
std::vector<std::string> by_family(const Report& r, const std::vector<std::string>& idle_laws) {
  std::map<std::string, std::vector<std::string>> idle;  // by family
  std::map<std::string, size_t> all;
  for (const auto& [law, judged] : r.laws) ++all[family_of(law)];
  for (const std::string& law : idle_laws) idle[family_of(law)].push_back(law);
  std::vector<std::string> names;
  for (const auto& [family, laws] : idle) {
    if (laws.size() == all[family] && laws.size() > 1)
      names.push_back(family + ".*");
    else
      names.insert(names.end(), laws.begin(), laws.end());
  }
  return names;
}

/// The runs that judge these laws: "calls", "vectors".
std::set<std::string> runs_of(const std::vector<std::string>& laws) {
  std::set<std::string> runs;
  for (const std::string& law : laws) {
    std::istringstream words{std::string(find_law(law)->judged_in)};
    runs.insert(std::istream_iterator<std::string>(words), {});
  }
  return runs;
}

/// How many pairs no case had, and the first of those that have names.
void add_pairs(const Report& r, std::vector<std::string>* lines) {
  constexpr size_t kMost = 5;
  int64_t of = 0, met = 0;
  std::vector<std::string> named, kinds;
  for (const auto& [kind, pairs] : r.pairs) {
    of += pairs.of, met += pairs.num_met();
    if (pairs.of == 0) kinds.push_back(kind);
    for (const std::string& pair : pairs.unmet)
      if (named.size() < kMost) named.push_back(kind + ": " + pair);
  }
  if (met < of)
    lines->push_back(fmt::format("pairs of levels that no case had, {} of {}{}{}", of - met, of,
                                 named.empty() ? "" : ", such as ", fmt::join(named, "; ")));
  if (!kinds.empty())
    lines->push_back(fmt::format("kinds of cases of which there was none, {} of {}: {}",
                                 kinds.size(), r.pairs.size(), fmt::join(kinds, ", ")));
}

}  // namespace

std::vector<std::string> not_looked_at(const Report& r) {
  std::vector<std::string> lines;
  const std::vector<std::string> idle = r.idle_laws(), others = r.laws_of_other_runs();
  if (!idle.empty())
    lines.push_back(fmt::format("laws that could judge and judged nothing, {} of {}: {}",
                                idle.size(), r.laws.size(), fmt::join(by_family(r, idle), ", ")));
  if (!others.empty())
    lines.push_back(fmt::format("laws that cannot judge in this run, {}: they are of {}",
                                others.size(), fmt::join(runs_of(others), ", ")));
  std::vector<std::string> features;
  for (const auto& [name, cases] : r.features)
    if (cases == 0) features.push_back(name);
  if (!features.empty())
    lines.push_back(fmt::format("features that no case had, {} of {}: {}", features.size(),
                                r.features.size(), fmt::join(features, ", ")));
  add_pairs(r, &lines);
  return lines;
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
      {"where", place_of(f)},
      {"expected", f.expected},
      {"got", f.got},
      {"refs", fmt::format("{}", fmt::join(f.refs, ", "))},
      {"waived", f.waived}};
  for (size_t i = 0; i < f.diagnosis.size(); ++i)
    details.emplace_back(i == 0 ? "as if" : "or as if", f.diagnosis[i].to_string());
  details.emplace_back("reproduce", f.reproduce);
  std::erase_if(details, [](const auto& detail) { return detail.second.empty(); });
  return details;
}

std::vector<std::string> other_warnings(const Report& r) {
  std::set<std::string> told;
  for (const PassedOver& p : r.passed_over) told.insert(p.to_string());
  std::vector<std::string> others;
  for (const std::string& warning : r.warnings) {
    if (!told.contains(warning)) others.push_back(warning);
  }
  return others;
}

std::vector<const CaseReport*> cases_by_error(const Report& r) {
  std::vector<const CaseReport*> cases;
  for (const CaseReport& c : r.case_list) cases.push_back(&c);
  std::ranges::stable_sort(cases, std::greater(),
                           [](const CaseReport* c) { return closeness(*c); });
  return cases;
}

std::optional<Heatmap> error_map(const Report& r) {
  if (r.case_list.empty()) return {};
  Heatmap map;
  map.title = "Error of each case over its derived bound, the largest first";
  map.row_name = "case", map.column_name = "result";
  std::vector<Figure> measured;
  for (const Figure& figure : kFigures) {
    const auto has = [&](const CaseReport& c) { return (c.*figure.value).has_value(); };
    if (std::ranges::any_of(r.case_list, has)) measured.push_back(figure);
  }
  for (const Figure& figure : measured) map.column_names.emplace_back(figure.name);
  map.rows = std::ssize(r.case_list), map.columns = std::ssize(measured);
  for (const CaseReport* c : cases_by_error(r)) {
    map.row_names.push_back(c->id);
    for (const Figure& figure : measured) map.values.push_back((c->*figure.value).value_or(-1));
  }
  return map;
}

std::string head_of(const Report& r) {
  std::string s = fmt::format("seed {}  {}", r.seed, r.verb);
  if (!r.isa.empty()) s += "  isa " + r.isa;
  s += "  arith " + r.arith;
  if (r.threads > 0) s += fmt::format("  threads {}", r.threads);
  s += "  shadowgraph " + r.version;
  if (!r.shard.empty()) s += "  shard " + r.shard;
  if (!r.range.empty()) s += "  range " + r.range;
  return s;
}

}  // namespace shadowgraph
