// Faults of where kernels look for their keys.

#include "attn/mask.h"
#include "faults/lists.h"

namespace shadowgraph {
namespace {

constexpr int64_t kTileKeys = 64;

/// Does fn(call) hold of a call that says by ids where its keys are?
template <class Fn>
bool reads_ids(const KernelLaunch& launch, Fn fn) {
  KernelLaunch copy = launch;
  return change_attention(&copy, [&](auto& c) {
    if constexpr (requires { ids_of(c); }) return !ids_of(c).ids->empty() && fn(c);
    return false;
  });
}
bool has_ids(const KernelLaunch& launch) {
  return reads_ids(launch, [](const auto&) { return true; });
}
bool has_ids_of_latents(const KernelLaunch& launch) {
  return reads_ids(launch, [](const auto& c) { return c.cache.is_latent(); });
}

/// fn(call) of calls with ids, and the clean kernel.
template <class Fn>
void run_with_ids(const KernelLaunch& clean, SlippedRun& run, Fn fn) {
  KernelLaunch launch = clean;
  change_attention(&launch, [&](auto& c) {
    if constexpr (requires { ids_of(c); }) fn(c);
    return true;
  });
  run.launch(launch);
}

/// The same where tables of pages say it.
template <class Fn>
void run_with_pages(const KernelLaunch& clean, SlippedRun& run, Fn fn) {
  PagedAttention c = call_of<PagedAttention>(clean).call;
  fn(c);
  run.launch(attention_launch(c, call_of<PagedAttention>(clean).rows));
}
bool reads_pages(const KernelLaunch& launch) {
  if (launch.kernel != &kPagedAttention) return false;
  const PagedAttention c = call_of<PagedAttention>(launch).call;
  return c.pages.form == PageTable::Form::kDense && c.cache.page_size > 1;
}

bool reads_pages_in_window(const KernelLaunch& launch) {
  return reads_pages(launch) && call_of<PagedAttention>(launch).call.params.window_left >= 0;
}
bool decodes_in_window(const KernelLaunch& launch) {
  return reads_pages_in_window(launch) && call_of<PagedAttention>(launch).call.max_seqlen_q == 1;
}

void capacity_as_length(const KernelLaunch& clean, SlippedRun& run) {
  run_with_pages(clean, run, [&](PagedAttention& c) {
    std::vector<int32_t> lens(c.pages.cache_seqlens.begin(), c.pages.cache_seqlens.end());
    for (int32_t& len : lens)
      len =
          static_cast<int32_t>(pages_for(std::max(0, len), c.cache.page_size)) * c.cache.page_size;
    c.pages.cache_seqlens = run.take(c.pages.cache_seqlens, std::move(lens));
  });
}

/// Pages of 2 elements, of which each one begins where a product may.
void product_in_few_bits(const KernelLaunch& clean, SlippedRun& run) {
  constexpr int64_t kStep = 2, kMask = 255;
  run_with_ids(clean, run, [&](auto& c) {
    const int64_t stride = c.cache.k.page_stride, pages = c.cache.num_pages;
    change_ids(c, run, [&](int64_t id) { return (id * stride & kMask) / kStep; });
    c.cache.k.page_stride = c.cache.v.page_stride = kStep;
    c.cache.num_pages = (pages - 1) * stride / kStep + 1;
  });
}

void ids_of_few_bits(const KernelLaunch& clean, SlippedRun& run) {
  run_with_ids(clean, run, [&](auto& c) { change_ids(c, run, [](int64_t id) { return id & 7; }); });
}

void places_of_few_bits(const KernelLaunch& clean, SlippedRun& run) {
  run_with_ids(clean, run, [&](auto& c) {
    read_elsewhere(c, run, [](size_t, int64_t j) { return (j + 4) % 8 - 4; });
  });
}

void tokens_as_page_bound(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  const PagedAttention c = call_of<PagedAttention>(clean).call;
  const int64_t page_size = c.cache.page_size;
  for (int64_t i = 0; i < c.pages.batch(); ++i) {
    const int64_t keys = std::max(0, c.pages.cache_seqlens[static_cast<size_t>(i)]);
    const int64_t pages = pages_for(keys, page_size);
    const int64_t of_tiles = pages_for(pages_for(keys, kTileKeys) * kTileKeys, page_size);
    run.note({c.pages.page_table.data(), i * c.pages.max_pages + pages,
              std::max<int64_t>(0, std::min(keys, of_tiles) - pages), sizeof(int32_t),
              Access::kRead, static_cast<int32_t>(i)});
  }
}

void skipped_not_passed(const KernelLaunch& clean, SlippedRun& run) {
  run_with_pages(clean, run, [&](PagedAttention& c) {
    const auto skipped = [&](size_t i) -> int64_t {
      const int32_t keys = std::max(0, c.pages.cache_seqlens[i]);
      const int32_t queries =
          c.cu_seqlens_q.empty() ? 1 : c.cu_seqlens_q[i + 1] - c.cu_seqlens_q[i];
      return kv_range(MaskShape::of(c.params, queries, keys), 0).begin / c.cache.page_size;
    };
    const auto from = [&](size_t i, int64_t j) { return std::max<int64_t>(0, j - skipped(i)); };
    read_elsewhere(c, run, from);
  });
}

constexpr Fault kAddressesFaults[] = {
    // A decode under a window takes the keys that its pages have room for for its length; the
    // window is counted from their end, too.
    {"K02", "CE", "Under a window the room of pages is taken for the length",
     "openvino#37377 fa.I-19", "extent.capacity",
     stand_in<capacity_as_length, decodes_in_window>()},
    // A latent's place, page * stride, is computed in few bits: 32 there, 8 here.
    {"K44", "INTOVF", "Page times stride wraps round", "flashinfer#3136 flashinfer#3130",
     "table.wrapped", stand_in<product_in_few_bits, has_ids_of_latents>()},
    // Numbers of pages, or of slots where those are listed, keep few bits: 16 there, 3 here.
    {"K46", "INTOVF", "Numbers of blocks are cut to few bits", "aiter#3062", "table.wrapped",
     stand_in<ids_of_few_bits, has_ids>()},
    // Places in a row's list pass through a signed integer of few bits: 16 there, 3 here.
    {"K47", "INTOVF", "Places in a sequence pass through a short integer", "xformers#719",
     "table.place_wrapped", stand_in<places_of_few_bits, has_ids>()},
    // A tile's columns of a table are held against the length in tokens.
    {"K48", "PAGESZ", "A bound in tokens is held against a number of pages", "flashinfer#810", "",
     stand_in<tokens_as_page_bound, reads_pages>()},
    // Tiles, here pages, that are wholly before the window are skipped, and K and V stay behind.
    {"K63", "SPLIT", "Tiles that are skipped are not passed by", "llama.cpp#14916",
     "table.shifted extent.short", stand_in<skipped_not_passed, reads_pages_in_window>()},
};

}  // namespace

std::span<const Fault> themes::addresses() { return kAddressesFaults; }

}  // namespace shadowgraph
