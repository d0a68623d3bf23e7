// Sizes of a history: pages, requests, contexts and extends, small ones or one around an edge.
#include "fuzz/history/history_sizes.h"

#include <algorithm>
#include <vector>

#include "backends/fill/rows.h"
#include "fuzz/history/history_words.h"

namespace shadowgraph {
namespace {

constexpr int32_t kWhole = 0;  // a chunk of any prompt

int32_t choose_page_size(const Backend& b, Choices& c) {
  const std::span<const int32_t> sizes = b.info().page_sizes;
  if (!sizes.empty()) return c.of("page_size", sizes);
  return c.of("page_size", {1, 2, 4, 16, 1, 2, 4, 16, 32, 128});
}

/// Layers with few keys have sizes of their own.
HistorySizes choose_kind(const Backend& b, Choices& c) {
  using enum HistorySizes;
  constexpr HistorySizes kKinds[] = {
      kSmall, kSmall, kSmall, kSmall, kSmall, kSmall,        kSmall,       kSmall,
      kSmall, kSmall, kSmall, kSmall, kSmall, kManyRequests, kLongExtends, kLongContexts};
  if (!b.info().sparse) return c.of(kSizesFactor, std::span<const HistorySizes>(kKinds));
  (void)c.below(std::size(kKinds));
  return kSmall;
}

}  // namespace

void choose_sizes(const Backend& b, Choices& c, History* h) {
  RuntimeConfig& r = h->runtime;
  h->model.page_size = r.page_size = choose_page_size(b, c);
  h->sizes = choose_kind(b, c);
  r.max_requests = c.between("max_requests", b.info().halves ? 2 : 1, 4);  // two batches of them
  if (b.info().halves) r.least_requests = c.of({2, 2, 2, 1});  // else few steps can be halved
  r.max_context_len = r.page_size * c.between(2, 4) + c.between(8, 24);
  r.max_chunk = c.between(2, 9) * std::max(1, r.page_size / 8);  // prompts of pages, in few steps
  // Prompts come first: a backend that extends none, or halves batches, waits for its steps.
  const bool waits = !has_mode(b.info(), ForwardMode::kExtend) || b.info().halves;
  h->steps = waits ? c.between(12, 28) : c.between(6, 26);
  h->runner.buckets = {1, 2, 4};
  switch (h->sizes) {
    case HistorySizes::kSmall: break;
    case HistorySizes::kManyRequests:
      r.crowded = true;
      r.max_requests = c.of({5, 8, 9, 16, 17});
      r.max_context_len = r.page_size + c.between(8, 24);
      h->steps = c.between(8, 16);
      h->runner.buckets.back() = c.of({4, 8, 16});
      break;
    case HistorySizes::kLongExtends:
      r.max_chunk = near_edge(c, Axis::kQueryRows, 130);
      r.max_context_len += r.max_chunk;
      h->steps = c.between(6, 12);
      break;
    case HistorySizes::kLongContexts:
      r.max_requests = std::min(r.max_requests, 3);
      r.max_chunk = c.of({kWhole, 130, kWhole});
      // A latent of the engine's size takes much room.
      r.max_context_len += near_edge(c, Axis::kKeys, b.info().v4.empty() ? 1030 : 270, 100);
      // Steps are few: who runs no prompts waits for whole ones.
      if (r.max_chunk == kWhole || !has_mode(b.info(), ForwardMode::kExtend))
        r.max_chunk = r.max_context_len;
      h->steps = c.between(4, 8);
      break;
  }
}

int32_t choose_window(std::string_view factor, Choices& c, const History& h) {
  return is_long(h) ? near_edge(c, Axis::kKeys, 200) : c.of(factor, {0, 1, 3, 4, 5});
}

}  // namespace shadowgraph
