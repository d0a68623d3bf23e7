#include "check/traces/trace_settings.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/law_counts.h"
#include "shadowgraph/engine/engine.h"

namespace shadowgraph {
namespace {

/// A number of `config`, in whichever member it is kept.
struct Setting {
  std::string_view key;
  int32_t low;
  int32_t TraceConfig::*number = nullptr;
  std::optional<int32_t> TraceConfig::*optional = nullptr;

  int32_t get(const TraceConfig& config) const {
    return number != nullptr ? config.*number : (config.*optional).value_or(low);
  }
  void set(int32_t value, TraceConfig* config) const {
    if (number != nullptr)
      config->*number = value;
    else
      config->*optional = value;
  }
};
constexpr Setting kSettings[] = {
    {"page_size", 1, &TraceConfig::page_size},
    {"pool_pages", 1, nullptr, &TraceConfig::pool_pages},
    {"max_context_len", 1, &TraceConfig::max_context_len},
    {"topk", 1, &TraceConfig::topk},
    {"num_steps", 0, &TraceConfig::num_steps},
    {"num_draft_tokens", 0, &TraceConfig::num_draft_tokens},
    {"step_id", 0, &TraceConfig::step_id},
    {"window", -1, nullptr, &TraceConfig::window},
    {"chunk", 1, nullptr, &TraceConfig::chunk},
    {"prefix_chunk_tokens", 0, &TraceConfig::prefix_chunk_tokens},
    {"num_heads", 1, nullptr, &TraceConfig::num_heads},
    {"num_kv_heads", 1, nullptr, &TraceConfig::num_kv_heads},
    {"max_kv_splits", 1, nullptr, &TraceConfig::max_kv_splits},
    {"device_core_count", 1, nullptr, &TraceConfig::device_core_count},
};

/// Other configurations, which differ in the key alone: the least number, those beside it, and a
/// larger one; every word.
std::vector<TraceConfig> others(const TraceConfig& config, const std::string& key) {
  std::vector<TraceConfig> all;
  const auto add = [&](const auto& change) { change(&all.emplace_back(config)); };
  if (const auto* const s = std::ranges::find(kSettings, key, &Setting::key);
      s != std::end(kSettings)) {
    const int32_t now = s->get(config);
    for (const int32_t value : {s->low, s->low + 1, now - 1, now + 1, 2 * now + 7}) {
      if (value >= s->low && value != now) add([&](TraceConfig* c) { s->set(value, c); });
    }
  } else if (key == "engine") {
    for (const Engine& engine : kEngines) add([&](TraceConfig* c) { c->engine = engine.name; });
  } else if (key == "seq_lens_semantics") {
    for (const char* kind : {"full", "prefix_only"})
      add([&](TraceConfig* c) { c->seq_lens_semantics = kind; });
  } else {
    for (const int32_t value : {0, 1, 7}) add([&](TraceConfig* c) { c->conventions[key] = value; });
    add([&](TraceConfig* c) { c->conventions.erase(key); });
  }
  return all;
}

bool is_same(const TraceVerdict& a, const TraceVerdict& b) {
  const auto words = [](const std::vector<LeftOut>& parts) {
    std::string all;
    for (const LeftOut& part : parts) all += part.to_string() + '\n';
    return all;
  };
  return a.kind == b.kind && a.why == b.why && a.findings.to_string() == b.findings.to_string() &&
         words(a.left_out) == words(b.left_out) && words(a.unread) == words(b.unread);
}

}  // namespace

std::vector<std::string> unread_settings(const TraceLine& line, const TraceVerdict& verdict,
                                         const TraceJudge& judge) {
  LawCounts not_counted;
  const CountsJudgements counts(&not_counted);
  std::vector<std::string> unread;
  TraceLine trial = line;
  for (const std::string& key : line.config.said) {
    const bool is_read =
        std::ranges::any_of(others(line.config, key), [&](const TraceConfig& config) {
          trial.config = config;
          return !is_same(judge(trial), verdict);
        });
    if (!is_read) unread.push_back(key);
  }
  return unread;
}

}  // namespace shadowgraph
