// list: what there is. Each kind is read from the one list that the rest of the program uses.
#include <algorithm>
#include <memory>

#include "check/invariants.h"
#include "cli.h"
#include "conformance/records.h"
#include "core/laws.h"
#include "fuzz/device_program.h"
#include "fuzz/step_grid.h"
#include "listings.h"

namespace shadowgraph::cli {
namespace {

Listing kernels() {
  Listing listing{"kernels", {"name", "computes"}, {}};
#define SG_KERNEL(name, sentence) listing.rows.push_back({#name, sentence});
#include "kernels/kernels.inc"
#undef SG_KERNEL
  return listing;
}

Listing invariants() {
  Listing listing{"invariants", {"id", "severity", "metadata", "law"}, {}};
  const auto of_metadata = [](const Law& law) {
    return std::ranges::any_of(all_invariants(),
                               [&](const Invariant& i) { return i.law.law().id == law.id; });
  };
  for (const Law& law : kLaws)
    listing.rows.push_back({std::string(law.id), name_of(law.severity),
                            of_metadata(law) ? "yes" : "", std::string(law.sentence)});
  return listing;
}

Listing arithmetics() {
  Listing listing{"arithmetics", {"kernel", "declared"}, {}};
#define SG_ARITHMETIC(name, ...) listing.rows.push_back({#name, #__VA_ARGS__});
#include "check/arithmetics.inc"
#undef SG_ARITHMETIC
  return listing;
}

Listing targets() {
  Listing listing{"targets", {"name", "used"}, {}};
  for (std::string_view isa : available_isas()) {
    listing.rows.push_back({std::string(isa), isa == current_isa() ? "now" : ""});
  }
  return listing;
}

Listing programs() {
  Listing listing{"programs", {"id", "class", "variants", "title"}, {}};
  for (const Program& program : shadowgraph::programs()) {
    listing.rows.push_back({std::string(program.id), std::string(name_of(program.verdict)),
                            std::to_string(variants_of(program).size()),
                            std::string(program.title)});
  }
  return listing;
}

Listing grids() {
  Listing listing{"grids", {"name", "programs", "what"}, {}};
  for (const int calls : {3, 4, 5}) {
    const std::string number = std::to_string(calls);
    listing.rows.push_back(
        {"device-" + number, std::to_string(small_program_count(calls)),
         "all programs of up to " + number + " calls over 2 streams, 1 event and 3 capture modes"});
  }
  for (const StepGrid& grid : step_grids())
    listing.rows.push_back(
        {std::string(grid.name), std::to_string(count_steps(grid)), std::string(grid.what)});
  return listing;
}

struct Options {
  Common common;
  std::function<Listing()> kind;  // empty: fields
  std::string backend;            // of fields; empty: all
};

Listing fields_of(const std::string& backend) {
  Listing listing = list_fields(backend);
  if (!listing.rows.empty()) return listing;
  std::vector<std::string> names;
  for (const Backend* b : all_backends()) names.emplace_back(b->info().name);
  const bool known = find_backend(backend) != nullptr;
  throw UsageError("BACKEND: " +
                   (known ? backend + " has no fields of its own: its parts have"
                          : "there is no '" + backend + "'" + did_you_mean(backend, names)));
}

constexpr char kExamples[] =
    "  shadowgraph list kernels\n"
    "  shadowgraph list backends\n"
    "  shadowgraph list fields flashattention   what `shadowgraph check` judges of its traces\n"
    "  shadowgraph list keys              what a line of a trace holds\n"
    "  shadowgraph list faults            what `shadowgraph fuzz --plant` puts in\n"
    "  shadowgraph list mistakes          what `--diagnose` knows wrong outputs by\n"
    "  shadowgraph list invariants --format json\n"
    "  shadowgraph list arithmetics       what error bounds assume of each kernel, as in "
    "check/arithmetic.h\n"
    "  shadowgraph list programs          what `shadowgraph conformance` runs\n"
    "  shadowgraph list grids             what `shadowgraph fuzz --exhaustive` walks\n"
    "  shadowgraph list targets           instruction sets of this machine";

}  // namespace

Verb add_list(CLI::App& app) {
  CLI::App& command = add_command(app, "list", "Print what there is of a kind.", kExamples);
  auto options = std::make_shared<Options>();
  add_choice<std::function<Listing()>>(command, "KIND", options->kind,
                                       {{"backends", list_backends},
                                        {"modes", list_modes},
                                        {"fields", {}},
                                        {"keys", list_keys},
                                        {"kernels", kernels},
                                        {"invariants", invariants},
                                        {"arithmetics", arithmetics},
                                        {"programs", programs},
                                        {"grids", grids},
                                        {"faults", list_faults},
                                        {"mistakes", list_mistakes},
                                        {"targets", targets}},
                                       "What to list")
      ->required();
  CLI::Option* backend =
      command.add_option("BACKEND", options->backend, "Of fields: this backend's only");
  add_output_options(command, options->common);
  return {&command, [options, backend] {
            apply(options->common);
            if (!options->kind) return finish(fields_of(options->backend), options->common);
            if (backend->count() > 0) throw UsageError("BACKEND: only fields have one");
            return finish(options->kind(), options->common);
          }};
}

}  // namespace shadowgraph::cli
