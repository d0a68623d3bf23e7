#include "check/traces/trace_words.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

using KeysOf = std::function<int64_t(const RequestExtent&)>;

std::string number(int64_t n) { return std::to_string(n); }

/// Slips of a row that should have all keys of its request. prefixes: other rows tell that what
/// they have is their prefix.
std::vector<SlipWords> slips_of_all_keys(const ForwardBatch& batch, int64_t request, int64_t got,
                                         bool prefixes = false) {
  const RequestExtent e = batch.extent(request);
  if (got == 0 && !prefixes) return {slip("extent.none")};
  std::vector<SlipWords> fit;
  const bool draft = batch.mode == ForwardMode::kDraftDecode;
  if (draft && got == batch.seq_lens[static_cast<size_t>(request)]) {
    fit.push_back(slip("extent.draft_missing"));
  } else if (got == e.prefix_len && got == e.q_len && !prefixes) {
    fit.push_back(slip("extent.prefix_or_new"));
  } else if (got == e.prefix_len) {
    fit.push_back(slip("extent.short_by_extend"));
  }
  if (got == int64_t{e.kv_len} + e.q_len) fit.push_back(slip("extent.long_by_extend"));
  return fit;
}

/// Whether the field's numbers count keys: a table's columns follow them, or its role says so.
bool counts_keys(const TraceStep& step, const BufferInfo& field) {
  return std::ranges::any_of(step.backend.buffers, [&](const BufferInfo& f) {
    if (f.shape == FieldShape::kTable && f.lens == field.buffer) return true;
    return f.buffer == field.buffer &&
           (f.role == Role::kKeyLens || f.role == Role::kFlatLens || f.role == Role::kWidthLens);
  });
}

/// Causes of wrong lengths. Every row must hold all keys, or its encoder's length, to be told so.
std::vector<SlipWords> slips_of_requests(const TraceStep& step, const Buffer& lens,
                                         const RecordedField& recorded, int64_t row, int64_t live) {
  const ForwardBatch& batch = step.rebuilt.batch;
  const auto request = step.request(row, lens.shape[0]);
  if (!request) return {};
  const auto each = [&](const auto& holds) {
    for (int64_t r = 0; r < live; ++r) {
      if (!holds(r, *step.request(r, lens.shape[0]))) return false;
    }
    return true;
  };
  const auto got = [&](int64_t r) { return recorded.data[static_cast<size_t>(r)]; };
  const auto is_prefix = [&](int64_t r, int64_t i) { return got(r) == batch.extent(i).prefix_len; };
  const auto is_else = [&](int64_t r, int64_t i) {
    return got(r) == 0 || got(r) == batch.extent(i).q_len;
  };
  std::vector<SlipWords> fit;
  if (each([&](int64_t r, int64_t i) { return value_of(lens, r) == batch.extent(i).kv_len; }))
    fit = slips_of_all_keys(batch, *request, got(row), each(is_prefix) && !each(is_else));
  const bool first = !batch.encoder_lens.empty() && *request > 0 && each([&](int64_t r, int64_t i) {
    return value_of(lens, r) == batch.encoder_len(i) && got(r) == batch.encoder_len(0);
  });
  if (first) fit.push_back(slip("encoder.of_request_0"));
  return fit;
}

}  // namespace

SlipWords slip(HintId id, const std::vector<std::string>& fill) {
  const Hint& hint = id.hint();
  SlipWords slip{std::string(hint.words), std::string(hint.refs)};
  slip.refs += (hint.refs.empty() ? "" : " ") + std::string(hint.id);
  size_t at = 0;
  for (const std::string& part : fill) {
    at = slip.words.find('{', at);
    slip.words.replace(at, slip.words.find('}', at) + 1 - at, part);
    at += part.size();
  }
  return slip;
}

SlipWords either(const std::vector<SlipWords>& fit) {
  SlipWords all;
  for (const SlipWords& slip : fit) {
    all.words += (all.words.empty() ? "" : ", or ") + slip.words;
    all.refs += (all.refs.empty() ? "" : " ") + slip.refs;
  }
  return all;
}

std::string explained(int64_t got, const SlipWords& why) {
  return number(got) + (why.words.empty() ? "" : ": " + why.words);
}

std::string token_words(const ForwardBatch& batch, int64_t request, int64_t column) {
  const int64_t encoder = batch.encoder_len(request);
  const std::string whose = " of request " + number(request);
  if (column < encoder) return "the encoder's token " + number(column) + whose;
  return "token " + number(column - encoder) + whose;
}

SlipWords explain_length(const TraceStep& step, const BufferInfo& field,
                         const RecordedField& recorded, int64_t row, int64_t live) {
  const Buffer& lens = step.twin[static_cast<size_t>(field.buffer)];
  const int64_t got = recorded.data[static_cast<size_t>(row)], expected = value_of(lens, row);
  if (got == kNeverWritten) return slip("memory.unwritten");
  for (int64_t k = 0; k < live; ++k) {  // two rows that changed places
    if (k != row && value_of(lens, k) == got && recorded.data[static_cast<size_t>(k)] == expected)
      return slip("extent.of_request", {number(k)});
  }
  if (counts_keys(step, field)) {
    std::vector<SlipWords> fit;
    if (!field.of_virtual) fit = slips_of_requests(step, lens, recorded, row, live);
    const int64_t page_size = step.rebuilt.model.page_size;
    if (page_size > 1 && got == pages_for(expected, page_size) * page_size)
      fit.push_back(slip("extent.capacity"));
    if (!fit.empty()) return either(fit);
  }
  for (const int64_t k : {row - 1, row + 1}) {
    if (k >= 0 && k < live && value_of(lens, k) == got)
      return slip("extent.of_request", {number(k)});
  }
  return {};
}

/// All rows together show what their list holds.
SlipWords explain_count(const TraceStep& step, const CountPlace& p) {
  const auto request = step.request(p.row, p.rows);
  if (!request) return {};
  const ForwardBatch& batch = step.rebuilt.batch;
  const auto each_has = [&](const KeysOf& keys) {
    for (int64_t r = 0; r < std::ssize(p.expected); ++r) {
      if (p.expected[static_cast<size_t>(r)] != keys(batch.extent(*step.request(r, p.rows))))
        return false;
    }
    return true;
  };
  const RequestExtent e = batch.extent(*request);
  const int64_t window = step.rebuilt.window();
  const KeysOf seen = [&](const RequestExtent& x) {  // by all queries together
    return std::min<int64_t>(x.kv_len, window + x.q_len);
  };
  const KeysOf cached = [&](const RequestExtent& x) {
    return std::min<int64_t>(x.prefix_len, window);
  };
  std::vector<SlipWords> fit;
  if (each_has([](const RequestExtent& x) { return x.kv_len; }))
    fit = slips_of_all_keys(batch, *request, p.got);
  const bool prefix = each_has([](const RequestExtent& x) { return x.prefix_len; });
  if (prefix && p.got == e.kv_len) fit.push_back(slip("extent.new_listed"));
  if (window < 0) return either(fit);
  const bool of_seen = each_has(seen), of_cached = each_has(cached);
  if (of_seen && e.q_len == 1 && p.got == window && e.kv_len > window)
    fit.push_back(slip("window.shorter"));
  if (!prefix && of_cached && p.got == seen(e)) fit.push_back(slip("extent.new_in_window"));
  const int64_t whole = of_seen ? e.kv_len : e.prefix_len;
  if ((of_seen || of_cached) && p.got == whole && whole > p.expected[static_cast<size_t>(p.row)])
    fit.push_back(slip("window.ignored"));
  return either(fit);
}

}  // namespace shadowgraph
