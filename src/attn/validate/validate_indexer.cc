#include "attn/validate/validate_indexer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "attn/index_page.h"
#include "attn/validate/batch_check.h"
#include "attn/validate/cache_check.h"
#include "attn/validate/tensor_check.h"

namespace shadowgraph {
namespace {

constexpr auto kI32 = {DType::kI32};

bool list_of(TensorCheck& c, const char* field, std::span<const int32_t> list, int64_t size) {
  const bool given = c.span(field, list);
  if (std::ssize(list) == size) return given;
  c.fail("len.batch", at(field), std::to_string(size), std::to_string(list.size()));
  return false;
}

bool check_pages_view(TensorCheck& c, const ConstTensorView& pages) {
  return c.input("pages", pages, {kAny, kIndexPageBytes}, {DType::kU8});
}

/// The pages of keys first .. last - 1 of a row of the table lie in the pool.
void check_page_ids(TensorCheck& c, const ConstTensorView& table, int64_t num_pages, int64_t row,
                    int64_t first, int64_t last) {
  if (first >= last) return;
  for (int64_t p = first / kIndexPageTokens; p <= (last - 1) / kIndexPageTokens; ++p) {
    const int32_t id = load_i32(table, row, p);
    if (id >= 0 && id < num_pages) continue;
    c.fail("table.page_id", at("page_table", row, p), "0 <= id < " + std::to_string(num_pages),
           std::to_string(id));
  }
}

/// 0 <= ks[t] <= ke[t] <= most, where the lists have `tokens` entries.
bool check_ranges(TensorCheck& c, std::span<const int32_t> ks, std::span<const int32_t> ke,
                  int64_t tokens, int64_t most) {
  bool ok = ks.empty() || list_of(c, "ks", ks, tokens);
  ok &= list_of(c, "ke", ke, tokens);
  if (!ok) return false;
  const auto fail = [&](LawId law, const char* field, size_t t, const std::string& expected,
                        int64_t got) {
    c.fail(law, at(field, static_cast<int64_t>(t)), expected, std::to_string(got));
    ok = false;
  };
  for (size_t t = 0; t < ke.size(); ++t) {
    const int64_t first = ks.empty() ? 0 : ks[t];
    if (first < 0) fail("len.negative", "ks", t, ">= 0", first);
    if (ke[t] < first) fail("len.negative", "ke", t, ">= " + std::to_string(first), ke[t]);
    if (ke[t] > most) fail("len.capacity", "ke", t, "<= " + std::to_string(most), ke[t]);
  }
  return ok;
}

/// Rows of a table that has num_rows of them; empty: as many tokens.
bool check_rows(TensorCheck& c, std::span<const int32_t> rows, int64_t tokens, int64_t num_rows) {
  if (rows.empty()) {
    if (tokens <= num_rows) return true;
    c.fail("len.batch", at("rows"), "a row of each of " + std::to_string(tokens) + " tokens",
           "none, and " + std::to_string(num_rows) + " rows in the table");
    return false;
  }
  if (!list_of(c, "rows", rows, tokens)) return false;
  bool good = true;
  for (size_t t = 0; t < rows.size(); ++t) {
    if (rows[t] >= 0 && rows[t] < num_rows) continue;
    c.fail("table.pool_row", at("rows", static_cast<int64_t>(t)),
           "0 <= row < " + std::to_string(num_rows), std::to_string(rows[t]));
    good = false;
  }
  return good;
}

void check_paged_keys(TensorCheck& c, const IndexerLogits& call, int64_t tokens, int64_t width) {
  if (call.k.defined() || call.k_scale.defined())
    c.fail("input.shape", at("k"), "undefined: keys lie in pages", "defined");
  const bool pages_ok = check_pages_view(c, call.pages);
  if (!c.input("page_table", call.page_table, {kAny, kAny}, kI32)) return;
  const ConstTensorView& table = call.page_table;
  const int64_t most = std::min(width, table.shape[1] * kIndexPageTokens);
  const bool rows_ok = check_rows(c, call.rows, tokens, table.shape[0]);
  if (!check_ranges(c, call.ks, call.ke, tokens, most) || !rows_ok || !pages_ok) return;
  for (int64_t t = 0; t < tokens; ++t)
    check_page_ids(c, table, call.pages.shape[0], call.row(t), call.first(t), call.last(t));
}

void check_packed_keys(TensorCheck& c, const IndexerLogits& call, int64_t tokens, int64_t width) {
  if (call.pages.defined() || !call.rows.empty())
    c.fail("input.shape", at("page_table"), "the pages of each row, as there are pages or rows",
           "undefined");
  const bool ok = c.input("k", call.k, {kAny, kIndexDim}, {DType::kE4M3});
  const int64_t keys = ok ? call.k.shape[0] : kAny;
  c.strided_input("k_scale", call.k_scale, {keys}, kF32);
  check_ranges(c, call.ks, call.ke, tokens, ok ? std::min(width, keys) : width);
}

}  // namespace

Status validate(const ActQuant& call) {
  Status status;
  TensorCheck c(&status);
  int64_t tokens = kAny, dim = kAny;
  if (c.input("x", call.x, {kAny, kAny}, kWide)) tokens = call.x.shape[0], dim = call.x.shape[1];
  if (dim != kAny && dim % kIndexDim != 0)
    c.fail("input.shape", at("x.shape", 1), "a multiple of 128", std::to_string(dim));
  c.output("y", call.y, {tokens, dim}, {DType::kE4M3});
  c.output("scale", call.scale, {tokens, dim == kAny ? kAny : dim / kIndexDim}, kF32);
  c.no_aliases();
  return status;
}

Status validate(const StoreIndexKeys& call) {
  Status status;
  TensorCheck c(&status);
  const bool pages_ok = c.output("pages", call.pages, {kAny, kIndexPageBytes}, {DType::kU8});
  const int64_t tokens = std::ssize(call.out_cache_loc);
  c.input("k", call.k, {tokens, kIndexDim}, {DType::kE4M3});
  c.strided_input("k_scale", call.k_scale, {tokens}, kF32);
  const bool slots_ok = c.span("out_cache_loc", call.out_cache_loc);
  if (pages_ok && slots_ok)
    check_slots(c, call.out_cache_loc, call.pages.shape[0] * kIndexPageTokens,
                [&](int64_t slot) { return call.drops(slot); });
  c.no_aliases();
  return status;
}

Status validate(const GatherIndexKeys& call) {
  Status status;
  TensorCheck c(&status);
  const bool pages_ok = check_pages_view(c, call.pages);
  const bool table_ok = c.input("page_table", call.page_table, {kAny, kAny}, kI32);
  const int64_t batch = table_ok ? call.page_table.shape[0] : kAny;
  bool lens_ok = c.span("cu_seqlens_k", call.cu_seqlens_k) && table_ok;
  if (lens_ok) lens_ok = check_indptr(c, "cu_seqlens_k", call.cu_seqlens_k, batch, kAny);
  int64_t keys = lens_ok ? call.cu_seqlens_k.back() : kAny;
  if (lens_ok && call.k.rank == 2) keys = std::max(keys, call.k.shape[0]);
  c.output("k", call.k, {keys, kIndexDim}, {DType::kE4M3});
  c.output("k_scale", call.k_scale, {keys}, kF32, false);
  for (int64_t r = 0; lens_ok && r < batch; ++r) {
    const auto i = static_cast<size_t>(r);
    const int64_t len = call.cu_seqlens_k[i + 1] - call.cu_seqlens_k[i];
    const int64_t room = call.page_table.shape[1] * kIndexPageTokens;
    if (len > room) {
      c.fail("len.capacity", at("cu_seqlens_k", r + 1), "<= " + std::to_string(room) + " keys",
             std::to_string(len));
    } else if (pages_ok) {
      check_page_ids(c, call.page_table, call.pages.shape[0], r, 0, len);
    }
  }
  c.no_aliases();
  return status;
}

Status validate(const IndexerLogits& call) {
  Status status;
  TensorCheck c(&status);
  int64_t tokens = kAny, heads = kAny;
  if (c.input("q", call.q, {kAny, kAny, kIndexDim}, {DType::kE4M3}))
    tokens = call.q.shape[0], heads = call.q.shape[1];
  c.input("weights", call.weights, {tokens, heads}, kF32);
  const bool out_ok = c.output("logits", call.logits, {tokens, kAny}, kF32);
  if (tokens != kAny && out_ok) {
    const int64_t width = call.logits.shape[1];
    call.is_paged() ? check_paged_keys(c, call, tokens, width)
                    : check_packed_keys(c, call, tokens, width);
  }
  c.no_aliases();
  return status;
}

Status validate(const SelectIndices& call) {
  Status status;
  TensorCheck c(&status);
  const bool ok = c.input("logits", call.logits, {kAny, kAny}, kF32);
  const int64_t tokens = ok ? call.logits.shape[0] : kAny;
  c.output("indices", call.indices, {tokens, kAny}, kI32);
  if (ok) check_ranges(c, call.ks, call.ke, tokens, call.logits.shape[1]);
  c.no_aliases();
  return status;
}

namespace {

/// Each index of a token, where there is one; false: the token's rest is not looked at.
template <class Take>
void for_each_index(const ConstTensorView& indices, const Take& take) {
  for (int64_t t = 0; t < indices.shape[0]; ++t)
    for (int64_t j = 0; j < indices.shape[1]; ++j)
      if (const int32_t index = load_i32(indices, t, j); index >= 0) take(t, j, index);
}

void check_table_indices(TensorCheck& c, const TransformIndices& call, int64_t tokens) {
  const ConstTensorView& table = call.page_table_1;
  if (!call.offsets.empty())
    c.fail("input.shape", at("offsets"), "none, as there is a table", "some");
  if (!c.input("page_table_1", table, {kAny, kAny}, kI32)) return;
  check_rows(c, call.rows, tokens, table.shape[0]);
  for_each_index(call.indices, [&](int64_t t, int64_t j, int32_t index) {
    if (index >= table.shape[1])
      c.fail("table.capacity", at("indices", t, j), "< " + std::to_string(table.shape[1]),
             std::to_string(index));
  });
}

void check_offset_indices(TensorCheck& c, const TransformIndices& call, int64_t tokens) {
  if (!call.rows.empty()) c.fail("input.shape", at("rows"), "none, as there is no table", "some");
  if (!list_of(c, "offsets", call.offsets, tokens)) return;
  for (size_t t = 0; t < call.offsets.size(); ++t)
    if (call.offsets[t] < 0)
      c.fail("len.negative", at("offsets", static_cast<int64_t>(t)), ">= 0",
             std::to_string(call.offsets[t]));
  for_each_index(call.indices, [&](int64_t t, int64_t j, int32_t index) {
    if (int64_t{index} + call.offsets[static_cast<size_t>(t)] > INT32_MAX)
      c.fail("len.overflow", at("indices", t, j), "<= 2147483647 with its offset",
             std::to_string(index));
  });
}

}  // namespace

Status validate(const TransformIndices& call) {
  Status status;
  TensorCheck c(&status);
  const bool ok = c.input("indices", call.indices, {kAny, kAny}, kI32);
  const int64_t tokens = ok ? call.indices.shape[0] : kAny;
  c.output("out", call.out, {tokens, ok ? call.indices.shape[1] : kAny}, kI32);
  if (ok) {
    call.page_table_1.defined() ? check_table_indices(c, call, tokens)
                                : check_offset_indices(c, call, tokens);
  }
  c.no_aliases();
  return status;
}

Status validate(const CompactIndices& call) {
  Status status;
  TensorCheck c(&status);
  const bool ok = c.input("indices", call.indices, {kAny, kAny}, kI32);
  const int64_t tokens = ok ? call.indices.shape[0] : kAny;
  bool lists = c.span("kv_indptr", call.kv_indptr);
  lists &= c.written("kv_indices", call.kv_indices);
  if (ok && lists && check_indptr(c, "kv_indptr", call.kv_indptr, tokens, kAny)) {
    std::vector<int64_t> counts(static_cast<size_t>(tokens), 0);
    for_each_index(call.indices,
                   [&](int64_t t, int64_t, int32_t) { ++counts[static_cast<size_t>(t)]; });
    for (size_t t = 0; t < counts.size(); ++t) {
      const int64_t step = call.kv_indptr[t + 1] - call.kv_indptr[t];
      if (step != counts[t])
        c.fail("len.q_extent", at("kv_indptr", static_cast<int64_t>(t) + 1),
               std::to_string(counts[t]) + " more than the entry before", std::to_string(step));
    }
    if (call.kv_indptr.back() > std::ssize(call.kv_indices))
      c.fail("len.total", at("kv_indptr", tokens),
             "<= " + std::to_string(call.kv_indices.size()) + " entries of kv_indices",
             std::to_string(call.kv_indptr.back()));
  }
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
