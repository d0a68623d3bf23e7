// Faults of what lengths are taken to mean.
#include "faults/extents.h"

#include <algorithm>

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

}  // namespace

// Both take the lengths for what they are not; what is read of the batch afterwards is consistent.
void PrefixOnlyExtent::batch(ForwardBatch& batch) {
  const auto prefix = [](const RequestExtent& e) {
    return e.prefix_len < e.q_len ? e.kv_len : e.prefix_len;
  };
  if (replace_lens(batch, &lens_, SeqLensKind::kFull, prefix)) act();
}

void DoubleCountedExtent::batch(ForwardBatch& batch) {
  const auto all = [](const RequestExtent& e) { return e.kv_len; };
  if (replace_lens(batch, &lens_, SeqLensKind::kPrefix, all)) act();
}

void FirstEncoderLength::batch(ForwardBatch& batch) {
  if (batch.encoder_lens.empty()) return;
  lens_.assign(batch.encoder_lens.size(), batch.encoder_lens[0]);
  if (std::ranges::equal(lens_, batch.encoder_lens)) return;
  act();
  batch.encoder_lens = lens_;
  batch.encoder_out_cache_loc = {};  // as long as the right ones
}

}  // namespace shadowgraph
