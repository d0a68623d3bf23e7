#include "fuzz/call/merge_laws.h"

#include <cstring>
#include <limits>

#include "check/bounds/compare.h"
#include "check/bounds/recurrent_compare.h"
#include "core/float_formats.h"
#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

/// t[:, index].
ConstTensorView state_of(const ConstTensorView& t, int64_t index) {
  ConstTensorView r = t;
  r.data = t.at(0, index);
  --r.rank;
  for (int axis = 1; axis < r.rank; ++axis)
    r.shape[axis] = t.shape[axis + 1], r.stride[axis] = t.stride[axis + 1];
  return r;
}

template <LseBase Base>
MergeState<Base> as_pair(const MergeStates<Base>& c) {
  return {state_of(c.v, 0), state_of(c.s, 0), state_of(c.v, 1), state_of(c.s, 1), c.out, c.lse,
          c.options};
}

/// Equal weights: the mean of the states that have mass.
Status check_mean(const MergeCase& x, const MergeData& t, const RowResults& results) {
  Status status;
  for (int64_t i = 0; i < int64_t{x.rows} * x.heads * x.head_dim; ++i) {
    const int64_t row = i / (x.heads * x.head_dim), element = i % (x.heads * x.head_dim);
    const int64_t head = element / x.head_dim;
    float sum = 0, count = 0;
    for (int64_t state = 0; state < t.states; ++state) {
      if (t.empty(t.cell(row, state, head))) continue;
      sum += t.v.value(row * t.states + state, head, element % x.head_dim);
      ++count;
    }
    judged("num.exact");
    std::byte expected[4] = {};
    store_float(expected, x.out_dtype, 0, count == 0 ? 0 : sum / count);
    const std::byte* got = results.out[static_cast<size_t>(row)].data() +
                           static_cast<size_t>(element) * size_of(x.out_dtype);
    if (std::memcmp(expected, got, size_of(x.out_dtype)) == 0) continue;
    status.add(make_finding(
        "num.exact", at("out", std::vector{row, element / x.head_dim, element % x.head_dim}),
        std::to_string(load_float(expected, x.out_dtype, 0)) + ", the mean of " +
            std::to_string(static_cast<int>(count)) + " states",
        std::to_string(load_float(got, x.out_dtype, 0))));
    break;
  }
  return status;
}

struct MergeFamily {
  using Arrangement = MergeArrangement;
  using Scene = MergeScene;
  using Results = RowResults;
  static constexpr auto make_data = make_merge_data;
  static constexpr auto judge = judge_merge;
  static constexpr auto vary = vary_merge;
};

}  // namespace

MergeData make_merge_data(const Case& c) {
  const auto& x = std::get<MergeCase>(c.call);
  Rng rng(c.seed);
  MergeData t = {x.states, x.heads, {}, {}};
  t.v = LogicalTensor(x.dtype, int64_t{x.rows} * x.states, x.heads, x.head_dim);
  const bool uniform = is_exact(c.data);
  std::vector<float> equal;  // [rows, heads] the LSE of all states
  for (int64_t i = 0; i < int64_t{x.rows} * x.heads; ++i)
    equal.push_back(is_shifted(c.data) ? far_factor(c.data, DType::kF32, 0, rng) : 3);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < int64_t{x.rows} * x.states * x.heads; ++i) {
    const bool empty = rng.below(5) == 0;
    const int64_t cell = i / (int64_t{x.states} * x.heads) * x.heads + i % x.heads;
    const float lse = uniform ? equal[static_cast<size_t>(cell)] : 12 * rng.signed_unit();
    t.lse.push_back(!empty ? lse : rng.below(2) ? kInfinity : -kInfinity);
    for (int64_t d = 0; d < t.v.dim; ++d) {
      const auto integer = static_cast<float>(static_cast<int>(rng.below(129)) - 64);
      store_float(t.v.bytes.data(), x.dtype, i * t.v.dim + d, uniform ? integer : integer / 64);
    }
  }
  return t;
}

MergeArrangement MergeArrangement::of(const Case& x) {
  MergeArrangement a;
  arrange_as(x, &a);
  a.calls.emplace_back();
  for (int64_t row = 0; row < x.tokens(); ++row) a.calls[0].push_back({row, 0, 1});
  return a;
}

std::string MergeArrangement::to_string() const {
  std::string s = describe_rows();
  if (poison_unread) s += ", poison in all that the footprint does not read";
  if (!with_lse) s += ", no lse";
  return s + (pair ? ", merge_state" : "");
}

template <LseBase Base>
void MergeScene::lay_in_base() {
  const auto rows = std::ssize(pieces_);
  const TensorView v = memory_.add("v", x_.dtype, {rows, x_.states, x_.heads, x_.head_dim}, rng_);
  const TensorView s = memory_.add("s", DType::kF32, {rows, x_.states, x_.heads}, rng_);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = pieces_[static_cast<size_t>(i)].row;
    for (int64_t state = 0; row != RowPiece::kNobody && state < x_.states; ++state) {
      for (int64_t head = 0; head < x_.heads; ++head) {
        const size_t cell = data_.cell(row, state, head);
        std::memcpy(s.at(i, state, head), &data_.lse[cell], sizeof(float));
        if (data_.empty(cell)) continue;  // its value stays poison
        std::memcpy(v.at(i, state, head), data_.v.row(row * x_.states + state, head),
                    static_cast<size_t>(data_.v.row_bytes()));
      }
    }
  }
  MergeStates<Base> call;
  call.v = v, call.s = s;
  call.out = out_ = memory_.add("out", x_.out_dtype, {rows, x_.heads, x_.head_dim}, rng_);
  written_ = {out_};
  lse_ = {};
  if (how_.with_lse) {
    lse_ = memory_.add("lse", DType::kF32, {rows, x_.heads}, rng_, AxisOrder::kAny);
    call.lse = LseView<Base>(lse_);
    written_.emplace_back(lse_);
  }
  call.options = how_.options;
  call_ = call;
  if (how_.pair) call_ = as_pair(call);
}

void MergeScene::lay(size_t index) {
  memory_ = CallMemory();
  pieces_ = how_.calls[index];
  add_idle_rows(
      how_.idle_rows,
      [] {
        return RowPiece{RowPiece::kNobody, 0, 1};
      },
      rng_, &pieces_);
  x_.lse_base == LseBase::kNatural ? lay_in_base<LseBase::kNatural>()
                                   : lay_in_base<LseBase::kLog2>();
  if (how_.poison_unread) memory_.poison_unread(footprint_of(call_));
  memory_.remember();
}

Status MergeScene::execute_laid() const {
  const auto* states = std::get_if<MergeStates<LseBase::kNatural>>(&call_);
  if (how_.device != nullptr && states != nullptr) return how_.device->run(as_pair(*states));
  return execute(call_);
}

void MergeScene::collect(RowResults* results) const {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].row == RowPiece::kNobody) continue;
    const auto row = static_cast<size_t>(pieces_[i].row);
    const auto place = static_cast<int64_t>(i);
    results->out[row] = gather(at_place(ConstTensorView(out_), place));
    if (lse_.defined()) results->beside[row] = gather(at_place(ConstTensorView(lse_), place));
  }
}

Status judge_merge(const Case& x, const MergeScene& scene) {
  const auto judge_states = [&]<LseBase Base>(const MergeStates<Base>& call) {
    const Result result{call.out, call.lse.tensor, Base};
    return judge(call, result, *find_arithmetic("ours_portable"), {.bounded = true}).findings;
  };
  Status status;
  if (const auto* call = std::get_if<MergeStates<LseBase::kNatural>>(&scene.call()))
    status.add(judge_states(*call));
  if (const auto* call = std::get_if<MergeStates<LseBase::kLog2>>(&scene.call()))
    status.add(judge_states(*call));
  if (!is_exact(x.data)) return status;
  RowResults results(x);
  scene.collect(&results);
  status.add(check_mean(std::get<MergeCase>(x.call), scene.data(), results));
  return status;
}

MergeArrangement vary_merge(const Case& x, const RunOptions& options, Rng& rng) {
  MergeArrangement a = MergeArrangement::of(x);
  vary_rows({}, rng, &a);
  a.with_lse = rng.below(8) != 0;
  a.pair = std::get<MergeCase>(x.call).states == 2 && rng.below(2) == 0;
  a.options = vary_options(options, rng);
  return a;
}

Status check_merge_case(const Case& x, const RunOptions& options) {
  return check_rows<MergeFamily>(x, options);
}

}  // namespace shadowgraph
