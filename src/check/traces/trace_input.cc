#include "check/traces/trace_input.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/traces/trace_words.h"
#include "core/laws.h"
#include "runtime/batch_laws.h"

namespace shadowgraph {
namespace {

class InputJudge {
 public:
  explicit InputJudge(const TraceBatch& rebuilt)
      : rebuilt_(rebuilt),
        b_(rebuilt.batch),
        page_size_(rebuilt.model.page_size),
        engine_(rebuilt.engine),
        is_drawn_(engine_.name.starts_with(kSglang.name)),
        drafts_(b_.mode == ForwardMode::kDraftDecode || is_target_verify(b_.mode) ||
                is_draft_extend(b_.mode, DraftExtendV2::kIncluded)),
        pool_(rebuilt.pool_slots) {}

  InputVerdict run() {
    judge_copies();
    judge_rows();
    judge_context();
    for (int64_t i = 0; i < b_.size(); ++i) judge_columns(i);
    judge_window_map();
    judge_owners();
    judge_stored();
    judge_padding();
    judge_positions();
    for (const auto& [key, place] : first_) {
      std::string& got = verdict_.findings.findings()[place.index].got;
      if (place.more > 0) got += " (and " + std::to_string(place.more) + " more)";
    }
    return std::move(verdict_);
  }

 private:
  void add(Finding finding) {
    const auto [it, is_new] = first_.try_emplace(finding.id + ' ' + finding.where.field,
                                                 Place{verdict_.findings.findings().size(), 0});
    if (is_new)
      verdict_.findings.add(std::move(finding));
    else
      ++it->second.more;
  }
  void fail(LawId law, Where where, std::string expected, std::string got) {
    add(make_finding(law, std::move(where), std::move(expected), std::move(got)));
  }

  int64_t row_of(int64_t i) const { return b_.req_pool_indices[static_cast<size_t>(i)]; }
  /// Columns before the first new token.
  int64_t stored_columns(int64_t i) const {
    return int64_t{b_.encoder_len(i)} + b_.extent(i).prefix_len;
  }
  std::span<const int32_t> columns_of(int64_t i) const { return live_columns(b_, i); }
  /// The first of them.
  int64_t first_column(int64_t i) const {
    const int64_t first = rebuilt_.first_live(i);
    return first == 0 ? 0 : b_.encoder_len(i) + first;
  }
  bool is_in_pool(int64_t slot) const { return slot >= 0 && slot < pool_; }
  /// A slot of the pool that the step uses has an entry in the map to the window's pool.
  void judge_mapped(int64_t slot, const std::string& whose) {
    const int64_t size = std::ssize(b_.full_to_swa);
    if (size == 0 || !is_in_pool(slot) || slot < size) return;
    verdict_.fits_twin = false;
    fail("pool.window", at("full_to_swa"), "an entry for slot " + std::to_string(slot) + whose,
         std::to_string(size) + " entries");
  }
  std::string token_at(int64_t i, int64_t column) const { return token_words(b_, i, column); }

  /// A copy has the rows of its original, or all of the bucket.
  void judge_copy(const char* name, const std::optional<std::vector<int32_t>>& copy,
                  std::span<const int32_t> of, const std::string& source) {
    if (!copy) return;
    const int64_t size = std::ssize(*copy);
    judged("len.copy", std::max<int64_t>(size, 1));
    if (size != std::ssize(of) && size != rebuilt_.rows)
      fail("len.copy", at(name), std::to_string(rebuilt_.rows) + " rows", std::to_string(size));
    for (size_t i = 0; i < std::min(copy->size(), of.size()); ++i)
      if ((*copy)[i] != of[i])
        fail("len.copy", at(name, static_cast<int64_t>(i)), std::to_string(of[i]) + source,
             std::to_string((*copy)[i]));
  }

  void judge_copies() {
    judge_copy("seq_lens_cpu", rebuilt_.lens_cpu, rebuilt_.bucket_lens, " as in seq_lens");
    std::vector<int32_t> prefixes;
    for (int64_t i = 0; i < b_.size(); ++i) prefixes.push_back(b_.extent(i).prefix_len);
    judge_copy("extend_prefix_lens", rebuilt_.prefix_lens, prefixes,
               " stored before the step, as the lengths say");
    if (rebuilt_.lens_sum) judge_sum(*rebuilt_.lens_sum);
  }

  void judge_sum(int64_t got) {
    const auto sum = [](std::span<const int32_t> lens) {
      return std::accumulate(lens.begin(), lens.end(), int64_t{0});
    };
    const int64_t want = sum(rebuilt_.bucket_lens);
    judged("len.copy");
    if (got == want) return;
    const bool real = got == sum(b_.seq_lens);
    Finding f =
        make_finding("len.copy", at("seq_lens_sum"), std::to_string(want) + ", the sum of seq_lens",
                     std::to_string(got) + (real ? ": without the rows of padding" : ""));
    f.refs.emplace_back("fa.I-94");
    add(std::move(f));
  }

  void judge_rows() {
    std::unordered_map<int64_t, int64_t> seen;
    for (int64_t i = 0; i < std::ssize(b_.req_pool_indices); ++i) {
      const auto [it, is_new] = seen.try_emplace(row_of(i), i);
      judged("step.request");
      if (!is_new)
        fail("step.request", at("req_pool_indices", i), "a row that no other request has",
             std::to_string(row_of(i)) + ": request " + std::to_string(it->second) + "'s row");
    }
  }

  /// No request is longer than any may be, but for the drafts of one round: a request whose last
  /// tokens were accepted ends as long.
  void judge_context() {
    const ModelConfig& model = rebuilt_.model;
    const int64_t most = model.max_context_len;
    const int64_t drafts = std::max(model.num_draft_tokens, model.num_steps);
    for (int64_t i = 0; i < b_.size() && most > 0; ++i) {
      judged("len.bound");
      const int64_t keys = (drafts_ ? b_.extent(i).prefix_len : b_.extent(i).kv_len) - drafts;
      if (keys > most)
        fail("len.bound", at("config.max_context_len"),
             ">= " + std::to_string(keys) + " tokens of request " + std::to_string(i),
             std::to_string(most));
    }
  }

  /// Drafts may begin anywhere: only their prefix lies in whole pages.
  void judge_columns(int64_t i) {
    const auto columns = columns_of(i);
    int64_t paged = std::ssize(columns);
    if (drafts_)
      paged = b_.encoder_len(i) +
              std::min(b_.extent(i).prefix_len, b_.seq_lens[static_cast<size_t>(i)]);
    Status status;
    check_columns(
        {columns, row_of(i), first_column(i), paged}, page_size_, engine_,
        [&](int64_t slot) { return is_in_pool(slot); }, &status);
    for (Finding& f : status.findings()) {
      const int64_t column = f.where.col.value_or(0);
      const int64_t slot = columns[static_cast<size_t>(column)];
      f.got +=
          ", for " + token_at(i, column) + (is_in_pool(slot) ? "" : rebuilt_.end_of_pool(slot));
      if (f.id == "pool.page")
        f.expected = "offset " + std::to_string(column % page_size_) + " of the page of its column";
      verdict_.fits_twin = verdict_.fits_twin && f.id != "pool.page" && is_in_pool(slot);
      add(std::move(f));
    }
    if (b_.full_to_swa.empty()) return;
    for (int64_t c = first_column(i); c < std::ssize(columns); ++c)
      judge_mapped(columns[static_cast<size_t>(c)], ", for " + token_at(i, c));
  }

  void judge_window_map() {
    judged("pool.window", std::ssize(b_.full_to_swa));
    for (int64_t slot = 0; slot < std::ssize(b_.full_to_swa); ++slot) {
      const int64_t to = b_.full_to_swa[static_cast<size_t>(slot)];
      if (std::in_range<int32_t>(to)) continue;
      verdict_.fits_twin = false;
      fail("pool.window", at("full_to_swa", slot), "a slot of the window pool", std::to_string(to));
    }
  }

  struct Holder {
    int32_t request = -1, column = 0;
  };
  /// The first that holds each slot. Most slots are small numbers.
  class Holders {
   public:
    /// Room for slots below `count`.
    void reserve(int64_t count) { first_.resize(static_cast<size_t>(std::min(count, kMost))); }
    /// nullptr: this is the first.
    const Holder* add(int64_t slot, Holder holder) {
      if (slot < 0 || slot >= kMost) {
        const auto [it, is_new] = others_.try_emplace(slot, holder);
        return is_new ? nullptr : &it->second;
      }
      const auto at = static_cast<size_t>(slot);
      if (at >= first_.size()) first_.resize(std::max(at + 1, 2 * first_.size()));
      if (first_[at].request >= 0) return &first_[at];
      first_[at] = holder;
      return nullptr;
    }
    const Holder* find(int64_t slot) const {
      if (slot >= 0 && slot < std::ssize(first_))
        return first_[static_cast<size_t>(slot)].request < 0 ? nullptr
                                                             : &first_[static_cast<size_t>(slot)];
      const auto it = others_.find(slot);
      return it == others_.end() ? nullptr : &it->second;
    }

   private:
    static constexpr int64_t kMost = int64_t{1} << 21;
    std::vector<Holder> first_;
    std::unordered_map<int64_t, Holder> others_;
  };

  /// Two requests hold a slot rightly where their rows are the same up to it.
  bool share(const Holder& a, const Holder& b) {
    if (a.request == b.request || a.column != b.column) return false;
    if (a.column >= stored_columns(a.request) || b.column >= stored_columns(b.request))
      return false;
    const auto first =
        static_cast<size_t>(std::max(first_column(a.request), first_column(b.request)));
    const auto count = static_cast<size_t>(a.column) - first;  // both hold a live column
    const bool goes_on = shared_ == std::array{a.request, b.request, b.column - 1};
    if (!goes_on && !std::ranges::equal(columns_of(a.request).subspan(first, count),
                                        columns_of(b.request).subspan(first, count)))
      return false;
    shared_ = {a.request, b.request, b.column};
    return true;
  }

  void judge_owners() {
    int64_t most = -1;
    for (int64_t i = 0; i < b_.size(); ++i) {
      for (const int32_t slot : columns_of(i)) most = std::max<int64_t>(most, slot);
    }
    holders_.reserve(most + 1);
    for (int64_t i = 0; i < b_.size(); ++i) judge_owners(i);
  }

  void judge_owners(int64_t i) {
    const auto columns = columns_of(i);
    const int64_t stored = stored_columns(i);
    int64_t new_columns = 0, old_columns = 0;
    for (int64_t c = first_column(i); c < std::ssize(columns); ++c) {
      const int64_t slot = columns[static_cast<size_t>(c)];
      if (rebuilt_.is_nobodys(slot)) continue;  // pool.slot
      const Holder mine{static_cast<int32_t>(i), static_cast<int32_t>(c)};
      const Holder* held = holders_.add(slot, mine);
      const bool is_new = c >= stored;
      ++(is_new ? new_columns : old_columns);
      if (held == nullptr || share(*held, mine)) continue;
      const Holder other = *held;
      const bool theirs = other.column >= stored_columns(other.request);
      LawId law = "pool.shared";
      if (is_new || theirs) law = "step.slots";
      if (is_new && theirs && other.request != i) law = "slot.duplicate";
      fail(law, at("req_to_token", row_of(i), c), "a slot of its own, for " + token_at(i, c),
           std::to_string(slot) + ": the slot of " + token_at(other.request, other.column));
    }
    judged("step.slots", new_columns);
    judged("pool.shared", old_columns);
  }

  /// Keys are read where they are stored. Slots of a draft's branches may not be in req_to_token
  /// yet. Tokens that nobody reads may be stored in padding's slot.
  void judge_stored() {
    verdict_.stores.assign(b_.out_cache_loc.begin(), b_.out_cache_loc.end());
    judged("slot.range", std::ssize(b_.out_cache_loc));
    judged("slot.duplicate", std::ssize(b_.out_cache_loc));
    for (int64_t t = 0; t < std::ssize(b_.out_cache_loc); ++t) {
      const int64_t slot = b_.out_cache_loc[static_cast<size_t>(t)];
      if (!is_in_pool(slot) && slot != engine_.padding_slot)
        fail("slot.range", at("out_cache_loc", t), "a slot of the pool",
             std::to_string(slot) + rebuilt_.end_of_pool(slot));
      judge_mapped(slot, ", where new token " + std::to_string(t) + " is stored");
    }
    const bool apart = drafts_ && !has_columns_of_drafts();
    if (drafts_) judge_stored_once(apart && !is_drawn_);
    if (apart) return;
    for_each_stored([&](int64_t i, int64_t c, int64_t token, int64_t want, int64_t got) {
      judged("slot.write");
      if (got == want || rebuilt_.is_nobodys(want)) return;  // pool.slot
      verdict_.stores[static_cast<size_t>(token)] = want;
      const Holder* holder = holders_.find(got);
      const std::string whose = holder == nullptr
                                    ? ", a slot of no request"
                                    : ", the slot of " + token_at(holder->request, holder->column);
      fail("slot.write", at("out_cache_loc", token),
           std::to_string(want) + ", the slot of " + token_at(i, c),
           std::to_string(got) + (got < 0 ? ", no slot" : whose));
    });
  }

  /// fn(request, column, token, slot of the column, slot where the token is stored)
  template <class Fn>
  void for_each_stored(Fn fn) const {
    int64_t token = 0;
    for (int64_t i = 0; i < b_.size() && !b_.out_cache_loc.empty(); ++i) {
      const auto columns = columns_of(i);
      for (int64_t c = stored_columns(i); c < std::ssize(columns); ++c, ++token)
        fn(i, c, token, columns[static_cast<size_t>(c)],
           b_.out_cache_loc[static_cast<size_t>(token)]);
    }
  }

  /// Recordings of SGLang's builders drew the slots of drafts and the map apart. In such a line one
  /// token that is stored in its own column shows that the map has the drafts.
  bool has_columns_of_drafts() const {
    const bool chain = b_.mode != ForwardMode::kDraftDecode && b_.spec.topk == 1;
    bool any = !is_drawn_;
    for_each_stored([&](int64_t, int64_t, int64_t, int64_t want, int64_t got) {
      any = any || (got == want && !rebuilt_.is_nobodys(want));
    });
    return chain && any;
  }

  void judge_stored_once(bool apart_from_keys) {
    std::unordered_map<int64_t, int64_t> seen;
    for (int64_t t = 0; t < std::ssize(b_.out_cache_loc); ++t) {
      const int64_t slot = b_.out_cache_loc[static_cast<size_t>(t)];
      if (slot == engine_.padding_slot) continue;
      if (rebuilt_.one_step && t % b_.spec.num_steps != b_.spec.step) continue;
      const Holder* holder = holders_.find(slot);
      if (apart_from_keys && holder != nullptr && holder->column < stored_columns(holder->request))
        fail("step.slots", at("out_cache_loc", t), "a slot that holds no stored key",
             std::to_string(slot) + ": the slot of " + token_at(holder->request, holder->column));
      const auto [it, is_new] = seen.try_emplace(slot, t);
      if (!is_new)
        fail("slot.duplicate", at("out_cache_loc", t), "a slot of its own",
             std::to_string(slot) + ": new token " + std::to_string(it->second) +
                 " is stored there, too");
    }
  }

  /// The engine stores padding in its slot, or in the page that is nobody's; an engine without such
  /// a slot stores it wherever no live key lies. A draft extend's tokens may stand in rows of the
  /// graph's width: tokens behind the last accepted one need not be padding.
  void judge_padding() {
    if (is_draft_extend(b_.mode, DraftExtendV2::kIncluded)) return;
    const auto own = engine_.padding_slot;
    judged("slot.write", std::ssize(rebuilt_.padding_slots));
    for (int64_t t = 0; t < std::ssize(rebuilt_.padding_slots); ++t) {
      const int64_t slot = rebuilt_.padding_slots[static_cast<size_t>(t)];
      const Where where = at("out_cache_loc", std::ssize(b_.out_cache_loc) + t);
      const Holder* holder = holders_.find(slot);
      std::string got = std::to_string(slot);
      if (holder != nullptr) got += ": the slot of " + token_at(holder->request, holder->column);
      if (own && slot != *own && !engine_.is_reserved(slot, page_size_))
        fail("slot.write", where, std::to_string(*own) + " for padding", std::move(got));
      else if (!own && holder != nullptr)
        fail("slot.write", where, "a slot of no live key, for padding", std::move(got));
      else if (!own && slot != -1 && !is_in_pool(slot))
        fail("slot.range", where, "a slot of the pool, for padding",
             got + rebuilt_.end_of_pool(slot));
    }
  }

  /// The positions that new token `token` of a request's batch may have. A draft's may be those of
  /// its first step: engines plan all steps before it runs.
  std::pair<int64_t, int64_t> positions_of(int64_t request, const ForwardBatch& one,
                                           int64_t token) const {
    const RequestExtent e = one.extent(0);
    if (is_tree_ && !rebuilt_.kernel_has_mask) return {e.prefix_len, e.kv_len - 1};
    const int64_t want = position_of(one, token);
    const int64_t first = b_.seq_lens[static_cast<size_t>(request)];
    const int64_t got = one.positions[static_cast<size_t>(token)];
    if (b_.mode == ForwardMode::kDraftDecode && got == first) return {first, first};
    return {want, want};
  }

  void judge_positions() {
    if (b_.positions.empty() && rebuilt_.padding_positions.empty()) return;
    ForwardBatch batch = b_;
    is_tree_ = is_target_verify(b_.mode) && (b_.spec.topk > 1 || !rebuilt_.tree_mask.empty());
    if (is_tree_) {
      batch.spec.topk = std::max(2, batch.spec.topk);
      batch.spec.custom_mask = rebuilt_.tree_mask;
    }
    judged("step.positions", std::ssize(b_.positions) + std::ssize(rebuilt_.padding_positions));
    const bool known = !is_tree_ || (!rebuilt_.tree_mask.empty() && validate(batch).ok());
    int64_t token = 0;
    for (int64_t i = 0; i < batch.size() && known; ++i) {
      const ForwardBatch one = batch.slice(i, 1);
      for (int64_t t = 0; t < std::ssize(one.positions); ++t, ++token) {
        const auto [low, high] = positions_of(i, one, t);
        const int64_t got = one.positions[static_cast<size_t>(t)];
        if (got >= low && got <= high) continue;
        const std::string most = high > low ? " to " + std::to_string(high) : "";
        fail("step.positions", at("positions", token),
             std::to_string(low) + most + ": " + std::to_string(one.extent(0).prefix_len) +
                 " tokens before it are stored",
             std::to_string(got));
      }
    }
    const int64_t most =
        rebuilt_.model.max_context_len + std::max(b_.spec.num_draft_tokens, b_.spec.num_steps) - 1;
    for (int64_t t = 0; t < std::ssize(rebuilt_.padding_positions); ++t) {
      const int64_t got = rebuilt_.padding_positions[static_cast<size_t>(t)];
      if (got >= 0 && (rebuilt_.model.max_context_len == 0 || got <= most)) continue;
      fail("step.positions", at("positions", std::ssize(b_.positions) + t),
           "0 to " + std::to_string(most) + " in padding, too", std::to_string(got));
    }
  }

  struct Place {
    size_t index;  // the first finding
    int64_t more;
  };
  const TraceBatch& rebuilt_;
  const ForwardBatch& b_;
  const int64_t page_size_;
  const Engine& engine_;
  const bool is_drawn_;  // slots of drafts may be anywhere
  const bool drafts_;
  bool is_tree_ = false;
  const int64_t pool_;  // slots
  Holders holders_;
  std::array<int32_t, 3> shared_ = {-1, -1, -1};  // two requests, and up to where they share
  std::unordered_map<std::string, Place> first_;
  InputVerdict verdict_;
};

}  // namespace

std::span<const int32_t> live_columns(const ForwardBatch& batch, int64_t request) {
  const auto i = static_cast<size_t>(request);
  const int64_t keys = batch.mode == ForwardMode::kDraftDecode
                           ? batch.seq_lens[i]
                           : int64_t{batch.extent(request).kv_len};
  return batch.req_to_token.row(batch.req_pool_indices[i])
      .first(static_cast<size_t>(
          std::min(batch.req_to_token.width, batch.encoder_len(request) + keys)));
}

InputVerdict judge_input(const TraceBatch& rebuilt) { return InputJudge(rebuilt).run(); }

}  // namespace shadowgraph
