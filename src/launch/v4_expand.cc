#include "launch/v4_expand.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "launch/checked_array.h"

namespace shadowgraph {
namespace {

constexpr size_t kBuffers = V4Buffers::kFirstOwn;

enum Arg : uint8_t {
  kSlots,
  kMap,
  kPoolRows,
  kPrefixLens,
  kKvLens,
  kOffsets,
  kOutLoc,
  kTo,
  kScalars = kTo + kBuffers
};

struct ExpandScalars {
  V4TokenRules rules;
  int64_t pool_rows, width, mapped, requests, tokens;
  RequestRows rows;
};
static_assert(sizeof(ExpandScalars) == sizeof(V4TokenRules) + 5 * 8 + 8);

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

Progress body(LaunchFrame& f) {
  Expand(expand_v4_call(f.launch).call, nullptr).run();
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const auto [call, rows] = expand_v4_call(f.launch);
  Expand(call, spans).run();
  name_requests(rows, spans);
}

}  // namespace

constinit const Kernel kExpandV4{.name = "expand_v4", .body = body, .footprint = footprint};

CallOf<ExpandV4> expand_v4_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<ExpandScalars>(kScalars);
  ExpandV4 c;
  c.rules = s.rules;
  c.req_to_token = TensorView(f.pointer<std::byte>(kSlots), DType::kI32, {s.pool_rows, s.width});
  if (s.mapped > 0) c.full_to_swa = TensorView(f.pointer<std::byte>(kMap), DType::kI64, {s.mapped});
  c.pool_rows = array_of<int32_t>(f, kPoolRows, s.requests);
  c.prefix_lens = array_of<int32_t>(f, kPrefixLens, s.requests);
  c.kv_lens = array_of<int32_t>(f, kKvLens, s.requests);
  c.cu_seqlens_q = array_of<int32_t>(f, kOffsets, s.requests + 1);
  c.out_cache_loc = array_of<int64_t>(f, kOutLoc, s.tokens);
  for (size_t b = 0; b < kBuffers; ++b) c.to[b] = f.pointer<std::byte>(kTo + b);
  return {c, s.rows};
}

KernelLaunch expand_v4_launch(const ExpandV4& c, const RequestRows& rows) {
  assert(c.cu_seqlens_q.size() == c.pool_rows.size() + 1);
  assert(c.prefix_lens.size() == c.pool_rows.size() && c.kv_lens.size() == c.pool_rows.size());
  ExpandScalars s{};
  s.rules = c.rules;
  s.pool_rows = c.req_to_token.shape[0], s.width = c.req_to_token.shape[1];
  s.mapped = c.full_to_swa.defined() ? c.full_to_swa.shape[0] : 0;
  s.requests = std::ssize(c.pool_rows), s.tokens = std::ssize(c.out_cache_loc);
  s.rows = rows;
  KernelLaunch launch = launch_of(kExpandV4, s.tokens);
  launch.args.pointer(c.req_to_token.data)
      .pointer(c.full_to_swa.data)
      .pointer(c.pool_rows.data())
      .pointer(c.prefix_lens.data())
      .pointer(c.kv_lens.data())
      .pointer(c.cu_seqlens_q.data())
      .pointer(c.out_cache_loc.data());
  for (const std::byte* to : c.to) launch.args.pointer(to);
  launch.args.scalar(s);
  return launch;
}

}  // namespace shadowgraph
