// States that a verify step or a prefix cache keeps.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/small_linear.h"

namespace shadowgraph::linear_draft_test {
namespace {

using Rule = LinearAttention::Rule;
using Order = LinearAttention::StateOrder;

/// A shape of each rule and order.
std::vector<LinearShape> shapes() {
  std::vector<LinearShape> all;
  for (const Rule rule : {Rule::kAdd, Rule::kDelta}) {
    for (const Order order : {Order::kValueKey, Order::kKeyValue}) {
      LinearShape s;
      s.rule = rule, s.order = order, s.dim_k = 32;
      all.push_back(s);
    }
  }
  return all;
}

/// A call that keeps its states, with room for one step more.
struct Draft {
  explicit Draft(const LinearShape& s, int32_t steps) : x(s) {
    const ConstTensorView& p = x.call.states;
    x.call.draft.states =
        x.tensor(kept, DType::kF32, {3, steps, p.shape[1], p.shape[2], p.shape[3]});
    std::memset(kept.data(), 0xa5, kept.size());
    x.call.store = false;
  }
  std::vector<std::byte> step(int64_t place, int64_t j) const {
    const size_t n = kept.size() / static_cast<size_t>(3 * x.call.draft.states.shape[1]);
    const auto from =
        kept.begin() + static_cast<int64_t>(n) * (place * x.call.draft.states.shape[1] + j);
    return {from, from + static_cast<int64_t>(n)};
  }
  SmallLinear x;
  std::vector<std::byte> kept;
};

TEST(LinearDraft, EveryStepIsWhatAShorterPrefillLeaves) {
  for (const LinearShape& s : shapes()) {
    Draft d(s, 6);
    const SmallLinear before(s);
    d.x.run();
    EXPECT_TRUE(d.x.states == before.states);  // no slot is written
    for (int64_t row = 0; row < 3; ++row) {
      const auto r = static_cast<size_t>(row);
      for (int32_t n = 1; n <= s.lens[r]; ++n) {
        LinearShape shorter = s;
        shorter.lens = {s.lens[r]};
        SmallLinear all(s);
        all.call.rows.state_indices = all.slots;
        all.cu_seqlens = {0, 0, 0, 0};
        const int32_t begin = before.cu_seqlens[r];
        const auto cut = [&](auto t) {
          t.data += t.offset(begin) * static_cast<int64_t>(size_of(t.dtype));
          t.shape[0] = n;
          return t;
        };
        LinearAttention call = all.call;
        const std::vector<int32_t> offsets = {0, n}, slot = {all.slots[r]};
        call.q = cut(call.q), call.k = cut(call.k), call.v = cut(call.v), call.out = cut(call.out);
        call.log_decay = cut(call.log_decay), call.beta = cut(call.beta);
        call.rows.cu_seqlens_q = offsets, call.rows.state_indices = slot;
        ASSERT_EQ(linear_attention(call).to_string(), "ok");
        EXPECT_TRUE(d.step(row, n - 1) == all.slot(slot[0]))
            << "row " << row << ", " << n << " tokens";
      }
      const std::vector<std::byte> untouched(d.step(0, 0).size(), std::byte{0xa5});
      for (int64_t j = s.lens[r]; j < 6; ++j) EXPECT_TRUE(d.step(row, j) == untouched);
    }
  }
}

TEST(LinearDraft, AChainIsATreeOfOneBranch) {
  for (const LinearShape& s : shapes()) {
    Draft chain(s, 5), tree(s, 5);
    const std::vector<int32_t> parents = {-7, 0, 1, 99, -7, 0, 1, 2, 3};  // a row's first has none
    tree.x.call.draft.parents = parents;
    chain.x.run(), tree.x.run();
    EXPECT_TRUE(chain.kept == tree.kept);
    EXPECT_TRUE(chain.x.out == tree.x.out);
  }
}

TEST(LinearDraft, ATokenOfATreeSeesItsPathAlone) {
  for (const LinearShape& s : shapes()) {
    const std::vector<int32_t> parents = {0, 0, 0, 0, 0, 0, 0, 2, 1};
    Draft tree(s, 5);
    tree.x.call.draft.parents = parents;
    tree.x.run();
    // What is not on the path of the last row's token 3 (0, 2, 3) changes nothing of it.
    Draft other(s, 5);
    other.x.call.draft.parents = parents;
    for (const int64_t t : {5, 8}) {
      const size_t bytes = other.x.v.size() / 9;
      std::memset(other.x.v.data() + bytes * static_cast<size_t>(t), 0x3f, bytes);
    }
    other.x.run();
    for (const int64_t j : {0, 2, 3}) {
      EXPECT_TRUE(tree.step(2, j) == other.step(2, j)) << j;
      EXPECT_TRUE(tree.x.out_of(4 + j) == other.x.out_of(4 + j)) << j;
    }
    EXPECT_FALSE(tree.step(2, 1) == other.step(2, 1));
    EXPECT_FALSE(tree.step(2, 4) == other.step(2, 4));
  }
}

TEST(LinearDraft, RowsKeepTheirStepsWhereTheyAreTold) {
  for (const LinearShape& s : shapes()) {
    Draft at_row(s, 5), told(s, 5);
    const std::vector<int32_t> indices = {2, 0, 1};
    told.x.call.draft.indices = indices;
    at_row.x.run(), told.x.run();
    for (int64_t row = 0; row < 3; ++row)
      EXPECT_TRUE(at_row.step(row, 0) == told.step(indices[static_cast<size_t>(row)], 0));
  }
}

TEST(LinearChunks, AChunksStateIsWhatThePrefillBeforeItLeaves) {
  for (LinearShape s : shapes()) {
    s.lens = {5, 0, 9};
    for (const ChunkGrid grid : {ChunkGrid::kRow, ChunkGrid::kTokens}) {
      SmallLinear x(s);
      // Chunks of 4 tokens: rows begin at 0, 5 and 5. Rows' own grid: 0 4 | 0 4 8; the batch's: 0 4
      // | 5 8 12.
      const std::vector<int32_t> places = grid == ChunkGrid::kRow
                                              ? std::vector<int32_t>{0, 4, 0, 4, 8}
                                              : std::vector<int32_t>{0, 4, 0, 3, 7};
      std::vector<std::byte> kept;
      const ConstTensorView& p = x.call.states;
      x.call.chunk_states = x.tensor(kept, DType::kF32, {5, p.shape[1], p.shape[2], p.shape[3]});
      x.call.chunk_size = 4, x.call.chunk_grid = grid;
      x.run();
      Draft steps(s, 9);
      steps.x.run();
      const size_t n = kept.size() / 5;
      for (size_t i = 0; i < places.size(); ++i) {
        const std::vector<std::byte> got(kept.begin() + static_cast<int64_t>(n * i),
                                         kept.begin() + static_cast<int64_t>(n * (i + 1)));
        const int64_t row = i < 2 ? 0 : 2;
        const SmallLinear before(s);
        EXPECT_TRUE(got == (places[i] == 0 ? before.slot(x.slots[static_cast<size_t>(row)])
                                           : steps.step(row, places[i] - 1)))
            << "chunk " << i;
      }
    }
  }
}

TEST(LinearDraft, ParentsAreEarlierTokensAndStepsHaveRoom) {
  Draft d(LinearShape{}, 4);
  const std::vector<int32_t> parents = {0, 0, 2, 0, 0, 0, 1, -1, 4}, indices = {0, 0, 3};
  d.x.call.draft.parents = parents, d.x.call.draft.indices = indices;
  const Status status = linear_attention(d.x.call);
  std::set<std::string> laws;
  for (const Finding& f : status.findings())
    laws.insert(std::string(f.id) + ' ' + f.where.field + ' ' +
                std::to_string(f.where.row.value_or(-1)));
  EXPECT_EQ(laws,
            (std::set<std::string>{"mask.tree draft.parents 2", "mask.tree draft.parents 7",
                                   "mask.tree draft.parents 8", "slot.duplicate draft.indices 1",
                                   "slot.range draft.indices 2", "len.capacity draft.states 2"}));
}

}  // namespace
}  // namespace shadowgraph::linear_draft_test
