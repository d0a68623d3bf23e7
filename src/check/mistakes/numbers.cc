// Mistakes about the numbers that a launch is given, and about its results.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "check/mistakes/readings.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph {
namespace {

/// Adds the reading that differs only in its LSE.
void add_lse(const Reading& right, Reading::Lse lse, const AddReading& add,
             std::string detail = {}) {
  add(changed(right, [&](Reading& r) { r.lse = lse, r.detail = std::move(detail); }));
}

constexpr double kMostNoKeys = 1e6;

std::string short_text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", x);
  return buffer;
}

/// The factor within 2^-10 .. 2^10 at which the distance is least.
template <class Distance>
double nearest_factor(const Distance& distance) {
  constexpr double kStep = 0.125, kEnd = 10, kGolden = 0.6180339887498949;
  double best = 0, least = std::numeric_limits<double>::infinity();  // log2
  for (double f = -kEnd; f <= kEnd; f += kStep) {
    const double d = distance(std::exp2(f));
    if (d < least) least = d, best = f;
  }
  double low = best - kStep, high = best + kStep;
  for (int i = 0; i < 60; ++i) {
    const double width = kGolden * (high - low), a = high - width, b = low + width;
    const bool lower = distance(std::exp2(a)) < distance(std::exp2(b));
    (lower ? high : low) = lower ? b : a;
  }
  return std::exp2((low + high) / 2);
}

struct NamedNumber {
  double value;
  std::string name;  // "0.204 = 1 / sqrt(24)"
};

/// Numbers that somebody may have meant with x: one digit, the scale of a head's width, more
/// digits; at last x itself.
std::vector<NamedNumber> numbers_near(double x) {
  constexpr double kNear = 0.01, kWidest = 4096;
  std::vector<NamedNumber> numbers;
  const auto digits = [&](int count) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", count, x);
    numbers.push_back({std::atof(text), short_text(std::atof(text))});
  };
  digits(1);
  const double width = std::round(1 / (x * x));
  if (width >= 1 && width <= kWidest && std::abs(x * std::sqrt(width) - 1) < kNear)
    numbers.push_back({1 / std::sqrt(width), short_text(1 / std::sqrt(width)) + " = 1 / sqrt(" +
                                                 short_text(width) + ")"});
  digits(2), digits(3);
  numbers.push_back({x, short_text(x)});
  return numbers;
}

/// The factor between the right elements and those that were got; NaN if no element is known.
double output_factor(const RowSums& row, const Got& got) {
  const Estimate right = row.of(row.seen(0, row.length()));
  double product = 0, square = 0;
  for (size_t i = 0; i < kLooks; ++i) {
    if (std::isnan(got.out[i])) continue;
    product += got.out[i] * right.out[i], square += right.out[i] * right.out[i];
  }
  return product / square;
}

/// Logarithm of what the sum of weights has more than the keys and the sink; NaN: nothing.
double added_mass(const RowSums& row, const Got& got) {
  const Estimate right = row.of(row.seen(0, row.length()));
  const double counted = got.lse_of(right);
  if (!std::isnan(got.lse)) return got.lse + std::log1p(-std::exp(counted - got.lse));
  return right.lse_with_sink + std::log(1 / output_factor(row, got) - 1);
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
  const AttentionTerms& t = right.params.terms;
  const bool k = right.k_scale != 1 || !t.k_scales.empty();
  const bool v = right.v_scale != 1 || !t.v_scales.empty();
  if (!k && !v) return;
  const Reading unscaled = without_scales(right);
  const auto with = [&](bool k_scaled, bool v_scaled, const char* detail) {
    return changed(unscaled, [&](Reading& r) {
      if (k_scaled) r.k_scale = right.k_scale, r.params.terms.k_scales = t.k_scales;
      if (v_scaled) r.v_scale = right.v_scale, r.params.terms.v_scales = t.v_scales;
      r.detail = detail;
    });
  };
  add(with(false, false, "both"));
  if (k && v) add(with(false, true, "K's"));
  if (k && v) add(with(true, false, "V's"));
  const Reading merged = changed(
      right, [](Reading& r) { r.merge = Reading::Merge::kWeighted, r.first_unscaled = true; });
  const int64_t length = std::ssize(right.keys);
  add(Family{1, length,
             [&](const RowSums& row, int64_t cut) {
               const KeySum parts[] = {row.seen(0, cut, {.list = Stretch::List::kUnscaled}),
                                       row.seen(cut, length)};
               return row.merged(parts, merged);
             },
             [&](int64_t cut) {
               return changed(merged, [&](Reading& r) {
                 r.cut = static_cast<int32_t>(cut);
                 r.detail = "before place " + std::to_string(cut);
               });
             }});
}

void other_scale(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(Solve([&](const RowSums& row, const Got& got) {
    const double factor =
        nearest_factor([&](double f) { return got.distance(row.of(row.read_as(f))); });
    std::vector<Reading> readings;
    for (const NamedNumber& scale : numbers_near(right.params.sm_scale * factor)) {
      readings.push_back(changed(right, [&](Reading& r) {
        r.params.sm_scale = static_cast<float>(scale.value);
        r.detail = scale.name, r.of_call = true;
      }));
    }
    return readings;
  }));
}

void other_cap(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(Solve([&](const RowSums& row, const Got& got) {
    const double times = temperature_of(right, row.query());
    const double nearest = nearest_factor([&](double cap) {
      return got.distance(row.of(row.read_as([&](int32_t place, double logit) {
        return cap * std::tanh(row.uncapped(logit) / cap) + row.added(place);
      })));
    });
    std::vector<Reading> readings;
    for (const NamedNumber& cap : numbers_near(nearest / times)) {
      readings.push_back(changed(right, [&](Reading& r) {
        r.params.logits_soft_cap = static_cast<float>(cap.value);
        r.detail = cap.name, r.of_call = true;
      }));
    }
    return readings;
  }));
}

void scaled_terms(const Scene&, size_t, const Reading& right, const AddReading& add) {
  each_term(right, kAllLists, [&](const Reading& apart, const std::string& name) {
    const auto by_factor = [&](double factor, const std::string& said) {
      return changed(apart, [&](Reading& r) {
        r.other.factor = factor, r.of_call = true;
        r.detail = name + " by " + said;
      });
    };
    using std::numbers::ln2, std::numbers::log2e;
    const double scale = right.params.sm_scale;
    for (const double once : {1.0, double{right.params.sm_scale}}) {
      const char* also = once == 1 ? "" : " and sm_scale";
      add(by_factor(once * ln2, std::string("ln(2)") + also));
      add(by_factor(once * log2e, std::string("log2(e)") + also));
    }
    add(by_factor(scale, "sm_scale"));
    add(Solve([&](const RowSums& row, const Got& got) {
      std::vector<double> own, other;
      const Reading lacking = changed(apart, [](Reading& r) { r.other = {}; });
      for (int32_t k = 0; k < row.length(); ++k) {
        own.push_back(row.added(k, &lacking));
        other.push_back(row.added(k) - own.back());
      }
      const double factor = nearest_factor([&](double f) {
        return got.distance(row.of(row.read_as([&](int32_t place, double logit) {
          const auto k = static_cast<size_t>(place);
          return std::isnan(other[k]) ? -kInf : logit + own[k] + f * other[k];
        })));
      });
      std::vector<Reading> readings;
      for (const NamedNumber& times : numbers_near(factor))
        readings.push_back(by_factor(times.value, times.name));
      return readings;
    }));
  });
}

void other_temperature(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const int32_t length = right.params.terms.temperature_len;
  if (length == 0) return;
  const auto is = [&](const char* detail, std::function<double(int64_t)> temperature) {
    add(changed(right,
                [&](Reading& r) { r.temperature = std::move(temperature), r.detail = detail; }));
  };
  const auto of = [t = right.params.terms](int64_t position) {
    return temperature_at(t, position);
  };
  const int64_t keys = std::ssize(right.keys), prefix = keys - right.q_len;
  is("of the next position", [=](int64_t p) { return of(p + 1); });
  is("of the position before", [=](int64_t p) { return of(p - 1); });
  is("of the last position for all queries", [=](int64_t) { return of(keys - 1); });
  is("of the length for all queries", [=](int64_t) { return of(keys); });
  is("of the place among the new tokens", [=](int64_t p) { return of(p - prefix); });
  if (right.first_key > 0)
    is("without the left padding", [=, n = right.first_key](int64_t p) { return of(p - n); });
  is("of positions below temperature_len, too", [=](int64_t p) {
    return p < 1 ? 1 : std::log(static_cast<double>(p)) / std::log(static_cast<double>(length));
  });
  is("multiplied twice", [=](int64_t p) { return of(p) * of(p); });
  add(Solve([&](const RowSums& row, const Got& got) {
    const double factor = nearest_factor([&](double f) {
      return got.distance(row.of(
          row.read_as([&](int32_t place, double logit) { return f * logit + row.added(place); })));
    });
    const double right_one = of(row.position());
    std::vector<Reading> readings;
    for (const NamedNumber& near :
         numbers_near(std::exp(std::log(row.position()) / (right_one * factor)))) {
      const double whole = std::round(near.value);
      if (whole < 2 || whole > std::numeric_limits<int32_t>::max()) continue;
      readings.push_back(changed(right, [&](Reading& r) {
        r.params.terms.temperature_len = static_cast<int32_t>(whole);
        r.detail = "with the length " + std::to_string(r.params.terms.temperature_len);
        r.of_call = true;
      }));
    }
    return readings;
  }));
}

void other_output_scale(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(Solve([&](const RowSums& row, const Got& got) {
    const double factor = output_factor(row, got);
    std::vector<Reading> readings;
    if (!std::isnormal(factor)) return readings;
    for (const NamedNumber& times : numbers_near(factor)) {
      readings.push_back(changed(right, [&](Reading& r) {
        r.v_scale *= static_cast<float>(times.value);
        r.detail = "by " + times.name, r.of_call = true;
      }));
    }
    return readings;
  }));
}

void weighing_nothing(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(Solve([&](const RowSums& row, const Got& got) {
    const double mass = added_mass(row, got);  // logarithm
    std::vector<Reading> readings;
    if (!std::isfinite(mass)) return readings;
    const auto add_mass = [&](double log_mass, const std::string& detail) {
      readings.push_back(
          changed(right, [&](Reading& r) { r.no_keys_mass = log_mass, r.detail = detail; }));
    };
    // A logit that is masked before the cap becomes -cap; a key of zeros has the logit 0.
    std::vector<double> logits = {0};
    const double cap = right.params.logits_soft_cap;
    if (cap > 0) logits.insert(logits.begin(), -cap);
    for (const double logit : logits) {
      const double count = std::round(std::exp(mass - logit));
      if (count >= 1 && count < kMostNoKeys)
        add_mass(std::log(count) + logit,
                 short_text(count) + " of them, each with the logit " + short_text(logit));
    }
    add_mass(mass, "as much as exp(" + short_text(mass) + ")");
    return readings;
  }));
}

void no_sinks(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.params.sinks.empty()) add(changed(right, [](Reading& r) { r.params.sinks = {}; }));
}

void sinks_of_heads(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const int32_t heads = right.params.num_qo_heads, kv_heads = right.params.num_kv_heads;
  if (right.params.sinks.empty() || heads == 1) return;
  const auto add_of = [&](const char* detail, std::function<int32_t(int32_t)> sink_of) {
    add(changed(right, [&](Reading& r) { r.sink_of = std::move(sink_of), r.detail = detail; }));
  };
  add_of("the next head's", [=](int32_t h) { return (h + 1) % heads; });
  add_of("the head's before", [=](int32_t h) { return (h + heads - 1) % heads; });
  add_of("the first head's for all", [](int32_t) { return 0; });
  add_of("in the opposite order", [=](int32_t h) { return heads - 1 - h; });
  add_of("by KV heads", [=](int32_t h) { return h / (heads / kv_heads); });
  add_of("by groups", [=](int32_t h) { return h % (heads / kv_heads); });
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
