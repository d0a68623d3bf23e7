// A decode on the simulated device, with checks or without them: what they cost.
#pragma once

#include <bit>
#include <numeric>
#include <vector>

#include "core/choices.h"
#include "launch/attention_launch.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::bench {

/// 8 rows, 512 keys, 4 / 2 heads, d = 64, bf16, page 16, shuffled pages.
struct DeviceDecode {
  static constexpr int32_t kBatch = 8, kKeys = 512, kHeads = 4, kKvHeads = 2, kDim = 64, kPage = 16;
  static constexpr int32_t kPages = kBatch * kKeys / kPage;

  explicit DeviceDecode(bool checked) : device({.choose = {}, .checked = checked}), stream(device) {
    q = buffer("q", kBatch * kHeads * kDim * 2, kHeads * kDim * 2);
    k = buffer("k", kPages * kPage * kKvHeads * kDim * 2, kDim * 2);
    v = buffer("v", kPages * kPage * kKvHeads * kDim * 2, kDim * 2);
    out = buffer("out", kBatch * kHeads * kDim * 2, kHeads * kDim * 2);
    lse = buffer("lse", kBatch * kHeads * 4, kHeads * 4);
    table = static_cast<int32_t*>(buffer("page_table", kPages * 4, 4));
    lens = static_cast<int32_t*>(buffer("cache_seqlens", kBatch * 4, 4));
    fill();
    call.q = ConstTensorView(q, DType::kBF16, {kBatch, kHeads, kDim});
    const TensorView keys(k, DType::kBF16, {kPages, kPage, kKvHeads, kDim});
    const TensorView values(v, DType::kBF16, {kPages, kPage, kKvHeads, kDim});
    call.cache = KvCache::nhd(keys, values);
    call.pages = PageTable::dense({table, kPages}, kKeys / kPage, {lens, kBatch});
    call.params = {.num_qo_heads = kHeads,
                   .num_kv_heads = kKvHeads,
                   .head_dim_qk = kDim,
                   .head_dim_vo = kDim,
                   .sm_scale = 0.125f,
                   .causal = true};
    call.out = TensorView(out, DType::kBF16, {kBatch, kHeads, kDim});
    call.lse = NaturalLse(TensorView(lse, DType::kF32, {kBatch, kHeads}));
    call.options.num_threads = 1;
    launch = attention_launch(call);
  }

  void* buffer(const char* name, size_t bytes, size_t granule) {
    void* p = nullptr;
    device.malloc(bytes, &p);
    device.declare_buffer({.address = p, .bytes = bytes, .granule_bytes = granule, .name = name});
    return p;
  }
  void upload(void* to, const void* from, size_t bytes) {
    device.memcpy({.dst = to, .src = from, .width = bytes});
    device.device_synchronize();
  }
  void fill() {
    Rng rng(1);
    const auto random = [&](void* to, size_t elements) {
      std::vector<uint16_t> bits(elements);
      for (uint16_t& b : bits)
        b = static_cast<uint16_t>(std::bit_cast<uint32_t>(rng.signed_unit()) >> 16);
      upload(to, bits.data(), elements * 2);
    };
    random(q, kBatch * kHeads * kDim);
    random(k, kPages * kPage * kKvHeads * kDim);
    random(v, kPages * kPage * kKvHeads * kDim);
    std::vector<int32_t> ids(kPages), keys(kBatch, kKeys);
    std::iota(ids.begin(), ids.end(), 0);
    shuffle(ids, rng);
    upload(table, ids.data(), ids.size() * 4);
    upload(lens, keys.data(), keys.size() * 4);
  }
  void run() {
    device.launch_kernel(launch, stream.handle());
    device.stream_synchronize(stream.handle());
  }

  SimDevice device;
  Stream stream;
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *lse = nullptr;
  int32_t *table = nullptr, *lens = nullptr;
  PagedAttention call;
  KernelLaunch launch;
};

}  // namespace shadowgraph::bench
