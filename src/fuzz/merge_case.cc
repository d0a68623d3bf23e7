#include "fuzz/merge_case.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "check/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/guarded.h"

namespace shadowgraph {
namespace {

/// The case's states. An empty state has either infinity for an lse and poison for a value.
struct States {
  int64_t rows, states, heads, dim;
  GuardedBuffer v, s;
  std::vector<uint8_t> empty;  // [rows, states, heads]

  size_t cell(int64_t row, int64_t state, int64_t head) const {
    return static_cast<size_t>((row * states + state) * heads + head);
  }
};

States make_states(const Case& x) {
  Rng rng(x.seed);
  States t = {x.requests[0].q_len, x.requests[0].kv_len, x.num_qo_heads, x.head_dim_vo, {}, {}, {}};
  const int64_t cells = t.rows * t.states * t.heads;
  t.v = GuardedBuffer(cells * t.dim * static_cast<int64_t>(size_of(x.q_dtype)), 0);
  t.s = GuardedBuffer(cells * 4, 4);
  t.empty.resize(static_cast<size_t>(cells));
  for (int64_t i = 0; i < cells; ++i) {
    const bool empty = rng.below(5) == 0;
    t.empty[static_cast<size_t>(i)] = empty ? 1 : 0;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float lse = x.data == CaseData::kUniform ? 3.f : 12 * rng.signed_unit();
    store_float(t.s.data(), DType::kF32, i, empty ? (rng.below(2) ? kInfinity : -kInfinity) : lse);
    for (int64_t d = 0; !empty && d < t.dim; ++d) {
      const auto integer = static_cast<float>(static_cast<int>(rng.below(129)) - 64);
      store_float(t.v.data(), x.q_dtype, i * t.dim + d,
                  x.data == CaseData::kUniform ? integer : integer / 64);
    }
  }
  return t;
}

template <LseBase Base>
MergeStates<Base> make_call(const Case& x, const States& t, const RunOptions& options) {
  MergeStates<Base> call;
  call.v = ConstTensorView(t.v.data(), x.q_dtype, {t.rows, t.states, t.heads, t.dim});
  call.s = ConstTensorView(t.s.data(), DType::kF32, {t.rows, t.states, t.heads});
  call.options.num_threads = 1;
  call.options.isa = options.isa;
  return call;
}

template <class Call>
void set_outputs(Call& call, const Case& x, const States& t, GuardedBuffer& out,
                 GuardedBuffer& lse) {
  out = GuardedBuffer(t.rows * t.heads * t.dim * static_cast<int64_t>(size_of(x.out_dtype)), 0);
  lse = GuardedBuffer(t.rows * t.heads * 4, 0);
  call.out = TensorView(out.data(), x.out_dtype, {t.rows, t.heads, t.dim});
  call.lse = decltype(call.lse)(TensorView(lse.data(), DType::kF32, {t.rows, t.heads}));
}

/// Equal weights: the mean of the states that have mass.
Status check_mean(const Case& x, const States& t, const TensorView& out) {
  Status status;
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t head = 0; head < t.heads; ++head) {
      for (int64_t d = 0; d < t.dim; ++d) {
        float sum = 0, count = 0;
        for (int64_t i = 0; i < t.states; ++i) {
          const size_t cell = t.cell(row, i, head);
          if (t.empty[cell]) continue;
          sum += load_float(t.v.data(), x.q_dtype, static_cast<int64_t>(cell) * t.dim + d);
          ++count;
        }
        std::byte expected[4] = {};
        store_float(expected, x.out_dtype, 0, count == 0 ? 0 : sum / count);
        if (std::memcmp(expected, out.at(row, head, d), size_of(x.out_dtype)) == 0) continue;
        status.add(make_finding("num.exact", at("out", row, head * t.dim + d),
                                std::to_string(load_float(expected, x.out_dtype, 0)) +
                                    ", the mean of " + std::to_string(static_cast<int>(count)) +
                                    " states",
                                std::to_string(load_float(out.at(row, head, d), x.out_dtype, 0))));
        return status;
      }
    }
  }
  return status;
}

/// Two states given as two tensors have the bits of the same two given as one.
template <LseBase Base>
Status check_pair(const Case& x, const States& t, const MergeStates<Base>& both) {
  Status status;
  if (t.states != 2) return status;
  const auto half = [&](const ConstTensorView& from, int64_t i, int rank) {
    ConstTensorView r = from;
    r.data = from.at(0, i);
    r.rank = rank;
    for (int axis = 1; axis < rank; ++axis) {
      r.shape[static_cast<size_t>(axis)] = from.shape[static_cast<size_t>(axis) + 1];
      r.stride[static_cast<size_t>(axis)] = from.stride[static_cast<size_t>(axis) + 1];
    }
    return r;
  };
  MergeState<Base> call;
  call.v_a = half(both.v, 0, 3);
  call.v_b = half(both.v, 1, 3);
  call.s_a = half(both.s, 0, 2);
  call.s_b = half(both.s, 1, 2);
  call.options.num_threads = 1;
  GuardedBuffer out, lse;
  set_outputs(call, x, t, out, lse);
  status.add(merge_state(call));
  const auto same = [](const TensorView& a, const GuardedBuffer& b) {
    return std::memcmp(a.data, b.data(), static_cast<size_t>(b.size())) == 0;
  };
  if (status.ok() && (!same(both.out, out) || !same(both.lse.tensor, lse))) {
    status.add(
        make_finding("num.bits", at("out"), "merge_state = merge_states of two", "other bits"));
  }
  return status;
}

template <LseBase Base>
Status check_base(const Case& x, const RunOptions& options) {
  const States t = make_states(x);
  MergeStates<Base> call = make_call<Base>(x, t, options);
  GuardedBuffer out, lse;
  set_outputs(call, x, t, out, lse);
  Status status = merge_states(call);
  if (!status.ok()) return status;
  Result result;
  result.out = call.out;
  result.lse = call.lse.tensor;
  result.lse_base = Base;
  status.add(judge(call, result, *find_arithmetic("ours_portable"), JudgeOptions()).findings);
  if (x.data == CaseData::kUniform) status.add(check_mean(x, t, call.out));
  status.add(check_pair(x, t, call));
  return status;
}

}  // namespace

Status check_merge_case(const Case& x, const RunOptions& options) {
  return x.lse_base == LseBase::kLog2 ? check_base<LseBase::kLog2>(x, options)
                                      : check_base<LseBase::kNatural>(x, options);
}

}  // namespace shadowgraph
