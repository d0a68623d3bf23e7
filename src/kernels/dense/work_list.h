// The work of an attention call, cut into pieces that threads take one after the other.
//
// A block is a run of query tokens of one request, BlockShape::tokens long or what is left; there
// is one for each unit, whose query heads are its rows: a unit is one KV head, or several that are
// joined. The keys that a block sees are cut into splits of kSplit at multiples of kSplit: each is
// computed on its own, and a row's split states are folded left to right. So a row's bits are a
// function of its own visible range; a piece of work (a run of splits of one block) only says who
// computes what.
//
// Costly pieces come first. A block is cut where it would be more than a thread's share divided by
// kPiecesPerThread; all units are cut alike, so a piece stands for all of them. What a piece is
// does not depend on the number of KV heads or on how they are joined: layers may differ in both
// and share a plan.
//
// The list travels as int32, the plan: kPlanHeader, then four for each piece. The pieces of a block
// are neighbours, in the order of its splits. Tested by tests/kernels/work_list_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dense/problem.h"
#include "kernels/dense/workspace.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

inline constexpr int32_t kSplit = 512;  // edge: keys
inline constexpr int32_t kPiecesPerThread = 4;
inline constexpr int32_t kLeastPiecesPerThread = 2;
// edge: query_rows, heads
inline constexpr int32_t kMostUnitRows = 128;  // query heads of KV heads that are joined

struct BlockShape {
  int32_t tokens;  // of a block, at most
  int32_t tile;    // keys between two looks at the running maximum; divides kSplit
};

/// Splits begin <= s < end of tokens q_begin and on of a request, for each unit. A block that sees
/// no key has one piece with none.
struct Piece {
  int32_t request, q_begin, split_begin, split_end;
};

// The header: which kind of plan, what it was cut for, and how many pieces follow.
enum PlanHeader : uint8_t { kMagic, kSplitKeys, kBlockTokens, kThreads, kPieces, kPlanHeader };
inline constexpr int32_t kPlanMagic = 0x31504753;  // no edge: a name; "SGP1"

/// The shapes of a call, which bound every plan and all scratch.
struct CallShape {
  int64_t batch = 0, total_q = 0;
  int64_t most_keys = 0;  // of a request
  // KV heads are computed one by one, or `kv_heads` of them in turn, tile by tile: `units` of these
  // make up all KV heads of the call. rows_a_token: query heads of a unit
  int32_t units = 1, kv_heads = 1, rows_a_token = 1;
  int32_t head_dim_qk = 1, head_dim_vo = 1;
  int threads = 1;
  BlockShape block{1, kSplit};

  /// Joins as many KV heads as divide evenly, at most so many, instead of those now. Requires
  /// blocks of one token: rows lie [KV head][token] in a unit, [token][KV head] in the outputs.
  void join_heads(int32_t most);

  /// The most blocks of one unit.
  int64_t most_blocks() const;
  /// Pieces beyond one for each block.
  int64_t most_cuts() const { return most_cuts(threads, units); }
  static int64_t most_cuts(int threads, int32_t units);
  int64_t plan_size() const { return kPlanHeader + 4 * (most_blocks() + most_cuts()); }
  int64_t rows() const { return int64_t{block.tokens} * rows_a_token; }
};

/// The keys of a block, and its splits.
struct BlockKeys {
  KvRange keys;
  int32_t split_begin = 0, split_end = 0;
};
BlockKeys block_keys(const Problem& p, const BlockShape& shape, int32_t request, int32_t q_begin);

/// A plan that read_plan has found sound, in scratch memory.
struct WorkList {
  struct Entry {
    Piece piece;
    int32_t cut;  // index into cuts; -1: the piece is its whole block
  };
  /// A block in several pieces: its split states are kept until the last piece is done.
  struct Cut {
    int64_t first_state;  // number of split states of earlier cuts, of one unit
    int32_t split_begin, splits, pieces;
    int32_t first_entry;  // of its pieces, which are neighbours in entries
  };
  std::span<Entry> entries;
  std::span<Cut> cuts;
  int64_t states = 0;  // split states of all cuts, of one unit
};

/// Scratch of make_plan and read_plan together, in bytes, for so many pieces.
int64_t work_list_bytes(const CallShape& shape, int64_t pieces);

/// Cuts the work for shape.threads. The plan lies in scratch.
std::span<const int32_t> make_plan(const Problem& p, const CallShape& shape, Carver& scratch);

/// What is wrong with a plan's header. Pieces may be as many as its threads make of any units.
Status check_header(const CallShape& shape, std::span<const int32_t> plan);

/// A plan whose header is sound, as a list; or what is wrong with its pieces.
Status read_plan(const Problem& p, const CallShape& shape, std::span<const int32_t> plan,
                 Carver& scratch, WorkList* list);

/// The header and the pieces: as many as the header counts, and no more than the plan has room for.
std::span<const int32_t> used_part(std::span<const int32_t> plan);

}  // namespace shadowgraph
