#include "kernels/dense/work_list.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/laws.h"
#include "core/parallel.h"

namespace shadowgraph {
namespace {

// In the time in which a core reads a byte of memory it computes about as many f32 operations.
constexpr double kFlopPerByte = 7;

struct PlannedBlock {
  double cost;  // of one of its pieces
  Piece all;
  int32_t pieces;
};

/// In FLOP, for each KV head of a unit.
double cost_of(const Problem& p, const BlockShape& shape, const Piece& block, int32_t keys) {
  const int32_t tokens = p.requests[static_cast<size_t>(block.request)].rows - block.q_begin;
  const double rows = std::min(shape.tokens, tokens) * p.group();
  const double dims = p.params.head_dim_qk + p.params.head_dim_vo;
  const double bytes = static_cast<double>(size_of(p.k.dtype)) * p.params.head_dim_qk +
                       static_cast<double>(size_of(p.v.dtype)) * p.params.head_dim_vo;
  // A panel more, for what a block costs that sees no key.
  return (static_cast<double>(keys) + kPanel) * (kFlopPerByte * bytes + 2 * rows * dims);
}

/// Costly first; blocks of equal cost as they lie in memory.
bool before(const PlannedBlock& a, const PlannedBlock& b) {
  if (a.cost != b.cost) return a.cost > b.cost;
  if (a.all.request != b.all.request) return a.all.request < b.all.request;
  return a.all.q_begin < b.all.q_begin;
}

/// All blocks, whole. Returns their cost.
double list_blocks(const Problem& p, const BlockShape& shape, std::span<PlannedBlock>* blocks) {
  double total = 0;
  size_t count = 0;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    for (int64_t q = 0; q < p.requests[i].rows; q += shape.tokens) {
      const auto request = static_cast<int32_t>(i), q_begin = static_cast<int32_t>(q);
      const BlockKeys k = block_keys(p, shape, request, q_begin);
      const Piece all = {request, q_begin, k.split_begin, k.split_end};
      (*blocks)[count] = {cost_of(p, shape, all, k.keys.size()), all, 1};
      total += (*blocks)[count++].cost;
    }
  }
  *blocks = blocks->first(count);
  return total;
}

/// Cuts blocks that are more than a thread should do at once.
void cut(std::span<PlannedBlock> blocks, double total, const CallShape& shape) {
  const double share = total * shape.units / (kPiecesPerThread * shape.threads);
  int64_t spare = shape.most_cuts();
  for (PlannedBlock& b : blocks) {
    const int64_t splits = b.all.split_end - b.all.split_begin;
    const int64_t most = std::min(splits, spare + 1);
    if (b.cost <= share || most < 2) continue;
    b.pieces = static_cast<int32_t>(std::min(std::ceil(b.cost / share), static_cast<double>(most)));
    b.cost /= b.pieces;
    spare -= b.pieces - 1;
  }
}

void put(std::span<int32_t> plan, int64_t piece, const Piece& x) {
  int32_t* to = plan.data() + kPlanHeader + 4 * piece;
  to[0] = x.request, to[1] = x.q_begin, to[2] = x.split_begin, to[3] = x.split_end;
}
Piece piece_at(std::span<const int32_t> plan, int64_t piece) {
  const int32_t* from = plan.data() + kPlanHeader + 4 * piece;
  return {from[0], from[1], from[2], from[3]};
}

std::string text(const Piece& x) {
  return "request " + std::to_string(x.request) + ", query " + std::to_string(x.q_begin) +
         ", splits " + std::to_string(x.split_begin) + ".." + std::to_string(x.split_end);
}

/// Walks a plan's pieces, block by block.
class PlanReader {
 public:
  PlanReader(const Problem& p, const CallShape& shape, Carver& scratch, int64_t pieces)
      : p_(p),
        shape_(shape),
        first_block_(scratch.take<int64_t>(static_cast<int64_t>(p.requests.size()))) {
    for (size_t i = 0; i < p.requests.size(); ++i) {
      first_block_[i] = blocks_;
      blocks_ += (int64_t{p.requests[i].rows} + shape.block.tokens - 1) / shape.block.tokens;
    }
    seen_ = scratch.take<uint8_t>(blocks_);
    std::ranges::fill(seen_, uint8_t{0});
    entries_ = scratch.take<WorkList::Entry>(pieces);
    cuts_ = scratch.take<WorkList::Cut>(pieces / 2);
  }

  void read(int64_t index, const Piece& piece) {
    if (open_ && (piece.request != block_.request || piece.q_begin != block_.q_begin)) {
      fail(index, text(rest_of_block()), piece);
      open_ = false;
    }
    const bool first = !open_;
    if (first && !start_block(index, piece)) return;
    // The one piece of an empty block is empty, too.
    const bool advances = piece.split_end > next_split_ || piece.split_end == keys_.split_end;
    if (piece.split_begin != next_split_ || piece.split_end > keys_.split_end || !advances) {
      open_ = false;
      return fail(index, text(rest_of_block()) + ", or a part from the first on", piece);
    }
    next_split_ = piece.split_end;
    open_ = next_split_ < keys_.split_end;
    if (!first) join_cut(index);
    entries_[static_cast<size_t>(index)] = {piece, cut_};
  }

  Status finish(WorkList* list) {
    if (open_ || (status_.ok() && blocks_read_ != blocks_)) {
      status_.add(make_finding("input.plan", at("plan", kPieces),
                               "pieces for all of " + std::to_string(blocks_) + " blocks",
                               std::to_string(blocks_read_ - (open_ ? 1 : 0)) + " whole blocks"));
    }
    *list = {entries_, cuts_.first(cut_count_), states_};
    return std::move(status_);
  }

 private:
  bool start_block(int64_t index, const Piece& piece) {
    const auto requests = static_cast<int32_t>(p_.requests.size());
    const bool known = piece.request >= 0 && piece.request < requests;
    const int32_t rows = known ? p_.requests[static_cast<size_t>(piece.request)].rows : 0;
    if (piece.q_begin < 0 || piece.q_begin >= rows || piece.q_begin % shape_.block.tokens != 0) {
      fail(index,
           known ? "a block of " + std::to_string(rows) + " queries"
                 : "0 <= request < " + std::to_string(requests),
           piece);
      return false;
    }
    uint8_t& seen = seen_[static_cast<size_t>(first_block_[static_cast<size_t>(piece.request)] +
                                              piece.q_begin / shape_.block.tokens)];
    if (seen != 0) {
      fail(index, "each block once", piece);
      return false;
    }
    seen = 1;
    ++blocks_read_;
    cut_ = -1;
    block_ = piece;
    keys_ = block_keys(p_, shape_.block, piece.request, piece.q_begin);
    next_split_ = keys_.split_begin;
    return true;
  }

  /// The piece of that number is not its block's first.
  void join_cut(int64_t index) {
    if (cut_ < 0) {
      cut_ = static_cast<int32_t>(cut_count_);
      const int32_t splits = keys_.split_end - keys_.split_begin;
      cuts_[cut_count_++] = {states_, keys_.split_begin, splits, 1,
                             static_cast<int32_t>(index - 1)};
      states_ += splits;
      entries_[static_cast<size_t>(index - 1)].cut = cut_;
    }
    ++cuts_[static_cast<size_t>(cut_)].pieces;
  }

  Piece rest_of_block() const {
    return {block_.request, block_.q_begin, next_split_, keys_.split_end};
  }

  void fail(int64_t index, std::string expected, const Piece& piece) {
    status_.add(make_finding("input.plan", at("plan", kPlanHeader + 4 * index), std::move(expected),
                             text(piece)));
  }

  const Problem& p_;
  const CallShape& shape_;
  std::span<int64_t> first_block_;  // [batch]
  std::span<uint8_t> seen_;         // [blocks]
  std::span<WorkList::Entry> entries_;
  std::span<WorkList::Cut> cuts_;
  int64_t blocks_ = 0, blocks_read_ = 0, states_ = 0;
  size_t cut_count_ = 0;
  // The block whose pieces are being read; open: there are splits left.
  bool open_ = false;
  Piece block_{};
  BlockKeys keys_;
  int32_t next_split_ = 0, cut_ = -1;
  Status status_;
};

}  // namespace

int64_t CallShape::most_blocks() const {
  // Each request may have one block that is not full; a block of one token always is.
  return total_q / block.tokens + (block.tokens > 1 ? std::min(batch, total_q) : 0);
}

void CallShape::join_heads(int32_t most) {
  assert(block.tokens == 1);
  units *= kv_heads;
  rows_a_token /= kv_heads;
  kv_heads = std::min(most, units);
  while (units % kv_heads != 0) --kv_heads;
  units /= kv_heads;
  rows_a_token *= kv_heads;
}

int64_t CallShape::most_cuts(int threads, int32_t units) {
  if (threads <= 1) return 0;
  return int64_t{kPiecesPerThread} * threads / units + 1;
}

BlockKeys block_keys(const Problem& p, const BlockShape& shape, int32_t request, int32_t q_begin) {
  const RequestView& r = p.requests[static_cast<size_t>(request)];
  const int64_t q_end = std::min<int64_t>(r.rows, int64_t{q_begin} + shape.tokens);
  BlockKeys block;
  block.keys = kv_range(mask_of(p, r), q_begin, q_end);
  if (block.keys.size() == 0) return block;
  block.split_begin = block.keys.begin / kSplit;
  block.split_end = (block.keys.end - 1) / kSplit + 1;
  return block;
}

int64_t work_list_bytes(const CallShape& shape, int64_t pieces) {
  const int64_t blocks = shape.most_blocks();
  return carved_bytes<PlannedBlock>(blocks) + carved_bytes<int32_t>(shape.plan_size()) +
         carved_bytes<int64_t>(shape.batch) + carved_bytes<uint8_t>(blocks) +
         carved_bytes<WorkList::Entry>(pieces) + carved_bytes<WorkList::Cut>(pieces / 2);
}

std::span<const int32_t> make_plan(const Problem& p, const CallShape& shape, Carver& scratch) {
  std::span<PlannedBlock> blocks = scratch.take<PlannedBlock>(shape.most_blocks());
  const std::span<int32_t> plan = scratch.take<int32_t>(shape.plan_size());
  const double total = list_blocks(p, shape.block, &blocks);
  cut(blocks, total, shape);
  std::ranges::sort(blocks, before);
  int64_t pieces = 0;
  for (const PlannedBlock& b : blocks) {
    const int64_t splits = b.all.split_end - b.all.split_begin;
    const auto edge = [&](int64_t i) {
      return b.all.split_begin + static_cast<int32_t>(splits * i / b.pieces);
    };
    for (int32_t i = 0; i < b.pieces; ++i)
      put(plan, pieces++, {b.all.request, b.all.q_begin, edge(i), edge(i + 1)});
  }
  plan[kMagic] = kPlanMagic;
  plan[kSplitKeys] = kSplit;
  plan[kBlockTokens] = shape.block.tokens;
  plan[kThreads] = shape.threads;
  plan[kPieces] = static_cast<int32_t>(pieces);
  return used_part(plan);
}

Status check_header(const CallShape& shape, std::span<const int32_t> plan) {
  Status status;
  const auto size = static_cast<int64_t>(plan.size());
  if (size < kPlanHeader) {
    status.add(make_finding("input.plan", at("plan"),
                            "at least " + std::to_string(kPlanHeader) + " int32",
                            std::to_string(size)));
    return status;
  }
  const auto expect = [&](PlanHeader field, int64_t least, int64_t most, const char* what) {
    if (plan[field] >= least && plan[field] <= most) return;
    const std::string range =
        std::to_string(least) + (least == most ? "" : ".." + std::to_string(most));
    status.add(make_finding("input.plan", at("plan", field), range + ", " + what,
                            std::to_string(plan[field])));
  };
  expect(kMagic, kPlanMagic, kPlanMagic, "a plan of this version");
  expect(kSplitKeys, kSplit, kSplit, "keys of a split");
  expect(kBlockTokens, shape.block.tokens, shape.block.tokens, "queries of a block");
  expect(kThreads, 1, kMostThreads, "threads");
  if (!status.ok()) return status;
  const int64_t room = (size - kPlanHeader) / 4;
  const int64_t cuts = CallShape::most_cuts(plan[kThreads], 1);
  expect(kPieces, 0, std::min(room, shape.most_blocks() + cuts), "pieces");
  return status;
}

Status read_plan(const Problem& p, const CallShape& shape, std::span<const int32_t> plan,
                 Carver& scratch, WorkList* list) {
  PlanReader reader(p, shape, scratch, plan[kPieces]);
  for (int32_t i = 0; i < plan[kPieces]; ++i) reader.read(i, piece_at(plan, i));
  return reader.finish(list);
}

std::span<const int32_t> used_part(std::span<const int32_t> plan) {
  const auto size = static_cast<int64_t>(plan.size());
  if (size < kPlanHeader) return plan;
  const int64_t pieces = std::max(plan[kPieces], 0);
  return plan.first(static_cast<size_t>(std::min<int64_t>(size, kPlanHeader + 4 * pieces)));
}

}  // namespace shadowgraph
