#include "campaign/ledger.h"

#include <gtest/gtest.h>

#include <set>

#include "campaign/campaign_json.h"
#include "toy.h"

namespace shadowgraph::ledger_test {
namespace {

namespace fs = std::filesystem;

/// A result that a range might have.
RangeResult result_of(const Campaign& campaign, uint64_t range) {
  return toy_run({}, campaign.most_of_a_law)(range_of(campaign, range), {}, [](uint64_t) {});
}

std::optional<Claim> claim(Ledger& ledger) {
  std::optional<Claim> claim;
  const Status status = ledger.claim(&claim);
  EXPECT_EQ(status.to_string(), "ok");
  return claim;
}

std::set<uint64_t> claim_all(Ledger& ledger) {
  std::set<uint64_t> ranges;
  while (const std::optional<Claim> c = claim(ledger)) {
    const bool is_new = ranges.insert(c->range).second;
    EXPECT_TRUE(is_new) << c->range;
    if (!is_new) break;
  }
  return ranges;
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> open_findings(const std::string& folder, const Campaign& campaign) {
  std::unique_ptr<Ledger> ledger;
  const Status status = Ledger::open(folder, campaign, &ledger);
  EXPECT_EQ(status.ok(), ledger != nullptr);
  std::vector<std::string> lines;
  for (const Finding& f : status.findings())
    lines.push_back(fmt::format("{} {}: {}, {}", f.id, f.where.field, f.expected, f.got));
  return lines;
}

TEST(Ledger, ARangeHasOneResult) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  const auto a = open_ledger(folder / "l", campaign), b = open_ledger(folder / "l", campaign);
  EXPECT_EQ(a->publish(2, result_of(campaign, 2)).to_string(), "ok");
  EXPECT_EQ(b->publish(2, result_of(campaign, 2)).to_string(), "ok");
  EXPECT_EQ(entries(folder / "l/seg/0/done"), std::vector<std::string>{"2.json"});
  EXPECT_EQ(difference(read(folder / "l/seg/0/done/2.json"), result_of(campaign, 2).body), "");
  EXPECT_EQ(a->state().done, 1u);
  EXPECT_EQ(collect(folder / "l").missing, (std::vector<uint64_t>{0, 1, 3}));
}

TEST(Ledger, ResultsThatDifferAreAFinding) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  const auto ledger = open_ledger(folder / "l", campaign);
  EXPECT_EQ(ledger->publish(1, result_of(campaign, 1)).to_string(), "ok");
  const Status second = ledger->publish(1, result_of(campaign, 2));
  ASSERT_EQ(second.findings().size(), 1u);
  EXPECT_EQ(second.findings()[0].id, "run.nondeterminism");
  EXPECT_EQ(difference(read(folder / "l/seg/0/done/1.json"), result_of(campaign, 1).body), "");
  EXPECT_EQ(difference(read(folder / "l/differs/1/kept.json"), result_of(campaign, 1).body), "");
  EXPECT_EQ(difference(read(folder / "l/differs/1/other.json"), result_of(campaign, 2).body), "");
  EXPECT_EQ(collect(folder / "l").findings.back(), "run.nondeterminism range 1");
}

TEST(Ledger, WorkersHaveDifferentRangesAndTogetherAll) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(601, 1);  // three segments
  const auto a = open_ledger(folder / "l", campaign), b = open_ledger(folder / "l", campaign);
  std::set<uint64_t> of_both;
  for (bool more = true; more;) {
    more = false;
    for (Ledger* ledger : {a.get(), b.get()}) {
      const std::optional<Claim> c = claim(*ledger);
      ASSERT_TRUE(!c || of_both.insert(c->range).second);
      more |= c.has_value();
    }
  }
  EXPECT_EQ(of_both.size(), 601u);
  EXPECT_EQ(*of_both.rbegin(), 600u);
}

TEST(Ledger, AStaleClaimIsTakenByOneWorker) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(3, 1);
  const auto lost = open_ledger(folder / "l", campaign), a = open_ledger(folder / "l", campaign),
             b = open_ledger(folder / "l", campaign);
  EXPECT_EQ(claim_all(*lost).size(), 3u);
  lost->beat(1, 1, false);
  age(folder / "l/seg/0/claim/1", campaign.stale_seconds + 1);
  const std::optional<Claim> taken = claim(*a);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->range, 1u);
  EXPECT_EQ(taken->deaths, 1u);
  EXPECT_FALSE(claim(*b));
  EXPECT_EQ(entries(folder / "l/seg/0/claim"), (std::vector<std::string>{"0", "1", "2"}));
  const std::vector<ClaimNote> notes = parse_notes(read(folder / "l/lost/1"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].at, 1u);
}

TEST(Ledger, AClaimThatIsYoungOrTouchedIsKept) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(2, 1);
  const auto owner = open_ledger(folder / "l", campaign),
             other = open_ledger(folder / "l", campaign);
  EXPECT_EQ(claim_all(*owner).size(), 2u);
  age(folder / "l/seg/0/claim/0", campaign.stale_seconds / 2);
  age(folder / "l/seg/0/claim/1", campaign.stale_seconds * 2);
  owner->beat(1, 1, false);
  EXPECT_FALSE(claim(*other));
  EXPECT_FALSE(fs::exists(folder / "l/lost"));
}

TEST(Ledger, ARangeThatIsGivenBackIsFree) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(2, 1);
  const auto a = open_ledger(folder / "l", campaign), b = open_ledger(folder / "l", campaign);
  EXPECT_EQ(claim_all(*a).size(), 2u);
  a->release(1);
  const std::optional<Claim> c = claim(*b);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->range, 1u);
  EXPECT_EQ(c->deaths, 0u);
}

TEST(Ledger, ARangeThatIsDoneMeanwhileIsNotHandedOut) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(2, 1);
  const auto a = open_ledger(folder / "l", campaign), b = open_ledger(folder / "l", campaign);
  const std::optional<Claim> first = claim(*a);  // which has seen that both are free
  ASSERT_TRUE(first);
  EXPECT_TRUE(b->publish(1 - first->range, result_of(campaign, 1 - first->range)).ok());
  EXPECT_FALSE(claim(*a));
  EXPECT_EQ(entries(folder / "l/seg/0/claim").size(), 1u);
}

TEST(Ledger, CasesThatLostThreeWorkersAreAllKnown) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(16, 16);
  const auto ledger = open_ledger(folder / "l", campaign);
  const std::vector<ClaimNote> notes = {{"a", 3, false}, {"b", 3, true}, {"c", 3, true},
                                        {"d", 3, true},  {"e", 9, true}, {"f", 9, true},
                                        {"g", 9, true},  {"h", 5, true}};
  std::string lines;
  for (const ClaimNote& note : notes) lines += to_json(note) + '\n';
  write(folder / "l/lost/0", lines + "half a li");
  const std::optional<Claim> c = claim(*ledger);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->deaths, 8u);
  EXPECT_EQ(c->deaths_alone, (std::map<uint64_t, uint64_t>{{3, 3}, {5, 1}, {9, 3}}));
}

TEST(Ledger, AnotherCampaignsLedgerIsRefusedWithEveryDifference) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  (void)open_ledger(folder / "l", campaign);
  EXPECT_TRUE(open_findings(folder / "l", campaign).empty());
  Campaign other = campaign;
  other.options = {{"verb", "fuzz"}, {"seed", "8"}, {"isa", "avx2"}};
  other.cases = 65, other.range = 8, other.most_of_a_law = 4;
  other.stale_seconds = 1.5, other.case_seconds = 2;
  const std::string as = ", as this ledger's campaign has it, ";
  EXPECT_EQ(open_findings(folder / "l", other),
            (std::vector<std::string>{
                "io.ledger case_seconds: 60" + as + "2", "io.ledger cases: 64" + as + "65",
                "io.ledger isa: none" + as + "avx2", "io.ledger max_findings: 3" + as + "4",
                "io.ledger range: 16" + as + "8", "io.ledger seed: 7" + as + "8",
                "io.ledger stale_seconds: 60" + as + "1.5"}));
}

TEST(Ledger, OptionsDifferWhereverTheyDo) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(64, 16);
  std::string plants;
  for (int i = 0; i < 100; ++i) plants += fmt::format(" --backend b{}", i);
  campaign.options.emplace_back("chosen", plants);
  (void)open_ledger(folder / "l", campaign);
  EXPECT_TRUE(open_findings(folder / "l", campaign).empty());
  campaign.options.back().second = plants + "b";
  const std::vector<std::string> found = open_findings(folder / "l", campaign);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("--backend b99, "), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("--backend b99b"), std::string::npos) << found[0];
  campaign.options.back().second = "none";  // is a text, too
  EXPECT_EQ(open_findings(folder / "l", campaign).size(), 1u);
}

TEST(Ledger, AFolderThatIsNoLedgerIsRefused) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  write(folder / "l/thesis.tex", "");
  const std::vector<std::string> found = open_findings(folder / "l", campaign);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("no run.json, but thesis.tex"), std::string::npos) << found[0];
  EXPECT_EQ(entries(folder / "l"), std::vector<std::string>{"thesis.tex"});
  EXPECT_NE(collect(folder / "l").status.find("io.ledger"), std::string::npos);
  EXPECT_NE(collect(folder / "nothing").status.find("io.ledger"), std::string::npos);
  write(folder / "file", "");
  EXPECT_EQ(open_findings(folder / "file", campaign).size(), 1u);
}

TEST(Ledger, ADamagedHeadIsRefusedWithEveryFault) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  (void)open_ledger(folder / "l", campaign);
  std::string text = read(folder / "l/run.json");
  for (const auto& [from, to] : {std::pair("\"range\": 16", "\"range\": 0"),
                                 std::pair("\"stale_seconds\": 60.0", "\"stale_seconds\": 0"),
                                 std::pair("\"corpus\": []", R"("corpus": ["../../etc/x"])")}) {
    ASSERT_NE(text.find(from), std::string::npos) << from << text;
    text.replace(text.find(from), std::string(from).size(), to);
  }
  write(folder / "l/run.json", text);
  EXPECT_EQ(open_findings(folder / "l", campaign).size(), 3u);
  write(folder / "l/run.json", text.substr(0, 40));
  EXPECT_EQ(open_findings(folder / "l", campaign).size(), 1u);
}

TEST(Ledger, ACorpusComesFirst) {
  const TemporaryFolder folder;
  Campaign campaign = toy_campaign(10, 4);
  for (const char* name : {"b.json", "a.json", "d.json", "c.json", "e.json", "note.txt", ".f.json"})
    write(folder / "l/corpus/num.bound/" + name, "bad");
  write(folder / "l/corpus/notes.json", "");  // is in no law's folder
  const auto ledger = open_ledger(folder / "l", campaign);
  const Campaign& kept = ledger->campaign();
  ASSERT_EQ(kept.corpus.size(), 5u);
  EXPECT_EQ(kept.corpus[0], "num.bound/a.json");
  EXPECT_EQ(kept.ranges(), 5u);
  const auto numbers = [&](uint64_t range) {
    const CampaignRange r = range_of(kept, range);
    return fmt::format("{} {} {}", r.corpus, r.first, r.count);
  };
  EXPECT_EQ(numbers(0), "true 0 4");
  EXPECT_EQ(numbers(1), "true 4 1");
  EXPECT_EQ(numbers(2), "false 0 4");
  EXPECT_EQ(numbers(4), "false 8 2");
  // A file that is added later is another campaign's.
  write(folder / "l/corpus/num.bound/f.json", "bad");
  EXPECT_EQ(open_ledger(folder / "l", campaign)->campaign().corpus.size(), 5u);
}

TEST(Ledger, AFailingCaseIsKeptByTheHashOfItsText) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(64, 16);
  const auto ledger = open_ledger(folder / "l", campaign);
  const RangeResult result{result_of(campaign, 0).body,
                           {{"num.bound", "a"}, {"num.bound", "foobar"}}};
  EXPECT_EQ(ledger->publish(0, result).to_string(), "ok");
  EXPECT_EQ(ledger->publish(0, result).to_string(), "ok");
  // FNV-1a's own examples
  EXPECT_EQ(entries(folder / "l/corpus/num.bound"),
            (std::vector<std::string>{"85944171f73967e8.json", "af63dc4c8601ec8c.json"}));
}

TEST(Ledger, ASegmentThatIsDoneIsOneFile) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(601, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  for (uint64_t range = 0; range < 601; ++range)
    ASSERT_TRUE(ledger->publish(range, result_of(campaign, range)).ok());
  EXPECT_EQ(entries(folder / "l/seg"), (std::vector<std::string>{"0.json", "1.json", "2.json"}));
  EXPECT_TRUE(ledger->state().complete());
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
  // One that comes late finds its range there.
  EXPECT_EQ(ledger->publish(300, result_of(campaign, 300)).to_string(), "ok");
  EXPECT_EQ(open_ledger(folder / "l", campaign)->publish(300, result_of(campaign, 300)).to_string(),
            "ok");
  EXPECT_TRUE(claim_all(*open_ledger(folder / "l", campaign)).empty());
  EXPECT_EQ(entries(folder / "l/seg"), (std::vector<std::string>{"0.json", "1.json", "2.json"}));
}

/// A worker may be lost between any two steps of joining a segment.
TEST(Ledger, ASegmentIsJoinedWhoeverWasLostOverIt) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(257, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  EXPECT_TRUE(ledger->publish(256, result_of(campaign, 256)).ok());
  for (uint64_t range = 0; range < 255; ++range)
    ASSERT_TRUE(ledger->publish(range, result_of(campaign, range)).ok());
  // Lost behind the last result, before it was joined
  write(folder / "l/seg/0/done/255.json", result_of(campaign, 255).body);
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
  EXPECT_FALSE(claim(*open_ledger(folder / "l", campaign)));
  EXPECT_EQ(entries(folder / "l/seg"), (std::vector<std::string>{"0.json", "1.json"}));
  // Lost behind joining, with results that were not removed
  write(folder / "l/seg/0/done/17.json", "half a resul");
  write(folder / "l/seg/0/claim/18", "");
  const auto next = open_ledger(folder / "l", campaign);
  EXPECT_EQ(next->state().done, 257u);
  EXPECT_FALSE(claim(*next));
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
  EXPECT_EQ(entries(folder / "l/seg"), (std::vector<std::string>{"0.json", "1.json"}));
}

TEST(Ledger, ADamagedResultIsSaidAndStopsNobody) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(4, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  EXPECT_TRUE(ledger->publish(0, result_of(campaign, 0)).ok());
  write(folder / "l/seg/0/done/0.json", "half a resul");
  const std::set<uint64_t> ranges = claim_all(*ledger);
  EXPECT_EQ(ranges, (std::set<uint64_t>{1, 2, 3}));
  for (const uint64_t range : ranges)
    EXPECT_TRUE(ledger->publish(range, result_of(campaign, range)).ok());
  EXPECT_NE(collect(folder / "l").status.find("seg/0/done/0.json"), std::string::npos);
  EXPECT_EQ(entries(folder / "l/seg/0/done").size(), 4u);
  // Who removes it has it run again.
  fs::remove(folder / "l/seg/0/done/0.json");
  const auto next = open_ledger(folder / "l", campaign);
  EXPECT_EQ(claim_all(*next), std::set<uint64_t>{0});
  EXPECT_TRUE(next->publish(0, result_of(campaign, 0)).ok());
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Ledger, ForeignNamesAreNoRanges) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(4, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  for (const char* name :
       {"seg/0/done/01.json", "seg/0/done/9.json", "seg/0/done/300.json", "seg/0/done/2.json~",
        "seg/0/done/.json", "seg/0/claim/0003", "seg/0/claim/4", "seg/00/done/1.json",
        "seg/7/done/1.json", "seg/7.json", "seg/notes", "lost/notes", "differs/notes"})
    write(folder / (std::string("l/") + name).c_str(), "");
  EXPECT_EQ(ledger->state().done, 0u);
  EXPECT_EQ(claim_all(*ledger), (std::set<uint64_t>{0, 1, 2, 3}));
  for (uint64_t range = 0; range < 4; ++range)
    EXPECT_TRUE(ledger->publish(range, result_of(campaign, range)).ok());
  EXPECT_TRUE(ledger->state().complete());
  EXPECT_EQ(difference(collect(folder / "l").body, whole(campaign)), "");
}

TEST(Ledger, ACampaignWithoutAnEndHasHoles) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(0, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  EXPECT_TRUE(collect(folder / "l").missing.empty());
  std::set<uint64_t> ranges;
  for (int i = 0; i < 300; ++i) ranges.insert(claim(*ledger)->range);
  EXPECT_EQ(ranges.size(), 300u);
  EXPECT_EQ(*ranges.rbegin(), 299u);
  for (const uint64_t hole : {7, 290, 299}) ranges.erase(hole);
  for (const uint64_t range : ranges)
    EXPECT_TRUE(ledger->publish(range, result_of(campaign, range)).ok());
  EXPECT_EQ(collect(folder / "l").missing, (std::vector<uint64_t>{7, 290}));
  EXPECT_FALSE(ledger->state().complete());
  EXPECT_EQ(ledger->state().done, 297u);
  EXPECT_TRUE(ledger->publish(7, result_of(campaign, 7)).ok());
  EXPECT_TRUE(fs::exists(folder / "l/seg/0.json"));
  EXPECT_EQ(ledger->state().done, 298u);
  EXPECT_EQ(collect(folder / "l").missing, std::vector<uint64_t>{290});
  EXPECT_EQ(claim(*open_ledger(folder / "l", campaign))->range, 300u);
}

TEST(Ledger, ALedgerThatIsGoneIsNotBegunByHalf) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(4, 1);
  const auto ledger = open_ledger(folder / "l", campaign);
  EXPECT_TRUE(claim(*ledger));
  fs::remove_all(folder / "l");
  std::optional<Claim> c;
  for (int i = 0; i < 5; ++i) (void)ledger->claim(&c);
  EXPECT_FALSE(ledger->claim(&c).ok());
  EXPECT_FALSE(ledger->publish(0, {result_of(campaign, 0).body, {{"num.bound", "a"}}}).ok());
  EXPECT_FALSE(fs::exists(folder / "l"));
}

TEST(Ledger, ALedgerThatIsBegunAnewTakesNothingOfTheOldCampaign) {
  const TemporaryFolder folder;
  const Campaign campaign = toy_campaign(4, 1);
  const auto old = open_ledger(folder / "l", campaign);
  EXPECT_TRUE(claim(*old));
  fs::remove_all(folder / "l");
  Campaign other = campaign;
  other.options[1].second = "8";
  const auto ledger = open_ledger(folder / "l", other);
  EXPECT_EQ(claim_all(*ledger).size(), 4u);
  const Status status = old->publish(0, {result_of(campaign, 0).body, {{"num.bound", "a"}}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "io.ledger");
  EXPECT_FALSE(fs::exists(folder / "l/corpus"));
  EXPECT_TRUE(entries(folder / "l/seg/0/done").empty());
}

TEST(Campaign, MessagesAreReadAsTheyWerePacked) {
  const RangeResult result{std::string("a\0b", 3), {{"law", ""}, {"", "text"}}};
  const RangeResult back = unpacked(packed(result));
  EXPECT_EQ(back.body, result.body);
  EXPECT_EQ(back.failures, result.failures);
  const std::string bytes = packed(result);
  for (size_t size = 0; size < bytes.size(); ++size)  // cut anywhere: no text that was not there
    EXPECT_TRUE(result.body.starts_with(unpacked(bytes.substr(0, size)).body));
}

TEST(Campaign, ItsHeadIsReadAsItWasWritten) {
  Campaign campaign = toy_campaign(0, 5), back;
  campaign.options.emplace_back("chosen", "\"\\\n");
  campaign.corpus = {"num.bound/a.json"};
  ASSERT_TRUE(parse_campaign(to_json(campaign), "run.json", &back).ok());
  EXPECT_TRUE(compare(campaign, back, "").ok());
  EXPECT_EQ(back.corpus, campaign.corpus);
}

}  // namespace
}  // namespace shadowgraph::ledger_test
