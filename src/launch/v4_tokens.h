// What metadata of DeepSeek-V4 says of one token, said once: a fill writes it to staging, and where
// ModelConfig::in_graph_tables asks for that, a step's first launch to the device (v4_expand.h).
// Facts: docs/metadata.md "DeepSeek-V4". Tested by tests/backends/deepseek_v4_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shadowgraph {

/// Layers with the same blocks share lists: those of ratio 4, whose blocks overlap and are chosen,
/// and those of another, which see all of theirs.
enum class V4Group : uint8_t { kC4, kC128 };
inline constexpr V4Group kV4Groups[] = {V4Group::kC4, V4Group::kC128};

/// Meta's buffers. Padding tokens are the first of nobody's request: length 1, slot 0.
struct V4Buffers {
  enum BufferId : uint8_t {
    kSeqLens,       // [tokens] the token itself counted: seq_lens_casual
    kPositions,     // [tokens]
    kPoolRows,      // [tokens] rows of req_to_token: req_pool_indices_repeated
    kPageTable,     // [tokens, pages] of the full pool
    kTokenOffsets,  // [rows + 1] tokens of the compressor's rows; the last has padding besides
    kWindow,        // [tokens, columns] slots, the newest first, then -1 to a multiple of 64
    kWindowLens,    // [tokens]
    kWindowOutLoc,  // [tokens] where they are stored
    // What the scores of c4 layers choose, [tokens, columns], for one layer after the other
    kChosen,       // whole blocks, ascending
    kChosenSlots,  // and their slots
    // What a step's first launch expands: of requests, padding row 0; of tokens
    kRawPoolRows,    // [rows]
    kRawPrefixLens,  // [rows]
    kRawLens,        // [rows] with the step's tokens
    kRawOutLoc,      // [tokens] slots of the full pool
    kFirstOfGroups
  };
  /// The buffers of each group.
  enum GroupBufferId : uint8_t {
    kOutLoc,      // [tokens] slot of the block that it ends; below the first real one: none
    kLensRaw,     // [tokens] whole blocks
    kLensClamp1,  // [tokens] at least 1: of none the single entry is -1
    kTopkLens,    // [tokens] of c4: how many of them are chosen at most
    kBlocks,      // [tokens, columns] slots of all whole ones, then -1 to a multiple of 64
    kStatePages,  // [tokens] where the state of its block is
    kExtraPages,  // [tokens] and of the block before, where it ends one that overlaps; else 0
    kNumOfGroup
  };
  /// Behind both groups.
  static constexpr size_t kFirstOwn = size_t{kFirstOfGroups} + 2 * size_t{kNumOfGroup};
  static constexpr size_t of(V4Group group, GroupBufferId id) {
    return size_t{kFirstOfGroups} + static_cast<size_t>(group) * kNumOfGroup + id;
  }
  /// Slots; the others are int32.
  static constexpr bool is_long(size_t buffer) {
    return buffer == kWindowOutLoc || buffer == kRawOutLoc || buffer == of(V4Group::kC4, kOutLoc) ||
           buffer == of(V4Group::kC128, kOutLoc);
  }
};

/// What all tokens of a step share, as plain numbers.
struct V4TokenRules {
  struct Blocks {
    int32_t ratio;  // 0: no layer has such
    int32_t overlaps, index_topk;
    int32_t states;   // of a page, of kUnified of a row of req_to_token
    int32_t columns;  // of kBlocks; 0: there is no such list
    int32_t unused;
  };
  Blocks blocks[2];
  int64_t rings;  // of kUnified: slots before the blocks
  int32_t page_size, window, window_columns, table_columns;
  int32_t ring;  // of kUnified: tokens of one; 0: paged
  int32_t unused;
};
static_assert(sizeof(V4TokenRules) == 2 * 24 + 8 + 6 * 4);

struct V4Token {
  int64_t index = 0;  // of the step
  int64_t row = 0;    // its request's
  int32_t len = 1;    // itself counted
  int32_t pool_row = 0;
  int32_t prefix_len = 0, kv_len = 1;  // of its request
  bool padding = true;

  int32_t position() const { return len - 1; }
};

/// Token index of a step, of a row whose tokens begin at first; behind the row's length, and where
/// the row is none, it is padding.
inline V4Token v4_token(int64_t index, int64_t first, int64_t row, bool is_request,
                        int32_t pool_row, int32_t prefix_len, int32_t kv_len) {
  const int64_t len = int64_t{prefix_len} + (index - first) + 1;
  if (!is_request || len < 1 || len > kv_len) return {.index = index, .row = row};
  return {index, row, static_cast<int32_t>(len), pool_row, prefix_len, kv_len, false};
}

/// Memory has
///
///   slot(token, position)  of the full pool
///   stored(token)          the slot of the full pool that it is stored in
///   in_window(slot, token) the same in the window's pool
///   put(buffer, first, count, fn, token)   fn(j) into element first + j
///
/// and tables and lists have room for what the step's limits say. Padding's slots are 0.
template <class Memory>
class V4Tokens {
 public:
  V4Tokens(const V4TokenRules& rules, Memory* memory) : r_(rules), m_(*memory) {}

  /// What paged and unified pools have alike.
  void write(const V4Token& t) {
    one(V4Buffers::kSeqLens, t, t.len);
    one(V4Buffers::kPositions, t, t.position());
    one(V4Buffers::kPoolRows, t, t.pool_row);
    const int64_t pages = (std::max(t.kv_len, 1) + int64_t{r_.page_size} - 1) / r_.page_size;
    m_.put(
        V4Buffers::kPageTable, t.index * r_.table_columns, pages,
        [&](int64_t j) { return slot(t, j * r_.page_size) / r_.page_size; }, t);
    for (const V4Group g : kV4Groups)
      if (of(g).ratio > 0) write_group(t, g);
  }

  /// For paged pools: what the token sees, and where it is stored.
  void write_lists(const V4Token& t) {
    one(V4Buffers::kWindowOutLoc, t,
        t.padding ? 0 : static_cast<int64_t>(m_.in_window(m_.stored(t), t)));
    const int64_t seen = std::min(t.len, r_.window);
    one(V4Buffers::kWindowLens, t, seen);
    list(V4Buffers::kWindow, t, r_.window_columns, seen,
         [&](int64_t j) { return window_slot(t, t.position() - j); });
    for (const V4Group g : kV4Groups) {
      if (of(g).columns > 0)
        list(V4Buffers::of(g, V4Buffers::kBlocks), t, of(g).columns, t.len / of(g).ratio,
             [&](int64_t j) { return block_slot(t, g, j); });
    }
  }

  int64_t block_slot(const V4Token& t, V4Group g, int64_t block) {
    const int64_t a_page = r_.page_size / of(g).ratio;
    return r_.rings + slot(t, block * of(g).ratio) / r_.page_size * a_page + block % a_page;
  }

 private:
  const V4TokenRules::Blocks& of(V4Group g) const { return r_.blocks[static_cast<size_t>(g)]; }

  void write_group(const V4Token& t, V4Group g) {
    const int32_t ratio = of(g).ratio, whole = t.len / ratio, block = t.position() / ratio;
    const auto put = [&](V4Buffers::GroupBufferId id, int64_t value) {
      one(V4Buffers::of(g, id), t, value);
    };
    const bool ends = !t.padding && t.len % ratio == 0;
    put(V4Buffers::kOutLoc, ends ? r_.rings + m_.stored(t) / ratio : 0);
    put(V4Buffers::kLensRaw, whole);
    put(V4Buffers::kLensClamp1, std::max(1, whole));
    if (g == V4Group::kC4)
      put(V4Buffers::kTopkLens, std::min(std::max(1, whole), of(g).index_topk));
    put(V4Buffers::kStatePages, t.padding ? 0 : state_page(t, g, block));
    const bool pools_both = ends && of(g).overlaps != 0 && block > 0;
    put(V4Buffers::kExtraPages, pools_both ? state_page(t, g, block - 1) : 0);
  }

  /// A page of the window's pool has as many states as can be live at a time, block by block in
  /// turn; so has a row of req_to_token where there are no pages.
  int64_t state_page(const V4Token& t, V4Group g, int64_t block) {
    const int64_t states = of(g).states;
    if (r_.ring > 0) return t.pool_row * states + block % states;
    const int64_t page = window_slot(t, block * of(g).ratio) / r_.page_size;
    return page * states + block % (r_.page_size / of(g).ratio) % states;
  }

  int64_t slot(const V4Token& t, int64_t position) { return t.padding ? 0 : m_.slot(t, position); }
  int64_t window_slot(const V4Token& t, int64_t position) {
    return t.padding ? 0 : m_.in_window(m_.slot(t, position), t);
  }

  void one(size_t buffer, const V4Token& t, int64_t value) {
    m_.put(
        buffer, t.index, 1, [&](int64_t) { return value; }, t);
  }
  /// Entries of a row, then -1.
  template <class Fn>
  void list(size_t buffer, const V4Token& t, int64_t columns, int64_t count, Fn fn) {
    const int64_t first = t.index * columns;
    m_.put(buffer, first, count, fn, t);
    if (count < columns)
      m_.put(
          buffer, first + count, columns - count, [](int64_t) { return int64_t{-1}; }, t);
  }

  const V4TokenRules r_;
  Memory& m_;
};

}  // namespace shadowgraph
