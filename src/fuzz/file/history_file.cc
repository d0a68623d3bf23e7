#include "fuzz/file/history_file.h"

#include <algorithm>
#include <utility>

#include "backends/fill/rows.h"
#include "core/laws.h"
#include "fuzz/file/history_fields.h"
#include "fuzz/file/json_fields.h"
#include "fuzz/history/history_words.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "runtime/scheduler.h"
#include "shadowgraph/engine/buffer_info.h"  // GCC 11 asks for the whole type
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/version.h"

namespace shadowgraph {

inline constexpr std::string_view kLensNames[] = {"full", "prefix"};
inline constexpr std::string_view kMoveNames[] = {"fresh", "copy", "commit", "keep", "take"};

template <>
struct EnumWords<RunnerData> : ListedWords<RunnerData, kRunnerDataNames> {};
template <>
struct EnumWords<SeqLensKind> : ListedWords<SeqLensKind, kLensNames> {};
template <>
struct EnumWords<RecurrentFamily> : ListedWords<RecurrentFamily, kFamilyNames> {};
template <>
struct EnumWords<V4Pools> : ListedWords<V4Pools, kV4PoolNames> {};
template <>
struct EnumWords<StateMove::Kind> : ListedWords<StateMove::Kind, kMoveNames> {};
template <>
struct EnumWords<ForwardMode> {
  static std::string_view of(ForwardMode m) { return name_of(m); }
  static bool find(std::string_view word, ForwardMode* m) {
    for (int i = 0; i < kNumForwardModes; ++i) {
      if (name_of(static_cast<ForwardMode>(i)) != word) continue;
      *m = static_cast<ForwardMode>(i);
      return true;
    }
    return false;
  }
};

namespace {

constexpr std::string_view kSchema = "shadowgraph.case/1";
constexpr size_t kMaxDepth = 8;

/// What run_history would run of it, without pools to judge.
bool serves(const Backend& backend, ForwardMode mode) {
  return mode == ForwardMode::kPrebuilt || has_mode(backend.info(), mode);
}

/// What a run relies on: sizes that are sizes, indices that are in their tables.
class CaseCheck : CaseRanges {
 public:
  CaseCheck(const HistoryCase& x, const std::string& file)
      : CaseRanges(file), m_(x.history.model), o_(x.history.runner), x_(x) {}

  Status run() {
    check_model();
    check_runner();
    for (size_t i = 0; i < x_.steps.size() && status_.ok(); ++i)
      check_step(x_.steps[i], "steps[" + std::to_string(i) + "].");
    return take();
  }

 private:
  void check_model() {
    listed("model.", m_);
    if ((m_.page_size & (m_.page_size - 1)) != 0)
      fail("model.page_size", "a power of two", m_.page_size);
    in("model.dcp_rank", 0, m_.dcp_rank, std::max(0, m_.dcp_size - 1));
    in("model.layers", 1, std::ssize(m_.layers), 8);
    for (const LayerKind& k : m_.layers)
      std::visit([&](const auto& layer) { check_layer(k, layer); }, k.math);
  }
  void check_runner() {
    listed("runner.", o_);
    in("runner.slots", m_.page_size, o_.slots, 1 << 16);
    in("runner.swa_slots", m_.swa_pool ? m_.page_size : 0, o_.swa_slots, 1 << 16);
    if (status_.ok() && (o_.slots % m_.page_size != 0 || o_.swa_slots % m_.page_size != 0))
      fail("runner.slots", "whole pages", o_.slots);
    in("runner.buckets", 0, std::ssize(o_.buckets), 8);
    all_in("runner.buckets", 1, o_.buckets, 64);
    if (!std::ranges::is_sorted(o_.buckets)) fail("runner.buckets", "ascending sizes", 0);
    if (!is_cache_dtype(o_.kv_dtype) || o_.kv_dtype == DType::kI8)
      fail("runner.kv_dtype", "a type of the pools", static_cast<int64_t>(o_.kv_dtype));
    in("runner.values", 0, std::ssize(o_.values), std::ssize(m_.layers));
    for (const LayerValues& l : o_.values)
      if (!(l.k_scale > 0) || !(l.v_scale > 0)) fail("runner.values", "scales > 0", 0);
  }

  void check_layer(const LayerKind& k, const DenseAttention& /*layer*/) {
    const AttentionParams& p = k.params;
    in("layers.num_kv_heads", 1, p.num_kv_heads, 64);
    in("layers.num_qo_heads", 1, p.num_qo_heads, 256);
    in("layers.head_dim_qk", 1, p.head_dim_qk, 256);
    in("layers.head_dim_vo", 1, p.head_dim_vo, 256);
    if (status_.ok() && p.num_qo_heads % p.num_kv_heads != 0)
      fail("layers.num_qo_heads", "whole groups", p.num_qo_heads);
    in("layers.window_left", -1, p.window_left, 1 << 20);
    in("layers.window_right", -1, p.window_right, -1);
    if (k.local && m_.attention_chunk < 1) fail("layers.local", "an attention_chunk", 1);
    if (k.mla && p.head_dim_vo > p.head_dim_qk)
      fail("layers.head_dim_vo", "part of the latent", p.head_dim_vo);
    if (!(p.sm_scale > 0)) fail("layers.sm_scale", "> 0", 0);
  }

  void check_layer(const LayerKind& /*kind*/, const RecurrentLayer& l) {
    listed("layers.recurrent.", l);
    if (l.conv_width != 0) in("layers.recurrent.conv_width", 2, l.conv_width, 8);
    if (status_.ok() && l.num_v_heads % l.num_k_heads != 0)
      fail("layers.recurrent.num_v_heads", "whole groups", l.num_v_heads);
    in("runner.state_slots", 2, o_.state_slots, 1 << 12);
  }

  void check_layer(const LayerKind& k, const SparseLayer& l) {
    if (k.cross) fail("layers.cross", "no, of a sparse layer", 1);
    listed("layers.sparse.", l);
    in("layers.sparse.head_dim_v", 1, l.head_dim_v, l.head_dim);
    if (!(l.sm_scale > 0)) fail("layers.sparse.sm_scale", "> 0", 0);
    const bool rows = l.latents == LatentLayout::kRows;
    if (rows ? l.latent_dtype != DType::kF32 && l.latent_dtype != DType::kF16 &&
                   l.latent_dtype != DType::kBF16
             : l.latents != LatentLayout::kDsa || l.head_dim != kDsaCodes + kRopeDim)
      fail("layers.sparse.latents", "rows of f32, f16 or bf16, or DSA's",
           static_cast<int64_t>(l.latents));
    if (m_.page_size != kIndexPageTokens) fail("model.page_size", "64", m_.page_size);
    in("model.dcp_size", 1, m_.dcp_size, 1);
    if (m_.swa_pool) fail("model.swa_pool", "no window pool", 1);
  }

  void check_layer(const LayerKind& k, const V4Layer& l) {
    if (k.cross) fail("layers.cross", "no, of such a layer", 1);
    listed("layers.v4.", l);
    in("layers.v4.rope_dim", 0, l.rope_dim, l.head_dim);
    const bool unified = l.pools == V4Pools::kUnified;
    in("layers.v4.rows", unified ? o_.pool_rows : 0, l.rows, 1024);
    if (l.ratio != 0) in("layers.v4.ratio", 2, l.ratio, std::min(m_.page_size, 128));
    if (!(l.sm_scale > 0)) fail("layers.v4.sm_scale", "> 0", 0);
    if (!(l.eps > 0)) fail("layers.v4.eps", "> 0", 0);
  }

  /// Rows of rings, and what is scored and rotated, end with the pools and the context.
  void check_v4_step(const Step& s, const std::string& at) {
    if (std::ranges::none_of(m_.layers, [](const LayerKind& k) { return v4_of(k) != nullptr; }))
      return;
    const int64_t rows = s.width > 0 ? std::ssize(s.req_to_token) / s.width : 0;
    in(at + "req_to_token", 0, rows, o_.pool_rows);
    const ForwardBatch batch = s.batch();
    for (int64_t i = 0; i < batch.size(); ++i)
      in(at + "seq_lens", 0, batch.extent(i).kv_len,
         m_.max_context_len + std::max(m_.num_draft_tokens, m_.num_steps));
  }

  /// Slots that a batch has beside its requests, and what the host moves, are in the pools.
  void check_states(const Step& s, const std::string& at) {
    const int64_t slots = std::max<int64_t>(o_.state_slots, 1);
    all_in(at + "state_slots", -1, s.state_slots, slots - 1);
    all_in(at + "track_slots", -1, s.track_slots, slots - 1);
    for (const StateMove& m : s.state_moves) {
      in(at + "state_moves.slot", 0, m.slot, slots - 1);
      const bool commits = m.kind == StateMove::Kind::kCommit;
      in(at + "state_moves.from", 0, m.from, commits ? o_.draft_rows - 1 : slots - 1);
      in(at + "state_moves.step", 0, m.step, std::max(m_.num_draft_tokens - 1, 0));
    }
    if (!is_target_verify(s.mode) || std::ranges::none_of(m_.layers, recurrent_of)) return;
    // What a verify leaves has a row for each request, and a step for each of its tokens.
    in(at + "requests", 0, std::ssize(s.seq_lens), o_.draft_rows);
    in(at + "draft.num_draft_tokens", m_.num_draft_tokens, s.draft.num_draft_tokens,
       m_.num_draft_tokens);
  }

  /// Chains are said of every slot of the step, or of none.
  void check_chains(const Step& s, const std::string& at) {
    const StepChains& c = s.chains;
    if (c.prefix_indptr.empty()) return;
    const bool rises = c.prefix_indptr.front() == 0 && std::ranges::is_sorted(c.prefix_indptr);
    if (!rises || c.prefix_indptr.size() != s.requests.size() + 1 ||
        c.prefix_indptr.back() != std::ssize(c.prefix))
      return fail(at + "chains.prefix_indptr", "offsets into prefix", c.prefix_indptr.back());
    in(at + "chains.fresh", std::ssize(s.out_cache_loc), std::ssize(c.fresh),
       std::ssize(s.out_cache_loc));
    const ForwardBatch batch = s.batch();
    int64_t encoders = 0;
    for (int64_t i = 0; i < batch.size(); ++i) {
      encoders += batch.encoder_len(i);
      const int32_t stored =
          batch.extent(i).prefix_len - (s.mode == ForwardMode::kDraftDecode ? s.draft_step : 0);
      in(at + "chains.prefix", stored, std::ssize(c.prefix_of(static_cast<size_t>(i))), stored);
    }
    in(at + "chains.encoder", encoders, std::ssize(c.encoder), encoders);
  }

  void check_step(const Step& s, const std::string& at) {
    const int64_t slots = o_.slots * m_.dcp_size;
    if (s.requests.size() != s.seq_lens.size())
      fail(at + "requests", std::to_string(s.seq_lens.size()) + " requests",
           std::ssize(s.requests));
    in(at + "width", 0, s.width, 8192);
    if (s.width > 0 && std::ssize(s.req_to_token) % s.width != 0)
      fail(at + "req_to_token", "whole rows", std::ssize(s.req_to_token));
    if (!s.seq_lens.empty() && (s.width == 0 || s.req_pool_indices.size() != s.seq_lens.size()))
      fail(at + "req_pool_indices", "a row of req_to_token for each request",
           std::ssize(s.req_pool_indices));
    all_in(at + "req_to_token", 0, s.req_to_token, slots - 1);
    all_in(at + "out_cache_loc", 0, s.out_cache_loc, slots - 1);
    all_in(at + "encoder_out_cache_loc", 0, s.encoder_out_cache_loc, slots - 1);
    all_in(at + "full_to_swa", -1, s.full_to_swa, o_.swa_slots - 1);
    if (m_.swa_pool) in(at + "full_to_swa", slots + 1, std::ssize(s.full_to_swa), slots + 1);
    for (const SlotCopy& c : s.copies) in(at + "copies", 0, std::min(c.from, c.to), slots - 1);
    for (const SlotCopy& c : s.copies) in(at + "copies", 0, std::max(c.from, c.to), slots - 1);
    if (!s.copies.empty() && m_.dcp_size > 1) fail(at + "copies", "none on ranks", 1);
    check_states(s, at);
    in(at + "draft.topk", 1, s.draft.topk, 16);
    in(at + "draft_step", 0, s.draft_step, 16);
    if (m_.in_graph_tables)
      in(at + "req_to_token", o_.pool_rows * o_.pool_width, std::ssize(s.req_to_token),
         o_.pool_rows * o_.pool_width);
    if (!status_.ok()) return;
    Status legal = validate(s.batch());
    for (Finding& f : legal.findings()) f.where.field.insert(0, at);
    status_.add(std::move(legal));
    if (status_.ok()) check_chains(s, at);
    if (status_.ok()) check_v4_step(s, at);
    const bool runs = s.mode != ForwardMode::kPrebuilt && serves(*x_.history.backend, s.mode);
    if (status_.ok() && runs)
      in(at + "tokens", 0, Limits::exact(s.batch(), m_).tokens, o_.max_tokens);
  }

  const ModelConfig& m_;
  const RunnerOptions& o_;
  const HistoryCase& x_;
};

}  // namespace

HistoryCase case_of(std::span<const uint32_t> list, std::span<const Backend* const> backends,
                    const MakeTap& make_tap) {
  HistoryCase x;
  x.version = SHADOWGRAPH_VERSION;
  Choices choices(list);
  x.history = generate_history(choices, backends);
  HistoryResult result = run_history(x.history, choices, make_tap, &x.steps);
  const auto found = std::as_const(result.findings).findings();
  if (!found.empty()) x.law = found[0].id, x.got = found[0].to_string();
  x.choices = choices.made();
  return x;
}

std::string to_json(const HistoryCase& x) {
  HistoryCase copy = x;
  CaseWriter w;
  w.out = "{\n  \"schema\": " + json_quoted(kSchema) +
          ",\n  \"version\": " + json_quoted(x.version) +
          ",\n  \"backend\": " + json_quoted(x.history.backend->info().name) +
          ",\n  \"law\": " + json_quoted(x.law) + ",\n  \"got\": " + json_quoted(x.got) + ",\n  ";
  visit_fields(w, copy);
  return w.out + "\n}\n";
}

Status read_case(const std::string& path, HistoryCase* out) {
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  if (!status.ok()) return status;
  return parse_case({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, out);
}

Status parse_case(std::string_view text, const std::string& path, HistoryCase* out) {
  JsonDocument json;
  Status status = parse_strict_json(text, "case.field", path, 0, &json, kMaxDepth);
  if (!status.ok()) return status;
  HistoryCase x;
  std::string backend, schema;
  CaseFileReader reader(json.root, path, "", &status);
  reader("schema", schema);
  reader("version", x.version);
  reader("backend", backend);
  reader("law", x.law);
  reader("got", x.got);
  visit_fields(reader, x);
  reader.finish();
  if (schema != kSchema)
    status.add(file_finding("case.field", path, "schema", std::string(kSchema), schema));
  x.history.backend = find_backend(backend);
  if (x.history.backend == nullptr)
    status.add(file_finding("case.field", path, "backend", "one of `list backends`", backend));
  if (status.ok()) status = CaseCheck(x, path).run();
  if (status.ok()) *out = std::move(x);
  return status;
}

Status run_case(const HistoryCase& x, Tap* tap,
                const std::function<void(size_t step, const Status&)>& played) {
  RunnerOptions options = x.history.runner;
  options.tap = tap;
  Runner runner(*x.history.backend, x.history.model, options);
  Status status = runner.ready();
  for (size_t i = 0; i < x.steps.size() && status.ok(); ++i) {
    if (!serves(*x.history.backend, x.steps[i].mode)) {
      status = runner.pass(x.steps[i]);
      continue;
    }
    status = runner.step(x.steps[i]);
    if (played) played(i, status);
  }
  return status;
}

}  // namespace shadowgraph
