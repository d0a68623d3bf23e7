// Judges the mutant that is on by histories, with the verdicts of planted faults: it acts in a run
// that has it, and its launches and outputs are compared with those of the same history without it.
// Built in the copy that has all mutants. Usage: mutant_verdict NUMBER HISTORIES [BACKEND]; prints
// the verdict, what changed, and the choices of that history.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "fuzz/fuzz.h"
#include "mutant.h"

namespace shadowgraph {
namespace {

int number = 0;

/// On as long as it lives.
class MutantTap final : public Tap {
 public:
  MutantTap() { sg_mutant = number, sg_ran = sg_acted = 0; }
  ~MutantTap() override { sg_mutant = 0; }
  int64_t acted() const override { return sg_acted; }
};

int run(int argc, char** argv) {
  number = std::atoi(argv[1]);
  FuzzOptions options;
  options.cases = static_cast<uint64_t>(std::atoll(argv[2]));
  options.threads = 1, options.max_findings = 1, options.kernels = false;
  options.histories.shrink.tries = 0;
  for (const Backend* backend : all_backends())
    if (argc < 4 || backend->info().name == argv[3]) options.histories.backends.push_back(backend);
  options.histories.tap = [] { return std::make_unique<MutantTap>(); };
  const std::atomic<bool> stop = false;
  const FuzzResult result = run_fuzz(options, {}, stop);
  std::string why;
  if (result.first) why = result.first->laws[0];
  if (result.unnoticed)
    why = result.unnoticed->what + "; shadowgraph fuzz --choices " +
          to_text(result.unnoticed->choices) +
          (argc < 4 ? "" : std::string(" --backend ") + argv[3]);
  std::printf("%s: %s\n", std::string(name_of(verdict_of(result))).c_str(), why.c_str());
  return 0;
}

}  // namespace
}  // namespace shadowgraph

int main(int argc, char** argv) { return argc < 3 ? 2 : shadowgraph::run(argc, argv); }
