// Property tests of somebody's own metadata builder: legal steps, what is true of each, arrays with
// red zones, and the laws. Works with GoogleTest, and needs it not. A whole one is
// examples/property_test.cc; in short:
//
//   Status status = testing::check(options, [](testing::Steps& steps) {
//     Builder builder;
//     testing::Shadowed<int32_t> cache_seqlens(steps, "cache_seqlens", 4);
//     while (const testing::Case* c = steps.next()) {
//       builder.build(c->batch, cache_seqlens.data());
//       steps.expect(testing::check_kv_lens(cache_seqlens, c->truth));
//     }
//   });
//   EXPECT_TRUE(status.ok()) << status.to_string();
//
// Tested by tests/testing/.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shadowgraph/annotations.h"
#include "shadowgraph/batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph::testing {

/// What the steps are. A capacity is what a builder has to have room for.
struct Options {
  // Steps of other modes are played, but not shown. Each of these must come up: test.nothing
  std::vector<ForwardMode> modes = {ForwardMode::kDecode, ForwardMode::kExtend};
  std::vector<int32_t> page_sizes = {1, 2, 4};  // powers of two
  int32_t max_requests = 4;                     // of a step
  int32_t max_context_len = 32;                 // keys of a request, drafts aside
  int32_t max_extend_len = 8;                   // new tokens of a request in one extend
  // What the engine has besides; as it stands here: nothing
  int32_t topk = 1, num_steps = 0, num_draft_tokens = 0;  // speculation
  int32_t dllm_block = 0;                                 // tokens that kDllmExtend denoises
  int32_t max_encoder_len = 0;                            // without prefix_cache and speculation
  int32_t window_left = -1;   // of layers with a second pool; without prefix_cache
  bool prefix_cache = false;  // requests share pages

  // Every batch of up to so many requests; 0: none. In a page size P: prefixes of 0 to 2 P + 1
  // tokens, 1 or 2 new ones, pages in three orders
  int32_t small_requests = 3;
  int64_t histories = 200;  // random ones of a scheduler
  int32_t steps = 20;       // of a history, at most
  uint64_t seed = 1;
  double shrink_seconds = 2;
  // One history alone, "3.0.1". Empty: what the environment has as SHADOWGRAPH_CHOICES, if anything
  std::string choices;
  std::string command;  // that runs this test; Finding::reproduce has it

  /// Capacities: keys of a request, drafts included; new tokens of a step, of a draft decode one
  /// for each branch.
  int32_t max_kv_len() const;
  int32_t max_tokens() const;
};

enum class Pool : uint8_t {
  kFull,
  kWindow,   // of sliding-window layers: slots by full_to_swa, 0 where they are evicted
  kEncoder,  // keys of cross-attention, which stores none of its own: those of the full pool
};

/// What is true of a step, row by row; a row is a request, of a draft decode one of its branches.
struct Truth {
  std::vector<int32_t> q_lens, kv_lens;    // [rows]
  std::vector<int32_t> cu_seqlens_q;       // [rows + 1]
  std::vector<std::vector<int32_t>> keys;  // [rows][kv_len] slot of each, in order
  std::vector<int32_t> stored;             // [tokens] slot of each new token, the last of its keys
  std::vector<uint8_t> mask;               // row by row [q_len, kv_len] seen, windows aside: 0 or 1

  int64_t rows() const { return static_cast<int64_t>(kv_lens.size()); }
  /// [rows] pages of a row's keys.
  std::vector<int32_t> num_pages(int32_t page_size) const;
};

/// Requires a batch that validate() accepts, with req_to_token and what the pool needs.
Truth truth_of(const ForwardBatch& batch, Pool pool = Pool::kFull);

/// A legal step.
struct Case {
  ForwardBatch batch;
  int32_t page_size = 1;
  int32_t pool_pages = 0, window_pages = 0;  // of either pool, page 0 included
  Truth truth;                               // of the full pool
};

/// A history of steps, each made when it is asked for: a property is a loop over them.
class Steps {
 public:
  /// The next step; it is gone with the one after it. nullptr: the history is over, or a law did
  /// not hold. Before that, the red zones of all arrays are looked at; behind it what the last step
  /// wrote is stale.
  const Case* next();
  /// Findings of this step.
  void expect(Status findings);

  struct State;  // src/testing/steps.h
  explicit Steps(State& state) : state_(state) {}

 private:
  friend class ShadowedMemory;
  State& state_;
};

/// An array in findings: its name, and elements from number `first` on.
template <class T>
struct Values {
  std::string_view name;
  std::span<const T> elements;
  int64_t first = 0;

  int64_t size() const { return static_cast<int64_t>(elements.size()); }
  /// All behind the first `count`.
  Values from(int64_t count) const {
    const int64_t n = std::min(count, size());
    return {name, elements.subspan(static_cast<size_t>(n)), first + n};
  }
};

/// Bytes between red zones. What is written outside of them is found by the next Steps::next
/// (mem.red_zone), and under AddressSanitizer stops the program at its line. What a step has not
/// written holds a poison that no metadata has: of its integers one of the lowest 256, of bytes one
/// of two; every check below calls it unwritten (mem.uninit_read), or stale (mem.stale_input) where
/// an earlier step wrote it.
class ShadowedMemory {
 public:
  ShadowedMemory(const ShadowedMemory&) = delete;
  ShadowedMemory& operator=(const ShadowedMemory&) = delete;

 protected:
  ShadowedMemory(Steps& steps, std::string name, int64_t count, size_t element_bytes,
                 Lifetime lifetime);
  ~ShadowedMemory();

  Steps::State& state_;
  std::string name_;
  int64_t count_;
  size_t element_bytes_;
  Lifetime lifetime_;
  std::unique_ptr<std::byte[]> bytes_;
  std::byte* data_ = nullptr;

 private:
  friend struct Steps::State;
  std::array<std::span<std::byte>, 2> zones() const;
  Status red_zones();
  void begin_step();
};

/// A builder's array: int32_t, int64_t or uint8_t. Lives inside a property. lifetime kPerStep: what
/// a step writes is stale in the next; else it stays.
template <class T>
requires std::same_as<T, int32_t> || std::same_as<T, int64_t> || std::same_as<T, uint8_t>
class Shadowed : ShadowedMemory {
 public:
  Shadowed(Steps& steps, std::string name, int64_t count, Lifetime lifetime = Lifetime::kPerStep)
      : ShadowedMemory(steps, std::move(name), count, sizeof(T), lifetime) {}

  T* data() { return reinterpret_cast<T*>(data_); }
  int64_t size() const { return count_; }
  std::span<T> span() { return {data(), static_cast<size_t>(count_)}; }
  Values<T> values() const {
    return {name_, {reinterpret_cast<const T*>(data_), static_cast<size_t>(count_)}};
  }
  operator Values<T>() const { return values(); }
};

// Laws. Each names every element that breaks it, and those that were not written.

/// Every element is written.
Status check_written(const Values<int32_t>& values);
Status check_written(const Values<int64_t>& values);
Status check_written(const Values<uint8_t>& values);
/// Keys, or queries, of each row; more elements are padding's. len.batch, len.kv_extent,
/// len.q_extent.
Status check_kv_lens(const Values<int32_t>& lens, const Truth& truth);
Status check_q_lens(const Values<int32_t>& lens, const Truth& truth);
/// Every element lies between least and most: what a kernel can run padding rows with.
/// len.padding.
Status check_padding(const Values<int32_t>& values, int32_t least, int32_t most);
/// A longest length that the host gives to a kernel, and none of these exceeds. len.bound.
Status check_longest(std::string_view name, int64_t longest, std::span<const int32_t> lens);
/// Offsets from 0, each row's own count apart; those of padding do not fall, and none exceeds
/// capacity, the elements that there are. len.batch, len.indptr_first, len.indptr_monotone,
/// len.q_extent, len.total.
Status check_indptr(const Values<int32_t>& indptr, std::span<const int32_t> counts,
                    int64_t capacity);
/// [rows, columns], a column for `unit` tokens: ids of pages, or with unit 1 slots. Every live
/// column names its tokens' page, of `pages` that there are. len.batch, table.capacity,
/// table.page_id, table.unit, table.slot.
Status check_page_table(const Values<int32_t>& table, int64_t columns, int32_t unit, int64_t pages,
                        const Truth& truth);
/// The same of lists one behind the other, row r's from indptr[r] to indptr[r + 1]; what indptr
/// itself breaks too.
Status check_csr(const Values<int32_t>& indptr, const Values<int32_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth);
Status check_csr(const Values<int32_t>& indptr, const Values<int64_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth);
/// Tokens on each row's last page; more elements are padding's. len.batch, len.last_page.
Status check_last_page_len(const Values<int32_t>& lens, int32_t page_size, const Truth& truth);
/// Every element is a page that there is: tables of padding rows. table.page_id.
Status check_page_ids(const Values<int32_t>& ids, int64_t pages);
/// The slot of each new token; those of padding are 0. len.batch, slot.write.
Status check_slots(const Values<int32_t>& slots, const Truth& truth);
Status check_slots(const Values<int64_t>& slots, const Truth& truth);

/// A byte a pair, as Truth::mask has them. mask.size, mask.bit.
Status check_mask(const Values<uint8_t>& mask, const Truth& truth);

/// Builds the metadata of each step, and expects laws of it. What it makes it makes anew for every
/// history. It may throw: trace.exception.
using Property = std::function<void(Steps& steps)>;

/// What was tried.
struct Counts {
  int64_t small = 0;      // batches of Options::small_requests
  int64_t histories = 0;  // random ones
  int64_t steps = 0;      // that a property saw, of both
};

/// Every small batch, then the random histories; the first that breaks a law is shrunk, and its
/// findings name the step and the choices that repeat it. Also: test.options, test.nothing, and of
/// sizes pool.shape.
Status check(const Options& options, const Property& property, Counts* counts = nullptr);

}  // namespace shadowgraph::testing
