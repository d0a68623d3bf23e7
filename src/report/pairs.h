// Pairs of levels in a report: which of them the cases of a run had (core/covering.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shadowgraph {

/// Pairs of levels that the cases of one kind had. A pair's number is the same in every run of one
/// version.
struct PairsReport {
  int64_t of = 0;                  // pairs that can stand together; 0: not known, no case was one
  std::vector<bool> met;           // by number; of a kind without a case empty
  std::vector<std::string> unmet;  // "page_size 4 x radix yes"; named where half were met

  int64_t num_met() const;
  /// Adds what another run had; unmet ones have no names then. False: it counts other pairs.
  bool join(const PairsReport& other);
  /// Four pairs a digit, the first one the highest bit.
  std::string to_hex() const;
  /// False: these are no digits of so many pairs.
  bool set_hex(std::string_view digits);
};

}  // namespace shadowgraph
