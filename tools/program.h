// The program `shadowgraph` as a function: main.cc calls it, and so does the C ABI.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace shadowgraph::cli {

struct Verb;

/// Runs a command line; argv[0] is the program's name. Returns the exit code (ExitCode in cli.h).
/// Reads and writes the standard streams, and takes Ctrl-C while a long verb runs.
int run_program(int argc, const char* const* argv) noexcept;
/// The same of another program, which has these verbs.
int run_program(const std::string& name, const std::vector<Verb (*)(CLI::App&)>& verbs, int argc,
                const char* const* argv) noexcept;

}  // namespace shadowgraph::cli
