#include "fuzz/file/call_file.h"

#include <algorithm>
#include <utility>

#include "fuzz/call/generate.h"
#include "fuzz/file/call_fields.h"
#include "shadowgraph/version.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kCallSchema = "shadowgraph.call/1";
constexpr size_t kCallDepth = 8;
constexpr int64_t kMostElements = 1 << 24;
constexpr int64_t kMostOfStates = 1 << 26;

bool is_wide(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

/// What laying out and running a case relies on.
class CallCheck : CaseRanges {
 public:
  CallCheck(const Case& x, const std::string& file) : CaseRanges(file), x_(x) {}

  Status run() {
    in("more_threads", 0, x_.more_threads, 15);
    std::visit([this](const auto& call) { check(call); }, x_.call);
    return take();
  }

 private:
  void wide(const char* field, DType t) {
    if (!is_wide(t)) fail(field, "f32, f16 or bf16", static_cast<int64_t>(t));
  }

  void check(const MergeCase& m) {
    in("requests.q_len", 1, m.rows, 4096);
    in("requests.kv_len", 1, m.states, 8192);
    in("num_qo_heads", 1, m.heads, 256);
    in("head_dim_vo", 1, m.head_dim, 1024);
    wide("q_dtype", m.dtype), wide("out_dtype", m.out_dtype);
    if (status_.ok())
      in("elements", 0, (int64_t{m.rows} * m.states + m.states) * m.heads * 2 * m.head_dim,
         kMostElements);
  }

  void check(const AttentionCase& a) {
    const bool decode = a.kernel == CaseKernel::kDecodePaged;
    in("requests", 1, std::ssize(a.requests), 64);
    int64_t keys = 0;
    for (const RequestExtent& r : a.requests) {
      in("requests.q_len", decode ? 1 : 0, r.q_len, decode ? 1 : 4096);
      in("requests.kv_len", 0, r.kv_len, 8192);
      keys += int64_t{r.q_len} + r.kv_len;
    }
    in("num_kv_heads", 1, a.num_kv_heads, 256);
    in("num_qo_heads", 1, a.num_qo_heads, 256);
    in("head_dim_qk", 1, a.head_dim_qk, 1024);
    in("head_dim_vo", 1, a.head_dim_vo, 1024);
    wide("q_dtype", a.q_dtype), wide("out_dtype", a.out_dtype);
    if (status_.ok()) {
      in("num_qo_heads % num_kv_heads", 0, a.num_qo_heads % a.num_kv_heads, 0);
      in("elements", 0, keys * a.num_qo_heads * (a.head_dim_qk + a.head_dim_vo), kMostElements);
    }
    if (a.nan && (is_exact(x_.data) || a.kv_dtype == DType::kI8))
      fail("nan", "of random data, and not of i8", 1);
    check_cache(a);
    check_terms(a);
  }

  void check_terms(const AttentionCase& a) {
    const CaseTerms& t = a.terms;
    listed("terms.", t);
    if (t.temperature_len != 0) in("terms.temperature_len", 2, t.temperature_len, 1 << 20);
    if (t.padded_rows && a.kernel == CaseKernel::kDecodePaged)
      fail("terms.padded_rows", "not of a decode", 1);
    if (t.head_scales && t.request_head_scales)
      fail("terms.request_head_scales", "not with head_scales", 1);
    if (t.alibi && is_exact(x_.data))
      fail("terms.alibi", "none of exact data", static_cast<int64_t>(*t.alibi));
    for (const float scale : {t.q_scale, t.out_scale})
      if (!(scale >= 0x1p-20F && scale <= 0x1p20F))
        fail("terms scales", "2^-20 to 2^20", static_cast<int64_t>(scale));
  }

  void check_cache(const AttentionCase& a) {
    const bool latent = a.layout == KvLayout::kMlaLatent, i8 = a.kv_dtype == DType::kI8;
    if (!is_wide(a.kv_dtype) && !is_fp8(a.kv_dtype) && !i8)
      fail("kv_dtype", "of a cache", static_cast<int64_t>(a.kv_dtype));
    if (i8 && a.kernel == CaseKernel::kPrefillRagged) fail("kv_dtype", "not i8 if ragged", 1);
    in("page_size", 1, a.page_size, 512);
    if (a.layout == KvLayout::kPanels) in("page_size % 16", 0, a.page_size % 16, 0);
    if (latent) in("num_kv_heads", 1, a.num_kv_heads, 1);
    if (latent) in("head_dim_vo", 1, a.head_dim_vo, a.head_dim_qk);
    if (latent && a.through_store_kv) fail("through_store_kv", "not of a latent", 1);
    const bool stacked = a.layout == KvLayout::kStackedNhd || a.layout == KvLayout::kStackedHnd;
    if (stacked) in("head_dim_vo", a.head_dim_qk, a.head_dim_vo, a.head_dim_qk);
    for (const float scale : {a.sm_scale, a.k_scale, a.v_scale})
      if (!(scale > 0)) fail("scales", "> 0", static_cast<int64_t>(scale));
  }

  /// States of the pool, of drafts and of chunks, as an arrangement may have them: with idle rows
  /// beside the case's own, and with places and steps that nobody uses.
  static int64_t kept_states(const RecurrentCase& l) {
    const int64_t rows = std::ssize(l.rows) + 4;
    int64_t longest = 3, kept = rows;
    for (const RecurrentCase::Row& r : l.rows) longest = std::max<int64_t>(longest, r.tokens);
    if (l.drafts) kept += rows * (longest + 2);
    if (l.chunk_size > 0) kept += l.tokens() / l.chunk_size + 2 * rows;
    return kept;
  }

  void check(const RecurrentCase& l) {
    in("rows", l.call == RecurrentCase::Call::kGate ? 1 : 0, std::ssize(l.rows), 64);
    for (const RecurrentCase::Row& r : l.rows) listed("rows.", r);
    listed("", l);
    wide("dtype", l.dtype), wide("state_dtype", l.state_dtype), wide("out_dtype", l.out_dtype);
    wide("draft_dtype", l.draft_dtype), wide("chunk_dtype", l.chunk_dtype);
    const bool gate = l.call == RecurrentCase::Call::kGate;
    const bool step = gate && l.gate == DecayGate::Kind::kStep;
    in("decay_rank", gate ? 2 : 1, l.decay_rank, step ? 2 : 3);
    if (step && l.b) fail("b", "none of a step", 1);
    if (gate && l.gate == DecayGate::Kind::kLowerBound && !(l.lower_bound < 0))
      fail("lower_bound", "below 0", static_cast<int64_t>(l.lower_bound));
    if (is_exact(x_.data) && (l.l2norm || l.silu)) fail("data", "random: roots are not exact", 0);
    if (!status_.ok()) return;
    in("num_v_heads % num_k_heads", 0, gate ? 0 : l.num_v_heads % l.num_k_heads, 0);
    const bool attention = l.call == RecurrentCase::Call::kAttention;
    if (attention && l.tree && !l.drafts) fail("tree", "of drafts that are kept", 1);
    if (l.form == LinearAttention::Form::kChunked && (l.drafts || l.tree))
      fail("form", "recurrent of drafts", 1);
    if (l.tree && l.chunk_size > 0) fail("chunk_size", "0 of a tree", l.chunk_size);
    const int64_t state =
        attention ? int64_t{l.num_v_heads} * l.head_dim_k * l.head_dim_v : l.dim * 8;
    in("elements of states", 0, kept_states(l) * state, kMostOfStates);
    const int64_t token = attention || gate ? l.num_v_heads * (l.head_dim_k + l.head_dim_v) : l.dim;
    in("elements", 0, l.tokens() * token, kMostElements);
  }

  void check(const SparseCase& s) {
    using Call = SparseCase::Call;
    in("rows", 1, std::ssize(s.rows), 256);
    listed("", s);
    const bool attention = s.call == Call::kAttention, packs = attention || s.call == Call::kPack;
    in("head_dim_v", 1, s.head_dim_v, packs ? s.head_dim : 1024);
    if (packs) check_layout(s, s.layout);
    if (packs && s.has_extra) check_layout(s, s.extra_layout);
    const bool lists = s.call == Call::kTransform || s.call == Call::kCompact;
    for (const SparseCase::Row& r : s.rows) {
      listed("rows.", r);
      in("rows.count", 0, r.count, lists ? s.topk : 4096);
    }
    if (!attention || s.dtype != DType::kE4M3) wide("dtype", s.dtype);
    if (!attention || !is_fp8(s.rows_dtype)) wide("rows_dtype", s.rows_dtype);
    wide("out_dtype", s.out_dtype);
    if (s.call == Call::kActQuant) in("head_dim % 128", 0, s.head_dim % kIndexDim, 0);
    if (s.ratio != 4) in("ratio", 128, s.ratio, 128);
    in("rope_dim", 0, s.rope_dim, s.head_dim);
    in("rope_dim % 2", 0, s.rope_dim % 2, 0);
    if (!status_.ok()) return;
    int64_t keys = 0;
    for (const SparseCase::Row& r : s.rows) keys += r.first + r.count + r.extra + 1;
    const bool keys_of_128 = s.call >= Call::kStoreKeys && s.call <= Call::kLogits;
    const int64_t dim = keys_of_128 ? kIndexDim : s.head_dim;
    const int64_t window = s.call == Call::kPoolNormRope ? s.ratio : 1;
    in("elements", 0, (4 * keys * window + std::ssize(s.rows) * s.heads) * dim, kMostElements);
    in("products", 0, keys * s.heads * dim, 16 * kMostElements);
    in("entries", 0, (std::ssize(s.rows) + s.requests) * (s.topk + 40), kMostElements);
  }

  void check_layout(const SparseCase& s, LatentLayout layout) {
    if (layout == LatentLayout::kDsa) in("head_dim", 576, s.head_dim, 576);
    if (layout == LatentLayout::kV4) in("head_dim", 512, s.head_dim, 512);
  }

  const Case& x_;
};

Status parse(std::string_view text, const std::string& name, JsonDocument* json) {
  return parse_strict_json(text, "case.field", name, 0, json, kCallDepth);
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string to_json(const CallCase& x) {
  CallCase copy = x;
  CaseWriter w;
  w.out = "{\n  \"schema\": " + json_quoted(kCallSchema) +
          ",\n  \"version\": " + json_quoted(x.version) + ",\n  \"law\": " + json_quoted(x.law) +
          ",\n  \"got\": " + json_quoted(x.got) + ",\n  ";
  w("choices", copy.choices);
  w("case", copy.x);
  return w.out + "\n}\n";
}

bool is_call_file(const std::string& path) {
  std::vector<std::byte> bytes;
  return read_file(path, &bytes).ok() && is_call(text_of(bytes));
}

bool is_call(std::string_view text) {
  JsonDocument json;
  if (!parse(text, "", &json).ok()) return false;
  const JsonValue* schema = json.root.find("schema");
  const auto* word = schema == nullptr ? nullptr : schema->as<std::string>();
  return word != nullptr && *word == kCallSchema;
}

Status read_call(const std::string& path, CallCase* out) {
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  return status.ok() ? parse_call(text_of(bytes), path, out) : status;
}

Status parse_call(std::string_view text, const std::string& path, CallCase* out) {
  JsonDocument json;
  Status status = parse(text, path, &json);
  if (!status.ok()) return status;
  CallCase x;
  std::string schema;
  CaseFileReader reader(json.root, path, "", &status);
  reader("schema", schema);
  reader("version", x.version);
  reader("law", x.law);
  reader("got", x.got);
  reader("choices", x.choices);
  reader("case", x.x);
  reader.finish();
  if (schema != kCallSchema)
    status.add(file_finding("case.field", path, "schema", std::string(kCallSchema), schema));
  if (status.ok()) status = CallCheck(x.x, path).run();
  if (status.ok()) *out = std::move(x);
  return status;
}

CaseFailure shrink_case(std::span<const uint32_t> made, const RunOptions& options,
                        std::string_view law, const ShrinkBudget& budget) {
  const auto fails = [&](std::span<const uint32_t> list) -> std::optional<MadeCase> {
    Choices choices(list);
    const Status found = check_case(generate(choices), options);
    for (const Finding& f : found.findings())
      if (f.id == law) return MadeCase{choices.made()};
    return std::nullopt;
  };
  CaseFailure failure;
  ShrinkResult small = shrink({made.begin(), made.end()}, fails, budget);
  failure.choices = std::move(small.choices);
  Choices choices(failure.choices);
  const Case x = generate(choices);
  RunOptions last = options;
  last.diagnose = true;
  failure.findings = check_case(x, last);
  Choices whole(made);
  keep_diagnosis(check_case(generate(whole), last), &failure.findings);
  for (Finding& f : failure.findings.findings()) {
    f.case_id = x.to_string() + small.ended;
    f.reproduce = "shadowgraph fuzz --backend kernels --choices " + to_text(failure.choices) +
                  options.flags();
  }
  return failure;
}

CallCase call_of(std::span<const uint32_t> list, const RunOptions& options) {
  Choices choices(list);
  CallCase call;
  call.version = SHADOWGRAPH_VERSION;
  call.x = generate(choices);
  call.choices = choices.made();
  const Status found = check_case(call.x, options);
  if (!found.ok()) call.law = found.findings()[0].id, call.got = found.findings()[0].to_string();
  return call;
}

}  // namespace shadowgraph
