#include "check/mistakes/diagnose.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "check/mistakes/reading_result.h"

namespace shadowgraph {
namespace {

constexpr size_t kMostRequests = 8;  // with wrong results
constexpr size_t kMostCells = 48;    // of a request, wrong ones and right ones each

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
};

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
    Seen seen{request, right_reading(scene_, request), {}, {}};
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

  /// The best way to make it in a request: what it explains and breaks.
  void best_of(const Mistake& mistake, const Seen& seen, Explanation* d) const {
    int64_t explained = 0, broken = 0;
    std::string detail;
    mistake.readings(scene_, seen.request, seen.right, [&](const Reading& reading) {
      if (explained == std::ssize(seen.wrong_cells) && broken == 0) return;
      // Most are seen to be none of it at once.
      if (!results_.agrees(reading, seen.wrong_cells.front()) &&
          !results_.agrees(reading, seen.wrong_cells.back()))
        return;
      const int64_t more = agreeing(reading, seen.wrong_cells);
      const int64_t less = reading.some_rows
                               ? 0
                               : std::ssize(seen.right_cells) - agreeing(reading, seen.right_cells);
      if (more - less <= explained - broken) return;
      explained = more, broken = less, detail = reading.detail;
    });
    if (d->explained == 0 && !detail.empty()) d->sentence += ", " + detail;
    d->explained += explained, d->broken += broken;
  }

  Explanation of(const Mistake& mistake) const {
    Explanation d;
    d.mistake = mistake.id, d.sentence = mistake.sentence;
    for (const Seen& seen : seen_) {
      d.wrong += std::ssize(seen.wrong_cells);
      best_of(mistake, seen, &d);
    }
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
