#include "faults/masks.h"

#include <algorithm>
#include <string>

#include "backends/triton.h"
#include "faults/buffers.h"

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

}  // namespace

void MaskOfTheLastVerify::baked(Meta& meta, bool /*capturing*/) {
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

void MaskWithoutDrafts::bound(Meta& meta, bool /*capturing*/) {
  if (!is_target_verify(meta.limits.mode)) return;
  for_buffers(meta, {"custom_mask", "wrapper0_mask", "wrapper1_mask"},
              [&](const Meta& m, Buffer& b) {
                const int64_t pairs = own_name(b) == "custom_mask" ? 1 : 8;  // in a byte
                const int64_t drafts = int64_t{m.limits.tokens} * m.limits.max_q_len / pairs;
                if (drafts > 0) act();
                b.shape[0] = std::max<int64_t>(0, b.shape[0] - drafts);
              });
}

Status MaskWithoutPadding::filled(const ForwardBatch& batch, Meta& meta) {
  if (!is_target_verify(meta.limits.mode)) return {};
  for_endings(meta, {"mask_indptr"}, [&](const Meta& m, const Buffer& indptr) {
    const std::string_view name = own_name(indptr);
    const std::string_view stem = name.substr(0, name.size() - std::string_view("_indptr").size());
    const Buffer* mask = find_buffer(m, stem == "mask" ? "custom_mask" : stem);
    const int64_t rows = indptr.numel() - 1, real = real_rows(batch, m.limits).rows;
    if (mask == nullptr || real == rows) return;
    const int64_t bytes = mask_begin(m, indptr, real);
    if (mask_begin(m, indptr, rows) > bytes) act();
    keep_staged(m, *mask, {0, bytes});
    Arena arena = m.arena;
    (void)arena.retire(*mask, {bytes, mask->numel() - bytes});
  });
  return {};
}

}  // namespace shadowgraph
