#include "attn/case.h"

#include <array>
#include <charconv>

namespace shadowgraph {
namespace {

constexpr std::array<const char*, 4> kKernels = {"decode_paged", "prefill_paged", "prefill_ragged",
                                                 "merge_states"};
constexpr std::array<const char*, 4> kData = {"uniform", "selector", "random", "peaked"};
constexpr std::array<const char*, 6> kLayouts = {"nhd",         "hnd",        "stacked_nhd",
                                                 "stacked_hnd", "mla_latent", "panels"};
constexpr std::array<const char*, 3> kMasks = {"none", "bool", "packed"};

template <class Names, class Enum>
std::string name(const Names& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

std::string number(float x) {
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr};
}

}  // namespace

std::string Case::to_string() const {
  std::string s = name(kKernels, kernel) + " " + name(kData, data) + " q,kv=";
  for (size_t i = 0; i < requests.size(); ++i) {
    s += (i ? "|" : "") + std::to_string(requests[i].q_len) + "," +
         std::to_string(requests[i].kv_len);
  }
  s += " heads=" + std::to_string(num_qo_heads) + "/" + std::to_string(num_kv_heads);
  s += " dims=" + std::to_string(head_dim_qk) + "/" + std::to_string(head_dim_vo);
  s += " " + std::string(name_of(q_dtype)) + "/" + std::string(name_of(kv_dtype)) + "/" +
       std::string(name_of(out_dtype));
  s += " scale=" + number(sm_scale);
  if (causal) s += " causal";
  if (window_left >= 0) s += " window_left=" + std::to_string(window_left);
  if (window_right >= 0) s += " window_right=" + std::to_string(window_right);
  if (logits_soft_cap != 0) s += " soft_cap=" + number(logits_soft_cap);
  if (sinks) s += lse_sink == LseSink::kIncluded ? " sinks(in lse)" : " sinks";
  if (mask != CustomMask::Kind::kNone) s += " mask=" + name(kMasks, mask);
  if (k_scale != 1 || v_scale != 1)
    s += " k_scale=" + number(k_scale) + " v_scale=" + number(v_scale);
  if (kernel == CaseKernel::kMergeStates)
    return s + (lse_base == LseBase::kLog2 ? " log2" : " natural");
  s += " page=" + std::to_string(page_size) + " " + name(kLayouts, layout);
  s += table == PageTable::Form::kCsr ? " csr" : " dense";
  if (through_store_kv) s += " store_kv";
  return s + " seed=" + std::to_string(seed);
}

}  // namespace shadowgraph
