#include "shadowgraph/engine/backend.h"

#include <algorithm>
#include <limits>

#include "backends/compose/hybrid.h"
#include "backends/compose/hybrid_linear.h"
#include "backends/compose/multi_step.h"
#include "backends/compose/two_batch_overlap.h"
#include "backends/fill/rows.h"
#include "backends/lists/aiter.h"
#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_mla.h"
#include "backends/lists/triton.h"
#include "backends/paged/ascend.h"
#include "backends/paged/cutedsl_mla.h"
#include "backends/paged/cutlass_mla.h"
#include "backends/paged/dual_chunk.h"
#include "backends/paged/flash_attention.h"
#include "backends/paged/flash_mla.h"
#include "backends/paged/laws.h"
#include "backends/paged/trtllm_mha.h"
#include "backends/paged/trtllm_mla.h"
#include "backends/recurrent/mamba2.h"
#include "backends/recurrent/recurrent_families.h"
#include "backends/sparse/deepseek_v4.h"
#include "backends/sparse/deepseek_v4_hip.h"
#include "backends/sparse/dsa.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

/// A count beyond 32 bits is more than any backend serves.
int32_t saturated(int64_t n) {
  return static_cast<int32_t>(std::min<int64_t>(n, std::numeric_limits<int32_t>::max()));
}

}  // namespace

Limits Limits::exact(const ForwardBatch& batch, const ModelConfig& model) {
  Limits limits;
  limits.model = model;
  limits.mode = batch.mode;
  limits.rows = static_cast<int32_t>(batch.size());
  limits.step = batch.spec.step;
  const int32_t branches = batch.mode == ForwardMode::kDraftDecode ? batch.spec.topk : 1;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const RequestExtent e = batch.extent(i);
    limits.tokens = saturated(limits.tokens + int64_t{e.q_len} * branches);
    limits.max_q_len = std::max(limits.max_q_len, e.q_len);
    limits.max_kv_len = std::max(limits.max_kv_len, e.kv_len);
    limits.sum_kv_lens += e.kv_len;
    limits.max_items_len = std::max(limits.max_items_len, items_len(batch, i));
  }
  const BatchSplit split = split_of(batch, model);
  limits.split_rows = static_cast<int32_t>(split.rows);
  limits.split_tokens = static_cast<int32_t>(split.tokens);
  limits.split_request = split.request;
  return limits;
}

Limits Limits::bucket(ForwardMode mode, int32_t rows, int32_t q_len, const ModelConfig& model,
                      int32_t step) {
  Limits limits;
  limits.step = step;
  limits.model = model;
  limits.mode = mode;
  limits.rows = rows;
  const int32_t branches = mode == ForwardMode::kDraftDecode ? model.topk : 1;
  limits.tokens = saturated(int64_t{saturated(int64_t{rows} * q_len)} * branches);
  limits.max_q_len = q_len;
  limits.split_rows = rows / 2;
  limits.split_tokens = rows == 0 ? 0 : limits.tokens / rows * limits.split_rows;
  limits.max_kv_len =
      saturated(int64_t{model.max_context_len} + std::max(model.num_draft_tokens, model.num_steps));
  return limits;
}

std::vector<KeyList> Backend::key_lists(const Meta& /*meta*/, const LayerKind& /*kind*/) const {
  return {};
}

std::span<const Backend* const> all_backends() {
#define SG_BACKEND(name, ...) static const auto name = __VA_ARGS__;
#include "backends/backends.inc"
#undef SG_BACKEND
  static const Backend* const kAll[] = {
#define SG_BACKEND(name, ...) &(name),
#include "backends/backends.inc"
#undef SG_BACKEND
  };
  return kAll;
}

const Backend* find_backend(std::string_view name) {
  const auto all = all_backends();
  const auto it =
      std::ranges::find_if(all, [&](const Backend* b) { return b->info().name == name; });
  return it == all.end() ? nullptr : *it;
}

}  // namespace shadowgraph
