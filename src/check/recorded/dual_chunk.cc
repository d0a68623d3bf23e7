// Judging dual-chunk attention: three calls of the engine for each chunk that a row's queries
// touch, merged by their natural LSE, against one softmax over all keys.
#include "backends/fill/local_attention.h"
#include "check/bounds/compare.h"
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

/// A few operations in double; neither the file's logarithm nor ours need be rounded right.
constexpr double kChunksInDouble = 0x1p-50;

/// Rows [first, first + count) of a view.
template <class View>
View rows_at(View t, int64_t first, int64_t count) {
  t.data += first * t.stride[0] * static_cast<int64_t>(size_of(t.dtype));
  t.shape[0] = count;
  return t;
}

/// A view without its second axis, at `place`.
TensorView column_at(TensorView t, size_t place) {
  t.data += static_cast<int64_t>(place) * t.stride[1] * static_cast<int64_t>(size_of(t.dtype));
  for (size_t i = 1; i + 1 < static_cast<size_t>(t.rank); ++i)
    t.shape[i] = t.shape[i + 1], t.stride[i] = t.stride[i + 1];
  --t.rank;
  return t;
}

class DualChunkJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const DualChunkCase& c) {
    judge_factors(c);
    set_parts(c.attention);
    if (!run_ours(c.attention)) return;
    how_.prefix = "ours.", how_.parts = parts_;
    take(shadowgraph::judge(c.attention, {out_, lse_}, *find_arithmetic("ours_merged"), how_),
         &verdict_.ours);
    const Recorded& ref = c_.reference;
    take(shadowgraph::judge(c.attention, {ref.out, ref.lse}, *find_arithmetic("float64"),
                            {"num.reference", "num.reference", true, "ref."}),
         &verdict_.reference);
  }

 private:
  void judge_factors(const DualChunkCase& c) {
    ArrayJudge factors = array(Whose::kReference, "scaling");
    for (int64_t r = 0; r < c.recorded_factors.numel(); ++r) {
      const int32_t len = c.orig_lens.empty() ? 0 : c.orig_lens[static_cast<size_t>(r)];
      const double right = dual_chunk_factor(len, c.original_max_position);
      factors.take(r, 0, element(c.recorded_factors, r), right, kChunksInDouble * right);
    }
    settle(factors, Whose::kReference);
  }

  /// Results that are merged into each query's.
  void set_parts(const DualChunkCall<RaggedAttention>& dual) {
    const RaggedAttention& call = dual.call;
    for (size_t r = 0; r + 1 < call.cu_seqlens_q.size(); ++r) {
      const int32_t queries = call.cu_seqlens_q[r + 1] - call.cu_seqlens_q[r];
      const int32_t keys = call.cu_seqlens_k[r + 1] - call.cu_seqlens_k[r];
      for (int32_t p = keys - queries; p < keys; ++p)
        parts_.push_back(dual.queries.chunks.parts(p));
    }
  }

  TensorView empty(DType dtype, std::initializer_list<int64_t> shape) {
    return memory_.of(TensorView(nullptr, dtype, shape));
  }

  bool run_ours(const DualChunkCall<RaggedAttention>& dual) {
    const RaggedAttention& call = dual.call;
    const AttentionParams& p = call.params;
    const int64_t tokens = std::ssize(parts_), heads = p.num_qo_heads, dim = p.head_dim_vo;
    const TensorView v = empty(DType::kF32, {tokens, 3, heads, dim});
    const TensorView s = empty(DType::kF32, {tokens, 3, heads});
    for (size_t r = 0; r + 1 < call.cu_seqlens_q.size(); ++r)
      if (!run_row(dual, r, v, s)) return false;
    out_ = empty(c_.dtype, {tokens, heads, dim});
    lse_ = empty(DType::kF32, {tokens, heads});
    MergeStates<LseBase::kNatural> merge;
    merge.v = v, merge.s = s;
    merge.out = out_, merge.lse = NaturalLse(lse_);
    return take_refused(merge_states(merge));
  }

  /// v, s [tokens, 3, heads, ...]: of each part.
  bool run_row(const DualChunkCall<RaggedAttention>& dual, size_t r, const TensorView& v,
               const TensorView& s) {
    const RaggedAttention& call = dual.call;
    const int32_t first_q = call.cu_seqlens_q[r], first_k = call.cu_seqlens_k[r];
    RequestExtent e{0, call.cu_seqlens_q[r + 1] - first_q, call.cu_seqlens_k[r + 1] - first_k};
    e.prefix_len = e.kv_len - e.q_len;
    bool ok = true;
    for_each_local_row(e, dual.queries.chunks.chunk_len, [&](const LocalRow& row) {
      const int32_t last = row.first_key + row.kv_len - 1;
      const int64_t at = first_q + last + 1 - row.q_len - e.prefix_len;
      for (const ChunkPart part : kChunkParts) {
        const auto i = static_cast<size_t>(part);
        const KvRange keys = dual.queries.chunks.range(part, last);
        RaggedAttention one = call;
        one.params.causal = part == ChunkPart::kIntra;
        if (!dual.queries.scales.empty()) one.params.sm_scale = dual.queries.scales[r];
        one.q = rows_at(dual.queries.q[i], at, row.q_len);
        one.k = rows_at(call.k, first_k + keys.begin, keys.size());
        one.v = rows_at(call.v, first_k + keys.begin, keys.size());
        const int32_t cu_q[] = {0, row.q_len}, cu_k[] = {0, keys.size()};
        one.cu_seqlens_q = cu_q, one.cu_seqlens_k = cu_k;
        one.out = rows_at(column_at(v, i), at, row.q_len);
        one.lse = NaturalLse(rows_at(column_at(s, i), at, row.q_len));
        ok = ok && take_refused(attention_varlen(one));
      }
    });
    return ok;
  }

  void take(Judgement j, ErrorRatios* ratios) {
    if (ratios == &verdict_.ours) verdict_.rows += j.rows;
    verdict_.unbounded_rows += j.unbounded_rows;
    ratios->out = std::max(ratios->out.value_or(0), j.error_over_bound);
    ratios->lse = std::max(ratios->lse.value_or(0), j.lse_error_over_bound);
    verdict_.findings.add(std::move(j.findings));
  }

  JudgeOptions how_;
  std::vector<int32_t> parts_;  // [tokens]
  TensorView out_, lse_;
};

}  // namespace

RecordedVerdict judge_call(const DualChunkCase& call, const RecordedCase& c) {
  return judged<DualChunkJudge>(call, c);
}

}  // namespace shadowgraph
