// The ladder for a Case over recurrent states: exact data gives the known bits, and what it gives
// instead names the slot that was read; other data lies within the derived bound; the same values
// laid out otherwise have the same bits: other slots, gaps and order, rows alone, prefills in
// pieces, threads, instruction set, poison in all that the footprint does not read. Nothing but the
// rows' own places is written, and a broken call is refused and writes nothing. Tested by
// tests/fuzz/recurrent_laws_test.cc.
#pragma once

#include "fuzz/call/ladder.h"
#include "fuzz/call/recurrent_scene.h"

namespace shadowgraph {

Status check_recurrent_case(const Case& x, const RunOptions& options);

/// What the scene's call left, against the oracle: exactly or within the bound, as the data is.
Status judge_recurrent(const Case& x, const RecurrentScene& scene);
/// The same of any call that was taken, by bounds. truth: with the states as they were before it.
Status judge_taken(const StateCall& call, const StateCall& truth);
/// num.bits at the first token or row whose bits differ; states of chunks where both kept one.
Status compare_bits(const RecurrentResults& a, const RecurrentResults& b, const std::string& how);
/// The same values in another shape.
RecurrentArrangement vary_recurrent(const Case& x, const RunOptions& options, Rng& rng);

}  // namespace shadowgraph
