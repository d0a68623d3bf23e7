// Every small batch of every mode: the slots that each query reads through the tables are those of
// the tokens it sees. One metadata serves all batches of a mode, so none leaves anything behind.
#include "attn/mask.h"
#include "attn/page_table.h"
#include "backends/paged/flash_attention.h"
#include "backends/step_fixture.h"

namespace shadowgraph::flash_attention_tables_test {
namespace {

using Fa = FlashAttention;
using enum ForwardMode;
using enum SeqLensKind;

constexpr int32_t kLongest = 7, kSwaPages = 64;

class Tables : public ::testing::TestWithParam<int32_t> {
 protected:
  static int32_t page_size() { return GetParam(); }
  static ModelConfig model() {
    ModelConfig m;
    m.max_context_len = 16;
    m.page_size = page_size();
    m.layers = {LayerKind{}};
    return m;
  }
  static void bind(ForwardMode mode, int32_t q_len, const ModelConfig& m, int32_t step = 0) {
    Limits limits = Limits::bucket(mode, 3, q_len, m);
    limits.step = step;
    static const Fa kFa;
    step_ = std::make_unique<BoundStep>(kFa, limits);
  }
  static void fill(const ForwardBatch& batch) {
    const Status status = step_->fill(batch);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < std::size(kIntBuffers); ++i)
      if (step_->meta.has(kIntBuffers[i])) ints_[kIntBuffers[i]] = step_->ints(kIntBuffers[i]);
  }

  /// The slots that a query reads in one call.
  static Ints seen(Fa::BufferId lens, Fa::BufferId cu_q, Fa::BufferId table, int32_t query,
                   bool causal = true, int32_t window_left = -1) {
    const Ints& cu = ints_[cu_q];
    size_t row = 0;
    while (cu[row + 1] <= query) ++row;
    const MaskShape mask{cu[row + 1] - cu[row], ints_[lens][row], causal, window_left, -1};
    const int32_t unit = step_->meta.units[table];
    const KvRange keys = kv_range(mask, query - cu[row]);
    const int64_t width = step_->columns(table);
    EXPECT_LE(pages_for(mask.kv_len, unit), width);
    Ints slots;
    for (int32_t k = keys.begin; k < keys.end; ++k) {
      const size_t at = row * static_cast<size_t>(width) + static_cast<size_t>(k / unit);
      slots.push_back(ints_[table][at] * unit + k % unit);
    }
    return slots;
  }
  static Ints seen_whole(int32_t query) {
    return seen(Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kPageTable, query);
  }
  static Ints seen_swa(int32_t query) {
    return seen(Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kSwaPageTable, query);
  }
  static Ints seen_local(int32_t query) {
    return seen(Fa::kLocalSeqlens, Fa::kLocalCuSeqlensQ, Fa::kLocalTable, query);
  }
  static Ints seen_merged(int32_t query, int32_t window_left) {
    return seen(Fa::kMergedSeqlens, Fa::kExpandCuSeqlensQ, Fa::kMergedTable, query, true,
                window_left);
  }
  /// Both halves.
  static Ints seen_cascade(int32_t query) {
    Ints slots = seen(Fa::kCacheSeqlens, Fa::kCuSeqlensQ, Fa::kPageTable, query, false);
    const bool draft = step_->meta.has(Fa::kDraftTable);
    const Ints expand = seen(Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ,
                             draft ? Fa::kDraftTable : Fa::kTreeTable, query, false);
    slots.insert(slots.end(), expand.begin(), expand.end());
    return slots;
  }

  static Ints last(const Ints& slots, int32_t count) {
    const auto n = std::min(slots.size(), static_cast<size_t>(count));
    return {slots.end() - static_cast<std::ptrdiff_t>(n), slots.end()};
  }
  static Ints translated(const ForwardBatch& b, Ints slots) {
    for (int32_t& slot : slots)
      slot = static_cast<int32_t>(b.full_to_swa[static_cast<size_t>(slot)]);
    return slots;
  }
  /// The slots of request i's tokens [0, count).
  static Ints tokens(const ForwardBatch& b, int64_t i, int32_t count) {
    const auto row = b.req_to_token.row(b.req_pool_indices[static_cast<size_t>(i)]);
    return {row.begin(), row.begin() + count};
  }

  static constexpr Fa::BufferId kIntBuffers[] = {
      Fa::kCacheSeqlens,  Fa::kCuSeqlensQ,       Fa::kPageTable,    Fa::kSwaPageTable,
      Fa::kExpandSeqlens, Fa::kExpandCuSeqlensQ, Fa::kDraftTable,   Fa::kTreeTable,
      Fa::kMergedSeqlens, Fa::kMergedTable,      Fa::kLocalSeqlens, Fa::kLocalCuSeqlensQ,
      Fa::kLocalTable};
  static std::unique_ptr<BoundStep> step_;
  static Ints ints_[Fa::kNumBuffers];
};
std::unique_ptr<BoundStep> Tables::step_;
Ints Tables::ints_[Fa::kNumBuffers];

/// One table for all keys, with a window pool and local layers.
class WholeTables : public Tables {
 protected:
  static constexpr int32_t kChunk = 4;

  static void check(ForwardMode mode, int32_t width, const std::vector<Ints>& news) {
    ModelConfig m = model();
    m.swa_pool = true, m.attention_chunk = kChunk;
    m.layers[0].local = true;
    bind(mode, width, m);
    for (const Ints& q_lens : news) {
      for (int32_t a = 0; a <= kLongest; ++a) {
        for (int32_t c = 0; c <= kLongest; c += 3) {
          OwnedBatch b(mode, kPrefix, {a, c}, q_lens);
          b.spec.num_draft_tokens = width, b.spec.num_steps = 1;
          b.set_pages(page_size(), 20);
          b.set_swa(kSwaPages, page_size());
          fill(b);
          check_queries(b);
        }
      }
    }
    step_.reset();
  }
  static void check_queries(const ForwardBatch& b) {
    int32_t query = 0;
    for (int64_t i = 0; i < b.size(); ++i) {
      const RequestExtent e = b.extent(i);
      for (int32_t p = e.prefix_len; p < e.kv_len; ++p, ++query) {
        const Ints want = tokens(b, i, p + 1);
        ASSERT_EQ(seen_whole(query), want);
        ASSERT_EQ(seen_swa(query), translated(b, want));
        ASSERT_EQ(seen_local(query), translated(b, last(want, p % kChunk + 1)));
        ASSERT_EQ(step_->slots(Fa::kOutCacheLoc)[static_cast<size_t>(query)], want.back());
      }
    }
  }
};

TEST_P(WholeTables, OfADecode) { check(kDecode, 1, {{}}); }
TEST_P(WholeTables, OfAChainOfDrafts) { check(kDraftDecode, 1, {{}}); }
TEST_P(WholeTables, OfAVerifiedChain) { check(kTargetVerify, 3, {{}, {3, 1}, {2, 3}}); }
TEST_P(WholeTables, OfAnExtend) { check(kExtend, 6, {{1, 6}, {5, 2}, {0, 3}, {4, 0}}); }
TEST_P(WholeTables, OfAMixedBatch) { check(kMixed, 4, {{4, 1}}); }
TEST_P(WholeTables, OfADraftExtend) { check(kDraftExtend, 4, {{2, 4}, {1, 1}}); }
TEST_P(WholeTables, OfADraftExtendV2) { check(kDraftExtendV2, 4, {{4, 4}}); }

class BranchTables : public Tables {
 protected:
  static constexpr int32_t kTopk = 2, kWindow = 3, kPrefixWidth = 8;

  /// The engine's slots: a branch takes whole pages, the first holding a copy of the prefix's last
  /// partial page; the first branch goes on in the prefix's own.
  static void set_branches(OwnedBatch* b) {
    const int32_t unit = page_size(), steps = b->spec.num_steps;
    b->set_pages(unit, kPrefixWidth);
    branches_.clear();
    Longs loc;
    int32_t next = 60;
    for (size_t i = 0; i < b->lens.size(); ++i) {
      const int32_t partial = b->lens[i] % unit;
      for (int32_t k = 0; k < kTopk; ++k) {
        Ints slots = tokens(*b, static_cast<int64_t>(i), b->lens[i] - partial);
        const auto pages = static_cast<int32_t>(pages_for(partial + steps, unit));
        for (int32_t p = 0; p < pages; ++p) {
          const int32_t own =
              partial > 0 && p == 0 && k == 0
                  ? b->req_to_token.row(static_cast<int64_t>(i) +
                                        1)[static_cast<size_t>(b->lens[i] - partial)] /
                        unit
                  : next--;
          for (int32_t t = 0; t < unit; ++t) slots.push_back(own * unit + t);
        }
        loc.insert(loc.end(), slots.begin() + b->lens[i], slots.begin() + b->lens[i] + steps);
        branches_.push_back(slots);
      }
    }
    b->set_loc(loc);
  }
  static std::vector<Ints> branches_;  // [request, branch] the slots of all its tokens
};
std::vector<Ints> BranchTables::branches_;

TEST_P(BranchTables, OfADraftTree) {
  for (int32_t steps = 1; steps <= 5; ++steps) {
    for (int32_t step = 0; step < steps; ++step) {
      ModelConfig m = model();
      m.topk = kTopk, m.num_steps = steps, m.swa_pool = true, m.attention_chunk = 4;
      m.layers = {LayerKind{}, LayerKind{}, LayerKind{}};
      m.layers[1].params.window_left = kWindow, m.layers[2].local = true;
      bind(kDraftDecode, 1, m, step);
      for (int32_t a = 0; a <= kLongest; ++a) {
        OwnedBatch b(kDraftDecode, kPrefix, {a, kLongest - a});
        b.spec.topk = kTopk, b.spec.num_steps = steps, b.spec.step = step;
        set_branches(&b);
        b.set_swa(kSwaPages, page_size());
        fill(b);
        for (int32_t query = 0; query < 2 * kTopk; ++query) {
          const int32_t kv_len = b.extent(query / kTopk).kv_len;
          Ints want = branches_[static_cast<size_t>(query)];
          want.resize(static_cast<size_t>(kv_len));
          ASSERT_EQ(seen_cascade(query), want);
          ASSERT_EQ(seen_merged(query, kWindow), translated(b, last(want, kWindow + 1)));
          ASSERT_EQ(seen_local(query), translated(b, last(want, (kv_len - 1) % 4 + 1)));
          ASSERT_EQ(step_->slots(Fa::kOutCacheLoc)[static_cast<size_t>(query)], want.back());
        }
      }
      step_.reset();
    }
  }
}

TEST_P(BranchTables, OfAVerifiedTree) {
  constexpr int32_t kDrafts = 4;
  ModelConfig m = model();
  m.topk = 2, m.num_draft_tokens = kDrafts, m.swa_pool = true, m.attention_chunk = 4;
  m.layers = {LayerKind{}, LayerKind{}, LayerKind{}};
  m.layers[1].params.window_left = kWindow, m.layers[2].local = true;
  bind(kTargetVerify, kDrafts, m);
  for (int32_t a = 0; a <= kLongest; ++a) {
    for (int32_t code = 0; code < 2 * 3 * 4; ++code) {
      // Every forest: each token's parent is an earlier one, or none (-1).
      const int32_t parents[kDrafts] = {-1, code % 2 - 1, code / 2 % 3 - 1, code / 6 - 1};
      std::vector<Ints> tree(kDrafts, Ints(kDrafts, 0)), paths(kDrafts);
      for (int32_t t = 0; t < kDrafts; ++t) {
        const auto at = static_cast<size_t>(t);
        if (parents[t] >= 0) {
          tree[at] = tree[static_cast<size_t>(parents[t])];
          paths[at] = paths[static_cast<size_t>(parents[t])];
        }
        tree[at][at] = 1;
        paths[at].push_back(t);
      }
      OwnedBatch b(kTargetVerify, kPrefix, {a, kLongest - a});
      b.spec.num_draft_tokens = kDrafts;
      b.set_pages(page_size(), 12);
      b.set_swa(kSwaPages, page_size());
      b.set_trees({tree, tree});
      fill(b);
      for (int32_t query = 0; query < 2 * kDrafts; ++query) {
        const int64_t i = query / kDrafts;
        const int32_t prefix = b.lens[static_cast<size_t>(i)];
        const Ints all = tokens(b, i, prefix + kDrafts);
        Ints want(all.begin(), all.begin() + prefix);
        for (const int32_t u : paths[static_cast<size_t>(query % kDrafts)])
          want.push_back(*(all.begin() + prefix + u));
        const auto kv_len = static_cast<int32_t>(want.size());
        ASSERT_EQ(seen_cascade(query), want);
        ASSERT_EQ(seen_merged(query, kWindow), translated(b, last(want, kWindow + 1)));
        ASSERT_EQ(seen_local(query), translated(b, last(want, (kv_len - 1) % 4 + 1)));
      }
    }
  }
  step_.reset();
}

INSTANTIATE_TEST_SUITE_P(FlashAttention, WholeTables, ::testing::Values(1, 2, 4));
INSTANTIATE_TEST_SUITE_P(FlashAttention, BranchTables, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace shadowgraph::flash_attention_tables_test
