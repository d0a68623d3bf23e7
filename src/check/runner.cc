#include "check/runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/fill/rows.h"
#include "check/canonical.h"
#include "check/causes.h"
#include "check/graph_storage.h"
#include "check/launch_operands.h"
#include "check/laws/metadata_laws.h"
#include "check/plan_keys.h"
#include "check/worlds/runner_world.h"
#include "core/laws.h"
#include "core/parallel.h"

namespace shadowgraph {
namespace {

/// The backend does not serve such limits: no graph of one row for two halves.
bool is_refused(const Status& bound) {
  const auto found = bound.findings();
  return !found.empty() && found[0].id == "backend.limits";
}

std::string to_text(const GraphKey& key) {
  return std::string(name_of(key.mode)) + " of " + std::to_string(key.rows) + " rows, " +
         std::to_string(key.q_len) + " queries each, step " + std::to_string(key.step);
}

/// A graph's metadata, as an engine keeps it in a dictionary.
struct KeptMetadata {
  GraphKey of;  // the graph that it was captured with
  Meta meta;
};

/// The most queries of a request in graphs of this mode; 0: the model does not say it.
int32_t q_len_of(ForwardMode mode, const ModelConfig& model) {
  if (is_decode_or_idle(mode)) return 1;
  if (is_draft_extend(mode)) return model.num_steps + 1;
  return mode == ForwardMode::kDllmExtend ? 0 : model.num_draft_tokens;
}

std::string scope_of(const GraphKey& key) {
  return std::string(name_of(key.mode)) + "_" + std::to_string(key.rows) + "_" +
         std::to_string(key.q_len) + "_" + std::to_string(key.step);
}

/// A parameter that each layer may have of its own.
struct Parameter {
  const char* name;
  bool (*is_in)(const LayerKind& kind, const LayerValues& values);
};
constexpr Parameter kParameters[] = {
    {"window_left", [](const LayerKind& k, const LayerValues&) { return has_window(k); }},
    {"logits_soft_cap",
     [](const LayerKind& k, const LayerValues&) { return k.params.logits_soft_cap > 0; }},
    {"sinks", [](const LayerKind& k, const LayerValues&) { return !k.params.sinks.empty(); }},
    {"k_scale", [](const LayerKind&, const LayerValues& v) { return v.k_scale != 1; }},
    {"v_scale", [](const LayerKind& k, const LayerValues& v) { return !k.mla && v.v_scale != 1; }},
    {"cross", [](const LayerKind& k, const LayerValues&) { return k.cross; }},
    {"local", [](const LayerKind& k, const LayerValues&) { return k.local; }},
    {"wide_group", [](const LayerKind& k, const LayerValues&) {
       return k.params.num_qo_heads > 8 * k.params.num_kv_heads;
     }}};

struct Captured {
  Limits limits;  // of the bucket
  Graph graph;
  GraphExec exec;
};

}  // namespace

struct Runner::Impl {
  Impl(const Backend& b, const ModelConfig& m, const RunnerOptions& o)
      : clean(b),
        backend(o.tap != nullptr ? o.tap->backend(b) : b),
        options(o),
        world(b, m, o),
        model(world.model()) {}

  Status step(const Step& step);
  /// Whoever is seen in a window has a slot there.
  Status check_windows(const ForwardBatch& batch) const;
  Status pass(const Step& step);
  /// Nothing runs: KV arrives.
  Status receive(const Step& step);

  /// fill, upload, and what the backend launches, recorded. The tap stands between.
  Status prepare(const ForwardBatch& told, Meta& meta, bool capturing, Graph* graph);
  Status upload() {
    world.streams.wait(StreamWait::kUploadsOnForward);
    return world.arena.upload(world.streams.uploads().handle());
  }
  void launch(GraphExec& exec) {
    world.streams.wait(StreamWait::kForwardOnUploads);
    exec.replay(world.streams.forward());
  }
  /// What metadata is bound for.
  Limits told_limits(Limits limits) const {
    if (options.tap != nullptr) options.tap->limits(limits);
    return limits;
  }
  /// The batch as the backend is told it.
  ForwardBatch tell(ForwardBatch batch) const {
    if (options.tap != nullptr) options.tap->batch(batch);
    return batch;
  }
  Status bind(const Arena& scope, const Limits& limits, bool capturing, Meta* meta) const {
    Status status = backend.bind(scope, told_limits(limits), meta);
    if (status.ok() && options.tap != nullptr) options.tap->bound(*meta, capturing);
    return status;
  }
  /// With metadata that is bound for this batch.
  Status run_eagerly(const ForwardBatch& batch, const ForwardBatch& told, Meta& meta);
  Status run_replay(const ForwardBatch& batch);
  /// All buckets of a mode, the largest first.
  Status capture(const ForwardBatch& batch, int32_t q_len);
  Status capture(const ForwardBatch& dummy, const GraphKey& key, const Limits& limits);
  /// The graphs of a mode that are not captured yet, the largest first.
  std::vector<std::pair<GraphKey, Limits>> uncaptured(ForwardMode mode, int32_t step,
                                                      int32_t q_len) const;
  /// Places for the buffers of the graphs that a mode captures next.
  Status share(std::span<const std::pair<GraphKey, Limits>> next);
  GraphKey metadata_key(GraphKey key, bool capturing) const {
    if (options.tap != nullptr) options.tap->metadata_key(key, capturing);
    return key;
  }
  /// Runs what is enqueued and collects what was seen.
  Status finish();
  /// And judges the metadata that was filled from this batch, within these limits.
  Status finish(const ForwardBatch& batch, const Limits& limits);
  /// Findings of metadata, and then those that were seen in the run.
  Status with_metadata(Status seen) {
    Status all = std::exchange(metadata, {});
    all.add(std::move(seen));
    return all;
  }
  /// Adds what a step's layers have to the counts.
  void count_parameters(const ForwardBatch& batch, const Limits& limits);
  /// The findings that count: all, or only those of outputs if the options say so.
  Status kept(Status seen) const;
  Status judge_replay(const ForwardBatch& batch, const Limits& limits);
  /// A replay has the bits of the eager step.
  bool same_bits(ForwardMode mode) const {
    const BackendInfo& info = clean.info();
    const bool fixed = info.fixed_splits && (model.split.fixed_size != 0 || model.split.off);
    return fixed || options.data == RunnerData::kSelector ||
           std::ranges::find(info.batch_splits, mode) == info.batch_splits.end();
  }

  const Backend& clean;
  const Backend& backend;  // or what stands in its place
  const RunnerOptions options;
  RunnerWorld world;
  const ModelConfig& model;  // the world's
  std::map<GraphKey, Captured> graphs;
  std::map<GraphKey, KeptMetadata> kept_metadata;
  std::optional<Meta> filled;  // what prepare() recorded from
  Status metadata;             // laws that it breaks
  RunnerCounts counts;
};

namespace {

/// Sizes that metadata has to serve, whatever it was bound for.
void set_sizes(const Limits& from, Limits* to) {
  to->rows = from.rows, to->tokens = from.tokens;
  to->max_q_len = from.max_q_len, to->max_kv_len = from.max_kv_len;
  to->sum_kv_lens = from.sum_kv_lens;
}

bool is_of_outputs(const Finding& f) { return f.id.starts_with("num."); }

/// No launch runs any more.
bool has_crashed(const Status& seen) {
  return std::ranges::any_of(seen.findings(),
                             [](const Finding& f) { return f.id == "graph.device_error"; });
}

/// Says where findings were seen, causes first.
Status in(Status status, const Backend& backend, ForwardMode mode, const char* phase) {
  causes_first(&status);
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
  status.add(upload());
  const std::vector<LayerIo> layers = world.layers(meta.limits.tokens);
  const StepIo io{layers, world.req_to_token(), world.full_to_swa()};
  Meta baked = options.tap != nullptr ? with_layers(meta, model) : meta;
  const Meta declared = options.tap != nullptr ? baked : Meta{};
  if (options.tap != nullptr) options.tap->baked(baked, capturing);
  status.add(
      record_step(world.streams.forward(), backend, baked, io, options.tap, capturing, graph));
  if (status.ok() && !options.outputs_alone) {
    metadata.add(judge_plan_keys(*graph, model, layers));
    metadata.add(judge_launches(*graph, options.tap != nullptr ? declared : meta, model, io));
  }
  if (options.tap != nullptr) status.add(options.tap->take_refused());
  filled = std::move(baked);
  return status;
}

Status Runner::Impl::finish() {
  world.streams.settle();
  Status status = world.streams.take_status();
  status.add(world.device->take_findings());
  return status;
}

Status Runner::Impl::finish(const ForwardBatch& batch, const Limits& limits) {
  Status seen = finish();
  if (options.outputs) options.outputs(world.layers(Limits::exact(batch, model).tokens));
  if (options.outputs_alone) {
    filled.reset();
    return has_crashed(seen) ? std::move(seen) : Status{};
  }
  if (filled) set_sizes(limits, &filled->limits);
  if (filled) metadata.add(judge_metadata(backend, batch, model, *filled, seen.ok()));
  filled.reset();
  return seen;
}

Status Runner::Impl::run_eagerly(const ForwardBatch& batch, const ForwardBatch& told, Meta& meta) {
  Graph graph;
  GraphExec exec;
  Status status = prepare(told, meta, false, &graph);
  if (status.ok()) status = GraphExec::instantiate(graph, &exec);
  if (status.ok()) launch(exec);
  status.add(finish(batch, Limits::exact(batch, model)));
  if (options.tap != nullptr) options.tap->ran(meta);
  return status;
}

std::vector<std::pair<GraphKey, Limits>> Runner::Impl::uncaptured(ForwardMode mode, int32_t step,
                                                                  int32_t q_len) const {
  std::vector<std::pair<GraphKey, Limits>> largest_first;
  for (size_t i = options.buckets.size(); i-- > 0;) {
    const GraphKey key{mode, step, options.buckets[i], q_len};
    const Limits limits = Limits::bucket(mode, key.rows, q_len, model, step);
    if (!graphs.contains(key) && limits.tokens <= options.max_tokens)
      largest_first.emplace_back(key, limits);
  }
  return largest_first;
}

Status Runner::Impl::share(std::span<const std::pair<GraphKey, Limits>> next) {
  const auto planned = [](std::span<const std::pair<GraphKey, Limits>> graphs_of,
                          std::vector<PlannedGraph>* to) {
    for (const auto& [key, limits] : graphs_of) to->push_back({scope_of(key), limits});
  };
  std::vector<PlannedGraph> own, others;
  planned(next, &own);
  const GraphKey& first = next.front().first;
  for (const ForwardMode mode : clean.info().modes) {
    const bool steps = mode == ForwardMode::kDraftDecode || first.step == 0;
    const int32_t q_len = q_len_of(mode, model);
    if (mode != first.mode && is_captured(mode) && steps && q_len > 0)
      planned(uncaptured(mode, first.step, q_len), &others);
  }
  return share_storage(world.arena, own, others,
                       [this](const Arena& scope, const Limits& limits, Meta* meta) {
                         return backend.bind(scope, told_limits(limits), meta);
                       });
}

Status Runner::Impl::capture(const ForwardBatch& batch, int32_t q_len) {
  const auto next = uncaptured(batch.mode, batch.spec.step, q_len);
  Status status = next.empty() ? Status{} : share(next);
  // All rows of the dummy are padding.
  const ForwardBatch dummy = batch.slice(0, 0);
  for (const auto& [key, limits] : next)
    if (status.ok()) status = capture(dummy, key, limits);
  return status;
}

Status Runner::Impl::capture(const ForwardBatch& dummy, const GraphKey& key, const Limits& limits) {
  Captured c{.limits = limits, .graph = {}, .exec = {}};
  Meta meta;
  Status status = bind(world.arena.scope(scope_of(key)), limits, true, &meta);
  if (is_refused(status)) return {};
  if (status.ok()) status.add(prepare(dummy, meta, true, &c.graph));
  if (status.ok()) status.add(GraphExec::instantiate(c.graph, &c.exec));
  if (status.ok()) launch(c.exec);
  status.add(finish(dummy, limits));
  if (options.tap != nullptr) options.tap->ran(meta);
  status = with_metadata(std::move(status));
  if (!status.ok()) return status;
  ++counts.captures;
  graphs.emplace(key, std::move(c));
  kept_metadata.insert_or_assign(metadata_key(key, true), KeptMetadata{key, std::move(meta)});
  return {};
}

Status Runner::Impl::run_replay(const ForwardBatch& batch) {
  const auto bucket = std::ranges::lower_bound(options.buckets, static_cast<int32_t>(batch.size()));
  if (bucket == options.buckets.end()) return {};
  // As wide as any batch of the mode may be.
  const bool ragged_mode = is_draft_extend(batch.mode, DraftExtendV2::kIncluded);
  const int32_t q_len =
      ragged_mode ? q_len_of(batch.mode, model) : Limits::exact(batch, model).max_q_len;
  const auto full = [&](int32_t of_request) { return of_request == q_len; };
  const bool ragged = clean.info().ragged_graphs && model.dcp_size == 1;
  if (!ragged && !std::ranges::all_of(batch.extend_lens, full)) return {};
  Status status = in(kept(capture(batch, q_len)), clean, batch.mode, "capture");
  const GraphKey key{batch.mode, batch.spec.step, *bucket, q_len};
  const auto it = graphs.find(key);
  if (!status.ok() || it == graphs.end()) return status;
  world.rewind();
  Captured& c = it->second;
  const auto kept_one = kept_metadata.find(metadata_key(key, false));
  const bool missing = kept_one == kept_metadata.end();
  judged("graph.metadata");
  if (missing || (kept_one->second.of != key && !options.outputs_alone)) {
    status.add(make_finding("graph.metadata", at("metadata"), "that of " + to_text(key),
                            missing ? "none" : "that of " + to_text(kept_one->second.of)));
    return in(kept(std::move(status)), clean, batch.mode, "replay");
  }
  Meta& meta = kept_one->second.meta;
  Graph again;
  if (options.plans_ahead) {
    status = backend.fill(batch.slice(0, 0), meta);
    if (status.ok()) status = upload();
  }
  const PlaceOf place_of = [this](const void* p) { return world.arena.place_of(p); };
  if (status.ok()) status = prepare(tell(batch), meta, false, &again);
  if (status.ok() && !options.outputs_alone) status = same_launches(c.graph, again, place_of);
  if (status.ok()) launch(c.exec);
  status.add(finish(batch, c.limits));
  if (options.tap != nullptr) options.tap->ran(meta);
  if (status.ok()) status = judge_replay(batch, meta.limits);
  if (status.ok()) status = world.judge_alone(batch);
  if (status.ok()) status = world.check_stored(batch);
  ++counts.replays;
  return in(kept(with_metadata(std::move(status))), clean, batch.mode, "replay");
}

void Runner::Impl::count_parameters(const ForwardBatch& batch, const Limits& limits) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerKind& kind = model.layers[i];
    if (!is_dense_attention(kind)) continue;
    const std::vector<int32_t> parts = clean.merged_parts(batch, limits, kind);
    const bool merged = std::ranges::any_of(parts, [](int32_t n) { return n > 1; });
    for (const Parameter& p : kParameters)
      if (p.is_in(kind, options.values_of(i)))
        ++counts.parameters[p.name + std::string(merged ? " merged" : " whole")];
  }
}

Status Runner::Impl::kept(Status seen) const {
  if (!options.outputs_alone) return seen;
  Status outputs;
  for (Finding& f : seen.findings())
    if (is_of_outputs(f)) outputs.add(std::move(f));
  return outputs;
}

Status Runner::Impl::judge_replay(const ForwardBatch& batch, const Limits& limits) {
  if (!same_bits(batch.mode)) return world.judge_outputs(batch, limits);
  Status other_bits = world.same_outputs();
  if (other_bits.ok() || !options.diagnose) return other_bits;
  Status wrong = world.judge_outputs(batch, limits);
  const auto named =
      std::ranges::find_if(wrong.findings(), [](const Finding& f) { return !f.diagnosis.empty(); });
  for (Finding& f : other_bits.findings())
    if (named != wrong.findings().end()) f.diagnosis = named->diagnosis;
  return other_bits;
}

Status Runner::Impl::check_windows(const ForwardBatch& batch) const {
  Status status;
  for (const LayerKind& kind : model.layers) {
    if (!in_window_pool(model, kind) || batch.mode == ForwardMode::kPrebuilt) continue;
    const CanonicalRows rows = canonical_rows(batch, kind, model);
    for (size_t r = 0; r < rows.keys.size(); ++r) {
      const int32_t q_len = rows.cu_seqlens_q[r + 1] - rows.cu_seqlens_q[r];
      // Its first query stands behind all keys but the new ones.
      const int32_t first = std::max(0, rows.kv_lens[r] - q_len - kind.params.window_left);
      for (int32_t k = first; k < rows.kv_lens[r] && q_len > 0; ++k) {
        if (rows.keys[r][static_cast<size_t>(k)] >= model.page_size) continue;
        status.add(make_finding("pool.window", at("full_to_swa", static_cast<int64_t>(r), k),
                                "a slot of the window pool: the key is seen", "evicted"));
        break;
      }
    }
  }
  return status;
}

Status Runner::Impl::receive(const Step& step) {
  ++counts.steps;
  counts.rows += std::ssize(step.requests);
  world.begin_step(step);
  Status status = world.take_begun();
  status.add(finish());
  return in(kept(std::move(status)), clean, step.mode, "batch");
}

Status Runner::Impl::pass(const Step& step) {
  Status status = world.pass(step);
  Status seen = finish();
  status.add(std::move(seen));
  return in(kept(std::move(status)), clean, step.mode, "batch");
}

Status Runner::Impl::step(const Step& step) {
  const ForwardBatch batch = step.batch();
  Status status = validate(batch);
  if (!status.ok()) return in(std::move(status), clean, batch.mode, "batch");
  status = check_windows(batch);
  if (!status.ok() && options.outputs_alone) return {};  // what is asked is wrong itself
  if (!status.ok()) return in(std::move(status), clean, batch.mode, "batch");
  if (batch.mode == ForwardMode::kPrebuilt) return receive(step);
  if (clean.info().whole_draft && step.draft_step > 0) {
    ++counts.refused;
    return {};
  }
  const ForwardBatch told = tell(batch);
  Arena scope = world.arena.scope("eager");
  Meta meta;
  status = bind(scope, Limits::exact(told, model), false, &meta);
  if (is_refused(status)) {
    ++counts.refused;
    return pass(step);
  }
  ++counts.steps;
  counts.rows += batch.size();
  world.begin_step(step);
  // The step runs on wrong contents, too: its outputs are told behind their cause.
  Status seen = world.take_begun();
  if (status.ok()) status = run_eagerly(batch, told, meta);
  scope.unbind();
  const bool ran = status.ok();
  if (ran) count_parameters(batch, meta.limits);
  if (ran) status = world.judge_outputs(batch, meta.limits);
  if (ran) status.add(world.judge_alone(batch));
  seen.add(with_metadata(std::move(status)));
  status = in(kept(std::move(seen)), clean, batch.mode, "eager");
  world.keep_outputs();
  // What is wrong already would only be wrong again.
  if (ran && status.ok() && is_captured(batch.mode)) status = run_replay(batch);
  return status;
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
Status Runner::pass(const Step& step) {
  if (Status status = ready(); !status.ok()) return status;
  return impl_->pass(step);
}
void Runner::begin_history(uint64_t number) { impl_->world.begin_history(number); }
const RunnerCounts& Runner::counts() const { return impl_->counts; }

}  // namespace shadowgraph
