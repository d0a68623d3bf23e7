// One shape for both kinds of call: paged or ragged is only a matter of where token t lies. And the
// two steps that every attention kernel shares: describe a block of rows to an instruction-set
// unit, and finish rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/lse.h"
#include "attn/mask.h"
#include "kernels/isa/units.h"
#include "kernels/unit.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// One request as the kernels see it.
struct RequestView {
  int64_t q_begin = 0;  // its first row in q
  int32_t q_len = 0, kv_len = 0;
  int32_t rows = 0;                   // queries that are computed, the first ones
  const int32_t* page_ids = nullptr;  // null: ragged
  int64_t first_token = 0;            // ragged: its first row in k and v
  int32_t index = 0;                  // its number in the batch
};

struct Problem {
  ConstTensorView q;
  KvTokens k, v;  // at head 0
  int32_t page_size = 1;
  float k_scale = 1, v_scale = 1;
  AttentionParams params;
  TensorView out, lse;
  CallOptions options;
  const Isa* isa = nullptr;  // the chosen one
  std::vector<RequestView> requests;

  int32_t group() const { return params.num_qo_heads / params.num_kv_heads; }
};

/// Both require a call that validate() accepts, and an instruction set that the machine has.
Problem make_problem(const PagedAttention& call);
Problem make_problem(const RaggedAttention& call);

/// The mask of a request, without the custom one.
MaskShape mask_of(const Problem& p, const RequestView& r);
/// The multiplier of q.k, and of the weighted mean of values, of a request and KV head.
double logit_scale(const Problem& p, const RequestView& r, int32_t kv_head);
float value_scale(const Problem& p, const RequestView& r, int32_t kv_head);
/// K, and V, of a request and KV head.
KvTokens keys_at(const Problem& p, const RequestView& r, int32_t kv_head);
KvTokens values_at(const Problem& p, const RequestView& r, int32_t kv_head);
/// Tokens [q_begin, q_begin + tokens) of a request, for one KV head; keys, tile, results and
/// scratch are left to the caller. masks has `tokens` rows.
AttendUnit make_unit(const Problem& p, const RequestView& r, int32_t kv_head, int32_t q_begin,
                     int32_t tokens, const RowMask* masks);
/// Where `tokens` queries of a request lie in q, or out, from query head qo_head on.
RowsAhead rows_ahead(const ConstTensorView& t, const RequestView& r, int32_t qo_head,
                     int32_t q_begin, int32_t tokens);
/// The mask of query token q of the request with that number; first_pair is that of head 0.
RowMask row_mask(const Problem& p, int64_t request, int32_t q);
/// From a head's pairs to those of the next one, where heads have masks of their own; else 0.
int64_t pairs_a_head(const Problem& p, int64_t request);

/// The engine's own base.
using RowState = SoftmaxState<LseBase::kLog2>;

/// A row's state becomes out: joins the sink (null: none), divides, scales by row.v_scale, rounds
/// to row.dtype. row.o is not read where the state is empty; its weight and d are ours. Returns the
/// state whose LSE is asked for.
RowState finish_row(const Isa& isa, RowState state, const float* sink, LseSink counted,
                    FinishRow&& row);
RowState finish_row(const Problem& p, const RequestView& r, int64_t row, int32_t qo_head,
                    RowState state, const float* o);
void store_lse(const Problem& p, int64_t row, int32_t qo_head, const RowState& state);

}  // namespace shadowgraph
