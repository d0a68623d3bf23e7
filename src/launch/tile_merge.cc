// Merging what a tile launch left, and the two parts of a prefill.
#include <algorithm>

#include "kernels/spans.h"
#include "launch/attention_args.h"
#include "launch/checked_array.h"
#include "launch/tile_launch.h"

namespace shadowgraph {

namespace {

uint8_t byte_of(LseBase base) { return static_cast<uint8_t>(base); }
AnyLse lse_at(const LaunchFrame& f, size_t arg, const RowsScalars& s, uint8_t base) {
  return {view_of(f.pointer<void>(arg), s), static_cast<LseBase>(base)};
}

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

struct TilesArgs {
  enum : uint8_t { kV, kS, kIndptr, kOut, kLse, kQoIndptr, kScalars };
};

struct TilesScalars {
  RowsScalars v, s, out, lse;
  int64_t num_indptr, num_qo_indptr;
  uint8_t s_base, lse_base, unused[6];
};
static_assert(sizeof(TilesScalars) == 4 * sizeof(RowsScalars) + 3 * 8);

/// The kernel, run or only noted.
class Tiles {
 public:
  Tiles(const MergeTiles& c, Footprint* spans)
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

struct PairArgs {
  enum : uint8_t { kVA, kSA, kVB, kSB, kOut, kLse, kQoIndptr, kScalars };
};

struct PairScalars {
  RowsScalars v_a, s_a, v_b, s_b, out, lse;
  int64_t num_qo_indptr;
  uint8_t base_a, base_b, lse_base, unused[5];
};
static_assert(sizeof(PairScalars) == 6 * sizeof(RowsScalars) + 2 * 8);

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

Progress tiles_body(LaunchFrame& f) {
  Tiles(merge_tiles_call(f.launch), nullptr).run();
  return Progress::kDone;
}
void tiles_footprint(const LaunchFrame& f, Footprint* spans) {
  Tiles(merge_tiles_call(f.launch), spans).run();
}

Progress pair_body(LaunchFrame& f) {
  run_pair(merge_pair_call(f.launch), nullptr);
  return Progress::kDone;
}
void pair_footprint(const LaunchFrame& f, Footprint* spans) {
  run_pair(merge_pair_call(f.launch), spans);
}

}  // namespace

constinit const Kernel kMergeTiles{
    .name = "merge_tiles", .body = tiles_body, .footprint = tiles_footprint};
constinit const Kernel kMergePair{
    .name = "merge_pair", .body = pair_body, .footprint = pair_footprint};

MergeTiles merge_tiles_call(const KernelLaunch& launch) {
  using Arg = TilesArgs;
  const LaunchFrame f{launch};
  const auto s = f.scalar<TilesScalars>(Arg::kScalars);
  MergeTiles c;
  c.v = view_of(f.pointer<void>(Arg::kV), s.v);
  c.s = lse_at(f, Arg::kS, s.s, s.s_base);
  c.merge_indptr = array_of<int32_t>(f, Arg::kIndptr, s.num_indptr);
  c.out = view_of(f.pointer<void>(Arg::kOut), s.out);
  c.lse = lse_at(f, Arg::kLse, s.lse, s.lse_base);
  c.qo_indptr = array_of<int32_t>(f, Arg::kQoIndptr, s.num_qo_indptr);
  return c;
}

KernelLaunch merge_tiles_launch(const MergeTiles& c) {
  TilesScalars s{};
  s.v = scalars_of(c.v), s.s = scalars_of(c.s.tensor);
  s.out = scalars_of(c.out), s.lse = scalars_of(c.lse.tensor);
  s.num_indptr = std::ssize(c.merge_indptr);
  s.num_qo_indptr = std::ssize(c.qo_indptr);
  s.s_base = byte_of(c.s.base), s.lse_base = byte_of(c.lse.base);
  KernelLaunch launch = launch_of(kMergeTiles, c.out.shape[0]);
  launch.args.pointer(c.v.data)
      .pointer(c.s.tensor.data)
      .pointer(c.merge_indptr.data())
      .pointer(c.out.data)
      .pointer(c.lse.tensor.data)
      .pointer(c.qo_indptr.data())
      .scalar(s);
  return launch;
}

MergePair merge_pair_call(const KernelLaunch& launch) {
  using Arg = PairArgs;
  const LaunchFrame f{launch};
  const auto s = f.scalar<PairScalars>(Arg::kScalars);
  MergePair c;
  c.v_a = view_of(f.pointer<void>(Arg::kVA), s.v_a);
  c.v_b = view_of(f.pointer<void>(Arg::kVB), s.v_b);
  c.s_a = lse_at(f, Arg::kSA, s.s_a, s.base_a);
  c.s_b = lse_at(f, Arg::kSB, s.s_b, s.base_b);
  c.out = view_of(f.pointer<void>(Arg::kOut), s.out);
  c.lse = lse_at(f, Arg::kLse, s.lse, s.lse_base);
  c.qo_indptr = array_of<int32_t>(f, Arg::kQoIndptr, s.num_qo_indptr);
  return c;
}

KernelLaunch merge_pair_launch(const MergePair& c) {
  PairScalars s{};
  s.v_a = scalars_of(c.v_a), s.s_a = scalars_of(c.s_a.tensor);
  s.v_b = scalars_of(c.v_b), s.s_b = scalars_of(c.s_b.tensor);
  s.out = scalars_of(c.out), s.lse = scalars_of(c.lse.tensor);
  s.num_qo_indptr = std::ssize(c.qo_indptr);
  s.base_a = byte_of(c.s_a.base), s.base_b = byte_of(c.s_b.base), s.lse_base = byte_of(c.lse.base);
  KernelLaunch launch = launch_of(kMergePair, c.out.shape[0]);
  launch.args.pointer(c.v_a.data)
      .pointer(c.s_a.tensor.data)
      .pointer(c.v_b.data)
      .pointer(c.s_b.tensor.data)
      .pointer(c.out.data)
      .pointer(c.lse.tensor.data)
      .pointer(c.qo_indptr.data())
      .scalar(s);
  return launch;
}

}  // namespace shadowgraph
