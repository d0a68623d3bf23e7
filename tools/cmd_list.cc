// list: what there is. Each kind is read from the one list that the rest of the program uses.
#include <memory>

#include "cli.h"
#include "listings.h"

namespace shadowgraph::cli {
namespace {

struct ListCommand {
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

constexpr char kListExamples[] =
    "  shadowgraph list kernels\n"
    "  shadowgraph list backends\n"
    "  shadowgraph list fields flashattention   what `shadowgraph check` judges of its traces\n"
    "  shadowgraph list keys              what a line of a trace holds, and a case of a recording\n"
    "  shadowgraph list engines           what engines mean by padding, pages and windows\n"
    "  shadowgraph list faults            what `shadowgraph fuzz --plant` puts in\n"
    "  shadowgraph list mistakes          what `--diagnose` and findings of traces name\n"
    "  shadowgraph list references        what laws, fields and faults cite, in a sentence each\n"
    "  shadowgraph list laws --format json\n"
    "  shadowgraph list arithmetics       what error bounds assume of each kernel, as in "
    "check/bounds/arithmetic.h\n"
    "  shadowgraph list programs          what `shadowgraph conformance` runs\n"
    "  shadowgraph list grids             what `shadowgraph fuzz --exhaustive` walks\n"
    "  shadowgraph list features          what random cases of `shadowgraph fuzz` may have\n"
    "  shadowgraph list targets           instruction sets, and which this machine lacks";

}  // namespace

Verb add_list(CLI::App& app) {
  Command command(app, "list", "Print what there is of a kind.", kListExamples);
  auto options = std::make_shared<ListCommand>();
  command
      .choice<std::function<Listing()>>("KIND", options->kind,
                                        {{"backends", list_backends},
                                         {"engines", list_engines},
                                         {"modes", list_modes},
                                         {"fields", {}},
                                         {"keys", list_keys},
                                         {"kernels", list_kernels},
                                         {"laws", [] { return list_laws("laws"); }},
                                         {"invariants", [] { return list_laws("invariants"); }},
                                         {"arithmetics", list_arithmetics},
                                         {"programs", list_programs},
                                         {"grids", list_grids},
                                         {"features", list_features},
                                         {"faults", list_faults},
                                         {"mistakes", list_mistakes},
                                         {"references", list_references},
                                         {"targets", list_targets}},
                                        "What to list")
      .required();
  const Option backend =
      command.text("BACKEND", options->backend, "Of fields: this backend's only");
  add_output_options(command, options->common);
  return {command, [options, backend] {
            apply(options->common);
            if (!options->kind) return finish(fields_of(options->backend), options->common);
            if (backend.given()) throw UsageError("BACKEND: only fields have one");
            return finish(options->kind(), options->common);
          }};
}

}  // namespace shadowgraph::cli
