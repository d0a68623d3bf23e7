// The program `shadowgraph-mpi`: a campaign whose workers reach the ledger through Open MPI. Rank 0
// has the ledger on its own disk and runs no case; the others are workers. docs/campaigns/mpi.md.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "campaign.h"
#include "campaign/ledger.h"
#include "campaign/remote/remote_queue.h"
#include "campaign/remote/server.h"
#include "mpi/mpi_transport.h"
#include "program.h"

namespace shadowgraph::cli {
namespace {

/// This process's part in the job.
class Rank {
 public:
  explicit Rank(MpiTransport& transport) : transport_(transport) {}

  int run(const Common& common, const CampaignOptions& options, const VerbCampaign& verb) {
    if (transport_.size() < 2)
      throw UsageError("no worker: rank 0 has the ledger; `mpirun -n 2` has one worker");
    patience_ = options.stale_seconds;
    return transport_.rank() == 0 ? serve_ledger(common, options, verb)
                                  : work(common, options, verb);
  }

  /// Ends when the others do, or are lost.
  [[noreturn]] void end(int code) {
    const bool together = transport_.rank() == 0 ? dismiss(transport_, &server()) : client().bye();
    transport_.end(together, code, patience_);
  }

 private:
  Server& server() {
    if (!server_) server_.emplace(transport_.size() - 1, patience_, seconds_now());
    return *server_;
  }
  Client& client() {
    if (!client_) client_.emplace(transport_, patience_, &interrupted());
    return *client_;
  }

  int serve_ledger(const Common& common, const CampaignOptions& options, const VerbCampaign& verb) {
    std::unique_ptr<Ledger> ledger;
    const Status status = Ledger::open(options.ledger, verb.campaign, &ledger);
    if (!status.ok()) return finish(refusal(status, common, verb), common);
    catch_interrupts();
    serve(transport_, &server(), ledger.get());
    return merge_ledger(common, options.ledger);
  }

  /// Prints nothing but what is wrong: rank 0 has the report of all.
  int work(const Common& common, const CampaignOptions& options, const VerbCampaign& verb) {
    std::unique_ptr<RemoteQueue> queue;
    Status trouble = RemoteQueue::open(client(), verb.campaign, &queue);
    int code = kBadInput;
    if (trouble.ok()) {
      Common unheard = common;
      unheard.output.clear();
      code = run_on_queue(*queue, unheard, options.ledger, verb);
      trouble = queue->trouble();
    }
    if (client().lost()) code = kBadInput;
    const std::string why = client().lost() ? fmt::format("no answer of rank 0 for {} s", patience_)
                            : trouble.ok()  ? ""
                                            : trouble.to_string();
    if (!why.empty())
      write_stderr(fmt::format("shadowgraph-mpi: rank {}: {}\n", transport_.rank(), why));
    return code;
  }

  MpiTransport& transport_;
  double patience_ = 60;  // seconds; --stale-seconds
  std::optional<Server> server_;
  std::optional<Client> client_;
};

Rank* this_rank = nullptr;  // verbs are functions

Verb add_mpi_fuzz(CLI::App& app) {
  return add_fuzz(
      app, [](const Common& common, const CampaignOptions& options, const VerbCampaign& verb) {
        return this_rank->run(common, options, verb);
      });
}

}  // namespace
}  // namespace shadowgraph::cli

int main(int argc, char** argv) {
  using namespace shadowgraph::cli;
  shadowgraph::MpiTransport transport(&argc, &argv);
  // mpirun gives a rank a terminal, whatever its own output is.
  ::setenv("NO_COLOR", "1", 0);
  if (transport.rank() > 0) (void)std::freopen("/dev/null", "w", stdout);
  Rank rank(transport);
  this_rank = &rank;
  rank.end(run_program("shadowgraph-mpi", {add_mpi_fuzz}, argc, argv));
}
