// Mistakes about the numbers that a launch is given, and about its results.
#include <numbers>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

/// Adds the reading that differs only in its LSE.
void add_lse(const Reading& right, Reading::Lse lse, const AddReading& add,
             std::string detail = {}) {
  add(changed(right, [&](Reading& r) { r.lse = lse, r.detail = std::move(detail); }));
}

}  // namespace

void scale_without_log2e(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.logit_factor = std::numbers::ln2; }));
}

void scale_with_log2e(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.logit_factor = std::numbers::log2e; }));
}

void no_softmax_scale(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.sm_scale != 1) add(changed(right, [](Reading& r) { r.params.sm_scale = 1; }));
}

void no_soft_cap(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.logits_soft_cap > 0)
    add(changed(right, [](Reading& r) { r.params.logits_soft_cap = 0; }));
}

void no_kv_scales(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const bool k = right.k_scale != 1, v = right.v_scale != 1;
  if (!k && !v) return;
  add(changed(right, [](Reading& r) { r.k_scale = r.v_scale = 1, r.detail = "both"; }));
  if (k && v) add(changed(right, [](Reading& r) { r.k_scale = 1, r.detail = "K's"; }));
  if (k && v) add(changed(right, [](Reading& r) { r.v_scale = 1, r.detail = "V's"; }));
  for (size_t cut = 1; cut < right.keys.size(); ++cut) {
    add(changed(right, [&](Reading& r) {
      r.merge = Reading::Merge::kWeighted, r.cut = static_cast<int32_t>(cut);
      r.first_unscaled = true;
      r.detail = "before place " + std::to_string(cut);
    }));
  }
}

void no_sinks(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.sinks.empty()) add(changed(right, [](Reading& r) { r.params.sinks = {}; }));
}

void other_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const AttentionParams& p = right.params;
  if (p.num_kv_heads == 1 || p.num_kv_heads == p.num_qo_heads) return;
  add(changed(right, [](Reading& r) {
    r.heads = Reading::Heads::kInterleaved, r.detail = "head modulo the number of KV heads";
  }));
  add(changed(right, [](Reading& r) {
    r.heads = Reading::Heads::kByKvHeads, r.detail = "head divided by the number of KV heads";
  }));
}

void lse_of_other_base(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add_lse(right, Reading::Lse::kLog2, add, "2 where e is meant");
  add_lse(right, Reading::Lse::kNaturalTwice, add, "e where 2 is meant");
}

void lse_with_sink(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.sinks.empty()) add_lse(right, Reading::Lse::kSink, add);
}

void infinite_lse(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add_lse(right, Reading::Lse::kInfinite, add);
  add(changed(right, [](Reading& r) {
    r.lse = Reading::Lse::kInfinite, r.result = Reading::Result::kNoKeys, r.some_rows = true;
  }));
}

void unwritten_lse(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add_lse(right, Reading::Lse::kUnwritten, add);
}

}  // namespace shadowgraph
