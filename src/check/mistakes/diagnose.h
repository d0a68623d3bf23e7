// diagnose: which known mistake makes a wrong result. Every mistake's ways to read the call are
// computed by the oracle and held against the wrong numbers, within the derived bound of the same
// arithmetic; the mistake that gives the most of them is named first. Tested by
// tests/check/diagnose_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "check/bounds/compare.h"
#include "check/mistakes/mistakes.h"

namespace shadowgraph {

/// What results are filled with, where a row that is not written shall be known: no number that an
/// attention gives, and no NaN that it reads.
inline constexpr uint8_t kUnwritten = 0xfe;
/// What memory holds where nobody has written: every float a NaN that arithmetic makes of no
/// number.
inline constexpr uint8_t kNanByte = 0xff;

struct DiagnoseOptions {
  bool exact = false;               // JudgeOptions::exact
  std::vector<int32_t> parts = {};  // JudgeOptions::parts
  bool unwritten = false;           // rows were filled with kUnwritten before
  // One step of many, whose explanations are added up: names for any part stay
  bool of_many = false;
};

/// Explains the scene's rows by what was computed of them. The likeliest mistake comes first; none
/// breaks more than it explains. For a request with many results only some are tried.
std::vector<Explanation> diagnose(const Scene& scene, const Result& result,
                                  const Arithmetic& arithmetic,
                                  const DiagnoseOptions& options = {});

}  // namespace shadowgraph
