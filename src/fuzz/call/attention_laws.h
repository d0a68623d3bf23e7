// Dense attention under the ladder: exact data gives known bits, and what it gives instead names
// the key that was read; other data lies within the derived bound; the same values have the same
// bits in other pages, layouts, tables, chunks and orders, ragged for paged, with a plan or
// without, in scratch of exactly its size. Tested by tests/fuzz/attention_laws_test.cc.
#pragma once

#include "check/bounds/compare.h"
#include "fuzz/call/attention_exact.h"
#include "fuzz/call/attention_scene.h"
#include "fuzz/call/ladder.h"

namespace shadowgraph {

Status check_attention_case(const Case& x, const RunOptions& options);

/// Judges the results of the scene's call: exact data first, then the error bound.
Status judge_attention(const Case& x, const AttentionScene& scene, const KernelNumbers& numbers,
                       const JudgeOptions& how);
/// The same of our kernels, with portable arithmetic or fast.
Status judge_attention(const Case& x, const AttentionScene& scene);
/// Says of wrong outputs of the scene's call which known mistakes would give them.
void name_mistakes(const AttentionScene& scene, const KernelNumbers& numbers, Status* status);
/// The same values in another shape.
AttentionArrangement vary_attention(const Case& x, const RunOptions& options, Rng& rng);

}  // namespace shadowgraph
