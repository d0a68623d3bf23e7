#include "oracle/conv_oracle.h"

#include <cmath>
#include <vector>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

using Inputs = std::vector<Eigen::ArrayXd>;  // [dim] each, in the order that they came

Eigen::ArrayXd token_input(const CausalConv1d& call, int64_t token) {
  Eigen::ArrayXd x(call.x.shape[1]);
  for (Eigen::Index c = 0; c < x.size(); ++c)
    x[c] = load_float(call.x.at(token, c), call.x.dtype, 0);
  return x;
}

/// The inputs before the row's first token.
Inputs history(const CausalConv1d& call, int64_t row) {
  Inputs inputs;
  for (int64_t i = 0; i + 1 < call.weight.shape[1]; ++i) {
    Eigen::ArrayXd x = Eigen::ArrayXd::Zero(call.x.shape[1]);
    for (Eigen::Index c = 0; c < x.size() && call.rows.starts_from_slot(row); ++c) {
      const int32_t slot = call.rows.slot(row);
      x[c] = load_float(call.states.at(slot, c, i), call.states.dtype, 0);
    }
    inputs.push_back(std::move(x));
  }
  return inputs;
}

/// Those of the tokens on the way from the row's root to its token j.
void append_path(const CausalConv1d& call, int64_t first, int64_t j, Inputs* inputs) {
  if (j > 0) {
    const bool tree = !call.draft.parents.empty();
    append_path(call, first, tree ? call.draft.parents[static_cast<size_t>(first + j)] : j - 1,
                inputs);
  }
  inputs->push_back(token_input(call, first + j));
}

RowMatrix last_inputs(const Inputs& inputs, int64_t count) {
  RowMatrix window(inputs.back().size(), count);
  for (int64_t i = 0; i < count; ++i)
    window.col(i) = inputs[inputs.size() - static_cast<size_t>(count - i)];
  return window;
}

void convolve(const CausalConv1d& call, const Inputs& inputs, ConvToken* t) {
  const Eigen::Index dim = call.x.shape[1];
  const int64_t width = call.weight.shape[1];
  t->sum = Eigen::ArrayXd::Zero(dim);
  if (call.bias.defined()) {
    for (Eigen::Index c = 0; c < dim; ++c)
      t->sum[c] = load_float(call.bias.at(c), call.bias.dtype, 0);
  }
  t->magnitude = t->sum.abs();
  for (int64_t back = 0; back < width; ++back) {
    const Eigen::ArrayXd& x = inputs[inputs.size() - 1 - static_cast<size_t>(back)];
    for (Eigen::Index c = 0; c < dim; ++c) {
      const double w = load_float(call.weight.at(c, width - 1 - back), call.weight.dtype, 0);
      t->sum[c] += w * x[c];
      t->magnitude[c] += std::abs(w * x[c]);
    }
  }
  t->out = t->sum;
  if (call.activation == CausalConv1d::Activation::kSilu) t->out /= 1 + (-t->sum).exp();
  t->window = last_inputs(inputs, width - 1);
}

}  // namespace

void for_each_token(const CausalConv1d& call, const VisitConvToken& visit) {
  for (int64_t row = 0; row < call.rows.rows(); ++row) {
    const bool pad = call.rows.slot(row) < 0;
    if (pad && call.rows.pad == PadRow::kSkip) continue;
    const Inputs before = history(call, row);
    const int64_t first = call.rows.begin(row);
    for (int64_t j = 0; j < call.rows.tokens(row); ++j) {
      ConvToken t;
      t.row = row, t.token = first + j, t.in_row = j;
      t.computed = !pad || call.rows.pad == PadRow::kFromZero;
      if (t.computed) {
        Inputs inputs = before;
        append_path(call, first, j, &inputs);
        convolve(call, inputs, &t);
        t.kept = call.draft.keeps(!pad);
      } else {
        t.out = t.magnitude = Eigen::ArrayXd::Zero(call.x.shape[1]);
      }
      visit(t);
    }
  }
}

RowMatrix conv_state_after(const CausalConv1d& call, int64_t row) {
  Inputs inputs = history(call, row);
  for (int64_t j = 0; j < call.rows.tokens(row); ++j)
    inputs.push_back(token_input(call, call.rows.begin(row) + j));
  return last_inputs(inputs, call.weight.shape[1] - 1);
}

}  // namespace shadowgraph
