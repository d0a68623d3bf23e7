// ForwardMode: what kind of step the scheduler runs. The predicates are SGLang's, traps included:
// target verify is an extend; draft extend v2 is an extend only where the caller asks for it.
// Facts: docs/metadata.md "Forward modes". Tested by tests/attn/forward_mode_test.cc.
#pragma once

#include <cstdint>
#include <string_view>

namespace shadowgraph {

enum class ForwardMode : uint8_t {
  kExtend,
  kDecode,
  kMixed,         // extends and decodes in one batch: a decode counts as an extend by one token
  kIdle,          // a step without requests, while another data-parallel rank has some
  kTargetVerify,  // the target model judges num_draft_tokens of each request
  kDraftExtend,   // v1: the draft model catches up with the accepted tokens
  kDraftExtendV2,
  kSplitPrefill,
  kDllmExtend,
  kPrebuilt,
  kDraftDecode,  // one step of the draft model; SGLang calls it DECODE with spec_info
};

inline constexpr int kNumForwardModes = 11;

/// Whether DRAFT_EXTEND_V2 counts as an extend: SGLang's include_draft_extend_v2.
enum class DraftExtendV2 : uint8_t { kExcluded, kIncluded };

constexpr bool is_decode(ForwardMode m) {
  return m == ForwardMode::kDecode || m == ForwardMode::kDraftDecode;
}
constexpr bool is_decode_or_idle(ForwardMode m) { return is_decode(m) || m == ForwardMode::kIdle; }
constexpr bool is_target_verify(ForwardMode m) { return m == ForwardMode::kTargetVerify; }
constexpr bool is_draft_extend_v2(ForwardMode m) { return m == ForwardMode::kDraftExtendV2; }
constexpr bool is_draft_extend(ForwardMode m, DraftExtendV2 v2 = DraftExtendV2::kExcluded) {
  return m == ForwardMode::kDraftExtend ||
         (v2 == DraftExtendV2::kIncluded && is_draft_extend_v2(m));
}
constexpr bool is_extend_without_speculative(ForwardMode m) {
  return m == ForwardMode::kExtend || m == ForwardMode::kMixed || m == ForwardMode::kSplitPrefill ||
         m == ForwardMode::kDllmExtend;
}
constexpr bool is_extend(ForwardMode m, DraftExtendV2 v2 = DraftExtendV2::kExcluded) {
  return is_extend_without_speculative(m) || is_target_verify(m) || is_draft_extend(m, v2);
}
constexpr bool is_extend_or_draft_extend_or_mixed(ForwardMode m,
                                                  DraftExtendV2 v2 = DraftExtendV2::kExcluded) {
  return is_extend(m, v2) && !is_target_verify(m) && m != ForwardMode::kDllmExtend;
}
constexpr bool is_context_parallel_extend(ForwardMode m,
                                          DraftExtendV2 v2 = DraftExtendV2::kExcluded) {
  return m == ForwardMode::kExtend || m == ForwardMode::kMixed ||
         (v2 == DraftExtendV2::kIncluded && is_draft_extend_v2(m));
}
/// Modes that SGLang's target runner captures.
constexpr bool is_cuda_graph(ForwardMode m) {
  return is_decode_or_idle(m) || is_target_verify(m) || m == ForwardMode::kDllmExtend;
}

/// "target_verify"
constexpr std::string_view name_of(ForwardMode m) {
  constexpr std::string_view kNames[kNumForwardModes] = {
      "extend",        "decode",       "mixed",           "idle",
      "target_verify", "draft_extend", "draft_extend_v2", "split_prefill",
      "dllm_extend",   "prebuilt",     "draft_decode"};
  return kNames[static_cast<int>(m)];
}

}  // namespace shadowgraph
