// Peers: attention as other libraries' matrix products make it, in f32, for plain K and V. What a
// row divides by when it is "of" a peer. Tested by tests/bench/peers_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "check/bounds/arithmetic.h"

namespace shadowgraph::bench {

/// Causal attention of one request (bottom-right aligned), dense tensors.
struct FlashCall {
  const float* q = nullptr;  // [q_len, num_qo_heads, head_dim]
  const float* k = nullptr;  // [kv_len, num_kv_heads, head_dim]
  const float* v = nullptr;  // likewise
  float* out = nullptr;      // as q
  int32_t q_len = 0, kv_len = 0, num_qo_heads = 0, num_kv_heads = 0, head_dim = 0;
  float sm_scale = 0;
  int threads = 1;
};

struct Peer {
  std::string_view name;  // "openblas"
  /// Empty, or why it cannot run here. Loads what has to be loaded.
  std::string (*missing)();
  void (*attention)(const FlashCall& call);
};

/// What a composed flash's arithmetic is, for judging its results.
inline constexpr Arithmetic kComposedFlash = {
    .kernel = "composed_flash", .scaled_maximum = true, .exp_error = 0x1p-21};

/// nullptr: this build does not have it.
const Peer* find_peer(std::string_view name);

}  // namespace shadowgraph::bench
