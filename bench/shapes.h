// Shape: one attention call of the bench as plain data, and the words that rows.inc is written in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shadowgraph/dtype.h"

namespace shadowgraph::bench {

enum class Layout : uint8_t { kPanels, kNhd, kMlaLatent };

/// Whose recurrent states a shape has instead of a cache, with the dims of a model's layer.
enum class Recurrent : uint8_t { kNone, kMamba2, kGdn, kKda, kLightning };

struct StateDims {
  int32_t num_k_heads = 0, num_v_heads = 0, head_dim_k = 0, head_dim_v = 0;
  bool delta = false;
};
constexpr StateDims dims_of(Recurrent kind) {
  switch (kind) {
    case Recurrent::kMamba2: return {8, 128, 128, 64, false};
    case Recurrent::kGdn: return {16, 32, 128, 128, true};
    case Recurrent::kKda: return {32, 32, 128, 128, true};
    case Recurrent::kLightning: return {64, 64, 128, 128, false};
    case Recurrent::kNone: break;
  }
  return {};
}

/// A shape may judge something instead of attending: an item is a line of traces, a step's
/// metadata, a fuzzed call or history, a replay of a graph on a device with its checks or without
/// them.
enum class Judging : uint8_t {
  kNone,
  kTraceLines,
  kSteps,
  kCalls,
  kHistories,
  kReplays,
  kUncheckedReplays
};

/// A paged call over a cache in memory that no cache level holds (unless hot), page size 16.
struct Shape {
  DType dtype = DType::kF32;  // of q, K, V and out
  Layout layout = Layout::kPanels;
  int32_t batch = 1, q_len = 1;           // decode: q_len 1
  int32_t kv_len = 0;                     // keys of every request, the new ones included
  std::span<const int32_t> kv_lens = {};  // or of each: then batch and kv_len follow
  int32_t num_qo_heads = 32, num_kv_heads = 8, head_dim_qk = 128, head_dim_vo = 128;
  int32_t window_left = -1;
  bool tree_mask = false;   // the new tokens are a tree, all see the prefix; else causal
  bool shuffled = true;     // pages lie anywhere in the pool; else one after the other
  bool hot = false;         // always the same keys, which some cache level holds
  bool fast_arith = false;  // Arith::kFast
  Recurrent recurrent = Recurrent::kNone;  // then batch, q_len, hot, isa and threads count alone
  Judging judging = Judging::kNone;        // then nothing else counts
  // Two partial results of so many rows are merged; then num_qo_heads, head_dim_vo, isa and threads
  // count alone
  int32_t merged_rows = 0;
  std::string_view isa = {};  // empty: the default
  int threads = 0;            // 0: as many as the run has

  constexpr int32_t kv_len_of(int32_t request) const {
    return kv_lens.empty() ? kv_len : kv_lens[static_cast<size_t>(request)];
  }
  constexpr bool is_decode() const { return q_len == 1 && !tree_mask; }
  constexpr bool has_states() const { return recurrent != Recurrent::kNone; }
  constexpr bool judges() const { return judging != Judging::kNone; }
  constexpr bool merges() const { return merged_rows > 0; }
  constexpr bool attends() const { return !has_states() && !judges() && !merges(); }

  // The same with one thing changed.
  constexpr Shape heads(int32_t qo, int32_t kv) const {
    return with(&Shape::num_qo_heads, qo).with(&Shape::num_kv_heads, kv);
  }
  constexpr Shape dim(int32_t head_dim) const {
    return with(&Shape::head_dim_qk, head_dim).with(&Shape::head_dim_vo, head_dim);
  }
  constexpr Shape nhd() const { return with(&Shape::layout, Layout::kNhd); }
  constexpr Shape fast() const { return with(&Shape::fast_arith, true); }
  constexpr Shape sequential() const { return with(&Shape::shuffled, false); }
  constexpr Shape in_cache() const { return with(&Shape::hot, true); }
  constexpr Shape window(int32_t left) const { return with(&Shape::window_left, left); }
  constexpr Shape on(std::string_view isa_name) const { return with(&Shape::isa, isa_name); }
  constexpr Shape on_threads(int n) const { return with(&Shape::threads, n); }

  template <class T>
  constexpr Shape with(T Shape::*field, T value) const {
    Shape s = *this;
    s.*field = value;
    return s;
  }
};

constexpr Shape decode(DType t, int32_t batch, int32_t kv_len) {
  return {.dtype = t, .batch = batch, .kv_len = kv_len};
}
constexpr Shape prefill(DType t, int32_t n) { return {.dtype = t, .q_len = n, .kv_len = n}; }
constexpr Shape extend(DType t, int32_t n, int32_t prefix) {
  return {.dtype = t, .q_len = n, .kv_len = prefix + n};
}
/// n draft tokens, each of which sees the prefix and its ancestors.
constexpr Shape verify_tree(DType t, int32_t n, int32_t prefix) {
  Shape s = extend(t, n, prefix);
  s.tree_mask = true;
  return s;
}
constexpr Shape ragged_decode(DType t, std::span<const int32_t> kv_lens) {
  return {.dtype = t, .batch = static_cast<int32_t>(kv_lens.size()), .kv_lens = kv_lens};
}
/// Absorbed: 128 heads over one latent of 512 and 64 rotary dims.
constexpr Shape mla_decode(DType t, int32_t batch, int32_t kv_len) {
  Shape s = decode(t, batch, kv_len).heads(128, 1);
  s.layout = Layout::kMlaLatent, s.head_dim_qk = 576, s.head_dim_vo = 512;
  return s;
}

/// One token a request over f32 states; bf16 activations, as of prefills.
constexpr Shape state_update(Recurrent kind, int32_t batch) {
  return {.dtype = DType::kBF16, .batch = batch, .recurrent = kind};
}
/// One request in chunks.
constexpr Shape state_prefill(Recurrent kind, int32_t n) {
  return {.dtype = DType::kBF16, .q_len = n, .recurrent = kind};
}

constexpr Shape merge_of(DType t, int32_t rows) { return {.dtype = t, .merged_rows = rows}; }

/// On one thread.
constexpr Shape judge(Judging judging) { return {.judging = judging, .threads = 1}; }

/// What a call of this shape costs, counted as a user would: visible pairs, and the requests' own
/// keys and values. Of states: what the recurrence does token by token (a read, an update, of the
/// delta rule the old value, 2 head_dim_k head_dim_v each), and the states once. Of a merge: no
/// flop, and all that is read and written.
double flop_of(const Shape& shape);
double kv_bytes_of(const Shape& shape);
/// First key that some query of a request sees.
int32_t first_visible(const Shape& shape, int32_t request);
/// parent[i] < i of draft token i, -1: the prefix. The same tree for the same n.
int32_t tree_parent(int32_t token);

}  // namespace shadowgraph::bench
