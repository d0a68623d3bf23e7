#include "launch/v4_expand.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "launch/checked_array.h"

namespace shadowgraph {
namespace {

constexpr size_t kBuffers = V4Buffers::kFirstOwn;

int64_t columns_of(const V4TokenRules& r, size_t buffer) {
  if (buffer == V4Buffers::kPageTable) return r.table_columns;
  if (buffer == V4Buffers::kWindow) return r.window_columns;
  for (const V4Group g : kV4Groups)
    if (buffer == V4Buffers::of(g, V4Buffers::kBlocks))
      return r.blocks[static_cast<size_t>(g)].columns;
  return 1;
}

/// The kernel over arrays that read and write, or only note it: memory of V4Tokens.
class Expand {
 public:
  Expand(const ExpandV4& c, Footprint* spans)
      : rules_(c.rules),
        width_(c.req_to_token.shape[1]),
        has_map_(c.full_to_swa.defined()),
        slots_(data<const int32_t>(c.req_to_token), c.req_to_token.shape[0] * width_, spans),
        map_(data<const int64_t>(c.full_to_swa), c.full_to_swa.shape[0], spans),
        pool_rows_(c.pool_rows.data(), std::ssize(c.pool_rows), spans),
        prefix_lens_(c.prefix_lens.data(), std::ssize(c.prefix_lens), spans),
        kv_lens_(c.kv_lens.data(), std::ssize(c.kv_lens), spans),
        offsets_(c.cu_seqlens_q.data(), std::ssize(c.cu_seqlens_q), spans),
        out_loc_(c.out_cache_loc.data(), std::ssize(c.out_cache_loc), spans) {
    for (size_t b = 0; b < kBuffers; ++b) {
      const int64_t size = c.to[b] == nullptr ? 0 : out_loc_.size() * columns_of(rules_, b);
      const bool is_long = V4Buffers::is_long(b);
      longs_.emplace_back(is_long ? reinterpret_cast<int64_t*>(c.to[b]) : nullptr,
                          is_long ? size : 0, spans);
      ints_.emplace_back(is_long ? nullptr : reinterpret_cast<int32_t*>(c.to[b]),
                         is_long ? 0 : size, spans);
    }
  }

  void run() {
    for (int64_t i = 0; i < pool_rows_.size(); ++i) expand_request(i);
  }

  // What V4Tokens asks for
  int64_t slot(const V4Token& t, int64_t position) {
    const auto slot = slots_.load(t.pool_row * width_ + position, of(t));
    return slot ? *slot : -1;
  }
  int64_t stored(const V4Token& t) {
    const auto slot = out_loc_.load(t.index, of(t));
    return slot ? *slot : -1;
  }
  int64_t in_window(int64_t slot, const V4Token& t) {
    if (!has_map_ || slot < 0) return slot;
    const auto mapped = map_.load(slot, of(t));
    return mapped ? *mapped : -1;
  }
  template <class Fn>
  void put(size_t buffer, int64_t first, int64_t count, Fn fn, const V4Token& t) {
    if (V4Buffers::is_long(buffer)) return put_into(longs_[buffer], first, count, fn, t);
    put_into(ints_[buffer], first, count, fn, t);
  }

 private:
  template <class T, class View>
  static T* data(const View& t) {
    return reinterpret_cast<T*>(t.data);
  }
  static int32_t of(const V4Token& t) { return static_cast<int32_t>(t.row); }

  template <class T, class Fn>
  void put_into(CheckedArray<T>& to, int64_t first, int64_t count, Fn fn, const V4Token& t) {
    const int64_t known = std::clamp<int64_t>(to.size() - first, 0, std::max<int64_t>(count, 0));
    for (int64_t j = 0; j < known; ++j) to.store(first + j, static_cast<T>(fn(j)), of(t));
    to.store_outside(first + known, count - known, of(t));
  }

  void expand_request(int64_t i) {
    const auto row = static_cast<int32_t>(i);
    const auto begin = offsets_.load(i, row), end = offsets_.load(i + 1, row);
    const int32_t pool_row = *pool_rows_.load(i, row);
    const auto prefix_len = prefix_lens_.load(i, row), kv_len = kv_lens_.load(i, row);
    if (!begin || !end || !prefix_len || !kv_len || *begin < 0) return;
    const int64_t tokens = out_loc_.size();
    V4Tokens<Expand> writer(rules_, this);
    for (int64_t index = *begin; index < std::min<int64_t>(*end, tokens); ++index) {
      const V4Token t = v4_token(index, *begin, i, pool_row != 0, pool_row, *prefix_len, *kv_len);
      writer.write(t);
      writer.write_lists(t);
    }
    ints_[V4Buffers::kSeqLens].store_outside(tokens, *end - tokens, row);
  }

  const V4TokenRules rules_;
  int64_t width_;
  bool has_map_;
  CheckedArray<const int32_t> slots_;
  CheckedArray<const int64_t> map_;
  CheckedArray<const int32_t> pool_rows_, prefix_lens_, kv_lens_, offsets_;
  CheckedArray<const int64_t> out_loc_;
  std::vector<CheckedArray<int64_t>> longs_;
  std::vector<CheckedArray<int32_t>> ints_;
};

}  // namespace

constinit const Kernel kExpandV4 = walked_kernel<ExpandV4, Expand>("expand_v4");

KernelLaunch expand_v4_launch(const ExpandV4& call, const RequestRows& rows) {
  assert(call.cu_seqlens_q.size() == call.pool_rows.size() + 1);
  assert(call.prefix_lens.size() == call.pool_rows.size() &&
         call.kv_lens.size() == call.pool_rows.size());
  return launch_of(kExpandV4, call, rows, std::ssize(call.out_cache_loc));
}

}  // namespace shadowgraph
