// The program `shadowgraph`. Exit codes: ExitCode in cli.h.
#include <fmt/format.h>
#include <signal.h>

#include <sstream>

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

int refuse(const std::string& sentence, const std::string& verb) {
  write_stderr(fmt::format("shadowgraph: {}\nSee `shadowgraph {}--help`.\n",
                           escape_controls(sentence), verb.empty() ? "" : verb + " "));
  return kUsage;
}

/// What CLI11 says of words that it did not expect, and the verb that was meant.
std::string usage_sentence(const CLI::App& app, const CLI::ParseError& error, int argc,
                           char** argv) {
  std::string sentence = error.what();
  if (argc < 2 || !app.get_subcommands().empty() || argv[1][0] == '-') return sentence;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  sentence = fmt::format("'{}' is not a verb", argv[1]);
  const auto meant = nearest(argv[1], verbs);
  return meant.empty() ? sentence : sentence + "; did you mean " + meant[0] + "?";
}

int run(int argc, char** argv) {
  CLI::App app(
      "The CPU twin of GPU attention backends: computes attention, and judges kernels, without a "
      "GPU.",
      "shadowgraph");
  app.footer(kFooter);
  app.set_version_flag("--version", version,
                       "Print version, compiler and instruction sets, and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);  // none: said below, after what is wrong
  const std::vector<Verb> verbs = {add_fuzz(app),   add_check(app),       add_faults(app),
                                   add_replay(app), add_conformance(app), add_bench(app),
                                   add_list(app),   add_explain(app),     add_merge_reports(app)};
  for (const Verb& verb : verbs)
    verb.command->set_version_flag("--version", version, "Print the version and exit");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(success, text, text);
    write_stdout(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    return refuse(usage_sentence(app, error, argc, argv),
                  parsed.empty() ? "" : parsed[0]->get_name());
  }
  for (const Verb& verb : verbs) {
    if (!verb.command->parsed()) continue;
    try {
      return verb.run();
    } catch (const UsageError& error) {
      return refuse(error.what(), verb.command->get_name());
    }
  }
  return refuse("a verb is missing", "");
}

}  // namespace
}  // namespace shadowgraph::cli

int main(int argc, char** argv) {
  using namespace shadowgraph;
  signal(SIGPIPE, SIG_IGN);  // a reader that left is an OutputError
  try {
    return cli::run(argc, argv);
  } catch (const cli::OutputError& error) {
    cli::write_stderr("shadowgraph: " + escape_controls(error.what()) + '\n');
  } catch (const std::exception& error) {
    cli::write_stderr("shadowgraph: internal error: " + escape_controls(error.what()) + '\n');
  } catch (...) {
    cli::write_stderr("shadowgraph: internal error of an unknown kind\n");
  }
  return cli::kInternal;
}
