#include "fuzz/features.h"

#include <algorithm>
#include <string_view>

#include "attn/cases/case_names.h"
#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

struct HistoryFeature {
  std::string_view name;
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

constexpr int32_t kOnePage[] = {1};

// Names of ModelConfig's, LayerKind's and RuntimeConfig's members where there is one.
constexpr HistoryFeature kOfHistories[] = {
    {"num_steps", drafts, [](const History& h) { return h.runtime.draft.num_steps > 0; }},
    {"topk", [](const BackendInfo& b) { return b.tree && drafts(b); },
     [](const History& h) { return h.runtime.draft.topk > 1; }},
    {"radix", [](const BackendInfo& b) { return b.shares_prefixes; },
     [](const History& h) { return h.runtime.radix; }},
    {"prebuilt", always, [](const History& h) { return h.runtime.prebuilt; }},
    {"dllm_block", [](const BackendInfo& b) { return has_mode(b, ForwardMode::kDllmExtend); },
     [](const History& h) { return h.runtime.dllm_block > 0; }},
    {"swa_pool", [](const BackendInfo& b) { return b.swa_pool; },
     [](const History& h) { return h.model.swa_pool; }},
    {"max_encoder_len", [](const BackendInfo& b) { return b.encoder; },
     [](const History& h) { return h.model.max_encoder_len > 0; }},
    {"items", [](const BackendInfo& b) { return b.items; },
     [](const History& h) { return h.items; }},
    {"in_graph_tables", [](const BackendInfo& b) { return b.in_graph_tables; },
     [](const History& h) { return h.model.in_graph_tables; }},
    {"prefix_chunk_tokens", [](const BackendInfo& b) { return b.prefix_chunks; },
     [](const History& h) { return h.model.prefix_chunk_tokens > 0; }},
    {"ragged_prefill", [](const BackendInfo& b) { return b.ragged_prefill; },
     [](const History& h) { return h.model.ragged_prefill; }},
    {"two_chunk_below", [](const BackendInfo& b) { return b.halves; },
     [](const History& h) { return h.model.two_chunk_below > 0; }},
    {"dcp_size", [](const BackendInfo& b) { return b.dcp; },
     [](const History& h) { return h.model.dcp_size > 1; }},
    {"track_states", [](const BackendInfo& b) { return b.track_states; },
     [](const History& h) { return h.model.track_states; }},
    {"split.fixed_size", [](const BackendInfo& b) { return !b.batch_splits.empty(); },
     [](const History& h) { return h.model.split.fixed_size > 0; }},
    {"split.off", [](const BackendInfo& b) { return !b.batch_splits.empty(); },
     [](const History& h) { return h.model.split.off; }},
    {"window_left", [](const BackendInfo& b) { return b.dense && b.heads && !b.dual_chunk; },
     [](const History& h) {
       return any_layer(h, [](const LayerKind& k) { return k.params.window_left >= 0; });
     }},
    {"local", [](const BackendInfo& b) { return b.local; },
     [](const History& h) { return any_layer(h, [](const LayerKind& k) { return k.local; }); }},
    {"mla", [](const BackendInfo& b) { return b.dense && b.latent; },
     [](const History& h) { return any_layer(h, [](const LayerKind& k) { return k.mla; }); }},
    {"logits_soft_cap", [](const BackendInfo& b) { return b.dense; },
     [](const History& h) {
       return any_layer(h, [](const LayerKind& k) { return k.params.logits_soft_cap > 0; });
     }},
    {"page_size", [](const BackendInfo& b) { return !std::ranges::equal(b.page_sizes, kOnePage); },
     [](const History& h) { return h.model.page_size > 1; }},
    {"fp8", always, is_8_bit},
    {"plans_ahead", always, [](const History& h) { return h.runner.plans_ahead; }},
};

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

void add_features(const AttentionCase& x, CallFeatures* f) {
  f->add("causal", x.causal);
  f->add("window_left", x.window_left >= 0), f->add("window_right", x.window_right >= 0);
  f->add("logits_soft_cap", x.logits_soft_cap > 0), f->add("sinks", x.sinks);
  f->add("custom_mask", kMaskKindNames, x.mask), f->add("layout", kCaseLayoutNames, x.layout);
  f->add("kv_indptr", x.table == PageTable::Form::kCsr);
  f->add("store_kv", x.through_store_kv);
  f->add("i8", x.kv_dtype == DType::kI8);
  f->add("fp8", x.kv_dtype == DType::kE4M3 || x.kv_dtype == DType::kE5M2);
}
void add_features(const MergeCase&, CallFeatures*) {}
void add_features(const RecurrentCase& x, CallFeatures* f) {
  f->add("call", kRecurrentCallNames, x.call);
  f->add("state drafts", x.drafts), f->add("state tree", x.tree);
}
void add_features(const SparseCase& x, CallFeatures* f) {
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

void count_features(const History& h, FeatureCounts* counts) {
  for (const HistoryFeature& f : kOfHistories)
    if (f.is_served(h.backend->info()))
      (*counts)["histories " + std::string(f.name)] += f.is_drawn(h);
}

void count_features(const Case& x, FeatureCounts* counts) {
  CallFeatures features(counts);
  features.add("kernel", kCaseKernelNames, x.kernel());
  features.add("data", kCaseDataNames, x.data);
  std::visit([&](const auto& call) { add_features(call, &features); }, x.call);
}

}  // namespace shadowgraph
