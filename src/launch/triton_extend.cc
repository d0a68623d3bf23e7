// Triton's extend kernel: a cached prefix, and the step's own keys.
#include <algorithm>
#include <optional>
#include <vector>

#include "attn/mask.h"
#include "kernels/spans.h"
#include "launch/partial_rows.h"
#include "launch/slot_list.h"
#include "launch/triton_launch.h"

namespace shadowgraph {

namespace {

struct Extent {
  int64_t begin = 0, size = 0;
};

/// The kernel, run or only noted.
class Extend {
 public:
  Extend(const TritonExtend& c, Footprint* spans)
      : spans_(spans),
        q_(c.q),
        k_(c.k),
        v_(c.v),
        out_(c.out),
        lse_(c.lse.tensor),
        params_(c.params),
        max_extend_len_(c.max_extend_len),
        slots_(c.kv_indices, c.cache, spans),
        mask_(c.custom_mask),
        qo_indptr_(c.qo_indptr.data(), std::ssize(c.qo_indptr), spans),
        kv_indptr_(c.kv_indptr.data(), std::ssize(c.kv_indptr), spans),
        mask_indptr_(c.mask_indptr.data(), std::ssize(c.mask_indptr), spans),
        offsets_(c.window_kv_offsets.data(), std::ssize(c.window_kv_offsets), spans),
        depths_(c.depths.data(), std::ssize(c.depths), spans),
        merge_(2, params_.head_dim_vo, spans) {}

  void run() {
    if (spans_ != nullptr) add_whole(spans_, params_.sinks);
    for (int32_t i = 0; i + 1 < qo_indptr_.size(); ++i) {
      const std::optional<Extent> queries = extent_of(qo_indptr_, i);
      if (!queries) continue;
      request_ = i, queries_ = *queries;
      rows_ = launched_rows(static_cast<int32_t>(queries->size), max_extend_len_);
      if (rows_ > 0 && !run_request()) lose();
    }
  }

 private:
  static std::optional<Extent> extent_of(CheckedArray<const int32_t>& indptr, int32_t i) {
    const int64_t begin = *indptr.load(i, i), end = *indptr.load(i + 1, i);
    if (begin < 0 || end < begin) return {};
    return Extent{begin, end - begin};
  }

  /// False where it cannot be computed.
  bool run_request() {
    const std::optional<Extent> prefix = extent_of(kv_indptr_, request_);
    if (!prefix || !has_rows()) return false;
    AttentionPart cached = part(0), own = part(1);
    cached.q_position = prefix->size;
    cached.params.causal = false;
    own.keys.k = rows_of(k_, queries_.begin, queries_.size);
    own.keys.v = rows_of(v_, queries_.begin, queries_.size);
    bool known =
        prefix->size == 0 || slots_.load(prefix->begin, prefix->size, request_, &cached.keys);
    if (mask_indptr_.size() > 0) known &= set_mask(prefix->size, &own);
    if (known && depths_.size() > 0 && mask_indptr_.size() > 0)
      known = set_window(prefix->size, &cached, &own);
    if (!known) return false;
    if (spans_ != nullptr) {
      if (!validate(own).ok() || (prefix->size > 0 && !validate(cached).ok())) return false;
      if (prefix->size > 0) slots_.add_footprint(cached, request_);
      add_part_footprint(own, request_, spans_);
      return true;
    }
    if (prefix->size > 0 && !attend_part(cached).ok()) return false;
    if (!attend_part(own).ok()) return false;
    merge(prefix->size > 0 ? 0 : 1);
    return true;
  }
  bool has_rows() {
    bool all = queries_.begin + queries_.size <= out_.shape[0];
    for (const ConstTensorView& t : {q_, k_, v_}) {
      all &= queries_.begin + queries_.size <= t.shape[0];
      if (spans_ != nullptr) add_rows_beyond(spans_, t, queries_.begin, queries_.size, request_);
    }
    return all;
  }
  /// Who sees whom among the own keys. False where some of it lies outside.
  bool set_mask(int64_t prefix, AttentionPart* own) {
    const auto first = mask_indptr_.load(request_, request_);
    const auto offset = offsets_.size() > 0 ? offsets_.load(request_, request_) : 0;
    if (!first || !offset || *offset < 0) return false;
    const int64_t width = prefix + queries_.size + *offset, known = std::ssize(mask_);
    const int64_t pairs = (rows_ - 1) * width + queries_.size;
    const int64_t begin = std::clamp<int64_t>(*first, -1, known) + *offset + prefix;
    for (int64_t q = 0; spans_ != nullptr && q < rows_; ++q)
      spans_->push_back(
          {mask_.data(), begin + q * width, queries_.size, 1, Access::kRead, request_});
    if (*first < 0 || begin > known - pairs) return false;
    own->mask = mask_.subspan(static_cast<size_t>(begin), static_cast<size_t>(pairs));
    own->mask_stride = width;
    own->params.causal = false;
    return true;
  }

  /// The window of a tree, pair by pair: by the depths of both. False where one lies outside.
  bool set_window(int64_t prefix, AttentionPart* cached, AttentionPart* own) {
    std::vector<int64_t> depths;
    for (int64_t t = queries_.begin; t < queries_.begin + queries_.size; ++t) {
      const auto depth = depths_.load(t, request_);
      if (!depth) return false;
      depths.push_back(*depth);
    }
    const int64_t window = params_.window_left;
    if (window < 0) return true;
    for (std::vector<uint8_t>& mask : window_) mask.clear();
    for (int64_t q = 0; q < rows_; ++q) {
      const int64_t depth = depths[static_cast<size_t>(q)];
      for (int64_t n = 0; n < prefix; ++n) window_[0].push_back(prefix + depth <= n + window);
      const auto row = own->mask.subspan(static_cast<size_t>(q * own->mask_stride));
      for (size_t n = 0; n < depths.size(); ++n)
        window_[1].push_back(row[n] != 0 && depth <= depths[n] + window);
    }
    cached->mask = window_[0], cached->mask_stride = prefix;
    own->mask = window_[1], own->mask_stride = queries_.size;
    cached->params.window_left = own->params.window_left = -1;
    return true;
  }

  /// The part of the request's queries, without keys. Its result is a partial one, or, where spans
  /// are noted, the outputs themselves.
  AttentionPart part(int which) {
    AttentionPart p;
    p.q = rows_of(q_, queries_.begin, rows_);
    p.params = params_;
    p.params.sinks = {};
    p.out = spans_ != nullptr ? rows_of(out_, queries_.begin, rows_) : partial(which).v;
    if (spans_ == nullptr) {
      p.lse = NaturalLse(partial(which).s);
    } else if (lse_.defined()) {
      p.lse = NaturalLse(rows_of(lse_, queries_.begin, rows_));
    }
    p.options.num_threads = 1;
    return p;
  }
  struct Partial {
    TensorView v, s;
  };
  Partial partial(int which) {
    const int64_t heads = params_.num_qo_heads, dim = params_.head_dim_vo;
    std::vector<float>& memory = partial_[which];
    memory.resize(static_cast<size_t>(rows_ * heads * (dim + 1)));
    return {{memory.data(), DType::kF32, {rows_, heads, dim}},
            {memory.data() + rows_ * heads * dim, DType::kF32, {rows_, heads}}};
  }
  /// Partial results from `first` on.
  void merge(int first) {
    for (int64_t q = 0; q < rows_; ++q) {
      for (int32_t head = 0; head < params_.num_qo_heads; ++head) {
        merge_.clear();
        for (int which = first; which < 2; ++which)
          merge_.add(partial(which).v, {partial(which).s, LseBase::kNatural}, q, head);
        merge_.finish(
            rows_of(out_, queries_.begin, rows_),
            {lse_.defined() ? rows_of(lse_, queries_.begin, rows_) : lse_, LseBase::kNatural}, q,
            head, sink_of(params_, head));
      }
    }
  }
  /// A corrupt length runs only one row beyond the outputs.
  void lose() {
    const int64_t end = std::min(queries_.begin + rows_, out_.shape[0] + 1);
    for (int64_t row = queries_.begin; row < end; ++row) {
      lose_row(out_, row, request_, spans_);
      lose_row(lse_, row, request_, spans_);
    }
  }

  Footprint* spans_;
  ConstTensorView q_, k_, v_;
  TensorView out_, lse_;
  AttentionParams params_;
  int32_t max_extend_len_;
  SlotList slots_;
  std::span<const uint8_t> mask_;
  CheckedArray<const int32_t> qo_indptr_, kv_indptr_;
  CheckedArray<const int64_t> mask_indptr_;
  CheckedArray<const int32_t> offsets_, depths_;
  RowMerge<LseBase::kNatural> merge_;
  std::vector<float> partial_[2];
  std::vector<uint8_t> window_[2];  // of the prefix and of the own keys
  // The request that is computed
  int32_t request_ = 0;
  Extent queries_;
  int64_t rows_ = 0;
};

}  // namespace

constinit const Kernel kTritonExtend = walked_kernel<TritonExtend, Extend>("triton_extend");

KernelLaunch triton_extend_launch(const TritonExtend& call, const RequestRows& rows) {
  return launch_of(kTritonExtend, call, rows, std::ssize(call.qo_indptr) - 1);
}

}  // namespace shadowgraph
