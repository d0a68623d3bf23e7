#include "faults/merging.h"

#include <algorithm>
#include <utility>

#include "attn/lse.h"
#include "core/float_formats.h"
#include "faults/launches.h"

namespace shadowgraph {
namespace {

using State = Merging::State;

/// Rows before an indptr's last entry; without one all.
int64_t live_rows(const TensorView& out, std::span<const int32_t> indptr) {
  if (indptr.empty()) return out.shape[0];
  return std::clamp<int64_t>(indptr.back(), 0, out.shape[0]);
}

template <class Call>
Merging of_two(const Call& c, std::span<const int32_t> indptr) {
  const AnyLse a(c.s_a), b(c.s_b);
  return {c.out, c.lse, live_rows(c.out, indptr), [=](int64_t row, int64_t head) {
            return std::vector<State>{{a, row, head}, {b, row, head}};
          }};
}

Merging of_tiles(const MergeTiles& c) {
  const int64_t listed = std::max<int64_t>(std::ssize(c.merge_indptr) - 1, 0);
  const int64_t rows = std::min(live_rows(c.out, c.qo_indptr), listed);
  return {c.out, c.lse, rows, [c](int64_t row, int64_t head) {
            const auto at = static_cast<size_t>(row);
            std::vector<State> all;
            for (int64_t r = c.merge_indptr[at]; r < c.merge_indptr[at + 1]; ++r)
              if (r >= 0 && r < c.v.shape[0]) all.push_back({c.s, r, head});
            return all;
          }};
}

/// Its partial results lie [rows, heads, splits].
Merging of_decode(const TritonDecode& c) {
  TensorView lse = c.attn_lse.tensor;
  const int64_t splits = lse.shape[2];
  lse.rank = 2, lse.shape[1] *= splits, lse.stride[1] = lse.stride[2];
  return {c.out, c.lse, std::ssize(c.num_kv_splits), [=](int64_t row, int64_t head) {
            const auto at = static_cast<size_t>(row);
            const int64_t keys = c.kv_indptr[at + 1] - c.kv_indptr[at];
            const int64_t per = keys <= 0 || c.num_kv_splits[at] <= 0
                                    ? 1
                                    : triton_split_keys(keys, c.num_kv_splits[at]);
            std::vector<State> all;
            for (int64_t s = 0; s < std::min(splits, (keys + per - 1) / per); ++s)
              all.push_back({AnyLse(lse, LseBase::kNatural), row, head * splits + s});
            return all;
          }};
}

/// Reads no more than the launch does: a row that one part has whole has no partial results, and
/// one whose splits have no place is lost.
Merging of_mla(const MlaParts& c) {
  const int64_t window = std::max(1, c.max_seqlen_q), tokens = c.out.shape[0];
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(tokens));  // of a token's results
  for (size_t row = 0; row + 1 < c.num_splits.size(); ++row) {
    const int64_t begin = c.num_splits[row], end = c.num_splits[row + 1];
    if (begin < 0 || end - begin < 2 || end * window > c.partial_out.shape[0]) continue;
    const auto starts = c.cu_seqlens_q;
    const int64_t first = starts.empty() ? static_cast<int64_t>(row) : starts[row];
    const int64_t count = starts.empty() ? 1 : std::min(window, starts[row + 1] - first);
    if (first < 0 || first + count > tokens) continue;
    for (int64_t j = 0; j < count; ++j)
      for (int64_t split = begin; split < end; ++split)
        places[static_cast<size_t>(first + j)].push_back(split * window + j);
  }
  return {c.out, c.lse, tokens, [c, places = std::move(places)](int64_t token, int64_t head) {
            std::vector<State> all;
            for (const int64_t place : places[static_cast<size_t>(token)])
              all.push_back({c.partial_lse, place, head});
            return all;
          }};
}

}  // namespace

float Merging::State::raw() const { return load_float(s.tensor.at(row, head), DType::kF32, 0); }

Merging Merging::of(const KernelLaunch& launch) {
  if (launch.kernel == &kMergeTiles) return of_tiles(call_of<MergeTiles>(launch).call);
  if (launch.kernel == &kTritonDecodeStage2) return of_decode(call_of<TritonDecode>(launch).call);
  if (launch.kernel == &kMlaMerge) return of_mla(call_of<MlaParts>(launch).call);
  if (launch.kernel == &kMergePair) {
    const MergePair c = call_of<MergePair>(launch).call;
    return of_two(c, c.qo_indptr);
  }
  const MergeStateCall of = call_of<MergeStateCall>(launch).call;
  MergePair c;
  // AnyLse is of what can be written; here it is only read.
  const auto natural = [](const ConstTensorView& s) {
    TensorView view;
    view.data = const_cast<std::byte*>(s.data);
    view.rank = s.rank, view.shape = s.shape, view.stride = s.stride;
    return AnyLse(view, LseBase::kNatural);
  };
  c.s_a = natural(of.s_a), c.s_b = natural(of.s_b);
  c.out = of.out, c.lse = of.lse;
  return of_two(c, of.cu_seqlens_q);
}

void Merging::set_out(int64_t row, int64_t head, float value) const {
  for (int64_t d = 0; d < out.shape[2]; ++d) store_float(out.at(row, head), out.dtype, d, value);
}

void Merging::set_lse(int64_t row, int64_t head, float natural) const {
  if (!lse.tensor.defined()) return;
  const bool base2 = lse.base == LseBase::kLog2;
  store_float(lse.tensor.at(row, head), DType::kF32, 0,
              base2 ? natural * static_cast<float>(kLog2E) : natural);
}

}  // namespace shadowgraph
