// TokenToKvPool: the KV cache of every layer on the device, and the tables that name its slots;
// sliding-window layers have a smaller pool of their own, if there is one. The shadow learns whose
// each page is. Tested by tests/runtime/kv_pool_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/pool_state.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"

namespace shadowgraph {

/// What a token is in the cache, and which layers are sliding-window layers.
struct KvPoolSpec {
  DType dtype = DType::kF32;
  int32_t num_kv_heads = 1;
  int32_t head_dim_qk = 0, head_dim_vo = 0;
  // One vector of head_dim_qk a token, and the value is its first head_dim_vo; one head. Else K and
  // V, NHD
  bool latent = false;
  std::vector<bool> window_layers;  // by layer; all false: one pool
};

class TokenToKvPool {
 public:
  /// Which layer of its pool a layer of the model is: layers_mapping.
  struct Place {
    int32_t index = 0;
    bool window = false;
    bool operator==(const Place&) const = default;
  };

  /// Who owns what only the prefix cache has: no request.
  static constexpr OwnerId kCache = UINT32_MAX;

  /// Buffers "k0", "v0" (of a latent: "kv0"), ..., "req_to_token", and with two pools
  /// "full_to_swa". Page 0 of every layer, the sink of padding, is zero. Not ok: nothing is bound;
  /// input.shape, input.memory, pool.shape.
  static Status bind(Arena arena, Stream& stream, const RuntimeConfig& config,
                     const KvPoolSpec& spec, std::optional<TokenToKvPool>* pool);

  const std::vector<Place>& layers() const { return layers_; }
  KvCache cache(size_t layer) const;
  /// int32 [rows, width]
  ConstTensorView req_to_token() const { return table_.view(); }
  /// int64 [slots + 1]; undefined with one pool.
  ConstTensorView full_to_swa() const;

  /// The tables as they are in state, for the next upload; the owners of pages and rows. What was
  /// freed since the last update, and what was handed out again, is retired: nobody reads it before
  /// it is written. Call between steps, with the device idle.
  Status update(const PoolState& state);
  /// In every layer, one after the other.
  void copy(Stream& stream, std::span<const SlotCopy> copies, const PoolState& state) const;

 private:
  /// What update knew last of each page of a pool.
  struct Known {
    std::vector<uint32_t> takes;
    std::vector<std::vector<OwnerId>> owners;
  };

  TokenToKvPool() = default;
  Status update_pages(bool window, std::vector<std::vector<OwnerId>> owners,
                      const std::vector<uint32_t>& takes, const std::vector<bool>& taken);
  Status update_page(bool window, int64_t page, bool fresh, std::span<const OwnerId> owners);
  Status own(const Buffer& buffer, Elements elements, std::span<const OwnerId> owners);

  Arena arena_;
  KvPoolSpec spec_;
  std::vector<Place> layers_;
  std::vector<Buffer> planes_;  // of each layer K and V, or the latent
  Buffer table_, swa_table_;
  Known full_, window_;
  std::vector<OwnerId> rows_;
};

}  // namespace shadowgraph
