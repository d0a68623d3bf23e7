// A kernel of a user under the fuzzer's calls: a right one passes in all that it declares, each
// slip is found soon by the law that it breaks, shrunk, and repeated by its choices.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "testing/broken_laws.h"
#include "testing/kernel_faults.h"

namespace shadowgraph::testing::kernel_test {
namespace {

Kernel tiled(Slip slip) {
  return {.paged = [slip](const PagedAttention& call) { TiledKernel(call, slip).run(); },
          .ragged = {}};
}

KernelOptions small_support() {
  KernelOptions o;
  KernelSupport& s = o.support;
  s.calls = {KernelCall::kPagedDecode, KernelCall::kPagedExtend};
  s.terms = {Term::kCausal, Term::kWindowLeft, Term::kSoftCap, Term::kSinks};
  s.head_dims = {{16, 16}, {32, 8}};
  s.group_sizes = {1, 2};
  s.num_kv_heads = {1, 2};
  s.page_sizes = {4, 16};
  s.max_requests = 3, s.max_q_len = 4, s.max_kv_len = 160;
  s.propagates_nan = true;
  o.calls = 400;
  return o;
}

TEST(KernelCheck, ARightKernelPasses) {
  int64_t calls = 0;
  EXPECT_EQ(check(small_support(), tiled(Slip::kNone), &calls).to_string(), "ok");
  EXPECT_GT(calls, 300);
}

TEST(KernelCheck, WhatSeesANanIsJudgedOnlyWherePromised) {
  KernelOptions o = small_support();
  o.support.propagates_nan = false;
  EXPECT_EQ(check(o, tiled(Slip::kNanVanishes)).to_string(), "ok");
  EXPECT_FALSE(check(o, tiled(Slip::kNanSpreads)).ok());
}

TEST(KernelCheck, AFindingNamesRequestQueryAndHead) {
  const Status status = check(small_support(), tiled(Slip::kHeadsInTurn));
  ASSERT_EQ(status.findings().size(), 2u) << status.to_string();
  for (const Finding& f : status.findings())
    EXPECT_EQ(f.where.field, "out (request 0, query 0, head 1)") << f.id;
  EXPECT_EQ(status.findings()[0].id, "num.exact");
  EXPECT_EQ(status.findings()[1].id, "num.bound");
}

TEST(KernelCheck, TensorCoresAndSplitsAreJudgedByTheirBound) {
  for (const char* arithmetic : {"tensor_cores", "fa3_split", "flashinfer_decode"}) {
    KernelOptions o = small_support();
    o.support.types = {{DType::kBF16, DType::kBF16, DType::kBF16},
                       {DType::kF16, DType::kF16, DType::kF32}};
    o.support.arithmetic = arithmetic;
    EXPECT_EQ(check(o, tiled(Slip::kNone)).to_string(), "ok") << arithmetic;
    EXPECT_FALSE(check(o, tiled(Slip::kWindowOneShort)).ok()) << arithmetic;
    EXPECT_FALSE(check(o, tiled(Slip::kMaximumNotRescaled)).ok()) << arithmetic;
  }
}

TEST(KernelCheck, TheJournalNamesTheCallThatRuns) {
  KernelOptions o = small_support();
  o.journal = ::testing::TempDir() + "kernel_journal";
  std::string last;
  const auto throws = [&](const PagedAttention&) {
    std::getline(std::ifstream(o.journal), last);
    throw std::runtime_error("it ends here");
  };
  const Status status = check(o, {.paged = throws, .ragged = {}});
  ASSERT_EQ(ids(status), Ids{"test.exception"});
  EXPECT_EQ(last, status.findings()[0].case_id);
  std::remove(o.journal.c_str());
}

TEST(KernelCheck, WrongOutputsNameTheirMistake) {
  const std::pair<Slip, std::string_view> known[] = {{Slip::kHeadsInTurn, "heads.mapped"},
                                                     {Slip::kLseInBase2, "lse.base"},
                                                     {Slip::kSinkLost, "sink.missing"}};
  for (const auto& [slip, mistake] : known) {
    KernelOptions o = small_support();
    o.calls = 2000;
    const Status status = check(o, tiled(slip));
    ASSERT_FALSE(status.ok()) << mistake;
    const Finding& f = status.findings()[0];
    ASSERT_FALSE(f.diagnosis.empty()) << mistake << ": " << status.to_string();
    EXPECT_EQ(f.diagnosis[0].mistake, mistake) << f.diagnosis[0].to_string();
  }
}

struct Planted {
  Slip slip;
  Ids laws;  // any of them first
};

class KernelSlips : public ::testing::TestWithParam<Planted> {};

TEST_P(KernelSlips, IsFoundSmallAndRepeated) {
  KernelOptions o = small_support();
  o.calls = 2000;
  const Status status = check(o, tiled(GetParam().slip));
  ASSERT_FALSE(status.ok());
  const Finding& f = status.findings()[0];
  EXPECT_EQ(std::ranges::count(GetParam().laws, f.id), 1) << status.to_string();
  // Its choices alone find the same.
  o.choices = f.reproduce.substr(f.reproduce.find('=') + 1);
  EXPECT_EQ(check(o, tiled(GetParam().slip)).to_string(), status.to_string());
  EXPECT_EQ(check(o, tiled(Slip::kNone)).to_string(), "ok");
}

INSTANTIATE_TEST_SUITE_P(
    Planted, KernelSlips,
    ::testing::Values(
        Planted{Slip::kPaddingOfATile, {"num.exact", "num.poison"}},
        Planted{Slip::kOffsetIn32Bits, {"num.exact", "num.lse_bound"}},
        Planted{Slip::kWindowOneShort, {"num.exact"}},
        Planted{Slip::kMaximumNotRescaled, {"num.bound", "num.exact"}},
        Planted{Slip::kMaskMultiplies, {"num.poison"}}, Planted{Slip::kHeadsInTurn, {"num.exact"}},
        Planted{Slip::kLseInBase2, {"num.lse_bound"}},
        Planted{Slip::kCapBehindMask, {"num.exact", "num.poison"}},
        Planted{Slip::kSinkLost, {"num.exact", "num.bound"}},
        Planted{Slip::kEmptySplitMerged, {"num.exact", "num.poison", "num.bound"}},
        Planted{Slip::kMaximumFromZero, {"num.exact"}},
        Planted{Slip::kNoMaximum, {"num.poison", "num.exact"}},
        Planted{Slip::kPaddingInMaximum, {"num.exact"}}, Planted{Slip::kNanVanishes, {"num.bound"}},
        Planted{Slip::kNanSpreads, {"num.bound"}}, Planted{Slip::kRowBehind, {"num.write_set"}},
        Planted{Slip::kRowLeft, {"num.write_set"}}, Planted{Slip::kWritesKeys, {"num.write_set"}},
        Planted{Slip::kThrows, {"test.exception"}}));

}  // namespace
}  // namespace shadowgraph::testing::kernel_test
