// SGLang's attention unit tests as data (sglang#26517, sglang#26658): the numbers of each case, by
// method. A case here is one step; a runner runs it eagerly, and as a replay where engines capture
// the mode. So one row stands for several of upstream's subtests: both runs, and kinds of drafts
// (EAGLE, frozen KV, DFlash, n-gram) that are one to metadata.
#pragma once

#include <vector>

#include "upstream/stories.h"

namespace shadowgraph {

struct UpstreamCase {
  const char* name;
  StepShape shape;             // with its page size and speculation
  int32_t subtests = 1;        // upstream's, with these numbers
  int32_t kv_heads = 4;        // of 4
  int32_t window_left = -1;    // upstream's sliding_window_size
  int32_t bucket = 1;          // rows of the graph, in batches
  bool non_monotonic = false;  // new tokens lie in slots that fall
};
using UpstreamCases = std::vector<UpstreamCase>;

namespace cases {

using enum ForwardMode;

inline const DraftShape kChain{1, 2, 3}, kTree{2, 2, 3}, kDraftChain{1, 3, 3}, kDraftTree{2, 3, 4};
inline const std::vector<DraftTree> kSiblings(2, {{-1, 0, 0}, {0, 1, 1}});

inline StepShape extend(int32_t page_size, Ints prefix, Ints q_lens) {
  return {.mode = kExtend, .page_size = page_size, .prefix_lens = prefix, .q_lens = q_lens};
}
inline StepShape decode(int32_t page_size, Ints prefix) {
  return {.mode = kDecode, .page_size = page_size, .prefix_lens = prefix};
}
inline StepShape verify(int32_t page_size, Ints prefix, DraftShape draft) {
  StepShape s{.mode = kTargetVerify, .page_size = page_size, .prefix_lens = prefix, .draft = draft};
  if (draft.topk > 1) s.trees = kSiblings;
  return s;
}
inline StepShape draft(int32_t page_size, Ints prefix, DraftShape shape) {
  return {.mode = kDraftDecode, .page_size = page_size, .prefix_lens = prefix, .draft = shape};
}
inline StepShape catch_up(ForwardMode mode, int32_t page_size, Ints prefix, Ints q_lens) {
  return {.mode = mode,
          .page_size = page_size,
          .prefix_lens = prefix,
          .q_lens = q_lens,
          .draft = kChain};
}

/// The twelve of every dense backend; ten of them are every method's.
inline const UpstreamCases kInputs = {
    {"extend_page_size_1", extend(1, {2, 4}, {3, 1})},
    {"extend_zero_prefix_exact_page", extend(16, {0}, {16})},
    {"extend_zero_prefix_input_page_edges", extend(16, {0, 0, 0}, {15, 16, 17})},
    {"extend_prefix_exact_page", extend(16, {16}, {2})},
    {"extend_total_exact_page", extend(16, {8}, {8})},
    {"extend_cross_page_boundary", extend(16, {15}, {2})},
    {"extend_ragged_page_boundary", extend(16, {0, 8, 16}, {15, 8, 1})},
    {"extend_page32_cross_boundary", extend(32, {31}, {2})},
    {"decode_page_boundary", decode(16, {14, 15, 16}), 2},
    {"decode_bsz1_nonzero_prefix", decode(16, {7})},
};
inline const UpstreamCases kHeads = {
    {"gqa_decode_page_boundary", decode(16, {14, 15, 16}), 2, 2},
    {"mqa_extend_total_exact_page", extend(16, {8}, {8}), 1, 1},
    {"mqa_decode_bsz1", decode(16, {7}), 1, 1},
};
/// Split operators, with and without breaks: the step is the same.
inline const UpstreamCases kSplitOps = {
    {"split_op_extend_ragged_page_boundary", extend(16, {0, 8, 16}, {15, 8, 1}), 2},
    {"split_op_gqa_extend_cross_page_boundary", extend(16, {15}, {2}), 2, 2},
};

inline StepShape interleaved(StepShape s) {
  s.order = PageOrder::kInterleaved;
  return s;
}
inline const UpstreamCases kInterleaved = {
    {"layout_extend_two_request_ragged", interleaved(extend(16, {8, 16}, {8, 16}))},
    {"layout_decode_page_boundary", interleaved(decode(16, {15, 16, 17}))},
};
/// Only who reads slots one by one can serve it; upstream skips it for FA3 and FA4.
inline const UpstreamCases kNonMonotonic = {
    {.name = "layout_non_monotonic_extend",
     .shape = extend(16, {8, 16}, {8, 16}),
     .non_monotonic = true},
};

/// Eagerly and in graphs, four kinds of drafts.
inline const UpstreamCases kVerifyChain = {{"verify_chain", verify(16, {4, 7}, kChain), 8}};
inline const UpstreamCases kVerifyTree = {{"verify_tree", verify(16, {5, 6}, kTree)},
                                          {"graph_verify_tree", verify(16, {4, 7}, kTree)}};
inline const UpstreamCases kCatchUps = {
    {"draft_extend_ragged_accept", catch_up(kDraftExtend, 16, {2, 5}, {1, 3}), 4}};
/// Padding of two styles; graphs of the batch, twice and four times it; the production runner.
inline const UpstreamCases kCatchUpsV2 = {
    {"draft_extend_v2", catch_up(kDraftExtendV2, 16, {4, 7}, {3, 3}), 3},
    {"draft_extend_v2_padded_to_4", catch_up(kDraftExtendV2, 16, {4, 7}, {3, 3}), 2, 4, -1, 2},
    {"draft_extend_v2_padded_to_8", catch_up(kDraftExtendV2, 16, {4, 7}, {3, 3}), 2, 4, -1, 4},
};
inline const UpstreamCases kDrafts = {{"draft_decode_chain", draft(16, {4, 7}, kDraftChain)}};
inline const UpstreamCases kDraftTrees = {{"draft_decode_tree", draft(1, {4, 7}, kDraftTree)}};
inline const UpstreamCases kFrozenKv = {{"frozen_kv_mtp_decode", decode(16, {4, 7})}};

/// TRTLLM-MHA decodes, on pages of 16 and 32.
inline const UpstreamCases kTrtllmMha = {
    {"decode_page_boundary", decode(16, {14, 15, 16}), 2},
    {"gqa_decode_page_boundary", decode(16, {14, 15, 16}), 2, 2},
    {"mqa_decode_bsz1", decode(16, {7}), 2, 1},
    {"decode_page32_boundary", decode(32, {31, 32}), 2},
};

/// A window of 4 tokens before the query.
inline const UpstreamCases kWindows = {
    {"swa_extend_no_prefix_window_edges", extend(16, {0, 0, 0}, {3, 4, 5}), 3, 4, 4},
    {"swa_decode_within_window", decode(16, {1, 2, 3}), 1, 4, 4},
    {"swa_verify_chain", verify(16, {3, 5}, kChain), 7, 4, 4},
};
inline const UpstreamCases kMoreWindows = {
    {"swa_extend_prefix_window_edges", extend(16, {3, 4, 5}, {2, 2, 2}), 1, 4, 4},
    {"swa_extend_prefix_within_window", extend(16, {1, 2, 3}, {1, 1, 1}), 2, 4, 4},
    {"swa_decode_above_window", decode(16, {7, 8, 9}), 1, 4, 4},
    {"swa_verify_tree", verify(16, {3, 5}, kTree), 2, 4, 4},
    {"swa_verify_above_window", verify(16, {6, 8}, kChain), 1, 4, 4},
    {"layout_swa_extend", interleaved(extend(16, {8, 16}, {8, 16})), 1, 2, 12},
    {"layout_swa_decode", interleaved(decode(16, {15, 16, 17})), 1, 2, 12},
};

/// FlashMLA's pages have 64 tokens. Its prefill is FlashInfer's.
inline const UpstreamCases kFlashMlaExtends = {
    {"extend_zero_prefix_exact_page", extend(64, {0}, {64})},
    {"extend_input_page_edges", extend(64, {0, 0, 0}, {63, 64, 65})},
    {"extend_prefix_exact_page", extend(64, {64}, {2})},
    {"extend_total_exact_page", extend(64, {32}, {32})},
    {"extend_cross_page_boundary", extend(64, {63}, {2})},
    {"extend_ragged_page_boundary", extend(64, {0, 32, 64}, {63, 32, 1}), 3},
};
inline const UpstreamCases kFlashMla = {
    {"decode_page_boundary", decode(64, {61, 62, 63}), 2},
    {"decode_bsz1_nonzero_prefix", decode(64, {31})},
    {"layout_decode_page_boundary", interleaved(decode(64, {62, 63, 64}))},
    {"verify_chain", verify(64, {4, 7}, kChain), 2},
    {"verify_page_boundary", verify(64, {61, 63}, kChain), 2},
    {"draft_extend_ragged_accept", catch_up(kDraftExtend, 64, {2, 5}, {1, 3})},
    {"draft_decode_chain", draft(64, {4, 7}, kDraftChain)},
};

/// DeepSeek sparse attention: the dense fallback, where all keys are chosen; and 128 of many.
inline const UpstreamCases kDsaDense = {
    {"no_prefix_ragged", extend(64, {0, 0, 0}, {3, 8, 17})},
    {"no_prefix_exact_page", extend(64, {0}, {64})},
    {"no_prefix_below_page", extend(64, {0}, {63})},
    {"no_prefix_page_edges", extend(64, {0, 0, 0}, {63, 64, 65})},
    {"prefix_ragged", extend(64, {3, 8}, {2, 3})},
    {"cross_page_boundary", extend(64, {63}, {2})},
    {"prefix_exact_page", extend(64, {64}, {2})},
    {"total_exact_page", extend(64, {48}, {16})},
};
inline const UpstreamCases kDsaSparse = {
    {"sparse_prefill_topk", extend(64, {2048}, {1})},
    {"sparse_prefill_long_extend", extend(64, {2048}, {4})},
    {"sparse_prefill_multi_request", extend(64, {2048, 2048}, {1, 1})},
    {"sparse_decode_topk", decode(64, {127, 128}), 2},
    {"sparse_decode_short_prefix_padding", decode(64, {64, 96})},
    {"sparse_decode_ragged_prefix", decode(64, {64, 128, 192})},
    {"sparse_decode_long_prefix", decode(64, {2048})},
    {"sparse_verify_chain", verify(64, {127, 128}, kChain)},
    {"sparse_draft_extend_v2", catch_up(kDraftExtendV2, 64, {127, 128}, {3, 3})},
};

/// DeepSeek-V4: pages of 256 tokens, a window of 128. Blocks of 4 or 128 tokens, or none.
inline const UpstreamCases kV4Window = {
    {"extend_no_prefix", extend(256, {0}, {16})},
    {"extend_prefix_within_window", extend(256, {64}, {16})},
    {"extend_above_window", extend(256, {128}, {16})},
    {"extend_window_boundary", extend(256, {0}, {128})},
    {"extend_page_edges", extend(256, {0, 0, 0}, {255, 256, 257}), 3},
    {"extend_prefix_exact_page", extend(256, {256}, {4})},
    {"extend_total_exact_page", extend(256, {240}, {16})},
    {"decode_within_window", decode(256, {64}), 2},
    {"decode_multi_request", decode(256, {32, 64}), 2},
    {"decode_above_window", decode(256, {160})},
    {"verify_chain", verify(256, {64, 96}, {1, 3, 4}), 2},
    {"draft_extend", catch_up(kDraftExtend, 256, {64, 96}, {1, 3})},
    {"draft_decode_chain", draft(256, {32, 64}, {1, 3, 4})},
};
inline const UpstreamCases kV4Blocks4 = {
    {"c4_extend", extend(256, {64}, {16})},
    {"c4_decode", decode(256, {64}), 2},
    {"c4_verify_chain", verify(256, {64, 96}, {1, 3, 4}), 2},
};
inline const UpstreamCases kV4Blocks128 = {
    {"c128_extend", extend(256, {128}, {16})},
    {"c128_decode", decode(256, {128}), 2},
    {"c128_verify_chain", verify(256, {128, 160}, {1, 3, 4}), 2},
};

/// Dual chunks of 64 tokens, 16 of them local: keys of the chunk, of the one before, of all before.
inline const UpstreamCases kDualChunks = {
    {"extend_page_size_1", extend(1, {2, 4}, {3, 1})},
    {"extend_zero_prefix_exact_page", extend(16, {0}, {16})},
    {"extend_cross_page_boundary", extend(16, {15}, {2})},
    {"extend_ragged_page_boundary", extend(16, {0, 8, 16}, {15, 8, 1})},
    {"decode_page_boundary", decode(16, {14, 15, 16}), 2},
    {"gqa_decode_page_boundary", decode(16, {14, 15, 16}), 1, 2},
    {"extend_successor_chunk", extend(16, {48}, {16})},
    {"extend_inter_chunk", extend(16, {96}, {16})},
    {"decode_successor_chunk", decode(16, {64})},
    {"decode_inter_chunk", decode(16, {112})},
    {"layout_extend_two_request", interleaved(extend(16, {0, 0}, {16, 32}))},
    {"layout_decode_page_boundary", interleaved(decode(16, {14, 15, 16}))},
};

}  // namespace cases
}  // namespace shadowgraph
