#include "conformance/conformance.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/laws.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {
namespace {

Observation run_once(const Program& program, const Variant& variant, const TestedDevice& device) {
  Run run(*device.api, std::string(program.id), variant);
  program.body(run);
  Observation seen;
  seen.record = run.take();
  // Work that the program did not wait for still runs, and is seen: not of the record, which ends
  // with the program.
  (void)device.api->device_synchronize();
  seen.findings = device.take_findings();
  return seen;
}

std::optional<Variant> find_variant(const Program& program, const std::string& name) {
  for (Variant& variant : variants_of(program)) {
    if (variant.to_string() == name) return std::move(variant);
  }
  return std::nullopt;
}

/// What is recorded, but cannot be run.
ProgramVerdict skipped(const std::string& field, std::string expected, const std::string& got) {
  ProgramVerdict verdict;
  verdict.why = "there is no " + field + ' ' + got;
  verdict.findings.add(make_finding("conformance.record", at(field), std::move(expected), got));
  return verdict;
}

/// A program that is of another class than its record would be judged by the wrong rule.
void check_class(const Program& program, const RecordedProgram& recorded, ProgramVerdict* verdict) {
  if (program.verdict == recorded.verdict) return;
  const std::string expected(name_of(recorded.verdict)), got(name_of(program.verdict));
  verdict->status = Conformance::kDiffers;
  if (verdict->why.empty()) verdict->why = "class: " + got + ", recorded " + expected;
  verdict->findings.add(make_finding("conformance.record", at("class"), expected, got));
}

ProgramVerdict judge_case(const ConformanceCase& c, const DeviceFactory& device, const Seeds& seeds,
                          const std::atomic<bool>& stop) {
  const Program* program = find_program(c.id);
  if (program == nullptr) return skipped("program", "one of `list programs`", c.id);
  const auto variant = find_variant(*program, c.variant);
  if (!variant) return skipped("variant", "one of `list programs`", c.variant);
  const auto run = [&](uint64_t seed) { return run_once(*program, *variant, device(seed)); };
  ProgramVerdict verdict =
      judge(*program, *variant, c.recorded ? &c.recorded->record : nullptr, seeds, run, stop);
  if (c.recorded != nullptr) check_class(*program, *c.recorded, &verdict);
  return verdict;
}

}  // namespace

TestedDevice simulated_device(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  auto device = std::make_unique<SimDevice>(options);
  SimDevice* sim = device.get();
  return {std::move(device), [sim] {
            sim->check_leaks();
            return sim->take_findings();
          }};
}

std::vector<ConformanceCase> cases_of(const RecordFile& file) {
  std::vector<ConformanceCase> cases;
  for (const RecordedProgram& c : file.cases) cases.push_back({c.record.id, c.record.variant, &c});
  return cases;
}

std::vector<ConformanceCase> all_cases() {
  std::vector<ConformanceCase> cases;
  for (const Program& program : programs()) {
    for (const Variant& variant : variants_of(program)) {
      cases.push_back({std::string(program.id), variant.to_string(), nullptr});
    }
  }
  return cases;
}

ProgramVerdict run_case(const ConformanceCase& c, const DeviceFactory& device, const Seeds& seeds,
                        const std::atomic<bool>& stop) {
  ProgramVerdict verdict = judge_case(c, device, seeds, stop);
  for (Finding& finding : verdict.findings.findings()) finding.case_id = c.id + ' ' + c.variant;
  return verdict;
}

}  // namespace shadowgraph
