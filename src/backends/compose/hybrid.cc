#include "backends/compose/hybrid.h"

#include "backends/compose/children.h"
#include "backends/fill/features.h"
#include "backends/fill/rows.h"

namespace shadowgraph {

Hybrid::Hybrid(const Backend& decode, const Backend& prefill, VerifyBy verify)
    : decode_(decode), prefill_(prefill), verify_(verify) {
  const BackendInfo &d = decode.info(), &p = prefill.info();
  name_ = std::string(d.name) + "_" + std::string(p.name);
  if (verify == VerifyBy::kPrefill) name_ += "_verify";
  for (int m = 0; m < kNumForwardModes; ++m) {
    const auto mode = static_cast<ForwardMode>(m);
    if (contains(part(mode).info().modes, mode)) modes_.push_back(mode);
    if (contains(part(mode).info().batch_splits, mode)) splits_.push_back(mode);
  }
  // Both use one pool.
  for (const int32_t size : d.page_sizes.empty() ? p.page_sizes : d.page_sizes)
    if (p.page_sizes.empty() || contains(p.page_sizes, size)) page_sizes_.push_back(size);
  for (const BackendInfo* part : {&d, &p})
    for (const PlanKey key : part->plan_keys)
      if (!contains(std::span<const PlanKey>(plan_keys_), key)) plan_keys_.push_back(key);
  info_ = {.name = name_,
           .about = "one backend for decode, another for prefill",
           .modes = modes_,
           .page_sizes = page_sizes_,
           .heads = d.heads && p.heads,
           .latent = d.latent && p.latent,
           .local = d.local && p.local,
           .window_with_encoder = d.window_with_encoder && p.window_with_encoder,
           .ragged_prefill = p.ragged_prefill,
           .batch_splits = splits_,
           .fixed_splits = d.fixed_splits && p.fixed_splits,
           .plan_keys = plan_keys_};
  for (const Feature& f : kFeatures) info_.*f.served = d.*f.served && p.*f.served;
  info_.items = p.items;
  info_.dcp = false;
  info_.prefix_chunks = p.prefix_chunks;
}

const Backend& Hybrid::part(ForwardMode mode) const {
  const bool by_decode =
      is_decode_or_idle(mode) || (is_target_verify(mode) && verify_ == VerifyBy::kDecode);
  return by_decode ? decode_ : prefill_;
}

/// Without what its modes do not read.
Limits Hybrid::limits_of_part(const Limits& limits) const {
  Limits of_part = limits;
  const BackendInfo& info = part(limits.mode).info();
  if (!info.prefix_chunks) of_part.model.prefix_chunk_tokens = 0;
  if (!info.ragged_prefill) of_part.model.ragged_prefill = false;
  return of_part;
}

Status Hybrid::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = serves(info_, limits);
  return status.ok() ? part(limits.mode).bind(arena, limits_of_part(limits), meta) : status;
}

std::vector<int32_t> Hybrid::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                          const LayerKind& kind) const {
  return part(limits.mode).merged_parts(batch, limits_of_part(limits), kind);
}

Status Hybrid::fill(const ForwardBatch& batch, Meta& meta) const {
  return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
    return b.fill(of, to);
  });
}

Status Hybrid::for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const {
  return fn(part(meta.limits.mode), batch, meta);
}

void Hybrid::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  part(meta.limits.mode).forward(stream, meta, step);
}

}  // namespace shadowgraph
