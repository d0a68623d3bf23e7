#include "backends/compose/two_batch_overlap.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <type_traits>
#include <variant>
#include <vector>

#include "attn/tensor_rows.h"
#include "attn/tree_mask.h"
#include "backends/compose/children.h"
#include "backends/fill/rows.h"
#include "backends/recurrent/recurrent_backend.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

/// Query tokens of a request for each of its new ones.
int64_t branches(const ForwardBatch& batch) {
  return batch.mode == ForwardMode::kDraftDecode ? batch.spec.topk : 1;
}

/// None of its tokens sees one behind it. Of a recurrent layer that is so, too, but its snapshots
/// lie at whole chunks of what one step has of a prompt.
bool may_cut_layer(const LayerKind& kind) {
  return sparse_of(kind) != nullptr || (is_dense_attention(kind) && kind.params.causal);
}

/// Only prompts: their layers may be cut, and their items stay together.
bool may_cut(ForwardMode m, const ModelConfig& model, bool items) {
  return !items && is_extend_or_draft_extend_or_mixed(m) && !is_draft_extend(m) &&
         std::ranges::all_of(model.layers, may_cut_layer);
}

/// Tensors of halves, as long as they are launched.
using HalfTensors = std::vector<std::shared_ptr<const void>>;

/// Pools are shared: a child's limits say which rows of what a verify leaves are its own.
LayerTensors tokens_of(const LayerTensors& own, int64_t first, int64_t count, HalfTensors* room) {
  const auto part = [&](auto whole) -> LayerTensors {
    if constexpr (!std::is_pointer_v<decltype(whole)>) {
      return whole;
    } else {
      using Tensors = std::remove_pointer_t<decltype(whole)>;
      const auto rows = std::make_shared<Tensors>(whole->rows(first, count));
      room->push_back(rows);
      return rows.get();
    }
  };
  return std::visit(part, own);
}

LayerIo tokens_of(const LayerIo& io, int64_t first, int64_t count, HalfTensors* room) {
  LayerIo part = io;
  part.own = tokens_of(io.own, first, count, room);
  part.q = rows_of(io.q, first, count);
  part.k = rows_of(io.k, first, count);
  part.v = rows_of(io.v, first, count);
  part.out = rows_of(io.out, first, count);
  part.lse = NaturalLse(rows_of(io.lse.tensor, first, count));
  return part;
}

/// Room for the lengths of halves that share a request: queries, keys and prompts.
size_t room_of(const Limits& limits) { return 3 * (static_cast<size_t>(limits.rows) + 1); }

/// The halves of a batch that fits, as limits say; host: room for their lengths.
struct Halves {
  Halves(const ForwardBatch& batch, const Limits& limits, std::vector<int32_t>& host) {
    const int64_t first = std::min<int64_t>(batch.size(), limits.split_rows);
    const bool cuts = limits.split_request && first < batch.size();
    left = batch.slice(0, first + (cuts ? 1 : 0));
    right = batch.slice(first, batch.size() - first);
    if (cuts) cut(limits.split_tokens, host);
  }

  ForwardBatch left, right;

 private:
  /// The last of left is the first of right.
  void cut(int64_t tokens, std::vector<int32_t>& host) {
    std::span<int32_t> room = host;
    const auto own = [&](std::span<const int32_t>& lens) {
      const std::span<int32_t> to = room.first(lens.size());
      room = room.subspan(lens.size());
      std::ranges::copy(lens, to.begin());
      lens = to;
      return to;
    };
    keep_prompts(room.first(static_cast<size_t>(left.size())));
    room = room.subspan(static_cast<size_t>(left.size()));
    const std::span<int32_t> left_q = own(left.extend_lens), right_q = own(right.extend_lens);
    const std::span<int32_t> left_len = own(left.seq_lens), right_len = own(right.seq_lens);
    const int32_t q_len = left_q.back();
    left_q.back() = static_cast<int32_t>(
        tokens - std::accumulate(left_q.begin(), left_q.end() - 1, int64_t{0}));
    right_q.front() = q_len - left_q.back();
    if (left.seq_lens_kind == SeqLensKind::kFull) {
      left_len.back() -= right_q.front();
    } else {
      right_len.front() += left_q.back();
    }
    first_tokens(left.out_cache_loc, right.out_cache_loc, tokens, left_q.back());
    first_tokens(left.positions, right.positions, tokens, left_q.back());
  }
  /// A request that is cut is still a part of its whole prompt.
  void keep_prompts(std::span<int32_t> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = left.prompt_len(static_cast<int64_t>(i));
    left.orig_seq_lens = to;
  }
  static void first_tokens(std::span<const int64_t>& all, std::span<const int64_t>& rest,
                           int64_t tokens, int32_t of_first) {
    if (all.empty()) return;
    all = all.first(static_cast<size_t>(tokens));
    rest = rest.subspan(static_cast<size_t>(of_first));
  }
};

/// A row of a half begins where its tokens do: the left half has all the tokens that it is bound
/// for, unless the right one has no request; so the rest fits the right one.
Status fits_halves(const ForwardBatch& batch, const Limits& limits) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < std::min<int64_t>(batch.size(), limits.split_rows); ++i)
    tokens += branches(batch) * batch.q_len(i);
  if (batch.size() <= limits.split_rows) return {};
  const bool inside =
      tokens < limits.split_tokens && limits.split_tokens < tokens + batch.q_len(limits.split_rows);
  if (limits.split_request ? inside : tokens == limits.split_tokens) return {};
  Status status;
  status.add(make_finding("batch.mode", at("extend_lens"),
                          std::to_string(limits.split_tokens) + " tokens in the first " +
                              std::to_string(limits.split_rows) + " requests" +
                              (limits.split_request ? " and a part of the next" : ""),
                          std::to_string(tokens)));
  return status;
}

}  // namespace

BatchSplit split_of(const ForwardBatch& batch, const ModelConfig& model) {
  BatchSplit balanced, cut;
  const int64_t rows = batch.size();
  int64_t total = 0, left = 0, least = INT64_MAX;
  bool alike = true;
  for (int64_t i = 0; i < rows; ++i) {
    total += batch.q_len(i);
    alike = alike && batch.q_len(i) == batch.q_len(0);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t difference = std::abs(total - 2 * left);
    if (alike ? i == rows / 2 : i > 0 && difference <= least) {
      least = difference;
      balanced = {i, left};
    }
    if (left < total / 2) cut = {i, total / 2, left + batch.q_len(i) > total / 2};
    left += batch.q_len(i);
  }
  const auto smaller = static_cast<double>(std::min(balanced.tokens, total - balanced.tokens));
  const bool uneven =
      smaller < static_cast<double>(model.two_chunk_below) * static_cast<double>(total);
  if (cut.request && uneven && may_cut(batch.mode, model, !batch.item_delimiters.empty()))
    return cut;
  balanced.tokens *= branches(batch);
  return balanced;
}

Limits left_half(const Limits& limits) {
  Limits left = limits;
  left.rows = limits.split_rows + (limits.split_request ? 1 : 0);
  left.tokens = limits.split_tokens;
  return left;
}

Limits right_half(const Limits& limits) {
  Limits right = limits;
  right.rows -= limits.split_rows, right.tokens -= limits.split_tokens;
  right.first_row = limits.first_row + limits.split_rows;
  return right;
}

TwoBatchOverlap::TwoBatchOverlap(const Backend& child)
    : child_(child), name_(std::string(child.info().name) + "_two_batch"), info_(child.info()) {
  info_.name = name_;
  info_.about = "two halves of a batch";
  info_.halves = true;
  info_.ragged_graphs = false;
  info_.encoder = false;
  info_.buffers = {};  // the children's
}

Status TwoBatchOverlap::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(info_, limits);
  const auto inside = [&](const char* field, int32_t first, int32_t split, int32_t all) {
    if (split < first || split >= all)
      refuse(&status, field, "both halves have some of " + std::to_string(all), split);
  };
  // A request that is cut is in both halves.
  inside("split_rows", limits.split_request ? 0 : 1, limits.split_rows, limits.rows);
  inside("split_tokens", 1, limits.split_tokens, limits.tokens);
  if (limits.split_request && !may_cut(limits.mode, limits.model, limits.max_items_len > 0))
    refuse(&status, "split_request", "no, except for prompts of causal layers without items",
           "yes");
  const float below = limits.model.two_chunk_below;
  if (!(below >= 0 && below <= 0.5f))
    refuse(&status, "two_chunk_below", "0 to 0.5", std::to_string(below));
  if (!status.ok()) return status;
  ChildBinder binder(*this, arena, limits);
  binder.bind(child_, "left", left_half(limits));
  binder.bind(child_, "right", right_half(limits));
  status = binder.finish(meta);
  if (status.ok() && limits.split_request) meta->host.resize(room_of(limits));
  return status;
}

Status TwoBatchOverlap::fill(const ForwardBatch& batch, Meta& meta) const {
  return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
    return b.fill(of, to);
  });
}

Status TwoBatchOverlap::for_each_part(const ForwardBatch& batch, Meta& meta,
                                      const PartFn& fn) const {
  Status status = fits(batch, meta.limits);
  if (!status.ok()) return status;
  // All that a half could refuse, before the first is filled.
  status = fits_halves(batch, meta.limits);
  if (status.ok()) status = translates(batch, meta.limits, 1);
  if (status.ok() && is_verify_tree(meta.limits)) status = check_trees(batch);
  if (status.ok() && std::ranges::any_of(meta.limits.model.layers, recurrent_of))
    status = has_states(batch, meta.limits, meta.children[0].has(RecurrentBackend::kDenseRows));
  if (!status.ok()) return status;
  const Halves halves(batch, meta.limits, meta.host);
  status = fn(child_, halves.left, meta.children[0]);
  if (status.ok()) status = fn(child_, halves.right, meta.children[1]);
  return status;
}

std::vector<int32_t> TwoBatchOverlap::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                                   const LayerKind& kind) const {
  std::vector<int32_t> host(room_of(limits));
  const Halves halves(batch, limits, host);
  std::vector<int32_t> parts = child_.merged_parts(halves.left, left_half(limits), kind);
  const std::vector<int32_t> right = child_.merged_parts(halves.right, right_half(limits), kind);
  parts.insert(parts.end(), right.begin(), right.end());
  return parts;
}

void TwoBatchOverlap::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  const Limits& limits = meta.limits;
  std::vector<LayerIo> layers(step.layers.size());
  StepIo half = step;
  half.layers = layers;
  HalfTensors room;
  int64_t first = 0;
  for (const Meta& child : meta.children) {
    std::ranges::transform(step.layers, layers.begin(), [&](const LayerIo& io) {
      return tokens_of(io, first, child.limits.tokens, &room);
    });
    child_.forward(stream, child, half);
    first = limits.split_tokens;
  }
}

}  // namespace shadowgraph
