#include "kernels/dense/merge_states.h"

#include <cstring>

#include "core/float_formats.h"
#include "core/parallel.h"
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

template <LseBase Base>
void merge_row(const StateViews<Base>& call, const Isa& isa, int64_t row, int64_t head,
               StateMerger<Base>& merger) {
  merger.clear();
  for (size_t i = 0; i < call.v.size(); ++i) {
    const float lse = load_float(call.s[i].at(row, head), DType::kF32, 0);
    merger.add(SoftmaxState<Base>::from_lse(lse), call.v[i].at(row, head), call.v[i].dtype);
  }
  const SoftmaxState<Base> merged = merger.merge();
  merger.write(isa, 1, merged.d, call.out.shape[2], call.out.at(row, head), call.out.dtype);
  if (call.lse.defined()) store_float(call.lse.at(row, head), DType::kF32, 0, lse_of<Base>(merged));
}

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
  const int64_t rows = call.out.shape[0], heads = call.out.shape[1];
  const int threads = team_size(call.options.num_threads, rows);
  const Isa& isa = *find_isa(call.options.isa);
  std::vector<StateMerger<Base>> mergers;
  for (int i = 0; i < threads; ++i) mergers.emplace_back(static_cast<int64_t>(call.v.size()));
  parallel_for(rows, threads, [&](int64_t row, int thread) {
    for (int64_t head = 0; head < heads; ++head)
      merge_row(call, isa, row, head, mergers[static_cast<size_t>(thread)]);
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
