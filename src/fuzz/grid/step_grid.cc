#include "fuzz/grid/step_grid.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "check/laws/metadata_case.h"
#include "fuzz/grid/grid_parts.h"

namespace shadowgraph {
namespace {

constexpr int32_t kMaxRequests = 4;

RunnerOptions options_of(const GridPart& part, Tap* tap) {
  RunnerOptions o;
  o.data = RunnerData::kUniform;
  o.slots = o.swa_slots = pool_slots(kMaxRequests, part.width, part.model.page_size);
  o.max_tokens = part.max_tokens;
  o.state_slots = 2 * kMaxRequests + 1, o.draft_rows = kMaxRequests;
  if (part.bucket > 0) o.buckets = {part.bucket};
  o.tap = tap;
  return o;
}

/// "P 2 order 1 bucket 3: decode prefix [4, 0]"
std::string describe(const GridPart& part, const StepShape& shape) {
  const auto list = [](const std::vector<int32_t>& v) {
    std::string s = "[";
    for (const int32_t x : v) s += (s.size() > 1 ? ", " : "") + std::to_string(x);
    return s + "]";
  };
  std::string s = "page_size " + std::to_string(shape.page_size) + " order " +
                  std::to_string(static_cast<int>(shape.order)) + " bucket " +
                  std::to_string(part.bucket) + ": " + std::string(name_of(shape.mode)) +
                  " prefix " + list(shape.prefix_lens);
  if (!shape.q_lens.empty()) s += " q_len " + list(shape.q_lens);
  if (!shape.encoder_lens.empty()) s += " encoder " + list(shape.encoder_lens);
  if (shape.draft.num_steps > 0) s += " step " + std::to_string(shape.draft_step);
  for (const DraftTree& tree : shape.trees) s += " tree " + list(tree.parent);
  return s;
}

/// Which steps of a part run, by their numbers in the grid.
struct StepsOfPart {
  uint64_t number = 0;  // of its first step
  CaseRange range;
};

/// Steps of a part, in the same pools and graphs.
class PartSession {
 public:
  PartSession(const GridPart& part, const Backend& backend, const MakeTap& tap)
      : part_(part),
        tap_(tap ? tap() : nullptr),
        runner_(backend, part.model, options_of(part, tap_.get())) {}

  /// number: in the grid.
  Status step(uint64_t number, const StepShape& shape) {
    runner_.begin_history(number);
    return runner_.step(make_step(shape, part_.width));
  }
  void add_counts(StepGridResult* to) const {
    const RunnerCounts& counts = runner_.counts();
    to->steps += static_cast<uint64_t>(counts.steps);
    to->skipped += static_cast<uint64_t>(counts.refused);
    to->replays += static_cast<uint64_t>(counts.replays);
  }

 private:
  const GridPart& part_;
  const std::unique_ptr<Tap> tap_;
  Runner runner_;
};

class PartRun {
 public:
  PartRun(const GridPart& part, const Backend& backend, const MakeTap& tap)
      : part_(part), backend_(backend), tap_(tap) {}

  /// go_on(number) is asked before each step; ends with max_findings.
  StepGridResult run(const StepsOfPart& steps, const std::string& command, size_t max_findings,
                     const std::function<bool(uint64_t number)>& go_on) {
    StepGridResult result;
    std::optional<PartSession> session;
    uint64_t first = 0;  // of the session
    for (uint64_t at = steps.range.next(0); at < steps.range.end(); at = steps.range.next(at + 1)) {
      if (!go_on(at)) break;
      if (!session) session.emplace(part_, backend_, tap_), first = at;
      const StepShape shape = part_.shape(at - steps.number);
      Status status = session->step(at, shape);
      if (!status.ok()) {
        const std::string again = command + steps_to_repeat(first, at, steps.number);
        for (Finding& f : status.findings()) {
          f.case_id = describe(part_, shape);
          f.reproduce = again;
          result.findings.add(std::move(f));
        }
        // The next step is not blamed for what a failing one leaves in pools and graphs.
        session->add_counts(&result);
        session.reset();
      }
      if (std::as_const(result.findings).findings().size() >= max_findings) break;
    }
    if (session) session->add_counts(&result);
    return result;
  }

 private:
  /// A step may need others before it, from first on, to fail: few of them. part: number of the
  /// part's first step.
  std::string steps_to_repeat(uint64_t first, uint64_t at, uint64_t part) const {
    LawCounts laws;
    const CountsJudgements apart(&laws);
    uint64_t from = at;
    for (uint64_t before = 1; from > first && !fails(from, at, part); before *= 2)
      from = at - std::min(before, at - first);
    return " --first " + std::to_string(from) + " --cases " + std::to_string(at - from + 1);
  }
  bool fails(uint64_t from, uint64_t at, uint64_t part) const {
    std::optional<PartSession> session;
    Status status;
    for (; from <= at; ++from) {
      if (!status.ok()) session.reset();
      if (!session) session.emplace(part_, backend_, tap_);
      status = session->step(from, part_.shape(from - part));
    }
    return !status.ok();
  }

  const GridPart& part_;
  const Backend& backend_;
  const MakeTap& tap_;
};

/// Only metadata: a shape in one order of pages after the other.
class PlanRun {
 public:
  PlanRun(const GridPart& part, const Backend& backend, const MakeTap& tap)
      : part_(part),
        tap_(tap ? tap() : nullptr),
        metadata_(backend, limits_of(part)),
        served_(metadata_.ready().ok()) {
    if (served_ && tap_ != nullptr) tap_->bound(metadata_.meta(), true);
  }

  StepGridResult run(const StepsOfPart& steps, const std::string& command, size_t max_findings,
                     const std::function<bool(uint64_t number)>& go_on) {
    for (uint64_t at = steps.range.next(0); at < steps.range.end(); at = steps.range.next(at + 1)) {
      if (!go_on(at)) break;
      const uint64_t i = at - steps.number;
      ++(served_ ? result_.steps : result_.skipped);
      if (!served_) continue;
      Status status = judge(i);
      for (Finding& f : status.findings()) {
        f.case_id = describe(part_, part_.shape(i / part_.orders())) + " pages " + pages();
        f.reproduce = command + " --first " + std::to_string(at) + " --cases 1";
        result_.findings.add(std::move(f));
      }
      if (std::as_const(result_.findings).findings().size() >= max_findings) break;
    }
    return std::move(result_);
  }

 private:
  static Limits limits_of(const GridPart& part) {
    return Limits::bucket(part.shape(0).mode, part.bucket, 1, part.model);
  }

  /// Makes the step of that number, and judges what is filled from it.
  Status judge(uint64_t i) {
    const uint64_t shape = i / part_.orders(), order = i % part_.orders();
    if (shape != shape_) tidy_ = make_step(part_.shape(shape), part_.width);
    shape_ = shape;
    set_order(order);
    step_ = tidy_;
    for (int32_t& slot : step_.req_to_token) slot = moved(slot);
    for (int64_t& slot : step_.out_cache_loc) slot = moved(static_cast<int32_t>(slot));
    const ForwardBatch batch = step_.batch();
    ForwardBatch told = batch;
    if (tap_ != nullptr) tap_->batch(told);
    Status status = metadata_.fill(told);
    if (status.ok() && tap_ != nullptr) status = tap_->filled(told, metadata_.meta());
    if (status.ok()) status = metadata_.judge(batch);
    return status;
  }
  /// The order of that number, in the order of dictionaries.
  void set_order(uint64_t number) {
    std::vector<int32_t> left;
    for (int32_t page = 1; page <= part_.permuted_pages; ++page) left.push_back(page);
    uint64_t of = part_.orders();
    order_.clear();
    while (!left.empty()) {
      of /= left.size();
      const auto at = left.begin() + static_cast<std::ptrdiff_t>(number / of);
      number %= of;
      order_.push_back(*at);
      left.erase(at);
    }
  }
  int32_t moved(int32_t slot) const {
    const int32_t size = part_.model.page_size, page = slot / size;
    if (page < 1 || page > part_.permuted_pages) return slot;
    return order_[static_cast<size_t>(page - 1)] * size + slot % size;
  }
  std::string pages() const {
    std::string s;
    for (const int32_t page : order_) s += (s.empty() ? "" : " ") + std::to_string(page);
    return s;
  }

  const GridPart& part_;
  const std::unique_ptr<Tap> tap_;
  MetadataCase metadata_;
  const bool served_;
  uint64_t shape_ = UINT64_MAX;
  Step tidy_, step_;
  std::vector<int32_t> order_;
  StepGridResult result_;
};

StepGridResult run_part(const GridPart& part, const Backend& backend, const MakeTap& tap,
                        const StepsOfPart& steps, const std::string& command, size_t max_findings,
                        const std::function<bool(uint64_t number)>& go_on) {
  if (part.permuted_pages > 0)
    return PlanRun(part, backend, tap).run(steps, command, max_findings, go_on);
  return PartRun(part, backend, tap).run(steps, command, max_findings, go_on);
}

}  // namespace

uint64_t count_steps(const StepGrid& grid) {
  uint64_t steps = 0;
  grid.parts([&](const GridPart& part) { steps += part.size(); });
  return steps;
}

StepGridResult run_step_grid(const StepGrid& grid, const Backend& backend, int threads,
                             size_t max_findings, const MakeTap& tap,
                             const std::function<void(size_t done, size_t of)>& progress,
                             const std::atomic<bool>& stop, const CaseRange& range,
                             const std::function<void(uint64_t)>& starts) {
  std::vector<GridPart> parts;
  std::vector<StepsOfPart> steps;
  uint64_t number = 0;
  grid.parts([&](const GridPart& part) {
    const uint64_t begin = std::exchange(number, number + part.size());
    const CaseRange mine = range.within(begin, number);
    if (mine.size() == 0) return;
    parts.push_back(part);
    steps.push_back({begin, mine});
  });
  const std::string command = "shadowgraph fuzz --exhaustive " + std::string(grid.name) +
                              " --backend " + std::string(backend.info().name);
  StepGridResult all;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  std::atomic<bool> enough = false;
  size_t done = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size() && !enough && !stop; i = next++) {
      LawCounts laws;
      const CountsJudgements counts(&laws);
      StepGridResult mine =
          run_part(parts[i], backend, tap, steps[i], command, max_findings, [&](uint64_t number) {
            if (starts) starts(number);
            return !enough && !stop;
          });
      const std::lock_guard lock(mutex);
      all.laws.add(laws);
      all.steps += mine.steps, all.skipped += mine.skipped, all.replays += mine.replays;
      all.findings.add(std::move(mine.findings));
      enough = std::as_const(all.findings).findings().size() >= max_findings;
      progress(++done, parts.size());
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::max(1, threads); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return all;
}

}  // namespace shadowgraph
