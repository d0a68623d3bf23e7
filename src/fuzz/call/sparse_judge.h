// What a call of the sparse family left, held against the truth: on exact data known numbers, which
// name the latent that was read instead; elsewhere within the derived bound.
#pragma once

#include "fuzz/call/sparse_scene.h"

namespace shadowgraph {

/// Judges a scene's call that has run, or what a slip left in its place.
Status judge_sparse(const Case& x, const SparseScene& scene);
/// The same of any call that was taken, by bounds. truth: with what it stores into as it was
/// before.
Status judge_taken(const SparseCall& call, const SparseCall& truth);

}  // namespace shadowgraph
