// The words for what a Case is made of, in lines and in files; each table in the order of its
// enumeration.
#pragma once

#include <string_view>

namespace shadowgraph {

inline constexpr std::string_view kCaseKernelNames[] = {
    "decode_paged", "prefill_paged", "prefill_ragged", "merge_states", "linear", "sparse"};
inline constexpr std::string_view kCaseDataNames[] = {"uniform", "selector", "random",
                                                      "peaked",  "shifted",  "huge"};
inline constexpr std::string_view kCaseLayoutNames[] = {"nhd",         "hnd",        "stacked_nhd",
                                                        "stacked_hnd", "mla_latent", "panels"};
inline constexpr std::string_view kMaskKindNames[] = {"none", "bool", "packed"};
inline constexpr std::string_view kAlibiNames[] = {"linear", "distance", "sqrt"};

inline constexpr std::string_view kRecurrentCallNames[] = {"linear_attention", "causal_conv1d",
                                                           "decay_gate"};
inline constexpr std::string_view kPadRowNames[] = {"skip", "zero_out", "from_zero"};
inline constexpr std::string_view kRuleNames[] = {"add", "delta"};
inline constexpr std::string_view kFormNames[] = {"recurrent", "chunked"};
inline constexpr std::string_view kStateOrderNames[] = {"value_key", "key_value"};
inline constexpr std::string_view kChunkGridNames[] = {"row", "tokens"};
inline constexpr std::string_view kSparseCallNames[] = {
    "sparse_attention",  "pack_latents",   "act_quant",      "store_index_keys",
    "gather_index_keys", "indexer_logits", "select_indices", "transform_indices",
    "compact_indices",   "compress",       "pool_norm_rope", "norm_rope"};
inline constexpr std::string_view kLatentNames[] = {"rows", "dsa", "v4"};
inline constexpr std::string_view kGateKindNames[] = {"softplus", "lower_bound", "step"};

/// The word of an enumerator in its table.
template <class Names, class Enum>
constexpr std::string_view word(const Names& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

}  // namespace shadowgraph
