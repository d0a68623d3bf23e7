// Two runs of one history hold the same, step by step; where they do not, the first step and field
// that differ are named.
#include "fuzz/file/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "faults/plant.h"
#include "fuzz/fuzz.h"
#include "fuzz/history/history_pairs.h"

namespace shadowgraph::run_record_test {
namespace {

std::vector<const Backend*> everyone() {
  const auto all = all_backends();
  return {all.begin(), all.end()};
}

std::string digest_of(uint64_t seed, int threads) {
  FuzzOptions options;
  options.seed = seed, options.cases = 60, options.threads = threads;
  options.kernels = false, options.digest = true;
  options.histories.backends = everyone();
  return to_digest(run_fuzz(options, {}, false).runs);
}

TEST(RunRecord, OfOneSeedIsTheSameOnAnyNumberOfThreads) {
  const std::string once = digest_of(3, 1);
  EXPECT_EQ(once, digest_of(3, 2));
  EXPECT_NE(once, digest_of(4, 1));
  EXPECT_EQ(std::ranges::count(once, '\n') > 600, true);
}

/// A history of a backend that runs all its steps, and its choices.
struct Made {
  ChoiceSequence choices;
  std::vector<size_t> begins;  // of steps, among the choices
  RunRecord run;
};
Made made_of(std::span<const Backend* const> backends, Choices choices) {
  Made made;
  const History h = generate_history(choices, backends);
  Choices again = choices;
  run_history(h, again, {}, nullptr, [&] {
    made.begins.push_back(again.made().size());
    return false;
  });
  record_history(h, choices, {}, &made.run);
  made.choices = choices.made();
  return made;
}

TEST(RunRecord, AChoiceThatChangesShowsInItsStepOrBehindItNeverBefore) {
  const Backend* fa[] = {find_backend("flashattention")};
  int in_its_step = 0;
  for (uint64_t number = 0; number < 6; ++number) {
    const Made made = made_of(fa, history_choices(5, number, fa));
    for (size_t i = made.begins[0]; i < made.choices.size(); i += 3) {
      ChoiceSequence other = made.choices;
      other[i] = other[i] == 0 ? 1 : 0;
      const auto d = first_difference(made.run.steps, made_of(fa, Choices(other)).run.steps);
      if (!d) continue;
      const auto behind = std::ranges::upper_bound(made.begins, i);
      const auto step = static_cast<size_t>(behind - made.begins.begin()) - 1;
      EXPECT_GE(d->step, step) << number << " choice " << i << ": " << d->field;
      in_its_step += d->step == step;
    }
  }
  EXPECT_GT(in_its_step, 20);
}

/// Changes an element of a table once: in the eager run of one of the steps that have one.
class OneSlip final : public Tap {
 public:
  explicit OneSlip(int step) : step_(step) {}
  void bound(Meta& /*meta*/, bool capturing) override { eager_ = !capturing; }
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    if (!std::exchange(eager_, false)) return {};
    for_buffers(meta, {"page_table"}, [&](const Meta& m, const Buffer& b) {
      const std::span<int32_t> table = staged<int32_t>(m, b);
      if (table.empty() || steps_++ != step_) return;
      table[0] += 1;
      act();
    });
    return {};
  }

 private:
  int step_, steps_ = 0;
  bool eager_ = false;
};

HistoryCase some_case(uint64_t number) {
  const Backend* fa[] = {find_backend("flashattention")};
  Choices choices = history_choices(5, number, fa);
  generate_history(choices, fa);
  Choices whole = history_choices(5, number, fa);
  const History h = generate_history(whole, fa);
  run_history(h, whole, {});
  return case_of(whole.made(), fa, {});
}

TEST(RunRecord, ASlipIsNamedByItsStepItsFieldAndItsElement) {
  int seen = 0;
  for (uint64_t number = 0; number < 16; ++number) {
    const HistoryCase x = some_case(number);
    RunRecord clean;
    ASSERT_TRUE(record_case(x, {}, &clean).ok());
    for (int ran = 0; ran < 4; ++ran) {
      // The slip counts the steps that the backend runs.
      size_t step = 0;
      for (int left = ran; step < x.steps.size(); ++step) {
        const auto& fields = clean.steps[step].fields;
        const bool runs = std::ranges::any_of(
            fields, [](const FieldRecord& f) { return f.name == "eager page_table"; });
        if (runs && left-- == 0) break;
      }
      if (step == x.steps.size()) break;
      RunRecord slipped;
      (void)record_case(
          x, [&] { return std::make_unique<OneSlip>(ran); }, &slipped);
      const auto d = first_difference(clean.steps, slipped.steps);
      if (!d) continue;  // it had no table
      EXPECT_EQ(d->step, step) << number;
      EXPECT_EQ(d->field, "eager page_table");
      EXPECT_EQ(d->place, "[0, 0]");
      EXPECT_EQ(std::stoi(d->others), std::stoi(d->mine) + 1);
      ++seen;
    }
  }
  EXPECT_GT(seen, 15);
}

TEST(RunRecord, ABookOfContentsAndOutputsAreFieldsOfTheirOwn) {
  const HistoryCase x = some_case(1);
  RunRecord clean;
  ASSERT_TRUE(record_case(x, {}, &clean).ok());
  for (size_t k = 0; k < x.steps.size(); ++k) {
    HistoryCase other = x;
    if (other.steps[k].chains.fresh.empty()) continue;
    other.steps[k].chains.fresh[0] ^= 1;
    RunRecord run;
    (void)record_case(other, {}, &run);
    const auto d = first_difference(clean.steps, run.steps);
    ASSERT_TRUE(d);
    EXPECT_EQ(d->step, k);
    EXPECT_EQ(d->field, "chains.fresh");
    EXPECT_EQ(d->place, "[0]");
  }
  HistoryCase other = x;
  other.history.runner.seed += 1;
  RunRecord run;
  ASSERT_TRUE(record_case(other, {}, &run).ok());
  const auto d = first_difference(clean.steps, run.steps);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->field, "eager out of layer 0");
  EXPECT_NE(d->mine, d->others);
}

/// A history as it is generated, and the same one from a file.
TEST(RunRecord, AFileRunsAsTheHistoryThatItWasMadeOf) {
  const auto backends = everyone();
  for (uint64_t number = 0; number < 120; ++number) {
    const Made made = made_of(backends, history_choices(7, number, backends));
    RunRecord replayed;
    const HistoryCase x = case_of(made.choices, backends, {});
    EXPECT_TRUE(record_case(x, {}, &replayed).ok());
    EXPECT_EQ(replayed.choices, made.choices);
    const auto d = first_difference(made.run.steps, replayed.steps);
    EXPECT_FALSE(d) << number << " step " << d->step << " " << d->field << ": " << d->mine << ", "
                    << d->others;
  }
}

TEST(RunRecord, ADigestIsReadAsItWasWritten) {
  const HistoryCase x = some_case(2);
  RunRecord run;
  ASSERT_TRUE(record_case(x, {}, &run).ok());
  run.what = "seed 5 case 2";
  const std::string text = to_digest({&run, 1});
  std::vector<RunRecord> read;
  ASSERT_TRUE(parse_digest(text, "a.txt", &read).ok());
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].choices, run.choices);
  EXPECT_EQ(read[0].what, run.what);
  EXPECT_EQ(to_digest(read), text);
  EXPECT_FALSE(first_difference(run.steps, read[0].steps));
  read[0].steps[1].fields[2].hash ^= 1;
  const auto d = first_difference(run.steps, read[0].steps);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->step, 1u);
  EXPECT_EQ(d->field, run.steps[1].fields[2].name);
  EXPECT_EQ(d->place, "");
  EXPECT_TRUE(d->mine.starts_with("hash "));
  read[0].steps.pop_back();
  read[0].steps[1].fields[2].hash ^= 1;
  EXPECT_EQ(first_difference(run.steps, read[0].steps)->field, "steps");
}

TEST(RunRecord, WhatIsNoDigestIsRefusedWithItsLine) {
  const std::string head = "shadowgraph.digest/1 1\n";
  const std::string step = "step 1 0123456789abcdef decode\n";
  for (const std::string& bad :
       {std::string("shadowgraph.case/1\n"), head + step, head + "history 1.x\n",
        head + "history 1.2\nstep 1 0123 decode\n",
        head + "history 1.2\n  0123456789abcdef seq_lens\n",
        head + "history 1.2\n" + step + "  g123456789abcdef seq_lens\n", head + "other\n"}) {
    std::vector<RunRecord> runs(3);
    const Status status = parse_digest(bad, "a.txt", &runs);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_EQ(std::as_const(status).findings()[0].id, "io.kind");
    EXPECT_EQ(runs.size(), 3u);
  }
}

}  // namespace
}  // namespace shadowgraph::run_record_test
