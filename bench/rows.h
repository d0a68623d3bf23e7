// Rows: what the bench shows, each a shape and what its speed is divided by. The list is rows.inc.
// Tested by tests/bench/rows_test.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/probes.h"
#include "bench/shapes.h"

namespace shadowgraph::bench {

/// One of the shapes that a row compares with itself; of a sum of times, its factor.
struct Base {
  Shape shape;
  double weight = 1;
};

/// How a row's ratio is made.
enum class Measure : uint8_t {
  kProbe,   // bytes/s or flop/s over the limit that the probe names (probes_of_limit)
  kPeer,    // the peer's time over ours
  kSpeed,   // flop/s over the base's
  kRate,    // bytes/s over the base's
  kTime,    // time over the weighted sum of the bases' times: less is better
  kItems,   // items a second
  kMicros,  // microseconds an item: less is better
};

struct Of {
  Measure measure = Measure::kProbe;
  double goal = 0;  // at least; kTime, kMicros: at most; 0: none
  Probe probe = Probe::kStreamRead;
  std::string_view peer = {};
  double peer_floor = 0;  // the peer's share of fma_peak, below which it was not itself
  std::vector<Base> bases = {};
};

struct Row {
  std::string_view id;
  Shape shape;
  Of of;
  std::string_view text;

  bool at_most() const { return of.measure == Measure::kTime || of.measure == Measure::kMicros; }
  /// "stream_read", "peer:openblas", "self", "second", "microseconds".
  std::string of_name() const;
};

const std::vector<Row>& rows();

/// Rows whose id one of the patterns names; * stands for any text, "all" for all. Order of rows().
/// Empty, and *unknown set, if a pattern names none.
std::vector<const Row*> select_rows(const std::vector<std::string>& patterns, std::string* unknown);
bool matches(std::string_view pattern, std::string_view text);

/// The row's ratio within one round: of the seconds of its own shape (of one item), then of each
/// base in order, or of the peer. Empty where the probe has no figure.
std::optional<double> ratio_of(const Row& row, const ProbeFigures& probes,
                               const std::vector<double>& seconds);

/// Does this ratio reach the row's goal? Never where there is none.
bool is_reached(const Row& row, double ratio);

/// Shapes whose time is drawn against their length (`--plot`).
struct Series {
  std::string_view name;   // "decode bf16"
  std::string_view panel;  // series of one drawing: "decode, 8 requests"
  std::string_view peer = {};
  std::vector<Shape> shapes = {};
};
const std::vector<Series>& series();

}  // namespace shadowgraph::bench
