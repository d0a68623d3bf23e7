// Laws of a step: its batch is what the pools say.
#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "attn/tree_mask.h"
#include "core/laws.h"
#include "runtime/batch_laws.h"
#include "runtime/pool_state.h"
#include "shadowgraph/layers/recurrent.h"

namespace shadowgraph {
namespace {

class StepCheck {
 public:
  StepCheck(const Step& step, const PoolState& state) : s_(step), pools_(state), b_(step.batch()) {}

  Status run() {
    status_.add(validate(b_));
    if (s_.requests.size() != s_.seq_lens.size() ||
        s_.req_pool_indices.size() != s_.seq_lens.size())
      fail("step.request", at("requests"), std::to_string(b_.size()) + " requests and rows",
           static_cast<int64_t>(s_.requests.size()));
    if (s_.req_to_token != pools_.req_to_token || s_.full_to_swa != pools_.full_to_swa)
      fail("step.request", at("req_to_token"), "the pools' tables", 0);
    if (!status_.ok()) return std::move(status_);
    for (int64_t i = 0; i < b_.size(); ++i) check_request(i);
    if (status_.ok()) check_tokens();
    return std::move(status_);
  }

 private:
  bool drafting() const { return s_.mode == ForwardMode::kDraftDecode; }
  void fail(LawId law, Where where, std::string expected, int64_t got) {
    status_.add(make_finding(law, std::move(where), std::move(expected), std::to_string(got)));
  }
  const PoolRequest& request(int64_t i) const {
    return *pools_.find(s_.requests[static_cast<size_t>(i)]);
  }

  /// I-02, I-03, I-04.
  void check_request(int64_t i) {
    const OwnerId id = s_.requests[static_cast<size_t>(i)];
    judged("step.request");
    judged("step.encoder");
    judged("step.extent");
    const PoolRequest* r = pools_.find(id);
    if (r == nullptr || !seen_.insert(id).second) {
      fail("step.request", at("requests", i), "a running request, once", id);
      return;
    }
    if (s_.req_pool_indices[static_cast<size_t>(i)] != r->row)
      fail("step.request", at("req_pool_indices", i), std::to_string(r->row),
           s_.req_pool_indices[static_cast<size_t>(i)]);
    const int32_t encoder_len = b_.encoder_len(i);
    if (encoder_len != r->encoder_len)
      fail("step.encoder", at("encoder_lens", i), std::to_string(r->encoder_len), encoder_len);
    const RequestExtent e = b_.extent(i);
    const int32_t prefix = r->kv_len + (drafting() ? s_.draft_step : 0);
    if (s_.mode == ForwardMode::kDraftExtend && e.q_len != r->accepted_len)
      fail("step.extent", at("extend_lens", i),
           std::to_string(r->accepted_len) + " tokens, as were accepted", e.q_len);
    const int32_t beyond = std::max(s_.draft.num_draft_tokens, s_.draft.num_steps);
    if (e.prefix_len != prefix || e.q_len < 1)
      fail("step.extent", at("seq_lens", i),
           "a prefix of " + std::to_string(prefix) + " stored tokens, and some new", e.prefix_len);
    check_state(i, *r);
    if (e.kv_len > pools_.config.max_context_len + beyond ||
        (!drafting() && e.kv_len > r->slots_len))
      fail("step.extent", at("seq_lens", i), "keys that have slots, within the context", e.kv_len);
  }

  /// fi.I-88, fi.I-96.
  void check_state(int64_t i, const PoolRequest& r) {
    if (pools_.config.state_slots == 0) return;
    judged("step.state");
    const auto row = static_cast<size_t>(r.row);
    const int64_t slot = row < s_.state_slots.size() ? s_.state_slots[row] : -1;
    if (slot != r.state_slot)
      fail("step.state", at("state_slots", r.row), std::to_string(r.state_slot), slot);
    if (is_draft_extend(s_.mode, DraftExtendV2::kIncluded)) check_commit(i, r);
    const auto at_row = static_cast<size_t>(i);
    const int64_t track = at_row < s_.track_slots.size() ? s_.track_slots[at_row] : -1;
    if (track != r.track_slot)
      fail("step.state", at("track_slots", i), std::to_string(r.track_slot), track);
  }

  /// fi.I-93: what is accepted becomes the request's state.
  void check_commit(int64_t i, const PoolRequest& r) {
    const StateMove want{.kind = StateMove::Kind::kCommit,
                         .slot = r.state_slot,
                         .from = static_cast<int32_t>(i),
                         .step = r.last_accepted,
                         .owner = r.id};
    if (std::ranges::find(s_.state_moves, want) == s_.state_moves.end())
      fail("step.state", at("state_moves", i),
           "a commit of draft token " + std::to_string(r.last_accepted), -1);
  }

  void check_tokens() {
    size_t token = 0;
    std::set<int64_t> slots;
    for (int64_t i = 0; i < b_.size(); ++i) {
      const ForwardBatch one = b_.slice(i, 1);
      if (drafting())
        check_draft(i, one);
      else
        check_new(i, one);
      check_positions(i, one);
      if (is_target_verify(s_.mode)) check_links(i, one);
      judged("step.slots", std::ssize(one.out_cache_loc));
      for (const int64_t slot : one.out_cache_loc) {
        if (!slots.insert(slot).second)
          fail("step.slots", at("out_cache_loc", static_cast<int64_t>(token)), "slots once", slot);
        ++token;
      }
    }
    if (token != s_.out_cache_loc.size() || (b_.size() > 0 && token == 0))
      fail("step.slots", at("out_cache_loc"), "a slot for each new token",
           static_cast<int64_t>(s_.out_cache_loc.size()));
    check_encoders();
    check_copies();
  }

  /// I-08.
  void check_new(int64_t i, const ForwardBatch& one) {
    const auto text = pools_.text(request(i));
    for (size_t t = 0; t < one.out_cache_loc.size(); ++t) {
      const int32_t want = text[static_cast<size_t>(one.extent(0).prefix_len) + t];
      if (one.out_cache_loc[t] != want)
        fail("step.slots", at("out_cache_loc", i, static_cast<int64_t>(t)), std::to_string(want),
             one.out_cache_loc[t]);
    }
  }

  /// I-13: each branch goes on where the prefix ends, in its page or in pages of its own.
  void check_draft(int64_t i, const ForwardBatch& one) {
    const PoolRequest& r = request(i);
    const int32_t page_size = pools_.config.page_size;
    const bool paged = page_size > 1 && s_.draft.topk > 1;
    const int32_t tail = paged ? r.kv_len % page_size : 0;
    std::set<int64_t> pages;
    for (int32_t k = 0; k < s_.draft.topk; ++k) {
      for (int32_t j = 0; j < s_.draft.num_steps; ++j) {
        const int64_t n = k * s_.draft.num_steps + j;
        const int64_t slot = one.out_cache_loc[static_cast<size_t>(n)];
        const Where where = at("out_cache_loc", i, n);
        judged("step.draft");
        if (!has_slot(r, slot)) fail("step.draft", where, "one of the request's slots", slot);
        if (!paged) continue;
        const int64_t offset = (tail + j) % page_size;
        if (slot % page_size != offset)
          fail("step.draft", where, "offset " + std::to_string(offset), slot % page_size);
        const bool opens = j == 0 || offset == 0;
        if (opens ? !pages.insert(slot / page_size).second
                  : one.out_cache_loc[static_cast<size_t>(n - 1)] != slot - 1)
          fail("step.draft", where, opens ? "a page of the branch's own" : "the next slot", slot);
      }
      if (tail > 0 && s_.draft_step == 0) check_tail(i, k, one);
    }
  }

  /// The tail of the prefix is before a branch's first slot: itself, or copied.
  void check_tail(int64_t i, int32_t k, const ForwardBatch& one) {
    const PoolRequest& r = request(i);
    const int32_t tail = r.kv_len % pools_.config.page_size;
    const int64_t first =
        one.out_cache_loc[static_cast<size_t>(k) * static_cast<size_t>(s_.draft.num_steps)];
    for (int32_t t = 1; t <= tail; ++t) {
      const SlotCopy copy{pools_.text(r)[static_cast<size_t>(r.kv_len - t)],
                          static_cast<int32_t>(first - t)};
      if (copy.from != copy.to && std::ranges::find(s_.copies, copy) == s_.copies.end())
        fail("step.draft", at("copies", i, k), "a copy of slot " + std::to_string(copy.from),
             copy.to);
    }
  }

  bool has_slot(const PoolRequest& r, int64_t slot) const {
    const auto text = pools_.text(r).first(static_cast<size_t>(r.slots_len));
    return std::ranges::find(text, slot) != text.end();
  }

  /// I-12, and of a tree its mask.
  void check_positions(int64_t i, const ForwardBatch& one) {
    const RequestExtent e = one.extent(0);
    const bool tree = is_target_verify(s_.mode) && s_.draft.topk > 1;
    if (tree && one.spec.custom_mask.empty()) {
      fail("step.mask", at("custom_mask", i), "a mask", 0);
      return;
    }
    const TreeMask mask(one.spec.custom_mask, e);
    if (tree) judged("step.mask");
    judged("step.positions", std::ssize(one.positions));
    for (int64_t t = 0; t < std::ssize(one.positions); ++t) {
      const auto token = static_cast<int32_t>(t);
      if (tree && (!mask.follows_its_parent(token) || mask.row(token)[0] == 0))
        fail("step.mask", at("custom_mask", i, token), "the prefix, and a path from the root", 0);
      const int64_t want = position_of(one, t), got = one.positions[static_cast<size_t>(t)];
      if (got != want) fail("step.positions", at("positions", i, t), std::to_string(want), got);
    }
    if (one.positions.empty()) fail("step.positions", at("positions", i), "a position a token", 0);
  }

  /// fi.I-94: recurrent layers read the tree from links. Chains, and trees that no layer reads so,
  /// may have none.
  void check_links(int64_t i, const ForwardBatch& one) {
    const auto next = one.spec.retrieve_next_token, sibling = one.spec.retrieve_next_sibling;
    const bool tree = s_.draft.topk > 1, needed = tree && pools_.config.state_slots > 0;
    if (next.empty() && sibling.empty() && !needed) return;
    judged("step.links");
    if (next.empty()) fail("step.links", at("retrieve_next_token", i), "a link a token", 0);
    if (sibling.empty()) fail("step.links", at("retrieve_next_sibling", i), "a link a token", 0);
    if (next.empty() || sibling.empty()) return;
    std::vector<int32_t> parents(next.size());
    Status links = tree_parents(next, sibling, s_.draft.num_draft_tokens, parents);
    const bool sound = links.ok();
    for (Finding& f : links.findings()) {
      const bool child = f.where.field == "first_child";
      f = make_finding("step.links",
                       at(child ? "retrieve_next_token" : "retrieve_next_sibling", i, f.where.row),
                       f.expected, f.got);
    }
    status_.add(std::move(links));
    if (sound && !(tree && one.spec.custom_mask.empty())) check_parents(i, one, parents);
  }

  /// parents: of the links.
  void check_parents(int64_t i, const ForwardBatch& one, std::span<const int32_t> parents) {
    const TreeMask mask(one.spec.custom_mask, one.extent(0));
    for (int32_t t = 1; t < std::ssize(parents); ++t) {
      const int32_t want = s_.draft.topk > 1 ? mask.parent(t) : t - 1;
      const int32_t got = parents[static_cast<size_t>(t)];
      if (got != want)
        status_.add(make_finding("step.links", at("retrieve_next_token", i, t),
                                 want < 0 ? "a root" : "a child of " + std::to_string(want),
                                 "a child of " + std::to_string(got)));
    }
  }

  /// The encoder's tokens are stored with the first of the text, where the row has them.
  void check_encoders() {
    std::vector<int64_t> want;
    bool first = false;
    for (int64_t i = 0; i < b_.size(); ++i) {
      const PoolRequest& r = request(i);
      const auto row = pools_.row(r).first(static_cast<size_t>(r.encoder_len));
      want.insert(want.end(), row.begin(), row.end());
      first = first || (r.kv_len == 0 && r.encoder_len > 0);
    }
    if (first ? s_.encoder_out_cache_loc != want : !s_.encoder_out_cache_loc.empty())
      fail("step.encoder", at("encoder_out_cache_loc"),
           first ? "the first slots of each row" : "none",
           static_cast<int64_t>(s_.encoder_out_cache_loc.size()));
  }

  /// Inside one request of the step, and never to its stored tokens.
  void check_copies() {
    for (size_t n = 0; n < s_.copies.size(); ++n) {
      const SlotCopy& copy = s_.copies[n];
      judged("step.copies");
      bool ok = false;
      for (int64_t i = 0; i < b_.size(); ++i) {
        const PoolRequest& r = request(i);
        const auto stored = pools_.text(r).first(static_cast<size_t>(r.kv_len));
        ok = ok || (has_slot(r, copy.from) && has_slot(r, copy.to) &&
                    std::ranges::find(stored, copy.to) == stored.end());
      }
      if (!ok)
        fail("step.copies", at("copies", static_cast<int64_t>(n)),
             "from a request's slot to one of its free ones", copy.to);
    }
  }

  const Step& s_;
  const PoolState& pools_;
  ForwardBatch b_;
  Status status_;
  std::set<OwnerId> seen_;
};

}  // namespace

Status check_step(const Step& step, const PoolState& state) { return StepCheck(step, state).run(); }

}  // namespace shadowgraph
