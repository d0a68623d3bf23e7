#include "check/laws/metadata_laws.h"

#include <utility>

#include "check/laws/facts.h"
#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

constexpr MetadataLaw kMetadataLaws[] = {
#define SG_METADATA_LAW(law, function) {law, function},
#include "check/laws/metadata_laws.inc"
#undef SG_METADATA_LAW
};

/// Judges a backend that has filled its own buffers.
Status judge_own(const Backend& backend, const ForwardBatch& batch, const ModelConfig& model,
                 const Meta& meta, bool ran) {
  LawReport report;
  judged("batch.capacity");
  if (batch.size() > meta.limits.rows) {
    report.fail("batch.capacity", at("seq_lens"), "<= " + number(meta.limits.rows) + " requests",
                number(batch.size()));
    return report.take();
  }
  const MetaFacts facts(backend, batch, model, meta, ran);
  const MetadataLaw* last = nullptr;
  for (const MetadataLaw& law : kMetadataLaws) {
    if (last == nullptr || last->judge != law.judge) law.judge(facts, report);
    last = &law;
  }
  return report.take();
}

}  // namespace

std::span<const MetadataLaw> all_metadata_laws() { return kMetadataLaws; }

Status judge_metadata(const Backend& backend, const ForwardBatch& batch, const ModelConfig& model,
                      Meta& meta, bool ran) {
  bool composed = false;
  Status found;
  Status handed = backend.for_each_part(
      batch, meta, [&](const Backend& part, const ForwardBatch& of_part, Meta& to) -> Status {
        composed = true;
        found.add(judge_metadata(part, of_part, model, to, ran));
        return {};
      });
  found.add(std::move(handed));
  if (!composed && found.ok()) found = judge_own(backend, batch, model, meta, ran);
  return found;
}

}  // namespace shadowgraph
