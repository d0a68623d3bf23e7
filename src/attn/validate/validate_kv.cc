// validate() of what writes a cache.
#include <algorithm>
#include <utility>
#include <vector>

#include "attn/validate/cache_check.h"
#include "attn/validate/duplicates.h"
#include "attn/validate/validate.h"

namespace shadowgraph {
namespace {

void check_same(TensorCheck& c, const char* field, int64_t expected, int64_t got) {
  if (expected != got)
    c.fail("input.shape", at(field), std::to_string(expected) + ", as the source",
           std::to_string(got));
}

/// Bits are copied: what they stand for must be the same on both sides.
void check_same_tokens(TensorCheck& c, const KvCache& source, const KvCache& target) {
  check_same(c, "target page_size", source.page_size, target.page_size);
  check_same(c, "target num_kv_heads", source.num_kv_heads, target.num_kv_heads);
  const auto plane = [&](const std::string& name, const KvPlane& from, const KvPlane& to,
                         float from_scale, float to_scale) {
    check_same(c, (name + "_cache head_dim").c_str(), from.head_dim, to.head_dim);
    if (from.dtype != to.dtype)
      c.fail("input.dtype", at(name + "_cache.dtype"), std::string(name_of(from.dtype)),
             std::string(name_of(to.dtype)));
    if (from_scale != to_scale)
      c.fail("param.scale", at(name + "_scale"), text(from_scale) + ", as the source",
             text(to_scale));
  };
  plane("target k", source.k, target.k, source.k_scale, target.k_scale);
  plane("target v", source.v, target.v, source.v_scale, target.v_scale);
}

Numbered check_page_range(TensorCheck& c, const char* field, std::span<const int32_t> pages,
                          int64_t num_pages) {
  Numbered known;
  for (size_t i = 0; i < pages.size(); ++i) {
    const int32_t page = pages[i];
    if (page >= 0 && page < num_pages) {
      known.emplace_back(page, i);
    } else {
      c.fail("table.page_id", at(field, i), "0 <= id < " + std::to_string(num_pages),
             std::to_string(page));
    }
  }
  return known;
}

void check_copied_pages(TensorCheck& c, const CopyKv& call) {
  const size_t sources = call.whole_pool ? 0 : call.source_pages.size();
  check_same(c, "target_pages", static_cast<int64_t>(sources),
             static_cast<int64_t>(call.target_pages.size()));
  if (call.whole_pool) {
    if (!call.source_pages.empty())
      c.fail("input.shape", at("source_pages"), "none, as the whole pool is copied",
             std::to_string(call.source_pages.size()));
    check_same(c, "target num_pages", call.source.num_pages, call.target.num_pages);
  }
  check_page_range(c, "source_pages", call.source_pages, call.source.num_pages);
  find_duplicates(check_page_range(c, "target_pages", call.target_pages, call.target.num_pages),
                  [&](int64_t page, size_t later, size_t earlier) {
                    c.fail("slot.duplicate", at("target_pages", later),
                           "a page of its own, not that of entry " + std::to_string(earlier),
                           std::to_string(page));
                  });
}

}  // namespace

bool StoreKv::is_latent() const {
  const bool beginning = v.data == k.data && v.dtype == k.dtype && v.stride[0] == k.stride[0] &&
                         v.stride[1] == k.stride[1];
  return cache.is_latent() && (!v.defined() || beginning);
}

Status validate(const StoreKv& call) {
  Status status;
  TensorCheck c(&status);
  const bool latent = call.is_latent();
  if (!c.span("out_cache_loc", call.out_cache_loc) || !check_cache(c, "", call.cache, true, latent))
    return status;
  const AxisSize tokens = {std::ssize(call.out_cache_loc), "entries of out_cache_loc"};
  c.input("k", call.k, {tokens, call.cache.num_kv_heads, call.cache.k.head_dim}, kWide);
  if (!latent || call.v.defined())
    c.input("v", call.v, {tokens, call.cache.num_kv_heads, call.cache.v.head_dim}, kWide);
  check_slots(c, call.out_cache_loc, call.cache.num_slots(),
              [&](int64_t slot) { return call.drops(slot); });
  c.no_aliases();
  return status;
}

Status validate(const CopyKv& call) {
  Status status;
  TensorCheck c(&status);
  bool ok = c.span("source_pages", call.source_pages);
  ok &= c.span("target_pages", call.target_pages);
  ok &= check_cache(c, "source ", call.source, false);
  ok &= check_cache(c, "target ", call.target, true);
  if (!ok) return status;
  check_same_tokens(c, call.source, call.target);
  check_copied_pages(c, call);
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
