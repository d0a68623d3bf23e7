// The functions of metadata_laws.inc. Each may be given metadata that other laws have found broken.
#pragma once

#include "check/laws/facts.h"

namespace shadowgraph {

void judge_offsets(const MetaFacts& facts, LawReport& report);
void judge_queries(const MetaFacts& facts, LawReport& report);
void judge_lengths(const MetaFacts& facts, LawReport& report);
void judge_last_pages(const MetaFacts& facts, LawReport& report);
void judge_chunk_parts(const MetaFacts& facts, LawReport& report);
void judge_chunk_factors(const MetaFacts& facts, LawReport& report);
void judge_keys(const MetaFacts& facts, LawReport& report);
void judge_copies(const MetaFacts& facts, LawReport& report);
void judge_slots(const MetaFacts& facts, LawReport& report);
void judge_pool_rows(const MetaFacts& facts, LawReport& report);
void judge_scalars(const MetaFacts& facts, LawReport& report);
void judge_baked(const MetaFacts& facts, LawReport& report);
void judge_window(const MetaFacts& facts, LawReport& report);
void judge_masks(const MetaFacts& facts, LawReport& report);
void judge_items(const MetaFacts& facts, LawReport& report);
void judge_plans(const MetaFacts& facts, LawReport& report);
void judge_states(const MetaFacts& facts, LawReport& report);
void judge_sparse(const MetaFacts& facts, LawReport& report);
void judge_latents(const MetaFacts& facts, LawReport& report);
void judge_splits(const MetaFacts& facts, LawReport& report);

}  // namespace shadowgraph
