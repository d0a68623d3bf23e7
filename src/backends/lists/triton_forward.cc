// Launches a step of Triton: the two stages of a decode, or an extend.
#include "backends/lists/triton.h"
#include "backends/lists/triton_rows.h"
#include "launch/triton_launch.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

using Tr = Triton;

/// One layer of a step.
class TritonLayer {
 public:
  TritonLayer(Stream& stream, const Meta& meta, const LayerIo& io)
      : stream_(stream),
        meta_(meta),
        limits_(meta.limits),
        io_(io),
        kind_(limits_.model.layers[static_cast<size_t>(io.kind)]),
        window_(has_window(kind_)) {}

  void run() const {
    const bool window_pool = in_window_pool(limits_.model, kind_);
    launch_store(stream_, io_, meta_[window_pool ? Tr::kSwaOutCacheLoc : Tr::kOutCacheLoc],
                 token_rows(limits_));
    is_decode_or_idle(limits_.mode) ? decode() : extend();
  }

 private:
  std::span<const int32_t> ints(Tr::BufferId buffer) const {
    return elements<int32_t>(meta_[buffer]);
  }
  std::span<const int32_t> kv_indptr() const {
    return ints(window_ ? Tr::kWindowKvIndptr : Tr::kKvIndptr);
  }
  std::span<const int64_t> kv_indices() const {
    return elements<int64_t>(meta_[window_ ? Tr::kWindowKvIndices : Tr::kKvIndices]);
  }

  void decode() const {
    const AttentionParams& p = kind_.params;
    const Buffer &logits = meta_[Tr::kAttnLogits], &lse = meta_[Tr::kAttnLse];
    const int64_t rows = limits_.tokens, splits = max_kv_splits(limits_), dim = p.head_dim_vo;
    TritonDecode c;
    c.q = io_.q;
    c.cache = slot_view(io_.cache);
    c.kv_indptr = kv_indptr();
    c.kv_indices = kv_indices();
    c.num_kv_splits = ints(window_ ? Tr::kWindowNumKvSplits : Tr::kNumKvSplits);
    c.params = p;
    c.attn_logits =
        TensorView(logits.data, DType::kF32, {rows, p.num_qo_heads, splits, dim},
                   {logits.shape[1] * logits.shape[2] * logits.shape[3], splits * dim, dim, 1});
    c.attn_lse = NaturalLse(TensorView(lse.data, DType::kF32, {rows, p.num_qo_heads, splits},
                                       {lse.shape[1] * splits, splits, 1}));
    c.out = io_.out;
    c.lse = io_.lse;
    const RequestRows of = token_rows(limits_);
    stream_.launch(triton_decode_stage1_launch(c, of));
    stream_.launch(triton_decode_stage2_launch(c, of));
  }

  void extend() const {
    TritonExtend c;
    c.q = io_.q, c.k = io_.k, c.v = io_.v;
    c.cache = slot_view(io_.cache);
    c.qo_indptr = ints(Tr::kQoIndptr);
    c.kv_indptr = kv_indptr();
    c.kv_indices = kv_indices();
    c.params = kind_.params;
    if (window_) c.window_kv_offsets = ints(Tr::kWindowKvOffsets);
    if (meta_.has(Tr::kCustomMask)) {
      c.custom_mask = elements<uint8_t>(meta_[Tr::kCustomMask]);
      c.mask_indptr = elements<int64_t>(meta_[Tr::kMaskIndptr]);
      if (window_) c.depths = ints(Tr::kDepths);
    }
    c.max_extend_len = limits_.max_q_len;
    c.out = io_.out;
    c.lse = io_.lse;
    stream_.launch(triton_extend_launch(c, {1, limits_.first_row}));
  }

  Stream& stream_;
  const Meta& meta_;
  const Limits& limits_;
  const LayerIo& io_;
  const LayerKind& kind_;
  const bool window_;
};

}  // namespace

std::vector<KeyList> Triton::key_lists(const Meta& meta, const LayerKind& kind) const {
  const bool window = kind.params.window_left >= 0;
  const CsrIds& ids = window ? kWindowKv : kKv;
  KeyList listed = list_of_slots(ids.indices, ids.indptr, kQoIndptr);
  if (is_decode_or_idle(meta.limits.mode)) {
    listed.splits = {.num_splits = window ? kWindowNumKvSplits : kNumKvSplits, .partial = kAttnLse};
    return {listed};
  }
  if (meta.has(kCustomMask)) {
    listed.masked = true;
    listed.mask = {
        .bits = kCustomMask, .indptr = kMaskIndptr, .depths = window ? int{kDepths} : -1};
  }
  return {listed, own_tokens(kQoIndptr)};
}

void Triton::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  for (const LayerIo& io : step.layers) TritonLayer(stream, meta, io).run();
}

}  // namespace shadowgraph
