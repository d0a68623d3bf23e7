#include "kernels/sparse/index_keys.h"

#include <algorithm>
#include <cstring>

#include "attn/index_page.h"
#include "attn/validate/validate_indexer.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/state_spans.h"

namespace shadowgraph {
namespace {

constexpr int64_t kKeyTokens = 64;  // edge: tokens; of one item of work

IndexKeyPlace place_of_slot(const ConstTensorView& pages, int64_t slot) {
  return place_in_pages(pages, slot / kIndexPageTokens, slot % kIndexPageTokens);
}

/// fn(request, key of it, where it lies in the pages), of the packed keys first .. last - 1.
template <class Fn>
void for_each_key(const GatherIndexKeys& call, int64_t first, int64_t last, const Fn& fn) {
  const auto& cu = call.cu_seqlens_k;
  auto row = std::upper_bound(cu.begin(), cu.end(), static_cast<int32_t>(first)) - cu.begin() - 1;
  for (int64_t key = first; key < last; ++key) {
    while (cu[static_cast<size_t>(row) + 1] <= key) ++row;
    const int64_t in_row = key - cu[static_cast<size_t>(row)];
    const int32_t page = load_i32(call.page_table, row, in_row / kIndexPageTokens);
    fn(row, key, in_row, place_in_pages(call.pages, page, in_row % kIndexPageTokens));
  }
}

/// The two pieces of a page that are one key's.
void add_key(Footprint* spans, const ConstTensorView& pages, const IndexKeyPlace& place,
             Access access, int64_t row) {
  const auto of = static_cast<int32_t>(row);
  spans->push_back({pages.data, place.key, kIndexDim, 1, access, of});
  spans->push_back({pages.data, place.scale, sizeof(float), 1, access, of});
}

}  // namespace

void store_index_keys_kernel(const StoreIndexKeys& call) {
  const int64_t tokens = std::ssize(call.out_cache_loc),
                items = (tokens + kKeyTokens - 1) / kKeyTokens;
  parallel_for(items, team_size(call.options.num_threads, items), [&](int64_t item, int) {
    for (int64_t t = item * kKeyTokens; t < std::min(tokens, (item + 1) * kKeyTokens); ++t) {
      const int64_t slot = call.out_cache_loc[static_cast<size_t>(t)];
      if (call.drops(slot)) continue;
      const IndexKeyPlace to = place_of_slot(call.pages, slot);
      std::memcpy(call.pages.data + to.key, call.k.at(t), kIndexDim);
      std::memcpy(call.pages.data + to.scale, call.k_scale.at(t), sizeof(float));
    }
  });
}

void gather_index_keys_kernel(const GatherIndexKeys& call) {
  const int64_t keys = call.cu_seqlens_k.back(), items = (keys + kKeyTokens - 1) / kKeyTokens;
  parallel_for(items, team_size(call.options.num_threads, items), [&](int64_t item, int) {
    for_each_key(call, item * kKeyTokens, std::min(keys, (item + 1) * kKeyTokens),
                 [&](int64_t, int64_t key, int64_t, const IndexKeyPlace& from) {
                   std::memcpy(call.k.at(key), call.pages.data + from.key, kIndexDim);
                   std::memcpy(call.k_scale.at(key), call.pages.data + from.scale, sizeof(float));
                 });
  });
}

Footprint store_index_keys_footprint(const StoreIndexKeys& call) {
  Footprint spans;
  add_list(&spans, call.out_cache_loc);
  for (int64_t t = 0; t < std::ssize(call.out_cache_loc); ++t) {
    const int64_t slot = call.out_cache_loc[static_cast<size_t>(t)];
    if (call.drops(slot)) continue;
    add_line(&spans, call.k, t, Access::kRead);
    add_line(&spans, call.k_scale, t, 0, 1, Access::kRead);
    add_key(&spans, call.pages, place_of_slot(call.pages, slot), Access::kWrite, t);
  }
  return spans;
}

Footprint gather_index_keys_footprint(const GatherIndexKeys& call) {
  Footprint spans;
  add_list(&spans, call.cu_seqlens_k);
  for_each_key(
      call, 0, call.cu_seqlens_k.back(),
      [&](int64_t row, int64_t key, int64_t in_row, const IndexKeyPlace& from) {
        const auto of = static_cast<int32_t>(row);
        if (in_row % kIndexPageTokens == 0)
          spans.push_back({call.page_table.data,
                           call.page_table.offset(row, in_row / kIndexPageTokens), 1, 4,
                           Access::kRead, of});
        add_key(&spans, call.pages, from, Access::kRead, row);
        spans.push_back({call.k.data, call.k.offset(key), kIndexDim, 1, Access::kWrite, of});
        spans.push_back({call.k_scale.data, call.k_scale.offset(key), 1, 4, Access::kWrite, of});
      });
  return spans;
}

Status store_index_keys(const StoreIndexKeys& call) noexcept {
  return checked(call, [&] { store_index_keys_kernel(call); });
}

Status gather_index_keys(const GatherIndexKeys& call) noexcept {
  return checked(call, [&] { gather_index_keys_kernel(call); });
}

}  // namespace shadowgraph
