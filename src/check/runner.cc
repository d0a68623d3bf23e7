#include "check/runner.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "backends/rows.h"
#include "check/canonical.h"
#include "check/compare.h"
#include "check/invariants.h"
#include "check/runner_world.h"
#include "core/laws.h"
#include "core/parallel.h"

namespace shadowgraph {
namespace {

/// The backend does not serve such limits: no graph of one row for two halves.
bool is_refused(const Status& bound) {
  const auto found = bound.findings();
  return !found.empty() && found[0].id == "backend.limits";
}

struct GraphKey {
  ForwardMode mode;
  int32_t step, rows, q_len;
  bool operator<(const GraphKey& o) const {
    return std::tie(mode, step, rows, q_len) < std::tie(o.mode, o.step, o.rows, o.q_len);
  }
};

struct Captured {
  Meta meta;
  Graph graph;
  GraphExec exec;
};

}  // namespace

struct Runner::Impl {
  Impl(const Backend& b, const ModelConfig& m, const RunnerOptions& o)
      : backend(b), model(m), options(o), world(m, o, b.info().whole_draft) {}

  Status step(const Step& step);
  /// Nothing runs: KV arrives.
  Status receive(const Step& step);

  /// fill, upload, and what the backend launches, recorded. The tap stands between.
  Status prepare(const ForwardBatch& told, Meta& meta, bool capturing, Graph* graph);
  /// What metadata is bound for.
  Limits told_limits(Limits limits) const {
    if (options.tap != nullptr) options.tap->limits(limits);
    return limits;
  }
  /// The batch as the backend is told it.
  ForwardBatch tell(ForwardBatch batch, TapStorage& storage) const {
    if (options.tap != nullptr) options.tap->batch(batch, storage);
    return batch;
  }
  /// With metadata that is bound for this batch.
  Status run_eagerly(const ForwardBatch& batch, const ForwardBatch& told, Meta& meta);
  Status run_replay(const ForwardBatch& batch);
  /// All buckets of a mode, the largest first.
  Status capture(const ForwardBatch& batch, int32_t q_len);
  /// Runs what is enqueued and collects what was seen.
  Status finish();
  /// And judges the metadata that was filled from this batch.
  Status finish(const ForwardBatch& batch);
  /// What is wrong with metadata, and then what was seen of it.
  Status with_metadata(Status seen) {
    Status all = std::exchange(metadata, {});
    all.add(std::move(seen));
    return all;
  }
  /// Of a run with metadata that is bound for these limits.
  Status judge_outputs(const ForwardBatch& batch, const Limits& limits);
  /// A replay has the bits of the eager step.
  bool same_bits(ForwardMode mode) const {
    const bool split_by_batch =
        model.split.fixed_size == 0 &&
        std::ranges::find(backend.info().batch_splits, mode) != backend.info().batch_splits.end();
    return !split_by_batch || model.split.off || options.data == RunnerData::kSelector;
  }
  /// fn(batch, layer) for every layer, with the batch as its step has it.
  template <class Fn>
  void each_layer(const ForwardBatch& batch, Fn fn) {
    const std::vector<LayerIo> layers = world.layers(Limits::exact(batch, model).tokens);
    size_t i = 0;
    for (const ForwardBatch& step : world.steps_of(batch)) {
      for (size_t kind = 0; kind < model.layers.size(); ++kind) fn(step, layers[i++]);
    }
  }

  const Backend& backend;
  const ModelConfig model;
  const RunnerOptions options;
  RunnerWorld world;
  std::map<GraphKey, Captured> graphs;
  std::optional<Meta> filled;  // what prepare() recorded from
  Status metadata;             // laws that it breaks
  RunnerCounts counts;
};

namespace {

/// Says where findings were seen.
Status in(Status status, const Backend& backend, ForwardMode mode, const char* phase) {
  for (Finding& f : status.findings()) {
    f.where.backend = backend.info().name;
    f.where.mode = name_of(mode);
    f.where.phase = phase;
  }
  return status;
}

}  // namespace

Status Runner::Impl::prepare(const ForwardBatch& told, Meta& meta, bool capturing, Graph* graph) {
  filled.reset();
  Status status = backend.fill(told, meta);
  if (!status.ok()) return status;
  if (options.tap != nullptr) status.add(options.tap->filled(told, meta));
  if (!status.ok()) return status;
  status.add(world.arena.upload(world.stream.handle()));
  const std::vector<LayerIo> layers = world.layers(meta.limits.tokens);
  const StepIo io{layers, world.req_to_token(), world.full_to_swa()};
  Meta baked = options.tap != nullptr ? with_layers(meta, model) : meta;
  if (options.tap != nullptr) options.tap->baked(baked, capturing);
  status.add(Graph::record(
      world.stream, [&](Stream& s) { backend.forward(s, baked, io); }, graph));
  filled = std::move(baked);
  return status;
}

Status Runner::Impl::finish() {
  world.stream.synchronize();
  Status status = world.stream.take_status();
  status.add(world.device.take_findings());
  return status;
}

Status Runner::Impl::finish(const ForwardBatch& batch) {
  Status seen = finish();
  if (filled) metadata.add(judge_metadata(backend, batch, model, *filled, seen.ok()));
  filled.reset();
  return seen;
}

Status Runner::Impl::run_eagerly(const ForwardBatch& batch, const ForwardBatch& told, Meta& meta) {
  Graph graph;
  GraphExec exec;
  Status status = prepare(told, meta, false, &graph);
  if (status.ok()) status = GraphExec::instantiate(graph, &exec);
  if (status.ok()) exec.replay(world.stream);
  status.add(finish(batch));
  return status;
}

Status Runner::Impl::capture(const ForwardBatch& batch, int32_t q_len) {
  Status status;
  std::vector<int32_t> largest_first(options.buckets.rbegin(), options.buckets.rend());
  for (const int32_t rows : largest_first) {
    const GraphKey key{batch.mode, batch.spec.step, rows, q_len};
    if (graphs.contains(key)) continue;
    const Limits limits =
        told_limits(Limits::bucket(batch.mode, rows, q_len, model, batch.spec.step));
    if (limits.tokens > options.max_tokens) continue;
    Captured c;
    const std::string name = std::string(name_of(batch.mode)) + "_" + std::to_string(rows) + "_" +
                             std::to_string(q_len) + "_" + std::to_string(batch.spec.step);
    status = backend.bind(world.arena.scope(name), limits, &c.meta);
    if (is_refused(status)) continue;
    // All rows of the dummy are padding.
    const ForwardBatch dummy = batch.slice(0, 0);
    if (status.ok()) status.add(prepare(dummy, c.meta, true, &c.graph));
    if (status.ok()) status.add(GraphExec::instantiate(c.graph, &c.exec));
    if (status.ok()) c.exec.replay(world.stream);
    status.add(finish(dummy));
    status = with_metadata(std::move(status));
    if (!status.ok()) return status;
    ++counts.captures;
    graphs.emplace(key, std::move(c));
  }
  return {};
}

Status Runner::Impl::run_replay(const ForwardBatch& batch) {
  const auto bucket = std::ranges::lower_bound(options.buckets, static_cast<int32_t>(batch.size()));
  if (bucket == options.buckets.end()) return {};
  // As wide as any batch of the mode may be.
  int32_t q_len = Limits::exact(batch, model).max_q_len;
  if (is_draft_extend(batch.mode)) q_len = model.num_steps + 1;
  if (is_draft_extend_v2(batch.mode)) q_len = model.num_draft_tokens;
  const auto full = [&](int32_t of_request) { return of_request == q_len; };
  const bool ragged = backend.info().ragged_graphs && model.dcp_size == 1;
  if (!ragged && !std::ranges::all_of(batch.extend_lens, full)) return {};
  Status status = in(capture(batch, q_len), backend, batch.mode, "capture");
  const auto it = graphs.find({batch.mode, batch.spec.step, *bucket, q_len});
  if (!status.ok() || it == graphs.end()) return status;
  world.clear_outputs();
  world.forget_new_tokens(batch);
  Captured& c = it->second;
  TapStorage storage;
  Graph again;
  status = prepare(tell(batch, storage), c.meta, false, &again);
  if (status.ok()) status = same_launches(c.graph, again);
  if (status.ok()) c.exec.replay(world.stream);
  status.add(finish(batch));
  if (status.ok())
    status = same_bits(batch.mode) ? world.same_outputs() : judge_outputs(batch, c.meta.limits);
  each_layer(batch, [&](const ForwardBatch& b, const LayerIo& io) {
    const LayerKind& kind = model.layers[static_cast<size_t>(io.kind)];
    if (status.ok()) status = world.check_stored(canonical_rows(b, kind, model), io);
  });
  ++counts.replays;
  return in(with_metadata(std::move(status)), backend, batch.mode, "replay");
}

Status Runner::Impl::judge_outputs(const ForwardBatch& batch, const Limits& limits) {
  Status status;
  each_layer(batch, [&](const ForwardBatch& b, const LayerIo& io) {
    const CanonicalCall canonical(b, model, io);
    const PagedAttention& call = canonical.call();
    const Result result{call.out, call.lse.tensor, LseBase::kNatural, backend.info().lse_sink};
    const LayerKind& kind = model.layers[static_cast<size_t>(io.kind)];
    JudgeOptions how{.bounded = true, .parts = backend.merged_parts(b, limits, kind)};
    if (options.data == RunnerData::kSelector) how.bounded = false, how.exact = true;
    const bool merged = std::ranges::any_of(how.parts, [](int32_t n) { return n > 1; });
    const Arithmetic& arithmetic = *find_arithmetic(merged ? "ours_merged" : "ours_portable");
    if (backend.info().whole_draft) how.prefix = "step" + std::to_string(b.spec.step) + ".";
    Judgement j = judge(call, result, arithmetic, how);
    status.add(std::move(j.findings));
    status.add(world.check_stored(canonical.rows(), io));
  });
  return status;
}

Status Runner::Impl::receive(const Step& step) {
  ++counts.steps;
  counts.rows += std::ssize(step.requests);
  world.begin_step(step);
  return in(finish(), backend, step.mode, "batch");
}

Status Runner::Impl::step(const Step& step) {
  const ForwardBatch batch = step.batch();
  Status status = validate(batch);
  if (!status.ok()) return in(std::move(status), backend, batch.mode, "batch");
  if (batch.mode == ForwardMode::kPrebuilt) return receive(step);
  if (backend.info().whole_draft && step.draft_step > 0) {
    ++counts.refused;
    return {};
  }
  TapStorage storage;
  const ForwardBatch told = tell(batch, storage);
  Arena scope = world.arena.scope("eager");
  Meta meta;
  status = backend.bind(scope, told_limits(Limits::exact(told, model)), &meta);
  if (is_refused(status)) {
    ++counts.refused;
    return {};
  }
  ++counts.steps;
  counts.rows += batch.size();
  world.begin_step(step);
  if (status.ok()) status = run_eagerly(batch, told, meta);
  scope.unbind();
  if (status.ok()) status = judge_outputs(batch, meta.limits);
  status = in(with_metadata(std::move(status)), backend, batch.mode, "eager");
  world.keep_outputs();
  // What is wrong already would only be wrong again.
  if (status.ok() && is_captured(batch.mode)) status = run_replay(batch);
  return status;
}

Meta with_layers(Meta meta, const ModelConfig& model) {
  meta.limits.model.layers = model.layers;
  for (Meta& child : meta.children) child = with_layers(std::move(child), model);
  return meta;
}

Runner::Runner(const Backend& backend, const ModelConfig& model, const RunnerOptions& options)
    : impl_(std::make_unique<Impl>(backend, model, options)) {}
Runner::~Runner() = default;

Status Runner::ready() const { return impl_->world.ready(); }
Status Runner::step(const Step& step) {
  if (Status status = ready(); !status.ok()) return status;
  const SerialScope serial;  // steps are small, and whoever has many runs them on all cores
  return impl_->step(step);
}
void Runner::forget_requests() { impl_->world.forget_owners(); }
const RunnerCounts& Runner::counts() const { return impl_->counts; }

}  // namespace shadowgraph
