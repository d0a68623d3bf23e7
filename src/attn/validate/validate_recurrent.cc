#include "attn/validate/validate_recurrent.h"

#include <cmath>
#include <string>
#include <utility>

#include "attn/state_chunks.h"
#include "attn/validate/cache_check.h"
#include "attn/validate/state_check.h"

namespace shadowgraph {
namespace {

struct Dims {
  int64_t tokens = 0, k_heads = 0, v_heads = 0, dim_k = 0, dim_v = 0;
};

bool check_tokens(TensorCheck& c, const LinearAttention& call, Dims* d) {
  bool ok = c.input("v", call.v, {kAny, kAny, kAny}, kWide);
  if (ok) d->tokens = call.v.shape[0], d->v_heads = call.v.shape[1], d->dim_v = call.v.shape[2];
  const bool k_ok = c.input("k", call.k, {ok ? d->tokens : kAny, kAny, kAny}, kWide);
  if (k_ok) d->k_heads = call.k.shape[1], d->dim_k = call.k.shape[2];
  ok &= k_ok;
  ok &= c.input("q", call.q, {ok ? d->tokens : kAny, ok ? d->k_heads : kAny, ok ? d->dim_k : kAny},
                kWide);
  if (!ok) return false;
  if (d->k_heads <= 0 || d->v_heads <= 0 || d->v_heads % d->k_heads != 0) {
    c.fail("param.heads", at("num_v_heads"), "a positive multiple of num_k_heads",
           std::to_string(d->v_heads) + " with " + std::to_string(d->k_heads) + " key heads");
    ok = false;
  }
  ok &=
      check_head_dim(c, "head_dim_k", static_cast<int32_t>(std::min<int64_t>(d->dim_k, INT32_MAX)));
  return check_head_dim(c, "head_dim_v",
                        static_cast<int32_t>(std::min<int64_t>(d->dim_v, INT32_MAX))) &&
         ok;
}

void check_gates(TensorCheck& c, const LinearAttention& call, const Dims& d) {
  switch (call.log_decay.rank) {
    case 1: c.input("log_decay", call.log_decay, {d.v_heads}, kF32); break;
    case 2: c.input("log_decay", call.log_decay, {d.tokens, d.v_heads}, kF32); break;
    default: c.input("log_decay", call.log_decay, {d.tokens, d.v_heads, d.dim_k}, kF32);
  }
  if (call.beta.defined()) c.input("beta", call.beta, {d.tokens, d.v_heads}, kF32);
  if (call.skip.defined()) c.input("skip", call.skip, {d.v_heads}, kF32);
  if (call.z.defined()) c.input("z", call.z, {d.tokens, d.v_heads, d.dim_v}, kWide);
  if (!std::isfinite(call.scale))
    c.fail("param.scale", at("scale"), "finite", std::to_string(call.scale));
}

/// States of some places: [places..., num_v_heads, rows, columns].
std::pair<int64_t, int64_t> matrix(const LinearAttention& call, const Dims& d) {
  return call.order == LinearAttention::StateOrder::kValueKey ? std::pair(d.dim_v, d.dim_k)
                                                              : std::pair(d.dim_k, d.dim_v);
}

void check_draft_states(TensorCheck& c, const LinearAttention& call, const Dims& d, bool rows_ok) {
  const DraftSteps& draft = call.draft;
  const auto [rows, columns] = matrix(call, d);
  int64_t places = 0, steps = 0;
  if (draft.states.defined()) {
    if (!c.output("draft.states", draft.states, {kAny, kAny, d.v_heads, rows, columns}, kWide))
      return;
    places = draft.states.shape[0], steps = draft.states.shape[1];
  } else if (!draft.parents.empty()) {
    c.fail("input.null", at("draft.states"), "what a tree's tokens start from", "undefined");
  }
  if (rows_ok) check_draft(c, draft, call.rows, places, steps);
}

/// A chunk has no states behind its tokens.
void check_form(TensorCheck& c, const LinearAttention& call) {
  if (call.form != LinearAttention::Form::kChunked) return;
  if (call.draft.states.defined())
    c.fail("input.shape", at("draft.states"), "undefined in the chunked form", "defined");
  if (!call.draft.parents.empty())
    c.fail("input.shape", at("draft.parents"), "none in the chunked form",
           std::to_string(call.draft.parents.size()));
}

void check_chunk_states(TensorCheck& c, const LinearAttention& call, const Dims& d, bool rows_ok) {
  if (!call.chunk_states.defined()) return;
  if (call.chunk_size < 1) {
    c.fail("input.shape", at("chunk_size"), ">= 1", std::to_string(call.chunk_size));
    return;
  }
  if (!call.draft.parents.empty())
    c.fail("input.shape", at("chunk_states"), "undefined for a tree", "defined");
  const auto [rows, columns] = matrix(call, d);
  c.output("chunk_states", call.chunk_states,
           {rows_ok ? count_chunks(call) : kAny, d.v_heads, rows, columns}, kWide);
}

}  // namespace

Status validate(const LinearAttention& call) {
  Status status;
  TensorCheck c(&status);
  Dims d;
  const bool ok = check_tokens(c, call, &d);
  bool states_ok = false;
  if (ok) {
    check_gates(c, call, d);
    const auto [rows, columns] = matrix(call, d);
    states_ok = c.output("states", call.states, {kAny, d.v_heads, rows, columns}, kWide);
    c.output("out", call.out, {d.tokens, d.v_heads, d.dim_v}, kWide);
  }
  const bool rows_ok =
      ok && states_ok && check_state_rows(c, call.rows, d.tokens, call.states.shape[0], call.store);
  if (ok) {
    check_form(c, call);
    check_draft_states(c, call, d, rows_ok);
    check_chunk_states(c, call, d, rows_ok);
  }
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
