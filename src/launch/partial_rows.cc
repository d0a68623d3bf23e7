#include "launch/partial_rows.h"

#include <algorithm>
#include <span>

#include "attn/lse.h"
#include "core/float_formats.h"
#include "kernels/spans.h"
#include "launch/launch_args.h"

namespace shadowgraph {

namespace {

/// A sink joins what is merged: the factor of the values, and the sum that divides them.
template <LseBase Base>
struct Divided {
  float weight = 1, d = 1;

  Divided(const SoftmaxState<Base>& merged, float sink) {
    const auto in_base = SoftmaxState<LseBase::kNatural>::from_lse(sink);
    const SoftmaxState<Base> parts[] = {merged,
                                        SoftmaxState<Base>::from_lse(lse_of<Base>(in_base))};
    float weights[2];
    d = merge<Base>(parts, weights).d;
    weight = weights[0];
  }
};

}  // namespace

template <LseBase To>
float load_lse(const AnyLse& lse, int64_t row, int64_t head) {
  constexpr LseBase kOther = To == LseBase::kLog2 ? LseBase::kNatural : LseBase::kLog2;
  const float value = load_float(lse.tensor.at(row, head), DType::kF32, 0);
  if (lse.base == To) return value;
  return lse_of<To>(SoftmaxState<kOther>::from_lse(value));
}

template <LseBase Base>
RowMerge<Base>::RowMerge(int64_t most_states, int64_t head_dim, Footprint* spans)
    : head_dim_(head_dim), spans_(spans), merger_(most_states) {}

template <LseBase Base>
void RowMerge<Base>::note(const ConstTensorView& t, int64_t row, int64_t head, Access access) {
  append(spans_, {t.data, t.offset(row, head), t.rank == 3 ? head_dim_ : 1, element_bytes(t.dtype),
                  access, -1});
}

template <LseBase Base>
void RowMerge<Base>::add(const ConstTensorView& v, const AnyLse& s, int64_t row, int64_t head) {
  const auto state = SoftmaxState<Base>::from_lse(load_lse<Base>(s, row, head));
  if (spans_ != nullptr) {
    note(s.tensor, row, head, Access::kRead);
    if (state.has_mass()) note(v, row, head, Access::kRead);
    return;
  }
  merger_.add(state, v.at(row, head), v.dtype);
}

template <LseBase Base>
void RowMerge<Base>::finish(const TensorView& out, const AnyLse& lse, int64_t row, int64_t head,
                            float sink) {
  if (spans_ != nullptr) {
    note(out, row, head, Access::kWrite);
    if (lse.tensor.defined()) note(lse.tensor, row, head, Access::kWrite);
    return;
  }
  const SoftmaxState<Base> merged = merger_.merge();
  const Divided<Base> by(merged, sink);
  // A launch cannot say that there is no such instruction set, and all of them have these bits.
  const Isa* const isa = find_isa({});
  merger_.write(isa == nullptr ? kGenericIsa : *isa, by.weight, by.d, head_dim_, out.at(row, head),
                out.dtype);
  if (!lse.tensor.defined()) return;
  const float value = lse.base == LseBase::kLog2 ? lse_of<LseBase::kLog2>(merged)
                                                 : lse_of<LseBase::kNatural>(merged);
  store_float(lse.tensor.at(row, head), DType::kF32, 0, value);
}

void add_rows_beyond(Footprint* spans, const ConstTensorView& t, int64_t first, int64_t count,
                     int32_t request) {
  const int64_t beyond = std::max(first, t.shape[0]), rows = first + count - beyond;
  if (rows <= 0) return;
  spans->push_back({t.data, beyond * t.stride[0], rows * t.stride[0], element_bytes(t.dtype),
                    Access::kRead, request});
}

void lose_head(const TensorView& t, int64_t row, int64_t head, int32_t request, Footprint* spans) {
  if (!t.defined()) return;
  if (spans != nullptr) {
    // no edge: more than any memory
    constexpr int64_t kFar = int64_t{1} << 40;  // rows: no memory goes as far
    append(spans, {t.data, t.offset(std::clamp(row, -kFar, kFar), head),
                   t.rank == 3 ? t.shape[2] : 1, element_bytes(t.dtype), Access::kWrite, request});
  } else if (row >= 0 && row < t.shape[0]) {
    TensorView one = t;
    one.data = t.at(row, head);
    one.shape[0] = one.shape[1] = 1;
    poison(one);
  }
}

void lose_row(const TensorView& t, int64_t row, int32_t request, Footprint* spans) {
  for (int64_t head = 0; t.defined() && head < t.shape[1]; ++head)
    lose_head(t, row, head, request, spans);
}

template float load_lse<LseBase::kNatural>(const AnyLse&, int64_t, int64_t);
template float load_lse<LseBase::kLog2>(const AnyLse&, int64_t, int64_t);
template class RowMerge<LseBase::kNatural>;
template class RowMerge<LseBase::kLog2>;

}  // namespace shadowgraph
