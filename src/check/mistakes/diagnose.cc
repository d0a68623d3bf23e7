#include "check/mistakes/diagnose.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/mistakes/reading_result.h"
#include "check/mistakes/row_sums.h"

namespace shadowgraph {
namespace {

constexpr size_t kMostRequests = 8;  // with wrong results
constexpr size_t kMostCells = 48;    // of a request, wrong ones and right ones each
constexpr size_t kNearest = 8;       // of a family of readings those that are tried
constexpr double kFar = 0.25;        // and only nearer ones: a bound as wide says nothing

/// At most so many, from all over.
std::vector<HeadRow> some_of(const std::vector<HeadRow>& all) {
  if (all.size() <= kMostCells) return all;
  std::vector<HeadRow> some;
  for (size_t i = 0; i < kMostCells; ++i) some.push_back(all[i * all.size() / kMostCells]);
  return some;
}

/// What is looked at of one request.
struct Seen {
  size_t request;
  Reading right;
  std::vector<HeadRow> wrong_cells, right_cells;
  std::vector<ReadingResults::Looked>
      ends;  // of the first and the last wrong cell, once they are asked for
};

/// Results of a request that a way to make a mistake explains, and right ones that it would break.
struct Score {
  int64_t explained = 0, broken = 0;
  int64_t gain() const { return explained - broken; }
};

/// Scores of numbers by what is said of them, in the order in which they were tried.
using Scores = std::vector<std::pair<std::string, Score>>;
Score& score_of(const std::string& detail, Scores* scores) {
  const auto known = std::ranges::find(*scores, detail, &Scores::value_type::first);
  if (known != scores->end()) return known->second;
  scores->emplace_back(detail, Score());
  return scores->back().second;
}

class Diagnoser {
 public:
  Diagnoser(const Scene& scene, const Result& result, const Arithmetic& arithmetic,
            const DiagnoseOptions& options)
      : scene_(scene), results_(scene, result, arithmetic, options) {}

  std::vector<Explanation> run() {
    for (size_t r = 0; r < scene_.rows.keys.size() && seen_.size() < kMostRequests; ++r) look(r);
    std::vector<Explanation> all;
    for (const Mistake& mistake : all_mistakes()) {
      if (seen_.empty()) break;
      Explanation d = of(mistake);
      if (d.explained <= d.broken) continue;
      all.push_back(std::move(d));
    }
    std::ranges::stable_sort(all, std::greater(),
                             [](const Explanation& d) { return d.explained - d.broken; });
    if (all.empty() && !seen_.empty()) all.push_back(unknown());
    return all;
  }

 private:
  void look(size_t request) {
    Seen seen{request, right_reading(scene_, request), {}, {}, {}};
    const int64_t first = scene_.rows.cu_seqlens_q[request];
    for (int32_t i = 0; i < scene_.rows.q_len(request); ++i) {
      for (int32_t head = 0; head < scene_.params.num_qo_heads; ++head) {
        const HeadRow cell{first + i, i, head};
        (results_.agrees(seen.right, cell) ? seen.right_cells : seen.wrong_cells).push_back(cell);
      }
    }
    if (seen.wrong_cells.empty()) return;
    seen.wrong_cells = some_of(seen.wrong_cells), seen.right_cells = some_of(seen.right_cells);
    seen_.push_back(std::move(seen));
  }

  int64_t agreeing(const Reading& reading, const std::vector<HeadRow>& cells) const {
    return std::ranges::count_if(
        cells, [&](const HeadRow& cell) { return results_.agrees(reading, cell); });
  }

  /// The ways to make one mistake in one request.
  class Ways final : public AddReading {
   public:
    Ways(const Diagnoser& diagnoser, Seen& seen) : d_(diagnoser), seen_(seen) {}

    void operator()(Reading r) const override {
      const std::vector<HeadRow>& wrong = seen_.wrong_cells;
      if (!r.of_call && best.explained == std::ssize(wrong) && best.broken == 0) return;
      // Most are seen to be none of it at once.
      if (!d_.results_.agrees(r, wrong.front()) &&
          (wrong.size() == 1 || !d_.results_.agrees(r, wrong.back())))
        return;
      Score score{d_.agreeing(r, wrong), 0};
      if (!r.some_rows)
        score.broken = std::ssize(seen_.right_cells) - d_.agreeing(r, seen_.right_cells);
      Score& so_far = r.of_call ? score_of(r.detail, &of_call) : best;
      if (score.gain() <= so_far.gain()) return;
      so_far = score;
      if (!r.of_call) detail = r.detail;
    }
    void operator()(const Family& family) const override {
      std::vector<std::pair<double, int64_t>> nearest;
      for (int64_t n = family.first; n < family.end; ++n) {
        double distance = std::numeric_limits<double>::infinity();
        for (const ReadingResults::Looked& cell : looked()) {
          const std::optional<Estimate> e = family.estimate(cell.sums, n);
          if (e) distance = std::min(distance, cell.got.distance(*e));
        }
        if (distance < kFar) nearest.emplace_back(distance, n);
      }
      std::ranges::sort(nearest);
      if (nearest.size() > kNearest) nearest.resize(kNearest);
      std::ranges::sort(nearest, {}, [](const auto& near) { return near.second; });
      for (const auto& [distance, n] : nearest) (*this)(family.reading(n));
    }
    void operator()(const Solve& solve) const override {
      for (const ReadingResults::Looked& cell : looked())
        for (Reading& r : solve(cell.sums, cell.got)) (*this)(std::move(r));
    }

    mutable Score best;
    mutable std::string detail;
    mutable Scores of_call;

   private:
    const std::vector<ReadingResults::Looked>& looked() const {
      if (!seen_.ends.empty()) return seen_.ends;
      const std::vector<HeadRow>& wrong = seen_.wrong_cells;
      seen_.ends.push_back(d_.results_.look(seen_.request, seen_.right, wrong.front()));
      if (wrong.size() > 1)
        seen_.ends.push_back(d_.results_.look(seen_.request, seen_.right, wrong.back()));
      return seen_.ends;
    }

    const Diagnoser& d_;
    Seen& seen_;
  };

  Explanation of(const Mistake& mistake) {
    Explanation d;
    d.mistake = mistake.id, d.sentence = mistake.sentence;
    Score best;
    std::string detail;
    Scores of_call;
    for (Seen& seen : seen_) {
      d.wrong += std::ssize(seen.wrong_cells);
      const Ways ways(*this, seen);
      mistake.readings(scene_, seen.request, seen.right, ways);
      if (best.explained == 0) detail = ways.detail;
      best.explained += ways.best.explained, best.broken += ways.best.broken;
      for (const auto& [number, score] : ways.of_call) {
        Score& sum = score_of(number, &of_call);
        sum.explained += score.explained, sum.broken += score.broken;
      }
    }
    for (const auto& [number, score] : of_call)
      if (score.gain() > best.gain()) best = score, detail = number;
    if (!detail.empty()) d.sentence += ", " + detail;
    d.explained = best.explained, d.broken = best.broken;
    return d;
  }

  Explanation unknown() const {
    Explanation e{"unknown", "No known mistake gives these results"};
    for (const Seen& seen : seen_) e.wrong += std::ssize(seen.wrong_cells);
    return e;
  }

  const Scene& scene_;
  const ReadingResults results_;
  std::vector<Seen> seen_;
};

}  // namespace

std::vector<Explanation> diagnose(const Scene& scene, const Result& result,
                                  const Arithmetic& arithmetic, const DiagnoseOptions& options) {
  return Diagnoser(scene, result, arithmetic, options).run();
}

}  // namespace shadowgraph
