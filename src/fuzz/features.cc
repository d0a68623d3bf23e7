#include "fuzz/features.h"

#include <algorithm>
#include <string_view>

#include "attn/cases/case_names.h"
#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

struct HistoryFeature {
  std::string_view name, what;
  bool (*is_served)(const BackendInfo& b);
  bool (*is_drawn)(const History& h);
};

template <class Is>
bool any_layer(const History& h, Is is) {
  return std::ranges::any_of(h.model.layers, is);
}

bool always(const BackendInfo&) { return true; }
bool drafts(const BackendInfo& b) {
  return b.whole_draft || has_mode(b, ForwardMode::kTargetVerify);
}
bool is_8_bit(const History& h) {
  return h.runner.kv_dtype == DType::kE4M3 || h.runner.kv_dtype == DType::kE5M2;
}

bool all_keys(const BackendInfo& b) { return !b.sparse; }

constexpr int32_t kOnePage[] = {1};

// Names of ModelConfig's, LayerKind's and RuntimeConfig's members where there is one.
constexpr HistoryFeature kOfHistories[] = {
    {"num_steps", "the engine speculates: it drafts, verifies and extends the draft model", drafts,
     [](const History& h) { return h.runtime.draft.num_steps > 0; }},
    {"topk", "drafts are trees", [](const BackendInfo& b) { return b.tree && drafts(b); },
     [](const History& h) { return h.runtime.draft.topk > 1; }},
    {"radix", "requests share prefixes through a radix cache",
     [](const BackendInfo& b) { return b.shares_prefixes; },
     [](const History& h) { return h.runtime.radix; }},
    {"prebuilt", "the KV of a prompt comes from another engine", always,
     [](const History& h) { return h.runtime.prebuilt; }},
    {"dllm_block", "a diffusion model extends block by block",
     [](const BackendInfo& b) { return has_mode(b, ForwardMode::kDllmExtend); },
     [](const History& h) { return h.runtime.dllm_block > 0; }},
    {"swa_pool", "windows have a pool of their own",
     [](const BackendInfo& b) { return b.swa_pool; },
     [](const History& h) { return h.model.swa_pool; }},
    {"max_encoder_len", "the model has an encoder", [](const BackendInfo& b) { return b.encoder; },
     [](const History& h) { return h.model.max_encoder_len > 0; }},
    {"items", "a prompt has several items, which do not see each other",
     [](const BackendInfo& b) { return b.items; }, [](const History& h) { return h.items; }},
    {"in_graph_tables", "launches make the tables on the device",
     [](const BackendInfo& b) { return b.in_graph_tables; },
     [](const History& h) { return h.model.in_graph_tables; }},
    {"prefix_chunk_tokens", "an MLA prefill reads the prefixes in chunks",
     [](const BackendInfo& b) { return b.prefix_chunks; },
     [](const History& h) { return h.model.prefix_chunk_tokens > 0; }},
    {"ragged_prefill", "a prefill reads its own tokens apart from the prefix",
     [](const BackendInfo& b) { return b.ragged_prefill; },
     [](const History& h) { return h.model.ragged_prefill; }},
    {"two_chunk_below", "two-batch overlap may cut a prompt in two",
     [](const BackendInfo& b) { return b.halves; },
     [](const History& h) { return h.model.two_chunk_below > 0; }},
    {"dcp_size", "keys are spread over ranks of context parallelism",
     [](const BackendInfo& b) { return b.dcp; },
     [](const History& h) { return h.model.dcp_size > 1; }},
    {"track_states", "snapshots of recurrent states are kept for prefixes",
     [](const BackendInfo& b) { return b.track_states; },
     [](const History& h) { return h.model.track_states; }},
    {"split.fixed_size", "a row's keys are cut into parts of a fixed size",
     [](const BackendInfo& b) { return !b.batch_splits.empty(); },
     [](const History& h) { return h.model.split.fixed_size > 0; }},
    {"split.off", "no row's keys are cut",
     [](const BackendInfo& b) { return !b.batch_splits.empty(); },
     [](const History& h) { return h.model.split.off; }},
    {"window_left", "some layer has a sliding window",
     [](const BackendInfo& b) { return b.dense && b.heads && !b.dual_chunk; },
     [](const History& h) {
       return any_layer(h, [](const LayerKind& k) { return k.params.window_left >= 0; });
     }},
    {"local", "some layer attends in chunks", [](const BackendInfo& b) { return b.local; },
     [](const History& h) { return any_layer(h, [](const LayerKind& k) { return k.local; }); }},
    {"mla", "some layer is MLA", [](const BackendInfo& b) { return b.dense && b.latent; },
     [](const History& h) { return any_layer(h, [](const LayerKind& k) { return k.mla; }); }},
    {"logits_soft_cap", "some layer caps its scores", [](const BackendInfo& b) { return b.dense; },
     [](const History& h) {
       return any_layer(h, [](const LayerKind& k) { return k.params.logits_soft_cap > 0; });
     }},
    {"sinks", "some layer has a logit of each head that joins the softmax",
     [](const BackendInfo& b) { return b.dense && b.sinks; },
     [](const History& h) { return std::ranges::any_of(h.runner.values, &LayerValues::sinks); }},
    {"sisters", "a layer differs from another one in one thing that each has of its own",
     [](const BackendInfo& b) { return b.dense; }, [](const History& h) { return h.sisters > 0; }},
    {"many_requests", "more requests run than small histories have", always,
     [](const History& h) { return h.sizes == HistorySizes::kManyRequests; }},
    {"long_extends", "an extend has tokens around a tile of queries", all_keys,
     [](const History& h) { return h.sizes == HistorySizes::kLongExtends; }},
    {"long_contexts", "a request has keys around a block or a capacity", all_keys,
     [](const History& h) { return h.sizes == HistorySizes::kLongContexts; }},
    {"page_size", "pages hold several tokens",
     [](const BackendInfo& b) { return !std::ranges::equal(b.page_sizes, kOnePage); },
     [](const History& h) { return h.model.page_size > 1; }},
    {"fp8", "keys and values are 8-bit floats", always, is_8_bit},
    {"plans_ahead", "a replay's buffers were filled for another step before", always,
     [](const History& h) { return h.runner.plans_ahead; }},
    {"own_streams", "uploads, work on pools and forwards are ordered by events alone", always,
     [](const History& h) { return h.runner.own_streams; }},
    {"wide_pools", "slots of dense pools lie beyond 2^31 elements",
     [](const BackendInfo& b) { return b.dense; },
     [](const History& h) { return h.runner.wide_pools; }},
};

/// The first word of a call's feature; the words behind it end the sentence.
struct CallFeature {
  std::string_view word, what;
};
constexpr CallFeature kOfCalls[] = {{"kernel", "the kernel is"},
                                    {"call", "the call is"},
                                    {"data", "the numbers are"},
                                    {"threads", "several threads run it"},
                                    {"far", "its pool lies behind 2^32 elements"},
                                    {"nan", "a key or value that some row sees holds a NaN"},
                                    {"size", "more than small calls have of"},
                                    {"causal", "a query sees no later key"},
                                    {"window_left", "a query sees so many keys before it"},
                                    {"window_right", "a query sees so many keys behind it"},
                                    {"logits_soft_cap", "scores are capped"},
                                    {"alibi", "a key's distance is added to its score:"},
                                    {"bias", "a score has a bias of"},
                                    {"temperature", "scores of late queries are larger"},
                                    {"attention_chunk", "a query sees keys of its own chunk"},
                                    {"request_causal", "some requests are causal, others are not"},
                                    {"cache_leftpad", "the first keys are padding"},
                                    {"bidirectional", "tokens of a range see each other"},
                                    {"mask_of_heads", "each head has a mask of its own"},
                                    {"head_scales", "KV heads have scales of their own"},
                                    {"padded_rows", "rows of nobody stand between requests"},
                                    {"row_scales", "q or the result has a scale"},
                                    {"sinks", "a logit of each head joins the softmax"},
                                    {"custom_mask", "the mask of pairs is"},
                                    {"layout", "the KV cache lies as"},
                                    {"kv_indptr", "pages are a list with offsets, not a table"},
                                    {"store_kv", "store_kv writes the cache"},
                                    {"i8", "the cache holds 8-bit integers with scales"},
                                    {"fp8", "the cache holds 8-bit floats"},
                                    {"state", "the states behind draft tokens are kept:"}};

/// Adds what the call has: in words, and by the words of an enumerator.
class CallFeatures {
 public:
  explicit CallFeatures(FeatureCounts* counts) : counts_(*counts) {}

  void add(std::string_view name, bool drawn = true) {
    counts_["calls " + std::string(name)] += drawn;
  }
  template <class Names, class Enum>
  void add(std::string_view of, const Names& names, Enum value) {
    for (size_t i = 0; i < std::size(names); ++i)
      add(std::string(of) + " " + std::string(names[i]), i == static_cast<size_t>(value));
  }

 private:
  FeatureCounts& counts_;
};

/// Sizes are those that no small call has.
void add_features(const AttentionCase& x, CallFeatures* f) {
  int64_t keys = 0, queries = 0;
  for (const RequestExtent& r : x.requests)
    keys = std::max<int64_t>(keys, r.kv_len), queries = std::max<int64_t>(queries, r.q_len);
  f->add("size keys", keys > 1025), f->add("size queries", queries > 40);
  f->add("size requests", std::ssize(x.requests) > 6);
  f->add("size group", x.num_qo_heads > 16 * x.num_kv_heads);
  f->add("size heads", x.num_kv_heads > 3);
  f->add("size channels", x.head_dim_qk > 256);
  f->add("nan", x.nan);
  f->add("causal", x.causal);
  f->add("window_left", x.window_left >= 0), f->add("window_right", x.window_right >= 0);
  f->add("logits_soft_cap", x.logits_soft_cap > 0), f->add("sinks", x.sinks);
  const CaseTerms& t = x.terms;
  constexpr size_t kNoAlibi = std::size(kAlibiNames);
  f->add("alibi", kAlibiNames, t.alibi ? static_cast<size_t>(*t.alibi) : kNoAlibi);
  f->add("bias keys", t.key_bias), f->add("bias queries", t.qq_bias);
  f->add("bias distances", t.relative_bias), f->add("temperature", t.temperature_len > 0);
  f->add("attention_chunk", t.attention_chunk > 0), f->add("request_causal", t.request_causal);
  f->add("cache_leftpad", t.cache_leftpad), f->add("bidirectional", t.bidirectional);
  f->add("mask_of_heads", t.mask_of_heads);
  f->add("head_scales", t.head_scales || t.request_head_scales);
  f->add("padded_rows", t.padded_rows);
  f->add("row_scales", t.q_scale != 1 || t.out_scale != 1);
  f->add("custom_mask", kMaskKindNames, x.mask), f->add("layout", kCaseLayoutNames, x.layout);
  f->add("kv_indptr", x.table == PageTable::Form::kCsr);
  f->add("store_kv", x.through_store_kv);
  f->add("i8", x.kv_dtype == DType::kI8);
  f->add("fp8", x.kv_dtype == DType::kE4M3 || x.kv_dtype == DType::kE5M2);
}
void add_features(const MergeCase&, CallFeatures*) {}
void add_features(const RecurrentCase& x, CallFeatures* f) {
  int64_t tokens = 0;
  for (const RecurrentCase::Row& r : x.rows) tokens = std::max<int64_t>(tokens, r.tokens);
  f->add("size tokens", tokens > 129), f->add("size rows", std::ssize(x.rows) > 6);
  f->add("size heads", x.num_v_heads > 9);
  f->add("call", kRecurrentCallNames, x.call);
  f->add("state drafts", x.drafts), f->add("state tree", x.tree);
}
void add_features(const SparseCase& x, CallFeatures* f) {
  int64_t keys = 0;
  for (const SparseCase::Row& r : x.rows) keys = std::max<int64_t>(keys, r.count);
  f->add("size chosen", keys > 200), f->add("size rows", std::ssize(x.rows) > 20);
  f->add("size heads", x.heads > 67);
  f->add("call", kSparseCallNames, x.call);
}

}  // namespace

FeatureCounts all_features(std::span<const Backend* const> backends, bool kernels) {
  FeatureCounts counts;
  for (const Backend* b : backends)
    for (const HistoryFeature& f : kOfHistories)
      if (f.is_served(b->info())) counts["histories " + std::string(f.name)] = 0;
  if (!kernels) return counts;
  for (size_t i = 0; i < std::size(kCaseKernelNames); ++i) {
    Case x;
    x.set_kernel(static_cast<CaseKernel>(i));
    count_features(x, &counts);
  }
  for (auto& [name, cases] : counts) cases = 0;
  return counts;
}

std::vector<FuzzFeature> describe_features() {
  std::vector<FuzzFeature> all;
  for (const HistoryFeature& f : kOfHistories) {
    FuzzFeature& feature =
        all.emplace_back(FuzzFeature{"histories " + std::string(f.name), std::string(f.what)});
    for (const Backend* b : all_backends())
      if (f.is_served(b->info())) feature.backends.push_back(b->info().name);
  }
  for (const auto& [name, cases] : all_features({}, true)) {
    const std::string own = name.substr(name.find(' ') + 1);
    const size_t end = std::min(own.find(' '), own.size());
    const auto* const of = std::ranges::find(kOfCalls, own.substr(0, end), &CallFeature::word);
    all.push_back({name, std::string(of->what) + own.substr(end)});
  }
  return all;
}

void count_features(const History& h, FeatureCounts* counts) {
  for (const HistoryFeature& f : kOfHistories)
    if (f.is_served(h.backend->info()))
      (*counts)["histories " + std::string(f.name)] += f.is_drawn(h);
}

void count_features(const Case& x, FeatureCounts* counts) {
  CallFeatures features(counts);
  features.add("kernel", kCaseKernelNames, x.kernel());
  features.add("data", kCaseDataNames, x.data);
  features.add("threads", x.more_threads > 0), features.add("far", x.far);
  std::visit([&](const auto& call) { add_features(call, &features); }, x.call);
}

}  // namespace shadowgraph
