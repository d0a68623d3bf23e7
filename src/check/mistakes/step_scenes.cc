#include "check/mistakes/step_scenes.h"

#include <algorithm>

#include "attn/row_keys.h"
#include "backends/fill/rows.h"

namespace shadowgraph {
namespace {

constexpr size_t kRemembered = 16;  // earlier steps

RowsRead rows_read(const CanonicalRows& canonical) {
  RowsRead rows{canonical.cu_seqlens_q, canonical.keys, {}};
  for (size_t r = 0; r + 1 < canonical.mask_indptr.size(); ++r) {
    const auto begin = canonical.mask.begin() + canonical.mask_indptr[r];
    rows.masks.emplace_back(begin, canonical.mask.begin() + canonical.mask_indptr[r + 1]);
  }
  return rows;
}

}  // namespace

void StepScenes::begin_step(const ForwardBatch& batch) {
  steps_.push_front(rows_read(canonical_rows(batch, kind_, model_)));
  if (steps_.size() > 1 + kRemembered) steps_.pop_back();
}

RowsRead StepScenes::padding_like(const RowsRead& rows) const {
  RowsRead padding;
  padding.cu_seqlens_q = rows.cu_seqlens_q;
  const int32_t fill = std::clamp(model_.seq_len_fill, 0, model_.page_size);
  for (size_t r = 0; r < rows.keys.size(); ++r) {
    std::vector<int32_t>& keys = padding.keys.emplace_back();
    for (int32_t k = 0; k < fill; ++k) keys.push_back(k);
  }
  return padding;
}

void StepScenes::add_neighbours(const ForwardBatch& batch, Scene* scene) const {
  const size_t rows = scene->rows.keys.size();
  scene->front.resize(rows), scene->behind.resize(rows);
  if (model_.dcp_size > 1 || rows_a_request(batch) != 1) return;
  const bool swa = in_window_pool(model_, kind_);
  const auto translated = [&](int32_t slot) -> int32_t {
    if (!swa) return slot;
    const auto i = static_cast<size_t>(slot);
    return i < batch.full_to_swa.size() ? static_cast<int32_t>(batch.full_to_swa[i]) : kNoToken;
  };
  for (size_t r = 0; r < rows; ++r) {
    const auto slots = batch.req_to_token.row(batch.req_pool_indices[r]);
    const bool encoder = !batch.encoder_lens.empty() && !kind_.cross;
    const size_t begin = encoder ? static_cast<size_t>(batch.encoder_lens[r]) : 0;
    const size_t end = begin + scene->rows.keys[r].size();
    for (size_t c = 0; c < begin; ++c) scene->front[r].push_back(translated(slots[c]));
    for (size_t c = end; c < slots.size(); ++c) scene->behind[r].push_back(translated(slots[c]));
  }
}

Scene StepScenes::of(const ForwardBatch& batch, const CanonicalCall& canonical) const {
  const PagedAttention& call = canonical.call();
  Scene scene;
  scene.q = call.q;
  scene.tokens = call.cache;
  scene.params = call.params;
  scene.params.custom_mask = {};
  scene.rows = rows_read(canonical.rows());
  scene.page_size = model_.page_size;
  scene.before.assign(steps_.begin() + 1, steps_.end());
  scene.before.push_back(padding_like(scene.rows));
  add_neighbours(batch, &scene);
  return scene;
}

}  // namespace shadowgraph
