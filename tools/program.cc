#include "program.h"

#include <fmt/format.h>
#include <signal.h>

#include "cli.h"
#include "core/parallel.h"
#include "report/escape.h"
#include "shadowgraph/version.h"

namespace shadowgraph::cli {
namespace {

constexpr char kFooter[] =
    R"(`shadowgraph VERB --help` explains a verb, with examples.

Exit codes: 0 clean, 1 findings, 2 usage, 3 bad input (or nothing to judge), 4 internal, or
results that cannot be written.
Ctrl-C ends a run cleanly, with what was found so far; the report says that it was interrupted.

Environment:
  SHADOWGRAPH_ISA  the instruction set to use, as --isa does
  OMP_NUM_THREADS  the number of threads, where --threads does not say
  NO_COLOR         no colours, unless --color always)";

std::string version() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  const std::string compiler = "gcc " __VERSION__;
#else
  const std::string compiler = "unknown compiler";
#endif
  const char* openmp = has_openmp() ? "yes" : "no";
  return fmt::format("shadowgraph {}\ncompiler  {}\nisas      {} (now {})\nOpenMP    {}\n",
                     SHADOWGRAPH_VERSION, compiler, fmt::join(available_isas(), ", "),
                     current_isa(), openmp);
}

}  // namespace

int run_program(int argc, const char* const* argv) noexcept {
  return run_program("shadowgraph",
                     {add_fuzz, add_check, add_faults, add_replay, add_conformance, add_bench,
                      add_list, add_explain, add_merge_reports},
                     argc, argv);
}

int run_program(const std::string& name, const std::vector<Verb (*)(CLI::App&)>& verbs, int argc,
                const char* const* argv) noexcept {
  signal(SIGPIPE, SIG_IGN);  // a reader that left is an OutputError
  try {
    const ProgramTexts texts = {
        "The CPU twin of GPU attention backends: computes attention, and judges kernels, without a "
        "GPU.",
        name, kFooter, version};
    return run_verb(texts, verbs, argc, argv);
  } catch (const OutputError& error) {
    write_stderr("shadowgraph: " + escape_controls(error.what()) + '\n');
  } catch (const std::exception& error) {
    write_stderr("shadowgraph: internal error: " + escape_controls(error.what()) + '\n');
  } catch (...) {
    write_stderr("shadowgraph: internal error of an unknown kind\n");
  }
  return kInternal;
}

}  // namespace shadowgraph::cli
