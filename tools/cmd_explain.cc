// explain: one thing that a list prints or a finding names, in full.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli.h"
#include "topics.h"

namespace shadowgraph::cli {
namespace {

struct ExplainCommand {
  Common common;
  std::string id;
};

constexpr char kExplainExamples[] =
    "  shadowgraph explain num.bound\n"
    "  shadowgraph explain G12\n"
    "  shadowgraph explain K31            a fault: what it is, and how to plant it\n"
    "  shadowgraph explain fa.I-34        what a finding cites, and which laws stand on it\n"
    "  shadowgraph explain page_table     a field of traces; also backends, modes and keys\n"
    "  shadowgraph list invariants        all laws that can be explained\n"
    "  shadowgraph list programs          all programs";

bool is_same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : int{c}; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

int explain(const Topic& topic, const Common& common) {
  if (common.format == Format::kJson) return finish(topic.listing, common);
  write_document(topic.text, common);
  return kClean;
}

int run_with(ExplainCommand& options) {
  apply(options.common);
  const std::vector<Topic> topics = all_topics();
  for (const Topic& topic : topics) {
    if (is_same(topic.id, options.id)) return explain(topic, options.common);
  }
  std::vector<std::string> ids;
  for (const Topic& known : topics) {
    if (std::ranges::find(ids, known.id) == ids.end()) ids.push_back(known.id);
  }
  const auto meant = nearest(options.id, ids);
  throw UsageError(fmt::format("nothing is called '{}'; {}", options.id,
                               meant.empty()
                                   ? "`shadowgraph list KIND` prints what there is"
                                   : fmt::format("did you mean {}?", fmt::join(meant, ", "))));
}

}  // namespace

Verb add_explain(CLI::App& app) {
  Command command(app, "explain",
                  "Print what a law says, how to mend a violation, what it stands on; or what a "
                  "program, fault, mistake, backend, mode, field, key or reference is.",
                  kExplainExamples);
  auto options = std::make_shared<ExplainCommand>();
  command
      .text("ID", options->id,
            "The id of a finding, or a name of `list` invariants, programs, faults, mistakes, "
            "backends, modes, fields, keys, references, kernels, arithmetics, grids or "
            "targets, in any case: num.bound, G12, K31, fa.I-34, page_table")
      .required();
  add_output_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
