#include "kernels/dense/merge_states.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/dense/workspace.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

/// t[:, index] of a tensor with one axis more.
ConstTensorView slice_axis1(const ConstTensorView& t, int64_t index) {
  ConstTensorView r;
  r.data = t.data == nullptr ? nullptr : t.at(0, index);
  r.dtype = t.dtype;
  r.rank = t.rank - 1;
  for (int axis = 0, from = 0; axis < r.rank; ++axis, ++from) {
    if (from == 1) ++from;
    r.shape[axis] = t.shape[from];
    r.stride[axis] = t.stride[from];
  }
  return r;
}

/// Merges heads of rows, sixteen at a time. One a thread.
template <LseBase Base>
class RowMerger {
 public:
  RowMerger(const StateViews<Base>& call, const Isa& isa)
      : call_(call),
        isa_(isa),
        heads_(call.out.shape[1]),
        lse_(call.v.size() * kPanel),
        weights_(lse_.size()),
        parts_(call.v.size()),
        alone_(static_cast<int64_t>(call.v.size())),
        stream_(streams(call)) {}

  /// Pairs [begin, end) of a row and a head, in the order row * heads + head; kPanel at most.
  void merge(int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    for (int64_t i = 0; i < kPanel; ++i) at_[i] = i == 0 ? pair_at(begin) : after(at_[i - 1]);
    for (int64_t i = count; i < kPanel; ++i) at_[i] = at_[0];  // for a whole vector
    bool nan = false;
    for (size_t p = 0; p < call_.s.size(); ++p) {
      for (int64_t i = 0; i < kPanel; ++i) {
        const float lse = load_float(call_.s[p].at(at_[i].row, at_[i].head), DType::kF32, 0);
        lse_[p * kPanel + static_cast<size_t>(i)] = lse;
        nan = nan || std::isnan(lse);
      }
    }
    float d[kPanel], merged[kPanel];
    if (!nan) {
      isa_.merge(
          {lse_.data(), std::ssize(call_.s), kToBase2, kOfNatural, weights_.data(), d, merged});
    }
    for (int64_t i = 0; i < count; ++i)
      nan ? merge_alone(at_[i]) : write(at_[i], i, d[i], merged[i]);
  }

 private:
  static constexpr double kOfNatural = Base == LseBase::kLog2 ? kLog2E : 1;
  static constexpr float kToBase2 = Base == LseBase::kLog2 ? 1.f : static_cast<float>(kLog2E);

  /// A result that no cache will hold need not be read before it is written.
  static bool streams(const StateViews<Base>& call) {
    constexpr int64_t kLarge = int64_t{32} << 20;  // no edge: too large to draw; bytes
    const auto row_bytes = call.out.shape[2] * static_cast<int64_t>(size_of(call.out.dtype));
    return row_bytes % kCacheLine == 0 &&
           call.out.shape[0] * call.out.shape[1] * row_bytes > kLarge &&
           std::ranges::all_of(call.v, [&](const auto& v) { return v.dtype == call.out.dtype; });
  }

  struct Pair {
    int64_t row = 0, head = 0;
  };
  Pair pair_at(int64_t pair) const { return {pair / heads_, pair % heads_}; }
  Pair after(Pair p) const {
    return p.head + 1 < heads_ ? Pair{p.row, p.head + 1} : Pair{p.row + 1, 0};
  }

  void write(const Pair& pair, int64_t i, float d, float merged) {
    const auto [row, head] = pair;
    int64_t full = 0;
    for (size_t p = 0; p < call_.v.size(); ++p) {
      const size_t at = p * kPanel + static_cast<size_t>(i);
      if (std::isinf(lse_[at])) continue;
      parts_[static_cast<size_t>(full++)] = {call_.v[p].at(row, head), call_.v[p].dtype,
                                             weights_[at]};
    }
    const int64_t count = call_.out.shape[2];
    if (full == 0) {
      std::memset(call_.out.at(row, head), 0,
                  static_cast<size_t>(count) * size_of(call_.out.dtype));
    } else {
      std::byte* out = call_.out.at(row, head);
      isa_.sum({parts_.data(), full, count, 1, d, out, call_.out.dtype,
                stream_ && reinterpret_cast<uintptr_t>(out) % kCacheLine == 0});
    }
    if (call_.lse.defined()) store_float(call_.lse.at(row, head), DType::kF32, 0, merged);
  }

  /// With a NaN among them: which one a row keeps depends on the order of its states.
  void merge_alone(const Pair& pair) {
    const auto [row, head] = pair;
    alone_.clear();
    for (size_t p = 0; p < call_.v.size(); ++p) {
      const float lse = load_float(call_.s[p].at(row, head), DType::kF32, 0);
      alone_.add(SoftmaxState<Base>::from_lse(lse), call_.v[p].at(row, head), call_.v[p].dtype);
    }
    const SoftmaxState<Base> merged = alone_.merge();
    alone_.write(isa_, 1, merged.d, call_.out.shape[2], call_.out.at(row, head), call_.out.dtype);
    if (call_.lse.defined())
      store_float(call_.lse.at(row, head), DType::kF32, 0, lse_of<Base>(merged));
  }

  const StateViews<Base>& call_;
  const Isa& isa_;
  const int64_t heads_;
  Pair at_[kPanel];
  std::vector<float> lse_, weights_;  // [states, kPanel]
  std::vector<WeightedRow> parts_;
  StateMerger<Base> alone_;
  const bool stream_;
};

}  // namespace

template <LseBase Base>
SoftmaxState<Base> StateMerger<Base>::merge() {
  const SoftmaxState<Base> merged = shadowgraph::merge<Base>(states_, weights_);
  size_t full = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].has_mass()) continue;
    values_[full] = values_[i];
    values_[full++].weight = weights_[i];
  }
  values_.resize(full);
  return merged;
}

template <LseBase Base>
void StateMerger<Base>::write(const Isa& isa, float weight, float d, int64_t count, std::byte* out,
                              DType dtype) const {
  if (values_.empty()) {
    std::memset(out, 0, static_cast<size_t>(count) * size_of(dtype));
    return;
  }
  isa.sum({values_.data(), static_cast<int64_t>(values_.size()), count, weight, d, out, dtype});
}

template <LseBase Base>
StateViews<Base> StateViews<Base>::of(const MergeStates<Base>& call) {
  StateViews views = {{}, {}, call.out, call.lse.tensor, call.options};
  for (int64_t i = 0; i < call.v.shape[1]; ++i) {
    views.v.push_back(slice_axis1(call.v, i));
    views.s.push_back(slice_axis1(call.s, i));
  }
  return views;
}

template <LseBase Base>
StateViews<Base> StateViews<Base>::of(const MergeState<Base>& call) {
  return {{call.v_a, call.v_b}, {call.s_a, call.s_b}, call.out, call.lse.tensor, call.options};
}

template <LseBase Base>
void merge_states_kernel(const StateViews<Base>& call) {
  constexpr int64_t kChunk = 16 * kPanel;  // edge: batch; pairs that a thread takes at once
  const int64_t pairs = call.out.shape[0] * call.out.shape[1];
  const int64_t chunks = (pairs + kChunk - 1) / kChunk;
  const int threads = team_size(call.options.num_threads, chunks);
  std::vector<RowMerger<Base>> mergers;
  for (int i = 0; i < threads; ++i) mergers.emplace_back(call, *find_isa(call.options.isa));
  parallel_for(chunks, threads, [&](int64_t chunk, int thread) {
    const int64_t end = std::min(pairs, (chunk + 1) * kChunk);
    for (int64_t begin = chunk * kChunk; begin < end; begin += kPanel)
      mergers[static_cast<size_t>(thread)].merge(begin, std::min(end, begin + kPanel));
    std::atomic_thread_fence(std::memory_order_seq_cst);  // for what is streamed
  });
}

template <LseBase Base>
Footprint merge_states_footprint(const StateViews<Base>& call) {
  Footprint spans;
  const int64_t dim = call.out.shape[2];
  for (int64_t row = 0; row < call.out.shape[0]; ++row) {
    for (int64_t head = 0; head < call.out.shape[1]; ++head) {
      const auto where = static_cast<int32_t>(row);
      for (size_t i = 0; i < call.v.size(); ++i) {
        spans.push_back(
            {call.s[i].data, call.s[i].offset(row, head), 1, sizeof(float), Access::kRead, where});
        const float lse = load_float(call.s[i].at(row, head), DType::kF32, 0);
        if (!SoftmaxState<Base>::from_lse(lse).has_mass()) continue;
        spans.push_back({call.v[i].data, call.v[i].offset(row, head), dim,
                         element_bytes(call.v[i].dtype), Access::kRead, where});
      }
      spans.push_back({call.out.data, call.out.offset(row, head), dim,
                       element_bytes(call.out.dtype), Access::kWrite, where});
      if (call.lse.defined()) {
        spans.push_back(
            {call.lse.data, call.lse.offset(row, head), 1, sizeof(float), Access::kWrite, where});
      }
    }
  }
  return spans;
}

template class StateMerger<LseBase::kLog2>;
template class StateMerger<LseBase::kNatural>;
template struct StateViews<LseBase::kLog2>;
template struct StateViews<LseBase::kNatural>;
template void merge_states_kernel(const StateViews<LseBase::kLog2>&);
template void merge_states_kernel(const StateViews<LseBase::kNatural>&);
template Footprint merge_states_footprint(const StateViews<LseBase::kLog2>&);
template Footprint merge_states_footprint(const StateViews<LseBase::kNatural>&);

}  // namespace shadowgraph
