// The buffers of a dense layer's world.
#include <algorithm>
#include <utility>

#include "attn/tensor_rows.h"
#include "backends/fill/rows.h"
#include "check/mistakes/diagnose.h"
#include "check/worlds/dense_world.h"

namespace shadowgraph {
namespace {

TensorView first_rows(const Buffer& b, int64_t rows) { return rows_of(b.view(), 0, rows); }

/// With it three slots in four begin beyond 2^31 elements.
int64_t wide_stride(const BufferSpec& pool) {
  constexpr int64_t kElements = int64_t{1} << 33;
  const int64_t a_slot = std::max<int64_t>(1, pool.shape[1] * pool.shape[2]);
  return (kElements / std::max<int64_t>(1, pool.shape[0]) / a_slot + 1) * a_slot;
}

/// A content of no request.
TokenContent nobodys(int32_t number) { return {extend(kNoTokens, number), 0, number}; }

}  // namespace

DenseWorld::DenseWorld(const LayerPlace& place)
    : place_(place),
      kind_(place.model.layers[place.kind]),
      swa_(in_window_pool(place.model, kind_)),
      values_(place.options.values_of(place.kind)),
      scope_(place.scope),
      copies_(place.streams.forward()),
      moves_(place.streams.pools()),
      steps_(place.steps),
      contents_(kind_, place.options, values_, place_.rng_of(0).next()),
      owners_(swa_ ? place.options.swa_slots : place.options.slots),
      scenes_(place.model, kind_) {}

Status DenseWorld::bind() {
  const RunnerOptions& o = place_.options;
  const AttentionParams& p = kind_.params;
  const int64_t slots = swa_ ? o.swa_slots : o.slots;
  std::vector<BufferSpec> specs = {
      vectors_of("k_cache", o.kv_dtype, {slots, p.num_kv_heads, p.head_dim_qk}),
      vectors_of("v_cache", o.kv_dtype, {slots, p.num_kv_heads, p.head_dim_vo})};
  if (has_wide_pools(o))
    for (BufferSpec& spec : specs) spec.row_stride = wide_stride(spec);
  std::vector<Buffer> bound;
  Status status = scope_.bind(specs, &bound);
  for (size_t s = 0; s < steps_.size() && status.ok(); ++s)
    status.add(
        bind_tensors(s == 0 ? scope_ : scope_.scope("step" + std::to_string(s)), &steps_[s]));
  if (status.ok() && values_.sinks) status.add(bind_sinks());
  if (!status.ok()) return status;
  k_cache_ = std::move(bound[0]), v_cache_ = std::move(bound[1]);
  poison_sink();
  for (int32_t slot = 0; slot < slots && o.full_pools; ++slot)
    write_slot(slot, contents_.number(nobodys(slot)));
  for (const Tensors& t : steps_) {
    StepRows padding;
    for (int32_t i = 0; i < t.k.shape[0]; ++i)
      padding.fresh.push_back(contents_.number(nobodys(static_cast<int32_t>(slots) + i)));
    give(padding, t);
    place_.streams.forward().fill(t.q.data, 0, t.q.bytes());
  }
  place_.streams.settle();
  held_.clear();
  contents_.clear(place_.rng_of(0).next());
  return status;
}

Status DenseWorld::bind_tensors(Arena scope, Tensors* to) const {
  const AttentionParams& p = kind_.params;
  const int64_t tokens = place_.options.max_tokens;
  // Encoders' tokens are as many as there are slots at most.
  const int64_t stored = kind_.cross ? place_.options.slots : tokens;
  std::vector<BufferSpec> specs = {
      f32_vectors("q", {tokens, query_heads(kind_), p.head_dim_qk}),
      f32_vectors("k", {stored, p.num_kv_heads, p.head_dim_qk}),
      f32_vectors("v", {stored, p.num_kv_heads, p.head_dim_vo}),
      f32_vectors("out", {tokens, p.num_qo_heads, p.head_dim_vo}, Lifetime::kOutput),
      f32_vectors("lse", {tokens, p.num_qo_heads}, Lifetime::kOutput)};
  specs.back().granule = 1;
  std::vector<Buffer> bound;
  Status status = scope.bind(specs, &bound);
  Buffer* const buffers[] = {&to->q, &to->k, &to->v, &to->out, &to->lse};
  for (size_t i = 0; i < bound.size(); ++i) *buffers[i] = std::move(bound[i]);
  return status;
}

Status DenseWorld::bind_sinks() {
  BufferSpec spec = f32_vectors("sinks", {kind_.params.num_qo_heads});
  spec.granule = 1;
  std::vector<Buffer> bound;
  Status status = scope_.bind({&spec, 1}, &bound);
  if (!status.ok()) return status;
  sinks_ = std::move(bound[0]);
  copies_.copy(sinks_.data, sink_logits());
  return status;
}

std::span<const float> DenseWorld::sinks() const {
  if (sinks_.data == nullptr) return {};
  return {reinterpret_cast<const float*>(sinks_.data), static_cast<size_t>(sinks_.numel())};
}

std::vector<const Buffer*> DenseWorld::caches() const {
  if (kind_.mla) return {&k_cache_};
  return {&k_cache_, &v_cache_};
}

TensorView DenseWorld::paged(const Buffer& cache) const {
  const TensorView slots = cache.view();
  const int64_t page = place_.model.page_size, stride = slots.stride[0];
  TensorView v(cache.data, cache.dtype,
               {slots.shape[0] / page, page, slots.shape[1], slots.shape[2]});
  v.stride = {page * stride, stride, slots.stride[1], slots.stride[2]};
  return v;
}

std::vector<const Buffer*> DenseWorld::outputs() const {
  std::vector<const Buffer*> all;
  for (const Tensors& t : steps_) all.insert(all.end(), {&t.out, &t.lse});
  return all;
}

void DenseWorld::describe(int64_t tokens, size_t step, LayerIo* io) const {
  const Tensors& t = steps_[step];
  io->q = first_rows(t.q, tokens);
  const int64_t stored = kind_.cross ? std::ssize(encoded_) : tokens;
  if (!kind_.cross || stored > 0) {
    io->k = first_rows(t.k, stored);
    TensorView v = first_rows(kind_.mla ? t.k : t.v, stored);
    v.shape[2] = kind_.params.head_dim_vo;
    io->v = v;
  }
  io->out = first_rows(t.out, tokens);
  io->lse = NaturalLse(first_rows(t.lse, tokens));
  io->cache = dense_cache(kind_, values_, paged(k_cache_), paged(v_cache_));
}

}  // namespace shadowgraph
