#include "check/traces/trace_words.h"

#include <algorithm>
#include <span>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

constexpr int64_t kNeverWritten = -7777;  // how recorders mark memory that nobody wrote

std::string number(int64_t n) { return std::to_string(n); }

/// The slots of a request that this step may use, its encoder's first.
std::span<const int32_t> slots_of(const ForwardBatch& batch, int64_t i) {
  const int64_t keys = std::min<int64_t>(batch.encoder_len(i) + int64_t{batch.extent(i).kv_len},
                                         batch.req_to_token.width);
  return batch.req_to_token.row(batch.req_pool_indices[static_cast<size_t>(i)])
      .first(static_cast<size_t>(keys));
}

/// Which request's key lies in a slot, "token 3 of request 1"; empty: nobody's.
std::string owner_of(const ForwardBatch& batch, int64_t slot) {
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto slots = slots_of(batch, i);
    const auto column = std::ranges::find(slots, slot) - slots.begin();
    if (column != std::ssize(slots)) return token_words(batch, i, column);
  }
  return "";
}

int64_t last_slot(const ForwardBatch& batch) {
  int32_t last = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    for (const int32_t slot : slots_of(batch, i)) last = std::max(last, slot);
  }
  return last;
}

/// How many rows the twin's table or list has.
int64_t rows_of(const TraceStep& step, const TablePlace& p) {
  const int buffer = p.list < 0 ? p.buffer : p.list;
  return step.twin[static_cast<size_t>(buffer)].shape[0] - (p.list < 0 ? 0 : 1);
}

/// The twin's slot for a row's token; -1: it has none.
int64_t column_of(const TraceStep& step, const TablePlace& p, int64_t row, int64_t token) {
  const auto b = static_cast<size_t>(p.buffer);
  const Buffer& table = step.twin[b];
  if (p.list >= 0) {
    const Buffer& indptr = step.twin[static_cast<size_t>(p.list)];
    const int64_t at = value_of(indptr, row) + token;
    return at < value_of(indptr, row + 1) ? value_of(table, at) : -1;
  }
  const int64_t unit = step.twin.units[b], column = token / unit;
  if (column >= table.shape[1]) return -1;
  return value_of(table, row * table.shape[1] + column) * unit + token % unit;
}

/// The full pool's slot of column `at` of a request's row of req_to_token, or -1.
int64_t slot_at(const ForwardBatch& batch, int64_t request, int64_t at) {
  if (at >= batch.req_to_token.width) return -1;
  return batch.req_to_token.row(
      batch.req_pool_indices[static_cast<size_t>(request)])[static_cast<size_t>(at)];
}

int64_t in_window_pool(const ForwardBatch& batch, int64_t slot) {
  return batch.full_to_swa[static_cast<size_t>(slot)];
}

/// Slips of the text table of a model with an encoder.
SlipWords explain_offset(const ForwardBatch& batch, const TablePlace& p, int64_t request,
                         int64_t slot) {
  if (batch.encoder_lens.empty()) return {};
  if (slot == slot_at(batch, request, batch.encoder_lens[0] + p.token))
    return {"request 0's encoder length used for every request", "K31 sglang#25045 fa.I-45"};
  if (slot == slot_at(batch, request, p.token))
    return {"the encoder's tokens are not skipped", "fa.I-45 fa.I-48"};
  return {};
}

/// Slips of a table of the window pool.
SlipWords explain_translation(const ForwardBatch& batch, const TablePlace& p, int64_t request,
                              int64_t slot) {
  if (batch.full_to_swa.empty()) return {};
  const int64_t full = slot_at(batch, request, batch.encoder_len(request) + p.token);
  if (full < 0 || full == p.expected) return {};
  if (slot == full) return {"a slot of the full pool, not translated", "fa.I-35 fa.I-37"};
  const auto page = static_cast<size_t>(full / p.unit);
  if (p.unit > 1 && p.got == batch.full_to_swa[page])
    return {"a page id translated as if it were a slot", "K75 sglang#16267 fa.I-35"};
  return {};
}

/// Where a slot stands in a request's row, translated or not; -1: nowhere.
int64_t place_of(const ForwardBatch& batch, int64_t request, int64_t slot, bool translated) {
  const auto slots = slots_of(batch, request);
  const auto stands = [&](int32_t own) {
    return translated ? in_window_pool(batch, own) == slot : own == slot;
  };
  const auto at = std::ranges::find_if(slots, stands) - slots.begin();
  return at == std::ssize(slots) ? -1 : at;
}

/// Slips of a list: it begins somewhere in a request, and may be of the window's pool.
SlipWords explain_listed(const TraceStep& step, const TablePlace& p, int64_t request,
                         int64_t slot) {
  const ForwardBatch& batch = step.rebuilt.batch;
  const bool window = !batch.full_to_swa.empty() && place_of(batch, request, p.expected, false) < 0;
  const int64_t want = place_of(batch, request, p.expected, window);
  if (want < 0 || p.got == 0) return {};
  if (window && slot == slot_at(batch, request, want))
    return {"a slot of the full pool, not translated", "fi.I-38"};
  const int64_t got = place_of(batch, request, slot, window);
  if (got < 0) return {};
  const int64_t off = got - want;
  return {"its request's token " + number(got) + " where token " + number(want) + " belongs, " +
              number(off < 0 ? -off : off) + (off < 0 ? " too early" : " too late"),
          "fi.I-31 fi.I-33"};
}

SlipWords explain_unit(const TraceStep& step, const TablePlace& p) {
  const int64_t page_size = step.rebuilt.model.page_size;
  if (p.unit == 1 && page_size > 1 && p.got == p.expected / page_size)
    return {"an id of a page where a slot belongs", "fa.I-34 K48", true};
  if (p.unit == 1) return {};
  if (p.got == p.expected - p.token % p.unit)
    return {"a slot where an id of a page belongs", "fa.I-34 K48", true};
  // Small numbers are slots and pages of somebody; those past the batch's last page only slots.
  if (p.got <= last_slot(step.rebuilt.batch) / p.unit) return {};
  const std::string owner = owner_of(step.rebuilt.batch, p.got);
  if (owner.empty()) return {};
  return {"a slot, of " + owner + ", where an id of a page belongs", "fa.I-34 fa.I-52 K48", true};
}

}  // namespace

std::string token_words(const ForwardBatch& batch, int64_t request, int64_t column) {
  const int64_t encoder = batch.encoder_len(request);
  const std::string whose = " of request " + number(request);
  if (column < encoder) return "the encoder's token " + number(column) + whose;
  return "token " + number(column - encoder) + whose;
}

SlipWords explain_length(const TraceStep& step, const Buffer& lens, int64_t row, int64_t got) {
  const ForwardBatch& batch = step.rebuilt.batch;
  const int64_t expected = value_of(lens, row);
  const auto request = step.request(row, lens.shape[0]);
  if (request) {
    const RequestExtent e = batch.extent(*request);
    const bool keys = expected == e.kv_len;
    const bool draft = batch.mode == ForwardMode::kDraftDecode;
    if (keys && draft && got == batch.seq_lens[static_cast<size_t>(*request)])
      return {"the tokens of this draft, its own included, are missing", "fa.I-19"};
    if (keys && got == e.kv_len + e.q_len)
      return {"the new tokens are counted twice", "sglang#26628 sglang#26651"};
    if (keys && got == e.prefix_len)
      return {"only the cached prefix, the new tokens are missing", "K01 sglang#26512"};
    const auto encoder = batch.encoder_lens;
    if (!encoder.empty() && expected == encoder[static_cast<size_t>(*request)] && got == encoder[0])
      return {"request 0's encoder length used for every request", "K31 sglang#25045 fa.I-43"};
  }
  if (got == kNeverWritten) return {"never written", {}};
  const int64_t page_size = step.rebuilt.model.page_size;
  if (page_size > 1 && got == pages_for(expected, page_size) * page_size)
    return {"rounded up to whole pages", "K02"};
  for (const int64_t k : {row - 1, row + 1}) {
    if (k >= 0 && k < lens.shape[0] && value_of(lens, k) == got)
      return {"what row " + number(k) + " should have", {}};
  }
  return {};
}

SlipWords explain_count(const TraceStep& step, const CountPlace& p) {
  const auto request = step.request(p.row, p.rows);
  if (!request) return {};
  const ForwardBatch& batch = step.rebuilt.batch;
  const RequestExtent e = batch.extent(*request);
  const int64_t window = step.rebuilt.window();
  const bool draft = batch.mode == ForwardMode::kDraftDecode;
  if (window >= 0 && p.expected == std::min<int64_t>(e.kv_len, window + 1) &&
      p.got == std::min<int64_t>(e.kv_len, window))
    return {"as many keys as the window, without the query's own", "fi.I-32"};
  if (draft && p.expected == e.kv_len && p.got == batch.seq_lens[static_cast<size_t>(*request)])
    return {"the tokens of this draft, its own included, are missing", "fi.I-23"};
  if (p.expected == e.prefix_len && p.got == e.kv_len)
    return {"the new tokens, too, which the step itself adds", "fi.I-20 fi.I-27 fi.I-41"};
  if (window >= 0 && p.expected < p.got && p.got == std::min<int64_t>(e.kv_len, window + e.q_len))
    return {"as many as its queries see together, the new tokens among them", "fi.I-20 fi.I-41"};
  if (p.expected == e.kv_len && p.got == e.prefix_len)
    return {"only the cached prefix, the new tokens are missing", "fi.I-21 fi.I-27"};
  if (p.expected == e.kv_len && p.got == e.kv_len + e.q_len)
    return {"the new tokens are counted twice", "fi.I-27"};
  if (window >= 0 && p.expected < e.kv_len && p.got >= e.prefix_len && p.got <= e.kv_len &&
      p.got > p.expected)
    return {"keys before the window, too", "fi.I-31 fi.I-33"};
  return {};
}

SlipWords explain_table(const TraceStep& step, const TablePlace& p) {
  if (p.got == kNeverWritten || p.got == -1) return {"never written", "fa.I-29"};
  const int64_t rows = rows_of(step, p);
  const ForwardBatch& batch = step.rebuilt.batch;
  if (p.got < 0 || p.got > INT32_MAX) return {"no page of any pool", "fa.I-29"};
  const int64_t slot = p.got * p.unit + p.token % p.unit;
  SlipWords found = explain_unit(step, p);
  if (!found.words.empty()) return found;
  if (const auto request = step.request(p.row, rows)) {
    if (p.list >= 0) {
      found = explain_listed(step, p, *request, slot);
    } else {
      found = explain_offset(batch, p, *request, slot);
      if (found.words.empty()) found = explain_translation(batch, p, *request, slot);
    }
    if (!found.words.empty()) return found;
  }
  for (int64_t k = 0; k < rows; ++k) {
    if (k != p.row && column_of(step, p, k, p.token) == slot)
      return {"what row " + number(k) + " should have there", "fa.I-33 fa.I-42"};
  }
  for (const int64_t t : {p.token - p.unit, p.token + p.unit}) {
    if (t >= 0 && column_of(step, p, p.row, t) == slot)
      return {"what belongs to column " + number(t / p.unit), {}};
  }
  const std::string owner = owner_of(batch, slot);
  if (!owner.empty()) return {"there lies " + owner, {}};
  return {"a slot of no request in this step: stale, or another's", "fa.I-66"};
}

}  // namespace shadowgraph
