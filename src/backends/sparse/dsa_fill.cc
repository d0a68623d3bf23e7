// Fills the metadata of DeepSeek sparse attention: a table row for each token, lengths, gathered
// keys.
#include <algorithm>

#include "attn/page_table.h"
#include "backends/fill/longest_query.h"
#include "backends/sparse/dsa.h"
#include "shadowgraph/attention/conventions.h"

namespace shadowgraph {
namespace {

using Dsa = DeepSeekSparse;

/// One fill of a batch that fits.
class DsaFill {
 public:
  DsaFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch),
        limits_(meta.limits),
        meta_(meta),
        f_(meta),
        prefill_(is_sparse_prefill(limits_.mode)),
        topk_(sparse_layer_of(limits_.model)->topk),
        lens_(f_.ints(Dsa::kCacheSeqlens)),
        key_offsets_(f_.ints(Dsa::kCuSeqlensK)),
        expanded_(f_.ints(Dsa::kExpanded)),
        chosen_(f_.ints(Dsa::kDsaCacheSeqlens)),
        chosen_offsets_(f_.ints(Dsa::kDsaCuSeqlensK)) {
    if (!prefill_) context_ = f_.ints(Dsa::kContextLens);
    if (!prefill_) return;
    query_offsets_ = f_.ints(Dsa::kCuSeqlensQ);
    requests_ = f_.ints(Dsa::kTokenToBatch);
    first_ = f_.ints(Dsa::kKs), behind_ = f_.ints(Dsa::kKe);
    if (meta.has(Dsa::kTopkOffset)) offset_ = f_.ints(Dsa::kTopkOffset);
    query_offsets_[0] = 0;
  }

  Status run() {
    key_offsets_[0] = chosen_offsets_[0] = 0;
    int32_t longest = 0;
    for (int32_t i = 0; i < limits_.rows; ++i) {
      const RequestRow row = row_of(batch_, limits_, i);
      longest = std::max(longest, row.extent.kv_len);
      add_request(static_cast<size_t>(i), row);
    }
    while (at_ < expanded_.size()) add_unused();
    if (meta_.has(Dsa::kFlatSlots)) f_.retire_behind(Dsa::kFlatSlots, key_offsets_.back());
    f_.out_cache_loc(batch_, Dsa::kOutCacheLoc, -1);
    meta_.scalars[Dsa::kMaxSeqLenQ] = longest_query(batch_);
    meta_.scalars[Dsa::kMaxSeqLenK] = longest;
    return f_.take_status();
  }

 private:
  void add_request(size_t i, const RequestRow& row) {
    const int32_t keys = keys_of(row, key_offsets_[i]);
    lens_[i] = row.extent.kv_len;
    key_offsets_[i + 1] = key_offsets_[i] + keys;
    if (prefill_) table(static_cast<int64_t>(i), row);
    if (meta_.has(Dsa::kFlatSlots))
      slots(f_.list<int32_t>(Dsa::kFlatSlots, key_offsets_[i], keys), row);
    for (int32_t j = 0; j < row.extent.q_len && at_ < expanded_.size(); ++j) {
      if (!prefill_) table(static_cast<int64_t>(at_), row);
      add_token(i, std::max(0, row.extent.prefix_len + j + 1));
    }
    if (prefill_) query_offsets_[i + 1] = static_cast<int32_t>(at_);
  }

  /// A prefill's padding has no queries; its keys are among the gathered ones as far as these have
  /// room.
  int32_t keys_of(const RequestRow& row, int32_t before) const {
    if (!prefill_ || !row.padding()) return row.extent.kv_len;
    const int64_t room = meta_[Dsa::kPackedKeys].shape[0] - before;
    return static_cast<int32_t>(std::min<int64_t>(row.extent.kv_len, room));
  }

  void add_token(size_t request, int32_t seen) {
    const int32_t begin = key_offsets_[request];
    expanded_[at_] = seen;
    if (prefill_) {
      requests_[at_] = static_cast<int32_t>(request);
      first_[at_] = begin, behind_[at_] = begin + seen;
      if (!offset_.empty()) offset_[at_] = begin;
    } else {
      context_[at_] = seen;
    }
    chosen_[at_] = std::min(seen, topk_);
    chosen_offsets_[at_ + 1] = chosen_offsets_[at_] + chosen_[at_];
    ++at_;
  }

  /// A token of nobody sees nothing.
  void add_unused() {
    if (!prefill_) {
      f_.row(Dsa::kPageTable1, static_cast<int64_t>(at_), 0);
      f_.row(Dsa::kRealPageTable, static_cast<int64_t>(at_), 0);
    }
    add_token(0, 0);
  }

  void table(int64_t row, const RequestRow& request) {
    const int64_t keys = request.extent.kv_len;
    const std::span<int32_t> of_tokens = f_.row(Dsa::kPageTable1, row, keys);
    slots(of_tokens, request);
    const int32_t size = limits_.model.page_size;
    const auto step = static_cast<size_t>(size);
    const std::span<int32_t> pages = f_.row(Dsa::kRealPageTable, row, pages_for(keys, size));
    for (size_t p = 0; p < pages.size(); ++p)
      pages[p] = to_page(Slot(of_tokens[p * step]), size).value;
  }

  /// Padding's keys are the slots of page 0.
  void slots(std::span<int32_t> to, const RequestRow& request) const {
    for (size_t c = 0; c < to.size(); ++c)
      to[c] =
          request.padding() ? static_cast<int32_t>(c) % limits_.model.page_size : request.slots[c];
  }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  const bool prefill_;
  const int32_t topk_;
  std::span<int32_t> lens_, key_offsets_, expanded_, chosen_, chosen_offsets_, context_;
  std::span<int32_t> query_offsets_, requests_, first_, behind_, offset_;
  size_t at_ = 0;  // the next token
};

}  // namespace

Status DeepSeekSparse::fill(const ForwardBatch& batch, Meta& meta) const {
  Status status = fits(batch, meta.limits);
  return status.ok() ? DsaFill(batch, meta).run() : status;
}

}  // namespace shadowgraph
