// Faults of results that are merged.

#include <bit>
#include <cmath>
#include <limits>

#include "attn/lse.h"
#include "faults/merging.h"
#include "faults/one_head.h"
#include "faults/substitutes.h"

namespace shadowgraph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool is_empty(const Merging::State& s) { return std::isinf(s.natural()); }

/// The clean merge; then where bad(states) holds, NaN.
template <class Bad>
void nan_where(const KernelLaunch& clean, SlippedRun& run, Bad bad) {
  run.launch(clean);
  if (run.noted()) return;
  const Merging m = Merging::of(clean);
  for_merged(m, [&](int64_t row, int64_t head, const std::vector<Merging::State>& states) {
    if (!bad(states)) return;
    m.set_out(row, head, NAN);
    m.set_lse(row, head, NAN);
  });
}

void two_empty_states(const KernelLaunch& clean, SlippedRun& run) {
  nan_where(clean, run, [](const auto& states) {
    bool both = false;
    for (size_t i = 0; i + 1 < states.size(); i += 2)
      both = both || (is_empty(states[i]) && is_empty(states[i + 1]));
    return both;
  });
}

void splits_without_keys(const KernelLaunch& clean, SlippedRun& run) {
  nan_where(clean, run, [](const auto& states) {
    return !states.empty() && std::ranges::all_of(states, is_empty);
  });
}

bool merges_splits(const KernelLaunch& launch) {
  return launch.kernel == &kMergeTiles || launch.kernel == &kTritonDecodeStage2 ||
         launch.kernel == &kMlaMerge;
}

void lse_of_one_split(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  if (run.noted()) return;
  const Merging m = Merging::of(clean);
  for_merged(m, [&](int64_t row, int64_t head, const std::vector<Merging::State>& states) {
    if (!states.empty()) m.set_lse(row, head, states.back().natural());
  });
}

/// fn(value) of every LSE that the launch has written at `lse`.
template <class Fn>
void for_written(const KernelLaunch& clean, const void* lse, Fn fn) {
  Footprint spans;
  clean.kernel->footprint(LaunchFrame{clean}, &spans);
  for (const AccessSpan& span : spans) {
    if (span.buffer != lse || span.access != Access::kWrite) continue;
    auto* values = static_cast<float*>(const_cast<void*>(span.buffer)) + span.first;
    for (int64_t i = 0; i < span.count; ++i) values[i] = fn(values[i]);
  }
}

/// Where attention writes its LSE: Triton's stages hand it on in a scratch of their own.
const void* lse_of_attention(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  const void* lse = nullptr;
  change_attention(&copy, [&](auto& c) {
    if constexpr (requires { c.attn_lse; }) {
      lse = c.attn_lse.tensor.data;
    } else if constexpr (requires { c.partial_lse; }) {
      lse = c.partial_lse.tensor.data;
    } else {
      lse = c.lse.tensor.data;
    }
    return false;
  });
  return lse;
}

void plus_infinity(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  if (run.noted()) return;
  for_written(clean, lse_of_attention(clean),
              [](float lse) { return lse == -kInfinity ? kInfinity : lse; });
}

void plus_infinity_wins(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  if (run.noted()) return;
  const Merging m = Merging::of(clean);
  for_merged(m, [&](int64_t row, int64_t head, const std::vector<Merging::State>& states) {
    if (std::ranges::none_of(states, [](const auto& s) { return s.raw() == kInfinity; })) return;
    m.set_out(row, head, 0);
    m.set_lse(row, head, kInfinity);
  });
}

void in_base_2(const KernelLaunch& clean, SlippedRun& run) {
  run.launch(clean);
  if (run.noted()) return;
  for_written(clean, lse_of_attention(clean),
              [](float lse) { return lse * static_cast<float>(kLog2E); });
}

/// Where the second part's LSE is; nullptr: the launch merges no two parts.
const void* second_lse(const KernelLaunch& launch) {
  if (launch.kernel == &kMergeState) return call_of<MergeStateCall>(launch).call.s_b.data;
  if (launch.kernel == &kMergePair) return call_of<MergePair>(launch).call.s_b.tensor.data;
  return nullptr;
}

/// Bases are data where plans cut keys.
bool flip_base(KernelLaunch* launch, const void* lse) {
  const auto flip = [&](auto& c) {
    if constexpr (requires { c.lse.base = LseBase::kLog2; }) {
      if (c.lse.tensor.data != lse) return false;
      c.lse.base = c.lse.base == LseBase::kLog2 ? LseBase::kNatural : LseBase::kLog2;
      return true;
    }
    return false;
  };
  return change_attention(launch, flip) || change_merge(launch, flip);
}

int64_t padded_head(int64_t head, int64_t group) {
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(group)));
  return head / padded * group + head % padded;
}

/// The launch's last argument is the group.
void merge_without_padding(const KernelLaunch& clean, SlippedRun& run) {
  const auto group = clean.args.get<int64_t>(clean.args.size() - 1);
  const int64_t heads = Merging::of(clean).out.shape[1];
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t from = padded_head(head, group);
    KernelLaunch launch = clean;
    const auto tiles = [&](MergeTiles& c) {
      c.v = one_head(c.v, from), c.s = one_head(c.s, from);
      c.out = one_head(c.out, head), c.lse = one_head(c.lse, head);
      return true;
    };
    const auto decode = [&](TritonDecode& c) {
      c.attn_logits = one_head(c.attn_logits, from), c.attn_lse = one_head(c.attn_lse, from);
      c.out = one_head(c.out, head), c.lse = one_head(c.lse, head);
      c.params = one_head(c.params, head);
      return true;
    };
    change_merge(&launch, Overloaded{[](auto&) { return false; }, tiles, decode});
    run.launch(launch);
  }
}

/// Query heads that read one KV head, of a launch of attention; 0: it is none.
int64_t group_of(const KernelLaunch& launch) {
  KernelLaunch copy = launch;
  int64_t group = 0;
  change_attention(&copy, [&](auto& c) {
    if (c.params.num_kv_heads > 1) group = c.params.num_qo_heads / c.params.num_kv_heads;
    return false;
  });
  return group;
}

constexpr Fault kMergesFaults[] = {
    // A prefill in two parts is planned without the window: the prefix's list is the whole prefix,
    // and no mask says which query has left what behind. Its run is given the window, and counts it
    // from the end of the prefix.
    {"K36", "MISSPARAM", "A prefill in two parts forgets the window of the prefix",
     "sglang#26513 fi.I-34 fi.I-40 fi.I-41", "window.prefix window.ignored",
     on_limits([](Tap& tap, Limits& limits) {
       const ForwardMode m = limits.mode;
       const bool two_parts = limits.model.ragged_prefill && is_extend_or_draft_extend_or_mixed(m);
       for (LayerKind& kind : limits.model.layers) {
         int32_t& window = kind.params.window_left;
         if (!two_parts || kind.cross || window < 0 || window >= limits.max_kv_len) continue;
         window = limits.max_kv_len;  // the layer keeps its wrapper, and sees all
         tap.act();
       }
     })},
    // States are merged two by two, and two empty ones give NaN.
    {"K39", "LSE", "Merging two empty states gives NaN", "vllm#28181 vllm#27491 fi.I-46",
     "merge.empty", stand_in<two_empty_states, is_merge>()},
    // The second of two parts has its LSE in the other base than the one that its merge takes it
    // for.
    {"K40", "LSE", "An LSE in base 2 is merged as a natural one", "sglang#35045 sglang#40903",
     "merge.base", on_launches([](Tap& tap, Launches& all, const Meta&) {
       std::vector<const void*> seconds;
       for (const TappedLaunch& one : all) {
         if (const void* lse = second_lse(one.launch)) seconds.push_back(lse);
       }
       const auto is_second = [&](const void* lse) {
         return lse != nullptr && std::ranges::find(seconds, lse) != seconds.end();
       };
       for (TappedLaunch& one : all) {
         for (const void* lse : seconds) {
           if (!flip_base(&one.launch, lse)) continue;
           tap.act();
           break;
         }
       }
       tap.act(substitute<in_base_2>(all, [&](const KernelLaunch& launch) {
         return launch.kernel == &kRaggedAttention && is_second(lse_of_attention(launch));
       }));
       tap.act(substitute<in_base_2>(all, [&](const KernelLaunch& launch) {
         return launch.kernel == &kPagedAttention && is_second(lse_of_attention(launch));
       }));
     })},
    // A merge leaves its LSE unwritten.
    {"K41", "LSE", "The LSE of a merge is never written", "flashinfer@6cbaf6e2 flashinfer@5dadb243",
     "lse.unwritten", on_launches([](Tap& tap, Launches& all, const Meta&) {
       tap.act(std::ranges::count_if(all, [](TappedLaunch& one) {
         return change_merge(&one.launch, [](auto& c) {
           const bool had = c.lse.tensor.defined();
           c.lse = {};
           return had;
         });
       }));
     })},
    // Splits none of which has a key give NaN.
    {"K42", "LSE", "Splits without keys are combined to NaN", "flash-attention@26d7d92f",
     "merge.empty", stand_in<splits_without_keys, merges_splits>()},
    // A row without keys has LSE +inf, and what merges it is made for -inf: it gets all the weight.
    {"K43", "LSE", "Empty rows have LSE +inf where a merge expects -inf", "vllm#15492 fa.I-78",
     "lse.infinite", on_launches([](Tap& tap, Launches& all, const Meta&) {
       tap.act(substitute<plus_infinity>(all, is_attention));
       tap.act(substitute<plus_infinity_wins>(all, is_merge));
     })},
    // Attention pads groups of heads to a power of two, and what merges its splits does not know.
    {"K57", "GQA", "What merges splits does not know of padded groups", "llama.cpp#19115",
     "row.of_head", on_launches([](Tap& tap, Launches& all, const Meta&) {
       int64_t group = 0;
       for (TappedLaunch& one : all) {
         if (is_attention(one.launch)) group = group_of(one.launch);
         if (!merges_splits(one.launch) || group == 0 ||
             std::has_single_bit(static_cast<uint64_t>(group)))
           continue;
         one.launch.args.scalar(group);
         substitute<merge_without_padding>(&one.launch);
         tap.act();
       }
     })},
    // The LSE of splits that are merged is the last one's.
    {"K60", "SPLIT", "The LSE of splits is one split's", "flashinfer#58", "merge.lse_of_part",
     stand_in<lse_of_one_split, merges_splits>()},
};

}  // namespace

std::span<const Fault> themes::merges() { return kMergesFaults; }

}  // namespace shadowgraph
