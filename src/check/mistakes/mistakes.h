// Mistakes that a metadata builder or a kernel is known to make, each as other ways to read a call:
// which tokens a query takes for its keys, which it sees, and what is made of them. None of them
// knows of a backend or of a planted fault. The list is mistakes.inc. Tested by
// tests/check/diagnose_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// What a step read, request by request; of a draft decode, branch by branch.
struct RowsRead {
  std::vector<int32_t> cu_seqlens_q;       // [requests + 1]
  std::vector<std::vector<int32_t>> keys;  // [requests][kv_len] tokens of the pool
  // [requests][q_len * kv_len], with masks_of_heads [heads * q_len * kv_len]; or empty: what params
  // say
  std::vector<std::vector<uint8_t>> masks;
  bool masks_of_heads = false;
  std::vector<int32_t> q_lens = {};  // [requests] or empty: all rows between the offsets

  int32_t q_len(size_t request) const {
    return q_lens.empty() ? cu_seqlens_q[request + 1] - cu_seqlens_q[request] : q_lens[request];
  }
};

/// A call, and what else somebody may have taken for it.
struct Scene {
  ConstTensorView q;       // [total_q, num_qo_heads, head_dim_qk]
  KvCache tokens;          // in pages of one
  AttentionParams params;  // without the custom mask, which is in rows
  RowsRead rows;
  int32_t page_size = 1;  // of the pool as it really is
  // What earlier steps read with the same metadata, the last one first
  std::vector<RowsRead> before;
  // [requests] tokens that stand behind a request's keys in its row; may be empty
  std::vector<std::vector<int32_t>> behind;
  // [requests] and those that stand before its first key, the nearest last
  std::vector<std::vector<int32_t>> front;
};

/// A key of which nothing is known: whatever it holds, a reading with it explains nothing.
inline constexpr int32_t kNoToken = -1;

/// Terms of the scores that a reading takes in another way than the call.
struct OtherTerms {
  AttentionParams params = {};  // has their lists, which the reading's own terms lack
  std::function<int32_t(int32_t head)> of_head = nullptr;  // whose entries a head has
  double factor = 1;
  int64_t ahead = 0;  // positions that they take the query to stand behind its own
  // They are added before the soft cap; before the temperature multiplies
  bool before_cap = false, before_temperature = false;
  bool hide = true;  // -inf hides the key, although a soft cap makes -cap of it
};

/// One request as it may have been read. The default is the call's own way.
struct Reading {
  enum class Result : uint8_t {
    kComputed,
    kNoKeys,     // out 0, LSE -inf
    kUnwritten,  // bytes that were there before
    kNoNumber,   // a NaN that memory held where nobody had written
    kMadeNan,    // a NaN of arithmetic: inf - inf
    kOtherHead,  // what another head should have
    kZero,       // out 0, and an LSE of 0, -inf, or the right one
    kMark,       // of a row that sees no key: out 0 or NaN, an LSE that is none
  };
  enum class Heads : uint8_t {
    kGrouped,
    kInterleaved,  // h % num_kv_heads
    kByKvHeads,    // h / num_kv_heads
  };
  enum class Merge : uint8_t {
    kNone,
    kWeighted,
    kUnweighted,  // the mean of the parts
    kFirstLse,    // the result is right, the LSE is the first part's
    kLastLse,
  };
  enum class Lse : uint8_t { kRight, kLog2, kNaturalTwice, kSink, kInfinite, kUnwritten };

  int32_t q_len = 0;
  std::vector<int32_t> keys;
  AttentionParams params;  // its mask is aligned at the end of keys, unless `ahead` is given
  size_t request = 0;      // whose scales it has
  int64_t first_bias = 0;  // the place of its first key in key_bias
  int32_t first_key = 0;   // keys before it are padding
  std::vector<int32_t> bidirectional;  // [ranges, 2], as in MaskShape
  std::optional<int64_t> ahead;        // the place among keys where query 0 stands
  std::vector<uint8_t> mask;           // [q_len, mask_width]; empty: none
  int32_t mask_width = 0;
  bool mask_of_heads = false;  // [heads, q_len, mask_width]
  // Rows of q, and of the mask, that the request's first query takes; the others follow it
  int64_t first_query = 0;
  bool one_query = false;  // all take that one
  int32_t first_mask_row = 0;
  // And of what the mask shows only these
  std::function<bool(int32_t i, int32_t k)> sees = nullptr;
  // Places from `twice->second` on are those from `twice->first` on once more, and as visible
  std::optional<std::pair<int32_t, int32_t>> twice;
  bool elements = false;  // keys are elements of the pool at which a token begins
  // The slot and head that are read for a token of a head, by another layout of the pool
  std::function<std::pair<int32_t, int32_t>(int32_t token, int32_t head)> placed = nullptr;
  // The place whose value meets the weight of a place; -1: none that is known
  std::function<int32_t(int32_t place)> value_of = nullptr;
  float k_scale = 1, v_scale = 1;
  OtherTerms other;
  std::shared_ptr<const std::vector<float>> list;                 // owns a changed list of terms
  std::function<double(int64_t position)> temperature = nullptr;  // null: the call's
  bool temperature_before_cap = false;
  // The KV head whose scales a KV head has
  std::function<int32_t(int32_t head)> k_scale_of = nullptr, v_scale_of = nullptr;
  // Not null: the row is as one of these readings says, of another head than its own
  std::function<Reading(int32_t other)> as_of_head = nullptr;
  double lost_below = 0;    // weights are lost that are below so much of the largest one
  double logit_factor = 1;  // all logits times this
  // Logarithm of what entries that are no keys add to the sum of weights; -inf: none do
  double no_keys_mass = -std::numeric_limits<double>::infinity();
  Result result = Result::kComputed;
  Heads heads = Heads::kGrouped;
  int32_t computed_head = -1;                              // in place of every row's own
  std::function<int32_t(int32_t head)> sink_of = nullptr;  // the head whose sink a head has
  // For merges: the place at which keys are cut in two, or, in chunks, the places of each part
  Merge merge = Merge::kNone;
  int32_t cut = 0;
  bool chunks = false;
  // Parts weigh exp(factor * lse): of the first part, of the others
  double first_factor = 1, other_factor = 1;
  bool first_unscaled = false;  // the first part has no scales of K and V
  Lse lse = Lse::kRight;
  // Values at hidden places, and in the rest of the last page, are multiplied by 0
  bool hidden_values = false;
  bool some_rows = false;  // others are as they should be
  bool of_call = false;    // a number of the call: the same, by its detail, in all requests
  std::string detail;      // "by 1"; may be empty

  /// Keys without those that are read twice.
  int64_t length() const { return twice ? twice->second : std::ssize(keys); }
  /// The place among keys where a query stands.
  int64_t position(int32_t query) const {
    return ahead.value_or(length() - q_len) + (one_query ? 0 : query);
  }
  /// The row of mask that a query of a head has.
  int64_t mask_row(int32_t head, int32_t query) const {
    return int64_t{mask_of_heads ? head * q_len : 0} + first_mask_row + (one_query ? 0 : query);
  }
};

/// K and V as they are stored.
inline Reading without_scales(Reading r) {
  r.k_scale = r.v_scale = 1;
  r.params.terms.k_scales = r.params.terms.v_scales = {};
  return r;
}

class RowSums;
struct Estimate;
struct Got;

/// Readings that differ in one number, as many as there are keys: only those whose estimates come
/// nearest are tried. An estimate costs a few steps; none: such a reading says nothing of the row.
struct Family {
  int64_t first = 0, end = 0;  // numbers first .. end - 1
  std::function<std::optional<Estimate>(const RowSums& row, int64_t number)> estimate;
  std::function<Reading(int64_t number)> reading;
};
/// Finds a number, and with it readings, from what was computed of a row.
using Solve = std::function<std::vector<Reading>(const RowSums& row, const Got& got)>;

/// Takes the ways to make a mistake.
class AddReading {
 public:
  virtual void operator()(Reading reading) const = 0;
  virtual void operator()(const Family& family) const = 0;
  virtual void operator()(const Solve& solve) const = 0;

 protected:
  AddReading() = default;
  AddReading(const AddReading&) = default;
  AddReading& operator=(const AddReading&) = default;
  ~AddReading() = default;
};

struct Mistake {
  std::string_view id;        // "window.ignored"
  std::string_view sentence;  // what went wrong
  // Every way to make it in a request; `right` is the request as it should be read.
  void (*readings)(const Scene& scene, size_t request, const Reading& right, const AddReading& add);
};

/// In the order in which they are believed where several explain as much: what has the fewest ways
/// to be made first.
std::span<const Mistake> all_mistakes();

/// The request as the call says it.
Reading right_reading(const Scene& scene, size_t request);

}  // namespace shadowgraph
