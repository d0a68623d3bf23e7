#include "bench/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/svg.h"

namespace shadowgraph::bench {
namespace {

// Colours that differ for every kind of eye (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                    "#cc79a7", "#e69f00", "#56b4e9"};
constexpr const char* kGrid = "stroke=\"#ddd\"";
constexpr const char* kAxis = "stroke=\"#444\"";
constexpr double kTop = 56;

void heading(Svg& svg, std::string_view title, std::string_view machine) {
  svg.text(12, 22, title, "font-size=\"16\" font-weight=\"bold\"");
  svg.text(12, 40, machine, "fill=\"#666\"");
}

bool is_share(const BenchRow& r) {
  return r.of != "self" && r.of != "second" && r.of != "microseconds" && !r.of.starts_with("peer:");
}

void bar(Svg& svg, const BenchRow& r, double left, double unit, double y) {
  constexpr double kHeight = 14;
  const bool counts = r.void_reason.empty() && r.quiet && r.ratio;
  svg.text(left - 8, y + 11, r.shape, "text-anchor=\"end\"");
  if (r.ratio) {
    const char* colour = !counts ? "#bbb" : !r.goal || r.reached ? kColours[0] : kColours[1];
    svg.rect(left, y, *r.ratio * unit, kHeight, fmt::format("fill=\"{}\"", colour));
    svg.line(left + *r.low * unit, y + kHeight / 2, left + *r.high * unit, y + kHeight / 2,
             "stroke=\"#000\" stroke-opacity=\"0.5\" stroke-width=\"2\"");
  }
  if (r.goal)
    svg.line(left + *r.goal * unit, y - 3, left + *r.goal * unit, y + kHeight + 3,
             "stroke=\"#000\" stroke-width=\"2\"");
  std::string label = r.ratio ? fmt::format("{:.2f} of {}", *r.ratio, r.of) : r.of;
  if (!r.void_reason.empty()) label += ": void";
  if (r.void_reason.empty() && !r.quiet) label += ": not quiet";
  const double end = std::max(r.ratio.value_or(0), 1.0);
  svg.text(left + end * unit + 8, y + 11, label, counts ? "" : "fill=\"#888\"");
}

/// Logarithmic axis from low to high over [at, at + length) pixels.
struct LogAxis {
  double low, high, at, length;

  double operator()(double value) const {
    return at + length * std::log(value / low) / std::log(high / low);
  }
};

/// Powers of 10 (time) that hold the values.
LogAxis decades(double low, double high, double at, double length) {
  return {std::pow(10, std::floor(std::log10(low))), std::pow(10, std::ceil(std::log10(high))), at,
          length};
}

struct Range {
  double low = HUGE_VAL, high = 0;
  void see(double value) {
    if (value <= 0) return;
    low = std::min(low, value), high = std::max(high, value);
  }
};

std::string length_label(int64_t length) {
  return length >= 1024 ? fmt::format("{}k", length / 1024) : std::to_string(length);
}

void draw_axes(Svg& svg, const LogAxis& x, const LogAxis& y) {
  const double right = x.at + x.length, bottom = y.at;
  for (double length = x.low; length <= x.high * 1.01; length *= 2) {
    svg.line(x(length), kTop, x(length), bottom, kGrid);
    svg.text(x(length), bottom + 18, length_label(std::llround(length)), "text-anchor=\"middle\"");
  }
  for (double ms = y.low; ms <= y.high * 1.01; ms *= 10) {
    svg.line(x.at, y(ms), right, y(ms), kGrid);
    svg.text(x.at - 8, y(ms) + 4, fmt::format("{:g}", ms), "text-anchor=\"end\"");
  }
  svg.line(x.at, kTop, x.at, bottom, kAxis);
  svg.line(x.at, bottom, right, bottom, kAxis);
  svg.text((x.at + right) / 2, bottom + 38, "length (tokens a request)", "text-anchor=\"middle\"");
  svg.text(16, (kTop + bottom) / 2, "time of a call (ms)",
           fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1f})\"",
                       (kTop + bottom) / 2));
}

void draw_curve(Svg& svg, const Curve& curve, const LogAxis& x, const LogAxis& y,
                std::string_view colour) {
  const std::string stroke = fmt::format("stroke=\"{}\"", colour);
  std::vector<std::pair<double, double>> times, limits;
  const auto draw_limits = [&] {
    if (!limits.empty()) svg.polyline(limits, stroke + " stroke-dasharray=\"4 4\"");
    limits.clear();
  };
  for (const SeriesPoint& p : curve.points) {
    times.emplace_back(x(p.length), y(p.ms));
    if (p.limit_ms > 0) {
      limits.emplace_back(x(p.length), y(p.limit_ms));
    } else {
      draw_limits();  // a gap
    }
  }
  draw_limits();
  svg.polyline(times, stroke + " stroke-width=\"2\"");
  for (size_t i = 0; i < times.size(); ++i) {
    const SeriesPoint& p = curve.points[i];
    const std::string limit = p.limit_ms > 0 ? fmt::format("; limit {:.4g} ms", p.limit_ms) : "";
    svg.circle(times[i].first, times[i].second, 3.5, fmt::format("fill=\"{}\"", colour),
               fmt::format("{}, {}: {:.4g} ms{}", curve.name, p.length, p.ms, limit));
  }
}

}  // namespace

std::string share_plot(const std::vector<BenchRow>& rows, std::string_view machine) {
  constexpr double kLeft = 260, kLongest = 480, kStep = 24, kWidth = 1000;
  std::vector<const BenchRow*> shown;
  double largest = 1;  // of what is drawn: it stays on the paper
  for (const BenchRow& r : rows) {
    if (!is_share(r)) continue;
    shown.push_back(&r);
    largest = std::max({largest, r.ratio.value_or(0), r.high.value_or(0), r.goal.value_or(0)});
  }
  const double unit = kLongest / largest;
  double grid = 0.2;
  while (largest / grid > 10) grid *= 5;
  const double bottom = kTop + kStep * static_cast<double>(shown.size());
  Svg svg(kWidth, bottom + 54, "Share of the machine's limit");
  heading(svg, "Share of the machine's limit", machine);
  for (int i = 0; i * grid <= largest * 1.001; ++i) {
    const double x = kLeft + unit * i * grid;
    svg.line(x, kTop, x, bottom, kGrid);
    svg.text(x, bottom + 18, fmt::format("{:.1f}", i * grid), "text-anchor=\"middle\"");
  }
  svg.line(kLeft + unit, kTop, kLeft + unit, bottom, kAxis);
  for (size_t i = 0; i < shown.size(); ++i)
    bar(svg, *shown[i], kLeft, unit, kTop + kStep * static_cast<double>(i) + 5);
  svg.line(kLeft, kTop, kLeft, bottom, kAxis);
  svg.line(kLeft, bottom, kLeft + kLongest, bottom, kAxis);
  svg.text(kLeft + kLongest / 2, bottom + 40,
           "speed over the probe's in the same round (median; line: quartiles; tick: goal)",
           "text-anchor=\"middle\"");
  return svg.str();
}

std::string time_plot(std::string_view title, const std::vector<Curve>& curves,
                      std::string_view machine) {
  constexpr double kLeft = 70, kWidth = 640, kHeight = 400, kLegend = 200;
  Range lengths, times;
  for (const Curve& curve : curves) {
    for (const SeriesPoint& p : curve.points) {
      lengths.see(p.length), times.see(p.ms), times.see(p.limit_ms);
    }
  }
  const double bottom = kTop + kHeight;
  Svg svg(kLeft + kWidth + kLegend, bottom + 54, title);
  heading(svg, title, machine);
  if (lengths.high == 0) return svg.str();
  const LogAxis x{lengths.low, std::max(lengths.high, 2 * lengths.low), kLeft, kWidth};
  const LogAxis y = decades(times.low, std::max(times.high, 1.01 * times.low), bottom, -kHeight);
  draw_axes(svg, x, y);
  const double legend = kLeft + kWidth + 16;
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    draw_curve(svg, curves[i], x, y, colour);
    const double at = kTop + 14 + 20 * static_cast<double>(i);
    svg.rect(legend, at - 9, 12, 10, fmt::format("fill=\"{}\"", colour));
    svg.text(legend + 18, at, curves[i].name, "");
  }
  svg.text(legend, kTop + 24 + 20 * static_cast<double>(curves.size()), "dashed: the limit",
           "fill=\"#666\"");
  return svg.str();
}

}  // namespace shadowgraph::bench
