// Faults of what lengths are taken to mean.
#include "faults/extents.h"

namespace shadowgraph {
namespace {

/// seq_lens of draft extends, replaced.
template <class Fn>
void replace_lens(ForwardBatch& batch, TapStorage& storage, Fn fn) {
  if (!is_draft_extend_v2(batch.mode)) return;
  std::vector<int32_t> lens;
  for (int64_t i = 0; i < batch.size(); ++i) lens.push_back(fn(batch.extent(i)));
  storage.push_back(std::move(lens));
  batch.seq_lens = storage.back();
}

}  // namespace

// Both take the lengths for what they are not; what is read of the batch afterwards is consistent.
void PrefixOnlyExtent::batch(ForwardBatch& batch, TapStorage& storage) const {
  replace_lens(batch, storage, [](const RequestExtent& e) {
    return e.prefix_len < e.q_len ? e.kv_len : e.prefix_len;
  });
  if (is_draft_extend_v2(batch.mode)) batch.seq_lens_kind = SeqLensKind::kFull;
}

void DoubleCountedExtent::batch(ForwardBatch& batch, TapStorage& storage) const {
  replace_lens(batch, storage, [](const RequestExtent& e) { return e.kv_len; });
  if (is_draft_extend_v2(batch.mode)) batch.seq_lens_kind = SeqLensKind::kPrefix;
}

void FirstEncoderLength::batch(ForwardBatch& batch, TapStorage& storage) const {
  if (batch.encoder_lens.empty()) return;
  storage.emplace_back(batch.encoder_lens.size(), batch.encoder_lens[0]);
  batch.encoder_lens = storage.back();
  batch.encoder_out_cache_loc = {};  // as long as the right ones
}

}  // namespace shadowgraph
