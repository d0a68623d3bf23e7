// Every law of memory, one access that keeps it and one that breaks it.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "memory_fixture.h"

namespace shadowgraph::memory_judge_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(MemoryJudge, AnAccessInsideAWrittenBufferIsFine) {
  Memory m;
  int32_t* a = m.ints(100);
  m.write(a, 0, 100);
  EXPECT_EQ(m.judge({read_of(a, 0, 100), write_of(a, 99, 1), read_of(a, 200, 0)}), "");
  EXPECT_TRUE(m.may_run);
}

TEST(MemoryJudge, OneElementTooManyIsInTheRedZone) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.name(a, "A");
  const BakedPointer baked = m.memory.bake(a);
  EXPECT_EQ(m.judge({write_of(a, 0, 5)}, {baked}), "mem.red_zone");
  EXPECT_TRUE(m.may_run);
  EXPECT_EQ(m.last.to_string(),
            "mem.red_zone: A[4] is red zone behind it, written by kernel fill, step 0 (pointer 0, "
            "5 elements from 0), expected inside A, 16 B in 4 granules");
  EXPECT_EQ(m.last.where.phase, "eager");
  EXPECT_EQ(m.judge({read_of(a, -1, 1)}), "mem.red_zone");
  EXPECT_EQ(m.last.where.row, -1);
  EXPECT_EQ(m.judge({read_of(a, 4, 1)}), "mem.red_zone");
  EXPECT_EQ(m.judge({span_of(a, 4, 1, Access::kTouch)}), "mem.red_zone") << "not allocated";
}

TEST(MemoryJudge, AnAccessThatReachesAnotherBlockIsOutOfBounds) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t* b = m.ints(4);
  m.memory.name(a, "A");
  m.memory.name(b, "B");
  EXPECT_EQ(m.judge({write_of(a, 0, 130)}), "mem.out_of_bounds");
  EXPECT_NE(m.last.got.find("lands in B[0]"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.last.where.field, "A");
  EXPECT_EQ(m.judge({write_of(a, 129, 1)}), "mem.out_of_bounds");
  EXPECT_NE(m.last.got.find("lands in B[1]"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({write_of(b, -128, 1)}), "mem.out_of_bounds");
  EXPECT_NE(m.last.got.find("lands in A[0]"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({write_of(a, 100000, 1)}), "mem.out_of_bounds") << "nobody's memory";
  EXPECT_TRUE(m.may_run);
}

TEST(MemoryJudge, OutsideTheAddressSpaceNothingMayRun) {
  Memory m;
  int32_t* a = m.ints(4);
  int32_t local = 0;
  for (const bool checked : {true, false}) {
    Memory other({.capacity = 1 << 20, .checked = checked});
    int32_t* p = other.ints(4);
    for (const AccessSpan& wild :
         {write_of(p, int64_t{1} << 44, 1), write_of(p, kHuge, kHuge), write_of(p, -kHuge, 1),
          write_of(p, 0, kHuge), write_of(p, int64_t{1} << 62, 1), write_of(&local, 0, 1),
          write_of(std::bit_cast<int32_t*>(~uintptr_t{0}), 0, 1), write_of(nullptr, 0, 1)}) {
      EXPECT_EQ(other.judge({wild}), checked ? "mem.out_of_bounds" : "") << wild.first;
      EXPECT_FALSE(other.may_run) << wild.first << ' ' << wild.count;
    }
    EXPECT_EQ(other.judge({write_of(p, 0, 4)}), "");
    EXPECT_TRUE(other.may_run);
  }
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}), "");
}

TEST(MemoryJudge, AFreedBufferIsUsedAfterFree) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.name(a, "A");
  const BakedPointer baked = m.memory.bake(a);
  m.write(a, 0, 4);
  m.memory.release(a);
  EXPECT_EQ(m.judge_by(m.replay(5, 2), {write_of(a, 0, 4)}, {baked}), "mem.use_after_free");
  EXPECT_EQ(m.last.to_string(),
            "mem.use_after_free: A[0] is freed; last written by kernel fill, operation 1, step 0, "
            "written by kernel fill, node 2 of launch 5, step 0 (pointer 0, 4 elements from 0), "
            "expected live");
  EXPECT_EQ(m.last.where.phase, "replay");
  EXPECT_TRUE(m.may_run);
}

TEST(MemoryJudge, APointerIntoNothingIsOutOfBounds) {
  Memory m;
  int32_t* a = m.ints(4);
  const int32_t* nowhere = a + 5000;
  EXPECT_EQ(m.memory.bake(nowhere).block, 0);
  EXPECT_EQ(m.judge({write_of(nowhere, 0, 1)}, {m.memory.bake(nowhere)}), "mem.out_of_bounds");
  EXPECT_TRUE(m.may_run);
}

TEST(MemoryJudge, WhatWasNeverWrittenIsUninitialised) {
  Memory m;
  int32_t* a = m.ints(100);
  m.write(a, 0, 57);
  EXPECT_EQ(m.judge({read_of(a, 0, 57)}), "");
  EXPECT_EQ(m.judge({read_of(a, 0, 100)}), "mem.uninit_read");
  EXPECT_EQ(m.last.where.field, "allocation 1 + 228 B");
  EXPECT_NE(m.last.got.find("never written"), std::string::npos);
  EXPECT_EQ(m.judge({span_of(a, 0, 100, Access::kTouch), write_of(a, 0, 100)}), "");
}

TEST(MemoryJudge, TheHostWritesManagedAndPinnedMemoryUnseen) {
  Memory m;
  for (const AllocKind kind : {AllocKind::kManaged, AllocKind::kPinned}) {
    auto* p = static_cast<int32_t*>(m.memory.allocate(16, kind));
    EXPECT_EQ(m.judge({read_of(p, 0, 4)}), "");
    EXPECT_EQ(m.judge({read_of(p, 0, 5)}), "mem.red_zone");
  }
}

TEST(MemoryJudge, AGranuleWrittenInPartIsNotInitialised) {
  Memory m;
  int32_t* a = m.ints(12);
  m.memory.declare({a, 48, 16, Lifetime::kPersistent, "rows"});
  m.write(a, 0, 3);
  EXPECT_EQ(m.judge({read_of(a, 0, 1)}), "mem.uninit_read");
  m.write(a, 3, 1);
  EXPECT_EQ(m.judge({read_of(a, 0, 1)}), "mem.uninit_read") << "another launch";
  m.memory.commit(m.eager(), {write_of(a, 2, 2), write_of(a, 6, 6), write_of(a, 0, 2)});
  EXPECT_EQ(m.judge({read_of(a, 0, 4)}), "") << "one launch, two spans";
  EXPECT_EQ(m.judge({read_of(a, 4, 1)}), "mem.uninit_read");
  EXPECT_EQ(m.last.where.row, 1);
  EXPECT_EQ(m.judge({read_of(a, 8, 4)}), "");
}

TEST(MemoryJudge, TheLastGranuleMayBeCutShort) {
  Memory m;
  auto* p = static_cast<int32_t*>(m.memory.allocate(6, AllocKind::kMalloc));
  m.memory.commit(m.eager(), {{p, 0, 6, 1, Access::kWrite, -1}});
  EXPECT_EQ(m.judge({{p, 0, 6, 1, Access::kRead, -1}}), "");
  EXPECT_EQ(m.judge({{p, 0, 7, 1, Access::kRead, -1}}), "mem.red_zone");
}

TEST(MemoryJudge, RetiredBytesAreStaleUntilTheyAreWrittenAgain) {
  Memory m;
  int32_t* table = m.ints(8);
  m.write(table, 0, 8);
  table[5] = 3;
  m.memory.retire(table + 4, 16);
  EXPECT_EQ(table[5], -1);
  EXPECT_EQ(m.judge({read_of(table, 0, 4)}), "");
  EXPECT_EQ(m.judge({span_of(table, 0, 8, Access::kTouch)}), "");
  EXPECT_EQ(m.judge({read_of(table, 0, 5)}), "mem.stale_input");
  EXPECT_EQ(m.last.where.field, "allocation 1 + 16 B");
  m.write(table, 4, 1);
  EXPECT_EQ(m.judge({read_of(table, 0, 5)}), "");
}

TEST(MemoryJudge, PerStepContentsAreStaleInTheNextStep) {
  Memory m;
  int32_t* a = m.ints(64);
  m.memory.declare({a, 256, 4, Lifetime::kPerStep, "seq_lens"});
  m.write(a, 0, 64);
  EXPECT_EQ(m.judge({read_of(a, 0, 64)}), "");
  m.memory.begin_step();
  m.write(a, 0, 60);
  EXPECT_EQ(m.judge({read_of(a, 0, 60)}), "");
  EXPECT_EQ(m.judge({read_of(a, 0, 64)}), "mem.stale_input");
  EXPECT_EQ(m.last.where.row, 60);
  EXPECT_NE(m.last.got.find("last written by kernel fill, operation 1, step 0"), std::string::npos)
      << m.last.got;
}

TEST(MemoryJudge, ScratchIsWrittenByTheLaunchThatReadsIt) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.declare({a, 16, 4, Lifetime::kScratch, "splits"});
  m.memory.commit(m.replay(1, 0), {write_of(a, 0, 4)});
  EXPECT_EQ(m.judge_by(m.replay(1, 1), {read_of(a, 0, 4)}), "");
  EXPECT_EQ(m.judge_by(m.replay(2, 1), {read_of(a, 0, 4)}), "mem.stale_input");
  EXPECT_EQ(m.judge_by(m.eager(), {read_of(a, 0, 4)}), "") << "eager: of this step";
  m.memory.begin_step();
  EXPECT_EQ(m.judge_by(m.eager(), {read_of(a, 0, 4)}), "mem.stale_input");
}

TEST(MemoryJudge, ScratchOfALayerIsDeadForEveryOther) {
  Memory m;
  int32_t *scratch = m.ints(4), *plan = m.ints(4), *kept = m.ints(4), *q0 = m.ints(8),
          *q1 = m.ints(8), *pool = m.ints(8);
  m.memory.declare({scratch, 16, 4, Lifetime::kScratch, "logits"});
  m.memory.declare({plan, 16, 4, Lifetime::kScratch, "plan"});
  m.memory.set_layers(
      std::vector<LayerBytes>{{q0, 32, 0}, {q1, 32, 1}, {pool, 4, 0}, {pool, 4, 1}});
  for (const int32_t* p : {q0, q1, pool, kept}) m.write(p, 0, 4);
  m.memory.commit(m.replay(1, 0), {write_of(plan, 0, 4)});
  m.memory.commit(m.replay(1, 1), {read_of(q0 + 4, 0, 4), write_of(scratch, 0, 4)});
  EXPECT_EQ(m.judge_by(m.replay(1, 2), {read_of(scratch, 0, 4), write_of(q0, 0, 4)}), "");
  EXPECT_EQ(m.judge_by(m.replay(1, 2), {read_of(scratch, 0, 4), write_of(kept, 0, 4)}), "")
      << "whoever reads a layer's scratch is of that layer";
  const Footprint second = {read_of(plan, 0, 2), read_of(scratch, 1, 1), write_of(q1, 0, 4)};
  EXPECT_EQ(m.judge_by(m.replay(1, 3), second), "mem.stale_input");
  EXPECT_EQ(m.last.where.field, "logits");
  EXPECT_EQ(m.last.where.row, 1);
  EXPECT_EQ(m.last.expected, "written for layer 1");
  EXPECT_EQ(m.last.got.find("left by layer 0"), 0u) << m.last.got;
  // A launch between them hands on what it has read.
  m.memory.commit(m.replay(1, 3), {read_of(scratch, 0, 4), write_of(plan, 2, 1)});
  EXPECT_EQ(m.judge_by(m.replay(1, 4), {read_of(plan, 2, 1), read_of(q1, 0, 4)}),
            "mem.stale_input");
  EXPECT_EQ(m.judge_by(m.replay(1, 4), {read_of(plan, 1, 1), read_of(q1, 0, 4)}), "");
  m.memory.commit(m.replay(1, 4), {write_of(scratch, 0, 4), read_of(q1, 0, 4)});
  EXPECT_EQ(m.judge_by(m.replay(1, 5), second), "") << "its own by now";
  EXPECT_EQ(m.judge_by(m.replay(1, 5), {read_of(pool, 0, 1), read_of(scratch, 0, 1)}), "")
      << "what two layers name is nobody's";
}

TEST(MemoryJudge, ARowReadsAndWritesOnlyItsOwn) {
  Memory m;
  int32_t* kv = m.ints(64);
  m.memory.name(kv, "kv");
  m.write(kv, 0, 64);
  m.memory.set_owner(kv, 128, 7);
  m.memory.set_owner(kv + 32, 64, 8);
  m.memory.set_row_owners(std::vector<OwnerId>{7, 8, 0});
  EXPECT_EQ(m.judge({read_of(kv, 0, 32, 0), write_of(kv, 32, 16, 1)}), "");
  EXPECT_EQ(m.judge({read_of(kv, 48, 16, 0)}), "") << "nobody's";
  EXPECT_EQ(m.judge({read_of(kv, 0, 64, 2), read_of(kv, 0, 64), read_of(kv, 0, 64, 9)}), "");
  EXPECT_EQ(m.judge({read_of(kv, 0, 33, 0)}), "mem.wrong_region");
  EXPECT_EQ(m.last.where.row, 32);
  EXPECT_EQ(m.last.expected, "request 7's (row 0)");
  EXPECT_EQ(m.last.got.find("that of request 8"), 0) << m.last.got;
  EXPECT_EQ(m.judge({write_of(kv, 31, 1, 1)}), "mem.wrong_region");
  EXPECT_EQ(m.judge({span_of(kv, 0, 64, Access::kTouch, 0)}), "") << "masked";
  m.memory.add_owner(kv, 128, 8);
  EXPECT_EQ(m.judge({write_of(kv, 31, 1, 1), read_of(kv, 31, 1, 0)}), "") << "shared";
  m.memory.set_owner(kv, 256, 0);
  EXPECT_EQ(m.judge({read_of(kv, 0, 64, 0)}), "");
}

TEST(MemoryJudge, AnOutputWrittenByLaterWorkIsClobbered) {
  Memory m;
  int32_t* out = m.ints(4);
  m.memory.name(out, "out");
  m.write(out, 0, 4);
  const uint64_t ticket = m.serial;
  Status fine;
  m.memory.judge_output(out, 16, ticket, &fine);
  EXPECT_TRUE(fine.ok()) << fine.to_string();
  m.write(out, 2, 1);
  Status clobbered;
  m.memory.judge_output(out, 8, ticket, &clobbered);
  EXPECT_TRUE(clobbered.ok()) << "the other half";
  m.memory.judge_output(out, 16, ticket, &clobbered);
  EXPECT_EQ(clobbered.to_string(),
            "mem.clobbered_output: out[2] is written by kernel fill, operation 2, step 0, "
            "expected written by operation 1 or earlier");
}

TEST(MemoryJudge, OneFindingForEachLawAndBlock) {
  Memory m;
  int32_t* a = m.ints(100);
  int32_t* b = m.ints(100);
  Footprint spans;
  for (int64_t i = 0; i < 100; ++i) spans.push_back(read_of(a, i, 1));
  spans.push_back(read_of(b, 0, 1));
  spans.push_back(read_of(b, 100, 1));
  EXPECT_EQ(m.judge(spans), "mem.uninit_read mem.uninit_read mem.red_zone");
  Status status;
  m.memory.judge(m.eager(), {}, spans, &status);
  EXPECT_NE(status.findings()[0].got.find("and 99 more"), std::string::npos);
}

TEST(MemoryJudge, BetweenDeclaredBuffersIsRedZone) {
  Memory m;
  int32_t* arena = m.ints(1024);
  const BakedPointer before = m.memory.bake(arena);
  m.write(arena, 0, 1024);
  EXPECT_EQ(m.judge({read_of(arena, 0, 1024)}), "");
  m.memory.declare({arena, 16, 4, Lifetime::kConstant, "A"});
  m.memory.declare({arena + 128, 16, 4, Lifetime::kConstant, "B"});
  EXPECT_EQ(m.judge({read_of(arena, 0, 4)}), "mem.uninit_read") << "declared anew";
  EXPECT_EQ(m.judge({write_of(arena, 0, 4)}, {before}), "") << "baked before it was declared";
  EXPECT_EQ(m.judge({write_of(arena, 0, 5)}), "mem.red_zone");
  EXPECT_EQ(m.judge({write_of(arena, 0, 129)}), "mem.out_of_bounds");
  EXPECT_NE(m.last.got.find("lands in B[0]"), std::string::npos) << m.last.got;
  EXPECT_EQ(m.judge({write_of(arena + 128, -1, 1)}), "mem.red_zone");
  EXPECT_EQ(m.judge({write_of(arena + 512, 0, 1)}), "mem.red_zone");
  EXPECT_EQ(m.last.where.field, "allocation 1 + 2048 B");
}

TEST(MemoryJudge, AnEndedBufferIsFreedAndThenAnotherGeneration) {
  Memory m;
  int32_t* arena = m.ints(1024);
  m.memory.declare({arena, 64, 4, Lifetime::kPerStep, "seq_lens"});
  const BakedPointer baked = m.memory.bake(arena);
  m.memory.undeclare(arena);
  EXPECT_EQ(m.judge({write_of(arena, 0, 4)}, {baked}), "mem.use_after_free");
  EXPECT_EQ(m.last.where.field, "seq_lens");
  m.memory.declare({arena, 64, 4, Lifetime::kPerStep, "lens2"});
  EXPECT_EQ(m.judge({write_of(arena, 0, 4)}, {baked}), "mem.stale_generation");
  EXPECT_EQ(m.last.where.field, "seq_lens");
  EXPECT_EQ(m.judge({write_of(arena, 0, 4)}, {m.memory.bake(arena)}), "");
  m.memory.undeclare(arena);
  m.memory.declare({arena, 128, 4, Lifetime::kPerStep, "bigger"});
  EXPECT_EQ(m.judge({write_of(arena, 0, 4)}, {baked}), "mem.stale_generation");
  const BakedPointer bigger = m.memory.bake(arena + 16);
  m.memory.declare({arena + 8, 64, 4, Lifetime::kPerStep, "across"});
  EXPECT_EQ(m.judge({write_of(arena + 16, 0, 4)}, {bigger}), "mem.stale_generation");
  const BakedPointer across = m.memory.bake(arena + 8);
  EXPECT_EQ(m.judge({write_of(arena + 8, 0, 4)}, {across}), "");
  m.memory.release(arena);
  EXPECT_EQ(m.judge({write_of(arena + 8, 0, 4)}, {across}), "mem.use_after_free");
  EXPECT_EQ(m.ints(1024), arena);
  EXPECT_EQ(m.judge({write_of(arena + 8, 0, 4)}, {across}), "mem.stale_generation");
  EXPECT_EQ(m.judge({write_of(arena, 0, 1024)}), "") << "no buffers are declared in it";
}

TEST(MemoryJudge, ABufferOutsideAnAllocationIsNotDeclared) {
  Memory m;
  int32_t* a = m.ints(4);
  m.memory.declare({a, 20, 4, Lifetime::kConstant, "long"});
  m.memory.declare({a + 4, 4, 4, Lifetime::kConstant, "behind"});
  m.memory.declare({a, SIZE_MAX, 4, Lifetime::kConstant, "huge"});
  EXPECT_EQ(m.memory.describe(a), "allocation 1 + 0 B");
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}), "");
}

TEST(MemoryJudge, UncheckedMemorySeesNothingButIllegalAddresses) {
  Memory m({.capacity = 1 << 20, .checked = false});
  int32_t* a = m.ints(4);
  m.memory.declare({a, 16, 4, Lifetime::kPerStep, "A"});
  m.memory.set_owner(a, 16, 1);
  m.memory.retire(a, 16);
  m.memory.commit(m.eager(), {write_of(a, 0, 4)});
  EXPECT_EQ(m.judge({read_of(a, 0, 5), read_of(a, 0, 4, 0)}), "");
  EXPECT_TRUE(m.may_run);
  EXPECT_EQ(a[0], 0);
  EXPECT_EQ(m.memory.cost_of(a).shadow_bytes, 0);
  m.memory.release(a);
  EXPECT_EQ(m.judge({write_of(a, 0, 4)}), "");
}

}  // namespace
}  // namespace shadowgraph::memory_judge_test
