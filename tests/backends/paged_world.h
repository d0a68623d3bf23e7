// Batches on a device: a scheduler's tables with scattered pages, metadata bound and filled, and
// what the buffers then hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/fill/rows.h"
#include "check/bounds/compare.h"
#include "shadowgraph/attention/attention.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

using Ints = std::vector<int32_t>;

/// One request: tokens before this step, and new ones.
struct Request {
  int32_t prefix = 0, queries = 1;
};

/// A batch that owns its arrays. Page j of request i is page 1 + j * requests + (requests - 1 - i);
/// columns behind a request's tokens are stale: another's first slot.
class PagedBatch {
 public:
  PagedBatch(ForwardMode mode, const std::vector<Request>& requests, int32_t page_size,
             int32_t num_steps = 0)
      : mode_(mode), page_size_(page_size), num_steps_(num_steps) {
    const bool draft = mode == ForwardMode::kDraftDecode;
    const auto n = static_cast<int32_t>(requests.size());
    int32_t longest = 1;
    for (const Request& r : requests)
      longest = std::max(longest, r.prefix + (draft ? num_steps : r.queries));
    width_ = longest + 3;
    table_.assign((requests.size() + 1) * static_cast<size_t>(width_), page_size);
    std::fill_n(table_.begin(), width_, 0);
    for (int32_t i = 0; i < n; ++i) {
      const Request& r = requests[static_cast<size_t>(i)];
      const int32_t fresh = draft ? num_steps : r.queries;
      rows_.push_back(n - i);
      queries_.push_back(r.queries);
      lens_.push_back(usual_seq_lens_kind(mode) == SeqLensKind::kPrefix ? r.prefix
                                                                        : r.prefix + r.queries);
      for (int32_t c = 0; c < r.prefix + fresh; ++c) {
        const int32_t page = 1 + c / page_size * n + (n - 1 - i);
        const int32_t slot = page * page_size + c % page_size;
        *(table_.begin() + int64_t{n - i} * width_ + c) = slot;
        if (c >= r.prefix) loc_.push_back(slot);
        pages_ = std::max(pages_, page + 1);
      }
    }
  }

  ForwardBatch view() const {
    ForwardBatch b;
    b.mode = mode_;
    b.seq_lens_kind = usual_seq_lens_kind(mode_);
    b.req_pool_indices = rows_;
    b.seq_lens = lens_;
    const bool needed = !is_decode_or_idle(mode_) && !is_target_verify(mode_);
    if (needed) b.extend_lens = queries_;
    b.out_cache_loc = loc_;
    b.req_to_token = {table_, width_};
    b.full_to_swa = swa_;
    if (is_target_verify(mode_)) b.spec.num_draft_tokens = queries_.empty() ? 1 : queries_[0];
    b.spec.num_steps = num_steps_;
    return b;
  }
  /// A window pool in which page p is page num_pages - p, and page 0 stays.
  void add_window_pool() {
    swa_.assign(static_cast<size_t>(pages_) * page_size_, 0);
    for (int32_t s = page_size_; s < pages_ * page_size_; ++s)
      swa_[static_cast<size_t>(s)] = (pages_ - s / page_size_) * page_size_ + s % page_size_;
  }
  int32_t slot(size_t request, int32_t token) const {
    return *(table_.begin() + int64_t{rows_[request]} * width_ + token);
  }
  int64_t swa_slot(int32_t slot) const { return swa_[static_cast<size_t>(slot)]; }
  int32_t pages() const { return pages_; }

 private:
  ForwardMode mode_;
  int32_t page_size_, num_steps_, width_ = 0, pages_ = 1;
  Ints rows_, lens_, queries_, table_;
  std::vector<int64_t> loc_, swa_;
};

inline ModelConfig model_of(int32_t page_size, int32_t kv_heads, int32_t max_context_len = 96) {
  ModelConfig m;
  m.max_context_len = max_context_len;
  m.page_size = page_size;
  LayerKind layer;
  layer.params = {.num_qo_heads = 2,
                  .num_kv_heads = kv_heads,
                  .head_dim_qk = 16,
                  .head_dim_vo = kv_heads == 1 ? 8 : 16,
                  .sm_scale = 0.25f};
  m.layers = {layer};
  return m;
}

/// One query each, and the widest of a batch.
inline int32_t widest(const ForwardBatch& b) {
  int32_t q = 1;
  for (int64_t i = 0; i < b.size(); ++i) q = std::max(q, b.q_len(i));
  return q;
}

class PagedWorld {
 public:
  PagedWorld() : stream(device), arena(device, size_t{1} << 20) {}

  Meta bind(const Backend& backend, const Limits& limits, std::string_view scope = "meta") {
    Meta meta;
    const Status status = backend.bind(arena.scope(scope), limits, &meta);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return meta;
  }
  void fill(const Backend& backend, const ForwardBatch& batch, Meta& meta) {
    const Status status = backend.fill(batch, meta);
    EXPECT_TRUE(status.ok()) << status.to_string();
    upload();
  }
  Meta exact(const Backend& backend, const ForwardBatch& batch, const ModelConfig& model) {
    Meta meta = bind(backend, Limits::exact(batch, model), "exact" + std::to_string(count_++));
    fill(backend, batch, meta);
    return meta;
  }
  void upload() {
    const Status status = arena.upload(stream.handle());
    EXPECT_TRUE(status.ok()) << status.to_string();
    stream.synchronize();
  }
  void forward(const Backend& backend, const Meta& meta, const std::vector<LayerIo>& layers,
               StepIo step = {}) {
    step.layers = layers;
    backend.forward(stream, meta, step);
    stream.synchronize();
  }
  /// The pools' tables on the device.
  StepIo tables_of(const ForwardBatch& batch) {
    const TokenTable& t = batch.req_to_token;
    StepIo step;
    step.req_to_token = copied("req_to_token", {t.rows(), t.width}, t.slots);
    if (!batch.full_to_swa.empty())
      step.full_to_swa = copied("full_to_swa", {std::ssize(batch.full_to_swa)}, batch.full_to_swa);
    return step;
  }
  Buffer buffer(std::string name, DType dtype, std::vector<int64_t> shape) {
    const BufferSpec spec{.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
    std::vector<Buffer> b;
    EXPECT_TRUE(arena.bind({&spec, 1}, &b).ok());
    return b.at(0);
  }
  std::string found() { return device.take_findings().to_string(); }

  SimDevice device;
  Stream stream;
  Arena arena;

 private:
  template <class T>
  ConstTensorView copied(const char* name, std::vector<int64_t> shape, std::span<const T> values) {
    const Buffer b = buffer(name, sizeof(T) == 8 ? DType::kI64 : DType::kI32, std::move(shape));
    EXPECT_TRUE(arena.write(b, 0, values).ok());
    upload();
    return b.view();
  }

  int count_ = 0;
};

template <class T = int32_t>
std::vector<T> held(const Buffer& b) {
  const auto* p = reinterpret_cast<const T*>(b.data);
  return {p, p + b.numel()};
}
inline Ints held_row(const Buffer& b, int64_t row, int64_t columns) {
  const auto* p = reinterpret_cast<const int32_t*>(b.data) + row * b.shape.back();
  return {p, p + columns};
}

/// The slots that a row's first keys are read from.
inline Ints slots_of(const Meta& meta, int table, int64_t row, int32_t keys) {
  const Buffer& b = meta[static_cast<size_t>(table)];
  const int32_t unit = meta.units[static_cast<size_t>(table)];
  Ints slots;
  for (int32_t j = 0; j < keys; ++j) {
    const auto* p = reinterpret_cast<const int32_t*>(b.data) + row * b.shape.back();
    slots.push_back(p[j / unit] * unit + j % unit);
  }
  return slots;
}
inline Ints slots_of(const PagedBatch& batch, size_t request, int32_t keys) {
  Ints slots;
  for (int32_t j = 0; j < keys; ++j) slots.push_back(batch.slot(request, j));
  return slots;
}

/// A layer's tensors on the device, with values in sixteenths, and a cache that holds something in
/// every slot.
struct Layer {
  Layer(PagedWorld& w, const std::string& name, const ModelConfig& model, int64_t tokens,
        int64_t pages)
      : params(model.layers[0].params) {
    const int64_t query_copies = query_heads(model.layers[0]);
    const int64_t heads = params.num_qo_heads, kv_heads = params.num_kv_heads;
    const int64_t qk = params.head_dim_qk, vo = params.head_dim_vo;
    const auto f32 = [&](const char* part, std::vector<int64_t> shape) {
      Buffer b = w.buffer(name + part, DType::kF32, std::move(shape));
      std::vector<float> values(static_cast<size_t>(b.numel()));
      for (float& x : values) x = static_cast<float>((seed = seed * 75 % 65537) % 64 - 32) / 16;
      EXPECT_TRUE(w.arena.write(b, 0, std::span<const float>(values)).ok());
      return b;
    };
    q = f32("/q", {tokens, query_copies, qk});
    k = f32("/k", {tokens, kv_heads, qk});
    out = f32("/out", {tokens, heads, vo});
    lse = f32("/lse", {tokens, heads});
    k_cache = f32("/k_cache", {pages, model.page_size, kv_heads, qk});
    if (!mla()) v = f32("/v", {tokens, kv_heads, vo});
    if (!mla()) v_cache = f32("/v_cache", {pages, model.page_size, kv_heads, vo});
    w.upload();
  }

  bool mla() const { return params.num_kv_heads == 1; }
  KvCache cache() const {
    if (!mla()) return KvCache::nhd(k_cache.view(), v_cache.view());
    TensorView latent = k_cache.view();
    latent.rank = 3;
    latent.shape = {latent.shape[0], latent.shape[1], latent.shape[3]};
    latent.stride = {latent.stride[0], latent.stride[1], 1};
    return KvCache::mla_latent(latent, params.head_dim_vo);
  }
  LayerIo io() const {
    LayerIo layer;
    layer.q = q.view(), layer.k = k.view(), layer.out = out.view();
    layer.lse = NaturalLse(lse.view());
    layer.cache = cache();
    TensorView values = mla() ? k.view() : v.view();
    values.shape[2] = params.head_dim_vo;
    layer.v = values;
    return layer;
  }
  /// out and lse of the first tokens, as a launch left them.
  std::vector<float> results(int64_t tokens) const {
    std::vector<float> all = held<float>(out), lses = held<float>(lse);
    all.resize(static_cast<size_t>(tokens * out.shape[1] * out.shape[2]));
    lses.resize(static_cast<size_t>(tokens * lse.shape[1]));
    all.insert(all.end(), lses.begin(), lses.end());
    return all;
  }
  /// These queries over these keys of the cache as it is. No offsets: one a row.
  PagedAttention call(const Ints& table, int64_t columns, const Ints& lens,
                      const Ints& cu_seqlens_q) const {
    PagedAttention c;
    const int64_t tokens = cu_seqlens_q.empty() ? std::ssize(lens) : cu_seqlens_q.back();
    c.q = q.view();
    c.q.shape[0] = tokens;
    c.cache = cache();
    c.pages = PageTable::dense(table, columns, lens);
    c.cu_seqlens_q = cu_seqlens_q;
    c.params = params;
    c.out = out.view(), c.lse = NaturalLse(lse.view());
    c.out.shape[0] = c.lse.tensor.shape[0] = tokens;
    return c;
  }
  /// The results of such a call.
  std::vector<float> expected(const Ints& table, int64_t columns, const Ints& lens,
                              const Ints& cu_seqlens_q) const {
    PagedAttention c = call(table, columns, lens, cu_seqlens_q);
    const int64_t tokens = c.q.shape[0];
    const int64_t outs = tokens * out.shape[1] * out.shape[2];
    std::vector<float> all(static_cast<size_t>(outs + tokens * lse.shape[1]));
    c.out = TensorView(all.data(), DType::kF32, {tokens, out.shape[1], out.shape[2]});
    c.lse = NaturalLse(TensorView(all.data() + outs, DType::kF32, {tokens, lse.shape[1]}));
    const Status status = attention_with_kvcache(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return all;
  }
  /// fn(table, columns, lens, cu_seqlens_q) of the scheduler's tables.
  template <class Fn>
  auto with_tables(const PagedBatch& owned, Fn fn) const {
    const ForwardBatch b = owned.view();
    Ints table, lens, cu_q = {0};
    const int32_t page_size = k_cache.shape[1] > 0 ? static_cast<int32_t>(k_cache.shape[1]) : 1;
    const int64_t columns = owned.pages();
    for (int64_t i = 0; i < b.size(); ++i) {
      const RequestExtent e = b.extent(i);
      lens.push_back(e.kv_len);
      cu_q.push_back(cu_q.back() + e.q_len);
      for (int64_t j = 0; j < columns; ++j) {
        const bool live = j * page_size < e.kv_len;
        const auto token = static_cast<int32_t>(j * page_size);
        table.push_back(live ? owned.slot(static_cast<size_t>(i), token) / page_size : -1);
      }
    }
    return fn(table, columns, lens, cu_q);
  }
  std::vector<float> expected(const PagedBatch& owned) const {
    return with_tables(owned, [&](const auto&... tables) { return expected(tables...); });
  }
  /// The results that it has, against the bound of partial results that are merged into each row's.
  Status judged(const PagedBatch& owned, std::vector<int32_t> parts) const {
    return with_tables(owned, [&](const auto&... tables) {
      const PagedAttention c = call(tables...);
      return judge(c, {c.out, c.lse.tensor}, *find_arithmetic("ours_merged"),
                   {.bounded = true, .parts = std::move(parts)})
          .findings;
    });
  }

  AttentionParams params;
  Buffer q, k, v, out, lse, k_cache, v_cache;
  int64_t seed = 1;
};

}  // namespace shadowgraph
