// Faults of who sees whom inside a kernel.

#include <cmath>
#include <limits>

#include "attn/mask.h"
#include "attn/page_table.h"
#include "core/float_formats.h"
#include "faults/substitutes.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

/// One request of a paged call.
struct Extent {
  int64_t first_query = 0;
  int32_t queries = 0, keys = 0;
};

/// All requests of tables of pages; where lengths are corrupt, fewer.
std::vector<Extent> extents_of(const PagedAttention& c) {
  std::vector<Extent> all;
  for (size_t i = 0; i < c.pages.cache_seqlens.size(); ++i) {
    const bool one = c.cu_seqlens_q.empty();
    const int64_t begin = one ? static_cast<int64_t>(i) : c.cu_seqlens_q[i];
    const int64_t end = one ? begin + 1 : c.cu_seqlens_q[i + 1];
    const int64_t keys = c.pages.cache_seqlens[i];
    const int64_t room = c.pages.max_pages * c.cache.page_size;
    if (begin < 0 || end < begin || end > c.q.shape[0] || keys < 0 || keys > room) break;
    all.push_back({begin, static_cast<int32_t>(end - begin), static_cast<int32_t>(keys)});
  }
  return all;
}

/// What is not finite among a token's values makes the row NaN.
void multiply_by_zero(const PagedAttention& c, int64_t page, int64_t token, int64_t row) {
  const int32_t group = c.params.num_qo_heads / c.params.num_kv_heads;
  for (int32_t head = 0; head < c.params.num_qo_heads; ++head) {
    for (int64_t d = 0; d < c.params.head_dim_vo; ++d) {
      const float v = load_float(c.cache.v.data, c.cache.v.dtype,
                                 c.cache.v.offset(page, token, head / group, d));
      if (!std::isfinite(v))
        store_float(c.out.at(row, head), c.out.dtype, d, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

void values_before_window(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  const PagedAttention c = call_of<PagedAttention>(clean).call;
  const std::vector<Extent> extents = extents_of(c);
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& e = extents[i];
    const MaskShape mask = MaskShape::of(c.params, e.queries, e.keys);
    for (int32_t q = 0; q < launched_rows(e.queries, c.max_seqlen_q); ++q) {
      for (int32_t k = 0; k < kv_range(mask, q).begin; ++k) {
        const int64_t column = static_cast<int64_t>(i) * c.pages.max_pages + k / c.cache.page_size;
        const int64_t page = c.pages.page_table[static_cast<size_t>(column)];
        const int64_t token = k % c.cache.page_size;
        if (page < 0 || page >= c.cache.num_pages) continue;
        run.note({c.pages.page_table.data(), column, 1, sizeof(int32_t), Access::kRead});
        for (int32_t head = 0; head < c.cache.num_kv_heads; ++head)
          run.note({c.cache.v.data, c.cache.v.offset(page, token, head, 0), c.cache.v.head_dim,
                    element_bytes(c.cache.v.dtype), Access::kRead});
        if (!run.noted()) multiply_by_zero(c, page, token, e.first_query + q);
      }
    }
  }
}

bool windowed_table(const KernelLaunch& launch) {
  if (launch.kernel != &kPagedAttention) return false;
  const PagedAttention c = call_of<PagedAttention>(launch).call;
  return c.pages.form == PageTable::Form::kDense && c.params.window_left >= 0 &&
         c.cache.v.order == KvOrder::kStrided;
}

/// A byte a pair of [queries, keys]: does query q see key k?
void add_pairs(std::vector<uint8_t>& pairs, int64_t queries, int64_t keys) {
  for (int64_t q = 0; q < queries; ++q)
    for (int64_t k = 0; k < keys; ++k) pairs.push_back(k <= q);
}

/// The call gets a mask that is aligned at the top.
template <class Call>
void see_from_top(Call& c, SlippedRun& run, const std::vector<Extent>& extents) {
  std::vector<uint8_t> pairs;
  std::vector<int64_t> indptr = {0};
  for (const Extent& e : extents) {
    add_pairs(pairs, e.queries, e.keys);
    indptr.push_back(std::ssize(pairs));
  }
  c.params.custom_mask = {CustomMask::Kind::kBool, run.make(std::move(pairs)),
                          run.make(std::move(indptr))};
  c.params.causal = false;
}

std::vector<Extent> extents_of(std::span<const int32_t> queries, std::span<const int32_t> keys,
                               int64_t most) {
  std::vector<Extent> all;
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    const int32_t q = queries.empty() ? 1 : queries[i + 1] - queries[i], k = keys[i + 1] - keys[i];
    if (q < 0 || k < 0 || q > most || k > most) break;
    all.push_back({0, q, k});
  }
  return all;
}

void from_the_top(TiledAttention& c, SlippedRun& run) {
  const int64_t most = std::max<int64_t>(std::ssize(c.kv_indices), c.q.shape[0]);
  std::vector<uint8_t> bits;
  std::vector<int32_t> indptr = {0};
  for (const Extent& e : extents_of(c.qo_indptr, c.kv_indptr, most)) {
    std::vector<uint8_t> pairs;
    add_pairs(pairs, e.queries, e.keys);
    const size_t begin = bits.size();
    bits.resize(begin + (pairs.size() + 7) / 8);
    for (size_t p = 0; p < pairs.size(); ++p)
      bits[begin + p / 8] = static_cast<uint8_t>(bits[begin + p / 8] | pairs[p] << p % 8);
    indptr.push_back(static_cast<int32_t>(bits.size()));
  }
  if (indptr.size() != c.kv_indptr.size()) return;
  c.packed_mask = run.make(std::move(bits));
  c.mask_indptr = run.make(std::move(indptr));
}
void from_the_top(PagedAttention& c, SlippedRun& run) {
  if (const auto all = extents_of(c); std::ssize(all) == c.pages.batch()) see_from_top(c, run, all);
}
void from_the_top(RaggedAttention& c, SlippedRun& run) {
  const auto all = extents_of(c.cu_seqlens_q, c.cu_seqlens_k, std::max(c.q.shape[0], c.k.shape[0]));
  if (all.size() + 1 == c.cu_seqlens_q.size()) see_from_top(c, run, all);
}

void causal_from_the_top(const KernelLaunch& clean, SlippedRun& run) {
  KernelLaunch launch = clean;
  change_attention(&launch, [&](auto& c) {
    if constexpr (requires { from_the_top(c, run); }) from_the_top(c, run);
    return true;
  });
  run.launch(launch);
}

bool is_causal(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  const auto tiled = [](TiledAttention& c) {
    return c.params.causal && c.mask_indptr.empty() && c.items.prefix_lens.empty();
  };
  const auto paged = [](PagedAttention& c) {
    return c.params.causal && c.pages.form == PageTable::Form::kDense;
  };
  const auto ragged = [](RaggedAttention& c) { return c.params.causal; };
  return change_attention(&copy, Overloaded{[](auto&) { return false; }, tiled, paged, ragged});
}

constexpr Fault kKernelMasksFaults[] = {
    // Scores before the window are masked, and values are not: they are loaded, and multiplied by
    // 0.
    {"K22", "UNINIT", "Values before the window are multiplied by 0, and not masked", "vllm#30887",
     "values.hidden", stand_in<values_before_window, windowed_table>()},
    // The causal mask is aligned at the top left: query i sees keys up to i, whatever the prefix.
    // Triton's kernels need no mask of the prefix.
    {"K54", "CAUSAL", "The causal mask is aligned at the top left",
     "flash-attention@e07aa036 flash-attention@9e5e8bc9", "causal.top_left",
     stand_in<causal_from_the_top, is_causal>()},
};

}  // namespace

std::span<const Fault> themes::kernel_masks() { return kKernelMasksFaults; }

}  // namespace shadowgraph
