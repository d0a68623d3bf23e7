#include "runtime/small_steps.h"

#include <algorithm>
#include <numeric>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

/// The page that holds page number `page` of a request's row.
int32_t page_at(PageOrder order, int32_t request, int32_t requests, int32_t page, int32_t pages) {
  switch (order) {
    case PageOrder::kReversed: return requests * pages - (request * pages + page);
    case PageOrder::kInterleaved: return 1 + page * requests + request;
    default: return 1 + request * pages + page;
  }
}

void add_rows(const StepShape& s, Step* step) {
  const auto requests = static_cast<int32_t>(s.prefix_lens.size());
  const auto width = static_cast<int32_t>(step->width);
  const auto pages = static_cast<int32_t>(pages_for(width, s.page_size));
  step->req_to_token.assign((s.prefix_lens.size() + 1) * static_cast<size_t>(width), 0);
  auto column = step->req_to_token.begin() + width;
  for (int32_t i = 0; i < requests; ++i) {
    for (int32_t c = 0; c < width; ++c) {
      const int32_t page = page_at(s.order, i, requests, c / s.page_size, pages);
      *column++ = page * s.page_size + c % s.page_size;
    }
    step->req_pool_indices.push_back(i + 1);
    step->requests.push_back(static_cast<OwnerId>(i + 1));
  }
}

/// Slots of columns [first, first + count) of a request's text.
void add_slots(const Step& step, size_t request, int32_t first, int32_t count,
               std::vector<int64_t>* slots) {
  const int32_t encoder = step.encoder_lens.empty() ? 0 : step.encoder_lens[request];
  const auto row = TokenTable{step.req_to_token, step.width}.row(static_cast<int64_t>(request) + 1);
  const auto text = row.subspan(static_cast<size_t>(encoder));
  for (int32_t c = first; c < first + count; ++c) slots->push_back(text[static_cast<size_t>(c)]);
}

/// Every request's tokens are its own.
void add_chains(const StepShape& s, size_t i, int32_t q_len, Step* step) {
  const OwnerId id = step->requests[i];
  const int32_t prefix = s.prefix_lens[i];
  StepChains& c = step->chains;
  if (i == 0) c.prefix_indptr = {0};
  std::vector<int32_t> stored, tokens;
  for (int32_t p = 0; p < prefix; ++p) stored.push_back(own_token(id, p));
  append_path(kNoTokens, stored, &c.prefix);
  c.prefix_indptr.push_back(static_cast<int32_t>(c.prefix.size()));
  const Chain before = prefix > 0 ? c.prefix.back() : kNoTokens;
  if (s.mode == ForwardMode::kDraftDecode) {
    const ProposedTokens proposed{id, prefix, s.draft};
    for (int32_t branch = 0; branch < s.draft.topk; ++branch) {
      append_path(before, proposed.branch(branch), &c.fresh);
      step->input_ids.push_back(proposed.branch(branch)[static_cast<size_t>(s.draft_step)]);
    }
    return;
  }
  if (is_target_verify(s.mode)) {
    std::vector<int32_t> parents(static_cast<size_t>(q_len));
    std::iota(parents.begin(), parents.end(), -1);
    if (i < s.trees.size()) parents = s.trees[i].parent;
    tokens = ProposedTokens{id, prefix, s.draft}.tree(own_token(id, prefix));
    append_tree(before, tokens, parents, &c.fresh);
  } else {
    for (int32_t p = prefix; p < prefix + q_len; ++p) tokens.push_back(own_token(id, p));
    append_path(before, tokens, &c.fresh);
  }
  step->input_ids.insert(step->input_ids.end(), tokens.begin(), tokens.end());
}

void add_request(const StepShape& s, size_t i, Step* step) {
  const int32_t prefix = s.prefix_lens[i];
  const auto row = TokenTable{step->req_to_token, step->width}.row(static_cast<int64_t>(i) + 1);
  int32_t q_len = 1;
  if (!s.q_lens.empty()) q_len = s.q_lens[i];
  if (is_target_verify(s.mode)) q_len = s.draft.num_draft_tokens;
  const bool counts_new = step->seq_lens_kind == SeqLensKind::kFull;
  step->seq_lens.push_back(prefix + (counts_new ? q_len : 0));
  if (!s.q_lens.empty()) step->extend_lens.push_back(q_len);
  add_chains(s, i, q_len, step);
  if (s.mode == ForwardMode::kDraftDecode) {
    const DraftLayout layout{s.draft, s.page_size, prefix};
    layout.append_slots(row, &step->out_cache_loc);
    layout.append_copies(row, &step->copies);
    step->positions.insert(step->positions.end(), static_cast<size_t>(s.draft.topk),
                           prefix + s.draft_step);
    return;
  }
  add_slots(*step, i, prefix, q_len, &step->out_cache_loc);
  const bool tree = i < s.trees.size();
  for (int32_t t = 0; t < q_len; ++t)
    step->positions.push_back(prefix + (tree ? s.trees[i].depth[static_cast<size_t>(t)] : t));
  if (tree) s.trees[i].append_mask(prefix, &step->custom_mask);
}

/// Slots in the order of requests; a request without a prefix begins in its own.
void add_states(const StepShape& s, Step* step) {
  const auto requests = static_cast<int32_t>(s.prefix_lens.size());
  step->state_slots = {0};
  for (int32_t i = 0; i < requests; ++i) {
    const auto at = static_cast<size_t>(i);
    step->state_slots.push_back(i + 1);
    if (s.prefix_lens[at] == 0)
      step->state_moves.push_back({.slot = i + 1, .owner = step->requests[at]});
    if (at < s.trees.size())
      s.trees[at].append_links(&step->retrieve_next_token, &step->retrieve_next_sibling);
    if (!s.track) continue;
    step->track_slots.push_back(requests + i + 1);
    step->track_lens.push_back(s.prefix_lens[at] + s.q_lens[at]);
    step->state_moves.push_back({.slot = requests + i + 1, .owner = step->requests[at]});
  }
}

}  // namespace

Step make_step(const StepShape& s, int32_t width) {
  Step step;
  step.mode = s.mode;
  step.seq_lens_kind = usual_seq_lens_kind(s.mode);
  step.width = width;
  step.draft = s.draft;
  step.draft_step = s.draft_step;
  step.encoder_lens = s.encoder_lens;
  add_rows(s, &step);
  for (size_t i = 0; i < s.prefix_lens.size(); ++i) add_request(s, i, &step);
  for (size_t i = 0; i < s.encoder_lens.size(); ++i) {
    const auto row = TokenTable{step.req_to_token, step.width}.row(static_cast<int64_t>(i) + 1);
    const auto slots = row.first(static_cast<size_t>(s.encoder_lens[i]));
    step.encoder_out_cache_loc.insert(step.encoder_out_cache_loc.end(), slots.begin(), slots.end());
    append_encoder(step.requests[i], s.encoder_lens[i], &step.chains.encoder);
  }
  if (s.states) add_states(s, &step);
  if (!s.swa) return step;
  // Page p of the one pool is page n - p of the other.
  const int32_t slots = pool_slots(static_cast<int32_t>(s.prefix_lens.size()), width, s.page_size);
  for (int32_t slot = 0; slot < slots; ++slot) {
    const int32_t page = slot / s.page_size, pages = slots / s.page_size;
    step.full_to_swa.push_back(page == 0 ? 0 : (pages - page) * s.page_size + slot % s.page_size);
  }
  step.full_to_swa.push_back(-1);
  return step;
}

int32_t pool_slots(int32_t requests, int32_t width, int32_t page_size) {
  return static_cast<int32_t>(1 + requests * pages_for(width, page_size)) * page_size;
}

std::vector<DraftTree> all_trees(int32_t tokens, int32_t topk) {
  std::vector<DraftTree> trees = {{{-1}, {0}}};
  for (int32_t t = 1; t < tokens; ++t) {
    std::vector<DraftTree> longer;
    for (const DraftTree& tree : trees) {
      for (int32_t parent = 0; parent < t; ++parent) {
        const int32_t depth = tree.depth[static_cast<size_t>(parent)] + 1;
        const bool in_order = depth >= tree.depth.back();
        if (!in_order || std::ranges::count(tree.parent, parent) >= topk) continue;
        DraftTree next = tree;
        next.parent.push_back(parent);
        next.depth.push_back(depth);
        longer.push_back(std::move(next));
      }
    }
    trees = std::move(longer);
  }
  return trees;
}

}  // namespace shadowgraph
