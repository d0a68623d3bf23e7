// Rows of a Case in calls: whole or cut, in another order, with rows of nobody between them; the
// same values must have the same bits. Tested by tests/fuzz/*_laws_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attn/cases/case.h"
#include "check/device_calls.h"
#include "core/choices.h"

namespace shadowgraph {

/// Tokens [begin, end) of a row.
struct RowPiece {
  static constexpr int64_t kNobody = -1;
  int64_t row = 0;
  int32_t begin = 0, end = 0;
  bool slot = false;  // of kNobody: it names a slot that is no row's
};

/// How the rows of a Case look in memory.
struct RowArrangement {
  std::vector<std::vector<RowPiece>> calls;  // one after the other
  int32_t idle_rows = 0;                     // in each call: of nobody
  bool poison_unread = false;                // what the footprint does not read
  uint64_t seed = 0;                         // slots, places, gaps, orders of axes
  CallOptions options;
  DeviceCalls* device = nullptr;  // runs the calls; null: the CPU does
  bool far = false;               // the pools lie behind kFarElements

  /// "2 calls of 5 rows, 1 idle rows, 1 threads, avx2".
  std::string describe_rows() const;
};

/// Does the call have a pool whose rows can be numbered from kFarElements on?
bool can_be_far(const Case& x);
/// Threads and far pools, as the Case says; seed.
void arrange_as(const Case& x, RowArrangement* how);

/// At multiples of how many tokens a row may be cut; 0: it may not be.
using CutStep = std::function<int32_t(const RowPiece&)>;

/// The rows of its only call in another order: in one call, each in a call of its own, or, where
/// there is a step, in two calls, some cut; with a seed, idle rows and poison of their own.
void vary_rows(const CutStep& step, Rng& rng, RowArrangement* how);

/// piece() draws a row of nobody: so many more, anywhere between the others.
template <class MakePiece>
void add_idle_rows(int32_t count, const MakePiece& piece, Rng& rng, std::vector<RowPiece>* rows) {
  for (int32_t i = 0; i < count; ++i) {
    const RowPiece idle = piece();
    rows->insert(rows->begin() + rng.below(static_cast<uint32_t>(rows->size() + 1)), idle);
  }
}

/// What calls left of each row, or of each token; empty: nothing.
using RowBytes = std::vector<std::vector<std::byte>>;
/// What calls left of each token of a Case, or row, in its own order: bits to compare. beside: an
/// LSE, or what is stored.
struct RowResults {
  explicit RowResults(const Case& x) : out(static_cast<size_t>(x.tokens())), beside(out.size()) {}
  RowBytes out, beside;
};
/// num.bits at the first of them that differs; where_both: of those of which both left something.
Status compare_rows(const char* field, const RowBytes& a, const RowBytes& b, const std::string& how,
                    bool where_both = false);
Status compare_bits(const RowResults& a, const RowResults& b, const std::string& how);

}  // namespace shadowgraph
