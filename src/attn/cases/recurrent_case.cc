#include "attn/cases/recurrent_case.h"

#include "attn/cases/case_names.h"
#include "shadowgraph/dtype.h"

namespace shadowgraph {
namespace {

std::string type(DType t) { return std::string(name_of(t)); }

/// "5|3z|2p": tokens; z from zero, p padding.
std::string rows_of(const RecurrentCase& x) {
  std::string s;
  for (const RecurrentCase::Row& r : x.rows) {
    s += (s.empty() ? "" : "|") + std::to_string(r.tokens);
    if (!r.slot) {
      s += 'p';
    } else if (!r.initial) {
      s += 'z';
    }
  }
  return s;
}

std::string drafts_of(const RecurrentCase& x) {
  if (!x.drafts && !x.tree) return "";
  std::string s = x.tree ? " tree" : " chain";
  if (x.drafts) s += " kept";
  if (x.drafts && x.call == RecurrentCase::Call::kAttention) s += " in " + type(x.draft_dtype);
  return s + (x.of_padding ? "" : ", not of padding");
}

std::string recurrence(const RecurrentCase& x) {
  std::string s = " " + std::string(word(kRuleNames, x.rule));
  if (x.form == LinearAttention::Form::kChunked) s += " chunked";
  s += " heads=" + std::to_string(x.num_v_heads) + "/" + std::to_string(x.num_k_heads);
  s += " dims=" + std::to_string(x.head_dim_k) + "/" + std::to_string(x.head_dim_v);
  s += " " + type(x.dtype) + "/" + type(x.state_dtype) + "/" + type(x.out_dtype);
  s += x.order == LinearAttention::StateOrder::kValueKey ? "" : " key_value";
  s += " decay=" + std::to_string(x.decay_rank) + "d";
  if (x.scale != 1) s += " scale=" + std::to_string(x.scale);
  for (const auto& [has, word] : {std::pair(x.beta, " beta"), std::pair(x.l2norm, " l2norm"),
                                  std::pair(x.skip, " skip"), std::pair(x.z, " z")})
    if (has) s += word;
  if (!x.store) s += " not stored";
  if (x.chunk_size > 0)
    s += " chunks=" + std::to_string(x.chunk_size) +
         (x.chunk_grid == ChunkGrid::kRow ? " a row" : " of all") + " in " + type(x.chunk_dtype);
  return s + drafts_of(x);
}

std::string convolution(const RecurrentCase& x) {
  std::string s =
      " dim=" + std::to_string(x.dim) + " width=" + std::to_string(x.width) + " " + type(x.dtype);
  if (x.bias) s += " bias";
  if (x.silu) s += " silu";
  return s + drafts_of(x);
}

std::string gate_of(const RecurrentCase& x) {
  std::string s =
      " " + std::string(word(kGateKindNames, x.gate)) + " heads=" + std::to_string(x.num_v_heads);
  if (x.decay_rank == 3) s += " channels=" + std::to_string(x.head_dim_k);
  s += " " + type(x.dtype);
  if (x.dt_bias) s += " dt_bias";
  if (x.b) s += " b";
  return s;
}

}  // namespace

std::string RecurrentCase::to_string(std::string_view data) const {
  std::string s = std::string(word(kRecurrentCallNames, call)) + " " + std::string(data);
  s += " rows=" + rows_of(*this);
  if (call == Call::kGate) return s + gate_of(*this);
  s += " pad=" + std::string(word(kPadRowNames, pad));
  return s + (call == Call::kAttention ? recurrence(*this) : convolution(*this));
}

}  // namespace shadowgraph
