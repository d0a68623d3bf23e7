// Steps made by hand, from lengths alone: what an exhaustive grid walks through. A scheduler is not
// asked; every request has pages of its own. Tested by tests/runtime/small_steps_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/step.h"

namespace shadowgraph {

/// Where the pages of the requests lie in the pool.
enum class PageOrder : uint8_t {
  kTidy,         // one request after the other, ascending
  kReversed,     // the same, descending
  kInterleaved,  // page by page in turn
};

struct StepShape {
  ForwardMode mode = ForwardMode::kDecode;
  int32_t page_size = 1;
  PageOrder order = PageOrder::kTidy;
  std::vector<int32_t> prefix_lens = {};   // [batch]
  std::vector<int32_t> q_lens = {};        // [batch] of extends; else empty
  std::vector<int32_t> encoder_lens = {};  // [batch] or empty
  DraftShape draft = {};
  int32_t draft_step = 0;
  std::vector<DraftTree> trees = {};  // [batch] of a target verify with topk > 1
  bool swa = false;                   // a second pool, in which slots are others
  bool states = false;                // request i has state slot i + 1, its snapshot's behind all
  bool track = false;                 // of a prefill: each leaves one
};

/// Requires lengths that fit into rows of so many columns.
Step make_step(const StepShape& shape, int32_t width);
/// Slots of either pool that a step of so many requests and columns may name, page 0 included.
int32_t pool_slots(int32_t requests, int32_t width, int32_t page_size);

/// Every tree of so many tokens with at most topk children each, parents first.
std::vector<DraftTree> all_trees(int32_t tokens, int32_t topk);

}  // namespace shadowgraph
