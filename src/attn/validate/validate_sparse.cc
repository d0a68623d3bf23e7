#include "attn/validate/validate_sparse.h"

#include <string>
#include <utility>

#include "attn/validate/batch_check.h"
#include "attn/validate/cache_check.h"
#include "attn/validate/duplicates.h"

namespace shadowgraph {
namespace {

constexpr auto kBytes = {DType::kU8};

/// Bytes of a page of a packed layout; kAny where page_size itself is none.
int64_t check_page_size(TensorCheck& c, const std::string& name, LatentLayout layout,
                        int32_t page_size) {
  const bool paged = layout == LatentLayout::kV4;
  if (paged ? page_size >= 1 : page_size == 1) {
    if (layout == LatentLayout::kRows) return kAny;
    return paged ? v4_page_bytes(page_size) : kDsaBytes;
  }
  c.fail("input.shape", at(name + "pool.page_size"), paged ? ">= 1" : "1, since rows have no pages",
         std::to_string(page_size));
  return kAny;
}

/// tensor: takes name, shape and dtypes, as TensorCheck::input. False if the pool has no slots that
/// can be named.
template <class Tensor>
bool check_pool(TensorCheck& c, const std::string& name, LatentLayout layout, int32_t page_size,
                std::initializer_list<DType> rows, const Tensor& tensor) {
  if (layout > LatentLayout::kV4) {
    c.fail("input.shape", at(name + "pool.layout"), "rows, DSA's or DeepSeek-V4's",
           std::to_string(static_cast<int>(layout)));
    return false;
  }
  const int64_t bytes = check_page_size(c, name, layout, page_size);
  const bool packed = layout != LatentLayout::kRows;
  const bool sound =
      tensor((name + "pool").c_str(), {kAny, packed ? bytes : kAny}, packed ? kBytes : rows);
  return sound && (!packed || bytes != kAny);
}

/// Offsets or lengths that fit the entries. False: the entries cannot be walked.
bool check_extents(TensorCheck& c, const std::string& name, const ChosenKeys& list,
                   int64_t tokens) {
  const int64_t entries = std::ssize(list.indices);
  if (!list.indptr.empty()) {
    const std::string field = name + "indptr";
    if (!check_indptr(c, field.c_str(), list.indptr, tokens, kAny)) return false;
    if (list.indptr.back() <= entries) return true;
    c.fail("len.total", at(field, tokens), "<= " + std::to_string(entries) + " entries",
           std::to_string(list.indptr.back()));
    return false;
  }
  int64_t expected = 0;
  if (list.width < 0 || __builtin_mul_overflow(tokens, list.width, &expected) ||
      expected != entries) {
    c.fail("len.batch", at(name + "indices"),
           std::to_string(tokens) + " tokens * width " + std::to_string(list.width),
           std::to_string(entries) + " entries");
    return false;
  }
  if (!list.lengths.empty() && std::ssize(list.lengths) != tokens) {
    c.fail("len.batch", at(name + "lengths"), std::to_string(tokens) + " entries",
           std::to_string(list.lengths.size()));
    return false;
  }
  bool ok = true;
  for (size_t t = 0; t < list.lengths.size(); ++t) {
    const int32_t n = list.lengths[t];
    if (n >= 0 && n <= list.width) continue;
    c.fail(n < 0 ? LawId("len.negative") : LawId("len.capacity"), at(name + "lengths", t),
           "0 .. " + std::to_string(list.width), std::to_string(n));
    ok = false;
  }
  return ok;
}

/// where: row = token, col = place in its list.
void check_entries(TensorCheck& c, const std::string& name, const ChosenKeys& list,
                   int64_t tokens) {
  const std::string field = name + "indices";
  const int64_t slots = list.pool.slots();
  for (int64_t t = 0; t < tokens; ++t) {
    Numbered chosen;
    const std::span<const int32_t> entries = list.of(t);
    for (size_t j = 0; j < entries.size(); ++j) {
      const int32_t slot = entries[j];
      if (slot >= 0 && slot < slots) {
        chosen.emplace_back(slot, j);
      } else if (slot != -1) {
        c.fail("list.slot", at(field, t, static_cast<int64_t>(j)),
               "-1, or 0 <= slot < " + std::to_string(slots), std::to_string(slot));
      }
    }
    find_duplicates(std::move(chosen), [&](int64_t slot, size_t later, size_t earlier) {
      c.fail("list.duplicate", at(field, t, static_cast<int64_t>(later)),
             "a slot of its own, not that of entry " + std::to_string(earlier),
             std::to_string(slot));
    });
  }
}

/// tokens and head_dim: kAny where q does not say them.
void check_list(TensorCheck& c, const std::string& name, const ChosenKeys& list, int64_t tokens,
                int64_t head_dim) {
  bool ok = c.span((name + "indices").c_str(), list.indices);
  ok &= c.span((name + "lengths").c_str(), list.lengths);
  ok &= c.span((name + "indptr").c_str(), list.indptr);
  const auto rows = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2};
  const bool pool_ok = check_pool(c, name, list.pool.layout, list.pool.page_size, rows,
                                  [&](const char* field, std::initializer_list<AxisSize> shape,
                                      std::initializer_list<DType> dtypes) {
                                    return c.input(field, list.pool.data, shape, dtypes);
                                  });
  if (!pool_ok) return;
  if (head_dim != kAny && list.pool.head_dim() != head_dim)
    c.fail("input.shape", at(name + "pool"), "latents of " + std::to_string(head_dim) + ", as q",
           std::to_string(list.pool.head_dim()));
  if (ok && tokens != kAny && check_extents(c, name, list, tokens))
    check_entries(c, name, list, tokens);
}

}  // namespace

Status validate(const SparseAttention& call) {
  Status status;
  TensorCheck c(&status);
  const bool q_ok = c.input("q", call.q, {kAny, kAny, kAny},
                            {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3});
  const auto axis = [&](size_t i) { return q_ok ? call.q.shape[i] : kAny; };
  const int64_t tokens = axis(0), heads = axis(1), head_dim = axis(2);
  if (q_ok && heads < 1) c.fail("param.heads", at("q.shape", 1), ">= 1", std::to_string(heads));
  if (q_ok)
    check_head_dim(c, "q.shape[2]", static_cast<int32_t>(std::min<int64_t>(head_dim, INT32_MAX)));
  if (check_head_dim(c, "head_dim_v", call.head_dim_v) && q_ok && call.head_dim_v > head_dim)
    c.fail("param.head_dim", at("head_dim_v"), "at most q's " + std::to_string(head_dim),
           std::to_string(call.head_dim_v));
  check_scale(c, "sm_scale", call.sm_scale);
  if (c.span("sinks", call.sinks))
    check_sinks(c, call.sinks, q_ok ? heads : std::ssize(call.sinks));
  check_list(c, "keys.", call.keys, tokens, head_dim);
  if (call.extra.defined()) check_list(c, "extra.", call.extra, tokens, head_dim);
  c.output("out", call.out, {{tokens, "rows of q"}, {heads, "heads of q"}, call.head_dim_v}, kWide);
  if (call.lse.defined())
    c.output("lse", call.lse.tensor, {{tokens, "rows of q"}, {heads, "heads of q"}}, {DType::kF32},
             false);
  c.no_aliases();
  return status;
}

Status validate(const PackLatents& call) {
  Status status;
  TensorCheck c(&status);
  const WritableLatentPool& pool = call.pool;
  const auto tokens = std::ssize(call.out_cache_loc);
  const bool slots_ok = c.span("out_cache_loc", call.out_cache_loc);
  const bool pool_ok = check_pool(c, "", pool.layout, pool.page_size, kWide,
                                  [&](const char* field, std::initializer_list<AxisSize> shape,
                                      std::initializer_list<DType> dtypes) {
                                    return c.output(field, pool.data, shape, dtypes);
                                  });
  c.input("latents", call.latents, {tokens, pool_ok ? pool.head_dim() : kAny}, kWide);
  if (pool_ok && slots_ok)
    check_slots(c, call.out_cache_loc, pool.slots(),
                [&](int64_t slot) { return call.drops(slot); });
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
