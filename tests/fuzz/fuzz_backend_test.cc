// A backend that no list has is judged as the twins are: clean as it is, found with a slip or a
// planted fault in it.
#include "shadowgraph/fuzz_backend.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "../../examples/external_backend/paged_engine.h"
#include "core/choices.h"

namespace shadowgraph::testing::fuzz_backend_test {
namespace {

using my_engine::PagedEngine, my_engine::Slip;

BackendFuzzOptions few(uint64_t histories = 60) {
  BackendFuzzOptions options;
  options.histories = histories;
  options.command = "my_test";
  return options;
}

std::string first_law(const Status& status) {
  return status.ok() ? "" : status.findings().front().id;
}

TEST(FuzzBackend, ABackendThatNoListHasIsPlayedEagerlyAndInReplays) {
  ASSERT_EQ(find_backend("paged_engine"), nullptr);
  BackendFuzzCounts counts;
  const Status status = fuzz_backend(PagedEngine(), few(), &counts);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_EQ(counts.histories + counts.skipped, 60u);
  EXPECT_GT(counts.steps["decode eager"], 0);
  EXPECT_EQ(counts.steps["decode replay"], counts.steps["decode eager"]);
  EXPECT_GT(counts.steps["extend eager"], 0);
  EXPECT_EQ(counts.faults, "");
}

TEST(FuzzBackend, ASlipIsFoundAndItsChoicesRepeatIt) {
  struct Found {
    Slip slip;
    const char *law, *field;
  };
  for (const Found& found :
       {Found{Slip::kStaleTable, "table.slot", "decode_1_1_0/page_table"},
        Found{Slip::kPrefixLengths, "len.kv_extent", "decode_1_1_0/kv_lens"}}) {
    const PagedEngine backend(found.slip);
    const Status status = fuzz_backend(backend, few());
    ASSERT_EQ(first_law(status), found.law);
    const Finding first = status.findings().front();
    EXPECT_EQ(first.where.field, found.field);
    EXPECT_EQ(first.where.backend, "paged_engine");
    EXPECT_EQ(first.where.phase, "replay");
    for (const Finding& f : status.findings()) EXPECT_EQ(f.case_id, first.case_id);
    const std::string variable = "SHADOWGRAPH_CHOICES=", command = " my_test";
    ASSERT_TRUE(first.reproduce.starts_with(variable)) << first.reproduce;
    ASSERT_TRUE(first.reproduce.ends_with(command)) << first.reproduce;
    BackendFuzzOptions again = few();
    again.choices = first.reproduce.substr(
        variable.size(), first.reproduce.size() - variable.size() - command.size());
    const Status repeated = fuzz_backend(backend, again);
    ASSERT_EQ(first_law(repeated), found.law);
    EXPECT_EQ(repeated.findings().front().where.field, found.field);
    EXPECT_TRUE(repeated.findings().front().reproduce.ends_with(command));
    EXPECT_EQ(fuzz_backend(PagedEngine(), again).to_string(), "ok");
  }
}

TEST(FuzzBackend, FaultsThatEnginesShippedAreFoundInIt) {
  for (const char* id : {"K08", "K48"}) {
    BackendFuzzOptions options = few();
    options.faults = {id};
    BackendFuzzCounts counts;
    const Status status = fuzz_backend(PagedEngine(), options, &counts);
    ASSERT_FALSE(status.ok()) << id;
    EXPECT_EQ(counts.faults, "found");
    EXPECT_NE(std::ranges::find(status.findings().front().refs, id),
              status.findings().front().refs.end());
  }
}

TEST(FuzzBackend, AHistoryHasNoMoreStepsThanTheOptionsSay) {
  BackendFuzzOptions options = few(20);
  options.steps = 1;
  BackendFuzzCounts counts;
  (void)fuzz_backend(PagedEngine(), options, &counts);
  int64_t eager = 0;
  for (const auto& [name, steps] : counts.steps) eager += name.ends_with(" replay") ? 0 : steps;
  EXPECT_LE(eager, 20);
}

/// Passes a backend on, but for what it says of itself.
class Changed : public PagedEngine {
 public:
  explicit Changed(const BackendInfo& info) : info_(info) {}
  const BackendInfo& info() const override { return info_; }

 private:
  BackendInfo info_;
};

TEST(FuzzBackend, OptionsThatThereAreNotAreFindings) {
  BackendFuzzOptions options;
  options.histories = 0, options.steps = 0, options.faults = {"mine"};
  BackendInfo info;
  EXPECT_EQ(fuzz_backend(Changed(info), options).to_string(),
            "test.options: info.name is none, expected a name\n"
            "test.options: info.modes is none, expected a mode\n"
            "test.options: histories is neither, expected histories, or seconds\n"
            "test.options: steps is 0, expected >= 1\n"
            "test.options: faults is mine, expected ids of `shadowgraph list "
            "faults`");
  options = few();
  options.choices = "1.x";
  EXPECT_EQ(first_law(fuzz_backend(PagedEngine(), options)), "test.options");
}

/// Without a verify there are no drafts.
TEST(FuzzBackend, AModeThatNoHistoryHadIsAFinding) {
  static constexpr ForwardMode kModes[] = {ForwardMode::kDecode, ForwardMode::kExtend,
                                           ForwardMode::kDraftExtend};
  BackendInfo info = PagedEngine().info();
  info.modes = kModes;
  EXPECT_EQ(fuzz_backend(Changed(info), few(20)).to_string(),
            "test.nothing: info.modes is none, expected a step of draft_extend");
}

class Throws final : public PagedEngine {
 public:
  Status fill(const ForwardBatch& /*batch*/, Meta& /*meta*/) const override {
    throw std::runtime_error("not written yet");
  }
};

TEST(FuzzBackend, AnExceptionIsAFinding) {
  const Status status = fuzz_backend(Throws(), few());
  ASSERT_EQ(first_law(status), "test.exception");
  EXPECT_EQ(status.findings().front().got, "not written yet");
}

Progress look_away(LaunchFrame& /*frame*/) { return Progress::kDone; }
void look(const LaunchFrame& frame, Footprint* spans) {
  spans->push_back({frame.pointer<void>(0), 0, frame.scalar<int64_t>(1), 4, Access::kRead, -1});
}
constexpr Kernel kLook{.name = "look", .body = look_away, .footprint = look};

/// Has a buffer without a role, and a kernel that reads it and does nothing with it.
class Unjudged final : public PagedEngine {
 public:
  explicit Unjudged(bool reads) : reads_(reads) {}
  Status bind(const Arena& arena, const Limits& limits, Meta* meta) const override {
    Status status = PagedEngine::bind(arena, limits, meta);
    const BufferSpec spec{
        .name = "pool_rows", .shape = {limits.rows}, .lifetime = Lifetime::kPerStep};
    std::vector<Buffer> more;
    if (status.ok()) status = meta->arena.bind({&spec, 1}, &more);
    if (status.ok()) meta->buffers.push_back(more[0]), meta->units.push_back(0);
    return status;
  }
  Status fill(const ForwardBatch& batch, Meta& meta) const override {
    Status status = PagedEngine::fill(batch, meta);
    std::span<int32_t> rows;
    const Buffer& b = meta.buffers.back();
    meta.arena.begin_fill(b);
    status.add(meta.arena.stage(b, b.all(), &rows));
    std::ranges::fill(rows, 0);
    return status;
  }
  void forward(Stream& stream, const Meta& meta, const StepIo& step) const override {
    KernelLaunch launch;
    launch.kernel = &kLook;
    launch.args.pointer(meta.buffers.back().data).scalar(meta.buffers.back().numel());
    if (reads_) stream.launch(launch);
    PagedEngine::forward(stream, meta, step);
  }

 private:
  bool reads_;
};

/// K10 changes buffers of this name.
TEST(FuzzBackend, AFaultIsMissedWhereALaunchReadsItAndInertWhereNoneDoes) {
  BackendFuzzOptions options = few();
  options.faults = {"K10"};
  BackendFuzzCounts counts;
  const Status missed = fuzz_backend(Unjudged(true), options, &counts);
  EXPECT_EQ(counts.faults, "missed");
  ASSERT_EQ(first_law(missed), "fault.missed") << missed.to_string();
  EXPECT_TRUE(missed.findings().front().reproduce.starts_with("SHADOWGRAPH_CHOICES="));
  const Status inert = fuzz_backend(Unjudged(false), options, &counts);
  EXPECT_EQ(inert.to_string(), "ok");
  EXPECT_EQ(counts.faults, "inert");
  EXPECT_EQ(fuzz_backend(PagedEngine(), options, &counts).to_string(), "ok");
  EXPECT_EQ(counts.faults, "never acted");
}

}  // namespace
}  // namespace shadowgraph::testing::fuzz_backend_test
