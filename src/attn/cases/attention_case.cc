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

std::string describe(const CaseTerms& t) {
  std::string s;
  if (t.alibi) s += " alibi=" + std::string(word(kAlibiNames, *t.alibi));
  if (t.key_bias) s += " key_bias";
  if (t.qq_bias) s += " qq_bias";
  if (t.relative_bias) s += " relative_bias";
  if (t.temperature_len > 0) s += " temperature_len=" + std::to_string(t.temperature_len);
  if (t.attention_chunk > 0) {
    s += " attention_chunk=" + std::to_string(t.attention_chunk) +
         " chunk_lookback=" + std::to_string(t.chunk_lookback);
  }
  if (t.request_causal) s += " request_causal";
  if (t.cache_leftpad) s += " cache_leftpad";
  if (t.bidirectional) s += " bidirectional";
  if (t.mask_of_heads) s += " mask_of_heads";
  if (t.head_scales) s += " head_scales";
  if (t.request_head_scales) s += " request_head_scales";
  if (t.q_scale != 1) s += " q_scale=" + number(t.q_scale);
  if (t.out_scale != 1) s += " out_scale=" + number(t.out_scale);
  if (t.padded_rows) s += " padded_rows";
  return s;
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
  s += describe(terms);
  if (nan) s += " nan";
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
