#include "fuzz/case_file.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/laws.h"
#include "fuzz/case_fields.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "runtime/scheduler.h"
#include "shadowgraph/version.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kSchema = "shadowgraph.case/1";
constexpr size_t kMaxDepth = 8;

// Enumerations by name.
constexpr std::string_view kDataNames[] = {"random", "uniform", "selector"};
constexpr std::string_view kLensNames[] = {"full", "prefix"};

std::string_view word_of(RunnerData d) { return kDataNames[static_cast<size_t>(d)]; }
std::string_view word_of(SeqLensKind k) { return kLensNames[static_cast<size_t>(k)]; }
std::string_view word_of(ForwardMode m) { return name_of(m); }
std::string_view word_of(DType t) { return name_of(t); }

template <class E, size_t N>
bool find_word(const std::string_view (&names)[N], std::string_view word, E* value) {
  const auto it = std::ranges::find(names, word);
  if (it != std::end(names)) *value = static_cast<E>(it - names);
  return it != std::end(names);
}
bool from_word(std::string_view word, RunnerData* d) { return find_word(kDataNames, word, d); }
bool from_word(std::string_view word, SeqLensKind* k) { return find_word(kLensNames, word, k); }
bool from_word(std::string_view word, DType* t) {
  const std::optional<DType> found = dtype_from_name(word);
  if (found) *t = *found;
  return found.has_value();
}
bool from_word(std::string_view word, ForwardMode* m) {
  for (int i = 0; i < kNumForwardModes; ++i) {
    if (name_of(static_cast<ForwardMode>(i)) != word) continue;
    *m = static_cast<ForwardMode>(i);
    return true;
  }
  return false;
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

class Writer {
 public:
  template <class T>
  void operator()(const char* name, T& value) {
    out += first_ ? "" : ", ";
    first_ = false;
    out += '"' + std::string(name) + "\": ";
    write(value);
  }

  std::string out;

 private:
  template <class T>
  void write(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      out += json_quoted(value);
    } else if constexpr (std::is_enum_v<T>) {
      out += '"' + std::string(word_of(value)) + '"';
    } else if constexpr (std::floating_point<T>) {
      char text[40];
      std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
      out += text;
    } else if constexpr (std::integral<T>) {
      out += std::to_string(value);
    } else if constexpr (IsVector<T>::value) {
      write_list(value);
    } else {
      out += '{';
      first_ = true;
      visit_fields(*this, value);
      first_ = false;
      out += '}';
    }
  }
  template <class T>
  void write_list(std::vector<T>& list) {
    out += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += ", ";
      write(list[i]);
    }
    out += ']';
  }

  bool first_ = true;
};

/// Reads what is there; what is missing keeps its default, what is of another type is a finding.
class Reader {
 public:
  Reader(const JsonValue& object, const std::string& file, std::string path, Status* status)
      : object_(object), file_(file), path_(std::move(path)), status_(status) {}

  template <class T>
  void operator()(const char* name, T& value) {
    const JsonValue* json = object_.find(name);
    ++known_;
    if (json == nullptr) {
      fail(name, "a value", "nothing");
    } else {
      read(*json, name, value);
    }
  }
  /// Every member was one of those that were asked for.
  void finish() {
    const auto* members = object_.as<JsonValue::Object>();
    if (members != nullptr && members->size() > known_)
      fail("", std::to_string(known_) + " members", std::to_string(members->size()));
  }

 private:
  void fail(const std::string& name, std::string expected, std::string got) {
    status_->add(
        file_finding("case.field", file_, path_ + name, std::move(expected), std::move(got)));
  }

  template <class T>
  void read(const JsonValue& json, const std::string& name, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const bool* b = json.as<bool>();
      b != nullptr ? void(value = *b) : fail(name, "true or false", json.describe());
    } else if constexpr (std::is_same_v<T, std::string>) {
      const auto* text = json.as<std::string>();
      text != nullptr ? void(value = *text) : fail(name, "a string", json.describe());
    } else if constexpr (std::is_enum_v<T>) {
      const auto* word = json.as<std::string>();
      if (word == nullptr || !from_word(*word, &value)) fail(name, "a name", json.describe());
    } else if constexpr (std::floating_point<T>) {
      read_float(json, name, value);
    } else if constexpr (std::integral<T>) {
      read_integer(json, name, value);
    } else if constexpr (IsVector<T>::value) {
      read_list(json, name, value);
    } else {
      if (json.as<JsonValue::Object>() == nullptr) return fail(name, "an object", json.describe());
      Reader inner(json, file_, path_ + name + ".", status_);
      visit_fields(inner, value);
      inner.finish();
    }
  }
  template <class T>
  void read_float(const JsonValue& json, const std::string& name, T& value) {
    double d = std::numeric_limits<double>::quiet_NaN();
    if (const auto* x = json.as<double>()) d = *x;
    if (const auto* x = json.as<uint64_t>()) d = static_cast<double>(*x);
    if (const auto* x = json.as<int64_t>()) d = static_cast<double>(*x);
    if (std::isfinite(d) && std::abs(d) <= std::numeric_limits<T>::max())
      value = static_cast<T>(d);
    else
      fail(name, "a finite number", json.describe());
  }
  template <class T>
  void read_integer(const JsonValue& json, const std::string& name, T& value) {
    const auto* u = json.as<uint64_t>();
    const auto* i = json.as<int64_t>();
    if (u != nullptr && std::in_range<T>(*u))
      value = static_cast<T>(*u);
    else if (i != nullptr && std::in_range<T>(*i))
      value = static_cast<T>(*i);
    else
      fail(name, "an integer of " + std::to_string(8 * sizeof(T)) + " bits", json.describe());
  }
  template <class T>
  void read_list(const JsonValue& json, const std::string& name, std::vector<T>& list) {
    const auto* array = json.as<JsonValue::Array>();
    if (array == nullptr) return fail(name, "a list", json.describe());
    list.assign(array->size(), T{});
    for (size_t i = 0; i < array->size(); ++i)
      read((*array)[i], name + '[' + std::to_string(i) + ']', list[i]);
  }

  const JsonValue& object_;
  const std::string& file_;
  const std::string path_;
  Status* status_;
  size_t known_ = 0;
};

/// What run_history would run of it, without pools to judge.
bool serves(const Backend& backend, ForwardMode mode) {
  const std::span<const ForwardMode> modes = backend.info().modes;
  return mode == ForwardMode::kPrebuilt || std::ranges::find(modes, mode) != modes.end();
}

/// What a run relies on: sizes that are sizes, indices that are in their tables.
class CaseCheck {
 public:
  CaseCheck(const HistoryCase& x, const std::string& file)
      : m_(x.history.model), o_(x.history.runner), x_(x), file_(file) {}

  Status run() {
    check_model();
    check_runner();
    for (size_t i = 0; i < x_.steps.size() && status_.ok(); ++i)
      check_step(x_.steps[i], "steps[" + std::to_string(i) + "].");
    return std::move(status_);
  }

 private:
  void fail(const std::string& field, std::string expected, int64_t got) {
    status_.add(file_finding("case.range", file_, field, std::move(expected), std::to_string(got)));
  }
  void in(const std::string& field, int64_t low, int64_t got, int64_t high) {
    if (got < low || got > high)
      fail(field, std::to_string(low) + " to " + std::to_string(high), got);
  }
  template <class T>
  void all_in(const std::string& field, int64_t low, const std::vector<T>& list, int64_t high) {
    for (const T value : list) in(field, low, static_cast<int64_t>(value), high);
  }

  void check_model() {
    in("model.page_size", 1, m_.page_size, 256);
    if ((m_.page_size & (m_.page_size - 1)) != 0)
      fail("model.page_size", "a power of two", m_.page_size);
    in("model.max_context_len", 1, m_.max_context_len, 4096);
    in("model.max_encoder_len", 0, m_.max_encoder_len, 4096);
    in("model.attention_chunk", 0, m_.attention_chunk, 4096);
    in("model.dcp_size", 1, m_.dcp_size, 16);
    in("model.dcp_rank", 0, m_.dcp_rank, std::max(0, m_.dcp_size - 1));
    in("model.topk", 1, m_.topk, 16);
    in("model.num_steps", 0, m_.num_steps, 16);
    in("model.num_draft_tokens", 0, m_.num_draft_tokens, 64);
    in("model.seq_len_fill", 0, m_.seq_len_fill, 64);
    in("model.prefix_chunk_tokens", 0, m_.prefix_chunk_tokens, 1 << 20);
    in("model.layers", 1, std::ssize(m_.layers), 8);
    for (const LayerKind& k : m_.layers) check_layer(k);
  }
  void check_layer(const LayerKind& k) {
    const AttentionParams& p = k.params;
    in("layers.num_kv_heads", 1, p.num_kv_heads, 64);
    in("layers.num_qo_heads", 1, p.num_qo_heads, 64);
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
  void check_runner() {
    in("runner.slots", m_.page_size, o_.slots, 1 << 16);
    in("runner.swa_slots", m_.swa_pool ? m_.page_size : 0, o_.swa_slots, 1 << 16);
    if (status_.ok() && (o_.slots % m_.page_size != 0 || o_.swa_slots % m_.page_size != 0))
      fail("runner.slots", "whole pages", o_.slots);
    in("runner.max_tokens", 1, o_.max_tokens, 4096);
    in("runner.pool_rows", 0, o_.pool_rows, 1024);
    in("runner.pool_width", 0, o_.pool_width, 8192);
    in("runner.buckets", 0, std::ssize(o_.buckets), 8);
    all_in("runner.buckets", 1, o_.buckets, 64);
    if (!std::ranges::is_sorted(o_.buckets)) fail("runner.buckets", "ascending sizes", 0);
    if (!is_cache_dtype(o_.kv_dtype) || o_.kv_dtype == DType::kI8)
      fail("runner.kv_dtype", "a type of the pools", static_cast<int64_t>(o_.kv_dtype));
    if (!(o_.k_scale > 0) || !(o_.v_scale > 0)) fail("runner.k_scale", "> 0", 0);
  }

  void check_step(const Step& s, const std::string& at) {
    const int64_t slots = o_.slots * m_.dcp_size;
    if (s.requests.size() != s.seq_lens.size())
      fail(at + "requests", std::to_string(s.seq_lens.size()) + " requests",
           std::ssize(s.requests));
    in(at + "width", 0, s.width, 8192);
    if (s.width > 0 && std::ssize(s.req_to_token) % s.width != 0)
      fail(at + "req_to_token", "whole rows", std::ssize(s.req_to_token));
    all_in(at + "req_to_token", 0, s.req_to_token, slots - 1);
    all_in(at + "out_cache_loc", 0, s.out_cache_loc, slots - 1);
    all_in(at + "encoder_out_cache_loc", 0, s.encoder_out_cache_loc, slots - 1);
    all_in(at + "full_to_swa", -1, s.full_to_swa, o_.swa_slots - 1);
    if (m_.swa_pool) in(at + "full_to_swa", slots + 1, std::ssize(s.full_to_swa), slots + 1);
    for (const SlotCopy& c : s.copies) in(at + "copies", 0, std::min(c.from, c.to), slots - 1);
    for (const SlotCopy& c : s.copies) in(at + "copies", 0, std::max(c.from, c.to), slots - 1);
    if (!s.copies.empty() && m_.dcp_size > 1) fail(at + "copies", "none on ranks", 1);
    in(at + "draft.topk", 1, s.draft.topk, 16);
    in(at + "draft_step", 0, s.draft_step, 16);
    if (m_.in_graph_tables)
      in(at + "req_to_token", o_.pool_rows * o_.pool_width, std::ssize(s.req_to_token),
         o_.pool_rows * o_.pool_width);
    if (!status_.ok()) return;
    Status legal = validate(s.batch());
    for (Finding& f : legal.findings()) f.where.field.insert(0, at);
    status_.add(std::move(legal));
    const bool runs = s.mode != ForwardMode::kPrebuilt && serves(*x_.history.backend, s.mode);
    if (status_.ok() && runs)
      in(at + "tokens", 0, Limits::exact(s.batch(), m_).tokens, o_.max_tokens);
  }

  const ModelConfig& m_;
  const RunnerOptions& o_;
  const HistoryCase& x_;
  const std::string& file_;
  Status status_;
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
  Writer w;
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
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  JsonDocument json;
  status = parse_strict_json(text, "case.field", path, 0, &json, kMaxDepth);
  if (!status.ok()) return status;
  HistoryCase x;
  std::string backend, schema;
  Reader reader(json.root, path, "", &status);
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
    if (!serves(*x.history.backend, x.steps[i].mode)) continue;
    status = runner.step(x.steps[i]);
    if (played) played(i, status);
  }
  return status;
}

}  // namespace shadowgraph
