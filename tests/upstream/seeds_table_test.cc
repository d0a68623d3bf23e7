// The table of cases: what each of the five reports says, and the test that has it, before or
// after.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>

namespace shadowgraph::seeds_table_test {
namespace {

struct SeedCase {
  const char* report;
  const char* name;  // in a test's name
  const char* says;
  const char* test;
};
void PrintTo(const SeedCase& c, std::ostream* out) { *out << c.report << ": " << c.says; }

constexpr const char *k26512 = "sglang#26512", *k26513 = "sglang#26513", *k27360 = "sglang#27360",
                     *k26665 = "sglang#26665", *k25045 = "sglang#25045";

constexpr SeedCase kCases[] = {
    {k26512, "PrefixAlone", "FA3 and FA4, eager and graph: only the prefix is read",
     "UpstreamDraftExtendMatrix.BeforeOnlyThePrefixIsReadAndThatIsFound"},
    {k26512, "CountedTwice", "FA3 and FA4, eager and graph: new tokens counted twice",
     "UpstreamDraftExtendMatrix.BeforeTheOtherWayNewTokensCountTwiceAndThatIsFound"},
    {k26512, "Mended", "FA3 and FA4, eager and graph: prefix and new tokens",
     "UpstreamDraftExtendMatrix.AfterPrefixAndNewTokensAreReadAndNothingIsFound"},
    {k26512, "PlainExtend", "an extend that is no draft's stays as it was",
     "UpstreamDraftExtend.ThePlainExtendKeepsItsFullLengths"},
    {k26512, "SkewedBatch", "max of sums, not sum of maxima",
     "UpstreamDraftExtend.TheLongestIsTheLargestSumAndNotTheSumOfTheLargest"},
    {k26512, "MissingExtendLengths", "extend_seq_lens is None",
     "UpstreamDraftExtend.WithoutExtendLengthsTheBatchIsRefusedAndNothingIsGuessed"},
    {k26512, "FallbackToTheFirstLength", "fallback seq_lens[0]",
     "UpstreamDraftExtend.TheReportsFallbackToTheFirstLengthIsFound"},
    {k26512, "FallbackToOne", "fallback 1", "UpstreamDraftExtend.TheFallbackToOneTokenIsFound"},
    {k26512, "FallbackToAllDrafts", "fallback num_tokens_per_req",
     "UpstreamDraftExtend."
     "TheEnginesFallbackToAllDraftTokensIsRightWhereAllRequestsHaveThem"},
    {k26513, "NoWindowInThePlan", "neither call has the window",
     "UpstreamPrefixWindow.BeforeAPlanThatForgetsTheWindowIsFound"},
    {k26513, "NoWindowInOneCall", "window_left missing in one of the two calls",
     "UpstreamPrefixWindow.BeforeEitherCallWithoutTheWindowIsFoundByItsOutputs"},
    {k26513, "NewTokensInTheList", "the prefix's list has unwritten tokens",
     "UpstreamPrefixWindow.BeforeANewTokenInThePrefixsListIsReadUnwritten"},
    {k26513, "Outputs", "what the first query got",
     "UpstreamPrefixWindow.BeforeTheFirstQueryGot12SeventhsWhereItIs4"},
    {k26513, "SmallestCase", "window 1, prefix 1, one new token",
     "UpstreamPrefixWindow.TheSmallestCaseIsOneOfEach"},
    {k26513, "ListAndMask", "the last window of the prefix, and the mask",
     "UpstreamPrefixWindow.AfterThePrefixsListIsItsLastWindowAndAMaskSaysWhoSeesWhat"},
    {k26513, "Mended", "windows, prefixes and pages", "UpstreamPrefixWindow.AfterNothingIsFound"},
    {k26513, "MaskNone", "mask None where all keys are seen",
     "UpstreamPrefixWindow.WhereAllKeysAreSeenTheMaskIsAllOnesAndNoneIsTheSame"},
    {k26513, "MultiItem", "multi-item scoring has window_left -1",
     "UpstreamPrefixWindow.ItemsAreScoredWithWindowLeftMinus1AndWithoutARaggedCall"},
    {k26513, "MultiItemUnderAWindow", "multi-item scoring under a window",
     "UpstreamPrefixWindow.ItemsUnderAWindowAreRefusedWhereTheEngineDropsTheWindow"},
    {k26513, "ReviewBooleanMask", "remark: the mask stays boolean",
     "UpstreamReviews.AMaskOfBytesWhereBitsAreReadIsFound"},
    {k26513, "ReviewByteMask", "remark: a byte of a mask is 0 or 1",
     "UpstreamReviews.AByteOfAMaskIs0Or1"},
    {k26513, "ReviewLongPrefix", "remark: the prefix is cut to the window",
     "UpstreamReviews.ALongPrefixTakesNoLongerMaskThanItsWindow"},
    {k27360, "Widths", "which steps overflow: N = 8, 5, 4; pages of 2, 8, 16",
     "UpstreamDraftTree.OnlyTheFirstStepsOfSmallPagesOverflow"},
    {k27360, "WorkedExample", "the third page of a row of two columns",
     "UpstreamDraftTree.TheWorkedExampleOverflowsIntoTheNextRowAndBehindTheLast"},
    {k27360, "WidthAssertion", "the width assertion, as a write out of bounds",
     "UpstreamDraftTree.TheWidthAssertionIsAWriteOutOfBounds"},
    {k27360, "UnslicedInTheTwin", "the unsliced scatter, topk 8, pages of 2, N = 8",
     "UpstreamDraftTree.BeforeTheUnslicedScatterIsFoundInTheTwinsTables"},
    {k27360, "MendedByStep", "topk 8, pages of 2, N = 8, step by step",
     "UpstreamDraftTree.AfterEveryStepOfTopk8OnPagesOf2IsClean"},
    {k27360, "MendedWholeDraft", "topk 8, pages of 2, N = 8, as one graph",
     "UpstreamDraftTree.AfterAWholeDraftOfTopk8OnPagesOf2IsClean"},
    {k27360, "ChainsAndSinglePages", "topk 1, or pages of 1: never",
     "UpstreamDraftTree.ChainsAndPagesOfOneTokenNeverOverflow"},
    {k27360, "TwinsWidth", "the twin's table has the step's columns",
     "UpstreamDraftTree.ATableHasAColumnForEachPageUpToTheStep"},
    {k27360, "ReviewEmptyBatch", "remark: positions.max() of an empty batch",
     "UpstreamReviews.AnEmptyBatchOfBranchesHasNoLongestPosition"},
    {k26665, "TboKeyError", "two-batch capture routed to replay: KeyError",
     "UpstreamCapture.BeforeAReplayOfWhatNobodyBoundIsRefusedWhereTheEngineHadAKeyError"},
    {k26665, "TboPrimary", "fa3 over fa3 and fa3: prefix 4, 7, extend 3, 3, pages of 16",
     "UpstreamCapture.APrimaryAndItsHalvesAreCapturedAndReplayed"},
    {k26665, "TboBuckets", "the halves of each bucket",
     "UpstreamCapture.TheHalvesOfABucketAreBoundByItsCapture"},
    {k26665, "LongestQueryBaked", "a draft extend's longest query is 1 at the capture",
     "UpstreamCapture.BeforeADraftExtendWhoseLongestQueryIsBakedAs1IsFound"},
    {k26665, "LongestQueryKept", "the bucket's longest query is restored",
     "UpstreamCapture.AfterADraftExtendKeepsTheBucketsLongestQuery"},
    {k26665, "TreeCapture", "topk > 1: no positions and no mask at the capture",
     "UpstreamCapture.ATreesCaptureNeedsNeitherPositionsNorAMask"},
    {k26665, "AlternatingBuckets", "buckets that take turns",
     "UpstreamCapture.BucketsThatTakeTurnsKeepTheirOwnBuffers"},
    {k26665, "AscendGdnCapture", "Ascend GDN is captured without lengths of the host",
     "UpstreamCapture.AscendGdnIsCapturedWithoutLengthsOfTheHost"},
    {k26665, "AscendGdnNone", "Ascend GDN with seq_lens_cpu None",
     "UpstreamCapture.AscendGdnWithSeqLensCpuNoneIsRefusedWhereRequestsAreNamed"},
    {k26665, "AscendGdnAllPadding", "Ascend GDN takes None for padding",
     "UpstreamCapture.BeforeAscendGdnThatCountsEveryRowAsPaddingIsFound"},
    {k26665, "ReviewPaddingCounted", "remark: padding is counted by the fill value",
     "UpstreamReviews.PaddingIsCountedAndNotGuessedFromTheFillValue"},
    {k26665, "ReviewNpuListsThere", "remark: an NPU's lists of blocks, after",
     "UpstreamReviews.AnNpusListsOfTheHostAreThereAtTheCaptureAndOfEveryStep"},
    {k26665, "ReviewNpuListsMissing", "remark: an NPU's lists of blocks, before",
     "UpstreamReviews.AnNpusListsThatACaptureLacksOrKeepsAreFound"},
    {k25045, "FirstLengthForAll", "8 to 128 requests: the first length for all",
     "UpstreamEncoderLengths.BeforeTheFirstLengthForAllIsFoundInBothTables"},
    {k25045, "FirstLengthInReplays", "8 to 128 requests: in replays alone",
     "UpstreamEncoderLengths.BeforeTheFirstLengthForAllIsFoundInAReplay"},
    {k25045, "Garbled", "8 to 128 requests: how many read wrong keys",
     "UpstreamEncoderLengths.BeforeEveryRequestOfAnotherLengthReadsWrongKeys"},
    {k25045, "Mended", "8 to 128 requests: prompts and decodes",
     "UpstreamEncoderLengths.AfterEveryRequestReadsBehindItsOwnEncoder"},
    {k25045, "OneRequest", "one request, or equal lengths, show nothing",
     "UpstreamEncoder.TheFirstRequestIsAlwaysRightSoOneRequestOrEqualLengthsShowNothing"},
    {k25045, "WorkedExample", "encoders of 3 and 5 tokens",
     "UpstreamEncoder.TheWorkedExampleReadsTwoSlotsOfTheEncoder"},
};

/// How many tests go by this name; one with parameters as often as it has them.
int count_of(std::string_view test) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  const std::string_view wanted_suite = test.substr(0, test.find('.'));
  const std::string_view wanted = test.substr(test.find('.') + 1);
  int count = 0;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    const std::string_view name = suite.name();
    if (name.substr(name.rfind('/') + 1) != wanted_suite) continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string_view one = suite.GetTestInfo(t)->name();
      count += one.substr(0, one.find('/')) == wanted;
    }
  }
  return count;
}

class UpstreamSeeds : public ::testing::TestWithParam<SeedCase> {};

TEST_P(UpstreamSeeds, TheCaseHasATest) {
  EXPECT_GT(count_of(GetParam().test), 0) << GetParam().test;
}

INSTANTIATE_TEST_SUITE_P(Cases, UpstreamSeeds, ::testing::ValuesIn(kCases), [](const auto& c) {
  return std::string(c.param.report).replace(6, 1, "") + "_" + c.param.name;
});

TEST(UpstreamTables, TheSeedsCases) {
  int absent = 0, tests = 0;
  for (const SeedCase& c : kCases) {
    const int count = count_of(c.test);
    std::printf("%s  %-66s %3d  %s\n", c.report, c.says, count, c.test);
    absent += count == 0, tests += count;
  }
  std::printf("%d cases, %d tests, %d absent\n", static_cast<int>(std::size(kCases)), tests,
              absent);
  EXPECT_EQ(absent, 0);
}

}  // namespace
}  // namespace shadowgraph::seeds_table_test
