// Random calls and histories: a run of them, and a campaign's part.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "fuzz/file/call_file.h"
#include "fuzz/file/history_file.h"
#include "fuzz_command.h"
#include "fuzz_tables.h"
#include "io/file.h"
#include "report/parts.h"

namespace shadowgraph::cli {
namespace {

/// The runs whose laws are judged.
std::vector<std::string_view> laws_of(const Chosen& chosen) {
  std::vector<std::string_view> runs;
  if (!chosen.backends.empty()) runs.emplace_back("histories");
  if (chosen.kernels) runs.emplace_back("calls");
  return runs;
}

/// The share of the time or of the cases, whichever ends first.
double share_done(const FuzzOptions& fuzz, const FuzzProgress& p) {
  const double of_time = fuzz.seconds > 0 ? p.seconds / fuzz.seconds : 0;
  const double cases = static_cast<double>(fuzz.cases) / static_cast<double>(fuzz.shard.count);
  return std::max(of_time, fuzz.cases > 0 ? static_cast<double>(p.cases) / cases : 0);
}

std::string nothing_ran(const FuzzCommand& options) {
  return range_of(options).size() > 0 ? "--seconds: too short for one case"
                                      : std::string(kNotOfShard);
}

/// Runs of the same options have these in common.
FuzzOptions fuzz_options(const FuzzCommand& options, const Chosen& chosen, const Planted& planted,
                         Gpu& gpu) {
  FuzzOptions fuzz;
  fuzz.seed = options.common.seed;
  fuzz.run = run_options(options, gpu.calls());
  fuzz.kernels = chosen.kernels;
  fuzz.histories.backends = chosen.backends;
  fuzz.counted_tap = planted.tap();
  fuzz.histories.tap = Planted(chosen.faults).tap();
  fuzz.histories.make_device = gpu.make_device();
  fuzz.histories.flags = chosen.flags + (gpu.calls() != nullptr ? " --device cuda" : "");
  fuzz.histories.refs = chosen.refs;
  return fuzz;
}

/// Adds what came of a run; nothing is concluded.
void add_result(const FuzzResult& result, const Chosen& chosen, const Planted& planted,
                Report* report) {
  report->cases = static_cast<int64_t>(result.cases);
  report->skipped = static_cast<int64_t>(result.skipped);
  report->seconds = result.seconds;
  report->unlisted = static_cast<int64_t>(result.unlisted);
  report->findings.assign(result.findings.findings().begin(), result.findings.findings().end());
  for (const auto& [name, cases] : result.coverage)
    report->coverage.push_back(coverage_of(name, cases));
  report->add_laws(result.laws, laws_of(chosen));
  report->features = result.features, report->parameters = result.parameters;
  for (const auto& [kind, met] : result.pairs)
    report->pairs[kind] = {static_cast<int64_t>(met.size()), met, {}};
  count_plants(planted, result.unnoticed.has_value(), report);
  const FuzzHistograms& h = result.histograms;
  if (chosen.kernels)
    report->histograms = {// by name, as a report that is read has them
                          histogram_of("head_dim", h.head_dim, {1, 16, 32, 64, 128}),
                          histogram_of("keys", h.keys, {0, 1, 16, 64, 128, 192, 256, 512, 1024}),
                          histogram_of("requests", h.requests, {1, 2, 3, 4, 5})};
}

/// Each history or call that failed, as a case file.
struct FailureFile {
  std::string law, text;
  std::string flags;  // to replay it
};

std::vector<FailureFile> failures_of(const FuzzResult& result, const FuzzCommand& options,
                                     const Chosen& chosen) {
  std::vector<FailureFile> files;
  for (const auto& [law, choices] : result.failures) {
    HistoryCase x = case_of(choices, chosen.backends, Planted(chosen.faults).tap());
    x.plants = options.plants;
    files.push_back({law, to_json(x), ""});
  }
  const RunOptions run = run_options(options);
  for (const auto& [law, choices] : result.call_failures)
    files.push_back({law, to_json(call_of(choices, run)), run.flags()});
  return files;
}

/// A file of a corpus, as it runs with this campaign's faults, whatever its own are.
void play(const CaseFile& file, const FuzzCommand& options, const Chosen& chosen,
          const Planted& planted, Report* report) {
  Status status;
  std::string what;
  if (is_call(file.text)) {
    CallCase call;
    status = parse_call(file.text, file.path, &call);
    what = status.ok() ? ": " + call.x.to_string() : "";
    if (status.ok()) status = check_case(call.x, run_options(options));
  } else {
    HistoryCase history;
    const MakeTap make_tap = planted.tap();
    const std::unique_ptr<Tap> tap = make_tap ? make_tap() : nullptr;
    status = parse_case(file.text, file.path, &history);
    what = status.ok() ? ": " + history.history.to_string() : "";
    if (status.ok()) status = run_case(history, tap.get());
  }
  ++report->cases;
  for (Finding& f : status.findings()) {
    f.case_id = "corpus/" + file.path + what;
    add_refs(chosen.refs, &f);
    f.reproduce =
        "shadowgraph replay corpus/" + file.path + chosen.plants + options.common.reproduce_flags();
    report->findings.push_back(std::move(f));
  }
}

}  // namespace

void save_failures(const FuzzResult& result, const FuzzCommand& options, const Chosen& chosen,
                   Report* report) {
  if (options.save_failures.empty()) return;
  std::map<std::string, int> saved;
  for (const FailureFile& file : failures_of(result, options, chosen)) {
    const std::string path =
        fmt::format("{}/{}-{}.json", options.save_failures, file.law, ++saved[file.law]);
    Status status = write_file(path, std::as_bytes(std::span(file.text)));
    for (Finding& f : status.findings()) report->findings.push_back(std::move(f));
    if (status.ok())
      report->warnings.push_back("saved " + path + ": `shadowgraph replay " + path + file.flags +
                                 "`");
  }
}

int run_random(const FuzzCommand& options, const Chosen& chosen) {
  const Planted planted(chosen.faults);
  Gpu gpu(options.device);
  FuzzOptions fuzz = fuzz_options(options, chosen, planted, gpu);
  fuzz.first = options.first;
  fuzz.cases = options.cases;
  fuzz.shard = options.shard;
  fuzz.seconds = options.cases != 0 && !options.seconds_given ? 0 : options.seconds;
  fuzz.threads = options.common.num_threads();
  fuzz.max_findings = options.common.max_findings;
  fuzz.digest = !options.digest.empty();

  catch_interrupts();
  Report report = begin_report(options);
  if (options.first_given && options.cases > 0 && options.shard.count == 1)
    report.range = RangeSet{{{fuzz.first, fuzz.first + fuzz.cases - 1}}}.to_string();
  FuzzResult result;
  {
    Progress progress(options.common, "cases");
    result = run_fuzz(
        fuzz,
        [&](const FuzzProgress& p) {
          progress.update(share_done(fuzz, p), static_cast<int64_t>(p.cases),
                          static_cast<int64_t>(p.findings));
        },
        interrupted());
  }
  report.interrupted = interrupted();
  add_result(result, chosen, planted, &report);
  save_digest(options, result.runs, &report);
  conclude(result.skipped > 0 ? std::string(kNoStep) : nothing_ran(options), kMoreCases, &report);
  save_failures(result, options, chosen, &report);
  return finish(report, options.common);
}

VerbCampaign random_campaign(const FuzzCommand& options, const Chosen& chosen) {
  VerbCampaign v = start_campaign("fuzz", options.common, options.campaign);
  const std::string device = options.device == DeviceKind::kCuda ? " --device cuda" : "";
  v.campaign.options.emplace_back("first", std::to_string(options.first));
  v.campaign.options.emplace_back("chosen", chosen.flags + device);
  v.campaign.cases = options.cases;
  v.seconds = options.cases != 0 && !options.seconds_given ? 0 : options.seconds;
  v.name = [options](const CampaignRange& range) {
    return fmt::format("seed {} case {}", options.common.seed, options.first + range.first);
  };
  v.reproduce = [options, chosen, device](const CampaignRange& range) {
    return fmt::format("shadowgraph fuzz --seed {} --first {} --cases {} --threads 1{}{}{}",
                       options.common.seed, options.first + range.first, range.count, chosen.flags,
                       device, options.common.reproduce_flags());
  };
  v.run = [options, chosen](const CampaignRange& range, std::span<const CaseFile> files,
                            const std::function<void(uint64_t)>& at) {
    const Planted planted(chosen.faults);
    Report report = start_report("fuzz", options.common);
    RangeResult result;
    for (size_t i = 0; i < files.size(); ++i) {
      at(range.first + i);
      play(files[i], options, chosen, planted, &report);
    }
    if (!range.corpus) {
      Gpu gpu(options.device);
      FuzzOptions fuzz = fuzz_options(options, chosen, planted, gpu);
      fuzz.first = options.first + range.first, fuzz.cases = range.count;
      fuzz.threads = 1;
      fuzz.histories.shrink = kSameEverywhere;
      fuzz.max_findings = 0, fuzz.most_of_a_law = options.campaign.max_findings;
      fuzz.starts = [&](uint64_t number) { at(number - options.first); };
      const FuzzResult cases = run_fuzz(fuzz, {}, kNeverStopped);
      add_result(cases, chosen, planted, &report);
      for (FailureFile& file : failures_of(cases, options, chosen))
        result.failures.emplace_back(std::move(file.law), std::move(file.text));
    }
    result.body = body_of(std::move(report), options.campaign.max_findings);
    return result;
  };
  return v;
}

}  // namespace shadowgraph::cli
