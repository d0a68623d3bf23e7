#include "fuzz/merge_case.h"

#include <cstring>
#include <limits>

#include "check/compare.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/data.h"
#include "fuzz/gapped.h"

namespace shadowgraph {
namespace {

/// The case's states, before they are laid out. An empty state has either infinity for an lse.
struct States {
  int64_t rows, states, heads;
  LogicalTensor v;         // [rows * states, heads, dim]
  std::vector<float> lse;  // [rows * states, heads]

  size_t cell(int64_t row, int64_t state, int64_t head) const {
    return static_cast<size_t>((row * states + state) * heads + head);
  }
  bool empty(size_t cell) const { return std::isinf(lse[cell]); }
};

States make_states(const Case& x) {
  Rng rng(x.seed);
  const int64_t rows = x.requests[0].q_len, states = x.requests[0].kv_len;
  States t = {rows, states, x.num_qo_heads, {}, {}};
  t.v = LogicalTensor(x.q_dtype, rows * states, t.heads, x.head_dim_vo);
  const bool uniform = x.data == CaseData::kUniform;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < rows * states * t.heads; ++i) {
    const bool empty = rng.below(5) == 0;
    const float lse = uniform ? 3.f : 12 * rng.signed_unit();
    t.lse.push_back(!empty ? lse : rng.below(2) ? kInfinity : -kInfinity);
    for (int64_t d = 0; d < t.v.dim; ++d) {
      const auto integer = static_cast<float>(static_cast<int>(rng.below(129)) - 64);
      store_float(t.v.bytes.data(), x.q_dtype, i * t.v.dim + d, uniform ? integer : integer / 64);
    }
  }
  return t;
}

/// How a merge is laid out and run. No result may depend on it.
struct MergeArrangement {
  uint64_t seed = 0;  // gaps
  bool reversed = false, with_lse = true, pair = false;
  CallOptions options;
  DeviceCalls* device = nullptr;  // runs a pair in base e
};

/// t[:, index].
ConstTensorView state_of(const ConstTensorView& t, int64_t index) {
  ConstTensorView r = t;
  r.data = t.at(0, index);
  --r.rank;
  for (int axis = 1; axis < r.rank; ++axis)
    r.shape[axis] = t.shape[axis + 1], r.stride[axis] = t.stride[axis + 1];
  return r;
}

/// A merge with its memory.
template <LseBase Base>
class ArrangedMerge {
 public:
  ArrangedMerge(const Case& x, const States& t, const MergeArrangement& how)
      : dim_(x.head_dim_vo), how_(how) {
    Rng rng(how.seed);
    const TensorView v = make_gapped(v_, x.q_dtype, {t.rows, t.states, t.heads, dim_}, rng);
    const TensorView s = make_gapped(s_, DType::kF32, {t.rows, t.states, t.heads}, rng);
    for (int64_t row = 0; row < t.rows; ++row) {
      for (int64_t state = 0; state < t.states; ++state) {
        for (int64_t head = 0; head < t.heads; ++head) {
          const size_t cell = t.cell(row, state, head);
          std::memcpy(s.at(place(row, t.rows), state, head), &t.lse[cell], 4);
          if (t.empty(cell)) continue;  // its value stays poison
          std::memcpy(v.at(place(row, t.rows), state, head), t.v.row(row * t.states + state, head),
                      static_cast<size_t>(t.v.row_bytes()));
        }
      }
    }
    call_.v = v;
    call_.s = s;
    call_.out = make_gapped(out_, x.out_dtype, {t.rows, t.heads, dim_}, rng);
    if (how.with_lse) call_.lse = LseView<Base>(make_gapped_lse(lse_, t.rows, t.heads, rng));
    call_.options = how.options;
  }

  Status run() {
    const auto fingerprint = [&] { return v_.fingerprint() ^ s_.fingerprint() * 3; };
    const uint64_t before = fingerprint();
    Status status = merge();
    if (!status.ok()) return status;
    if (fingerprint() != before)
      status.add(make_finding("num.write_set", at("v, s"), "unchanged", "changed by the call"));
    status.add(check_write_set(out_, call_.out, "out"));
    status.add(check_write_set(lse_, call_.lse.tensor, "lse"));
    return status;
  }

  const MergeStates<Base>& call() const { return call_; }
  const std::byte* out(int64_t row, int64_t head) const {
    return call_.out.at(place(row, call_.out.shape[0]), head);
  }
  const std::byte* lse(int64_t row, int64_t head) const {
    return call_.lse.tensor.at(place(row, call_.out.shape[0]), head);
  }

 private:
  Status merge() const {
    if constexpr (Base == LseBase::kNatural) {
      if (how_.device != nullptr) return how_.device->run(as_pair());
    }
    return how_.pair ? merge_state(as_pair()) : merge_states(call_);
  }
  int64_t place(int64_t row, int64_t rows) const { return how_.reversed ? rows - 1 - row : row; }
  MergeState<Base> as_pair() const {
    return {state_of(call_.v, 0),
            state_of(call_.s, 0),
            state_of(call_.v, 1),
            state_of(call_.s, 1),
            call_.out,
            call_.lse,
            call_.options};
  }

  int64_t dim_;
  MergeArrangement how_;
  GuardedBuffer v_, s_, out_, lse_;
  MergeStates<Base> call_;
};

/// Equal weights: the mean of the states that have mass.
Status check_mean(const Case& x, const States& t, const TensorView& out) {
  Status status;
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t head = 0; head < t.heads; ++head) {
      for (int64_t d = 0; d < x.head_dim_vo; ++d) {
        float sum = 0, count = 0;
        for (int64_t i = 0; i < t.states; ++i) {
          if (t.empty(t.cell(row, i, head))) continue;
          sum += load_float(t.v.row(row * t.states + i, head), x.q_dtype, d);
          ++count;
        }
        std::byte expected[4] = {};
        store_float(expected, x.out_dtype, 0, count == 0 ? 0 : sum / count);
        if (std::memcmp(expected, out.at(row, head, d), size_of(x.out_dtype)) == 0) continue;
        status.add(make_finding("num.exact", at("out", row, head * x.head_dim_vo + d),
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

template <LseBase Base>
Status compare_bits(const ArrangedMerge<Base>& a, const ArrangedMerge<Base>& b,
                    const MergeArrangement& how) {
  Status status;
  const TensorView& out = a.call().out;
  const auto bytes = static_cast<size_t>(out.shape[2]) * size_of(out.dtype);
  for (int64_t row = 0; row < out.shape[0]; ++row) {
    for (int64_t head = 0; head < out.shape[1]; ++head) {
      const bool same_out = std::memcmp(a.out(row, head), b.out(row, head), bytes) == 0;
      const bool same_lse =
          !how.with_lse || std::memcmp(a.lse(row, head), b.lse(row, head), 4) == 0;
      if (same_out && same_lse) continue;
      std::string got = "other bits in reverse, " + std::to_string(how.options.num_threads) +
                        " threads" + (how.pair ? ", merge_state" : "");
      if (!how.options.isa.empty()) got += ", " + std::string(how.options.isa);
      status.add(make_finding("num.bits", at(same_out ? "lse" : "out", row, head),
                              "the bits of the case as generated", got));
      return status;
    }
  }
  return status;
}

template <LseBase Base>
Status check_base(const Case& x, const RunOptions& options) {
  const States t = make_states(x);
  MergeArrangement how;
  how.seed = x.seed;
  how.options.num_threads = 1;
  how.options.isa = options.isa;
  how.device = options.device;
  ArrangedMerge<Base> merge(x, t, how);
  Status status = merge.run();
  if (!status.ok()) return status;
  Result result;
  result.out = merge.call().out;
  result.lse = merge.call().lse.tensor;
  result.lse_base = Base;
  const Arithmetic& ours = *find_arithmetic("ours_portable");
  status.add(judge(merge.call(), result, ours, {.bounded = true}).findings);
  if (x.data == CaseData::kUniform) status.add(check_mean(x, t, merge.call().out));

  Rng rng = Rng::stream(x.seed, 1);
  const MergeArrangement other = {rng.next(),
                                  true,
                                  rng.below(8) != 0,
                                  t.states == 2 && rng.below(2) == 0,
                                  vary_options(options, rng),
                                  nullptr};
  ArrangedMerge<Base> again(x, t, other);
  const Status ran = again.run();
  status.add(ran);
  if (ran.ok()) status.add(compare_bits(merge, again, other));
  return status;
}

}  // namespace

Status check_merge_case(const Case& x, const RunOptions& options) {
  return x.lse_base == LseBase::kLog2 ? check_base<LseBase::kLog2>(x, options)
                                      : check_base<LseBase::kNatural>(x, options);
}

}  // namespace shadowgraph
