// Fills FlashInfer's metadata: lists of slots, masks, items, and the plans over them.
#include <algorithm>

#include "attn/tree_mask.h"
#include "backends/fill/csr_rows.h"
#include "backends/fill/packed_mask.h"
#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_wrapper.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;
using Part = Fi::Part;

/// One fill of a batch that fits.
class FlashInferFill {
 public:
  FlashInferFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch), limits_(meta.limits), meta_(meta), f_(meta) {
    meta.scalars[Fi::kWindowLeft] = -1;
    meta.scalars[Fi::kUseRagged] = 0;
  }

  Status run() {
    queries();
    if (limits_.max_items_len > 0) items();
    for (int w = 0; w < Fi::kNumWrappers; ++w) {
      const FlashInferWrapper wrapper = FlashInferWrapper::of(limits_, w);
      if (!wrapper.used) continue;
      list(w, wrapper);
      if (wrapper.masked) masks(w, wrapper);
      plan(w, Part::kPaged, wrapper, f_.ints(Fi::list(w, Fi::kKvIndptr)));
      if (!wrapper.ragged) continue;
      plan(w, Part::kRagged, wrapper, qo_indptr_);
      meta_.scalars[Fi::kUseRagged] = 1;
    }
    f_.out_cache_loc(batch_, Fi::kOutCacheLoc, Fi::kSwaOutCacheLoc);
    f_.encoder_out_cache_loc(batch_, Fi::kEncoderOutCacheLoc);
    status_.add(f_.take_status());
    return std::move(status_);
  }

 private:
  void queries() {
    bool no_prefix =
        is_extend(limits_.mode) && !is_target_verify(limits_.mode) && limits_.max_items_len == 0;
    qo_indptr_ = f_.ints(Fi::kQoIndptr);
    if (!is_decode_or_idle(limits_.mode)) {
      qo_indptr_[0] = 0;
      for_each_row(batch_, limits_, [&](int64_t i, const RequestRow& row) {
        const auto at = static_cast<size_t>(i);
        qo_indptr_[at + 1] = qo_indptr_[at] + row.extent.q_len;
        no_prefix = no_prefix && (row.padding() || row.extent.prefix_len == 0);
      });
    }
    meta_.scalars[Fi::kExtendNoPrefix] = no_prefix;
  }

  void items() {
    const std::span<int32_t> prefixes = f_.ints(Fi::kItemPrefixLens),
                             places = f_.ints(Fi::kTokenPosInItems),
                             longest = f_.ints(Fi::kMaxItemLens);
    std::ranges::fill(places, 0);
    for_each_row(batch_, limits_, [&](int64_t i, const RequestRow& row) {
      const auto at = static_cast<size_t>(i);
      prefixes[at] = row.extent.kv_len, longest[at] = 0;
      if (row.padding() || batch_.delimiters(i).empty()) return;
      std::span<const int32_t> rest = batch_.delimiters(i);
      const int32_t first = rest.front();
      prefixes[at] = row.extent.prefix_len + first;
      const auto own = places.subspan(at * static_cast<size_t>(limits_.max_items_len));
      int32_t place = 0;
      for (int32_t t = first; t < row.extent.q_len; ++t, ++place) {
        if (!rest.empty() && rest.front() == t) rest = rest.subspan(1), place = 0;
        own[static_cast<size_t>(t - first)] = place;
        longest[at] = std::max(longest[at], place);
      }
    });
  }

  void list(int w, const FlashInferWrapper& wrapper) {
    const auto map = wrapper.window_pool ? batch_.full_to_swa : std::span<const int64_t>{};
    const int32_t window = wrapper.kind.params.window_left;
    CsrRows rows(f_, {Fi::list(w, Fi::kKvIndptr), Fi::list(w, Fi::kKvIndices)});
    for_each_row(batch_, limits_, [&](int64_t i, const RequestRow& row) {
      const KvRange keys = wrapper.keys(row);
      if (wrapper.kind.cross) {
        rows.add({.extent = {}, .slots = encoder_of(i, row)}, keys);
      } else if (!row.padding() && limits_.mode == ForwardMode::kDraftDecode &&
                 !batch_.out_cache_loc.empty()) {
        for (int64_t r = i * lists_a_row(limits_); r < (i + 1) * lists_a_row(limits_); ++r)
          rows.add(row, keys, drafted_slots(batch_, limits_, r), map);
      } else {
        for (int32_t b = 0; b < lists_a_row(limits_); ++b) rows.add(row, keys, map);
      }
      // The last query sees less than the list has.
      if (window >= 0 && !wrapper.masked && !row.padding() &&
          row.extent.kv_len - 1 - window > keys.begin)
        meta_.scalars[Fi::kWindowLeft] = window;
    });
    rows.close();
  }

  std::span<const int32_t> encoder_of(int64_t i, const RequestRow& row) const {
    if (row.padding()) return {};
    const int32_t pool_row = batch_.req_pool_indices[static_cast<size_t>(i)];
    return batch_.req_to_token.row(pool_row).first(static_cast<size_t>(row.encoder_len));
  }

  /// Writes masks, for padding too: a graph's kernel reads the mask of every row.
  void masks(int w, const FlashInferWrapper& wrapper) {
    const std::span<int32_t> indptr = f_.ints(Fi::list(w, Fi::kMaskIndptr));
    std::span<const uint8_t> trees;
    if (is_target_verify(limits_.mode)) trees = batch_.spec.custom_mask;
    indptr[0] = 0;
    for_each_row(batch_, limits_, [&](int64_t i, const RequestRow& row) {
      const auto at = static_cast<size_t>(i);
      PackedMask mask{row.extent, wrapper.keys(row), wrapper.kind.params, {}};
      if (!row.padding() && !trees.empty()) {
        mask.tree.emplace(trees, row.extent);
        trees = mask.tree->rest();
      }
      const int64_t bytes = mask.bytes();
      indptr[at + 1] = indptr[at] + static_cast<int32_t>(bytes);
      mask.write(f_.list<uint8_t>(Fi::list(w, Fi::kMask), indptr[at], bytes));
    });
    f_.retire_behind(Fi::list(w, Fi::kMask), indptr.back());
  }

  /// Writes the arrays that the part's plan needs, and retires the rest.
  void plan(int w, Part part, const FlashInferWrapper& wrapper,
            std::span<const int32_t> kv_indptr) {
    const PlanShape shape = wrapper.shape(limits_, part);
    const bool decode = shape.kind == PlanKind::kDecode;
    const auto queries = decode ? std::span<const int32_t>{} : qo_indptr_;
    const PlanResult plan = measure_plan(shape, queries, kv_indptr);
    const auto array = [&](Fi::PlanId id, int64_t count) {
      const int buffer = Fi::plan(w, part, id);
      const int64_t used = std::min(count, meta_[static_cast<size_t>(buffer)].numel());
      f_.retire_behind(buffer, used);
      return f_.list<int32_t>(buffer, 0, used);
    };
    PlanArrays to;
    to.request_indices = array(Fi::kRequestIndices, plan.items);
    to.kv_tile_indices = array(Fi::kKvTileIndices, plan.items);
    if (!decode) to.qo_tile_indices = array(Fi::kQoTileIndices, plan.items);
    to.o_indptr = array(Fi::kOIndptr, shape.rows + 1);
    if (!decode) to.merge_indptr = array(Fi::kMergeIndptr, qo_indptr_.back() + 1);
    to.kv_chunk_size = array(Fi::kKvChunkSize, 1);
    const int valid = Fi::plan(w, part, Fi::kBlockValidMask);
    to.block_valid_mask = f_.list<uint8_t>(valid, 0, meta_[static_cast<size_t>(valid)].numel());
    status_.add(write_plan(shape, queries, kv_indptr, plan, to));
    meta_.scalars[static_cast<size_t>(Fi::split_kv(w, part))] = plan.split_kv;
  }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  Status status_;
  std::span<int32_t> qo_indptr_;
};

}  // namespace

Status FlashInfer::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits_lists(batch, meta.limits);
  return status.ok() ? FlashInferFill(batch, meta).run() : status;
}

}  // namespace shadowgraph
