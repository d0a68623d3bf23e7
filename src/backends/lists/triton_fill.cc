// Fills Triton's metadata: lists of slots, masks, offsets, and splits of each row.
#include <algorithm>
#include <optional>

#include "attn/tree_mask.h"
#include "backends/fill/longest_query.h"
#include "backends/lists/triton.h"
#include "backends/lists/triton_rows.h"

namespace shadowgraph {
namespace {

using Tr = Triton;

/// The lists of the layers with a window, or of those without.
class Lists {
 public:
  Lists(Filler& f, const Meta& meta, bool window, std::span<const int64_t> map)
      : limits_(meta.limits), map_(map), window_left_(window ? window_of(limits_.model) : -1) {
    if (!meta.has(window ? Tr::kWindowKvIndptr : Tr::kKvIndptr)) return;
    csr_.emplace(f, window ? Tr::kWindowKv : Tr::kKv);
    const auto splits = window ? Tr::kWindowNumKvSplits : Tr::kNumKvSplits;
    if (meta.has(splits)) splits_ = f.ints(splits);
    if (window && meta.has(Tr::kWindowKvOffsets)) offsets_ = f.ints(Tr::kWindowKvOffsets);
  }

  void add(int64_t i, const RequestRow& row) {
    if (!csr_) return;
    const KvRange tokens = listed_tokens(limits_.mode, row.extent, window_left_);
    csr_->add(row, tokens, map_);
    if (!offsets_.empty()) offsets_[static_cast<size_t>(i)] = tokens.begin;
    count(i, row.extent);
  }
  /// Adds branch r of a draft tree: the committed prefix, then the branch's own tokens.
  void add_branch(int64_t r, const RequestRow& row, std::span<const int64_t> branch) {
    if (!csr_) return;
    csr_->add(row, listed_tokens(limits_.mode, row.extent, window_left_), branch, map_);
    count(r, row.extent);
  }
  void close() {
    if (!csr_) return;
    csr_->close();
    count_kv_splits(limits_, window_left_ >= 0, splits_);
  }

 private:
  void count(int64_t r, const RequestExtent& e) {
    if (!splits_.empty()) splits_[static_cast<size_t>(r)] = keys_to_split(limits_, e, window_left_);
  }

  const Limits& limits_;
  const std::span<const int64_t> map_;
  const int32_t window_left_;
  std::optional<CsrRows<int64_t>> csr_;
  std::span<int32_t> splits_, offsets_;
};

/// One fill of a batch that fits.
class TritonFill {
 public:
  TritonFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch),
        limits_(meta.limits),
        meta_(meta),
        f_(meta),
        all_(f_, meta, false, {}),
        window_(f_, meta, true,
                limits_.model.swa_pool ? batch.full_to_swa : std::span<const int64_t>{}),
        mask_(batch.spec.custom_mask) {
    if (meta.has(Tr::kQoIndptr)) qo_indptr_ = f_.ints(Tr::kQoIndptr);
    if (meta.has(Tr::kMaskIndptr)) mask_indptr_ = f_.slots(Tr::kMaskIndptr);
    if (meta.has(Tr::kDepths)) depths_ = f_.ints(Tr::kDepths);
    if (!qo_indptr_.empty()) qo_indptr_[0] = 0;
    if (!mask_indptr_.empty()) mask_indptr_[0] = 0;
  }

  Status run() {
    for_each_row(batch_, limits_, [&](int32_t i, const RequestRow& row) {
      if (is_draft_tree(limits_)) return draft_branches(i, row);
      all_.add(i, row);
      window_.add(i, row);
      if (!mask_indptr_.empty()) verify_mask(i, row);
      tokens_ += row.extent.q_len;
      if (!qo_indptr_.empty()) qo_indptr_[static_cast<size_t>(i) + 1] = tokens_;
    });
    all_.close();
    window_.close();
    if (!mask_indptr_.empty()) f_.retire_behind(Tr::kCustomMask, mask_indptr_.back());
    if (!depths_.empty()) std::ranges::fill(depths_.subspan(static_cast<size_t>(tokens_)), 0);
    meta_.scalars[Tr::kMaxExtendLen] = longest_query(batch_);
    f_.out_cache_loc(batch_, Tr::kOutCacheLoc, Tr::kSwaOutCacheLoc);
    return f_.take_status();
  }

 private:
  void draft_branches(int64_t i, const RequestRow& row) {
    for (int64_t r = i * limits_.model.topk; r < (i + 1) * limits_.model.topk; ++r) {
      std::span<const int64_t> branch;  // padding has only slot 0
      if (!row.padding()) branch = drafted_slots(batch_, limits_, r);
      all_.add_branch(r, row, branch);
      window_.add_branch(r, row, branch);
    }
  }

  /// The batch's own mask, or a chain's, in which a token sees those before it.
  void verify_mask(int64_t i, const RequestRow& row) {
    RequestExtent e = row.extent;
    e.kv_len = e.prefix_len + e.q_len;
    const int64_t first = mask_indptr_[static_cast<size_t>(i)], pairs = int64_t{e.q_len} * e.kv_len;
    mask_indptr_[static_cast<size_t>(i) + 1] = first + pairs;
    const std::span<uint8_t> to = f_.list<uint8_t>(Tr::kCustomMask, first, pairs);
    if (row.padding() || mask_.empty()) {
      const auto prefix = static_cast<size_t>(e.prefix_len), keys = static_cast<size_t>(e.kv_len);
      for (size_t at = 0; at < to.size(); ++at) to[at] = at % keys <= prefix + at / keys;
    } else {
      std::ranges::transform(mask_.first(to.size()), to.begin(),
                             [](uint8_t bit) { return bit != 0; });
      mask_ = mask_.subspan(to.size());
    }
    for (int32_t t = 0; t < e.q_len && !depths_.empty(); ++t)
      depths_[static_cast<size_t>(tokens_) + static_cast<size_t>(t)] =
          TreeMask(to, e).visible(t) - 1;
  }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  Lists all_, window_;
  std::span<const uint8_t> mask_;
  std::span<int32_t> qo_indptr_, depths_;
  std::span<int64_t> mask_indptr_;
  int32_t tokens_ = 0;  // of the rows so far
};

}  // namespace

Status Triton::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits_lists(batch, meta.limits);
  return status.ok() ? TritonFill(batch, meta).run() : status;
}

}  // namespace shadowgraph
