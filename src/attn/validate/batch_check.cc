#include "attn/validate/batch_check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "attn/page_table.h"

namespace shadowgraph {
namespace {

/// Keys of each request by its table row, -1 where they make no sense.
using KeyCounts = std::vector<int64_t>;

KeyCounts csr_keys(TensorCheck& c, const PageTable& t, int32_t page_size) {
  KeyCounts keys(t.last_page_len.size(), 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t pages = int64_t{t.kv_indptr[i + 1]} - t.kv_indptr[i], len = t.last_page_len[i];
    if (pages == 0) continue;
    keys[i] = (pages - 1) * page_size + len;
    if (len < 1 || len > page_size) {
      c.fail("len.last_page", at("last_page_len", i), "1.." + std::to_string(page_size),
             std::to_string(len));
      keys[i] = -1;
    } else if (keys[i] > INT32_MAX) {
      c.fail("len.overflow", at("kv_indptr", i + 1), "<= 2147483647 keys",
             std::to_string(pages) + " pages");
      keys[i] = -1;
    }
  }
  return keys;
}

KeyCounts dense_keys(TensorCheck& c, const PageTable& t, int32_t page_size) {
  KeyCounts keys(t.cache_seqlens.begin(), t.cache_seqlens.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t len = keys[i];
    if (len >= 0 && pages_for(len, page_size) <= t.max_pages) continue;
    if (len < 0) c.fail("len.negative", at("cache_seqlens", i), ">= 0", std::to_string(len));
    if (len > 0) {
      c.fail("len.capacity", at("cache_seqlens", i),
             "<= " + std::to_string(t.max_pages) + " pages of " + std::to_string(page_size),
             std::to_string(len));
    }
    keys[i] = -1;
  }
  return keys;
}

/// Pages are named once: a call with lists of both forms may mean either.
void check_form(TensorCheck& c, const PageTable& t) {
  const bool dense = t.form == PageTable::Form::kDense;
  const std::pair<const char*, std::span<const int32_t>> others[] = {
      {"page_table", dense ? std::span<const int32_t>() : t.page_table},
      {"cache_seqlens", dense ? std::span<const int32_t>() : t.cache_seqlens},
      {"kv_indptr", dense ? t.kv_indptr : std::span<const int32_t>()},
      {"kv_indices", dense ? t.kv_indices : std::span<const int32_t>()},
      {"last_page_len", dense ? t.last_page_len : std::span<const int32_t>()}};
  for (const auto& [field, list] : others)
    if (!list.empty())
      c.fail("input.shape", at(field),
             dense ? "none: the pages are in page_table" : "none: the pages are in kv_indices",
             std::to_string(list.size()) + " entries");
}

/// The table's arrays agree with each other; then each request's keys. Nothing if its rows cannot
/// be found.
std::optional<KeyCounts> check_table(TensorCheck& c, const PageTable& t, int32_t page_size) {
  check_form(c, t);
  if (t.form == PageTable::Form::kCsr) {
    if (!check_indptr(c, "kv_indptr", t.kv_indptr, t.batch(), kAny)) return std::nullopt;
    if (t.kv_indptr.back() > static_cast<int64_t>(t.kv_indices.size())) {
      c.fail("len.total", at("kv_indptr", t.batch()),
             "<= " + std::to_string(t.kv_indices.size()) + " page ids",
             std::to_string(t.kv_indptr.back()));
      return std::nullopt;
    }
    return csr_keys(c, t, page_size);
  }
  if (t.max_pages < 0 ||
      (t.max_pages > 0 && static_cast<int64_t>(t.page_table.size()) / t.max_pages < t.batch())) {
    c.fail("len.batch", at("page_table"),
           std::to_string(t.batch()) + " rows of " + std::to_string(t.max_pages),
           std::to_string(t.page_table.size()) + " entries");
    return std::nullopt;
  }
  return dense_keys(c, t, page_size);
}

/// Page ids that a visible key needs lie in the pool.
void check_page_ids(TensorCheck& c, const PagedAttention& call, const MaskShape& mask,
                    int64_t request) {
  const KvRange keys = kv_range(mask, 0, launched_rows(mask.q_len, call.max_seqlen_q));
  if (keys.size() == 0) return;  // also a request whose length made no sense
  const RequestPages pages = request_pages(call.pages, call.cache.page_size, request);
  for (int64_t p = keys.begin / call.cache.page_size; p <= (keys.end - 1) / call.cache.page_size;
       ++p) {
    const int32_t id = pages.page_ids[p];
    if (id >= 0 && id < call.cache.num_pages) continue;
    const bool dense = call.pages.form == PageTable::Form::kDense;
    const Where where =
        dense ? at("page_table", request, p)
              : at("kv_indices", call.pages.kv_indptr[static_cast<size_t>(request)] + p);
    c.fail("table.page_id", where, "0 <= id < " + std::to_string(call.cache.num_pages),
           std::to_string(id));
  }
}

}  // namespace

bool check_indptr(TensorCheck& c, const char* field, std::span<const int32_t> indptr, int64_t batch,
                  const AxisSize& total) {
  if (static_cast<int64_t>(indptr.size()) != batch + 1) {
    c.fail("len.batch", at(field), std::to_string(batch + 1) + " entries",
           std::to_string(indptr.size()));
    return false;
  }
  bool ok = indptr[0] == 0;
  if (!ok) c.fail("len.indptr_first", at(field, 0), "0", std::to_string(indptr[0]));
  for (size_t i = 0; i + 1 < indptr.size(); ++i) {
    if (indptr[i + 1] >= indptr[i]) continue;
    c.fail("len.indptr_monotone", at(field, i + 1), ">= " + std::to_string(indptr[i]),
           std::to_string(indptr[i + 1]));
    ok = false;
  }
  if (total.size != kAny && indptr.back() != total.size) {
    c.fail("len.total", at(field, batch),
           std::to_string(total.size) + (total.of == nullptr ? "" : std::string(" ") + total.of),
           std::to_string(indptr.back()));
    ok = false;
  }
  return ok;
}

void check_pages(TensorCheck& c, const PagedAttention& call, int64_t total_q) {
  const auto keys = check_table(c, call.pages, call.cache.page_size);
  const int64_t batch = call.pages.batch();
  bool q_ok = true;
  if (!call.cu_seqlens_q.empty()) {
    q_ok = check_indptr(c, "cu_seqlens_q", call.cu_seqlens_q, batch, {total_q, "rows of q"});
  } else if (total_q != kAny && total_q != batch) {
    c.fail("len.total", at("q.shape", 0), std::to_string(batch) + " rows, one a request",
           std::to_string(total_q));
    q_ok = false;
  }
  if (!keys || !q_ok) return;
  const AttentionTerms& t = call.params.terms;
  std::vector<int32_t> q_lens(keys->size(), 1), kv_lens(keys->size());
  for (size_t i = 0; i < keys->size(); ++i) {
    if (!call.cu_seqlens_q.empty()) q_lens[i] = call.cu_seqlens_q[i + 1] - call.cu_seqlens_q[i];
    kv_lens[i] = static_cast<int32_t>(std::max<int64_t>((*keys)[i], 0));
  }
  if (!t.seqused_k.empty())
    c.fail("param.terms", at("seqused_k"), "none: the page table has the lengths", "some");
  if (!t.seqused_q.empty() && call.cu_seqlens_q.empty())
    return c.fail("param.terms", at("seqused_q"), "none in a decode batch", "some");
  if (!use_lengths(c, "seqused_q", t.seqused_q, &q_lens)) return;
  const std::vector<MaskShape> masks = check_masks(c, call.params, q_lens, kv_lens);
  for (size_t i = 0; i < masks.size(); ++i)
    check_page_ids(c, call, masks[i], static_cast<int64_t>(i));
}

}  // namespace shadowgraph
