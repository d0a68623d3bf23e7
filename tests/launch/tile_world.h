// A batch on a device whose keys are lists of slots, for tests of launches that cut them: what the
// whole call gives, and its judgement.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check/bounds/compare.h"
#include "launch/launch_world.h"
#include "launch/partial_rows.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

struct TileShape {
  std::vector<std::pair<int32_t, int32_t>> requests = {{3, 40}, {1, 0}, {4, 150}, {0, 5}, {1, 33}};
  int32_t padding = 2;  // rows of q and out that are nobody's
  bool ragged = false, window = false, causal = true, masked = false, sinks = false;
  LseBase base = LseBase::kNatural;
};

/// Six query heads, two KV heads; slots are handed out from the last one down, slot 0 is never
/// written.
class TileWorld : public LaunchWorld {
 public:
  static constexpr int32_t kHeads = 6, kKvHeads = 2, kGroup = 3, kDimQk = 16, kDimVo = 8;

  explicit TileWorld(TileShape s) : shape(std::move(s)) {
    for (const auto& [queries, keys] : shape.requests) {
      starts_.push_back(starts_.back() + queries);
      ends_.push_back(ends_.back() + keys);
      mask_starts_.push_back(mask_starts_.back() + (queries * keys + 7) / 8);
    }
    for (int32_t t = 0; t < ends_.back(); ++t) slot_list_.push_back(ends_.back() - t);
    bind_all();
  }

  int64_t batch() const { return std::ssize(shape.requests); }
  int32_t tokens() const { return starts_.back(); }
  int32_t keys() const { return ends_.back(); }
  const Ints& starts() const { return starts_; }
  const Ints& ends() const { return ends_; }
  KvCache cache() const { return slot_view(KvCache::nhd(k.view(), v.view())); }
  AttentionParams params() const {
    AttentionParams p{.num_qo_heads = kHeads,
                      .num_kv_heads = kKvHeads,
                      .head_dim_qk = kDimQk,
                      .head_dim_vo = kDimVo,
                      .sm_scale = 0.5f,
                      .causal = shape.causal,
                      .window_left = shape.window ? 20 : -1};
    if (shape.sinks) p.sinks = elements<float>(sinks);
    return p;
  }
  AnyLse lse_of(const Buffer& b) const { return {b.view(), shape.base}; }
  /// out and lse, held against the whole call, each row merged from so many parts.
  void expect_whole(const std::vector<int32_t>& parts, LseSink counted) {
    stream().synchronize();
    JudgeOptions how{.bounded = true, .parts = parts};
    TensorView out_rows = out.view(), lse_rows = lse.view();
    out_rows.shape[0] = lse_rows.shape[0] = tokens();
    const Result result{out_rows, lse_rows, shape.base, counted};
    const Arithmetic& merged = *find_arithmetic("ours_merged");
    const Judgement j = shape.ragged ? judge(ragged_call(out_rows), result, merged, how)
                                     : judge(paged_call(out_rows), result, merged, how);
    EXPECT_TRUE(j.findings.ok()) << j.findings.to_string();
    EXPECT_EQ(j.rows, tokens() * kHeads);
  }
  /// Rows of out and lse past the last token.
  void expect_padding(std::byte value) {
    for (const Buffer* b : {&out, &lse}) {
      const Bytes all = bytes(*b);
      const size_t row = all.size() / static_cast<size_t>(b->shape[0]);
      for (size_t i = static_cast<size_t>(tokens()) * row; i < all.size(); ++i)
        ASSERT_EQ(all[i], value);
    }
  }
  void clear() { fill(out, 0x11), fill(lse, 0x11); }
  /// What launches(stream) does to cleared outputs, eagerly and as one replay; check() after each.
  template <class Launches, class Check>
  void run_launches(Launches launches, Check check) {
    clear();
    launches(stream());
    {
      SCOPED_TRACE("eager");
      check();
    }
    clear();
    Graph graph;
    GraphExec exec;
    ASSERT_TRUE(Graph::record(stream(), launches, &graph).ok());
    ASSERT_TRUE(GraphExec::instantiate(graph, &exec).ok());
    exec.replay(stream());
    SCOPED_TRACE("replayed");
    check();
  }
  /// Every request's slots are its own.
  void set_owners() {
    std::vector<OwnerId> rows;
    for (size_t r = 0; r < shape.requests.size(); ++r) {
      rows.push_back(static_cast<OwnerId>(r + 1));
      for (int32_t t = ends_[r]; t < ends_[r + 1]; ++t) {
        for (const Buffer* b : {&k, &v})
          set_owner(*b, slot_list_[static_cast<size_t>(t)], rows.back());
      }
    }
    device.set_row_owners(rows);
  }

  const TileShape shape;
  Buffer q, k, v, out, lse, sinks, qo_indptr, kv_indptr, kv_indices, mask, mask_indptr;

 private:
  void bind_all() {
    const int64_t rows = tokens() + shape.padding;
    q = bind("q", DType::kF32, {rows, kHeads, kDimQk}, kHeads * kDimQk);
    out = bind("out", DType::kF32, {rows, kHeads, kDimVo}, kDimVo);
    lse = bind("lse", DType::kF32, {rows, kHeads});
    const int64_t slots = keys() + 1;
    k = bind("k", DType::kF32, {slots, 1, kKvHeads, kDimQk}, kKvHeads * kDimQk);
    v = bind("v", DType::kF32, {slots, 1, kKvHeads, kDimVo}, kKvHeads * kDimVo);
    write_bytes(q, 0, random(q.dtype, tokens() * kHeads * kDimQk), tokens() * kHeads * kDimQk);
    for (const Buffer* b : {&k, &v}) {
      const int64_t row = b->numel() / slots;
      write_bytes(*b, row, random(b->dtype, keys() * row), keys() * row);
    }
    sinks = bind_values("sinks", DType::kF32, std::vector<float>{1, -1, 0.5f, 2, 0, -3});
    qo_indptr = bind_values("qo_indptr", DType::kI32, starts_);
    kv_indptr = bind_values("kv_indptr", DType::kI32, ends_);
    kv_indices = bind_values("kv_indices", DType::kI32, slot_list_);
    std::vector<uint8_t> bits(static_cast<size_t>(mask_starts_.back()));
    for (uint8_t& b : bits) b = static_cast<uint8_t>(rng_.below(256));
    mask = bind_values("mask", DType::kU8, bits);
    mask_indptr =
        bind_values("mask_indptr", DType::kI32, Ints(mask_starts_.begin(), mask_starts_.end()));
  }

  template <class Call>
  void set_rows(Call& c, const TensorView& out_rows) const {
    c.q = q.view();
    c.q.shape[0] = tokens();
    c.cu_seqlens_q = starts_;
    c.params = params();
    c.out = out_rows;
    if (!shape.masked) return;
    c.params.causal = false;
    c.params.custom_mask = {CustomMask::Kind::kPacked, elements<uint8_t>(mask), mask_starts_};
  }
  PagedAttention paged_call(const TensorView& out_rows) const {
    PagedAttention c;
    set_rows(c, out_rows);
    c.cache = cache();
    c.pages = PageTable::csr(ends_, slot_list_, last_);
    return c;
  }
  /// The slots in the order of the list are not the rows in memory: keys of ragged calls are
  /// k[1], k[2], ....
  RaggedAttention ragged_call(const TensorView& out_rows) const {
    RaggedAttention c;
    set_rows(c, out_rows);
    c.k = ragged(k), c.v = ragged(v);
    c.cu_seqlens_k = ends_;
    return c;
  }

 public:
  ConstTensorView ragged(const Buffer& b) const {
    return {b.view().at(1), b.dtype, {keys(), kKvHeads, b.shape[3]}};
  }

 private:
  Ints starts_{0}, ends_{0}, slot_list_;
  std::vector<int64_t> mask_starts_{0};
  Ints last_ = Ints(shape.requests.size(), 1);
};

/// A row of a buffer, as launches left it.
inline Bytes row_of(TileWorld& w, const Buffer& b, int64_t row) {
  const Bytes all = w.bytes(b);
  const auto size = std::ssize(all) / b.shape[0];
  return {all.begin() + row * size, all.begin() + (row + 1) * size};
}

}  // namespace shadowgraph
