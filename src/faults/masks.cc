// Faults of the masks that a verified draft is seen through.

#include <algorithm>
#include <string>

#include "backends/lists/triton.h"
#include "faults/plant.h"

namespace shadowgraph {
namespace {

using Tr = Triton;

/// Bytes of the mask before this row.
int64_t mask_begin(const Meta& meta, const Buffer& indptr, int64_t row) {
  const Elements one{row, 1};
  if (indptr.dtype == DType::kI64) {
    const std::span<int64_t> begin = staged<int64_t>(meta, indptr, one);
    return begin.empty() ? 0 : begin[0];
  }
  const std::span<int32_t> begin = staged<int32_t>(meta, indptr, one);
  return begin.empty() ? 0 : begin[0];
}

/// The mask that these offsets lead into; nullptr: it is not bound.
const Buffer* mask_of(const Meta& meta, const Buffer& indptr) {
  const std::string_view name = own_name(indptr);
  const std::string_view stem = name.substr(0, name.size() - std::string_view("_indptr").size());
  return find_buffer(meta, stem == "mask" ? "custom_mask" : stem);
}

/// The mask of a verify is still there when the next plan has none, and is taken for that step's:
/// of a backend that masks wherever it has a mask.
struct MaskOfTheLastVerify final : Tap {
  void baked(Meta& meta, bool /*capturing*/) override {
    for_metas_of<Triton>(meta, [&](Meta& m) {
      if (!m.has(Tr::kQoIndptr)) return;  // a decode
      if (m.has(Tr::kCustomMask)) {
        mask_ = m[Tr::kCustomMask], indptr_ = m[Tr::kMaskIndptr], depths_ = m[Tr::kDepths];
      } else if (mask_.data != nullptr) {
        m.buffers[Tr::kCustomMask] = mask_;
        m.buffers[Tr::kMaskIndptr] = indptr_;
        m.buffers[Tr::kDepths] = depths_;
        act();
      }
    });
  }

 private:
  Buffer mask_, indptr_, depths_;
};

constexpr Fault kMasksFaults[] = {
    {"K70", "TREE", "The mask of a verify outlives the next plan",
     "flashinfer#1028 fi.I-54 fi.I-63", "mask.stale", make_tap<MaskOfTheLastVerify>},
    // The mask's buffer has room for the context, and none for the drafts.
    {"K71", "TREE", "The mask's buffer has no room for the drafts", "sglang#32920 fi.I-49", "",
     on_bound([](Tap& tap, Meta& meta, bool) {
       if (!is_target_verify(meta.limits.mode)) return;
       for_buffers(meta, {"custom_mask", "wrapper0_mask", "wrapper1_mask"},
                   [&](const Meta& m, Buffer& b) {
                     const int64_t pairs = own_name(b) == "custom_mask" ? 1 : 8;  // in a byte
                     const int64_t drafts = int64_t{m.limits.tokens} * m.limits.max_q_len / pairs;
                     if (drafts > 0) tap.act();
                     b.shape[0] = std::max<int64_t>(0, b.shape[0] - drafts);
                   });
     })},
    // Padding has offsets into the mask, and no mask.
    {"K72", "TREE", "A verify's mask ends with its real requests, and its offsets do not",
     "sglang#19741 fa.I-40 fi.I-54", "",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!is_target_verify(meta.limits.mode)) return;
       for_endings(meta, {"mask_indptr"}, [&](const Meta& m, const Buffer& indptr) {
         const Buffer* mask = mask_of(m, indptr);
         const int64_t rows = indptr.numel() - 1, real = real_rows(batch, m.limits).rows;
         if (mask == nullptr || real == rows) return;
         const int64_t bytes = mask_begin(m, indptr, real);
         if (mask_begin(m, indptr, rows) > bytes) tap.act();
         keep_staged(m, *mask, {0, bytes});
         Arena arena = m.arena;
         (void)arena.retire(*mask, {bytes, mask->numel() - bytes});
       });
     })},
};

}  // namespace

std::span<const Fault> themes::masks() { return kMasksFaults; }

}  // namespace shadowgraph
