#include "check/traces/trace_batch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "check/traces/trace_names.h"
#include "core/laws.h"
#include "core/nearest.h"

namespace shadowgraph {
namespace {

constexpr double kMaxRows = 1 << 24;           // trees and all: what is judged must be built
constexpr size_t kMaxSlots = size_t{1} << 26;  // of a pool that is told in pages

template <class T>
void cut(std::vector<T>& values, size_t size) {
  if (values.size() > size) values.resize(size);
}

Finding refusal(std::string field, std::string expected, std::string got) {
  return make_finding("io.line", at(std::move(field)), std::move(expected), std::move(got));
}

/// Pages of no pool lead to slots of none.
std::vector<int32_t> slots_of_pages(const std::vector<int32_t>& pages, int32_t page_size) {
  if (page_size == 1) return pages;
  std::vector<int32_t> slots;
  slots.reserve(pages.size() * static_cast<size_t>(page_size));
  for (const int32_t page : pages) {
    const bool fits = page >= 0 && page < std::numeric_limits<int32_t>::max() / page_size;
    for (int32_t offset = 0; offset < page_size; ++offset)
      slots.push_back(fits ? page * page_size + offset : -1);
  }
  return slots;
}

void check_word(const char* field, const std::string& word, const std::vector<std::string>& words,
                Status* status) {
  if (std::ranges::find(words, word) != words.end()) return;
  status->add(refusal(field, one_of(words), word + meant_by(word, words)));
}

/// An engine chooses freely; what a line does not say, its plans do.
bool is_ragged(const TraceLine& line) {
  const auto said = line.expect.find("use_ragged");
  if (said != line.expect.end() && said->second.data.size() == 1) return said->second.data[0] != 0;
  return std::ranges::any_of(line.calls,
                             [](const TraceCall& call) { return call.name.starts_with("ragged"); });
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "one number";
  std::string s;
  for (const int64_t size : shape) s += (s.empty() ? "" : ", ") + std::to_string(size);
  return '[' + s + ']';
}

Status check_words(const TraceLine& line) {
  Status status;
  std::vector<std::string> modes;
  for (const TraceMode& mode : kTraceModes) modes.emplace_back(mode.name);
  check_word("mode", line.mode, modes, &status);
  check_word("phase", line.phase, {"eager", "capture", "replay", "replay_in_graph"}, &status);
  const std::string& kind = line.config.seq_lens_semantics;
  if (!kind.empty())
    check_word("config.seq_lens_semantics", kind, {"full", "prefix_only"}, &status);
  std::vector<std::string> engines;
  for (const Engine& engine : kEngines) engines.emplace_back(engine.name);
  if (!line.config.engine.empty())
    check_word("config.engine", line.config.engine, engines, &status);
  return status;
}

Engine engine_of(const TraceLine& line, const BackendInfo& backend) {
  const auto* const known = std::ranges::find(kEngines, line.config.engine, &Engine::name);
  Engine engine = known == std::end(kEngines) ? *backend.engine : *known;
  for (const auto& [key, value] : line.config.conventions) {
    if (key == "padding_len") engine.padding_len = value.value_or(0);
    if (key == "max_padding_len") engine.max_padding_len = value;
    if (key == "padding_page") engine.padding_page = value;
    if (key == "padding_slot") engine.padding_slot = value;
    if (key == "reserved_page") engine.reserved_page = value;
    if (key == "window_columns") engine.window_columns = value != 0;
    if (key == "inclusive_ends") engine.inclusive_ends = value != 0;
  }
  return engine;
}

std::string_view why_unread(const TraceLine& line, std::string_view input) {
  const ForwardMode mode = find_trace_mode(line.mode)->mode;
  const bool verifies = is_target_verify(mode);
  const bool extends = !is_decode(mode) && !verifies;
  const auto is = [&](std::initializer_list<std::string_view> keys) {
    return std::ranges::find(keys, input) != keys.end();
  };
  if (is({"extend_seq_lens", "num_accept_tokens", "extend_prefix_lens"}) && !extends)
    return "only extends need it; in this mode the mode and seq_lens say it";
  if (input == "num_accept_tokens" && line.input.contains("extend_seq_lens"))
    return "extend_seq_lens is there, too, and is taken";
  if (input == "num_tokens" && (!extends || line.phase == "eager"))
    return "it is the width of an extend's graph, and this step runs in none";
  if (input == "custom_mask" && !verifies) return "only a target verify is given a tree's mask";
  if (line.phase != "capture") return "";
  if (input == "seq_lens") return "a capture runs on padding: only the number of rows counts";
  if (is({"req_pool_indices", "req_to_token", "full_to_swa", "extend_seq_lens", "num_accept_tokens",
          "extend_prefix_lens", "encoder_lens"}))
    return "a capture runs on padding, and has no request";
  return "";
}

void TraceBatch::refuse(std::string field, std::string expected, std::string got) {
  refused.add(refusal(std::move(field), std::move(expected), std::move(got)));
}

/// False: not there. What is there but no vector of T is refused.
template <class T>
bool TraceBatch::read(const TraceLine& line, const char* name, std::vector<T>* to) {
  const auto at = line.input.find(name);
  if (at == line.input.end()) return false;
  if (!at->second.unreadable.empty()) {
    unreadable_ = true;  // whoever checks the line's keys says it
    return false;
  }
  const RecordedField& field = at->second;
  const std::string key = "input." + std::string(name);
  const size_t rank = key == "input.req_to_token" ? 2 : 1;
  // Pairs may have an axis for requests: flat, their elements are the same.
  const bool flat = key == "input.custom_mask" && !field.shape.empty();
  if (field.shape.size() != rank && !flat) {
    const bool of_tokens = key == "input.out_cache_loc" || key == "input.positions";
    refuse(key,
           rank == 2   ? "[pool rows, width]"
           : of_tokens ? "a list [tokens]"
                       : "a list",
           shape_text(field.shape));
    return false;
  }
  if (field.cols != field.width()) {
    refuse(key, "a whole array", "a part of it");
    return false;
  }
  to->reserve(field.data.size());
  for (const int64_t v : field.data) {
    if (!std::in_range<T>(v)) {
      refuse(key, "at most " + std::to_string(std::numeric_limits<T>::max()), std::to_string(v));
      return false;
    }
    to->push_back(static_cast<T>(v));
  }
  return true;
}

std::optional<std::vector<int32_t>> TraceBatch::copy(const TraceLine& line, const char* name) {
  std::vector<int32_t> values;
  return read(line, name, &values) ? std::optional(std::move(values)) : std::nullopt;
}

template <class T>
bool TraceBatch::need(const TraceLine& line, const char* name, std::vector<T>* to) {
  if (read(line, name, to)) return true;
  if (!line.input.contains(name)) refuse("input." + std::string(name), "there", "missing");
  return false;
}

/// nullopt: not there. What is there but no number from 0 to most is refused.
std::optional<int64_t> TraceBatch::number(const TraceLine& line, const char* name, int64_t most) {
  const auto at = line.input.find(name);
  if (at == line.input.end() || !at->second.unreadable.empty()) return {};
  const std::vector<int64_t>& data = at->second.data;
  const bool one = at->second.shape.empty() && data.size() == 1;
  if (one && data[0] >= 0 && data[0] <= most) return data[0];
  std::string got = "a list of " + std::to_string(data.size());
  if (one) got = std::to_string(data[0]);
  const bool bounded = most < std::numeric_limits<int64_t>::max();
  refuse("input." + std::string(name),
         "an integer from 0" + (bounded ? " to " + std::to_string(most) : " on"), std::move(got));
  return {};
}

int64_t TraceBatch::first_in_window(int64_t request) const {
  const int64_t first = int64_t{batch.extent(request).prefix_len} - window();
  return window() < 0 || first <= 0 ? 0 : first / model.page_size * model.page_size;
}

std::string TraceBatch::end_of_pool(int64_t id, int64_t unit) const {
  const bool told = pool_slots < std::numeric_limits<int32_t>::max();
  if (told && id >= pool_slots / unit)
    return "; the pool has " + std::to_string(pool_slots / unit) + (unit > 1 ? " pages" : " slots");
  const int64_t mapped = std::ssize(batch.full_to_swa);  // the last one is no slot's
  if (mapped == 0 || id <= (mapped - 2) / unit) return "";
  return "; full_to_swa has " + std::to_string(mapped) + " entries";
}

std::string TraceBatch::build(const TraceLine& line, const BackendInfo& backend,
                              const ForwardBatch* at_hand) {
  engine = engine_of(line, backend);
  read_mode(line, backend);
  model.page_size = line.config.page_size;
  if (line.config.pool_pages)
    pool_slots = std::min(pool_slots, int64_t{*line.config.pool_pages} * model.page_size);
  open = backend.name == "laws" && !capture && !line.input.contains("raw_bs");
  padded = padded || open;
  if (at_hand != nullptr) {
    take(*at_hand);
    if (!wrong.ok()) return "";
    read_arrays(line);
  } else {
    read_requests(line);
    read_arrays(line);
    read_new_tokens(line);
    read_copies(line);
  }
  read_model(line);
  if (!refused.ok() || unreadable_) return "";
  std::string problem = read_tokens(line);
  if (!problem.empty() || !refused.ok() || unreadable_) return problem;
  wrong.add(validate(batch));
  return "";
}

/// The batch as it is; its slots and positions are the line's.
void TraceBatch::take(const ForwardBatch& at_hand) {
  batch = at_hand;
  rows = static_cast<int32_t>(batch.size());
  if (is_target_verify(batch.mode)) {
    width = batch.spec.num_draft_tokens;
    kernel_has_mask = true;
    if (batch.spec.topk > 1)
      tree_mask.assign(batch.spec.custom_mask.begin(), batch.spec.custom_mask.end());
  }
  if (!batch.encoder_lens.empty())
    model.max_encoder_len = std::max(1, std::ranges::max(batch.encoder_lens));
  wrong.add(validate(batch));
  const bool mapped = batch.req_to_token.width > 0 && !batch.req_pool_indices.empty();
  if (!mapped && batch.size() > 0)
    wrong.add(make_finding("batch.field", at("req_to_token"), "a table, and a row for each request",
                           "empty"));
}

void TraceBatch::read_mode(const TraceLine& line, const BackendInfo& backend) {
  batch.mode = find_trace_mode(line.mode)->mode;
  capture = line.phase == "capture";
  graph = padded = line.phase != "eager";
  batch.seq_lens_kind = usual_seq_lens_kind(batch.mode);
  const std::string& kind = line.config.seq_lens_semantics;
  if (kind == "full") batch.seq_lens_kind = SeqLensKind::kFull;
  if (kind == "prefix_only") batch.seq_lens_kind = SeqLensKind::kPrefix;
  batch.spec = {.topk = std::max(1, line.config.topk),
                .num_steps = line.config.num_steps,
                .num_draft_tokens = line.config.num_draft_tokens,
                .step = line.config.step_id,
                .custom_mask = {}};
  // A backend that hands its kernels a mask takes what it is given for a tree's, whatever topk is.
  const auto mask = std::ranges::find(backend.buffers, FieldShape::kMask, &BufferInfo::shape);
  kernel_has_mask = mask != backend.buffers.end() && mask->buffer >= 0;
  mask_is_batchs_ = mask != backend.buffers.end() && !kernel_has_mask;
  if (kernel_has_mask && is_target_verify(batch.mode) && line.input.contains("custom_mask"))
    batch.spec.topk = std::max(2, batch.spec.topk);
  heads_ = backend.heads;
  dual_chunk_ = backend.dual_chunk;
  if (backend.ragged_prefill) model.ragged_prefill = is_ragged(line);
}

/// Where a line tells of none, one: most metadata does not depend on heads.
AttentionParams TraceBatch::heads_of(const TraceLine& line) const {
  const TraceConfig& config = line.config;
  const auto planned = [&](const std::string& argument) -> std::optional<int32_t> {
    for (const TraceCall& call : line.calls) {
      const auto at = line.expect.find(call.name + argument);
      if (at == line.expect.end() || at->second.data.size() != 1) continue;
      const int64_t n = at->second.data[0];
      if (n >= 1 && n <= 1 << 16) return static_cast<int32_t>(n);
    }
    return {};
  };
  AttentionParams params;
  const auto qo = config.num_heads ? config.num_heads : planned(".num_qo_heads");
  const auto kv = config.num_kv_heads ? config.num_kv_heads : planned(".num_kv_heads");
  params.num_qo_heads = qo.value_or(kv.value_or(1));
  params.num_kv_heads = kv.value_or(params.num_qo_heads);
  // The last axis of partial results is a head.
  const auto partial = line.expect.find("attn_logits_shape");
  int64_t dim = planned(".head_dim").value_or(1);
  if (partial != line.expect.end() && !partial->second.data.empty())
    dim = std::clamp<int64_t>(partial->second.data.back(), 1, 1 << 16);
  params.head_dim_qk = params.head_dim_vo = static_cast<int32_t>(dim);
  return params;
}

void TraceBatch::read_model(const TraceLine& line) {
  const TraceConfig& config = line.config;
  model.max_context_len = config.max_context_len;
  model.attention_chunk = config.chunk.value_or(0);
  model.swa_pool = !batch.full_to_swa.empty();
  // A request that verifies has one row; that its drafts are a tree is in the mask.
  model.topk = mask_is_batchs_ && is_target_verify(batch.mode) ? 1 : batch.spec.topk;
  model.num_steps = config.num_steps;
  model.num_draft_tokens = config.num_draft_tokens;
  model.prefix_chunk_tokens = config.prefix_chunk_tokens;
  model.split.max_splits = config.max_kv_splits.value_or(model.split.max_splits);
  model.split.num_sms = config.device_core_count.value_or(model.split.num_sms);
  const bool latent = config.prefix_chunk_tokens > 0 || !heads_;
  AttentionParams params = heads_of(line);
  if (latent) params.num_kv_heads = 1;
  const auto add = [&](bool cross, bool local) {
    model.layers.push_back({.params = params, .cross = cross, .local = local, .mla = latent});
  };
  add(false, false);
  if (dual_chunk_) {
    model.layers[0].dual_chunk = params.causal = model.layers[0].params.causal = true;
    model.dual_chunk.chunk_size = config.chunk.value_or(0);
    return;
  }
  if (config.chunk) add(false, true);
  if (model.max_encoder_len > 0) add(true, false);
  params.window_left = config.window.value_or(-1);
  if (params.window_left >= 0) add(false, false);
}

/// A replay's rows are the bucket's, the first raw_bs of them real.
void TraceBatch::read_requests(const TraceLine& line) {
  need(line, "seq_lens", &seq_lens_);
  bucket_lens = seq_lens_;
  rows = static_cast<int32_t>(seq_lens_.size());
  size_t real = seq_lens_.size();
  if (rows > 0) real = static_cast<size_t>(number(line, "raw_bs", rows).value_or(rows));
  if (capture) real = 0;
  const bool named = need(line, "req_pool_indices", &pool_rows_);
  if (line.mode.starts_with("cross_")) need(line, "encoder_lens", &encoder_lens_);
  if (encoder_lens_.empty()) read(line, "encoder_lens", &encoder_lens_);
  if (!encoder_lens_.empty())
    model.max_encoder_len = std::max(1, *std::ranges::max_element(encoder_lens_));
  if (named && pool_rows_.size() < real)
    refuse("input.req_pool_indices", "a row for each of " + std::to_string(real) + " requests",
           std::to_string(pool_rows_.size()));
  for (auto* values : {&seq_lens_, &pool_rows_, &encoder_lens_}) cut(*values, real);
  batch.seq_lens = seq_lens_;
  batch.req_pool_indices = pool_rows_;
  batch.encoder_lens = encoder_lens_;
  const bool has_table = need(line, "req_to_token", &table_);
  const auto recorded = line.input.find("req_to_token");
  const bool in_pages = has_table && recorded->second.pages;
  const int32_t page = in_pages ? model.page_size : 1;
  if (in_pages && table_.size() > kMaxSlots / static_cast<size_t>(page)) {
    refuse("input.req_to_token",
           "at most " + std::to_string(kMaxSlots / static_cast<size_t>(page)) + " pages",
           std::to_string(table_.size()));
  } else if (!table_.empty()) {
    table_ = slots_of_pages(table_, page);
    batch.req_to_token = {table_, recorded->second.width() * page};
  } else if (has_table && real > 0) {
    refuse("input.req_to_token", "rows", "none");
  }
  read(line, "full_to_swa", &full_to_swa_);
  batch.full_to_swa = full_to_swa_;
}

void TraceBatch::read_copies(const TraceLine& line) {
  lens_cpu = copy(line, "seq_lens_cpu");
  lens_sum = number(line, "seq_lens_sum", std::numeric_limits<int64_t>::max());
  if (why_unread(line, "extend_prefix_lens").empty())
    prefix_lens = copy(line, "extend_prefix_lens");
}

void TraceBatch::read_new_tokens(const TraceLine& line) {
  const int32_t drafts = line.config.num_draft_tokens;
  if (is_target_verify(batch.mode)) width = drafts;
  if (is_decode(batch.mode) || is_target_verify(batch.mode)) return;
  if (graph) {
    const auto told = number(line, "num_tokens", std::numeric_limits<int64_t>::max());
    int64_t each = told && rows > 0 ? *told / rows : drafts;
    if (told) listed_tokens_ = *told;
    // Slots are told of all tokens of the bucket.
    const auto slots = line.input.find("out_cache_loc");
    const int64_t listed = open                        ? listed_tokens_
                           : slots == line.input.end() ? 0
                                                       : std::ssize(slots->second.data);
    if (!told && rows > 0) each = std::max(each, listed / rows);
    width = static_cast<int32_t>(std::clamp<int64_t>(each, 0, 1 << 24));
  }
  if (!read(line, "extend_seq_lens", &extend_lens_)) read(line, "num_accept_tokens", &extend_lens_);
  const bool told =
      line.input.contains("extend_seq_lens") || line.input.contains("num_accept_tokens");
  const bool draft = is_draft_extend(batch.mode, DraftExtendV2::kIncluded);
  // A draft extend in a graph may tell nothing more than its width.
  const int32_t each = graph ? width : drafts;
  if (extend_lens_.empty() && !told && draft && each > 0)
    extend_lens_.assign(seq_lens_.size(), each);
  if (extend_lens_.empty() && !seq_lens_.empty() && !told)
    refuse(draft ? "input.num_accept_tokens" : "input.extend_seq_lens", "there", "missing");
  cut(extend_lens_, seq_lens_.size());
  batch.extend_lens = extend_lens_;
}

/// What is told of each new token; a bucket's tokens end with those of its padding.
std::string TraceBatch::read_tokens(const TraceLine& line) {
  const int64_t real = batch.size();
  const SpecInfo& s = batch.spec;
  const bool draft = batch.mode == ForwardMode::kDraftDecode;
  // As doubles: the products of what a line claims may be anything.
  const double trees = 1.0 * rows * std::max(s.topk, s.num_draft_tokens) *
                       std::max({1, s.num_steps, s.num_draft_tokens});
  if (std::max(trees, 1.0 * rows * width * s.topk) > kMaxRows)
    return "more rows than can be judged";
  int64_t tokens = real * s.topk;
  if (!draft) {
    tokens = is_decode(batch.mode) ? real : real * width;
    if (!batch.extend_lens.empty())
      tokens = std::accumulate(batch.extend_lens.begin(), batch.extend_lens.end(), int64_t{0});
  }
  if (listed_tokens_ > 0) listed_tokens_ = std::max(listed_tokens_, tokens);
  bool stored = read(line, "out_cache_loc", &out_cache_loc_);
  // Zeros say nothing where slot 0 is nobody's.
  if (engine.is_reserved(0, model.page_size) && tokens > 0 &&
      std::ranges::count(out_cache_loc_, 0) == std::ssize(out_cache_loc_)) {
    stored = stored && out_cache_loc_.empty();
    out_cache_loc_.clear();
  }
  const int64_t slots = std::ssize(out_cache_loc_);
  const bool of_all_steps = open && slots == real * s.topk * s.num_steps;
  if (stored && draft && s.num_steps > 1 && !of_all_steps && slots == int64_t{rows} * s.topk) {
    // The slots of this step only.
    one_step = true;
    std::vector<int64_t> all(out_cache_loc_.size() * static_cast<size_t>(s.num_steps));
    for (size_t i = 0; i < out_cache_loc_.size() && s.step < s.num_steps; ++i)
      all[i * static_cast<size_t>(s.num_steps) + static_cast<size_t>(s.step)] = out_cache_loc_[i];
    out_cache_loc_ = std::move(all);
  }
  const int64_t each = draft ? s.num_steps : 1;
  // An eager step may be padded, too, by tokens that are stored nowhere.
  const auto stores =
      out_cache_loc_.rend() - std::find_if(out_cache_loc_.rbegin(), out_cache_loc_.rend(),
                                           [](int64_t slot) { return slot != -1; });
  if (engine.padding_slot.value_or(-1) == -1 && !draft && stores <= tokens)
    padded_tokens_ = std::ssize(out_cache_loc_);
  if (stored && !cut_padding(&out_cache_loc_, tokens, each, &padding_slots) &&
      out_cache_loc_.empty())
    wrong.add(make_finding("step.slots", at("out_cache_loc"),
                           "a slot for each of " + std::to_string(tokens) + " new tokens", "none"));
  batch.out_cache_loc = out_cache_loc_;  // of any other length: validate() says it
  if (read(line, "positions", &positions_)) {
    if (positions_.empty() && tokens > 0)
      refuse("input.positions", "a list [" + std::to_string(tokens) + "], one of each new token",
             "[0]");
    cut_padding(&positions_, tokens, 1, &padding_positions);
  }
  batch.positions = positions_;  // the same
  if (is_target_verify(batch.mode) && read(line, "custom_mask", &tree_mask) && s.topk > 1)
    batch.spec.custom_mask = tree_mask;
  return "";
}

}  // namespace shadowgraph
