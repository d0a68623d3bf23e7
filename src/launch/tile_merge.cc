// Merging what a tile launch left, and the two parts of a prefill.
#include <algorithm>

#include "kernels/spans.h"
#include "launch/checked_array.h"
#include "launch/tile_launch.h"

namespace shadowgraph {

namespace {

/// Rows of out that are no padding; those that it does not have are noted.
int64_t live_rows(std::span<const int32_t> qo_indptr, const TensorView& out, Footprint* spans) {
  if (qo_indptr.empty()) return out.shape[0];
  const int64_t rows = std::max(0, qo_indptr.back());
  if (spans != nullptr) {
    spans->push_back(
        {qo_indptr.data(), std::ssize(qo_indptr) - 1, 1, sizeof(int32_t), Access::kRead});
    if (rows > out.shape[0])
      spans->push_back({out.data, out.offset(out.shape[0]), (rows - out.shape[0]) * out.stride[0],
                        element_bytes(out.dtype), Access::kWrite});
  }
  return std::min(rows, out.shape[0]);
}

/// fn(an integral constant): the base as a type.
template <class Fn>
void with_base(LseBase base, const Fn& fn) {
  if (base == LseBase::kLog2) return fn(std::integral_constant<LseBase, LseBase::kLog2>());
  fn(std::integral_constant<LseBase, LseBase::kNatural>());
}

/// The kernel, run or only noted.
class TileMerge {
 public:
  TileMerge(const MergeTiles& c, Footprint* spans)
      : spans_(spans),
        v_(c.v),
        s_(c.s),
        out_(c.out),
        lse_(c.lse),
        indptr_(c.merge_indptr.data(), std::ssize(c.merge_indptr), spans),
        rows_(live_rows(c.qo_indptr, out_, spans)) {
    const int64_t entries = std::min(std::ssize(c.merge_indptr), rows_ + 1);
    const auto indptr = c.merge_indptr.first(static_cast<size_t>(entries));
    for (size_t t = 1; t < indptr.size(); ++t)
      most_ = std::clamp<int64_t>(int64_t{indptr[t]} - indptr[t - 1], most_, v_.shape[0]);
  }

  void run() {
    with_base(s_.base, [&](auto base) {
      RowMerge<base()> merge(most_, out_.shape[2], spans_);
      for (int64_t t = 0; t < rows_; ++t) merge_row(t, merge);
    });
  }

 private:
  template <LseBase Base>
  void merge_row(int64_t t, RowMerge<Base>& merge) {
    const auto begin = indptr_.load(t, -1), end = indptr_.load(t + 1, -1);
    if (!begin || !end || *begin < 0 || *begin > *end || *end > v_.shape[0]) {
      if (begin && end && spans_ != nullptr) {
        const int64_t first = std::max(*begin, 0);
        add_rows_beyond(spans_, v_, first, *end - first, -1);
        add_rows_beyond(spans_, s_.tensor, first, *end - first, -1);
      }
      lose_row(out_, t, -1, spans_);
      return lose_row(lse_.tensor, t, -1, spans_);
    }
    for (int64_t head = 0; head < out_.shape[1]; ++head) {
      merge.clear();
      for (int64_t row = *begin; row < *end; ++row) merge.add(v_, s_, row, head);
      merge.finish(out_, lse_, t, head);
    }
  }
  Footprint* spans_;
  ConstTensorView v_;
  AnyLse s_;
  TensorView out_;
  AnyLse lse_;
  CheckedArray<const int32_t> indptr_;
  int64_t rows_, most_ = 0;
};

void run_pair(const MergePair& c, Footprint* spans) {
  const int64_t rows = live_rows(c.qo_indptr, c.out, spans);
  // In base 2 where one of the two is: merging rounds less there, which pays for a conversion.
  with_base(c.s_a.base == LseBase::kLog2 ? c.s_a.base : c.s_b.base, [&](auto base) {
    RowMerge<base()> merge(2, c.out.shape[2], spans);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t head = 0; head < c.out.shape[1]; ++head) {
        merge.clear();
        merge.add(c.v_a, c.s_a, t, head);
        merge.add(c.v_b, c.s_b, t, head);
        merge.finish(c.out, c.lse, t, head);
      }
    }
  });
}

void merge_pair(const MergePair& c) { run_pair(c, nullptr); }

}  // namespace

constinit const Kernel kMergeTiles = walked_kernel<MergeTiles, TileMerge>("merge_tiles");
constinit const Kernel kMergePair = launch_kernel<MergePair, merge_pair, run_pair>("merge_pair");

KernelLaunch merge_tiles_launch(const MergeTiles& call) {
  return launch_of(kMergeTiles, call, {}, call.out.shape[0]);
}

KernelLaunch merge_pair_launch(const MergePair& call) {
  return launch_of(kMergePair, call, {}, call.out.shape[0]);
}

}  // namespace shadowgraph
