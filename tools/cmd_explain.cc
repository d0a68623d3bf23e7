// explain: one law, in full.
#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "core/laws.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

struct Options {
  Common common;
  std::string id;
};

constexpr char kExamples[] =
    "  shadowgraph explain num.bound\n"
    "  shadowgraph list invariants        all that can be explained";

Listing listing_of(const Law& law) {
  return {"invariants",
          {"id", "severity", "law", "mend", "refs"},
          {{std::string(law.id), name_of(law.severity), std::string(law.sentence),
            std::string(law.mend), std::string(law.refs)}}};
}

std::string text_of(const Law& law) {
  std::string s = fmt::format("{} ({})\n\n{}\n", law.id, name_of(law.severity), law.sentence);
  if (!law.mend.empty()) s += fmt::format("\nHow to mend it: {}\n", law.mend);
  if (!law.refs.empty()) s += fmt::format("\nIt stands on: {}\n", law.refs);
  return s;
}

int run(Options& options) {
  apply(options.common);
  const Law* law = find_law(options.id);
  if (law == nullptr) {
    std::vector<std::string> ids;
    for (const Law& known : kLaws) ids.emplace_back(known.id);
    const auto meant = nearest(options.id, ids);
    throw UsageError(fmt::format("there is no law '{}'; {}", options.id,
                                 meant.empty()
                                     ? "`shadowgraph list invariants` prints all"
                                     : fmt::format("did you mean {}?", fmt::join(meant, ", "))));
  }
  if (options.common.format == Format::kJson) return finish(listing_of(*law), options.common);
  write_document(text_of(*law), options.common);
  return kClean;
}

}  // namespace

Verb add_explain(CLI::App& app) {
  CLI::App& command = add_command(
      app, "explain", "Print a law: what it says, how to mend a violation, what it stands on.",
      kExamples);
  auto options = std::make_shared<Options>();
  command.add_option("ID", options->id, "The id of a finding, such as num.bound")->required();
  add_output_options(command, options->common);
  return {&command, [options] { return run(*options); }};
}

}  // namespace shadowgraph::cli
