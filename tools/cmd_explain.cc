// explain: one law, or one conformance program, in full.
#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "conformance/records.h"
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
    "  shadowgraph explain G12\n"
    "  shadowgraph list invariants        all laws that can be explained\n"
    "  shadowgraph list programs          all programs";

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

std::string variants_text(const Program& program) {
  std::vector<std::string> names;
  for (const Variant& variant : variants_of(program)) names.push_back(variant.to_string());
  return fmt::format("{}", fmt::join(names, " "));
}

Listing listing_of(const Program& program) {
  return {"programs",
          {"id", "class", "title", "variants", "diagnosis"},
          {{std::string(program.id), std::string(name_of(program.verdict)),
            std::string(program.title), variants_text(program), std::string(program.diagnosis)}}};
}

std::string text_of(const Program& program) {
  const char* rules[] = {"E: every device answers as the recorded GPU did",
                         "S: the answer is one of a set that CUDA allows",
                         "U: CUDA leaves it undefined, and the simulated device must diagnose it"};
  std::string s = fmt::format("{} ({})\n\n{}\n", program.id, program.title,
                              rules[static_cast<size_t>(program.verdict)]);
  if (!program.diagnosis.empty()) s += fmt::format("\nDiagnosis: {}\n", program.diagnosis);
  return s + fmt::format("\nVariants: {}\n", variants_text(program));
}

template <class Explained>
int explain(const Explained& explained, const Common& common) {
  if (common.format == Format::kJson) return finish(listing_of(explained), common);
  write_document(text_of(explained), common);
  return kClean;
}

int run(Options& options) {
  apply(options.common);
  if (const Program* program = find_program(options.id)) return explain(*program, options.common);
  const Law* law = find_law(options.id);
  if (law == nullptr) {
    std::vector<std::string> ids;
    for (const Law& known : kLaws) ids.emplace_back(known.id);
    for (const Program& known : programs()) ids.emplace_back(known.id);
    const auto meant = nearest(options.id, ids);
    throw UsageError(fmt::format("there is no law or program '{}'; {}", options.id,
                                 meant.empty()
                                     ? "`shadowgraph list invariants` and `list programs` print all"
                                     : fmt::format("did you mean {}?", fmt::join(meant, ", "))));
  }
  return explain(*law, options.common);
}

}  // namespace

Verb add_explain(CLI::App& app) {
  CLI::App& command = add_command(
      app, "explain",
      "Print a law: what it says, how to mend a violation, what it stands on; or a program.",
      kExamples);
  auto options = std::make_shared<Options>();
  command.add_option("ID", options->id, "The id of a finding or program: num.bound, G12")
      ->required();
  add_output_options(command, options->common);
  return {&command, [options] { return run(*options); }};
}

}  // namespace shadowgraph::cli
