// Checks a CausalConv1d: shapes, types, slots and draft steps.
#include <string>

#include "attn/validate/state_check.h"
#include "attn/validate/validate_recurrent.h"

namespace shadowgraph {
namespace {

constexpr int64_t kLeastWidth = 2, kMostWidth = 8;

/// What x says of the other tensors; kAny where it cannot be read.
struct Shape {
  int64_t tokens = kAny, dim = kAny, width = kAny;
  bool typed = false;  // x has a type that the others share
  DType type = DType::kF32;

  int64_t history() const { return width == kAny ? kAny : width - 1; }
};

bool check_written(TensorCheck& c, const char* field, const TensorView& t,
                   std::initializer_list<AxisSize> shape, const Shape& s) {
  if (s.typed) return c.output(field, t, shape, {s.type}, false);
  return c.output(field, t, shape, {DType::kF32, DType::kF16, DType::kBF16}, false);
}

Shape check_inputs(TensorCheck& c, const CausalConv1d& call) {
  Shape s;
  if (c.strided_input("x", call.x, {kAny, kAny}, kWide)) {
    s = {call.x.shape[0], call.x.shape[1], kAny, true, call.x.dtype};
  }
  if (c.strided_input("weight", call.weight, {s.dim, kAny}, kWide)) {
    const int64_t width = call.weight.shape[1];
    if (width >= kLeastWidth && width <= kMostWidth) {
      s.width = width;
    } else {
      c.fail("input.shape", at("weight.shape", 1), "2 <= width <= 8", std::to_string(width));
    }
  }
  if (call.bias.defined()) c.strided_input("bias", call.bias, {s.dim}, kWide);
  return s;
}

}  // namespace

Status validate(const CausalConv1d& call) {
  Status status;
  TensorCheck c(&status);
  const Shape s = check_inputs(c, call);
  const bool states_ok = check_written(c, "states", call.states, {kAny, s.dim, s.history()}, s);
  const DraftSteps& draft = call.draft;
  const bool keeps = draft.states.defined();
  const bool draft_ok =
      !keeps || check_written(c, "draft.states", draft.states, {kAny, kAny, s.dim, s.history()}, s);
  check_written(c, "out", call.out, {s.tokens, s.dim}, s);
  const bool rows_ok =
      states_ok && check_state_rows(c, call.rows, s.tokens, call.states.shape[0], true);
  if (rows_ok && draft_ok) {
    check_draft(c, draft, call.rows, keeps ? draft.states.shape[0] : 0,
                keeps ? draft.states.shape[1] : 0);
  }
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
