#include "backends/lists/flashinfer.h"

#include <string>
#include <utility>

#include "backends/fill/buffer_rows.h"
#include "backends/fill/csr_rows.h"
#include "backends/lists/flashinfer_wrapper.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

using Fi = FlashInfer;
using Part = Fi::Part;

constexpr ForwardMode kFlashInferModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                            ForwardMode::kMixed,         ForwardMode::kIdle,
                                            ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                            ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                            ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};

using field::bounded, field::indptr, field::key_indptr, field::list, field::packed_mask;

constexpr std::string_view kChoice = "a choice between launches that give the same";
constexpr std::string_view kAtBind = "written at bind, of the model: no batch changes it";

/// The twin's page is one token.
constexpr BufferInfo last_page_len(std::string_view name, Role role = Role::kNone) {
  BufferInfo row = bounded(field::rows(Fi::kLastPageLen, name, "fi.I-10 fi.I-15"), 1, 1);
  row.role = role, row.of_last_page = true;
  return row;
}
constexpr BufferInfo choice(int scalar, std::string_view name, std::string_view refs) {
  return field::scalar(scalar, name, refs, FieldRule::kConstant);
}

// Wrappers of one engine's names: decode[i] plans decodes, paged[i] everything else.
constexpr BufferInfo kFlashInferBuffers[] = {
    key_indptr(Fi::list(0, Fi::kKvIndptr), "decode[0].kv_indptr", "fi.I-16 fi.I-23 fi.I-32"),
    list(Fi::list(0, Fi::kKvIndices), Fi::list(0, Fi::kKvIndptr), "decode[0].kv_indices",
         "fi.I-6 fi.I-31 fi.I-38"),
    last_page_len("decode[0].kv_last_page_len", Role::kOnes),
    unread(choice(Fi::kPageSize, "decode[0].page_size", "fi.I-15"), kAtBind),
    unread(choice(Fi::kNumQoHeads + 0, "decode[0].num_qo_heads", ""), kAtBind),
    unread(choice(Fi::kNumKvHeads + 0, "decode[0].num_kv_heads", ""), kAtBind),
    key_indptr(Fi::list(0, Fi::kKvIndptr), "decode[0].global_override_indptr_cpu",
               "fi.I-11 fi.I-12"),
    key_indptr(Fi::list(1, Fi::kKvIndptr), "decode[1].kv_indptr", "fi.I-16 fi.I-17"),
    list(Fi::list(1, Fi::kKvIndices), Fi::list(1, Fi::kKvIndptr), "decode[1].kv_indices",
         "fi.I-6 fi.I-17"),
    last_page_len("decode[1].kv_last_page_len"),
    choice(Fi::kPageSize, "decode[1].page_size", "fi.I-15"),
    unread(choice(Fi::kNumQoHeads + 1, "decode[1].num_qo_heads", ""), kAtBind),
    unread(choice(Fi::kNumKvHeads + 1, "decode[1].num_kv_heads", ""), kAtBind),
    key_indptr(Fi::list(1, Fi::kKvIndptr), "decode[1].global_override_indptr_cpu",
               "fi.I-11 fi.I-17"),
    recorded(Fi::kQoIndptr, Role::kQueryOffsets, "paged[0].qo_indptr", "fi.I-3 fi.I-4"),
    indptr(Fi::kQoIndptr, "paged[0].qo_indptr_host", "fi.I-3 fi.I-11"),
    key_indptr(Fi::list(0, Fi::kKvIndptr), "paged[0].kv_indptr",
               "fi.I-18 fi.I-20 fi.I-21 fi.I-27 fi.I-33 fi.I-41"),
    key_indptr(Fi::list(0, Fi::kKvIndptr), "paged[0].kv_indptr_host", "fi.I-11 fi.I-21"),
    field::shaped(FieldShape::kSteps, Fi::list(0, Fi::kKvIndptr), "paged[0].kv_lens_host",
                  "fi.I-11 fi.I-21"),
    list(Fi::list(0, Fi::kKvIndices), Fi::list(0, Fi::kKvIndptr), "paged[0].kv_indices",
         "fi.I-6 fi.I-22 fi.I-35 fi.I-38"),
    last_page_len("paged[0].kv_last_page_len"),
    choice(Fi::kPageSize, "paged[0].page_size", "fi.I-15"),
    choice(Fi::kNumQoHeads + 0, "paged[0].num_qo_heads", ""),
    choice(Fi::kNumKvHeads + 0, "paged[0].num_kv_heads", ""),
    packed_mask(Fi::list(0, Fi::kMask), Fi::list(0, Fi::kMaskIndptr), Fi::list(0, Fi::kKvIndptr),
                "paged[0].custom_mask", "fi.I-34 fi.I-42 fi.I-44 fi.I-50 fi.I-52"),
    recorded(Fi::kWindowLeft, Role::kWindow, "paged[0].window_left", "fi.I-36 fi.I-37"),
    indptr(Fi::kQoIndptr, "paged[1].qo_indptr", "fi.I-3 fi.I-4"),
    indptr(Fi::kQoIndptr, "paged[1].qo_indptr_host", "fi.I-3 fi.I-11"),
    key_indptr(Fi::list(1, Fi::kKvIndptr), "paged[1].kv_indptr",
               "fi.I-17 fi.I-18 fi.I-20 fi.I-21 fi.I-41"),
    key_indptr(Fi::list(1, Fi::kKvIndptr), "paged[1].kv_indptr_host", "fi.I-11 fi.I-21"),
    field::shaped(FieldShape::kSteps, Fi::list(1, Fi::kKvIndptr), "paged[1].kv_lens_host",
                  "fi.I-11 fi.I-21"),
    list(Fi::list(1, Fi::kKvIndices), Fi::list(1, Fi::kKvIndptr), "paged[1].kv_indices",
         "fi.I-6 fi.I-17 fi.I-22"),
    last_page_len("paged[1].kv_last_page_len"),
    choice(Fi::kPageSize, "paged[1].page_size", "fi.I-15"),
    choice(Fi::kNumQoHeads + 1, "paged[1].num_qo_heads", ""),
    choice(Fi::kNumKvHeads + 1, "paged[1].num_kv_heads", ""),
    packed_mask(Fi::list(1, Fi::kMask), Fi::list(1, Fi::kMaskIndptr), Fi::list(1, Fi::kKvIndptr),
                "paged[1].custom_mask", "fi.I-50 fi.I-52 fi.I-55"),
    indptr(Fi::kQoIndptr, "ragged[0].qo_indptr", "fi.I-3"),
    indptr(Fi::kQoIndptr, "ragged[0].kv_indptr", "fi.I-40"),
    choice(Fi::kNumQoHeads + 0, "ragged[0].num_qo_heads", ""),
    choice(Fi::kNumKvHeads + 0, "ragged[0].num_kv_heads", ""),
    indptr(Fi::kQoIndptr, "ragged[1].qo_indptr", "fi.I-3"),
    indptr(Fi::kQoIndptr, "ragged[1].kv_indptr", "fi.I-40"),
    choice(Fi::kNumQoHeads + 1, "ragged[1].num_qo_heads", ""),
    choice(Fi::kNumKvHeads + 1, "ragged[1].num_kv_heads", ""),
    unread(choice(Fi::kUseRagged, "use_ragged", "fi.I-40"), kChoice),
    unread(choice(Fi::kExtendNoPrefix, "extend_no_prefix", "fi.I-48"), kChoice),
    {Fi::kOutCacheLoc, Role::kStored},
    {Fi::kSwaOutCacheLoc, Role::kStoredInWindow},
    dead(named("encoder_out_cache_loc", {Fi::kEncoderOutCacheLoc, Role::kStoredOfEncoder}),
         kEncodersInExtends, kDecodeModes),
};

constexpr PlanKey kFlashInferPlanKeys[] = {PlanKey::kHeads, PlanKey::kWindow};

constexpr BackendInfo kFlashInferInfo{.name = "flashinfer",
                                      .about = "FlashInfer: lists of slots, planned (SGLang)",
                                      .modes = kFlashInferModes,
                                      .page_sizes = {},
                                      .tree = true,
                                      .swa_pool = true,
                                      .encoder = true,
                                      .window_with_encoder = false,
                                      .items = true,
                                      .ragged_prefill = true,
                                      .batch_splits = kFlashInferModes,
                                      .plan_keys = kFlashInferPlanKeys,
                                      .sinks = true,
                                      .lse_sink = LseSink::kIncluded,
                                      .graph_storage = kWrappers,
                                      .buffers = kFlashInferBuffers};

/// What metadata of a wrapper depends on.
bool share_a_wrapper(const AttentionParams& a, const AttentionParams& b) {
  return a.num_qo_heads == b.num_qo_heads && a.num_kv_heads == b.num_kv_heads &&
         a.head_dim_qk == b.head_dim_qk && a.head_dim_vo == b.head_dim_vo && a.causal == b.causal &&
         a.window_left == b.window_left && a.window_right == b.window_right;
}

/// Every request's segment ends with a whole byte.
int64_t mask_bytes(const FlashInferWrapper& w, const Limits& limits) {
  return w.masked ? w.all_keys(limits) * limits.max_q_len / 8 + limits.rows : 0;
}

Status check_flash_infer(const Limits& limits) {
  Status status = serves(kFlashInferInfo, limits);
  const ModelConfig& m = limits.model;
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerKind& kind = m.layers[i];
    const auto layer = static_cast<int64_t>(i);
    if (kind.local || kind.mla) refuse(&status, "layers", "neither local nor MLA", layer);
    const AttentionParams& p = kind.params;
    if (p.window_left >= 0 && m.max_encoder_len > 0)
      refuse(&status, "layers", "no window together with an encoder", layer);
    if (p.window_right >= 0) refuse(&status, "layers", "no window on the right", layer);
    if (p.custom_mask.kind != CustomMask::Kind::kNone)
      refuse(&status, "layers", "only masks of the batch", layer);
    if (p.num_kv_heads < 0 || p.num_qo_heads < 0 ||
        (p.num_kv_heads > 0 && p.num_qo_heads % p.num_kv_heads != 0))
      refuse(&status, "layers", "query heads that KV heads divide", layer);
    const bool plain = p.causal && p.window_left < 0;
    if (limits.max_items_len > 0 && !kind.cross && !plain)
      refuse(&status, "layers", "causal, and no window, where there are items", layer);
    const int wrapper = wrapper_of(m, kind);
    const FlashInferWrapper w = FlashInferWrapper::of(limits, wrapper);
    if (!share_a_wrapper(kind.params, w.kind.params))
      refuse(&status, "layers", "heads, dims and window of wrapper " + std::to_string(wrapper),
             layer);
  }
  for (int w = 0; w < Fi::kNumWrappers; ++w) {
    const FlashInferWrapper wrapper = FlashInferWrapper::of(limits, w);
    const int64_t most = std::max(wrapper.all_keys(limits), mask_bytes(wrapper, limits));
    if (wrapper.used && most > INT32_MAX) refuse(&status, "max_kv_len", "offsets of 32 bits", most);
  }
  return status;
}

/// One bind: which buffers the limits ask for.
class FlashInferBind {
 public:
  FlashInferBind(const Backend& backend, const Arena& arena, const Limits& limits)
      : limits_(limits), b_(backend, arena, limits, Fi::kNumBuffers, Fi::kNumScalars) {}

  Status run(Meta* meta) {
    bind_rows();
    for (int w = 0; w < Fi::kNumWrappers; ++w) {
      const FlashInferWrapper wrapper = FlashInferWrapper::of(limits_, w);
      if (!wrapper.used) continue;
      bind_list(w, wrapper);
      bind_plan(w, Part::kPaged, wrapper);
      if (wrapper.ragged) bind_plan(w, Part::kRagged, wrapper);
    }
    bind_results();
    return b_.bind(meta);
  }

 private:
  void bind_rows() {
    const ModelConfig& m = limits_.model;
    const int32_t rows = limits_.rows * lists_a_row(limits_);
    b_.query_offsets(Fi::kQoIndptr, "qo_indptr", rows);
    b_.constant(Fi::kLastPageLen, "kv_last_page_len", rows, 1);
    b_.out_cache_loc(Fi::kOutCacheLoc, Fi::kSwaOutCacheLoc);
    if (limits_.max_items_len > 0) {
      b_.ints(Fi::kItemPrefixLens, "prefix_len_ptr", {rows});
      b_.ints(Fi::kTokenPosInItems, "token_pos_in_items_ptr", {rows, limits_.max_items_len});
      b_.ints(Fi::kMaxItemLens, "max_item_len_ptr", {rows});
    }
    if (m.max_encoder_len > 0)
      b_.slots(Fi::kEncoderOutCacheLoc, "encoder_out_cache_loc",
               int64_t{limits_.rows} * m.max_encoder_len);
  }

  void bind_list(int w, const FlashInferWrapper& wrapper) {
    const std::string name = "wrapper" + std::to_string(w);
    const int64_t rows = int64_t{limits_.rows} * lists_a_row(limits_);
    const int64_t keys = wrapper.all_keys(limits_);
    bind_csr(b_, {Fi::list(w, Fi::kKvIndptr), Fi::list(w, Fi::kKvIndices)}, name + "_kv", rows,
             keys);
    if (!wrapper.masked) return;
    b_.list(Fi::list(w, Fi::kMask), name + "_mask", mask_bytes(wrapper, limits_), DType::kU8);
    b_.ints(Fi::list(w, Fi::kMaskIndptr), name + "_mask_indptr", {rows + 1});
  }

  void bind_plan(int w, Part part, const FlashInferWrapper& wrapper) {
    const PlanShape shape = wrapper.shape(limits_, part);
    const bool ragged = part == Part::kRagged;
    const PlanCapacity room =
        plan_capacity(shape, ragged ? limits_.max_q_len : wrapper.max_keys(limits_));
    const std::string name = "wrapper" + std::to_string(w) + (ragged ? "_ragged_" : "_paged_");
    const auto list = [&](Fi::PlanId id, const char* array, int64_t count,
                          DType dtype = DType::kI32) {
      b_.list(Fi::plan(w, part, id), name + array, count, dtype);
    };
    list(Fi::kRequestIndices, "request_indices", room.items);
    list(Fi::kKvTileIndices, "kv_tile_indices", room.items);
    list(Fi::kOIndptr, "o_indptr", shape.rows + 1);
    list(Fi::kKvChunkSize, "kv_chunk_size", 1);
    list(Fi::kBlockValidMask, "block_valid_mask", room.items, DType::kU8);
    if (shape.kind == PlanKind::kPrefill) {
      list(Fi::kQoTileIndices, "qo_tile_indices", room.items);
      list(Fi::kMergeIndptr, "merge_indptr", shape.tokens + 1);
    }
    if (!shape.split.off) partial_.add(wrapper.kind.params, room.partial_rows);
    if (ragged) halves_.add(wrapper.kind.params, limits_.tokens);
  }

  void bind_results() {
    if (partial_.width > 0) b_.result(Fi::kPartialOut, Fi::kPartialLse, "partial", partial_);
    if (halves_.width == 0) return;
    b_.result(Fi::kOwnOut, Fi::kOwnLse, "own", halves_);
    b_.result(Fi::kPrefixOut, Fi::kPrefixLse, "prefix", halves_);
  }

  const Limits& limits_;
  Binder b_;
  ResultRoom partial_, halves_;
};

/// How a plan cuts the rows of a batch.
class Measure {
 public:
  Measure(const ForwardBatch& batch, const Limits& limits, const LayerKind& kind)
      : wrapper_(FlashInferWrapper::of(limits, wrapper_of(limits.model, kind))) {
    for_each_row(batch, limits, [&](int64_t, const RequestRow& row) {
      const int32_t keys = wrapper_.keys(row).size();
      for (int32_t b = 0; b < lists_a_row(limits); ++b) {
        kv_indptr_.push_back(kv_indptr_.back() + keys);
        qo_indptr_.push_back(qo_indptr_.back() + row.extent.q_len);
      }
    });
    paged_ = plan(wrapper_.shape(limits, Part::kPaged), kv_indptr_);
    if (wrapper_.ragged) own_ = plan(wrapper_.shape(limits, Part::kRagged), qo_indptr_);
  }

  /// The number of parts of each query in the first `rows` rows.
  std::vector<int32_t> parts(int64_t rows) const {
    std::vector<int32_t> parts;
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const int32_t q_len = qo_indptr_[r + 1] - qo_indptr_[r];
      int32_t count = paged_.chunks(kv_indptr_[r + 1] - kv_indptr_[r]);
      if (wrapper_.ragged) count += own_.chunks(q_len);
      parts.insert(parts.end(), static_cast<size_t>(q_len), count);
    }
    return parts;
  }

 private:
  PlanResult plan(const PlanShape& shape, const std::vector<int32_t>& kv_indptr) const {
    const bool decode = shape.kind == PlanKind::kDecode;
    return measure_plan(shape, decode ? std::span<const int32_t>{} : qo_indptr_, kv_indptr);
  }

  FlashInferWrapper wrapper_;
  std::vector<int32_t> qo_indptr_ = {0}, kv_indptr_ = {0};
  PlanResult paged_, own_;
};

}  // namespace

const BackendInfo& FlashInfer::info() const { return kFlashInferInfo; }

Status FlashInfer::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check_flash_infer(limits);
  if (status.ok()) status = FlashInferBind(*this, arena, limits).run(meta);
  if (!status.ok()) return status;
  meta->scalars[kWindowLeft] = -1;
  meta->scalars[kPageSize] = 1;
  for (int w = 0; w < kNumWrappers; ++w) {
    const FlashInferWrapper wrapper = FlashInferWrapper::of(limits, w);
    const bool has_layers = wrapper.used || limits.model.layers.empty();
    const LayerKind& kind = has_layers ? wrapper.kind : limits.model.layers[0];
    const auto at = static_cast<size_t>(w);
    meta->scalars[kNumQoHeads + at] = kind.params.num_qo_heads;
    meta->scalars[kNumKvHeads + at] = kind.params.num_kv_heads;
  }
  return status;
}

std::vector<int32_t> FlashInfer::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                              const LayerKind& kind) const {
  return Measure(batch, limits, kind).parts(batch.size() * lists_a_row(limits));
}

}  // namespace shadowgraph
