#include "check/recorded/two_part_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attn/page_table.h"
#include "check/mistakes/diagnose.h"
#include "core/laws.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 28;  // addresses; pages when touched

BufferSpec tensor(const char* name, const ConstTensorView& t) {
  const int64_t granule = t.shape[static_cast<size_t>(t.rank - 1)];
  return {
      name, t.dtype, {t.shape.begin(), t.shape.begin() + t.rank}, Lifetime::kPersistent, granule};
}

/// The whole pool of one plane.
ConstTensorView pool_of(const KvCache& cache, const KvPlane& plane) {
  return {plane.data,
          plane.dtype,
          {cache.num_pages, cache.page_size, cache.num_kv_heads, plane.head_dim}};
}

class TwoPartStep {
 public:
  explicit TwoPartStep(const AttentionCalls& c)
      : one_pass_(std::get<PagedAttention>(c.calls[0])),
        ragged_(std::get<RaggedAttention>(c.calls[1])),
        arena_(device_, kArenaBytes),
        stream_(device_) {
    read_requests();
    LayerKind layer{.params = one_pass_.params};
    layer.params.custom_mask = {};
    model_.layers = {layer};
    model_.ragged_prefill = true;
    model_.max_context_len = static_cast<int32_t>(width_);
  }

  Status run(Tap* tap, StepResult* result) {
    const Backend& clean = *find_backend("flashinfer");
    const Backend& backend = tap != nullptr ? tap->backend(clean) : clean;
    Status status = bind_tensors();
    Meta meta;
    Limits limits = Limits::exact(batch_, model_);
    if (tap != nullptr) tap->limits(limits);
    if (status.ok()) status = backend.bind(arena_.scope("step"), limits, &meta);
    if (status.ok() && tap != nullptr) tap->bound(meta, false);
    if (status.ok()) status = backend.fill(batch_, meta);
    if (status.ok() && tap != nullptr) status = tap->filled(batch_, meta);
    if (!status.ok()) return status;
    status.add(arena_.upload(stream_.handle()));
    if (tap != nullptr) {
      meta = with_layers(std::move(meta), model_);
      tap->baked(meta, false);
    }
    const LayerIo layers[] = {io_};
    Graph graph;
    GraphExec exec;
    const StepIo io{.layers = layers, .req_to_token = {}, .full_to_swa = {}};
    if (status.ok()) status = record_step(stream_, backend, meta, io, tap, false, &graph);
    if (status.ok()) status = GraphExec::instantiate(graph, &exec);
    if (!status.ok()) return status;
    exec.replay(stream_);
    stream_.synchronize();
    status.add(stream_.take_status());
    status.add(device_.take_findings());
    read_back(result);
    result->parts = clean.merged_parts(batch_, limits, model_.layers[0]);
    return status;
  }

 private:
  /// Pages as slots, row by row.
  void read_requests() {
    const int32_t size = one_pass_.cache.page_size;
    for (int64_t r = 0; r < one_pass_.pages.batch(); ++r) {
      const RequestPages pages = request_pages(one_pass_.pages, size, r);
      const auto i = static_cast<size_t>(r);
      kv_lens_.push_back(pages.kv_len);
      new_lens_.push_back(one_pass_.cu_seqlens_q[i + 1] - one_pass_.cu_seqlens_q[i]);
      pool_rows_.push_back(static_cast<int32_t>(r));
      width_ = std::max<int64_t>(width_, pages.kv_len);
    }
    slots_.resize(kv_lens_.size() * static_cast<size_t>(width_));
    for (int64_t r = 0; r < one_pass_.pages.batch(); ++r) {
      const RequestPages pages = request_pages(one_pass_.pages, size, r);
      for (int32_t t = 0; t < pages.kv_len; ++t)
        slots_[static_cast<size_t>(r * width_ + t)] = slot_of(pages, size, t);
    }
    batch_.mode = ForwardMode::kExtend;
    batch_.seq_lens = kv_lens_;
    batch_.extend_lens = new_lens_;
    batch_.req_pool_indices = pool_rows_;
    batch_.req_to_token = {slots_, width_};
  }

  Status bind_tensors() {
    const AttentionParams& p = one_pass_.params;
    const KvCache& c = one_pass_.cache;
    const int64_t tokens = one_pass_.q.shape[0];
    const ConstTensorView k_pool = pool_of(c, c.k), v_pool = pool_of(c, c.v);
    const ConstTensorView out(nullptr, one_pass_.q.dtype, {tokens, p.num_qo_heads, p.head_dim_vo});
    const ConstTensorView lse(nullptr, DType::kF32, {tokens, p.num_qo_heads});
    const std::vector<BufferSpec> specs = {tensor("q", one_pass_.q),  tensor("k", ragged_.k),
                                           tensor("v", ragged_.v),    tensor("k_cache", k_pool),
                                           tensor("v_cache", v_pool), tensor("out", out),
                                           tensor("lse", lse)};
    Status status = arena_.bind(specs, &buffers_);
    if (!status.ok()) return status;
    size_t i = 0;
    for (const ConstTensorView* t : {&one_pass_.q, &ragged_.k, &ragged_.v, &k_pool, &v_pool})
      stream_.copy(buffers_[i].data, t->data, buffers_[i].bytes()), ++i;
    stream_.fill(buffers_[kOut].data, kNanByte, buffers_[kOut].bytes());
    stream_.fill(buffers_[kLse].data, kNanByte, buffers_[kLse].bytes());
    io_.q = buffers_[0].view(), io_.k = buffers_[1].view(), io_.v = buffers_[2].view();
    io_.cache = KvCache::nhd(buffers_[3].view(), buffers_[4].view());
    io_.out = buffers_[kOut].view();
    io_.lse = NaturalLse(buffers_[kLse].view());
    return status;
  }

  void read_back(StepResult* result) const {
    const Buffer &out = buffers_[kOut], &lse = buffers_[kLse];
    result->out_bytes.assign(out.data, out.data + out.bytes());
    result->lse_values.resize(static_cast<size_t>(lse.numel()));
    std::memcpy(result->lse_values.data(), lse.data, lse.bytes());
    result->out = out.view();
    result->out.data = result->out_bytes.data();
    TensorView lse_view = lse.view();
    lse_view.data = reinterpret_cast<std::byte*>(result->lse_values.data());
    result->lse = NaturalLse(lse_view);
  }

  static constexpr size_t kOut = 5, kLse = 6;
  const PagedAttention& one_pass_;
  const RaggedAttention& ragged_;
  SimDevice device_;
  Arena arena_;
  Stream stream_;
  std::vector<Buffer> buffers_;
  std::vector<int32_t> kv_lens_, new_lens_, pool_rows_, slots_;
  int64_t width_ = 1;
  ForwardBatch batch_;
  ModelConfig model_;
  LayerIo io_;
};

}  // namespace

bool is_two_part_prefill(const RecordedCase& c) {
  if (c.kind != "swa_merge") return false;
  const KvCache& cache = std::get<PagedAttention>(c.attention().calls[0]).cache;
  const auto dense = [&](const KvPlane& p) {
    return p.head_stride == p.head_dim && p.token_stride == cache.num_kv_heads * p.head_dim;
  };
  return slot_view(cache).well_formed && dense(cache.k) && dense(cache.v);
}

Status run_as_step(const RecordedCase& c, Tap* tap, StepResult* result) {
  return TwoPartStep(c.attention()).run(tap, result);
}

}  // namespace shadowgraph
