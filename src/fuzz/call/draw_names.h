// The words of levels of a call's draws (core/choices.h), which are enumerators.
#pragma once

#include <string_view>

#include "attn/cases/case.h"
#include "attn/cases/case_names.h"

namespace shadowgraph {

inline std::string_view name_of(CaseKernel v) { return word(kCaseKernelNames, v); }
inline std::string_view name_of(CaseData v) { return word(kCaseDataNames, v); }
inline std::string_view name_of(KvLayout v) { return word(kCaseLayoutNames, v); }
inline std::string_view name_of(CustomMask::Kind v) { return word(kMaskKindNames, v); }
inline std::string_view name_of(AttentionTerms::Alibi v) { return word(kAlibiNames, v); }
inline std::string_view name_of(PageTable::Form v) {
  return v == PageTable::Form::kCsr ? "offsets" : "table";
}
inline std::string_view name_of(LseBase v) { return v == LseBase::kLog2 ? "log2" : "natural"; }
inline std::string_view name_of(LseSink v) {
  return v == LseSink::kIncluded ? "included" : "excluded";
}
inline std::string_view name_of(RecurrentCase::Call v) { return word(kRecurrentCallNames, v); }
inline std::string_view name_of(PadRow v) { return word(kPadRowNames, v); }
inline std::string_view name_of(LinearAttention::Rule v) { return word(kRuleNames, v); }
inline std::string_view name_of(LinearAttention::StateOrder v) { return word(kStateOrderNames, v); }
inline std::string_view name_of(ChunkGrid v) { return word(kChunkGridNames, v); }
inline std::string_view name_of(DecayGate::Kind v) { return word(kGateKindNames, v); }
inline std::string_view name_of(SparseCase::Call v) { return word(kSparseCallNames, v); }
inline std::string_view name_of(LatentLayout v) { return word(kLatentNames, v); }

}  // namespace shadowgraph
