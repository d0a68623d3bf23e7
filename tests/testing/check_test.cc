// A property is tried on every small batch and on histories; what fails is shrunk, and repeated by
// its choices alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <stdexcept>

#include "core/laws.h"
#include "shadowgraph/testing.h"
#include "testing/broken_laws.h"

namespace shadowgraph::testing::check_test {
namespace {

Options small_scope() {
  Options o;
  o.small_requests = 2, o.histories = 20;
  return o;
}

/// Lengths of a builder that fills them with fn(request, extent).
template <class Fn>
Property lengths(Fn fn) {
  return [fn](Steps& steps) {
    Shadowed<int32_t> lens(steps, "lens", 4);
    while (const Case* c = steps.next()) {
      for (int64_t i = 0; i < c->batch.size(); ++i)
        lens.span()[static_cast<size_t>(i)] = fn(*c, i, c->batch.extent(i));
      steps.expect(check_kv_lens(lens, c->truth));
    }
  };
}

const Property kRight = lengths([](const Case&, int64_t, RequestExtent e) { return e.kv_len; });

TEST(Check, ARightBuilderPassesAndWhatRanIsCounted) {
  Counts counts;
  EXPECT_EQ(check(small_scope(), kRight, &counts).to_string(), "ok");
  EXPECT_EQ(counts.histories, 20);
  // Pages of 1, 2, 4 in 3 orders; decodes, and extends by 1 or 2.
  EXPECT_EQ(counts.small, 3 * (4 + 16 + 6 + 36 + 10 + 100) + 3 * (8 + 64 + 12 + 144 + 20 + 400));
  EXPECT_GT(counts.steps, counts.small + 20);
}

TEST(Check, ASlipIsShrunkToTheSmallestBatchThatShowsIt) {
  // Wrong of the second request alone, from 3 keys on, where two tokens are new.
  const Property slip = lengths([](const Case&, int64_t i, RequestExtent e) {
    return e.kv_len - (i == 1 && e.q_len == 2 && e.kv_len >= 3 ? 1 : 0);
  });
  Options o = small_scope();
  o.command = "./my_test";
  const Status status = check(o, slip);
  EXPECT_EQ(status.to_string(),
            "len.kv_extent: SHADOWGRAPH_CHOICES=0.1.0.0.1.0.0.1.1 (extend, page_size 1, "
            "prefix_lens [0, 1], q_lens [1, 2]): lens[1] is 2, expected 3");
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].where.mode, "extend");
  EXPECT_EQ(status.findings()[0].reproduce, "SHADOWGRAPH_CHOICES=0.1.0.0.1.0.0.1.1 ./my_test");
}

TEST(Check, ASlipOfALaterStepIsShrunkToAHistory) {
  // A request that is seen twice keeps its first length.
  const Property slip = [](Steps& steps) {
    std::vector<int32_t> known(16);
    Shadowed<int32_t> lens(steps, "lens", 4);
    while (const Case* c = steps.next()) {
      for (int64_t i = 0; i < c->batch.size(); ++i) {
        int32_t& len =
            known[static_cast<size_t>(c->batch.req_pool_indices[static_cast<size_t>(i)])];
        if (len == 0) len = c->batch.extent(i).kv_len;
        lens.span()[static_cast<size_t>(i)] = len;
      }
      steps.expect(check_kv_lens(lens, c->truth));
    }
  };
  Counts counts;
  const Status status = check(small_scope(), slip, &counts);
  EXPECT_EQ(ids(status), Ids{"len.kv_extent"});  // one request is left
  EXPECT_GT(counts.histories, 0);
  const std::string text = status.findings()[0].case_id;
  EXPECT_NE(text.find("page_size 1, prefix_lens [1], q_lens [1])"), std::string::npos) << text;
}

TEST(Check, WhatIsShrunkStillBreaksTheSameLaw) {
  // Two slips: one of batches of several requests, one of pages of several tokens.
  const Property slips = [](Steps& steps) {
    while (const Case* c = steps.next()) {
      Status status;
      if (c->batch.size() > 1) status.add(make_finding("slot.range", at("slots"), "1", "2"));
      if (c->page_size > 1) status.add(make_finding("slot.write", at("slots"), "1", "2"));
      steps.expect(status);
    }
  };
  std::set<Ids> found;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Options o = small_scope();
    o.small_requests = 0, o.seed = seed;
    const Ids small = ids(check(o, slips));
    o.shrink_seconds = 0;
    EXPECT_EQ(small, Ids{ids(check(o, slips)).front()});
    found.insert(small);
  }
  EXPECT_EQ(found.size(), 2u);
}

TEST(Check, ChoicesRepeatOneHistoryAlone) {
  const Property slip =
      lengths([](const Case&, int64_t, RequestExtent e) { return std::max(e.prefix_len, 1); });
  Options o = small_scope();
  const Status found = check(o, slip);
  const std::string line = found.findings()[0].reproduce;
  ASSERT_EQ(line.find("SHADOWGRAPH_CHOICES="), 0u);
  o.choices = line.substr(line.find('=') + 1);
  Counts counts;
  EXPECT_EQ(check(o, slip, &counts).to_string(), found.to_string());
  EXPECT_EQ(counts.steps, 1);
  EXPECT_EQ(check(o, kRight).to_string(), "ok");  // once it is mended
}

TEST(Check, TheEnvironmentsChoicesAreTakenWhereTheOptionsHaveNone) {
  const Property slip = lengths([](const Case&, int64_t, RequestExtent e) { return e.kv_len - 1; });
  setenv("SHADOWGRAPH_CHOICES", "0.1.2", 1);
  Counts counts;
  EXPECT_EQ(check(small_scope(), slip, &counts).to_string(),
            "len.kv_extent: SHADOWGRAPH_CHOICES=0.1.2 (extend, page_size 4, prefix_lens [0], "
            "q_lens [1]): lens[0] is 0, expected 1");
  EXPECT_EQ(counts.steps, 1);
  setenv("SHADOWGRAPH_CHOICES", "", 1);
  EXPECT_EQ(check(small_scope(), kRight, &counts).to_string(), "ok");
  EXPECT_GT(counts.steps, 1);
  unsetenv("SHADOWGRAPH_CHOICES");
}

TEST(Check, ChoicesThatAreNoneOfTheseOptionsAreRefused) {
  Options o = small_scope();
  for (const char* text : {"1..2", "a", "99", "0.7", "0.0.0.0.0.0.5.5"}) {
    o.choices = text;
    EXPECT_EQ(ids(check(o, kRight)), Ids{"test.options"}) << text;
  }
}

TEST(Check, ABuilderThatThrowsIsReportedWithItsBatch) {
  const Property throws = lengths([](const Case&, int64_t i, RequestExtent e) {
    if (i == 1) throw std::out_of_range("no row 1");
    return e.kv_len;
  });
  EXPECT_EQ(check(small_scope(), throws).to_string(),
            "trace.exception: SHADOWGRAPH_CHOICES=0.0.0.0.1 (decode, page_size 1, prefix_lens "
            "[0, 0], q_lens [1, 1]): builder is no row 1, expected metadata");
  const Property odd = lengths([](const Case&, int64_t, RequestExtent) -> int32_t { throw 7; });
  EXPECT_EQ(ids(check(small_scope(), odd)), Ids{"trace.exception"});
}

TEST(Check, ATestThatShowsNothingFails) {
  EXPECT_EQ(ids(check(small_scope(), [](Steps&) {})), (Ids{"test.nothing", "test.nothing"}));
  Options none = small_scope();
  none.small_requests = 0, none.histories = 0;
  EXPECT_EQ(ids(check(none, kRight)), (Ids{"test.nothing", "test.nothing"}));
  Options drafts = small_scope();
  drafts.modes.push_back(ForwardMode::kTargetVerify);  // and no speculation
  EXPECT_EQ(check(drafts, kRight).to_string(),
            "test.nothing: modes is none, expected a step of target_verify");
}

TEST(Check, TheSameSeedTriesTheSameHistoriesAndAnotherDoesNot) {
  const auto seen = [](uint64_t seed) {
    Options o = small_scope();
    o.small_requests = 0, o.seed = seed;
    std::vector<int32_t> lens;
    EXPECT_TRUE(check(o, [&](Steps& steps) {
                  while (const Case* c = steps.next())
                    lens.insert(lens.end(), c->truth.kv_lens.begin(), c->truth.kv_lens.end());
                }).ok());
    return lens;
  };
  EXPECT_EQ(seen(1), seen(1));
  EXPECT_NE(seen(1), seen(2));
}

TEST(Check, AHistoryEndsWithTheFirstStepThatBreaksALaw) {
  Options o = small_scope();
  o.small_requests = 0, o.shrink_seconds = 0;
  int64_t steps_after = 0;
  const Status status = check(o, [&](Steps& steps) {
    if (steps.next() == nullptr) return;
    Status broken;
    broken.add(make_finding("slot.write", at("slots", 0), "1", "2"));
    steps.expect(broken);
    steps.expect(broken);
    while (steps.next() != nullptr) ++steps_after;
  });
  EXPECT_EQ(ids(status), (Ids{"slot.write", "slot.write"}));
  EXPECT_EQ(steps_after, 0);
}

}  // namespace
}  // namespace shadowgraph::testing::check_test
