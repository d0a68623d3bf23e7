#include "kernels/prefill.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/problem.h"

namespace shadowgraph {
namespace {

struct Block {
  int64_t request;
  int32_t kv_head, q_begin, tokens;
};

/// Scratch of one thread.
struct Workspace {
  Floats floats;
  float *m, *d, *o, *scratch;
  std::vector<RowMask> masks;
};

int32_t block_tokens(const Problem& p) { return std::max(1, kPrefillRows / p.group()); }

std::vector<Block> make_blocks(const Problem& p) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    for (int32_t head = 0; head < p.params.num_kv_heads; ++head) {
      for (int32_t q = 0; q < p.requests[i].q_len; q += block_tokens(p)) {
        const int32_t tokens = std::min(block_tokens(p), p.requests[i].q_len - q);
        blocks.push_back({static_cast<int64_t>(i), head, q, tokens});
      }
    }
  }
  return blocks;
}

Workspace make_workspace(const Problem& p) {
  const int64_t rows = int64_t{block_tokens(p)} * p.group();
  const int64_t width = round_up(p.params.head_dim_vo, kPanel);
  const int64_t scratch =
      attend_scratch(rows, p.params.head_dim_qk, p.params.head_dim_vo, kPrefillTile).total;
  Workspace w;
  w.floats = allocate_floats(scratch + rows * width + 2 * rows);
  w.scratch = w.floats.get();
  w.o = w.scratch + scratch;
  w.m = w.o + rows * width;
  w.d = w.m + rows;
  w.masks.resize(static_cast<size_t>(block_tokens(p)));
  return w;
}

void run_block(const Problem& p, const Block& block, AttendFn attend, Workspace& w) {
  const RequestView& request = p.requests[static_cast<size_t>(block.request)];
  AttendUnit unit =
      make_unit(p, request, block.kv_head, block.q_begin, block.tokens, w.masks.data());
  for (int32_t t = 0; t < block.tokens; ++t) {
    w.masks[static_cast<size_t>(t)] = row_mask(p, block.request, block.q_begin + t);
  }
  const KvRange keys = kv_range(MaskShape::of(p.params, request.q_len, request.kv_len),
                                block.q_begin, block.q_begin + block.tokens);
  unit.begin = keys.begin;
  unit.end = keys.end;
  unit.tile = kPrefillTile;
  unit.m = w.m;
  unit.d = w.d;
  unit.o = w.o;
  unit.scratch = w.scratch;
  attend(unit);
  for (int32_t r = 0; r < block.tokens * p.group(); ++r) {
    const int64_t row = request.q_begin + block.q_begin + r / p.group();
    const int32_t qo_head = block.kv_head * p.group() + r % p.group();
    finish_row(p, row, qo_head, {w.m[r], w.d[r]}, w.o + r * unit.o_stride);
  }
}

void prefill(const Problem& p) {
  const std::vector<Block> blocks = make_blocks(p);
  const auto count = static_cast<int64_t>(blocks.size());
  const int threads = team_size(p.options.num_threads, count);
  std::vector<Workspace> workspaces;
  for (int i = 0; i < threads; ++i) workspaces.push_back(make_workspace(p));
  const AttendFn attend = attend_fn(p);
  parallel_for(count, threads, [&](int64_t i, int thread) {
    run_block(p, blocks[static_cast<size_t>(i)], attend, workspaces[static_cast<size_t>(thread)]);
  });
}

}  // namespace

void prefill_paged(const PagedAttention& call) { prefill(make_problem(call)); }
void prefill_ragged(const RaggedAttention& call) { prefill(make_problem(call)); }

}  // namespace shadowgraph
