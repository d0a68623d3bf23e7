#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/escape.h"

namespace shadowgraph::bench {
namespace {

/// Why a row says nothing; empty: it has a figure to keep.
std::string no_figure(const BenchRow& r) {
  if (!r.void_reason.empty()) return "is void";
  if (!r.quiet || !r.ratio || !(*r.ratio > 0)) return "is not quiet";
  return "";
}

/// Names the things that the two rows do not have in common; empty: their ratios are of the same
/// thing.
std::string unlike(const BenchRow& was, const BenchRow& is) {
  const auto differ = [](const char* what, const auto& a, const auto& b) {
    return fmt::format("{} {}, now {}", what, a, b);
  };
  if (was.of != is.of) return differ("of", was.of, is.of);
  if (was.threads != is.threads) return differ("threads", was.threads, is.threads);
  if (was.isa != is.isa) return differ("isa", was.isa, is.isa);
  if (was.arith != is.arith) return differ("arith", was.arith, is.arith);
  if (was.at_most != is.at_most) return "the goal has another side";
  return "";
}

/// How much worse (above 0) row b is than row a, between their nearer quartiles.
double gap(const BenchRow& a, const BenchRow& b) {
  return a.at_most ? *b.low - *a.high : *a.low - *b.high;
}

std::string verdict_of(const BenchRow& was, const BenchRow& is) {
  const double unit = *was.ratio;
  if (gap(was, is) > kRunNoise * unit) return "lost";
  if (gap(is, was) > kRunNoise * unit) return "gained";
  // A loss between the medians shows as a gap less this.
  const double medians = was.at_most ? *is.ratio - *was.ratio : *was.ratio - *is.ratio;
  const double hidden = medians - gap(was, is);
  return hidden + kRunNoise * unit < kLeastLoss * unit ? "same" : "wide";
}

const BenchRow* row_of(const Report& report, const std::string& id) {
  const auto row = std::ranges::find(report.bench->rows, id, &BenchRow::shape);
  return row == report.bench->rows.end() ? nullptr : &*row;
}

BenchPair pair_of(const BenchRow* was, const BenchRow& is) {
  BenchPair pair{is.shape, {}, is.ratio, "not compared", ""};
  if (was == nullptr) return pair.why = "not in the older run", pair;
  pair.was = was->ratio;
  const std::string old_why = no_figure(*was), new_why = no_figure(is);
  pair.why = !old_why.empty()   ? "old " + old_why
             : !new_why.empty() ? "new " + new_why
                                : unlike(*was, is);
  if (pair.why.empty()) pair.verdict = verdict_of(*was, is);
  return pair;
}

std::string figures(const BenchRow& r) {
  return fmt::format("{:.3f} ({:.3f}..{:.3f})", *r.ratio, *r.low, *r.high);
}

/// Differences of two runs beside the build: "cpu: A, now B".
std::vector<std::string> differences(const Report& old_run, const Report& new_run) {
  std::vector<std::string> list;
  const auto look = [&](const std::string& what, const std::string& was, const std::string& is) {
    if (was != is) list.push_back(fmt::format("{}: {}, now {}", what, was, is));
  };
  for (const auto& [what, is] : new_run.bench->machine) {
    const auto was = std::ranges::find(old_run.bench->machine, what,
                                       &std::pair<std::string, std::string>::first);
    look(what, was == old_run.bench->machine.end() ? "not told" : was->second, is);
  }
  look("threads", std::to_string(old_run.threads), std::to_string(new_run.threads));
  look("isa", old_run.isa, new_run.isa);
  look("arith", old_run.arith, new_run.arith);
  look("seed", std::to_string(old_run.seed), std::to_string(new_run.seed));
  return list;
}

Finding lost(const BenchRow& was, const BenchRow& is, const std::string& path) {
  Finding f = make_finding("bench.lost", at(is.shape),
                           fmt::format("{}, as in {}", figures(was), path), figures(is));
  f.case_id = "bench " + is.shape;
  f.reproduce = fmt::format("shadowgraph bench --rows {} --against {}", is.shape, shell_word(path));
  return f;
}

}  // namespace

BenchComparison compare(const Report& old_run, const Report& new_run) {
  BenchComparison c;
  for (const BenchRow& is : new_run.bench->rows)
    c.rows.push_back(pair_of(row_of(old_run, is.shape), is));
  return c;
}

void compare_with(const Report& old_run, const std::string& path, Report* new_run) {
  BenchComparison c = compare(old_run, *new_run);
  c.path = path;
  const auto judged = std::ranges::count_if(
      c.rows, [](const BenchPair& pair) { return pair.verdict != "not compared"; });
  for (const std::string& what : differences(old_run, *new_run))
    new_run->warnings.push_back("the older run differs: " + what);
  for (const BenchPair& pair : c.rows) {
    if (pair.verdict != "lost") continue;
    new_run->findings.push_back(
        lost(*row_of(old_run, pair.shape), *row_of(*new_run, pair.shape), path));
  }
  if (judged == 0) {
    new_run->void_verdict = "nothing was compared";
    new_run->warnings.push_back("nothing was compared: no row has a quiet figure in both runs");
  }
  new_run->bench->against = std::move(c);
}

}  // namespace shadowgraph::bench
