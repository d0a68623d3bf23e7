// Laws of a backend's own metadata: what fill has staged, and what the launches of a step have
// written, against the batch as the scheduler knows it. They share nothing with the code that
// fills: what a buffer means is said by its role (BackendInfo::buffers, Backend::key_lists), and
// what it must hold by the canonical rows. So a slip that leaves every output right is seen, too.
// The list is metadata_laws.inc. What each buffer must hold: docs/metadata.md. Tested by
// tests/check/metadata_laws_test.cc.
#pragma once

#include <span>

#include "core/laws.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

class MetaFacts;
class LawReport;

/// A line of the list. Lines of one function follow each other, and it is run once.
struct MetadataLaw {
  LawId law;
  void (*judge)(const MetaFacts& facts, LawReport& report);
};

std::span<const MetadataLaw> all_metadata_laws();

/// What metadata breaks that this backend has filled from the batch, or from what it was told of
/// it: meta as launches are recorded from. Composed backends are judged part by part. model: the
/// layers', whatever meta was bound with. ran: the launches have run; until then what they write is
/// not judged. Requires a batch that validate() accepts, with req_to_token.
Status judge_metadata(const Backend& backend, const ForwardBatch& batch, const ModelConfig& model,
                      Meta& meta, bool ran);

}  // namespace shadowgraph
