#include "kernels/dense/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attn/page_table.h"
#include "attn/request_terms.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

KvTokens tokens_of(const KvPlane& p) {
  return {p.data,
          p.dtype,
          p.order,
          p.page_stride,
          p.token_stride,
          p.head_stride,
          p.head_dim,
          p.scales,
          p.scale_page_stride,
          p.scale_token_stride,
          p.scale_head_stride};
}

KvTokens tokens_of(const ConstTensorView& t) {
  return {t.data,
          t.dtype,
          KvOrder::kStrided,
          0,
          t.stride[0],
          t.stride[1],
          static_cast<int32_t>(t.shape[2])};
}

/// A request's tokens of one KV head.
KvTokens tokens_at(const KvTokens& kv, const RequestView& r, int32_t kv_head) {
  KvTokens tokens = at_head(kv, kv_head);
  tokens.data += r.first_token * kv.token_stride * static_cast<int64_t>(size_of(kv.dtype));
  return tokens;
}

}  // namespace

Problem make_problem(const PagedAttention& call) {
  Problem p;
  p.q = call.q;
  p.k = tokens_of(call.cache.k);
  p.v = tokens_of(call.cache.v);
  p.page_size = call.cache.page_size;
  p.k_scale = call.cache.k_scale;
  p.v_scale = call.cache.v_scale;
  p.params = call.params;
  p.out = call.out;
  p.lse = call.lse.tensor;
  p.options = call.options;
  p.isa = find_isa(call.options.isa);
  p.requests.reserve(static_cast<size_t>(call.pages.batch()));
  for (int64_t i = 0; i < call.pages.batch(); ++i) {
    const RequestPages pages = request_pages(call.pages, p.page_size, i);
    RequestView r = {i, 1, pages.kv_len, 1, pages.page_ids, 0};
    if (!call.cu_seqlens_q.empty()) {
      r.q_begin = call.cu_seqlens_q[static_cast<size_t>(i)];
      const int32_t rows =
          call.cu_seqlens_q[static_cast<size_t>(i) + 1] - call.cu_seqlens_q[static_cast<size_t>(i)];
      r.q_len = used_rows(call.params.terms.seqused_q, static_cast<size_t>(i), rows);
      r.rows = launched_rows(r.q_len, call.max_seqlen_q);
    }
    r.index = static_cast<int32_t>(i);
    p.requests.push_back(r);
  }
  return p;
}

Problem make_problem(const RaggedAttention& call) {
  Problem p;
  p.q = call.q;
  p.k = tokens_of(call.k);
  p.v = tokens_of(call.v);
  p.k_scale = call.k_scale;
  p.v_scale = call.v_scale;
  p.params = call.params;
  p.out = call.out;
  p.lse = call.lse.tensor;
  p.options = call.options;
  p.isa = find_isa(call.options.isa);
  p.requests.reserve(call.cu_seqlens_q.size());
  for (size_t i = 0; i + 1 < call.cu_seqlens_q.size(); ++i) {
    const int32_t q_begin = call.cu_seqlens_q[i], k_begin = call.cu_seqlens_k[i];
    const AttentionTerms& t = call.params.terms;
    const int32_t q_len = used_rows(t.seqused_q, i, call.cu_seqlens_q[i + 1] - q_begin);
    const int32_t kv_len = used_rows(t.seqused_k, i, call.cu_seqlens_k[i + 1] - k_begin);
    p.requests.push_back({q_begin, q_len, kv_len, launched_rows(q_len, call.max_seqlen_q), nullptr,
                          k_begin, static_cast<int32_t>(i)});
  }
  return p;
}

MaskShape mask_of(const Problem& p, const RequestView& r) {
  return MaskShape::of(p.params, r.index, r.q_len, r.kv_len);
}

double logit_scale(const Problem& p, const RequestView& r, int32_t kv_head) {
  const AttentionTerms& t = p.params.terms;
  return static_cast<double>(p.params.sm_scale) * p.k_scale * t.q_scale *
         head_scale(t.k_scales, r.index, kv_head, p.params.num_kv_heads);
}

float value_scale(const Problem& p, const RequestView& r, int32_t kv_head) {
  const AttentionTerms& t = p.params.terms;
  return static_cast<float>(static_cast<double>(p.v_scale) * t.out_scale *
                            head_scale(t.v_scales, r.index, kv_head, p.params.num_kv_heads));
}

KvTokens keys_at(const Problem& p, const RequestView& r, int32_t kv_head) {
  return tokens_at(p.k, r, kv_head);
}

KvTokens values_at(const Problem& p, const RequestView& r, int32_t kv_head) {
  return tokens_at(p.v, r, kv_head);
}

AttendUnit make_unit(const Problem& p, const RequestView& r, int32_t kv_head, int32_t q_begin,
                     int32_t tokens, const RowMask* masks) {
  AttendUnit u;
  u.q = p.q.at(r.q_begin + q_begin, kv_head * p.group());
  u.q_dtype = p.q.dtype;
  u.q_token_stride = p.q.stride[0];
  u.q_head_stride = p.q.stride[1];
  u.tokens = tokens;
  u.group = p.group();
  u.k = keys_at(p, r, kv_head);
  u.v = values_at(p, r, kv_head);
  u.page_ids = r.page_ids;
  u.page_size = p.page_size;
  u.masks = masks;
  u.mask_kind = p.params.custom_mask.kind;
  u.custom_mask = p.params.custom_mask.data.data();
  const double scale = logit_scale(p, r, kv_head);
  const double cap = p.params.logits_soft_cap;
  u.scale = static_cast<float>(cap == 0 ? scale * kLog2E : scale / cap);
  u.soft_cap = static_cast<float>(cap * kLog2E);
  u.o_stride = round_up(p.params.head_dim_vo, kPanel);
  return u;
}

RowsAhead rows_ahead(const ConstTensorView& t, const RequestView& r, int32_t qo_head,
                     int32_t q_begin, int32_t tokens) {
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  return {t.at(r.q_begin + q_begin, qo_head), t.stride[0] * size, t.stride[1] * size,
          t.shape[2] * size, tokens};
}

RowMask row_mask(const Problem& p, int64_t request, int32_t q) {
  const RequestView& r = p.requests[static_cast<size_t>(request)];
  const KvRange range = kv_range(mask_of(p, r), q);
  RowMask mask = {range.begin, range.end, 0};
  const CustomMask& custom = p.params.custom_mask;
  if (custom.kind != CustomMask::Kind::kNone) {
    const int64_t pairs_a_byte = custom.kind == CustomMask::Kind::kPacked ? 8 : 1;
    mask.first_pair =
        custom.mask_indptr[static_cast<size_t>(request)] * pairs_a_byte + int64_t{q} * r.kv_len;
  }
  return mask;
}

int64_t pairs_a_head(const Problem& p, int64_t request) {
  const RequestView& r = p.requests[static_cast<size_t>(request)];
  return p.params.custom_mask.heads > 1 ? int64_t{r.q_len} * r.kv_len : 0;
}

RowState finish_row(const Isa& isa, RowState state, const float* sink, LseSink counted,
                    FinishRow&& row) {
  // A sink is one more state: its logit, weight 1, no value.
  RowState with_sink = state;
  row.weight = 1;
  if (sink != nullptr) {
    const RowState parts[] = {state, RowState::from_lse(static_cast<float>(*sink * kLog2E))};
    float weights[2];
    with_sink = merge<LseBase::kLog2>(parts, weights);
    row.weight = weights[0];
  }
  row.d = with_sink.d;
  if (state.has_mass()) {
    isa.finish(row);
  } else {
    std::memset(row.out, 0, static_cast<size_t>(row.count) * size_of(row.dtype));
  }
  return counted == LseSink::kIncluded ? with_sink : state;
}

RowState finish_row(const Problem& p, const RequestView& r, int64_t row, int32_t qo_head,
                    RowState state, const float* o) {
  const float* sink =
      p.params.sinks.empty() ? nullptr : &p.params.sinks[static_cast<size_t>(qo_head)];
  return finish_row(*p.isa, state, sink, p.options.lse_sink,
                    {o, p.params.head_dim_vo, 1, 1, value_scale(p, r, qo_head / p.group()),
                     p.out.at(row, qo_head), p.out.dtype});
}

void store_lse(const Problem& p, int64_t row, int32_t qo_head, const RowState& state) {
  store_float(p.lse.at(row, qo_head), DType::kF32, 0, lse_of<LseBase::kNatural>(state));
}

}  // namespace shadowgraph
