// sparse_attention: one item of work is some heads of one token. The latents that the token names
// are gathered, in order, into tiles of 64 keys; every tile meets all the item's heads.
#include "kernels/sparse/sparse_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "attn/lse.h"
#include "attn/validate/validate_sparse.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/dense/problem.h"
#include "kernels/sparse/sparse_unit.h"

namespace shadowgraph {
namespace {

constexpr int64_t kFewHeads = 16, kMostHeads = 64;  // edge: heads

/// A thread's memory.
struct QueryScratch {
  std::vector<float> q, k, m, d, o, p;
};

class TokenRun {
 public:
  TokenRun(const SparseAttention& call, const SparseIsa& isa, const Isa& engine, QueryScratch& s,
           int64_t token, int64_t head, int64_t heads)
      : call_(call), isa_(isa), engine_(engine), s_(s), token_(token), head_(head) {
    tile_.heads = static_cast<int32_t>(heads);
    tile_.dim_k = static_cast<int32_t>(round_up(call.q.shape[2], kPanel));
    tile_.dim_v = static_cast<int32_t>(round_up(call.head_dim_v, kPanel));
    tile_.scale = static_cast<float>(static_cast<double>(call.sm_scale) * kLog2E);
    tile_.q = s.q.data(), tile_.k = s.k.data();
    tile_.m = s.m.data(), tile_.d = s.d.data(), tile_.o = s.o.data(), tile_.p = s.p.data();
  }

  void run() {
    std::fill_n(tile_.m, tile_.heads, -std::numeric_limits<float>::infinity());
    std::fill_n(tile_.d, int64_t{tile_.heads} * kPanel, 0.F);
    std::fill_n(tile_.o, int64_t{tile_.heads} * tile_.dim_v, 0.F);
    for (int32_t h = 0; h < tile_.heads; ++h) {
      isa_.load({LatentLayout::kRows, call_.q.dtype, call_.q.shape[2],
                 call_.q.at(token_, head_ + h), nullptr,
                 &s_.q[static_cast<size_t>(int64_t{h} * tile_.dim_k)]});
    }
    take(call_.keys);
    if (call_.extra.defined()) take(call_.extra);
    attend();
    for (int32_t h = 0; h < tile_.heads; ++h) finish(h);
  }

 private:
  void take(const ChosenKeys& list) {
    const LatentPool& pool = list.pool;
    for (const int32_t slot : list.of(token_)) {
      if (slot < 0) continue;
      const std::byte* scales = nullptr;
      if (pool.layout == LatentLayout::kV4) scales = pool.data.data + pool.scales_at(slot);
      isa_.load(
          {pool.layout, pool.data.dtype, pool.head_dim(),
           pool.data.data + pool.latent_at(slot) * static_cast<int64_t>(size_of(pool.data.dtype)),
           scales, &s_.k[static_cast<size_t>(int64_t{tile_.keys} * tile_.dim_k)]});
      if (++tile_.keys == kSparseTile) attend();
    }
  }
  void attend() {
    if (tile_.keys > 0) isa_.attend(tile_);
    tile_.keys = 0;
  }

  void finish(int32_t h) const {
    const int64_t head = head_ + h;
    RowState state;
    state.m = tile_.m[h];
    if (state.has_mass()) state.d = isa_.sum(tile_.d + int64_t{h} * kPanel);
    const float* sink = call_.sinks.empty() ? nullptr : &call_.sinks[static_cast<size_t>(head)];
    const RowState counted = finish_row(engine_, state, sink, call_.options.lse_sink,
                                        {tile_.o + int64_t{h} * tile_.dim_v, call_.head_dim_v, 1, 1,
                                         1, call_.out.at(token_, head), call_.out.dtype});
    if (call_.lse.defined()) {
      store_float(call_.lse.tensor.at(token_, head), DType::kF32, 0,
                  lse_of<LseBase::kNatural>(counted));
    }
  }

  const SparseAttention& call_;
  const SparseIsa& isa_;
  const Isa& engine_;
  QueryScratch& s_;
  const int64_t token_, head_;
  SparseTile tile_;
};

void run(const SparseAttention& call) {
  const SparseIsa& isa = sparse_isa(call.options.isa);
  const Isa& engine = *find_isa(call.options.isa);
  const int64_t tokens = call.q.shape[0], heads = call.q.shape[1];
  if (tokens == 0) return;
  // A tile is gathered once an item: few items where tokens are many.
  const int64_t wanted = tokens >= 2 * default_threads() ? kMostHeads : kFewHeads;
  const int64_t each = std::min(heads, wanted), blocks = (heads + each - 1) / each;
  const int threads = team_size(call.options.num_threads, tokens * blocks);
  const int64_t dim_k = round_up(call.q.shape[2], kPanel),
                dim_v = round_up(call.head_dim_v, kPanel);
  std::vector<QueryScratch> scratch(static_cast<size_t>(threads));
  const auto take = [](std::vector<float>* x, int64_t n) { x->resize(static_cast<size_t>(n)); };
  for (QueryScratch& s : scratch) {
    take(&s.q, each * dim_k), take(&s.k, kSparseTile * dim_k), take(&s.m, each);
    take(&s.d, each * kPanel), take(&s.o, each * dim_v), take(&s.p, each * kSparseTile);
  }
  parallel_for(tokens * blocks, threads, [&](int64_t item, int thread) {
    const int64_t head = item % blocks * each;
    TokenRun(call, isa, engine, scratch[static_cast<size_t>(thread)], item / blocks, head,
             std::min(each, heads - head))
        .run();
  });
}

}  // namespace

Status sparse_attention(const SparseAttention& call) noexcept {
  return checked(call, [&] { run(call); });
}

}  // namespace shadowgraph
