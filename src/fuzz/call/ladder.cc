#include "fuzz/call/ladder.h"

#include "fuzz/call/attention_laws.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/call/sparse_laws.h"

namespace shadowgraph {

std::string RunOptions::flags() const {
  std::string s = arith == Arith::kFast ? " --arith fast" : "";
  if (!isa.empty()) s += " --isa " + std::string(isa);
  if (device != nullptr) s += " --device cuda";
  return s;
}

CallOptions vary_options(const RunOptions& options, Rng& rng) {
  CallOptions varied;
  // Not in all: teams of threads wait by spinning, and the workers already fill the cores.
  varied.num_threads = rng.below(8) == 0 ? 2 + static_cast<int>(rng.below(2)) : 1;
  // Fast arithmetic promises its bits within one instruction set only.
  varied.arith = options.arith;
  varied.isa = options.isa;
  if (options.arith == Arith::kPortable && rng.below(2)) {
    const auto isas = available_isas();
    // The generic set is slow where fused multiply-add is a library call: a taste of it is enough.
    const auto pick = rng.below(static_cast<uint32_t>(isas.size()));
    varied.isa = pick == 0 && rng.below(8) != 0 ? isas.back() : isas[pick];
  }
  return varied;
}

bool has_launch(const Case& x) {
  const auto* merge = x.as<MergeCase>();
  if (merge != nullptr) return merge->states == 2 && merge->lse_base == LseBase::kNatural;
  return x.as<AttentionCase>() != nullptr;
}

Status check_case(const Case& x, const RunOptions& options) {
  if (x.as<MergeCase>() != nullptr) return check_merge_case(x, options);
  if (x.as<RecurrentCase>() != nullptr) return check_recurrent_case(x, options);
  if (x.as<SparseCase>() != nullptr) return check_sparse_case(x, options);
  return check_attention_case(x, options);
}

}  // namespace shadowgraph
