// The words for a wrong table or list: first causes that give the whole row, then the column alone.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "check/traces/trace_words.h"

namespace shadowgraph {

namespace {

constexpr int64_t kNone = -1;

std::string number(int64_t n) { return std::to_string(n); }

/// The slots of a request that this step may use, its encoder's first.
std::span<const int32_t> slots_of(const ForwardBatch& batch, int64_t request) {
  const int64_t keys = std::min<int64_t>(
      batch.encoder_len(request) + int64_t{batch.extent(request).kv_len}, batch.req_to_token.width);
  return batch.req_to_token.row(batch.req_pool_indices[static_cast<size_t>(request)])
      .first(static_cast<size_t>(keys));
}

class TableWords {
 public:
  TableWords(const TraceStep& step, const BufferInfo& field, const TablePlace& place)
      : step_(step), batch_(step.rebuilt.batch), field_(field), p_(place), request_(request()) {
    if (!request_) return;
    for (const bool window : {false, true}) {
      in_window_ = window && !one_pool();
      want_ = place_of(*request_, p_.expected);
      if (one_pool() || stands_in_map()) return;
    }
    want_ = kNone;
  }

  SlipWords find() const {
    if (p_.got == kNeverWritten) return slip("memory.unwritten");
    const bool alone = columns() == 1;
    SlipWords found;
    const auto is = [&](SlipWords slip) { return !(found = std::move(slip)).words.empty(); };
    if (p_.got < 0 || p_.got > last_slot() / p_.unit) {
      // A slot may be no page because its number is larger.
      if ((!alone && is(unit_of_row())) || is(unit_of_column())) return found;
      return no_page();
    }
    if (!alone && (is(unit_of_row()) || is(offset_of_row()) || is(pool_of(0, columns()))))
      return found;
    if (is(other_column()) || is(pool_of(column(), column() + 1)) || is(other_row()) || is(owner()))
      return found;
    // One column that is wrong is little to tell by.
    if ((wrong_columns() == 1 && is(unit_of_column())) || (alone && is(offset_of_row())))
      return found;
    return nobody();
  }

 private:
  bool is_list() const { return field_.shape == FieldShape::kList; }
  const Buffer& twin(int buffer) const { return step_.twin[static_cast<size_t>(buffer)]; }
  bool one_pool() const { return batch_.full_to_swa.empty(); }
  bool pool_is_known() const { return one_pool() || want_ != kNone; }
  std::string what() const { return p_.unit > 1 ? "page" : "slot"; }
  int32_t page_size() const { return step_.rebuilt.model.page_size; }
  int64_t columns() const { return std::ssize(p_.columns); }
  int64_t column() const { return p_.token / p_.unit; }
  int64_t slot() const { return p_.got * p_.unit + p_.token % p_.unit; }

  int64_t all_rows() const {
    return is_list() ? twin(field_.lens).shape[0] - 1 : twin(field_.buffer).shape[0];
  }
  int64_t real_rows() const {
    const int64_t requests = step_.twin.limits.rows;
    return field_.of_virtual || requests == 0 ? all_rows() : all_rows() / requests * batch_.size();
  }
  /// Virtual requests are known by their slots.
  std::optional<int64_t> request() const {
    if (!field_.of_virtual) return step_.request(p_.row, all_rows());
    for (int64_t i = 0; i < batch_.size(); ++i) {
      if (place_of(i, p_.expected) != kNone) return i;
    }
    return {};
  }

  /// The slot of a row's token as the twin has it.
  int64_t slot_of(int64_t row, int64_t token) const {
    if (is_list()) {
      const int64_t at = value_of(twin(field_.lens), row) + token;
      return at < value_of(twin(field_.lens), row + 1) ? value_of(twin(field_.buffer), at) : kNone;
    }
    const int64_t unit = step_.twin.units[static_cast<size_t>(field_.buffer)];
    const int64_t width = twin(field_.buffer).shape[1];
    if (token >= value_of(twin(field_.lens), row) || token / unit >= width) return kNone;
    return value_of(twin(field_.buffer), row * width + token / unit) * unit + token % unit;
  }
  int64_t row_tokens() const { return value_of(twin(field_.lens), p_.row); }
  /// The page or slot that a column of the row should hold.
  int64_t right(int64_t column) const { return slot_of(p_.row, column * p_.unit) / p_.unit; }
  /// Whether fn(column) is what was recorded, in columns [begin, end).
  template <class Fn>
  bool gives(int64_t begin, int64_t end, Fn fn) const {
    for (int64_t c = begin; c < end; ++c) {
      if (fn(c) != p_.columns[static_cast<size_t>(c)]) return false;
    }
    return true;
  }
  int64_t wrong_columns() const {
    int64_t wrong = 0;
    for (int64_t c = 0; c < columns(); ++c)
      wrong += !gives(c, c + 1, [&](int64_t i) { return right(i); });
    return wrong;
  }

  /// Column `at` of the request's row of req_to_token, live or not.
  int64_t mapped(int64_t at) const {
    if (at < 0 || at >= batch_.req_to_token.width) return kNone;
    return batch_.req_to_token.row(
        batch_.req_pool_indices[static_cast<size_t>(*request_)])[static_cast<size_t>(at)];
  }
  int64_t window_slot(int64_t full) const {
    if (full < 0 || full >= std::ssize(batch_.full_to_swa)) return kNone;
    return batch_.full_to_swa[static_cast<size_t>(full)];
  }
  int64_t in_pool(int64_t full) const { return in_window_ ? window_slot(full) : full; }
  /// The pool, if there are two, is that to which the request's row leads from the expected slot
  /// on.
  bool stands_in_map() const {
    for (int64_t c = 0; c < columns() && want_ != kNone; ++c) {
      if (in_pool(mapped(map_column(c))) != right(c) * p_.unit) return false;
    }
    return want_ != kNone;
  }
  /// The column of req_to_token that the first token of a recorded column stands in.
  int64_t map_column(int64_t column) const { return want_ - p_.token + column * p_.unit; }
  /// Which live column of a request's row leads to a slot of this field's pool.
  int64_t place_of(int64_t request, int64_t slot) const {
    const auto slots = slots_of(batch_, request);
    const auto leads = [&](int32_t own) { return in_pool(own) == slot; };
    const auto at = std::ranges::find_if(slots, leads);
    return at == slots.end() ? kNone : at - slots.begin();
  }

  /// The last slot that the field's pool can have, as far as its size is told.
  int64_t last_slot() const {
    if (one_pool()) return step_.rebuilt.pool_slots - 1;
    if (want_ == kNone || in_window_) return INT32_MAX;
    return std::min<int64_t>(step_.rebuilt.pool_slots - 1, std::ssize(batch_.full_to_swa) - 2);
  }
  /// The last slot that anything leads to.
  int64_t last_known_slot() const {
    if (in_window_) return std::ranges::max(batch_.full_to_swa);
    return one_pool() ? std::ranges::max(batch_.req_to_token.slots) : last_slot();
  }
  /// The last page of the requests of this step.
  int64_t last_page() const {
    int64_t last = 0;
    for (int64_t i = 0; i < batch_.size(); ++i) {
      for (const int32_t own : slots_of(batch_, i)) last = std::max(last, in_pool(own));
    }
    return last / p_.unit;
  }

  SlipWords no_page() const {
    SlipWords outside = slip("table.no_page", {what()});
    outside.law = "table.page_id";
    if (!in_window_) outside.words += step_.rebuilt.end_of_pool(p_.got, p_.unit);
    return outside;
  }

  static SlipWords unit_slip(const std::string& got, const std::string& want) {
    SlipWords unit = slip("table.other_unit", {got, want});
    unit.law = "table.unit";
    return unit;
  }
  /// The slots of pages, of each its first, or the request's slots one after the other.
  SlipWords unit_of_row() const {
    if (p_.unit == 1) {
      const auto page = [&](int64_t c) { return right(c) / page_size(); };
      const auto page_of_columns = [&](int64_t c) {
        return slot_of(p_.row, c * page_size()) / page_size();
      };
      const int64_t pages = (std::max<int64_t>(row_tokens(), 1) - 1) / page_size() + 1;
      const bool is_table =
          !is_list() && columns() >= pages && pages > 1 && gives(0, pages, page_of_columns);
      if (page_size() == 1 || (!gives(0, columns(), page) && !is_table)) return {};
      return unit_slip("an id of a page", "a slot");
    }
    if (gives(0, columns(), [&](int64_t c) { return right(c) * p_.unit; }))
      return unit_slip("a slot", "an id of a page");
    if (!request_ || !pool_is_known() || wrong_columns() != columns()) return {};
    const int64_t first = place_of(*request_, p_.columns[0]);
    for (int64_t c = 0; c < columns(); ++c) {
      const int64_t at = place_of(*request_, p_.columns[static_cast<size_t>(c)]);
      if (at == kNone || at != first + c) return {};
    }
    return slot_of_token(first);
  }
  SlipWords slot_of_token(int64_t at) const {
    if (at == want_) return unit_slip("a slot", "an id of a page");
    return unit_slip("a slot, of " + token_words(batch_, *request_, at) + ",", "an id of a page");
  }
  SlipWords unit_of_column() const {
    if (p_.unit == 1 && page_size() > 1 && p_.got == p_.expected / page_size())
      return unit_slip("an id of a page", "a slot");
    if (p_.unit == 1) return {};
    if (p_.got == p_.expected) return unit_slip("a slot", "an id of a page");
    // A number that is no page of this step may be a slot of its request.
    const int64_t at = request_ && pool_is_known() ? place_of(*request_, p_.got) : kNone;
    return at == kNone || p_.got <= last_page() ? SlipWords() : slot_of_token(at);
  }

  /// The text of a model with an encoder begins behind its request's.
  SlipWords offset_of_row() const {
    if (is_list() || batch_.encoder_lens.empty() || !request_) return {};
    const int64_t encoder = batch_.encoder_len(*request_);
    if (want_ != encoder + p_.token) return {};
    const auto from = [&](int64_t begin) {
      return gives(0, columns(), [&](int64_t c) {
        const int64_t slot = mapped(begin + c * p_.unit);
        return slot % p_.unit == 0 ? slot / p_.unit : kNone;
      });
    };
    std::vector<SlipWords> fit;
    if (from(batch_.encoder_len(0))) fit.push_back(slip("encoder.of_request_0"));
    if (from(0)) fit.push_back(slip("encoder.not_skipped"));
    return either(fit);
  }

  /// Columns [begin, end) of a window's table lead into the full pool.
  SlipWords pool_of(int64_t begin, int64_t end) const {
    if (!in_window_ || want_ == kNone) return {};
    const auto full = [&](int64_t c) { return mapped(map_column(c)); };
    if (gives(begin, end, [&](int64_t c) { return full(c) / p_.unit; }))
      return slip("table.untranslated", {what()});
    if (p_.unit > 1 && gives(begin, end, [&](int64_t c) { return window_slot(full(c) / p_.unit); }))
      return slip("table.id_translated");
    return {};
  }

  /// Another live column's. A list may begin anywhere in its request.
  SlipWords other_column() const {
    if (!is_list()) {
      for (int64_t c = 0; c < columns(); ++c) {
        if (c != column() && right(c) == p_.got) return slip("table.other_column", {number(c)});
      }
      return {};
    }
    const int64_t at =
        want_ == kNone || step_.rebuilt.is_nobodys(slot()) ? kNone : place_of(*request_, slot());
    if (at == kNone) return {};
    const int64_t off = at - want_;
    return slip("table.shifted", {number(at), number(want_), number(off < 0 ? -off : off),
                                  off < 0 ? "too early" : "too late"});
  }
  SlipWords other_row() const {
    for (int64_t k = 0; k < real_rows(); ++k) {
      if (k != p_.row && slot_of(k, p_.token) == slot())
        return slip("table.of_request", {number(k)});
    }
    return {};
  }
  SlipWords owner() const {
    for (int64_t i = 0; i < batch_.size() && pool_is_known() && !step_.rebuilt.is_nobodys(slot());
         ++i) {
      const int64_t at = place_of(i, slot());
      if (at != kNone) return slip("table.one_foreign", {token_words(batch_, i, at)});
    }
    return {};
  }
  SlipWords nobody() const {
    if (step_.rebuilt.is_nobodys(slot())) return slip("table.padding", {what()});
    if (!pool_is_known()) return {};
    if (slot() > last_known_slot()) return slip("table.of_nobody");
    return slip("table.left_over", {what()});
  }

  const TraceStep& step_;
  const ForwardBatch& batch_;
  const BufferInfo& field_;
  const TablePlace& p_;
  bool in_window_ = false;  // the field leads into the window's pool
  std::optional<int64_t> request_;
  int64_t want_ = kNone;  // which column of the request's row of req_to_token leads there
};

}  // namespace

SlipWords explain_table(const TraceStep& step, const BufferInfo& field, const TablePlace& place) {
  return TableWords(step, field, place).find();
}

}  // namespace shadowgraph
