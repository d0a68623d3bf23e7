#include "backends/two_batch_overlap.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backends/children.h"
#include "backends/rows.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

template <class View>
View rows_of(View v, int64_t first, int64_t count) {
  if (!v.defined()) return v;
  v.data += first * v.stride[0] * static_cast<int64_t>(size_of(v.dtype));
  v.shape[0] = count;
  return v;
}

LayerIo tokens_of(const LayerIo& io, int64_t first, int64_t count) {
  LayerIo part = io;
  part.q = rows_of(io.q, first, count);
  part.k = rows_of(io.k, first, count);
  part.v = rows_of(io.v, first, count);
  part.out = rows_of(io.out, first, count);
  part.lse = NaturalLse(rows_of(io.lse.tensor, first, count));
  return part;
}

/// A row of a half begins where its tokens do: the left half has all the tokens that it is bound
/// for, unless the right one has no request; so the rest fits the right one.
Status fits_halves(const ForwardBatch& left, const ForwardBatch& right, const Meta& meta) {
  Status status = fits(left, meta.children[0].limits);
  const int64_t tokens = Limits::exact(left, meta.limits.model).tokens;
  if (right.size() > 0 && tokens != meta.limits.split_tokens)
    status.add(make_finding("batch.mode", at("extend_lens"),
                            std::to_string(meta.limits.split_tokens) + " tokens in the first " +
                                std::to_string(meta.limits.split_rows) + " requests",
                            std::to_string(tokens)));
  return status;
}

}  // namespace

int64_t split_of(const ForwardBatch& batch) {
  int64_t total = 0, left = 0, best = 0, least = INT64_MAX;
  bool alike = true;
  for (int64_t i = 0; i < batch.size(); ++i) {
    total += batch.q_len(i);
    alike = alike && batch.q_len(i) == batch.q_len(0);
  }
  if (alike) return batch.size() / 2;
  for (int64_t i = 1; i < batch.size(); ++i) {
    left += batch.q_len(i - 1);
    const int64_t difference = std::abs(total - 2 * left);
    if (difference <= least) least = difference, best = i;
  }
  return best;
}

TwoBatchOverlap::TwoBatchOverlap(const Backend& child)
    : child_(child), name_(std::string(child.info().name) + "_two_batch"), info_(child.info()) {
  info_.name = name_;
  info_.about = "two halves of a batch";
  info_.ragged_graphs = false;
  info_.encoder = false;
  info_.fields = {};  // the children's
}

Status TwoBatchOverlap::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(info_, limits);
  const auto inside = [&](const char* field, int32_t split, int32_t all) {
    if (split < 1 || split >= all)
      status.add(make_finding("backend.limits", at(field),
                              "both halves have some of " + std::to_string(all),
                              std::to_string(split)));
  };
  inside("split_rows", limits.split_rows, limits.rows);
  inside("split_tokens", limits.split_tokens, limits.tokens);
  if (limits.model.max_encoder_len > 0)
    status.add(make_finding("backend.limits", at("max_encoder_len"), "0",
                            std::to_string(limits.model.max_encoder_len)));
  if (!status.ok()) return status;
  Limits left = limits, right = limits;
  left.rows = limits.split_rows, left.tokens = limits.split_tokens;
  right.rows -= left.rows, right.tokens -= left.tokens;
  right.first_row = limits.first_row + left.rows;
  ChildBinder binder(arena, limits);
  binder.bind(child_, "left", left);
  binder.bind(child_, "right", right);
  return binder.finish(meta);
}

Status TwoBatchOverlap::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits(batch, meta.limits);
  if (!status.ok()) return status;
  const int64_t first = std::min<int64_t>(batch.size(), meta.limits.split_rows);
  const ForwardBatch left = batch.slice(0, first);
  const ForwardBatch right = batch.slice(first, batch.size() - first);
  status = fits_halves(left, right, meta);
  if (!status.ok()) return status;
  status = child_.fill(left, meta.children[0]);
  if (status.ok()) status = child_.fill(right, meta.children[1]);
  return status;
}

void TwoBatchOverlap::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  const Limits& limits = meta.limits;
  std::vector<LayerIo> layers(step.layers.size());
  StepIo half = step;
  half.layers = layers;
  int64_t first = 0;
  for (const Meta& child : meta.children) {
    std::ranges::transform(step.layers, layers.begin(), [&](const LayerIo& io) {
      return tokens_of(io, first, child.limits.tokens);
    });
    child_.forward(stream, child, half);
    first = limits.split_tokens;
  }
}

}  // namespace shadowgraph
