#include "campaign.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "campaign/ledger.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

/// The words that say which ranges a worker's verdict is of.
std::string state_of(const WorkerResult& result, const std::string& ledger) {
  const bool endless = result.campaign.ranges == 0, complete = result.campaign.complete();
  return fmt::format(
      "this is the verdict on {} range{} that this worker ran; {}{}: `shadowgraph merge-reports "
      "{}{}` has the campaign's",
      result.ranges, result.ranges == 1 ? "" : "s",
      endless    ? ""
      : complete ? "complete, "
                 : "incomplete, ",
      text_of(result.campaign), shell_word(ledger), endless || complete ? "" : " --partial");
}

/// So much of all ranges, or of the time.
double share_done(const WorkerProgress& p, double seconds, double of_seconds) {
  const double of_time = of_seconds > 0 ? seconds / of_seconds : 0;
  if (p.campaign.ranges == 0) return of_time;
  return std::max(of_time,
                  static_cast<double>(p.campaign.done) / static_cast<double>(p.campaign.ranges));
}

}  // namespace

Report refusal(const Status& status, const Common& common, const VerbCampaign& verb) {
  Report report = start_report(verb.verb(), common);
  report.bad_input = true;
  report.findings.assign(status.findings().begin(), status.findings().end());
  return report;
}

std::string text_of(const QueueState& state) {
  if (state.ranges == 0) return fmt::format("{} ranges are done", state.done);
  return fmt::format("{} of {} ranges are done", state.done, state.ranges);
}

Option add_campaign(Command& command, CampaignOptions& options) {
  command.number(
      "--range", options.range, uint64_t{1}, uint64_t{1} << 32,
      fmt::format("With --ledger: cases of a range, which a worker takes at once "
                  "(default {})",
                  options.range > 0 ? std::to_string(options.range) : "128, of grids more"));
  command.number("--stale-seconds", options.stale_seconds, 0.1, 1e6,
                 "With --ledger: a worker that gives no sign for so long is lost, and others take "
                 "its ranges (default 60)");
  command.number("--case-seconds", options.case_seconds, 0.1, 1e6,
                 fmt::format("With --ledger: a case that takes longer is a finding (default {})",
                             options.case_seconds));
  const auto name_ledger = [&options](const std::string& folder) {
    if (folder.empty()) throw BadValue("the folder has no name");
    options.ledger = folder;
    while (options.ledger.size() > 1 && options.ledger.ends_with('/')) options.ledger.pop_back();
  };
  return command.parsed(
      "--ledger", name_ledger,
      "Work on the campaign whose ledger is this folder, with any number of other "
      "processes; the first one begins it. `shadowgraph merge-reports DIR` has its "
      "verdict",
      "DIR");
}

VerbCampaign start_campaign(const std::string& verb, const Common& common,
                            const CampaignOptions& options) {
  VerbCampaign v;
  Campaign& c = v.campaign;
  const Report head = start_report(verb, common);
  c.options = {{"verb", verb},
               {"version", head.version},
               {"seed", std::to_string(common.seed)},
               {"arith", head.arith}};
  // Portable results are the same on every instruction set.
  if (common.arith == Arith::kFast || !common.isa.empty()) c.options.emplace_back("isa", head.isa);
  if (options.range > 0) c.range = options.range;
  c.most_of_a_law = options.max_findings;
  c.stale_seconds = options.stale_seconds, c.case_seconds = options.case_seconds;
  return v;
}

void name_corpus(const std::string& ledger, Report* report) {
  constexpr std::string_view kReplay = "shadowgraph replay ", kCorpus = "corpus/";
  for (Finding& f : report->findings) {
    if (f.reproduce.starts_with(std::string(kReplay) + std::string(kCorpus)))
      f.reproduce.insert(kReplay.size(), shell_word(ledger) + '/');
  }
}

int run_on_ledger(const Common& common, const CampaignOptions& options, const VerbCampaign& verb) {
  std::unique_ptr<Ledger> ledger;
  const Status status = Ledger::open(options.ledger, verb.campaign, &ledger);
  if (!status.ok()) return finish(refusal(status, common, verb), common);
  return run_on_queue(*ledger, common, options.ledger, verb);
}

int run_on_queue(Queue& queue, const Common& common, const std::string& ledger,
                 const VerbCampaign& verb) {
  catch_interrupts();
  WorkerOptions worker;
  worker.children = common.num_threads();
  worker.seconds = verb.seconds;
  worker.head = start_report(verb.verb(), common);
  worker.name = verb.name, worker.reproduce = verb.reproduce;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  WorkerResult result;
  {
    Progress progress(common, "cases");
    result = run_worker(
        queue, verb.run, worker,
        [&](const WorkerProgress& p) {
          progress.update(share_done(p, seconds(), verb.seconds), static_cast<int64_t>(p.cases),
                          static_cast<int64_t>(p.findings));
        },
        interrupted());
  }
  Report& report = result.report;
  report.isa = worker.head.isa, report.threads = worker.head.threads;
  report.interrupted = interrupted();
  report.seconds = seconds();
  name_corpus(ledger, &report);
  report.warnings.push_back(state_of(result, ledger));
  for (const Finding& f : std::as_const(result.trouble).findings()) report.findings.push_back(f);
  const int code = finish(report, common);
  return result.trouble.ok() ? code : kInternal;
}

}  // namespace shadowgraph::cli
