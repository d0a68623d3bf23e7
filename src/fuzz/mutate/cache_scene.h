// CacheScene: a call that stores into a cache, or copies a cache, laid in memory. Tested by
// tests/fuzz/call_grid_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/call/laid_call.h"

namespace shadowgraph {

/// A call of a cache is made of these.
struct CacheCase {
  bool copies = false;                                    // copy_kv; else store_kv
  KvLayout layout = KvLayout::kNhd, to = KvLayout::kNhd;  // of the cache; of the one copied to
  DType dtype = DType::kF32, cache_dtype = DType::kF32;
  int32_t tokens = 3, page_size = 2, heads = 2, head_dim_qk = 16, head_dim_vo = 16;
  bool whole_pool = false;
  int64_t first_slot = 0;
  float k_scale = 1, v_scale = 1;
  uint64_t seed = 1;

  static CacheCase drawn(bool copies, Rng& rng);
  std::string to_string() const;
};

class CacheScene : public LaidCall<CacheCall> {
 public:
  explicit CacheScene(const CacheCase& x) : x_(x), rng_(x.seed) {}
  CacheScene(const CacheScene&) = delete;
  CacheScene& operator=(const CacheScene&) = delete;

  void lay();

 private:
  KvCache make_cache(const char* k, const char* v, KvLayout layout, int64_t pages);
  TensorView random(const char* field, DType type, std::initializer_list<int64_t> shape);

  const CacheCase x_;
  Rng rng_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> pages_from_, pages_to_;
};

}  // namespace shadowgraph
