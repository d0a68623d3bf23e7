#include "bench/judge_job.h"

#include <atomic>
#include <filesystem>
#include <stdexcept>

#include "bench/device_decode.h"
#include "check/laws/metadata_case.h"
#include "check/traces/traces.h"
#include "fuzz/fuzz.h"
#include "io/traces/traces.h"
#include "runtime/small_steps.h"

namespace shadowgraph::bench {
namespace {

// Lines of which the engine's builders are right, or wrong in ways that are known.
constexpr char kTraces[] = SG_BENCH_TRACES "/flashattention.latest.jsonl";

/// Reads a file of traces and judges each line, as `check` does.
class TraceJob : public JudgeJob {
 public:
  Status run() override {
    std::vector<TraceLine> lines;
    Status status = read_traces(kTraces, &lines);
    for (const TraceLine& line : lines) {
      const TraceVerdict verdict = judge_trace(line);
      if (verdict.kind == TraceVerdict::Kind::kRefused) status.add(verdict.findings);
    }
    lines_ = static_cast<double>(lines.size());
    return status;
  }
  double items() const override { return lines_; }

 private:
  double lines_ = 0;
};

/// Fills and judges the metadata of every decode of 1 to 3 requests of 1 to 8 keys.
class StepJob : public JudgeJob {
 public:
  StepJob() : metadata_(*find_backend("flashattention"), limits()) {
    for (int32_t rows = 1, count = 8; rows <= 3; ++rows, count *= 8) {
      for (int32_t number = 0; number < count; ++number) {
        StepShape shape;
        shape.page_size = kPage;
        for (int32_t i = 0, rest = number; i < rows; ++i, rest /= 8)
          shape.prefix_lens.push_back(rest % 8);
        steps_.push_back(make_step(shape, kContext));
      }
    }
  }
  Status run() override {
    Status status = metadata_.ready();
    for (const Step& step : steps_) status.add(metadata_.run(step.batch()));
    return status;
  }
  double items() const override { return static_cast<double>(steps_.size()); }

 private:
  static constexpr int32_t kPage = 2, kContext = 16;
  static Limits limits() {
    ModelConfig model;
    model.max_context_len = kContext, model.page_size = kPage;
    LayerKind layer;
    layer.params = {.num_qo_heads = 8,
                    .num_kv_heads = 2,
                    .head_dim_qk = 64,
                    .head_dim_vo = 64,
                    .sm_scale = 0.125f,
                    .causal = true};
    model.layers = {layer};
    return Limits::bucket(ForwardMode::kDecode, 4, 1, model);
  }
  MetadataCase metadata_;
  std::vector<Step> steps_;
};

/// The first cases of a seed.
class FuzzJob : public JudgeJob {
 public:
  FuzzJob(uint64_t seed, uint64_t cases, bool histories) {
    options_.seed = seed, options_.cases = cases, options_.threads = 1;
    options_.kernels = !histories;
    if (histories) options_.histories.backends.assign(all_backends().begin(), all_backends().end());
  }
  Status run() override {
    const std::atomic<bool> stop = false;
    return run_fuzz(
               options_, [](const FuzzProgress&) {}, stop)
        .findings;
  }
  double items() const override { return static_cast<double>(options_.cases); }
  /// A call is made with several numbers of threads, to see the same bits.
  bool is_crowded() const override { return true; }

 private:
  FuzzOptions options_;
};

/// Replays of a graph of one decode.
class ReplayJob : public JudgeJob {
 public:
  explicit ReplayJob(bool checked) : decode_(checked) {
    ready_ = Graph::record(
        decode_.stream, [this](Stream& s) { s.launch(decode_.launch); }, &graph_);
    ready_.add(GraphExec::instantiate(graph_, &exec_));
  }
  Status run() override {
    if (!ready_.ok()) return ready_;
    exec_.replay(decode_.stream);
    decode_.stream.synchronize();
    return decode_.device.take_findings();
  }

 private:
  DeviceDecode decode_;
  Graph graph_;
  GraphExec exec_;
  Status ready_;
};

}  // namespace

std::string missing_job(Judging judging) {
  std::error_code error;
  if (judging != Judging::kTraceLines || std::filesystem::exists(kTraces, error)) return "";
  return std::string("no file ") + kTraces;
}

std::unique_ptr<JudgeJob> make_job(Judging judging, uint64_t seed) {
  switch (judging) {
    case Judging::kTraceLines: return std::make_unique<TraceJob>();
    case Judging::kSteps: return std::make_unique<StepJob>();
    case Judging::kCalls: return std::make_unique<FuzzJob>(seed, 40, false);
    case Judging::kHistories: return std::make_unique<FuzzJob>(seed, 40, true);
    case Judging::kReplays: return std::make_unique<ReplayJob>(true);
    case Judging::kUncheckedReplays: return std::make_unique<ReplayJob>(false);
    case Judging::kNone: break;
  }
  throw std::logic_error("no job of judging");
}

}  // namespace shadowgraph::bench
