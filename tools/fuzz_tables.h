// What the report of `fuzz` counts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli.h"
#include "report/merge.h"

namespace shadowgraph::cli {

inline Histogram histogram_of(const std::string& name, const std::map<int64_t, int64_t>& counts,
                              const std::vector<int64_t>& edges) {
  Histogram h;
  h.name = name;
  h.median = median_of(counts);
  h.counts = counts;
  for (size_t i = 0; i < edges.size(); ++i) {
    const bool last = i + 1 == edges.size();
    int64_t cases = 0;
    for (auto it = counts.lower_bound(edges[i]);
         it != counts.end() && (last || it->first < edges[i + 1]); ++it) {
      cases += it->second;
    }
    std::string label = std::to_string(edges[i]);
    if (last) label += "+";
    if (!last && edges[i + 1] - 1 > edges[i]) label += ".." + std::to_string(edges[i + 1] - 1);
    h.bins.emplace_back(label, cases);
  }
  return h;
}

/// "flashattention decode replay"; of kernels the kind of data stands for the mode.
inline CoverageReport coverage_of(const std::string& name, int64_t cases) {
  const size_t first = name.find(' '), last = name.rfind(' ');
  return {name.substr(0, first), name.substr(first + 1, last - first - 1), name.substr(last + 1),
          cases};
}

}  // namespace shadowgraph::cli
