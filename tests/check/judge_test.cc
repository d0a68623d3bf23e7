// The judge of a step in memory: each role, padding, units, views. Each wrong state stands beside
// the right one, which differs in the wrong number only.
#include "shadowgraph/judge.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check/step_arrays.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing::judge_test {
namespace {

TEST(JudgeStep, ARightStepBreaksNoLawWithPaddingAndWithout) {
  StepArrays step;
  EXPECT_EQ(step.judged().to_string(), "ok");
  for (Ints* rows : {&step.kv_lens, &step.q_lens, &step.last_page_len}) rows->resize(2);
  for (Ints* ends : {&step.cu_seqlens_q, &step.cu_seqlens_k, &step.kv_indptr}) ends->resize(3);
  step.page_table.resize(4), step.slots.resize(6), step.kv_indices.resize(4);
  EXPECT_EQ(step.judged().to_string(), "ok");
  EXPECT_EQ(judge(step.batch(), {}, step.options).to_string(), "ok");
}

/// A wrong number, and all that is found.
struct Slip {
  std::function<void(StepArrays&)> change;
  Laws found;
};

TEST(JudgeStep, EachRoleIsJudgedInItsPlace) {
  const Slip slips[] = {
      {[](StepArrays& s) { s.kv_lens[0] = 3; }, {"len.kv_extent kv_lens[0]"}},
      {[](StepArrays& s) { s.q_lens[1] = 3; }, {"len.q_extent q_lens[1]"}},
      {[](StepArrays& s) { s.cu_seqlens_q[1] = 1; }, {"len.q_extent cu_seqlens_q[1]"}},
      {[](StepArrays& s) { s.cu_seqlens_k[0] = 1; }, {"len.indptr_first cu_seqlens_k[0]"}},
      {[](StepArrays& s) { s.page_table[1] = 6; }, {"table.slot page_table[0, 1]"}},
      {[](StepArrays& s) { s.slot_table[9] = 14; }, {"table.slot page_table'[1, 1]"}},
      {[](StepArrays& s) { s.kv_indptr[1] = 1; }, {"len.q_extent kv_indptr[1]"}},
      {[](StepArrays& s) { s.kv_indices[3] = 11; }, {"table.slot kv_indices[1, 1]"}},
      {[](StepArrays& s) { s.last_page_len[0] = 2; }, {"len.kv_extent last_page_len[0]"}},
      {[](StepArrays& s) { s.slots[1] = 21; }, {"slot.write slots[1]"}},
      {[](StepArrays& s) { s.positions[0] = 4; }, {"step.positions positions[0]"}},
      {[](StepArrays& s) { s.mask[10 + 5] = 1; }, {"mask.bit custom_mask[1, 5]"}},
      {[](StepArrays& s) { s.mask[0] = 0; }, {"mask.bit custom_mask[0, 0]"}},
      {[](StepArrays& s) { s.mask.pop_back(); }, {"mask.size custom_mask"}},
      {[](StepArrays& s) { s.max_seqlen_q = 3; }, {"len.bound max_seqlen_q"}},
      {[](StepArrays& s) { s.max_seqlen_k = 7; }, {"len.bound max_seqlen_k"}},
  };
  for (const Slip& slip : slips) {
    StepArrays step;
    slip.change(step);
    EXPECT_EQ(laws_at(step.judged()), slip.found);
  }
}

TEST(JudgeStep, EveryFindingComesAtOnceWithValueAndLimit) {
  StepArrays step;
  step.kv_lens = {3, 4, 0, 2}, step.page_table[2] = 39, step.max_seqlen_k = 1;
  EXPECT_EQ(step.judged().to_string(),
            "len.kv_extent: kv_lens[0] is 3: only the cached prefix, the new tokens are missing "
            "(and 1 more row), expected 5\n"
            "len.padding: kv_lens[3] is 2, expected >= 0 and <= 1\n"
            "len.bound: max_seqlen_k is 1, expected >= 8\n"
            "table.page_id: page_table[1, 0] is 39: no page of any pool; the pool has 32 pages, "
            "expected page 3, slot 12 of token 0");
}

TEST(JudgeStep, ASlotForAPageIsNamedBeforeAPageThatIsNone) {
  StepArrays step;
  step.page_table = {8, 20, 12, 40, 0, 0, 7, 0};  // 40 is no page of the pool, either
  EXPECT_EQ(laws_at(step.judged()), Laws{"table.unit page_table[0, 0]"});
  step.page_table = {2, 5, 3, 40, 0, 0, 7, 0};
  EXPECT_EQ(laws_at(step.judged()), Laws{"table.unit page_table[1, 1]"});
  step.page_table = {2, 5, 3, 39, 0, 0, 7, 0};
  EXPECT_EQ(laws_at(step.judged()), Laws{"table.page_id page_table[1, 1]"});
}

TEST(JudgeStep, PaddingIsShortAndStaysInThePoolAndIsNobodys) {
  const Slip slips[] = {
      {[](StepArrays& s) { s.kv_lens[2] = 2; }, {"len.padding kv_lens[2]"}},
      {[](StepArrays& s) { s.kv_lens[2] = -1; }, {"len.padding kv_lens[2]"}},
      {[](StepArrays& s) { s.page_table[6] = 32; }, {"table.page_id page_table[3, 0]"}},
      {[](StepArrays& s) { s.cu_seqlens_q[4] = 5; }, {"len.indptr_monotone cu_seqlens_q[4]"}},
      {[](StepArrays& s) { s.kv_indices[4] = -1; }, {"table.page_id kv_indices[3, 0]"}},
      {[](StepArrays& s) { s.slots[7] = 128; }, {"slot.range slots[7]"}},
      {[](StepArrays& s) { s.slots[7] = 8; }, {"slot.write slots[7]"}},
  };
  for (const Slip& slip : slips) {
    StepArrays step;
    slip.change(step);
    EXPECT_EQ(laws_at(step.judged()), slip.found);
  }
  StepArrays step;
  step.kv_lens[2] = 2;
  step.options.pad_kv_lens = {0, 2};
  EXPECT_EQ(step.judged().to_string(), "ok");
  step.options.pad_kv_lens = {2, 2};
  EXPECT_EQ(laws_at(step.judged()), Laws{"len.padding kv_lens[3]"});
}

TEST(JudgeStep, NoArrayHasFewerRowsThanTheKernelRuns) {
  const Slip slips[] = {
      {[](StepArrays& s) { s.cu_seqlens_q.push_back(7); },
       {"trace.shape cu_seqlens_k", "trace.shape kv_indptr", "trace.shape last_page_len",
        "trace.shape kv_lens", "trace.shape page_table", "trace.shape q_lens",
        "trace.shape page_table'"}},
      {[](StepArrays& s) { s.cu_seqlens_q.pop_back(); }, {}},
      {[](StepArrays& s) { s.kv_lens.pop_back(); }, {"trace.shape kv_lens"}},
      {[](StepArrays& s) { s.slot_table.resize(8 * 3); }, {"trace.shape page_table'"}},
      {[](StepArrays& s) { s.page_table.resize(2 * 9), s.kv_lens.push_back(0); }, {}},
      {[](StepArrays& s) { s.cu_seqlens_q[4] = 9; }, {"len.total cu_seqlens_q[4]"}},
      {[](StepArrays& s) { s.slots.resize(6), s.cu_seqlens_q[4] = 6; }, {}},  // none of padding
  };
  for (const Slip& slip : slips) {
    StepArrays step;
    slip.change(step);
    EXPECT_EQ(laws_at(step.judged()), slip.found);
  }
}

TEST(JudgeStep, SlotsAreThoseOfTheBatchAndPaddingIsNobodysThereToo) {
  StepArrays step;
  step.batch_slots = {11, 20, 40, 41, 42, 43};
  EXPECT_EQ(step.judged().to_string(), "ok");
  step.slots[7] = 8;
  EXPECT_EQ(step.judged().to_string(),
            "slot.write: slots[7] is 8: the slot of token 0 of request 0, expected a slot of no "
            "live key, for padding");
  step.slots[7] = 99, step.batch_slots[0] = 10;
  EXPECT_EQ(laws_at(step.judged()), Laws{"slot.write batch.out_cache_loc[0]"});
}

TEST(JudgeStep, TheBatchIsJudgedToo) {
  const Slip slips[] = {
      {[](StepArrays& s) { s.seq_lens[0] = -1; }, {"len.negative seq_lens[0]"}},
      {[](StepArrays& s) { s.pool_rows[0] = 2; }, {"table.pool_row req_pool_indices[0]"}},
      {[](StepArrays& s) { s.pool_rows.clear(); }, {"batch.field req_to_token"}},
      {[](StepArrays& s) { s.map[0] = 8, s.map[1] = 9, s.map[2] = 10, s.map[3] = 11; },
       {"step.slots req_to_token[0, 3]"}},
      {[](StepArrays& s) { s.map[1] = 12; },
       {"pool.page req_to_token[0, 1]", "pool.shared req_to_token[0, 1]"}},
      {[](StepArrays& s) { s.batch_slots = {11, 20, 40, 41, 42, 43, 99}; },
       {"len.total out_cache_loc"}},
      {[](StepArrays& s) { s.map[2] = 10; },
       {"pool.page req_to_token[0, 2]", "pool.shared req_to_token[0, 2]"}},
      {[](StepArrays& s) {
         s.extend_lens = {1, 1};
         for (size_t c = 0; c < 4; ++c) s.map[4 + c] = s.map[8 + c];
       },
       {"pool.shared req_to_token[0, 4]", "step.slots req_to_token[0, 7]"}},
      {[](StepArrays& s) { s.map[4] = 20, s.map[5] = 21, s.map[6] = 22, s.map[7] = 23; },
       {"slot.duplicate req_to_token[0, 4]"}},
      {[](StepArrays& s) { s.map[7] = 300; }, {"pool.slot req_to_token[0, 7]"}},
      {[](StepArrays& s) { s.batch_slots = {11, 20, 40, 41, 42, 20}; },
       {"slot.write out_cache_loc[5]"}},
      {[](StepArrays& s) { s.batch_positions = {3, 4, 4, 5, 6, 8}; },
       {"step.positions positions[5]"}},
  };
  for (const Slip& slip : slips) {
    StepArrays step;
    slip.change(step);
    EXPECT_EQ(laws_at(judge(step.batch(), {}, step.options)), slip.found);
  }
}

TEST(JudgeStep, SlotsMayBeLargeNumbers) {
  StepArrays step;
  step.options.pool_pages = 0;
  for (int32_t& slot : step.map) slot += 1 << 24;
  EXPECT_EQ(judge(step.batch(), {}, step.options).to_string(), "ok");
  for (size_t c = 4; c < 8; ++c) step.map[c] += 20 - 40;  // the page of request 0's last token
  EXPECT_EQ(laws_at(judge(step.batch(), {}, step.options)),
            Laws{"slot.duplicate req_to_token[0, 4]"});
}

TEST(JudgeStep, ListsOfSlotsCountSlots) {
  const StepArrays step;
  std::vector<RoleValue> lists = {StepArrays::vector("kv_indptr", step.slot_indptr),
                                  StepArrays::vector("kv_indices", step.slot_indices, 1)};
  EXPECT_EQ(judge(step.batch(), lists, step.options).to_string(), "ok");
  lists[1].unit = 4;
  EXPECT_EQ(laws_at(judge(step.batch(), lists, step.options)).at(0), "table.unit kv_indices[0, 0]");
}

TEST(JudgeStep, ViewsMayHaveAnyStrides) {
  const StepArrays step;
  Ints wide(4 * 3);  // the table of pages, column by column
  for (size_t r = 0; r < 4; ++r)
    for (size_t c = 0; c < 2; ++c) wide[c * 4 + r] = step.page_table[r * 2 + c];
  RoleValue table{.role = "page_table",
                  .values = ConstTensorView(wide.data(), DType::kI32, {4, 2}, {1, 4})};
  EXPECT_EQ(judge(step.batch(), {&table, 1}, step.options).to_string(), "ok");
  wide[4] = 6;
  EXPECT_EQ(laws_at(judge(step.batch(), {&table, 1}, step.options)),
            Laws{"table.slot page_table[0, 1]"});
  const int32_t same = 1;
  const RoleValue last{.role = "q_lens", .values = ConstTensorView(&same, DType::kI32, {2}, {0})};
  EXPECT_EQ(laws_at(judge(step.batch(), {&last, 1}, step.options)), Laws{"len.q_extent q_lens[0]"});
}

TEST(JudgeStep, ValuesMayHaveNamesOfTheirOwn) {
  const StepArrays step;
  Ints copy = step.kv_lens;
  copy[1] = 7;
  RoleValue device = StepArrays::vector("kv_lens", step.kv_lens);
  RoleValue host = StepArrays::vector("kv_lens", copy);
  device.name = "seq_lens", host.name = "seq_lens_cpu";
  EXPECT_EQ(laws_at(judge(step.batch(), std::vector{device, host}, step.options)),
            Laws{"len.kv_extent seq_lens_cpu[1]"});
}

TEST(JudgeStep, WhatCannotBeJudgedIsAFinding) {
  const StepArrays step;
  const float real[2] = {5, 8};
  const RoleValue lens = StepArrays::vector("kv_lens", step.kv_lens);
  const auto with = [&](auto change, JudgeOptions options = {.page_size = 4}) {
    RoleValue value = lens;
    change(&value);
    return judge(step.batch(), {&value, 1}, options).to_string();
  };
  EXPECT_EQ(
      with([](RoleValue* v) { v->role = "kv_len"; }),
      "test.options: kv_len is no role; did you mean kv_lens?, expected one of positions, "
      "kv_lens, q_lens, prefix_lens, cu_seqlens_q, q_ends, cu_seqlens_k, kv_ends, page_table, "
      "swa_page_table, kv_indptr, kv_indices, swa_kv_indptr, swa_kv_indices, last_page_len, "
      "slots, swa_out_cache_loc, custom_mask, max_seqlen_q, max_seqlen_k");
  EXPECT_EQ(with([](RoleValue* v) { v->values = {}; }),
            "input.null: kv_lens is NULL, expected an array or a number");
  EXPECT_EQ(with([](RoleValue* v) { v->values.data = nullptr; }),
            "input.null: kv_lens is NULL, expected an array or a number");
  EXPECT_EQ(with([](RoleValue* v) { v->values.shape[0] = -1; }),
            "input.shape: kv_lens is of a size -1, expected a shape without negative sizes");
  EXPECT_EQ(with([&](RoleValue* v) {
              v->values = {real, DType::kF32, {2}};
            }),
            "input.dtype: kv_lens is f32, expected int32, int64, uint8 or bool");
  EXPECT_EQ(
      with([](RoleValue* v) { v->unit = 4; }, {.page_size = 2}),
      "test.options: kv_lens.unit is 4, expected none: its elements are neither slots nor pages");
  EXPECT_EQ(with([](RoleValue* v) { v->role = "page_table", v->unit = 3; }),
            "test.options: page_table.unit is 3, expected 1 (its elements are slots) or 4 (they "
            "are pages)");
  EXPECT_EQ(with([](RoleValue* v) { v->values.shape[0] = 1; }),
            "trace.shape: kv_lens is 1 element long, expected at least 2");
  EXPECT_EQ(
      with([](RoleValue* v) { v->role = "swa_page_table"; }),
      "skip.no_field: no field that is read in this mode\n"
      "left_out.no_buffer: swa_page_table: not judged: the batch has no full_to_swa, the map to "
      "the window's pool");
  EXPECT_EQ(with([](RoleValue*) {}, {.page_size = 3}),
            "test.options: page_size is 3, expected a power of two");
  EXPECT_EQ(with([](RoleValue*) {}, {.page_size = 4, .pad_kv_lens = {1, 0}}),
            "test.options: pad_kv_lens.most is 0, expected >= 1");
}

/// A tree of three drafts: the second and the third are children of the first.
TEST(JudgeStep, ATreesMaskIsTheBatchs) {
  const Ints pool_rows = {0}, seq_lens = {2}, map = {4, 5, 6, 7, 8};
  const std::vector<uint8_t> tree = {1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1};
  ForwardBatch b;
  b.mode = ForwardMode::kTargetVerify, b.seq_lens_kind = SeqLensKind::kPrefix;
  b.req_pool_indices = pool_rows, b.seq_lens = seq_lens, b.req_to_token = {map, 5};
  b.spec = {.topk = 2, .num_steps = 2, .num_draft_tokens = 3, .step = 0, .custom_mask = tree};
  std::vector<uint8_t> mask = tree;
  Longs positions = {2, 3, 3};
  const auto judged = [&] {
    return laws_at(judge(b, std::vector{StepArrays::vector("custom_mask", mask),
                                        StepArrays::vector("positions", positions)}));
  };
  EXPECT_EQ(judged(), Laws{});
  mask[13] = 1;  // the third sees the second
  EXPECT_EQ(judged(), Laws{"mask.bit custom_mask[0, 13]"});
  mask = tree, positions[2] = 4;
  EXPECT_EQ(judged(), Laws{"step.positions positions[2]"});
}

/// The arrays that a right builder makes of a scheduler's step, with a row of padding behind it.
struct RightArrays {
  Ints kv_lens, q_lens, cu_seqlens_q = {0}, page_table, kv_indptr = {0}, kv_indices, last_pages;
  Longs slots;
  std::vector<uint8_t> mask;
  int64_t columns = 1;

  explicit RightArrays(const Case& c) {
    const Truth& t = c.truth;
    kv_lens = t.kv_lens, q_lens = t.q_lens, mask = t.mask;
    slots.assign(t.stored.begin(), t.stored.end());
    const Ints pages = t.num_pages(c.page_size);
    for (const int32_t count : pages) columns = std::max<int64_t>(columns, count);
    for (size_t r = 0; r < t.keys.size(); ++r) {
      cu_seqlens_q.push_back(t.cu_seqlens_q[r + 1]);
      const int32_t len = t.kv_lens[r];
      last_pages.push_back(len == 0 ? 0 : (len - 1) % c.page_size + 1);
      for (int64_t p = 0; p < columns; ++p) {
        const bool live = p < pages[r];
        const int32_t page =
            live ? t.keys[r][static_cast<size_t>(p * c.page_size)] / c.page_size : 0;
        page_table.push_back(page);
        if (live) kv_indices.push_back(page);
      }
      kv_indptr.push_back(static_cast<int32_t>(kv_indices.size()));
    }
    kv_lens.push_back(1), q_lens.push_back(0), cu_seqlens_q.push_back(cu_seqlens_q.back());
    page_table.resize(page_table.size() + static_cast<size_t>(columns));
    kv_indices.push_back(0), last_pages.push_back(1), slots.push_back(-1);
    kv_indptr.push_back(static_cast<int32_t>(kv_indices.size()));
  }

  std::vector<RoleValue> values(int32_t page_size) const {
    return {StepArrays::vector("kv_lens", kv_lens),
            StepArrays::vector("q_lens", q_lens),
            StepArrays::vector("cu_seqlens_q", cu_seqlens_q),
            StepArrays::table("page_table", page_table, columns, page_size),
            StepArrays::vector("kv_indptr", kv_indptr),
            StepArrays::vector("kv_indices", kv_indices, page_size),
            StepArrays::vector("last_page_len", last_pages),
            StepArrays::vector("slots", slots),
            StepArrays::vector("custom_mask", mask)};
  }
};

/// Judges right arrays of every step, and arrays whose rows, one after the other, have a key less.
void judge_histories(const Options& options) {
  Counts counts;
  const Status status = check(
      options,
      [](Steps& steps) {
        while (const Case* c = steps.next()) {
          RightArrays arrays(*c);
          const JudgeOptions how = {.page_size = c->page_size, .pool_pages = c->pool_pages};
          steps.expect(judge(c->batch, arrays.values(c->page_size), how));
          for (size_t r = 0; r < c->truth.kv_lens.size(); ++r) {
            --arrays.kv_lens[r];
            const Laws found = laws_at(judge(c->batch, arrays.values(c->page_size), how));
            EXPECT_EQ(found, Laws{"len.kv_extent kv_lens[" + std::to_string(r) + "]"});
            ++arrays.kv_lens[r];
          }
        }
      },
      &counts);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_GT(counts.steps, 0);
}

TEST(JudgeStep, NothingIsFoundInRightArraysOfAnyStep) {
  Options options;
  options.histories = 20, options.small_requests = 1;
  judge_histories(options);
  options.prefix_cache = true;
  judge_histories(options);
  options.prefix_cache = false, options.dllm_block = 2;
  options.modes = {ForwardMode::kDllmExtend};
  judge_histories(options);
}

TEST(JudgeStep, NothingIsFoundInRightArraysOfDrafts) {
  Options options;
  options.histories = 100, options.small_requests = 0;
  options.num_steps = 3, options.num_draft_tokens = 4;
  options.modes = {ForwardMode::kDraftDecode, ForwardMode::kTargetVerify,
                   ForwardMode::kDraftExtend};
  judge_histories(options);
  options.topk = 2;
  options.modes = {ForwardMode::kTargetVerify};
  judge_histories(options);
}

}  // namespace
}  // namespace shadowgraph::testing::judge_test
