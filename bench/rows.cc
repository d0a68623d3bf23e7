#include "bench/rows.h"

#include <algorithm>
#include <cmath>

namespace shadowgraph::bench {
namespace {

// The words of rows.inc.
constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16;
constexpr Probe kStreamRead = Probe::kStreamRead, kPageGather = Probe::kPageGather,
                kFmaPeak = Probe::kFmaPeak, kBf16Peak = Probe::kBf16Peak;
constexpr Recurrent kMamba2 = Recurrent::kMamba2, kGdn = Recurrent::kGdn, kKda = Recurrent::kKda,
                    kLightning = Recurrent::kLightning;
constexpr int32_t kRaggedLens[] = {17, 64, 300, 1024, 4096, 16384};

Of over(Probe probe, double goal) {
  return {.measure = Measure::kProbe, .goal = goal, .probe = probe};
}
Of peer(std::string_view name, double goal, double floor) {
  return {.measure = Measure::kPeer, .goal = goal, .peer = name, .peer_floor = floor};
}
Of speed_over(const Shape& base, double goal) {
  return {.measure = Measure::kSpeed, .goal = goal, .bases = {{base, 1}}};
}
Of rate_over(const Shape& base, double goal) {
  return {.measure = Measure::kRate, .goal = goal, .bases = {{base, 1}}};
}
Of per_second(double goal) { return {.measure = Measure::kItems, .goal = goal}; }
Of microseconds(double goal) { return {.measure = Measure::kMicros, .goal = goal}; }
Of time_over(std::vector<Base> bases, double goal) {
  return {.measure = Measure::kTime, .goal = goal, .bases = std::move(bases)};
}

/// For each length a batch of that length alone with about the same KV bytes as the ragged batch.
/// Its time counts for the one request of it that the ragged batch has.
std::vector<Base> each_uniform(DType t, std::span<const int32_t> kv_lens) {
  int64_t total = 0;
  for (int32_t len : kv_lens) total += len;
  std::vector<Base> bases;
  for (int32_t len : kv_lens) {
    const auto batch = static_cast<int32_t>(std::max<int64_t>(1, (total + len / 2) / len));
    bases.push_back({decode(t, batch, len), 1.0 / batch});
  }
  return bases;
}

std::vector<Series> make_series() {
  std::vector<Series> all = {
      {.name = "f32", .panel = "decode, 8 requests"},
      {.name = "f16", .panel = "decode, 8 requests"},
      {.name = "bf16", .panel = "decode, 8 requests"},
      {.name = "f32", .panel = "prefill, causal"},
      {.name = "bf16 dot", .panel = "prefill, causal"},
      {.name = "f32, OpenBLAS", .panel = "prefill, causal", .peer = "openblas"}};
  const DType decoded[] = {kF32, kF16, kBF16};
  for (int32_t n = 128; n <= 16384; n *= 2) {
    for (size_t i = 0; i < 3; ++i) all[i].shapes.push_back(decode(decoded[i], 8, n));
  }
  for (int32_t n = 128; n <= 4096; n *= 2) {
    all[3].shapes.push_back(prefill(kF32, n));
    all[4].shapes.push_back(prefill(kBF16, n).fast());
    all[5].shapes.push_back(prefill(kF32, n));
  }
  return all;
}

}  // namespace

std::string Row::of_name() const {
  if (of.measure == Measure::kItems) return "second";
  if (of.measure == Measure::kMicros) return "microseconds";
  if (of.measure == Measure::kProbe) return std::string(name_of(of.probe));
  if (of.measure == Measure::kPeer) return "peer:" + std::string(of.peer);
  return "self";
}

const std::vector<Row>& rows() {
  static const std::vector<Row> list = {
#define SG_ROW(id, shape, of, text) Row{#id, shape, of, text},
#include "bench/rows.inc"
#undef SG_ROW
  };
  return list;
}

const std::vector<Series>& series() {
  static const std::vector<Series> list = make_series();
  return list;
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++resume;  // the star takes one more
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<const Row*> select_rows(const std::vector<std::string>& patterns,
                                    std::string* unknown) {
  const auto names = [](std::string_view pattern, const Row& row) {
    return pattern == "all" || matches(pattern, row.id);
  };
  for (const std::string& pattern : patterns) {
    const bool known = std::any_of(rows().begin(), rows().end(),
                                   [&](const Row& row) { return names(pattern, row); });
    if (!known) {
      *unknown = pattern;
      return {};
    }
  }
  std::vector<const Row*> selected;
  for (const Row& row : rows()) {
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return names(pattern, row); })) {
      selected.push_back(&row);
    }
  }
  return selected;
}

std::optional<double> ratio_of(const Row& row, const ProbeFigures& probes,
                               const std::vector<double>& seconds) {
  const Of& of = row.of;
  const double flop = flop_of(row.shape), bytes = kv_bytes_of(row.shape);
  switch (of.measure) {
    case Measure::kProbe: {
      const std::optional<double> figure = limit_of(of.probe, probes);
      if (!figure) return {};
      return (counts_bytes(of.probe) ? bytes : flop) / seconds[0] / *figure;
    }
    case Measure::kPeer: return seconds[1] / seconds[0];
    case Measure::kSpeed: return flop / seconds[0] / (flop_of(of.bases[0].shape) / seconds[1]);
    case Measure::kRate: return bytes / seconds[0] / (kv_bytes_of(of.bases[0].shape) / seconds[1]);
    case Measure::kTime: {
      double sum = 0;
      for (size_t i = 0; i < of.bases.size(); ++i) sum += of.bases[i].weight * seconds[i + 1];
      return seconds[0] / sum;
    }
    case Measure::kItems: return 1 / seconds[0];
    case Measure::kMicros: return seconds[0] * 1e6;
  }
  return {};
}

bool is_reached(const Row& row, double ratio) {
  if (row.of.goal == 0) return false;
  return row.at_most() ? ratio <= row.of.goal : ratio >= row.of.goal;
}

}  // namespace shadowgraph::bench
