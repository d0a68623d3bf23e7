#include "shadowgraph/engine/batch.h"

#include <algorithm>
#include <numeric>

#include "core/laws.h"

namespace shadowgraph {
namespace {

bool needs_extend_lens(ForwardMode m) { return !is_decode_or_idle(m) && !is_target_verify(m); }

/// Adds findings, one field at a time.
class BatchCheck {
 public:
  explicit BatchCheck(const ForwardBatch& batch) : b_(batch) {}

  Status run() {
    judged("len.batch");
    if (!check_sizes()) return std::move(status_);
    for (int64_t i = 0; i < b_.size(); ++i) check_request(i);
    judged("len.overflow");
    if (total_ > INT32_MAX) fail("len.overflow", at("extend_lens"), "sum <= 2147483647", total_);
    check_tokens();
    check_items();
    check_states();
    return std::move(status_);
  }

 private:
  bool draft() const { return b_.mode == ForwardMode::kDraftDecode; }

  void fail(LawId law, Where where, std::string expected, int64_t got) {
    status_.add(make_finding(law, std::move(where), std::move(expected), std::to_string(got)));
  }

  void same_length(const char* field, size_t size, bool optional) {
    if (size == b_.seq_lens.size() || (optional && size == 0)) return;
    fail("len.batch", at(field), std::to_string(b_.size()), static_cast<int64_t>(size));
  }

  /// Checks arrays with one entry per request. False: the requests cannot be read.
  bool check_sizes() {
    same_length("req_pool_indices", b_.req_pool_indices.size(), true);
    same_length("encoder_lens", b_.encoder_lens.size(), true);
    same_length("extend_lens", b_.extend_lens.size(), !needs_extend_lens(b_.mode));
    same_length("orig_seq_lens", b_.orig_seq_lens.size(), true);
    const SpecInfo& s = b_.spec;
    if (draft() || is_target_verify(b_.mode)) judged("len.spec");
    if (draft() && (s.topk < 1 || s.step < 0 || s.step >= s.num_steps))
      fail("len.spec", at("spec.step"), "0 <= step < num_steps, topk >= 1", s.step);
    if (is_target_verify(b_.mode) && s.num_draft_tokens < 1)
      fail("len.spec", at("spec.num_draft_tokens"), ">= 1", s.num_draft_tokens);
    return status_.ok() || (b_.extend_lens.empty() ? !needs_extend_lens(b_.mode)
                                                   : b_.extend_lens.size() == b_.seq_lens.size());
  }

  void check_request(int64_t i) {
    const int64_t len = b_.seq_lens[static_cast<size_t>(i)], q_len = b_.q_len(i);
    judged("len.negative");
    judged("len.extent");
    if (len < 0) fail("len.negative", at("seq_lens", i), ">= 0", len);
    if (q_len < 0) {
      fail("len.negative", at("extend_lens", i), ">= 0", q_len);
      return;
    }
    total_ += q_len;
    const bool full = b_.seq_lens_kind == SeqLensKind::kFull;
    const int64_t kv_len = full ? len : len + (draft() ? b_.spec.step : 0) + q_len;
    // A draft also has the tokens of the steps before.
    const int64_t fresh = q_len + (draft() ? b_.spec.step : 0);
    if (full && len >= 0 && len < fresh)
      fail("len.extent", at("seq_lens", i), ">= " + std::to_string(fresh) + " new tokens", len);
    if (kv_len > INT32_MAX)
      fail("len.overflow", at("seq_lens", i), "prefix + new <= 2147483647", kv_len);
    if (b_.orig_seq_lens.size() == b_.seq_lens.size()) {
      const int64_t whole = b_.orig_seq_lens[static_cast<size_t>(i)];
      if (whole < kv_len)
        fail("len.extent", at("orig_seq_lens", i), ">= " + std::to_string(kv_len) + " keys", whole);
    }
    check_row(i, kv_len);
  }

  /// The pool row exists and names every key.
  void check_row(int64_t i, int64_t kv_len) {
    int64_t encoder_len = 0;
    if (b_.encoder_lens.size() == b_.seq_lens.size()) {
      encoder_len = b_.encoder_lens[static_cast<size_t>(i)];
      if (encoder_len < 0) fail("len.negative", at("encoder_lens", i), ">= 0", encoder_len);
    }
    if (b_.req_pool_indices.size() != b_.seq_lens.size() || b_.req_to_token.width == 0) return;
    const int64_t row = b_.req_pool_indices[static_cast<size_t>(i)];
    judged("table.pool_row");
    judged("table.row_width");
    if (row < 0 || row >= b_.req_to_token.rows()) {
      fail("table.pool_row", at("req_pool_indices", i),
           "0 <= row < " + std::to_string(b_.req_to_token.rows()), row);
    }
    // A tree of drafts has its slots in out_cache_loc.
    const bool tree = draft() && b_.spec.topk > 1;
    const int64_t keys = encoder_len + (tree ? b_.seq_lens[static_cast<size_t>(i)] : kv_len);
    if (keys > b_.req_to_token.width) {
      fail("table.row_width", at("req_to_token", row),
           ">= " + std::to_string(keys) + " columns for request " + std::to_string(i),
           b_.req_to_token.width);
    }
  }

  void check_tokens() {
    const auto total = [&](const char* field, size_t size, int64_t want) {
      if (size > 0) judged("len.total");
      if (size == 0 || static_cast<int64_t>(size) == want) return;
      fail("len.total", at(field), std::to_string(want) + " tokens", static_cast<int64_t>(size));
    };
    const SpecInfo& s = b_.spec;
    total("out_cache_loc", b_.out_cache_loc.size(),
          draft() ? b_.size() * s.topk * s.num_steps : total_);
    total("positions", b_.positions.size(), draft() ? b_.size() * s.topk : total_);
    total("encoder_out_cache_loc", b_.encoder_out_cache_loc.size(),
          std::accumulate(b_.encoder_lens.begin(), b_.encoder_lens.end(), int64_t{0}));
    if (s.custom_mask.empty() || !status_.ok()) return;
    judged("mask.size");
    int64_t pairs = 0;
    for (int64_t i = 0; i < b_.size(); ++i)
      pairs += int64_t{b_.extent(i).q_len} * b_.extent(i).kv_len;
    if (static_cast<int64_t>(s.custom_mask.size()) != pairs)
      fail("mask.size", at("custom_mask"), std::to_string(pairs) + " pairs",
           static_cast<int64_t>(s.custom_mask.size()));
  }

  void check_states() {
    const auto count = [&](const char* field, std::span<const int32_t> list, int64_t want) {
      if (list.empty() || std::ssize(list) == want) return;
      fail("len.batch", at(field), std::to_string(want) + " entries", std::ssize(list));
    };
    const SpecInfo& s = b_.spec;
    const StateInfo& states = b_.states;
    const int64_t drafts = b_.size() * s.num_draft_tokens;
    count("retrieve_next_token", s.retrieve_next_token, drafts);
    count("retrieve_next_sibling", s.retrieve_next_sibling, drafts);
    if (b_.req_to_token.width > 0) count("states.slots", states.slots, b_.req_to_token.rows());
    count("states.track_slots", states.track_slots, b_.size());
    count("states.track_lens", states.track_lens, b_.size());
    if (states.track_slots.size() != states.track_lens.size())
      fail("len.batch", at("states.track_lens"),
           std::to_string(states.track_slots.size()) + " entries", std::ssize(states.track_lens));
  }

  void check_items() {
    const int64_t held = std::ssize(b_.item_delimiters);
    if (b_.item_indptr.empty() && held == 0) return;
    judged("mask.items");
    judged("len.indptr_monotone");
    if (b_.mode != ForwardMode::kExtend)
      fail("mask.items", at("item_delimiters"), "none in " + std::string(name_of(b_.mode)), held);
    if (std::ssize(b_.item_indptr) != b_.size() + 1) {
      fail("len.batch", at("item_indptr"), std::to_string(b_.size() + 1) + " entries",
           std::ssize(b_.item_indptr));
      return;
    }
    int64_t before = 0;
    for (int64_t i = 0; i <= b_.size(); ++i) {
      const int64_t offset = b_.item_indptr[static_cast<size_t>(i)];
      const bool inside = offset >= 0 && offset <= held;
      if (!inside) fail("len.total", at("item_indptr", i), "0 to " + std::to_string(held), offset);
      if (i > 0 && offset < before)
        fail("len.indptr_monotone", at("item_indptr", i), ">= " + std::to_string(before), offset);
      if (i > 0 && inside && before >= 0 && before <= offset) check_places(i - 1, before, offset);
      before = offset;
    }
  }

  /// A request's delimiters, those from `first` to `end`.
  void check_places(int64_t request, int64_t first, int64_t end) {
    const int32_t q_len = b_.q_len(request);
    int64_t least = 0;
    for (int64_t n = first; n < end; ++n) {
      const int64_t place = b_.item_delimiters[static_cast<size_t>(n)];
      if (place < least || place >= q_len)
        fail("mask.items", at("item_delimiters", n),
             std::to_string(least) + " <= place < " + std::to_string(q_len), place);
      least = std::max(least, place + 1);
    }
  }

  const ForwardBatch& b_;
  Status status_;
  int64_t total_ = 0;
};

template <class T>
std::span<const T> part(std::span<const T> s, int64_t first, int64_t count) {
  return s.empty() ? s : s.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

}  // namespace

int32_t ForwardBatch::q_len(int64_t i) const {
  if (!extend_lens.empty()) return extend_lens[static_cast<size_t>(i)];
  return is_target_verify(mode) ? spec.num_draft_tokens : 1;
}

std::span<const int32_t> ForwardBatch::delimiters(int64_t i) const {
  if (item_indptr.empty()) return {};
  const auto first = static_cast<size_t>(item_indptr[static_cast<size_t>(i)]);
  const auto end = static_cast<size_t>(item_indptr[static_cast<size_t>(i) + 1]);
  return item_delimiters.subspan(first, end - first);
}

RequestExtent ForwardBatch::extent(int64_t i) const {
  const auto len = seq_lens[static_cast<size_t>(i)];
  const int32_t new_tokens = q_len(i);
  if (seq_lens_kind == SeqLensKind::kFull) return {len - new_tokens, new_tokens, len};
  const int32_t prefix = len + (mode == ForwardMode::kDraftDecode ? spec.step : 0);
  return {prefix, new_tokens, prefix + new_tokens};
}

int32_t ForwardBatch::prompt_len(int64_t i) const {
  const bool decode = is_decode_or_idle(mode) || orig_seq_lens.empty();
  return decode ? extent(i).kv_len : orig_seq_lens[static_cast<size_t>(i)];
}

ForwardBatch ForwardBatch::slice(int64_t first, int64_t count) const {
  const bool draft = mode == ForwardMode::kDraftDecode;
  int64_t tokens[2] = {}, pairs[2] = {};  // before, and in, the slice
  for (int64_t i = 0; i < first + count; ++i) {
    tokens[i >= first] += draft ? spec.topk : q_len(i);
    pairs[i >= first] += int64_t{extent(i).q_len} * extent(i).kv_len;
  }
  const int64_t slots = draft ? spec.num_steps : 1;
  ForwardBatch b = *this;
  b.req_pool_indices = part(req_pool_indices, first, count);
  b.seq_lens = part(seq_lens, first, count);
  b.extend_lens = part(extend_lens, first, count);
  b.orig_seq_lens = part(orig_seq_lens, first, count);
  b.out_cache_loc = part(out_cache_loc, tokens[0] * slots, tokens[1] * slots);
  b.positions = part(positions, tokens[0], tokens[1]);
  int64_t encoder[2] = {};
  for (int64_t i = 0; i < first + count && !encoder_lens.empty(); ++i)
    encoder[i >= first] += encoder_lens[static_cast<size_t>(i)];
  b.encoder_lens = part(encoder_lens, first, count);
  b.encoder_out_cache_loc = part(encoder_out_cache_loc, encoder[0], encoder[1]);
  b.item_indptr = part(item_indptr, first, count + 1);
  b.spec.custom_mask = part(spec.custom_mask, pairs[0], pairs[1]);
  const int64_t steps = spec.num_draft_tokens;
  b.spec.retrieve_next_token = part(spec.retrieve_next_token, first * steps, count * steps);
  b.spec.retrieve_next_sibling = part(spec.retrieve_next_sibling, first * steps, count * steps);
  b.states.track_slots = part(states.track_slots, first, count);
  b.states.track_lens = part(states.track_lens, first, count);
  return b;
}

Status validate(const ForwardBatch& batch) { return BatchCheck(batch).run(); }

}  // namespace shadowgraph
