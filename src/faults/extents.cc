// Faults of what lengths are taken to mean.

#include <algorithm>

#include "faults/plant.h"

namespace shadowgraph {
namespace {

/// seq_lens of draft extends, replaced. False: nothing changes.
template <class Fn>
bool replace_lens(ForwardBatch& batch, std::vector<int32_t>* lens, SeqLensKind kind, Fn fn) {
  if (!is_draft_extend_v2(batch.mode)) return false;
  lens->clear();
  for (int64_t i = 0; i < batch.size(); ++i) lens->push_back(fn(batch.extent(i)));
  const bool changed = kind != batch.seq_lens_kind || !std::ranges::equal(*lens, batch.seq_lens);
  batch.seq_lens = *lens;
  batch.seq_lens_kind = kind;
  return changed;
}

// Both take the lengths for what they are not; what is read of the batch afterwards is consistent.

/// The lengths of a draft extend are taken for full ones, and are the prefix.
struct PrefixOnlyExtent final : Tap {
  void batch(ForwardBatch& batch) override {
    const auto prefix = [](const RequestExtent& e) {
      return e.prefix_len < e.q_len ? e.kv_len : e.prefix_len;
    };
    if (replace_lens(batch, &lens_, SeqLensKind::kFull, prefix)) act();
  }

 private:
  std::vector<int32_t> lens_;
};

/// They are full ones, and taken for the prefix.
struct DoubleCountedExtent final : Tap {
  void batch(ForwardBatch& batch) override {
    const auto all = [](const RequestExtent& e) { return e.kv_len; };
    if (replace_lens(batch, &lens_, SeqLensKind::kPrefix, all)) act();
  }

 private:
  std::vector<int32_t> lens_;
};

struct FirstEncoderLength final : Tap {
  void batch(ForwardBatch& batch) override {
    if (batch.encoder_lens.empty()) return;
    lens_.assign(batch.encoder_lens.size(), batch.encoder_lens[0]);
    if (std::ranges::equal(lens_, batch.encoder_lens)) return;
    act();
    batch.encoder_lens = lens_;
    batch.encoder_out_cache_loc = {};  // as long as the right ones
  }

 private:
  std::vector<int32_t> lens_;
};

constexpr Fault kExtentsFaults[] = {
    {"K01", "CE", "Draft extend reads only the prefix part of the cache",
     "sglang#26512 fa.I-03 fa.I-19", "extent.short_by_extend", make_tap<PrefixOnlyExtent>},
    {"K01b", "CE", "Draft extend counts the new tokens twice",
     "sglang#26512 sglang#26628 sglang#26651 fa.I-03 fa.I-19", "extent.long_by_extend extent.long",
     make_tap<DoubleCountedExtent>},
    {"K31", "SCALAR", "Cross-attention uses request 0's encoder length for every request",
     "sglang#25045 fa.I-43 fa.I-45", "extent.of_request table.shifted",
     make_tap<FirstEncoderLength>},
};

}  // namespace

std::span<const Fault> themes::extents() { return kExtentsFaults; }

}  // namespace shadowgraph
