#include "attn/cases/attention_case.h"

#include <array>
#include <charconv>

#include "attn/cases/case_names.h"

namespace shadowgraph {
namespace {

std::string number(float x) {
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr};
}

}  // namespace

std::string AttentionCase::to_string(std::string_view data) const {
  std::string s = std::string(word(kCaseKernelNames, kernel)) + " " + std::string(data) + " q,kv=";
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
  if (mask != CustomMask::Kind::kNone) s += " mask=" + std::string(word(kMaskKindNames, mask));
  if (k_scale != 1 || v_scale != 1)
    s += " k_scale=" + number(k_scale) + " v_scale=" + number(v_scale);
  s += " page=" + std::to_string(page_size) + " " + std::string(word(kCaseLayoutNames, layout));
  s += table == PageTable::Form::kCsr ? " csr" : " dense";
  return s + (through_store_kv ? " store_kv" : "");
}

std::string MergeCase::to_string(std::string_view data) const {
  return std::string(word(kCaseKernelNames, CaseKernel::kMergeStates)) + " " + std::string(data) +
         " rows=" + std::to_string(rows) + " states=" + std::to_string(states) +
         " heads=" + std::to_string(heads) + " dim=" + std::to_string(head_dim) + " " +
         std::string(name_of(dtype)) + "/" + std::string(name_of(out_dtype)) +
         (lse_base == LseBase::kLog2 ? " log2" : " natural");
}

}  // namespace shadowgraph
