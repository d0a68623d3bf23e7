// Faults of DeepSeek-V4: what a token sees of its window and of blocks, where states are, and what
// is stored when.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backends/sparse/deepseek_v4.h"
#include "backends/sparse/deepseek_v4_hip.h"
#include "faults/plant.h"
#include "launch/sparse_launch.h"
#include "launch/v4_expand.h"

namespace shadowgraph {
namespace {

using V4 = DeepseekV4;

/// One step's metadata of DeepSeek-V4, of a half by itself. Padding has row 0.
struct LatentMeta {
  const Meta& m;
  std::span<int32_t> lens, rows;

  template <class T = int32_t>
  std::span<T> of(size_t buffer) const {
    return m.has(buffer) ? staged<T>(m, m[buffer]) : std::span<T>{};
  }
  /// A row of a list that has as many columns for every token.
  std::span<int32_t> row(size_t buffer, size_t token) const {
    const int64_t columns = m[buffer].shape[1];
    return staged<int32_t>(m, m[buffer], {static_cast<int64_t>(token) * columns, columns});
  }
  size_t tokens() const { return lens.size(); }
  bool is_real(size_t token) const { return rows[token] != 0; }
};

template <class Fn>
void for_latents(Meta& meta, Fn fn) {
  for_metas_of<DeepseekV4>(meta, [&](const Meta& m) {
    if (m[V4::kSeqLens].lifetime != Lifetime::kPerStep) return;  // by launches
    const auto ints = [&](size_t b) { return staged<int32_t>(m, m[b]); };
    fn(LatentMeta{m, ints(V4::kSeqLens), ints(V4::kPoolRows)});
  });
}

/// fn(l, group, ratio) for each group of blocks.
template <class Fn>
void for_blocks(Meta& meta, Fn fn) {
  for_latents(meta, [&](const LatentMeta& l) {
    for (const V4Group g : kV4Groups)
      if (const V4Layer* layer = V4::layer_of(l.m.limits.model, g)) fn(l, g, layer->ratio);
  });
}

/// body(tap, l), and body(tap, l, group, ratio), for each of them.
template <class Body>
constexpr MakeFault on_latents(Body) {
  return on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
    for_latents(meta, [&](const LatentMeta& l) { Body{}(tap, l); });
  });
}
template <class Body>
constexpr MakeFault on_blocks(Body) {
  return on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
    for_blocks(meta, [&](const LatentMeta& l, V4Group group, int32_t ratio) {
      Body{}(tap, l, group, ratio);
    });
  });
}

/// The slot of a token's block by its table of pages, in the pool of paged blocks.
int32_t block_slot(const LatentMeta& l, size_t token, int32_t block, int32_t ratio) {
  const int32_t size = l.m.limits.model.page_size, a_page = size / ratio;
  const std::span<int32_t> pages = l.row(V4::kPageTable, token);
  return pages[static_cast<size_t>(block / a_page)] * a_page + block % a_page;
}

/// A sink that stands twice is larger by ln 2.
Progress twice_body(LaunchFrame& f) {
  SparseAttention call = call_of<SparseAttention>(f.launch).call;
  std::vector<float> sinks(call.sinks.begin(), call.sinks.end());
  for (float& sink : sinks) sink += std::log(2.0F);
  call.sinks = sinks;
  if (!sparse_attention(call).ok()) return kSparseAttention.body(f);
  return Progress::kDone;
}
void twice_footprint(const LaunchFrame& f, Footprint* spans) {
  kSparseAttention.footprint(f, spans);
}
constinit const Kernel kTwice{
    .name = "sparse_attention", .body = twice_body, .footprint = twice_footprint};

/// A warmup leaves its expanded metadata where the raw one was: the capture after it records no
/// launch that expands. The graph lacks the launch; only the step that is recorded was to run it.
struct ExpandedAtWarmupAlone final : Tap {
  void launches(Launches& all, const Meta& /*meta*/, bool capturing) override {
    const auto expands = [](const TappedLaunch& one) { return one.launch.kernel == &kExpandV4; };
    if (capturing && std::erase_if(all, expands) > 0) act();
  }
};

constexpr Fault kLatentsFaults[] = {
    {"DV1", "BLOCKS", "A block ends where the ratio divides the position and not the length",
     "fi.I-105", "", on_blocks([](Tap& tap, const LatentMeta& l, V4Group g, int32_t ratio) {
       const std::span<int64_t> out = l.of<int64_t>(V4::of(g, V4::kOutLoc));
       for (size_t t = 0; t < out.size(); ++t) {
         if (!l.is_real(t)) continue;
         const int32_t position = l.lens[t] - 1;
         const int64_t slot = position % ratio == 0 ? block_slot(l, t, position / ratio, ratio) : 0;
         if (std::exchange(out[t], slot) != slot) tap.act();
       }
     })},
    // A token that sees no block reads slot 0 for the one that its length of 1 has.
    {"DV2", "BLOCKS", "A token that sees no block reads slot 0, not -1", "fi.I-105", "",
     on_blocks([](Tap& tap, const LatentMeta& l, V4Group g, int32_t /*ratio*/) {
       const std::span<int32_t> whole = l.of(V4::of(g, V4::kLensRaw));
       if (!l.m.has(V4::of(g, V4::kBlocks))) return;
       for (size_t t = 0; t < whole.size(); ++t) {
         if (whole[t] > 0) continue;
         l.row(V4::of(g, V4::kBlocks), t)[0] = 0;
         tap.act();
       }
     })},
    // It reads its first block, which is not whole yet: the clamped length is taken for the blocks.
    {"DV3", "BLOCKS", "The length that is clamped to 1 is taken for the number of whole blocks",
     "fi.I-105", "", on_blocks([](Tap& tap, const LatentMeta& l, V4Group g, int32_t ratio) {
       const std::span<int32_t> whole = l.of(V4::of(g, V4::kLensRaw));
       if (!l.m.has(V4::of(g, V4::kBlocks))) return;
       for (size_t t = 0; t < whole.size(); ++t) {
         if (whole[t] > 0 || !l.is_real(t)) continue;
         l.row(V4::of(g, V4::kBlocks), t)[0] = block_slot(l, t, 0, ratio);
         tap.act();
       }
     })},
    // A window of W tokens is W - 1 before the token and none of itself: the oldest is missing.
    {"DV4", "WINOFF", "A window of tokens lacks its oldest", "fi.I-104", "",
     on_latents([](Tap& tap, const LatentMeta& l) {
       const std::span<int32_t> seen = l.of(V4::kWindowLens);
       for (size_t t = 0; t < seen.size(); ++t) {
         if (!l.is_real(t) || seen[t] < 2 || seen[t] == l.lens[t]) continue;
         --seen[t];
         tap.act();
       }
     })},
    // The window begins with its oldest token where the row's end is cut off.
    {"DV5", "BLOCKS", "A window is listed oldest first", "fi.I-104", "",
     on_latents([](Tap& tap, const LatentMeta& l) {
       const std::span<int32_t> seen = l.of(V4::kWindowLens);
       for (size_t t = 0; t < seen.size(); ++t) {
         if (!l.is_real(t) || seen[t] < 2) continue;
         const std::span<int32_t> window = l.row(V4::kWindow, t);
         std::ranges::reverse(window.first(static_cast<size_t>(seen[t])));
         tap.act();
       }
     })},
    // The compressor's state is found by the row of the batch before.
    {"DV6", "BLOCKS", "The compressor's state of a request is the one's before it", "fi.I-105", "",
     on_blocks([](Tap& tap, const LatentMeta& l, V4Group g, int32_t /*ratio*/) {
       const std::span<int32_t> pages = l.of(V4::of(g, V4::kStatePages));
       for (size_t t = pages.size(); t-- > 1;) {
         if (!l.is_real(t) || l.rows[t] == l.rows[t - 1]) continue;
         pages[t] = pages[t - 1];
         tap.act();
       }
     })},
    // Blocks of a page are counted as if it held one.
    {"DV7", "BLOCKS", "Slots of blocks are counted as if a page held one", "fi.I-105", "",
     on_blocks([](Tap& tap, const LatentMeta& l, V4Group g, int32_t ratio) {
       const std::span<int32_t> whole = l.of(V4::of(g, V4::kLensRaw));
       if (!l.m.has(V4::of(g, V4::kBlocks)) || l.m.limits.model.page_size == ratio) return;
       for (size_t t = 0; t < whole.size(); ++t) {
         if (whole[t] == 0 || !l.is_real(t)) continue;
         const std::span<int32_t> blocks = l.row(V4::of(g, V4::kBlocks), t);
         for (int32_t j = 0; j < whole[t]; ++j)
           blocks[static_cast<size_t>(j)] = block_slot(l, t, 0, l.m.limits.model.page_size) + j;
         tap.act();
       }
     })},
    // The sink is added to the denominator by both halves of a kernel that splits.
    {"DV8", "BLOCKS", "The sink is counted by the window's part and by the blocks'", "fi.I-105", "",
     on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (one.launch.kernel != &kSparseAttention) continue;
         if (call_of<SparseAttention>(one.launch).call.sinks.empty()) continue;
         one.launch.kernel = &kTwice;
         tap.act();
       }
     })},
    // A kernel is given its extra list, and reads only the main one.
    {"DV9", "BLOCKS", "The extra list of a sparse kernel is not read", "fi.I-105", "",
     on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (one.launch.kernel != &kSparseAttention) continue;
         auto [call, rows] = call_of<SparseAttention>(one.launch);
         if (!call.extra.defined()) continue;
         call.extra = {};
         one.launch = sparse_launch(call, rows);
         tap.act();
       }
     })},
    // Rings hold a window, and no drafts besides.
    {"DV10", "BLOCKS", "Rings hold a window or a block, and no drafts", "fi.I-104 fi.I-105", "",
     on_limits([](Tap& tap, Limits& limits) {
       ModelConfig& m = limits.model;
       const bool v4 = std::ranges::any_of(
           m.layers, [](const LayerKind& kind) { return v4_of(kind) != nullptr; });
       if (!v4 || V4::drafts(m) == 1) return;
       m.num_draft_tokens = m.num_steps = 0;
       tap.act();
     })},
    {"DV11", "PADROW", "Padding stores where the first token does", "fi.I-75", "",
     on_latents([](Tap& tap, const LatentMeta& l) {
       const std::span<int64_t> out = l.of<int64_t>(V4::kWindowOutLoc);
       for (size_t t = 1; t < out.size(); ++t) {
         if (l.is_real(t) || !l.is_real(0) || out[0] == 0) continue;
         out[t] = out[0];
         tap.act();
       }
     })},
    {"DV12", "STALE", "A replay stores blocks where the last one did", "fi.I-76 fi.I-105", "",
     on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!is_replay(batch, meta)) return;
       for_blocks(meta, [&](const LatentMeta& l, V4Group g, int32_t /*ratio*/) {
         Arena arena = l.m.arena;
         arena.discard(l.m[V4::of(g, V4::kOutLoc)]);
         tap.act();
       });
     })},
    {"DV13", "CE", "All tokens of a request have its length", "fi.I-104", "",
     on_latents([](Tap& tap, const LatentMeta& l) {
       for (size_t t = l.tokens() - std::min<size_t>(1, l.tokens()); t-- > 0;) {
         if (!l.is_real(t) || l.rows[t] != l.rows[t + 1]) continue;
         l.lens[t] = l.lens[t + 1];
         tap.act();
       }
     })},
    {"DV15", "STALE",
     "A capture records no launch that expands raw metadata: the warmup left it expanded",
     "fi.I-76", "", make_tap<ExpandedAtWarmupAlone>},
    {"DV14", "BLOCKS", "A prefill of rings stores before it attends", "fi.I-104", "",
     on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       bool rings = false;  // one layer's launches beside each other, and not two halves'
       for_metas_of<DeepseekV4Hip>(meta, [&](const Meta&) { rings = true; });
       for (size_t i = 0; rings && i + 1 < all.size(); ++i) {
         if (all[i].launch.kernel != &kSparseAttention || all[i + 1].launch.kernel != &kPackLatents)
           continue;
         const auto pool = call_of<PackLatents>(all[i + 1].launch).call.pool.data.data;
         if (call_of<SparseAttention>(all[i].launch).call.keys.pool.data.data != pool) continue;
         std::swap(all[i], all[i + 1]);
         tap.act();
         ++i;
       }
     })},
};

}  // namespace

std::span<const Fault> themes::latents() { return kLatentsFaults; }

}  // namespace shadowgraph
