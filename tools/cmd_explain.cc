// explain: one thing that a list prints or a finding names, in full.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli.h"
#include "topics.h"

namespace shadowgraph::cli {
namespace {

struct ExplainCommand {
  Common common;
  std::vector<std::string> ids;
};

constexpr char kExplainExamples[] =
    "  shadowgraph explain num.bound\n"
    "  shadowgraph explain G12\n"
    "  shadowgraph explain K31            a fault: what it is, and how to plant it\n"
    "  shadowgraph explain fa.I-34        what a finding cites, and which laws stand on it\n"
    "  shadowgraph explain page_table     a field of traces; also backends, modes and keys\n"
    "  shadowgraph explain K31 K32 K33    several at once\n"
    "  shadowgraph list laws              all laws that can be explained\n"
    "  shadowgraph list programs          all programs";

bool is_same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : int{c}; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// Throws UsageError with the ids that may be meant.
const Topic& find_topic(const std::vector<Topic>& topics, const std::string& id) {
  const auto found =
      std::ranges::find_if(topics, [&](const Topic& topic) { return is_same(topic.id, id); });
  if (found != topics.end()) return *found;
  std::vector<std::string> ids;
  for (const Topic& topic : topics)
    if (std::ranges::find(ids, topic.id) == ids.end()) ids.push_back(topic.id);
  const auto meant = nearest(id, ids);
  throw UsageError(fmt::format("nothing is called '{}'; {}", id,
                               meant.empty()
                                   ? "`shadowgraph list KIND` prints what there is"
                                   : fmt::format("did you mean {}?", fmt::join(meant, ", "))));
}

int run_with(ExplainCommand& options) {
  apply(options.common);
  const std::vector<Topic> topics = all_topics();
  std::vector<const Topic*> found;
  for (const std::string& id : options.ids) found.push_back(&find_topic(topics, id));
  const bool json = options.common.format == Format::kJson;
  std::string text;
  for (const Topic* topic : found) {
    if (!json && !text.empty()) text += "\n";
    text += json ? render(topic->listing, render_options(options.common)) : topic->text;
  }
  write_document(text, options.common);
  return kClean;
}

}  // namespace

Verb add_explain(CLI::App& app) {
  Command command(app, "explain",
                  "Print what a law says, how to mend a violation, what it stands on; or what a "
                  "program, fault, mistake, backend, mode, field, key or reference is.",
                  kExplainExamples);
  auto options = std::make_shared<ExplainCommand>();
  command
      .texts("ID", options->ids,
             "The id of a finding, or a name of `list` laws, programs, faults, mistakes, "
             "backends, engines, modes, fields, keys, references, kernels, arithmetics, grids or "
             "targets, in any case: num.bound, G12, K31, fa.I-34, page_table. Each id "
             "gives a text, or a JSON document")
      .required();
  add_output_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
