// What the verb `bench` measured, as plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shadowgraph {

/// One row: a shape's speed as a ratio, the median over rounds of each round's own ratio.
struct BenchRow {
  std::string shape;  // id
  std::string text;   // what the row shows
  std::string of;     // what its speed is divided by: "stream_read", "peer:openblas", "self"
  std::optional<double> ratio, low, high;  // median, quartiles; none where nothing was measured
  std::optional<double> goal;
  bool at_most = false;                // the goal is not to be exceeded
  bool reached = false;                // never where the row is void or not quiet
  std::string void_reason;             // why the ratio says nothing; empty: it does
  std::optional<double> ms;            // of one call
  std::optional<double> gbps, gflops;  // KV bytes, visible flop
  std::string dtype, arith, isa;
  int threads = 0;
  int rounds = 0;  // that the medians are of
  bool quiet = false;
  bool interrupted = false;             // by Ctrl-C, after these rounds
  std::map<std::string, int> rejected;  // rounds, by reason
  // In the same rounds, medians: probes in GB/s or GF/s; what else was timed, in ms
  std::vector<std::pair<std::string, double>> probes, others_ms;
};

/// A limit of the machine, as the run's threads reach it.
struct BenchProbe {
  std::string name;
  int threads = 0;
  std::string variant;                 // that is the best here
  std::optional<double> gbps, gflops;  // median over all rounds
  std::string void_reason;             // why no row may divide by it
};

/// A row of this report beside the same row of an older one.
struct BenchPair {
  std::string shape;              // id
  std::optional<double> was, is;  // ratios; none: that report has no figure of the row
  // "same", "lost", "gained"; "wide": quartiles too wide to tell; "not compared"
  std::string verdict;
  std::string why;  // it is not compared
};

struct BenchComparison {
  std::string path;  // of the older report
  std::vector<BenchPair> rows;
};

struct BenchReport {
  std::vector<std::pair<std::string, std::string>> machine;
  std::vector<BenchProbe> probes;
  std::vector<BenchRow> rows;
  std::vector<std::string> plots;  // files written
  std::optional<BenchComparison> against;
};

}  // namespace shadowgraph
