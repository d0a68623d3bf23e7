#include "kernels/dense/attend_blocks.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "core/laws.h"
#include "core/parallel.h"
#include "kernels/dense/attend_terms.h"
#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"

namespace shadowgraph {
namespace {

// Threads' scratch begins on pages of its own, so that each page is first touched by its thread.
constexpr int64_t kMemoryPage = 4096;  // no edge: bytes
// Rows of a cut block that a thread folds at a time.
constexpr int32_t kFoldRows = 16;  // edge: query_rows
// Each part of a workspace begins on a cache line.
constexpr int64_t kAlignmentLoss = Workspace::kTakes * kCacheLine;

int64_t state_width(const CallShape& s) { return round_up(s.head_dim_vo, kPanel); }
/// Floats of the state of one block after some splits.
int64_t state_floats(const CallShape& s) {
  return s.rows() * state_width(s) + 2 * round_up(s.rows(), kPanel);
}
AttendScratch unit_scratch(const CallShape& s) {
  return attend_scratch(s.rows(), s.head_dim_qk, s.head_dim_vo, s.block.tile);
}
int64_t thread_bytes(const CallShape& s) {
  const int64_t bytes = carved_bytes<float>(2 * state_floats(s)) +
                        carved_bytes<float>(unit_scratch(s).total) +
                        carved_bytes<RowMask>(s.block.tokens);
  return round_up(bytes, kMemoryPage);
}

/// Pieces of one cut block and unit that are not done.
struct alignas(kCacheLine) Countdown {
  explicit Countdown(int32_t pieces) : left(pieces) {}
  std::atomic<int32_t> left;
};

/// Bytes of the states of threads, and of cut blocks.
int64_t state_bytes(const CallShape& s, int64_t cuts, int64_t states) {
  return kMemoryPage + saturating_bytes(s.threads, thread_bytes(s)) +
         saturating_bytes(cuts, s.units * int64_t{sizeof(Countdown)}) +
         saturating_bytes(saturating_bytes(states, s.units), state_floats(s) * int64_t{4});
}

RowStates state_at(const CallShape& s, float* memory) {
  float* m = memory + s.rows() * state_width(s);
  return {m, m + round_up(s.rows(), kPanel), memory};
}

/// One thread's room.
struct Room {
  RowStates into, part;
  std::span<RowMask> masks;
  float* scratch;

  Room(const CallShape& s, std::byte* memory) {
    Carver carver(memory);
    float* states = carver.take<float>(2 * state_floats(s)).data();
    into = state_at(s, states);
    part = state_at(s, states + state_floats(s));
    scratch = carver.take<float>(unit_scratch(s).total).data();
    masks = carver.take<RowMask>(s.block.tokens);
  }
};

/// A block, for one unit.
struct Block {
  const RequestView& request;
  Piece piece;
  int32_t unit, tokens;
  KvRange keys;

  int32_t rows(const CallShape& s) const { return tokens * s.rows_a_token; }
  KvRange keys_of(int64_t split) const {
    return {static_cast<int32_t>(std::max<int64_t>(keys.begin, split * kSplit)),
            static_cast<int32_t>(std::min<int64_t>(keys.end, (split + 1) * kSplit))};
  }
};

/// One call.
class Run {
 public:
  Run(const Problem& p, const CallShape& shape, const WorkList& list, Carver& scratch)
      : p_(p),
        shape_(shape),
        list_(list),
        items_(static_cast<int64_t>(list.entries.size()) * shape.units),
        row_runs_((shape.rows() + kFoldRows - 1) / kFoldRows) {
    const auto cuts = static_cast<int64_t>(list.cuts.size());
    folds_ = cuts * shape.units * row_runs_;
    left_ = scratch.take<Countdown>(cuts * shape.units);
    for (size_t i = 0; i < left_.size(); ++i) {
      const auto cut = i / static_cast<size_t>(shape.units);
      std::construct_at(&left_[i], list.cuts[cut].pieces);
    }
    kept_ = scratch.take<float>(list.states * shape.units * state_floats(shape)).data();
    threads_ = scratch.rest(kMemoryPage);
  }

  void go() {
    parallel_team(team_size(shape_.threads, items_), [this](int thread) {
      const Room room(shape_, threads_ + thread * thread_bytes(shape_));
      for (int64_t item = take(); item < items_;) item = run_piece(room, item);
      // All threads fold what was cut: one alone would be at it when the others are done.
      for (int64_t i; (i = next_fold_.fetch_add(1, std::memory_order_relaxed)) < folds_;)
        finish_cut(i);
    });
  }

 private:
  // Queries of a prefill share keys: unit by unit these stay in cache. Decode has nothing to share,
  // and takes the costly pieces of all units first.
  int64_t entries() const { return static_cast<int64_t>(list_.entries.size()); }
  bool by_units() const { return shape_.block.tokens > 1; }
  int64_t unit_of(int64_t item) const {
    return by_units() ? item / entries() : item % shape_.units;
  }
  const WorkList::Entry& entry(int64_t item) const {
    const int64_t at = by_units() ? item % entries() : item / shape_.units;
    return list_.entries[static_cast<size_t>(at)];
  }
  Block block_of(int64_t item) const {
    return block_of(entry(item).piece, static_cast<int32_t>(unit_of(item)));
  }
  Block block_of(const Piece& piece, int32_t unit) const {
    const RequestView& r = p_.requests[static_cast<size_t>(piece.request)];
    return {r, piece, unit, std::min(shape_.block.tokens, r.rows - piece.q_begin),
            block_keys(p_, shape_.block, piece.request, piece.q_begin).keys};
  }

  int32_t first_head(const Block& b) const { return b.unit * shape_.kv_heads; }

  int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

  /// Returns the thread's next item. It is taken before the last split, whose end then asks for
  /// what that item reads: a guess would be wrong as soon as threads do not alternate.
  int64_t run_piece(const Room& room, int64_t item) {
    const Block b = block_of(item);
    const Piece& piece = b.piece;
    for (int32_t t = 0; t < b.tokens; ++t)
      room.masks[static_cast<size_t>(t)] = row_mask(p_, piece.request, piece.q_begin + t);
    AttendUnit unit =
        make_unit(p_, b.request, first_head(b), piece.q_begin, b.tokens, room.masks.data());
    unit.heads = shape_.kv_heads;
    unit.tile = shape_.block.tile;
    unit.block_rows = shape_.block.tokens * unit.group;
    unit.scratch = room.scratch;
    unit.asked_by_processor = asked_by_processor_;
    const int32_t cut = entry(item).cut;
    int64_t next = items_;
    for (int32_t split = piece.split_begin; split < piece.split_end; ++split) {
      const bool first = split == piece.split_begin;
      const RowStates to = cut >= 0 ? kept(cut, b.unit, split) : first ? room.into : room.part;
      const KvRange keys = b.keys_of(split);
      unit.begin = keys.begin, unit.end = keys.end;
      unit.m = to.m, unit.d = to.d, unit.o = to.o;
      unit.same_rows = !first;
      if (split + 1 < piece.split_end) {
        unit.ahead = ahead(b, split + 1);
      } else {
        next = take();
        look_ahead(b, next, &unit);
      }
      attend(b, unit);
      if (cut < 0 && !first) fold(room.into, room.part, 0, b.rows(shape_));
    }
    if (piece.split_begin == piece.split_end) {
      clear(b, room.into);
      next = take();
    }
    cut >= 0 ? count_piece(cut, b.unit) : finish_rows(b, room.into, 0, b.rows(shape_));
    return next;
  }

  void attend(const Block& b, const AttendUnit& unit) const {
    if (has_terms_of_keys(p_.params))
      return attend_terms(p_, b.request, first_head(b), b.piece.q_begin, unit);
    p_.options.arith == Arith::kFast ? p_.isa->attend_fast(unit) : p_.isa->attend(unit);
  }
  /// Rows [begin, end) of a block.
  void fold(const RowStates& into, const RowStates& part, int64_t begin, int64_t end) const {
    const int64_t width = state_width(shape_);
    const auto from = [&](const RowStates& s) {
      return RowStates{s.m + begin, s.d + begin, s.o + begin * width};
    };
    p_.isa->fold({from(into), from(part), end - begin, width});
  }
  void clear(const Block& b, const RowStates& states) const {
    std::fill_n(states.m, b.rows(shape_), -std::numeric_limits<float>::infinity());
    std::fill_n(states.d, b.rows(shape_), 0.f);
  }

  KvAhead ahead(const Block& b, int64_t split) const {
    const KvRange keys = b.keys_of(split);
    return {keys_at(p_, b.request, first_head(b)),
            values_at(p_, b.request, first_head(b)),
            b.request.page_ids,
            p_.page_size,
            keys.begin,
            keys.end};
  }
  /// What comes after a piece: its rows of out, and the keys and queries of the next item.
  void look_ahead(const Block& b, int64_t item, AttendUnit* unit) const {
    const int32_t heads = unit->heads * unit->group;
    unit->out = rows_ahead(p_.out, b.request, b.unit * heads, b.piece.q_begin, b.tokens);
    unit->ahead = {};
    if (item >= items_) return;
    const Block next = block_of(item);
    if (next.piece.split_begin == next.piece.split_end) return;
    unit->ahead = ahead(next, next.piece.split_begin);
    unit->next_q =
        rows_ahead(p_.q, next.request, next.unit * heads, next.piece.q_begin, next.tokens);
  }

  RowStates kept(int32_t cut, int32_t unit, int64_t split) const {
    const WorkList::Cut& c = list_.cuts[static_cast<size_t>(cut)];
    const int64_t at =
        c.first_state * shape_.units + int64_t{unit} * c.splits + split - c.split_begin;
    return state_at(shape_, kept_ + at * state_floats(shape_));
  }
  std::atomic<int32_t>& pieces_left(int64_t cut, int32_t unit) const {
    return left_[static_cast<size_t>(cut * shape_.units + unit)].left;
  }
  void count_piece(int32_t cut, int32_t unit) const {
    pieces_left(cut, unit).fetch_sub(1, std::memory_order_acq_rel);
  }
  /// The i-th run of rows of all cut blocks. Threads that took pieces before finish them.
  void finish_cut(int64_t i) const {
    const auto cut = static_cast<int32_t>(i / row_runs_ / shape_.units);
    const auto unit = static_cast<int32_t>(i / row_runs_ % shape_.units);
    const WorkList::Cut& c = list_.cuts[static_cast<size_t>(cut)];
    const Block b = block_of(list_.entries[static_cast<size_t>(c.first_entry)].piece, unit);
    const auto begin = static_cast<int32_t>(i % row_runs_ * kFoldRows);
    const int32_t end = std::min(b.rows(shape_), begin + kFoldRows);
    if (begin >= end) return;
    const std::atomic<int32_t>& left = pieces_left(cut, unit);
    while (left.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    const RowStates into = kept(cut, unit, c.split_begin);
    for (int32_t s = 1; s < c.splits; ++s)
      fold(into, kept(cut, unit, c.split_begin + s), begin, end);
    finish_rows(b, into, begin, end);
  }
  /// Leaves in m and d the states that are told, of rows [begin, end).
  void finish_rows(const Block& b, const RowStates& states, int32_t begin, int32_t end) const {
    const auto each = [&](const auto& fn) {
      for (int32_t r = begin; r < end; ++r) {
        const int64_t row = b.request.q_begin + b.piece.q_begin + r / shape_.rows_a_token;
        fn(r, row, b.unit * shape_.rows_a_token + r % shape_.rows_a_token);
      }
    };
    each([&](int32_t r, int64_t row, int32_t head) {
      const RowState told = finish_row(p_, b.request, row, head, {states.m[r], states.d[r]},
                                       states.o + r * state_width(shape_));
      states.m[r] = told.m, states.d[r] = told.d;
    });
    // Apart: a logarithm is one chain, and only others like it fill its gaps.
    if (!p_.lse.defined()) return;
    each([&](int32_t r, int64_t row, int32_t head) {
      store_lse(p_, row, head, {states.m[r], states.d[r]});
    });
  }

  const Problem& p_;
  const CallShape& shape_;
  const WorkList& list_;
  // Measured: 3 to 8 % on Xeons that have tiles; on two Zen 5 cores a tree would lose a quarter
  const bool asked_by_processor_ = find_isa("amx") != nullptr;
  const int64_t items_;        // pieces, each for every unit
  const int64_t row_runs_;     // of kFoldRows rows of a block
  int64_t folds_ = 0;          // such runs, of all cut blocks
  std::span<Countdown> left_;  // [cuts, units]
  float* kept_;                // split states of cuts: [units, splits] of each
  std::byte* threads_;
  alignas(kCacheLine) std::atomic<int64_t> next_ = 0;
  alignas(kCacheLine) std::atomic<int64_t> next_fold_ = 0;
};

Status too_small(const CallShape& s, int64_t needed, size_t given) {
  const int64_t bytes = std::max(kAlignmentLoss + needed, scratch_size(s));
  Status status;
  status.add(make_finding("input.memory", at("scratch"), ">= " + std::to_string(bytes) + " bytes",
                          std::to_string(given)));
  return status;
}

int64_t pieces_of(std::span<const int32_t> plan, const CallShape& s) {
  return plan.empty() ? s.most_blocks() + s.most_cuts() : plan[kPieces];
}

int64_t most_keys_of(int64_t pages, int64_t page_size) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return std::min(std::clamp<int64_t>(pages, 0, kMost) * std::clamp<int64_t>(page_size, 0, kMost),
                  kMost);
}

/// May the call's products be of tiles?
bool in_tiles(const CallOptions& options) {
  const Isa* const isa = find_isa(options.isa);
  return options.arith == Arith::kFast && isa != nullptr && isa->multiply != nullptr;
}

CallShape shape_of_layer(const AttentionParams& p, const CallOptions& options, int64_t batch,
                         int64_t total_q) {
  constexpr int32_t kLargestHeadDim = 1024;  // no edge: what is larger was refused
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  CallShape s;
  s.batch = std::clamp<int64_t>(batch, 0, kMost);
  s.total_q = std::clamp<int64_t>(total_q, 0, kMost);
  s.units = std::max(p.num_kv_heads, 1);
  s.rows_a_token = std::max(p.num_qo_heads / s.units, 1);
  s.head_dim_qk = std::clamp(p.head_dim_qk, 1, kLargestHeadDim);
  s.head_dim_vo = std::clamp(p.head_dim_vo, 1, kLargestHeadDim);
  s.threads = team_size(options.num_threads, kMost);
  s.block = prefill_blocks(s.rows_a_token);
  if (!in_tiles(options)) return s;
  for (const int32_t rows : kAmxPrefillRows) {
    s.block = prefill_blocks(s.rows_a_token, rows);
    if (s.most_blocks() >= s.threads) break;
  }
  return s;
}

int64_t scratch_as_joined(const CallShape& s) {
  const int64_t cuts = std::min(s.most_blocks(), s.most_cuts());
  const int64_t splits = (s.most_keys + kSplit - 1) / kSplit;
  return kAlignmentLoss + work_list_bytes(s, s.most_blocks() + s.most_cuts()) +
         state_bytes(s, cuts, saturating_bytes(cuts, splits));
}

/// Do a page's heads lie side by side, so that memory wants them read together?
bool interleaves_heads(const KvCache& cache) {
  const KvPlane& k = cache.k;
  return k.head_stride < (k.order == KvOrder::kStrided ? k.token_stride : k.page_stride);
}

}  // namespace

CallShape call_shape(const PagedAttention& call) {
  const int64_t batch = call.pages.batch();
  const bool decode = call.cu_seqlens_q.empty(), dense = call.pages.form == PageTable::Form::kDense;
  CallShape s = shape_of_layer(call.params, call.options, batch, decode ? batch : call.q.shape[0]);
  if (decode) {
    s.block = kDecodeBlocks;
    if (in_tiles(call.options) && s.rows_a_token >= kAmxStripRows) s.block = kAmxDecodeBlocks;
    const bool own_scales = !call.params.terms.k_scales.empty();  // a unit has one
    if (interleaves_heads(call.cache) && !own_scales)
      s.join_heads(std::max(1, kMostUnitRows / s.rows_a_token));
  }
  const auto ids = static_cast<int64_t>(call.pages.kv_indices.size());
  s.most_keys = most_keys_of(dense ? call.pages.max_pages : ids, call.cache.page_size);
  return s;
}

CallShape call_shape(const RaggedAttention& call) {
  CallShape s = shape_of_layer(call.params, call.options,
                               static_cast<int64_t>(call.cu_seqlens_q.size()) - 1, call.q.shape[0]);
  s.most_keys = most_keys_of(call.k.shape[0], 1);
  return s;
}

CallShape spread_heads(const Problem& p, CallShape s) {
  if (s.threads == 1 || s.kv_heads == 1) return s;
  int64_t splits = 0;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const BlockKeys block = block_keys(p, s.block, static_cast<int32_t>(i), 0);
    splits += block.split_end - block.split_begin;
  }
  while (s.kv_heads > 1 && splits * s.units < int64_t{kLeastPiecesPerThread} * s.threads)
    s.join_heads(s.kv_heads - 1);
  return s;
}

int64_t scratch_size(const CallShape& call) {
  int64_t most = scratch_as_joined(call);
  for (CallShape s = call; s.kv_heads > 1;) {
    s.join_heads(s.kv_heads - 1);
    most = std::max(most, scratch_as_joined(s));
  }
  return most;
}

Status check_plan_header(const PagedAttention& call) {
  const AttentionParams& p = call.params;
  if (call.plan.empty() || call.plan.data() == nullptr) return {};
  if (p.num_kv_heads <= 0 || p.num_qo_heads <= 0 || p.num_qo_heads % p.num_kv_heads != 0) return {};
  return check_header(call_shape(call), call.plan);
}

Status check_plan(const PagedAttention& call) {
  if (call.plan.empty()) return {};
  Status status = check_plan_header(call);
  if (!status.ok()) return status;
  const CallShape shape = call_shape(call);
  Workspace workspace({});
  Carver scratch = *workspace.take(work_list_bytes(shape, call.plan[kPieces]));
  WorkList list;
  return read_plan(make_problem(call), shape, call.plan, scratch, &list);
}

Status write_plan(const Problem& p, const CallShape& call, std::span<int32_t> plan) {
  const CallShape shape = spread_heads(p, call);
  Workspace workspace({});
  Carver scratch = *workspace.take(work_list_bytes(shape, 0));
  const std::span<const int32_t> made = make_plan(p, shape, scratch);
  Status status;
  if (plan.size() >= made.size()) {
    std::ranges::copy(made, plan.begin());
  } else {
    status.add(make_finding("input.plan", at("plan"),
                            ">= " + std::to_string(call.plan_size()) + " int32",
                            std::to_string(plan.size())));
  }
  return status;
}

Status attend_blocks(const Problem& p, const CallShape& call, std::span<const int32_t> plan) {
  const CallShape shape = spread_heads(p, call);
  const size_t given = p.options.scratch.size();
  Workspace workspace(p.options.scratch);
  const int64_t list_bytes = work_list_bytes(shape, pieces_of(plan, shape));
  std::optional<Carver> lists = workspace.take(list_bytes);
  if (!lists) return too_small(call, list_bytes, given);
  if (plan.empty()) plan = make_plan(p, shape, *lists);
  WorkList list;
  Status status = read_plan(p, shape, plan, *lists, &list);
  if (!status.ok()) return status;
  const int64_t bytes = state_bytes(shape, static_cast<int64_t>(list.cuts.size()), list.states);
  std::optional<Carver> states = workspace.take(bytes);
  if (!states) return too_small(call, list_bytes + bytes, given);
  Run(p, shape, list, *states).go();
  return status;
}

}  // namespace shadowgraph
