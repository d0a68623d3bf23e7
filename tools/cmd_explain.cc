// explain: one thing that a list prints or a finding names, in full.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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
    "  shadowgraph explain page_table     a field of traces, and the buffers of that name; also "
    "backends, modes and keys\n"
    "  shadowgraph explain 'sparse.*'     all laws whose ids begin so\n"
    "  shadowgraph explain K31 K32 K33    several at once\n"
    "  shadowgraph list laws              all laws that can be explained\n"
    "  shadowgraph list programs          all programs";

bool is_same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : int{c}; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// The first that has the id, letter for letter if one does, else in any case; and what there is
/// of it besides.
std::vector<const Topic*> find_topics(const std::vector<Topic>& topics, const std::string& id) {
  std::vector<const Topic*> exact, same;
  for (const Topic& topic : topics) {
    for (std::vector<const Topic*>* found : {&exact, &same}) {
      const bool has = found == &exact ? topic.id == id : is_same(topic.id, id);
      if (has && (found->empty() || topic.besides)) found->push_back(&topic);
    }
  }
  return exact.empty() ? same : exact;
}

/// Buffers take a second to find: only a field's name, or one that nothing else has, may be one's.
bool may_be_buffer(const std::vector<const Topic*>& found) {
  return found.empty() || found[0]->listing.kind == "fields" || found[0]->besides;
}

/// "nothing is called 'num.bond' (did you mean num.bound?)"
std::string unknown_id(const std::vector<Topic>& topics, const std::string& id) {
  std::vector<std::string> ids;
  for (const Topic& topic : topics)
    if (std::ranges::find(ids, topic.id) == ids.end()) ids.push_back(topic.id);
  const auto meant = nearest(id, ids);
  return fmt::format("nothing is called '{}' ({})", id,
                     meant.empty() ? "`shadowgraph list KIND` prints what there is"
                                   : fmt::format("did you mean {}?", fmt::join(meant, ", ")));
}

/// Explains what it knows. Throws UsageError, behind that, of ids that nothing has.
int run_with(ExplainCommand& options) {
  apply(options.common);
  std::vector<Topic> topics = all_topics();
  const bool buffers = std::ranges::any_of(
      options.ids, [&](const std::string& id) { return may_be_buffer(find_topics(topics, id)); });
  if (buffers) std::ranges::move(buffer_topics(), std::back_inserter(topics));
  const bool json = options.common.format == Format::kJson;
  std::string text, wrong;
  for (const std::string& id : options.ids) {
    const std::vector<const Topic*> found = find_topics(topics, id.substr(id.rfind('/') + 1));
    if (found.empty()) wrong += (wrong.empty() ? "" : "; ") + unknown_id(topics, id);
    for (const Topic* topic : found) {
      if (!json && !text.empty()) text += "\n";
      text += json ? render(topic->listing, render_options(options.common)) : topic->text;
    }
  }
  if (!text.empty()) write_document(text, options.common);
  if (!wrong.empty()) throw UsageError(wrong);
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
      .texts(
          "ID", options->ids,
          "The id of a finding, or a name of `list` laws, programs, faults, mistakes, "
          "backends, engines, modes, fields, keys, references, kernels, arithmetics, grids, "
          "features or targets, a buffer, or a family of laws, in any case: num.bound, sparse.*, "
          "G12, K31, fa.I-34, page_table. Each thing of that name gives a text, or a JSON "
          "document")
      .required();
  add_output_options(command, options->common);
  return {command, [options] { return run_with(*options); }};
}

}  // namespace shadowgraph::cli
