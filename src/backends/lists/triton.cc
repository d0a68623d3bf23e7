#include "backends/lists/triton.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "backends/fill/buffer_rows.h"
#include "backends/lists/triton_rows.h"
#include "core/laws.h"
#include "launch/triton_launch.h"

namespace shadowgraph {
namespace {

using Tr = Triton;

constexpr ForwardMode kTritonModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                        ForwardMode::kMixed,         ForwardMode::kIdle,
                                        ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                        ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                        ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};
// An extend is never cut.
constexpr ForwardMode kSplitModes[] = {ForwardMode::kDecode, ForwardMode::kIdle,
                                       ForwardMode::kDraftDecode};

using field::any, field::bounded, field::key_indptr, field::list, field::rows;

constexpr BufferInfo splits(int buffer, std::string_view name) {
  BufferInfo row = bounded(rows(buffer, name, "fi.I-57"), 1);
  row.most_of = Tr::kAttnLogits;
  return row;
}
constexpr BufferInfo first_listed(int buffer, int indptr, std::string_view name) {
  BufferInfo row = any(bounded(rows(buffer, name, "fi.I-39"), 0, 0));
  row.role = Role::kFirstListed, row.lens = indptr;
  return row;
}

constexpr BufferInfo kTritonBuffers[] = {
    key_indptr(Tr::kKvIndptr, "kv_indptr", "fi.I-1 fi.I-16 fi.I-21 fi.I-23 fi.I-27"),
    list(Tr::kKvIndices, Tr::kKvIndptr, "kv_indices", "fi.I-6 fi.I-20"),
    any(recorded(Tr::kQoIndptr, Role::kQueryOffsets, "qo_indptr", "fi.I-3 fi.I-4")),
    any(key_indptr(Tr::kMaskIndptr, "mask_indptr", "fi.I-49")),
    field::shaped(FieldShape::kMask, Tr::kCustomMask, "custom_mask", "fi.I-50 fi.I-51 fi.I-52",
                  Tr::kMaskIndptr),
    recorded(Tr::kMaxExtendLen, Role::kLongestQuery, "max_extend_len", "fi.I-81"),
    splits(Tr::kNumKvSplits, "num_kv_splits"),
    key_indptr(Tr::kWindowKvIndptr, "window_kv_indptr", "fi.I-31 fi.I-32 fi.I-33"),
    list(Tr::kWindowKvIndices, Tr::kWindowKvIndptr, "window_kv_indices", "fi.I-34 fi.I-38"),
    splits(Tr::kWindowNumKvSplits, "window_num_kv_splits"),
    field::dead(FieldShape::kRows, "window_num_kv_splits",
                "no launch of a verify takes it: it stays as it was allocated"),
    first_listed(Tr::kWindowKvOffsets, Tr::kWindowKvIndptr, "window_kv_offsets"),
    field::shaped(FieldShape::kSizes, Tr::kAttnLogits, "attn_logits_shape", "fi.I-59"),
    {Tr::kOutCacheLoc, Role::kStored},
    recorded(Tr::kSwaOutCacheLoc, Role::kStoredInWindow, "swa_out_cache_loc", "fi.I-16 fi.I-38"),
};

constexpr PlanKey kTritonPlanKeys[] = {PlanKey::kWindow};

constexpr BackendInfo kTritonInfo{.name = "triton",
                                  .about = "Triton (SGLang)",
                                  .modes = kTritonModes,
                                  .page_sizes = {},
                                  .tree = true,
                                  .latent = true,
                                  .swa_pool = true,
                                  .batch_splits = kSplitModes,
                                  .plan_keys = kTritonPlanKeys,
                                  .sinks = true,
                                  .graph_storage = kOneForAllModes,
                                  .buffers = kTritonBuffers};

Status check_triton(const Limits& limits) {
  Status status = serves(kTritonInfo, limits);
  const ModelConfig& m = limits.model;
  const int32_t window = window_of(m);
  for (const LayerKind& k : m.layers)
    if (has_window(k) && k.params.window_left != window)
      refuse(&status, "window_left", "one window for all layers, " + std::to_string(window),
             k.params.window_left);
  const int64_t keys = most_listed_keys(limits, limits.max_kv_len);
  if (keys > INT32_MAX) refuse(&status, "max_kv_len", "at most 2147483647 keys in a list", keys);
  return status;
}

/// One bind: which buffers the limits ask for.
class TritonBind {
 public:
  TritonBind(const Backend& backend, const Arena& arena, const Limits& limits)
      : limits_(limits),
        window_(window_of(limits.model)),
        rows_(int64_t{limits.rows} * lists_a_row(limits)),
        keys_(most_listed_keys(limits, limits.max_kv_len)),
        b_(backend, arena, limits, Tr::kNumBuffers, Tr::kNumScalars) {}

  Status run(Meta* meta) {
    bind_csr(b_, Tr::kKv, "kv", rows_, keys_, DType::kI64);
    if (window_ >= 0)
      bind_csr(b_, Tr::kWindowKv, "window_kv", rows_,
               std::min(keys_, rows_ * (int64_t{window_} + 1)), DType::kI64);
    is_decode_or_idle(limits_.mode) ? bind_decode() : bind_extend();
    b_.out_cache_loc(Tr::kOutCacheLoc, Tr::kSwaOutCacheLoc);
    return b_.bind(meta);
  }

 private:
  void bind_decode() {
    b_.ints(Tr::kNumKvSplits, "num_kv_splits", {rows_});
    if (window_ >= 0) b_.ints(Tr::kWindowNumKvSplits, "window_num_kv_splits", {rows_});
    // Room for the widest layer. A granule is what every layer writes whole.
    int64_t heads = 0, dim = 0, granule = 0;
    for (const LayerKind& k : limits_.model.layers) {
      heads = std::max<int64_t>(heads, k.params.num_qo_heads);
      dim = std::max<int64_t>(dim, k.params.head_dim_vo);
      granule = std::gcd(granule, k.params.head_dim_vo);
    }
    const int64_t splits = max_kv_splits(limits_);
    b_.scratch(Tr::kAttnLogits, "attn_logits", DType::kF32, {rows_, heads, splits, dim},
               std::max<int64_t>(granule, 1));
    b_.scratch(Tr::kAttnLse, "attn_lse", DType::kF32, {rows_, heads, splits}, 1);
  }

  void bind_extend() {
    b_.ints(Tr::kQoIndptr, "qo_indptr", {limits_.rows + 1});
    if (window_ >= 0) b_.ints(Tr::kWindowKvOffsets, "window_kv_offsets", {limits_.rows});
    if (!is_target_verify(limits_.mode)) return;
    b_.slots(Tr::kMaskIndptr, "mask_indptr", limits_.rows + 1);
    b_.list(Tr::kCustomMask, "custom_mask", keys_ * limits_.max_q_len, DType::kU8);
    if (window_ >= 0) b_.ints(Tr::kDepths, "depths", {limits_.tokens});
  }

  const Limits& limits_;
  const int32_t window_;
  const int64_t rows_, keys_;
  Binder b_;
};

}  // namespace

const BackendInfo& Triton::info() const { return kTritonInfo; }

Status Triton::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check_triton(limits);
  if (status.ok()) status = TritonBind(*this, arena, limits).run(meta);
  if (status.ok()) meta->scalars[kMaxExtendLen] = limits.max_q_len;
  return status;
}

std::vector<int32_t> Triton::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                          const LayerKind& kind) const {
  const int32_t window = kind.params.window_left;
  const auto each = static_cast<size_t>(lists_a_row(limits));
  std::vector<int32_t> parts;
  if (!is_decode_or_idle(limits.mode)) {
    for (int64_t i = 0; i < batch.size(); ++i) {
      const RequestExtent e = batch.extent(i);
      parts.insert(parts.end(), static_cast<size_t>(e.q_len),
                   listed_tokens(limits.mode, e, window).size() > 0 ? 2 : 1);
    }
    return parts;
  }
  for (int32_t i = 0; i < limits.rows; ++i)
    parts.insert(parts.end(), each, keys_to_split(limits, row_of(batch, limits, i).extent, window));
  count_kv_splits(limits, has_window(kind), parts);
  parts.resize(static_cast<size_t>(batch.size()) * each);
  for (size_t r = 0; r < parts.size(); ++r) {
    const RequestExtent e = batch.extent(static_cast<int64_t>(r / each));
    const int32_t keys = listed_tokens(limits.mode, e, window).size();
    const int64_t per = triton_split_keys(keys, parts[r]);
    parts[r] = static_cast<int32_t>((keys + per - 1) / per);
  }
  return parts;
}

}  // namespace shadowgraph
