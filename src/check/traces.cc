#include "check/traces.h"

#include <utility>

#include "check/trace_fields.h"
#include "core/laws.h"
#include "shadowgraph/sim_device.h"

namespace shadowgraph {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 26;  // of one table that a twin makes

/// The twin's metadata of the batch, read back as the device has it.
class Twin {
 public:
  Twin() : device_({.seed = 0, .choose = {}, .checked = false}), stream_(device_) {}

  Status make(const Backend& backend, const TraceBatch& rebuilt) {
    const ForwardBatch& batch = rebuilt.batch;
    const Limits limits = rebuilt.capture ? Limits::bucket(batch.mode, rebuilt.rows, rebuilt.width,
                                                           rebuilt.model, batch.spec.step)
                                          : Limits::exact(batch, rebuilt.model);
    if ((int64_t{limits.tokens} + limits.rows + 1) * (int64_t{limits.max_kv_len} + 1) >
        kMaxElements) {
      Status status;
      status.add(make_finding(
          "batch.capacity", at("rows"), "a table that can be made",
          std::to_string(limits.rows) + " rows of " + std::to_string(limits.max_kv_len) + " keys"));
      return status;
    }
    arena_ = Arena(device_, kArenaBytes);
    Status status = backend.bind(arena_, limits, &meta_);
    if (status.ok() && !rebuilt.capture) status = backend.fill(batch, meta_);
    if (status.ok()) status = arena_.upload(stream_.handle());
    stream_.synchronize();
    status.add(stream_.take_status());
    return status;
  }

  const Meta& meta() const { return meta_; }

 private:
  static constexpr size_t kArenaBytes = size_t{1} << 33;  // addresses; pages when touched
  SimDevice device_;
  Stream stream_;
  Arena arena_;
  Meta meta_;
};

class LineJudge {
 public:
  explicit LineJudge(const TraceLine& line) : line_(line) {}

  TraceVerdict judge() {
    std::string missing = judge_metadata();
    if (!verdict_.findings.ok()) {
      verdict_.kind = TraceVerdict::Kind::kFlagged;
    } else if (!missing.empty()) {
      verdict_.kind = TraceVerdict::Kind::kSkipped;
      verdict_.why = std::move(missing);
    }
    for (Finding& f : verdict_.findings.findings()) {
      f.case_id = line_.id;
      f.where.backend = line_.backend;
      f.where.mode = line_.mode;
      f.where.phase = line_.phase;
    }
    return std::move(verdict_);
  }

 private:
  void judge_memory() {
    for (const std::string& access : line_.triton_oob)
      verdict_.findings.add(
          make_finding("mem.out_of_bounds", at("triton_oob"), "inside the storage", access));
  }

  /// Empty, or why it cannot be judged.
  std::string judge_metadata() {
    const Backend* backend = find_backend(line_.backend);
    if (backend == nullptr) return "no twin of " + line_.backend + " yet";
    judge_memory();
    TraceBatch rebuilt;
    std::string problem = rebuilt.build(line_);
    if (!problem.empty()) return problem;
    Twin twin;
    const Status status = twin.make(*backend, rebuilt);
    if (!status.ok()) return "the twin refuses it: " + status.findings()[0].to_string();
    if (!line_.exception.empty()) {
      verdict_.findings.add(
          make_finding("trace.exception", at("exception"), "metadata", line_.exception));
      return "";
    }
    const TraceStep step{line_, rebuilt, backend->info(), twin.meta()};
    return judge_fields(step);
  }

  /// A field may have several readings, one a mode: the twin's buffers say which.
  std::string judge_fields(const TraceStep& step) {
    int judged = 0;
    for (const auto& [name, recorded] : line_.expect) {
      std::string left_out = name + ": a field that no twin knows";
      bool done = false;
      for (const Field& field : step.backend.fields) {
        if (field.recorded != name || done) continue;
        left_out = judge_field(step, field, recorded, &verdict_.findings);
        done = left_out.empty();
      }
      judged += done;
      if (!done) verdict_.notes.push_back(left_out);
    }
    return judged == 0 ? "no field that a twin knows" : "";
  }

  const TraceLine& line_;
  TraceVerdict verdict_;
};

}  // namespace

TraceVerdict judge_trace(const TraceLine& line) { return LineJudge(line).judge(); }

}  // namespace shadowgraph
