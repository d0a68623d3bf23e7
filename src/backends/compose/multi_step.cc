#include "backends/compose/multi_step.h"

#include "backends/compose/children.h"
#include "backends/fill/rows.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kMultiStepModes[] = {ForwardMode::kDraftDecode};

Limits limits_of_step(const Limits& limits, int32_t step) {
  Limits of_step = limits;
  of_step.step = step;
  of_step.max_kv_len += step - limits.step;
  of_step.sum_kv_lens = 0;
  return of_step;
}

}  // namespace

MultiStep::MultiStep(const Backend& child)
    : child_(child), name_(std::string(child.info().name) + "_multi_step"), info_(child.info()) {
  info_.name = name_;
  info_.about = "every step of a draft";
  info_.modes = kMultiStepModes;
  info_.whole_draft = true;
  info_.buffers = {};  // the children's
}

Status MultiStep::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status;
  if (limits.mode != ForwardMode::kDraftDecode)
    refuse(&status, "mode", "draft_decode", std::string(name_of(limits.mode)));
  if (limits.model.num_steps < 2) refuse(&status, "num_steps", ">= 2", limits.model.num_steps);
  if (!status.ok()) return status;
  ChildBinder binder(*this, arena, limits);
  for (int32_t s = 0; s + 1 < limits.model.num_steps; ++s) {
    binder.bind(child_, "step" + std::to_string(s), limits_of_step(limits, s));
  }
  return binder.finish(meta);
}

Status MultiStep::fill(const ForwardBatch& batch, Meta& meta) const {
  return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
    return b.fill(of, to);
  });
}

Status MultiStep::for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const {
  Status status;
  const int32_t num_steps = meta.limits.model.num_steps;
  if (batch.mode == ForwardMode::kDraftDecode && batch.spec.num_steps != num_steps)
    status.add(make_finding("batch.mode", at("spec.num_steps"), std::to_string(num_steps),
                            std::to_string(batch.spec.num_steps)));
  ForwardBatch of_step = batch;
  // The last step needs the most: where it is refused, nothing has been written.
  for (int32_t s = num_steps - 2; s >= 0 && status.ok(); --s) {
    of_step.spec.step = s;
    status.add(fn(child_, of_step, meta.children[static_cast<size_t>(s)]));
  }
  return status;
}

void MultiStep::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  const size_t layers = step.layers.size() / meta.children.size();
  StepIo of_step = step;
  for (size_t s = 0; s < meta.children.size(); ++s) {
    of_step.layers = step.layers.subspan(s * layers, layers);
    child_.forward(stream, meta.children[s], of_step);
  }
}

std::vector<int32_t> MultiStep::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                             const LayerKind& kind) const {
  return child_.merged_parts(batch, limits_of_step(limits, batch.spec.step), kind);
}

}  // namespace shadowgraph
