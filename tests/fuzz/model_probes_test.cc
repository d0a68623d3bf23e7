// Slips of models whose layers differ and of sizes around a constant, planted from outside:
// histories as they are drawn find each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "faults/buffers.h"
#include "faults/launches.h"
#include "fuzz/planted_histories.h"

namespace shadowgraph::model_probes_test {
namespace {

/// Changes each attention launch of a step but its first one, given that one's call; of launches
/// that a change concerns, where it says that.
template <class Change>
struct AsTheFirst : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    std::optional<AttentionParams> first;
    float first_k_scale = 1;
    for (TappedLaunch& one : all) {
      const auto change = [&](auto& c) {
        if constexpr (requires { Change::concerns(c.params); })
          if (!Change::concerns(c.params)) return false;
        float k_scale = 1;
        if constexpr (requires { c.cache; }) k_scale = c.cache.k_scale;
        if (!first) first = c.params, first_k_scale = k_scale;
        bool changed = Change{}(*first, &c.params);
        if constexpr (requires { c.cache; }) {
          const bool defined = c.cache.k.data != nullptr && Change::kScales;
          if (defined) changed |= std::exchange(c.cache.k_scale, first_k_scale) != first_k_scale;
        }
        return changed;
      };
      act(change_attention(&one.launch, change));
    }
  }
};

struct Scale {
  static constexpr bool kScales = false;
  bool operator()(const AttentionParams& first, AttentionParams* p) const {
    return std::exchange(p->sm_scale, first.sm_scale) != first.sm_scale;
  }
};
struct Cap {
  static constexpr bool kScales = false;
  bool operator()(const AttentionParams& first, AttentionParams* p) const {
    return std::exchange(p->logits_soft_cap, first.logits_soft_cap) != first.logits_soft_cap;
  }
};
struct Window {
  static constexpr bool kScales = false;
  static bool concerns(const AttentionParams& p) { return p.window_left >= 0; }
  bool operator()(const AttentionParams& first, AttentionParams* p) const {
    return std::exchange(p->window_left, first.window_left) != first.window_left;
  }
};
struct Sinks {
  static constexpr bool kScales = false;
  bool operator()(const AttentionParams& first, AttentionParams* p) const {
    const bool other = !p->sinks.empty() && p->sinks.size() <= first.sinks.size() &&
                       p->sinks.data() != first.sinks.data();
    if (other) p->sinks = first.sinks.first(p->sinks.size());
    return other;
  }
};
struct NoSinks {
  static constexpr bool kScales = false;
  bool operator()(const AttentionParams& /*first*/, AttentionParams* p) const {
    return !std::exchange(p->sinks, {}).empty();
  }
};
struct CacheScale {
  static constexpr bool kScales = true;
  bool operator()(const AttentionParams&, AttentionParams*) const { return false; }
};

/// A head of a group reads the query of the first one, in groups of more than 8.
struct WideGroup : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (TappedLaunch& one : all)
      act(change_attention(&one.launch, [](auto& c) {
        if (c.params.num_qo_heads <= 8 * c.params.num_kv_heads) return false;
        return std::exchange(c.q.stride[1], 0) != 0;
      }));
  }
};

/// Columns of a table from this one on name its first page.
template <int64_t kColumns>
struct ShortTable : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    for_buffers(meta, {"page_table"}, [&](Meta& m, const Buffer& b) {
      if (b.shape.size() != 2 || b.shape[1] <= kColumns) return;
      for (int64_t i = 0; i < std::min(batch.size(), b.shape[0]); ++i) {
        const int64_t unit = m.limits.model.page_size;
        const int64_t columns = std::min(b.shape[1], (batch.extent(i).kv_len + unit - 1) / unit);
        if (columns <= kColumns) continue;
        const auto row = staged<int32_t>(m, b, {i * b.shape[1], columns});
        for (int64_t c = kColumns; c < columns; ++c) row[static_cast<size_t>(c)] = row[0];
        act();
      }
    });
    return {};
  }
};

/// Rows beyond the largest graph have the length of the first.
struct BeyondTheBuckets : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override {
    for_buffers(meta, {"cache_seqlens", "kv_lens"}, [&](Meta& m, const Buffer& b) {
      if (m.limits.is_bucket() || batch.size() <= 4 || b.numel() < batch.size()) return;
      const auto lens = staged<int32_t>(m, b);
      for (size_t i = 4; i < static_cast<size_t>(batch.size()); ++i)
        act(std::exchange(lens[i], lens[0]) != lens[0]);
    });
    return {};
  }
};

struct Probe {
  const char* name;
  const char* backend;
  MakeTap tap;
  const char* law;  // that the first failing history breaks, or how its name begins
};

const Probe kProbes[] = {
    {"the first layer's scale for all", "flashattention", tap_of<AsTheFirst<Scale>>(), "plan.key"},
    {"the first layer's scale for all", "flashinfer", tap_of<AsTheFirst<Scale>>(), "plan.key"},
    {"the first layer's cap for all", "triton", tap_of<AsTheFirst<Cap>>(), "plan.key"},
    {"the first layer's cap for all", "flashmla", tap_of<AsTheFirst<Cap>>(), "plan.key"},
    {"the first window for all windows", "trtllm_mha", tap_of<AsTheFirst<Window>>(), "plan.key"},
    {"the first layer's sinks for all", "flashinfer", tap_of<AsTheFirst<Sinks>>(), "plan.key"},
    {"no sinks", "triton", tap_of<AsTheFirst<NoSinks>>(), ""},
    {"no sinks", "flashattention", tap_of<AsTheFirst<NoSinks>>(), "plan.key"},
    {"the first layer's cache scale for all", "aiter", tap_of<AsTheFirst<CacheScale>>(),
     "plan.key"},
    {"a group of more than 8", "flashattention", tap_of<WideGroup>(), "num."},
    {"a group of more than 8", "flashinfer_mla", tap_of<WideGroup>(), "num."},
    {"a table of 64 columns", "flashattention", tap_of<ShortTable<64>>(), "table.slot"},
    {"a table of 128 columns", "ascend", tap_of<ShortTable<128>>(), "table.slot"},
    {"a table of 256 columns", "flashattention", tap_of<ShortTable<256>>(), "table.slot"},
    {"rows beyond the buckets", "flashattention", tap_of<BeyondTheBuckets>(), "len.kv_extent"},
};

std::set<std::string> laws_of(const FuzzResult& r) {
  return {r.first->laws.begin(), r.first->laws.end()};
}

TEST(ModelProbes, EachIsFoundOnItsBackend) {
  for (const Probe& probe : kProbes) {
    const FuzzResult r = planted_histories(probe.tap, {find_backend(probe.backend)}, 1500);
    ASSERT_TRUE(r.first) << probe.name << " on " << probe.backend;
    // With one key an output is its V whatever the query: then the LSE alone tells it.
    EXPECT_TRUE(std::ranges::any_of(
        laws_of(r), [&](const std::string& law) { return law.starts_with(probe.law); }))
        << probe.name << ": " << r.findings.to_string();
    RecordProperty(std::string(probe.backend) + " " + probe.name, std::to_string(r.first->cases));
  }
}

TEST(ModelProbes, EachIsFoundAmongAllBackends) {
  for (const Probe& probe : kProbes) {
    const FuzzResult r =
        planted_histories(probe.tap, {all_backends().begin(), all_backends().end()}, 4000);
    EXPECT_TRUE(r.first) << probe.name << " on " << probe.backend;
    if (r.first) RecordProperty(probe.name, std::to_string(r.first->cases) + " histories");
  }
}

}  // namespace
}  // namespace shadowgraph::model_probes_test
