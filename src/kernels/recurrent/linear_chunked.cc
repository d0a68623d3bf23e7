// The chunked form: one item of work is one row at some value heads of one key head, which share
// the dots between tokens. Chunks begin at fixed multiples from the row's first token, so a row's
// bits are its own; a state that is kept inside one is computed beside it.
#include "kernels/recurrent/linear_chunked.h"

#include <algorithm>
#include <vector>

#include "attn/lse.h"
#include "attn/state_chunks.h"
#include "core/parallel.h"
#include "kernels/recurrent/linear_rows.h"
#include "kernels/unit.h"

namespace shadowgraph {
namespace {

constexpr int64_t kItemHeads = 8;  // edge: heads; of an item: their states stay in cache
constexpr double kLeastLog2 = -512;

struct Dims {
  int32_t dim_k, dim_v, wide_k, panels, heads;  // heads: of an item, at most

  int64_t vectors() const { return int64_t{kChunkTokens} * wide_k; }
  int64_t token_panels() const { return int64_t{kChunkTokens} * kPanelLanes * panels; }
  int64_t state() const { return int64_t{wide_k} * kPanelLanes * panels; }
};

/// A thread's memory: arrays of floats that begin at cache lines.
struct ChunkScratch {
  float *queries, *keys, *start_queries, *start_keys, *end_keys, *decay, *across, *last_decay;
  float *key_dots, *query_dots, *minus_l, *reads, *from_start, *to_end, *beta;
  float *values, *out, *u, *end_u, *states, *aside, *row_v, *row_out;
  double log2_decay[kChunkTokens] = {};

  explicit ChunkScratch(const Dims& d) {
    constexpr int64_t kSquare = int64_t{kChunkTokens} * kChunkTokens;  // no edge: memory of a chunk
    const int64_t wide_v = int64_t{d.panels} * kPanelLanes;
    const std::pair<float**, int64_t> arrays[] = {{&queries, d.vectors()},
                                                  {&keys, d.vectors()},
                                                  {&start_queries, d.vectors()},
                                                  {&start_keys, d.vectors()},
                                                  {&end_keys, d.vectors()},
                                                  {&decay, d.vectors()},
                                                  {&across, int64_t{d.wide_k} * kPanelLanes},
                                                  {&last_decay, d.wide_k},
                                                  {&key_dots, kSquare},
                                                  {&query_dots, kSquare},
                                                  {&minus_l, kSquare},
                                                  {&reads, kSquare},
                                                  {&from_start, kChunkTokens},
                                                  {&to_end, kChunkTokens},
                                                  {&beta, kChunkTokens},
                                                  {&values, d.token_panels()},
                                                  {&out, d.token_panels()},
                                                  {&u, int64_t{kChunkTokens} * kPanelLanes},
                                                  {&end_u, int64_t{kChunkTokens} * kPanelLanes},
                                                  {&states, d.state() * d.heads},
                                                  {&aside, d.state()},
                                                  {&row_v, wide_v},
                                                  {&row_out, wide_v}};
    int64_t total = kPanel;
    for (const auto& array : arrays) total += round_up(array.second, kPanel);
    memory.assign(static_cast<size_t>(total), 0);
    auto at = reinterpret_cast<uintptr_t>(memory.data());
    at = (at + 63) / 64 * 64;  // no edge: bytes
    for (const auto& array : arrays) {
      *array.first = reinterpret_cast<float*>(at);
      at += static_cast<uintptr_t>(round_up(array.second, kPanel)) * sizeof(float);
    }
  }

  std::vector<float> memory;
};

/// One row at value heads [begin, end), which share a key head.
class ChunkRun {
 public:
  ChunkRun(const LinearAttention& call, const LinearIsa& isa, const Dims& d, ChunkScratch& s,
           int64_t row, int64_t begin, int64_t end)
      : call_(call),
        isa_(isa),
        d_(d),
        s_(s),
        row_(row),
        begin_(begin),
        end_(end),
        k_head_(begin / (call.v.shape[1] / call.k.shape[1])),
        slot_(call.rows.slot(row)) {}

  void run() {
    const int64_t first = call_.rows.begin(row_), tokens = call_.rows.tokens(row_);
    if (!call_.rows.is_computed(row_)) {
      for (int64_t h = begin_; h < end_ && call_.rows.pad == PadRow::kZeroOut; ++h)
        zero_out(call_, row_, h);
      return;
    }
    if (tokens == 0) return;
    for (int64_t h = begin_; h < end_; ++h) open_state(h);
    if (call_.chunk_states.defined()) chunk_ = count_chunks(call_, row_);
    for (int64_t j = 0; j < tokens; j += step())
      take(first + j, j, static_cast<int32_t>(std::min<int64_t>(step(), tokens - j)));
    for (int64_t h = begin_; h < end_ && call_.store && slot_ >= 0; ++h)
      save(call_.states, call_.states.at(slot_, h), state(h));
  }

 private:
  bool channels() const { return call_.log_decay.rank == 3; }
  int32_t step() const { return channels() ? kChannelChunkTokens : kChunkTokens; }
  bool delta() const { return call_.rule == LinearAttention::Rule::kDelta; }
  float* state(int64_t head) const { return s_.states + (head - begin_) * d_.state(); }

  PanelUnit panels(const ConstTensorView& t, std::byte* at, float* state) const {
    PanelUnit unit;
    unit.at = at, unit.dtype = t.dtype;
    unit.by_value = call_.order == LinearAttention::StateOrder::kValueKey;
    unit.stride = t.stride[static_cast<size_t>(t.rank) - 2];
    unit.dim_k = d_.dim_k, unit.dim_v = d_.dim_v, unit.panels = state;
    return unit;
  }
  void save(const TensorView& t, std::byte* at, float* state) const {
    isa_.save_state(panels(t, at, state));
  }
  void open_state(int64_t head) const {
    if (call_.rows.starts_from_slot(row_)) {
      isa_.load_state(panels(call_.states, call_.states.at(slot_, head), state(head)));
    } else {
      std::fill_n(state(head), d_.state(), 0.F);
    }
  }

  /// Tokens [token, token + n) of all, from the row's j-th on.
  void take(int64_t token, int64_t j, int32_t n) {
    isa_.vectors(vector_unit(call_, call_.q, token, n, k_head_, call_.scale, s_.queries));
    isa_.vectors(vector_unit(call_, call_.k, token, n, k_head_, 1, s_.keys));
    if (!channels()) make_dots(token, n, begin_);
    int64_t kept = chunk_;
    for (int64_t h = begin_; h < end_; ++h) {
      kept = chunk_;
      make_values(token, n, h);
      for (int32_t i = 0; i < n && call_.chunk_states.defined(); ++i) {
        if (!begins_chunk(call_, token + i, j + i)) continue;
        std::copy_n(state(h), d_.state(), s_.aside);
        if (i > 0) advance(token, i, h, s_.aside);
        save(call_.chunk_states, call_.chunk_states.at(kept++, h), s_.aside);
      }
      advance(token, n, h, state(h), true);
      finish(token, n, h);
    }
    chunk_ = kept;
  }

  void make_dots(int64_t token, int32_t n, int64_t head) const {
    DotsUnit unit;
    unit.delta = delta(), unit.tokens = n, unit.wide_k = d_.wide_k;
    unit.keys = s_.keys, unit.queries = s_.queries, unit.across = s_.across;
    unit.key_dots = s_.key_dots, unit.query_dots = s_.query_dots;
    if (channels()) {
      const ConstTensorView& g = call_.log_decay;
      unit.log_decay = reinterpret_cast<const float*>(g.at(token, head));
      unit.log_decay_stride = g.stride[0], unit.dim_k = d_.dim_k, unit.decay = s_.decay;
      unit.start_keys = s_.start_keys, unit.start_queries = s_.start_queries;
      unit.end_keys = s_.end_keys, unit.last_decay = s_.last_decay;
    }
    isa_.dots(unit);
  }

  void make_values(int64_t token, int32_t n, int64_t head) const {
    isa_.values({.from = call_.v.at(token, head),
                 .stride = bytes_of(call_.v, 0),
                 .dtype = call_.v.dtype,
                 .tokens = n,
                 .dim_v = d_.dim_v,
                 .panels = s_.values});
    for (int32_t i = 0; i < n; ++i) s_.beta[i] = beta_of(call_, token + i, head);
    if (channels()) return;
    double sum = 0;
    for (int32_t i = 0; i < n; ++i) {
      const ConstTensorView& g = call_.log_decay;
      const double log2 =
          load_float(g.rank == 1 ? g.at(head) : g.at(token + i, head), g.dtype, 0) * kLog2E;
      s_.log2_decay[i] = sum += log2 < kLeastLog2 ? kLeastLog2 : log2;
    }
  }

  /// n tokens over a state; out is left in panels.
  void advance(int64_t token, int32_t n, int64_t head, float* state, bool whole = false) const {
    if (channels()) make_dots(token, n, head);
    isa_.triangles({.delta = delta(),
                    .tokens = n,
                    .log2_decay = channels() ? nullptr : s_.log2_decay,
                    .beta = s_.beta,
                    .key_dots = s_.key_dots,
                    .query_dots = s_.query_dots,
                    .minus_l = s_.minus_l,
                    .reads = s_.reads,
                    .from_start = s_.from_start,
                    .to_end = s_.to_end});
    if (!channels()) std::fill_n(s_.last_decay, d_.wide_k, s_.from_start[n - 1]);
    ChunkUnit unit;
    unit.delta = delta(), unit.tokens = n, unit.wide_k = d_.wide_k, unit.panels = d_.panels;
    unit.keys = channels() ? s_.start_keys : s_.keys;
    unit.queries = channels() ? s_.start_queries : s_.queries;
    unit.end_keys = channels() ? s_.end_keys : s_.keys;
    unit.from_start = s_.from_start, unit.to_end = s_.to_end, unit.beta = s_.beta;
    unit.last_decay = s_.last_decay, unit.minus_l = s_.minus_l, unit.reads = s_.reads;
    unit.values = s_.values, unit.u = s_.u, unit.end_u = s_.end_u;
    unit.state = state, unit.out = s_.out;
    if (whole) ask_soon(token, n, head, &unit);
    isa_.chunk(unit);
  }

  /// What comes next: out of this head, values of the next one, or the next chunk's vectors.
  void ask_soon(int64_t token, int32_t n, int64_t head, ChunkUnit* unit) const {
    const auto rows = [](const ConstTensorView& t, int64_t first, int64_t of_head, int64_t tokens) {
      const auto dim = static_cast<int32_t>(t.shape[2] * static_cast<int64_t>(size_of(t.dtype)));
      return SoonUnit{t.at(first, of_head), bytes_of(t, 0), static_cast<int32_t>(tokens), dim};
    };
    unit->soon[0] = rows(call_.out, token, head, n);
    if (head + 1 < end_) {
      unit->soon[1] = rows(call_.v, token, head + 1, n);
      if (channels()) unit->soon[4] = rows(call_.log_decay, token, head + 1, n);
    }
    const int64_t next = token + n, left = call_.rows.begin(row_ + 1) - next;
    if (left == 0) return;
    const int64_t tokens = std::min<int64_t>(left, step());
    if (head == begin_) unit->soon[2] = rows(call_.q, next, k_head_, tokens);
    if (head + 1 < end_) return;
    unit->soon[1] = rows(call_.v, next, begin_, tokens);
    unit->soon[3] = rows(call_.k, next, k_head_, tokens);
    if (channels()) unit->soon[4] = rows(call_.log_decay, next, begin_, tokens);
  }

  void finish(int64_t token, int32_t n, int64_t head) const {
    if (!call_.z.defined()) {
      FinishChunkUnit unit;
      unit.read = s_.out, unit.v = s_.values, unit.tokens = n, unit.dim_v = d_.dim_v;
      unit.dtype = call_.out.dtype, unit.out = call_.out.at(token, head);
      unit.stride = bytes_of(call_.out, 0);
      if (call_.skip.defined()) unit.skip = reinterpret_cast<const float*>(call_.skip.at(head));
      return isa_.finish_chunk(unit);
    }
    // no edge: memory of a chunk
    constexpr int64_t kTokenPanel = int64_t{kChunkTokens} * kPanelLanes;
    for (int32_t i = 0; i < n; ++i) {
      for (int32_t p = 0; p < d_.panels; ++p) {
        const int64_t from = p * kTokenPanel + i * kPanelLanes;
        std::copy_n(s_.out + from, kPanelLanes, s_.row_out + p * kPanelLanes);
        std::copy_n(s_.values + from, kPanelLanes, s_.row_v + p * kPanelLanes);
      }
      finish_token(call_, isa_, token + i, head, s_.row_out, s_.row_v);
    }
  }

  const LinearAttention& call_;
  const LinearIsa& isa_;
  const Dims& d_;
  ChunkScratch& s_;
  const int64_t row_, begin_, end_, k_head_, slot_;
  int64_t chunk_ = 0;  // the next one of this row whose state is kept
};

}  // namespace

void run_chunked(const LinearAttention& call) {
  const LinearIsa& isa = linear_isa(call.options.isa);
  const int64_t rows = call.rows.rows(), k_heads = call.k.shape[1];
  const int64_t group = call.v.shape[1] / k_heads;  // value heads of a key head
  const int64_t heads = std::min(group, kItemHeads), slices = (group + heads - 1) / heads;
  Dims d{};
  d.dim_k = static_cast<int32_t>(call.k.shape[2]), d.dim_v = static_cast<int32_t>(call.v.shape[2]);
  d.wide_k = static_cast<int32_t>(round_up(d.dim_k, kPanel));
  d.panels = static_cast<int32_t>((call.v.shape[2] + kPanelLanes - 1) / kPanelLanes);
  d.heads = static_cast<int32_t>(heads);
  const int64_t items = rows * k_heads * slices;
  const int threads = team_size(call.options.num_threads, items);
  std::vector<ChunkScratch> scratch;
  scratch.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) scratch.emplace_back(d);
  parallel_for(items, threads, [&](int64_t item, int thread) {
    const int64_t row = item / (k_heads * slices), of_row = item % (k_heads * slices);
    const int64_t first = of_row / slices * group, begin = first + of_row % slices * heads;
    ChunkRun(call, isa, d, scratch[static_cast<size_t>(thread)], row, begin,
             std::min(begin + heads, first + group))
        .run();
  });
}

}  // namespace shadowgraph
