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
  std::vector<size_t> explained = {};  // indices of wrong cells
  int64_t broken = 0;
  bool some_rows = false;
  int64_t gain() const { return std::ssize(explained) - broken; }
};

/// One for each request that is looked at.
using Scores = std::vector<Score>;
int64_t gain_of(const Scores& scores) {
  int64_t gain = 0;
  for (const Score& score : scores) gain += score.gain();
  return gain;
}

/// Facts by what is said of them, in the order in which it was tried.
template <class T>
using ByDetail = std::vector<std::pair<std::string, T>>;
template <class T>
T& value_of(const std::string& detail, T none, ByDetail<T>* all) {
  const auto known = std::ranges::find(*all, detail, &ByDetail<T>::value_type::first);
  if (known != all->end()) return known->second;
  all->emplace_back(detail, std::move(none));
  return all->back().second;
}

/// A name, and what it explains.
struct Claim {
  Explanation said;
  Scores scores;
};

class Diagnoser {
 public:
  Diagnoser(const Scene& scene, const Result& result, const Arithmetic& arithmetic,
            const DiagnoseOptions& options)
      : scene_(scene), results_(scene, result, arithmetic, options), of_many_(options.of_many) {}

  std::vector<Explanation> run() {
    for (size_t r = 0; r < scene_.rows.keys.size() && seen_.size() < kMostRequests; ++r) look(r);
    std::vector<Claim> claims;
    for (const Mistake& mistake : all_mistakes()) {
      if (seen_.empty()) break;
      Claim claim = of(mistake);
      if (gain_of(claim.scores) > 0) claims.push_back(std::move(claim));
    }
    std::vector<Explanation> all = believed(std::move(claims));
    if (all.empty() && !seen_.empty()) all.push_back(unknown());
    return all;
  }

 private:
  using Cells = std::vector<std::vector<char>>;  // [requests][wrong cells]

  /// Likelier claims come first. A claim is believed for wrong results that no likelier one
  /// explains. One about all rows of a request must be right about most of these: a few of them
  /// agree with anything.
  std::vector<Explanation> believed(std::vector<Claim> claims) const {
    const auto gain = [](const Claim& claim) { return gain_of(claim.scores); };
    std::ranges::stable_sort(claims, std::greater(), gain);
    Cells open;
    for (const Seen& seen : seen_) open.emplace_back(seen.wrong_cells.size(), 1);
    std::vector<Explanation> said;
    for (size_t first = 0, end = 0; first < claims.size(); first = end) {
      Cells left = open;
      for (; end < claims.size() && gain(claims[end]) == gain(claims[first]); ++end) {
        const Scores& scores = claims[end].scores;
        if (!of_many_ && !explains_most(scores, open)) continue;
        for (size_t i = 0; i < left.size(); ++i)
          for (const size_t cell : scores[i].explained) left[i][cell] = 0;
        said.push_back(std::move(claims[end].said));
      }
      open = std::move(left);
    }
    return said;
  }

  static bool explains_most(const Scores& scores, const Cells& open) {
    for (size_t i = 0; i < scores.size(); ++i) {
      const int64_t explained = std::ranges::count_if(
          scores[i].explained, [&](size_t cell) { return open[i][cell] != 0; });
      const int64_t most = scores[i].some_rows ? 1 : std::ranges::count(open[i], 1) / 2 + 1;
      if (explained >= most) return true;
    }
    return false;
  }

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

  std::vector<size_t> agreeing(const Reading& reading, const std::vector<HeadRow>& cells) const {
    std::vector<size_t> agree;
    for (size_t i = 0; i < cells.size(); ++i)
      if (results_.agrees(reading, cells[i])) agree.push_back(i);
    return agree;
  }

  /// The ways to make one mistake in one request.
  class Ways final : public AddReading {
   public:
    Ways(const Diagnoser& diagnoser, Seen& seen) : d_(diagnoser), seen_(seen) {}

    void operator()(Reading r) const override {
      const std::vector<HeadRow>& wrong = seen_.wrong_cells;
      if (!r.of_call && best.gain() == std::ssize(wrong)) return;
      // Most are seen to be none of it at once.
      if (!d_.results_.agrees(r, wrong.front()) &&
          (wrong.size() == 1 || !d_.results_.agrees(r, wrong.back())))
        return;
      Score score{d_.agreeing(r, wrong), 0, r.some_rows};
      if (!r.some_rows)
        score.broken =
            std::ssize(seen_.right_cells) - std::ssize(d_.agreeing(r, seen_.right_cells));
      Score& so_far = r.of_call ? value_of(r.detail, Score(), &of_call) : best;
      if (score.gain() <= so_far.gain()) return;
      so_far = std::move(score);
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
    mutable ByDetail<Score> of_call;

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

  Claim of(const Mistake& mistake) {
    Claim claim{{}, Scores(seen_.size())};
    Explanation& d = claim.said;
    d.mistake = mistake.id, d.sentence = mistake.sentence;
    std::string detail;
    ByDetail<Scores> of_call;
    for (size_t i = 0; i < seen_.size(); ++i) {
      d.wrong += std::ssize(seen_[i].wrong_cells);
      const Ways ways(*this, seen_[i]);
      mistake.readings(scene_, seen_[i].request, seen_[i].right, ways);
      if (gain_of(claim.scores) == 0) detail = ways.detail;
      claim.scores[i] = ways.best;
      for (const auto& [number, score] : ways.of_call)
        value_of(number, Scores(seen_.size()), &of_call)[i] = score;
    }
    for (const auto& [number, scores] : of_call)
      if (gain_of(scores) > gain_of(claim.scores)) claim.scores = scores, detail = number;
    if (!detail.empty()) d.sentence += ", " + detail;
    for (const Score& score : claim.scores)
      d.explained += std::ssize(score.explained), d.broken += score.broken;
    return claim;
  }

  Explanation unknown() const {
    Explanation e{"unknown", "No known mistake gives these results"};
    for (const Seen& seen : seen_) e.wrong += std::ssize(seen.wrong_cells);
    return e;
  }

  const Scene& scene_;
  const ReadingResults results_;
  const bool of_many_;
  std::vector<Seen> seen_;
};

}  // namespace

std::vector<Explanation> diagnose(const Scene& scene, const Result& result,
                                  const Arithmetic& arithmetic, const DiagnoseOptions& options) {
  return Diagnoser(scene, result, arithmetic, options).run();
}

}  // namespace shadowgraph
