#include "testing/generate.h"

#include <algorithm>
#include <string>

#include "attn/page_table.h"
#include "core/laws.h"
#include "runtime/small_steps.h"

namespace shadowgraph::testing {
namespace {

constexpr int32_t kMostSmallExtend = 2;
constexpr int32_t kMostSmallTree = 5;  // tokens of which every tree is tried

bool shows(const Options& o, ForwardMode mode) {
  return std::ranges::find(o.modes, mode) != o.modes.end();
}

DraftShape draft_of(const Options& o) { return {o.topk, o.num_steps, o.num_draft_tokens}; }

/// How requests go on behind their prompts; an engine may have several ways.
enum class Decoding : uint8_t { kPlain, kDraft, kBlocks };

std::vector<Decoding> decodings(const Options& o) {
  std::vector<Decoding> list = {Decoding::kPlain};
  if (o.num_steps > 0) list.push_back(Decoding::kDraft);
  if (o.dllm_block > 0) list.push_back(Decoding::kBlocks);
  return list;
}

/// The largest of a page size, with pages for all requests.
RuntimeConfig config_of(const Options& o, int32_t page_size, Decoding decoding) {
  RuntimeConfig r;
  r.max_requests = o.max_requests, r.max_context_len = o.max_context_len;
  r.page_size = page_size, r.max_chunk = o.max_extend_len;
  r.max_encoder_len = o.max_encoder_len, r.window_left = o.window_left;
  r.radix = o.prefix_cache, r.prebuilt = shows(o, ForwardMode::kPrebuilt);
  if (decoding == Decoding::kDraft) r.draft = draft_of(o);
  if (decoding == Decoding::kBlocks) r.dllm_block = o.dllm_block;
  if (page_size < 1) return r;
  r.num_pages = o.max_requests * static_cast<int32_t>(pages_for(r.width(), page_size));
  if (r.window_left >= 0) r.swa_pages = std::max(r.num_pages + 2, r.least_swa_pages());
  return r;
}

void add_new(Status more, Status* all) {
  for (Finding& f : more.findings()) {
    const auto same = [&](const Finding& g) { return g.to_string() == f.to_string(); };
    if (std::ranges::none_of(all->findings(), same)) all->add(std::move(f));
  }
}

/// Lengths of the new tokens of one request in a small batch.
struct NewTokens {
  int32_t least = 1, most = 1;
};

NewTokens small_new_tokens(const Options& o, ForwardMode mode) {
  const int32_t most = std::min(kMostSmallExtend, o.max_extend_len);
  switch (mode) {
    case ForwardMode::kDecode:
    case ForwardMode::kDraftDecode: return {1, 1};
    case ForwardMode::kDllmExtend: return {o.dllm_block, o.dllm_block};
    case ForwardMode::kTargetVerify:
    case ForwardMode::kDraftExtendV2: return {o.num_draft_tokens, o.num_draft_tokens};
    default: return {1, most};
  }
}

/// To one more than two pages, and such that the new tokens fit into the context; drafts are
/// behind it.
int32_t most_prefix(const Options& o, ForwardMode mode, int32_t page_size) {
  if (mode == ForwardMode::kPrebuilt) return 0;
  const bool drafts = mode == ForwardMode::kDraftDecode || mode == ForwardMode::kTargetVerify;
  const int32_t room = o.max_context_len - (drafts ? 0 : small_new_tokens(o, mode).most);
  return std::clamp(room, 0, 2 * page_size + 1);
}

/// Trees of a target verify whose branches are no longer than the draft.
std::vector<DraftTree> small_trees(const Options& o) {
  if (o.num_draft_tokens > kMostSmallTree) {
    Choices simplest(std::span<const uint32_t>{});
    return {DraftTree::random(draft_of(o), simplest)};
  }
  std::vector<DraftTree> trees = all_trees(o.num_draft_tokens, o.topk);
  std::erase_if(trees, [&](const DraftTree& t) { return t.depth.back() > o.num_steps; });
  return trees;
}

void choose_draft(const Options& o, Choices& c, StepShape* shape) {
  if (shape->mode == ForwardMode::kDraftDecode)
    shape->draft_step = static_cast<int32_t>(c.below(static_cast<uint32_t>(o.num_steps - 1)));
  if (shape->mode != ForwardMode::kTargetVerify || o.topk == 1) return;
  const std::vector<DraftTree> trees = small_trees(o);
  const DraftTree& tree = trees[c.below(static_cast<uint32_t>(trees.size()))];
  shape->trees.assign(shape->prefix_lens.size(), tree);
}

void choose_lengths(const Options& o, Choices& c, StepShape* shape) {
  const NewTokens count = small_new_tokens(o, shape->mode);
  const int32_t longest = most_prefix(o, shape->mode, shape->page_size);
  const bool has_lens = !is_decode(shape->mode) && !is_target_verify(shape->mode);
  for (int32_t i = c.between(1, std::min(o.small_requests, o.max_requests)); i > 0; --i) {
    shape->prefix_lens.push_back(c.between(0, longest));
    if (has_lens) shape->q_lens.push_back(c.between(count.least, count.most));
    // An encoder is stored with a request's first tokens: of a decode it is there.
    if (o.max_encoder_len == 0) continue;
    const bool any = shape->mode == ForwardMode::kDecode && o.max_encoder_len >= shape->page_size;
    shape->encoder_lens.push_back(any ? shape->page_size * c.between(0, 1) : 0);
  }
}

}  // namespace

int32_t Options::max_kv_len() const {
  return max_context_len + (num_steps > 0 ? std::max(num_steps, num_draft_tokens) : 0);
}

int32_t Options::max_tokens() const {
  int32_t a_request = std::max(max_extend_len, dllm_block);
  if (shows(*this, ForwardMode::kPrebuilt)) a_request = std::max(a_request, max_context_len);
  if (num_steps > 0) a_request = std::max({a_request, num_draft_tokens, num_steps + 1, topk});
  return a_request * max_requests;
}

Status validate(const Options& o) {
  Status status;
  const auto at_least = [&](const char* field, int64_t least, int64_t got) {
    if (got < least)
      status.add(make_finding("test.options", at(field), ">= " + std::to_string(least),
                              std::to_string(got)));
  };
  at_least("modes", 1, std::ssize(o.modes));
  at_least("page_sizes", 1, std::ssize(o.page_sizes));
  at_least("small_requests", 0, o.small_requests);
  at_least("histories", 0, o.histories);
  at_least("steps", 1, o.steps);
  at_least("topk", 1, o.topk);
  at_least("num_steps", 0, o.num_steps);
  at_least("dllm_block", 0, o.dllm_block);
  at_least("window_left", -1, o.window_left);
  for (const int32_t page_size : o.page_sizes) {
    for (const Decoding decoding : decodings(o))
      add_new(shadowgraph::validate(config_of(o, page_size, decoding)), &status);
  }
  return status;
}

std::vector<ForwardMode> small_modes(const Options& o) {
  std::vector<ForwardMode> modes;
  for (const ForwardMode m : o.small_requests > 0 ? o.modes : std::vector<ForwardMode>{}) {
    const bool drafts = is_target_verify(m) || is_draft_extend(m, DraftExtendV2::kIncluded);
    if (m == ForwardMode::kDraftDecode && o.num_steps < 2) continue;
    if (m == ForwardMode::kDllmExtend && o.dllm_block == 0) continue;
    if (!drafts || o.num_steps > 0) modes.push_back(m);
  }
  return modes;
}

SmallBatch small_batch(const Options& o, Choices& c) {
  SmallBatch small;
  const std::vector<ForwardMode> modes = small_modes(o);
  StepShape shape;
  shape.mode = modes[c.below(static_cast<uint32_t>(modes.size()))];
  shape.page_size = small.page_size =
      o.page_sizes[c.below(static_cast<uint32_t>(o.page_sizes.size()))];
  shape.swa = o.window_left >= 0;
  if (shape.mode != ForwardMode::kIdle) {
    shape.order = c.of({PageOrder::kTidy, PageOrder::kReversed, PageOrder::kInterleaved});
    choose_lengths(o, c, &shape);
  }
  const bool speculates = is_target_verify(shape.mode) || shape.mode == ForwardMode::kDraftDecode ||
                          is_draft_extend(shape.mode, DraftExtendV2::kIncluded);
  if (speculates) shape.draft = draft_of(o);
  choose_draft(o, c, &shape);
  const int32_t width =
      config_of(o, shape.page_size, speculates ? Decoding::kDraft : Decoding::kPlain).width();
  small.step = make_step(shape, width);
  small.step.encoder_out_cache_loc.clear();
  const auto requests = static_cast<int32_t>(shape.prefix_lens.size());
  small.pool_pages = pool_slots(requests, width, shape.page_size) / shape.page_size;
  return small;
}

RuntimeConfig random_config(const Options& o, Choices& c) {
  const std::vector<Decoding> ways = decodings(o);
  const Decoding decoding = ways[c.below(static_cast<uint32_t>(ways.size()))];
  const int32_t page_size = o.page_sizes[c.below(static_cast<uint32_t>(o.page_sizes.size()))];
  RuntimeConfig r = config_of(o, page_size, decoding);
  r.max_requests = c.between(1, o.max_requests);
  // From a pool that holds one request to one that holds all.
  r.num_pages = r.num_pages / o.max_requests * c.between(1, o.max_requests);
  r.radix = o.prefix_cache && c.one_in(2);
  return r;
}

}  // namespace shadowgraph::testing
