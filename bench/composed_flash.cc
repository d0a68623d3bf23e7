#include "bench/composed_flash.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "attn/lse.h"
#include "bench/units/best.h"
#include "core/parallel.h"

namespace shadowgraph::bench {
namespace {

constexpr int kKeyBlock = 512;
constexpr int query_block(int q_len) { return q_len < 768 ? 64 : 256; }

struct alignas(64) Line {
  float x[16];
};

/// A thread's block: logits, the running maximum and sum of each row, and the output.
struct Block {
  Block(int rows, int head_dim)
      : logits(new Line[static_cast<size_t>(rows) * kKeyBlock / 16]),
        m(new float[static_cast<size_t>(rows)]),
        sum(new float[static_cast<size_t>(rows)]),
        out(new float[static_cast<size_t>(rows) * head_dim]) {}

  std::unique_ptr<Line[]> logits;
  std::unique_ptr<float[]> m, sum, out;
};

/// Rows of a block: `first` is its first query's position among the keys.
struct Rows {
  int query, count, first;
};

/// Between the two products: logits of keys [begin, begin + n) become weights, and what is in the
/// block is scaled to the new maxima.
void softmax_block(const FlashCall& call, Block& block, const Rows& rows, int begin, int n) {
  const int cols = (n + 15) / 16 * 16;
  for (int r = 0; r < rows.count; ++r) {
    SoftmaxRow row{.s = block.logits[static_cast<size_t>(r) * kKeyBlock / 16].x,
                   .visible = std::clamp(rows.first + r + 1 - begin, 0, n),
                   .cols = cols,
                   .scale = static_cast<float>(call.sm_scale * kLog2E),
                   .m = block.m[r],
                   .sum = 0};
    if (row.visible == 0) {
      std::fill_n(row.s, cols, 0.f);
      continue;
    }
    best_unit().softmax(row);
    const float rescale = std::exp2(block.m[r] - row.m);
    block.sum[r] = block.sum[r] * rescale + row.sum;
    block.m[r] = row.m;
    if (rescale == 1) continue;
    for (int i = 0; i < call.head_dim; ++i) block.out[r * call.head_dim + i] *= rescale;
  }
}

/// The block's rows, divided by their sums, to out.
void finish_block(const FlashCall& call, const Block& block, const Rows& rows, int head) {
  const int d = call.head_dim;
  for (int r = 0; r < rows.count; ++r) {
    float* out = call.out + (int64_t{rows.query + r} * call.num_qo_heads + head) * d;
    const float factor = 1 / block.sum[r];
    for (int i = 0; i < d; ++i) out[i] = block.out[r * d + i] * factor;
  }
}

void attend(const FlashCall& call, Multiply multiply, Block& block, const Rows& rows, int head) {
  const int d = call.head_dim, q_stride = call.num_qo_heads * d, kv_stride = call.num_kv_heads * d;
  const int kv_head = head / (call.num_qo_heads / call.num_kv_heads);
  const float* q = call.q + int64_t{rows.query} * q_stride + head * d;
  float* logits = block.logits[0].x;
  std::fill_n(block.m.get(), rows.count, -HUGE_VALF);
  std::fill_n(block.sum.get(), rows.count, 0.f);
  std::fill_n(block.out.get(), rows.count * d, 0.f);
  const int end = rows.first + rows.count;  // the last query sees itself
  for (int begin = 0; begin < end; begin += kKeyBlock) {
    const int n = std::min(kKeyBlock, end - begin);
    const int64_t kv = int64_t{begin} * kv_stride + kv_head * d;
    multiply({true, rows.count, n, d, q, q_stride, call.k + kv, kv_stride, 0, logits, kKeyBlock});
    softmax_block(call, block, rows, begin, n);
    multiply({false, rows.count, d, n, logits, kKeyBlock, call.v + kv, kv_stride, 1,
              block.out.get(), d});
  }
  finish_block(call, block, rows, head);
}

}  // namespace

void composed_flash(const FlashCall& call, Multiply multiply) {
  const int block_rows = query_block(call.q_len);
  const int blocks = (call.q_len + block_rows - 1) / block_rows;
  const int64_t items = int64_t{call.num_qo_heads} * blocks;
  const int threads = team_size(call.threads, items);
  std::vector<std::unique_ptr<Block>> scratch(static_cast<size_t>(threads));
  parallel_for(items, threads, [&](int64_t item, int thread) {
    auto& block = scratch[static_cast<size_t>(thread)];
    if (!block) block = std::make_unique<Block>(block_rows, call.head_dim);
    // The longest block of a head first.
    const int query = (blocks - 1 - static_cast<int>(item % blocks)) * block_rows;
    const Rows rows{query, std::min(block_rows, call.q_len - query),
                    call.kv_len - call.q_len + query};
    attend(call, multiply, *block, rows, static_cast<int>(item / blocks));
  });
}

}  // namespace shadowgraph::bench
