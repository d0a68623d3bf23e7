#include "launch/triton_launch.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "launch/partial_rows.h"
#include "launch/slot_list.h"

namespace shadowgraph {

namespace {

/// [rows, heads, splits(, dim)] with heads and splits as one axis.
TensorView flat(const TensorView& t) {
  assert(t.stride[1] == t.shape[2] * t.stride[2]);
  TensorView flat = t;
  flat.rank = t.rank - 1;
  flat.shape = {t.shape[0], t.shape[1] * t.shape[2], t.shape[3]};
  flat.stride = {t.stride[0], t.stride[2], t.stride[3]};
  return flat;
}
/// A row's keys, and how many of them a split has.
struct Splits {
  int64_t begin, keys, count, per;
  int64_t first(int64_t split) const { return split * per; }
  int64_t size(int64_t split) const { return std::min(per, keys - first(split)); }
};

/// What both stages read, and both take to be so.
class Decode {
 protected:
  Decode(const TritonDecode& c, Footprint* spans)
      : spans_(spans),
        params_(c.params),
        logits_(flat(c.attn_logits)),
        attn_lse_(flat(c.attn_lse.tensor)),
        max_splits_(c.attn_logits.shape[2]),
        indptr_(c.kv_indptr.data(), std::ssize(c.kv_indptr), spans),
        splits_(c.num_kv_splits.data(), std::ssize(c.num_kv_splits), spans) {}

  /// Nothing where the row cannot be cut.
  std::optional<Splits> splits_of(int32_t row) {
    const int64_t begin = *indptr_.load(row, row), end = *indptr_.load(row + 1, row);
    const int64_t count = *splits_.load(row, row);
    if (begin < 0 || end < begin || count <= 0) return {};
    const int64_t per = triton_split_keys(end - begin, count);
    const int64_t used = per > 0 ? (end - begin + per - 1) / per : 0;
    return Splits{begin, end - begin, std::min(used, max_splits_), per};
  }
  int32_t rows() const { return static_cast<int32_t>(splits_.size()); }

  Footprint* spans_;
  AttentionParams params_;
  TensorView logits_, attn_lse_;
  int64_t max_splits_;

 private:
  CheckedArray<const int32_t> indptr_, splits_;
};

class Stage1 : Decode {
 public:
  Stage1(const TritonDecode& c, Footprint* spans)
      : Decode(c, spans), q_(c.q), slots_(c.kv_indices, c.cache, spans) {
    params_.sinks = {};
  }

  void run() {
    for (int32_t row = 0; row < rows(); ++row) {
      const std::optional<Splits> splits = splits_of(row);
      if (!splits) {
        lose_row(logits_, row, row, spans_);
        lose_row(attn_lse_, row, row, spans_);
        continue;
      }
      for (int64_t split = 0; split < splits->count; ++split) run_split(row, *splits, split);
    }
  }

 private:
  void run_split(int32_t row, const Splits& splits, int64_t split) {
    AttentionPart p;
    p.q = rows_of(q_, row, 1);
    p.params = params_;
    p.out = of_split(logits_, row, split);
    p.lse = NaturalLse(of_split(attn_lse_, row, split));
    p.options.num_threads = 1;
    const bool known =
        slots_.load(splits.begin + splits.first(split), splits.size(split), row, &p.keys);
    if (known && spans_ == nullptr && attend_part(p).ok()) return;
    if (known && spans_ != nullptr && validate(p).ok()) return slots_.add_footprint(p, row);
    add_lost(p.out, row);
    add_lost(p.lse.tensor, row);
  }
  /// [1, heads(, dim)]
  TensorView of_split(const TensorView& t, int64_t row, int64_t split) const {
    TensorView one = t;
    one.data = t.at(row, split);
    one.shape[0] = 1;
    one.shape[1] = params_.num_qo_heads;
    one.stride[1] *= max_splits_;
    return one;
  }
  void add_lost(const TensorView& t, int32_t row) { lose_row(t, 0, row, spans_); }

  ConstTensorView q_;
  SlotList slots_;
};

class Stage2 : Decode {
 public:
  Stage2(const TritonDecode& c, Footprint* spans)
      : Decode(c, spans),
        out_(c.out),
        lse_(c.lse.tensor),
        merge_(max_splits_, out_.shape[2], spans) {}

  void run() {
    if (spans_ != nullptr) add_whole(spans_, params_.sinks);
    for (int32_t row = 0; row < rows(); ++row) {
      const std::optional<Splits> splits = splits_of(row);
      if (splits) {
        merge_row(row, *splits);
      } else {
        lose_row(out_, row, row, spans_);
        lose_row(lse_, row, row, spans_);
      }
    }
  }

 private:
  void merge_row(int64_t row, const Splits& splits) {
    const AnyLse partial(attn_lse_, LseBase::kNatural), lse(lse_, LseBase::kNatural);
    for (int32_t head = 0; head < params_.num_qo_heads; ++head) {
      merge_.clear();
      for (int64_t split = 0; split < splits.count; ++split)
        merge_.add(logits_, partial, row, head * max_splits_ + split);
      merge_.finish(out_, lse, row, head, sink_of(params_, head));
    }
  }

  TensorView out_, lse_;
  RowMerge<LseBase::kNatural> merge_;
};

KernelLaunch decode_launch(const Kernel& kernel, TritonDecode call, const RequestRows& rows) {
  call.params.causal = false, call.params.window_left = call.params.window_right = -1;
  return launch_of(kernel, call, rows, std::ssize(call.kv_indptr) - 1);
}

}  // namespace

constinit const Kernel kTritonDecodeStage1 =
    walked_kernel<TritonDecode, Stage1>("triton_decode_stage1");
constinit const Kernel kTritonDecodeStage2 =
    walked_kernel<TritonDecode, Stage2>("triton_decode_stage2");

KernelLaunch triton_decode_stage1_launch(const TritonDecode& call, const RequestRows& rows) {
  return decode_launch(kTritonDecodeStage1, call, rows);
}
KernelLaunch triton_decode_stage2_launch(const TritonDecode& call, const RequestRows& rows) {
  return decode_launch(kTritonDecodeStage2, call, rows);
}

}  // namespace shadowgraph
