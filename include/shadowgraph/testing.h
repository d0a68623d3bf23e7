// Property tests of your own metadata builder: legal steps, the truth about each step, arrays with
// red zones, and the laws. Works with or without GoogleTest. A whole test is
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
// At the end: the same of your own attention kernel (examples/kernel_test.cc), which gets the calls
// of `shadowgraph fuzz` as far as it declares to support them.
//
// Tested by tests/testing/.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/attention/promises.h"
#include "shadowgraph/device/annotations.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph::testing {

/// How a test is repeated, and which way it goes.
struct Repetition {
  uint64_t seed = 1;
  double shrink_seconds = 2;
  // Runs only what these choices make: "3.0.1". Empty: the value of the environment variable
  // SHADOWGRAPH_CHOICES, if it is set
  std::string choices;
  std::string command;  // the command that runs this test, for Finding::reproduce
};

/// Which steps are made. The capacities say what a builder must have room for.
struct Options : Repetition {
  // Modes to test. Steps of other modes are played, but not shown to the property. Each mode named
  // here must come up, or test.nothing is found
  std::vector<ForwardMode> modes = {ForwardMode::kDecode, ForwardMode::kExtend};
  std::vector<int32_t> page_sizes = {1, 2, 4};  // powers of two
  int32_t max_requests = 4;                     // of one step
  int32_t max_context_len = 32;                 // keys of a request, without drafts
  int32_t max_extend_len = 8;                   // new tokens of a request in one extend
  // Other features of the engine; the defaults mean that it has none
  int32_t topk = 1, num_steps = 0, num_draft_tokens = 0;  // speculation
  int32_t dllm_block = 0;                                 // tokens of a block in kDllmExtend
  int32_t max_encoder_len = 0;  // not together with prefix_cache or speculation
  int32_t window_left = -1;     // for layers with a second pool; not together with prefix_cache
  bool prefix_cache = false;    // requests share pages

  // Every batch of up to this many requests is tried; 0: none. With page size P a request has a
  // prefix of 0 to 2 P + 1 tokens and 1 or 2 new ones; pages come in three orders
  int32_t small_requests = 3;
  int64_t histories = 200;  // number of random histories of a scheduler
  int32_t steps = 20;       // steps of a history, at most

  /// Capacities. max_kv_len: keys of a request, drafts included. max_tokens: new tokens of a step;
  /// in a draft decode one for each branch.
  int32_t max_kv_len() const;
  int32_t max_tokens() const;
};

enum class Pool : uint8_t {
  kFull,
  kWindow,   // slots of sliding-window layers by full_to_swa, 0 where a token is evicted
  kEncoder,  // keys of cross-attention, by slots of the full pool; no slot is written
};

/// The truth about a step, row by row. A row is a request; in a draft decode, one of its branches.
struct Truth {
  std::vector<int32_t> q_lens, kv_lens;    // [rows]
  std::vector<int32_t> cu_seqlens_q;       // [rows + 1]
  std::vector<std::vector<int32_t>> keys;  // [rows][kv_len] slot of each key, in order
  std::vector<int32_t>
      stored;  // [tokens] slot of each new token; new tokens are the last keys of a row
  std::vector<uint8_t> mask;  // row by row [q_len, kv_len], without windows: 1 seen, 0 hidden

  int64_t rows() const { return static_cast<int64_t>(kv_lens.size()); }
  /// [rows] number of pages that hold a row's keys.
  std::vector<int32_t> num_pages(int32_t page_size) const;
};

/// Requires a batch that validate() accepts, with req_to_token and the fields that the pool needs.
Truth truth_of(const ForwardBatch& batch, Pool pool = Pool::kFull);

/// A legal step.
struct Case {
  ForwardBatch batch;
  int32_t page_size = 1;
  int32_t pool_pages = 0, window_pages = 0;  // pages of either pool, page 0 included
  Truth truth;                               // of the full pool
};

/// A history of steps. Each step is made when it is asked for: a property is a loop over them.
class Steps {
 public:
  /// The next step, valid until the next call; nullptr when the history is over or a law did not
  /// hold. next() first checks the red zones of all arrays; then what the last step wrote becomes
  /// stale.
  const Case* next();
  /// Adds the findings of this step.
  void expect(Status findings);

  struct State;  // src/testing/steps.h
  explicit Steps(State& state) : state_(state) {}
  State& state() { return state_; }

 private:
  friend class ShadowedMemory;
  State& state_;
};

/// The elements of an array, from number `first` on, and the name that findings give it.
template <class T>
struct Values {
  std::string_view name;
  std::span<const T> elements;
  int64_t first = 0;

  int64_t size() const { return static_cast<int64_t>(elements.size()); }
  /// All elements behind the first `count`.
  Values from(int64_t count) const {
    const int64_t n = std::min(count, size());
    return {name, elements.subspan(static_cast<size_t>(n)), first + n};
  }
};

/// Bytes between red zones. The next Steps::next finds a write outside them (mem.red_zone);
/// AddressSanitizer stops the program at the line that writes. Bytes that a step has not written
/// hold a poison that no metadata uses: integers one of the lowest 256 values, bytes one of two.
/// Every check below calls a poisoned element unwritten (mem.uninit_read), or stale
/// (mem.stale_input) if an earlier step wrote it.
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

/// A builder's array of int32_t, int64_t or uint8_t. It lives inside a property. With kPerStep the
/// values of one step are stale in the next; with any other lifetime they stay.
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

// Laws. A check names every element that breaks its law, and every element that was not written.

/// Every element is written.
Status check_written(const Values<int32_t>& values);
Status check_written(const Values<int64_t>& values);
Status check_written(const Values<uint8_t>& values);
/// The keys (or the queries) of each row; further elements belong to padding. len.batch,
/// len.kv_extent, len.q_extent.
Status check_kv_lens(const Values<int32_t>& lens, const Truth& truth);
Status check_q_lens(const Values<int32_t>& lens, const Truth& truth);
/// Every element lies between least and most, so that a kernel can run the padding rows.
/// len.padding.
Status check_padding(const Values<int32_t>& values, int32_t least, int32_t most);
/// `longest` is the longest length that the host gives to a kernel; no element of lens exceeds it.
/// len.bound.
Status check_longest(std::string_view name, int64_t longest, std::span<const int32_t> lens);
/// Offsets begin at 0 and step by each row's count. Offsets of padding do not fall, and none
/// exceeds capacity, the number of elements. len.batch, len.indptr_first, len.indptr_monotone,
/// len.q_extent, len.total.
Status check_indptr(const Values<int32_t>& indptr, std::span<const int32_t> counts,
                    int64_t capacity);
/// [rows, columns], one column per `unit` tokens: page ids, or slots if unit is 1. Every live
/// column names the page of its tokens, below `pages`. len.batch, table.capacity, table.page_id,
/// table.unit, table.slot.
Status check_page_table(const Values<int32_t>& table, int64_t columns, int32_t unit, int64_t pages,
                        const Truth& truth);
/// The same for lists: row r has the entries indptr[r] to indptr[r + 1] - 1. Errors of indptr are
/// found, too.
Status check_csr(const Values<int32_t>& indptr, const Values<int32_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth);
Status check_csr(const Values<int32_t>& indptr, const Values<int64_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth);
/// The number of tokens on each row's last page; further elements belong to padding. len.batch,
/// len.last_page.
Status check_last_page_len(const Values<int32_t>& lens, int32_t page_size, const Truth& truth);
/// Every element is the id of a page below `pages`; use it for tables of padding rows.
/// table.page_id.
Status check_page_ids(const Values<int32_t>& ids, int64_t pages);
/// The slot of each new token; slots of padding are 0. len.batch, slot.write.
Status check_slots(const Values<int32_t>& slots, const Truth& truth);
Status check_slots(const Values<int64_t>& slots, const Truth& truth);

/// One byte per pair of query and key, as in Truth::mask. mask.size, mask.bit.
Status check_mask(const Values<uint8_t>& mask, const Truth& truth);

/// Builds the metadata of each step and checks laws of it. It must make its own state anew for
/// every history. It may throw: trace.exception.
using Property = std::function<void(Steps& steps)>;

/// What was tried.
struct Counts {
  int64_t small = 0;      // batches of Options::small_requests
  int64_t histories = 0;  // random histories
  int64_t steps = 0;      // steps of both kinds that the property saw
};

/// Tries every small batch, then the random histories. The first one that breaks a law is shrunk;
/// its findings name the step and the choices that repeat it. Also finds test.options,
/// test.nothing, and pool.shape for impossible sizes.
Status check(const Options& options, const Property& property, Counts* counts = nullptr);

// Property tests of your own attention kernel. Link shadowgraph::testing, which has the judge, too.

/// Calls of a kernel. A decode has one query a request and no cu_seqlens_q.
enum class KernelCall : uint8_t { kPagedDecode, kPagedExtend, kRagged };

/// A feature that a call may have beside q.k and its scale. AttentionParams defines each.
enum class Term : uint8_t {
  kCausal,
  kWindowLeft,
  kWindowRight,
  kSoftCap,
  kSinks,
  kBoolMask,
  kPackedMask,
  // AttentionTerms
  kAlibi,
  kKeyBias,
  kQqBias,
  kRelativeBias,
  kTemperature,
  kChunks,
  kRequestCausal,
  kLeftpad,
  kBidirectional,
  kMaskOfHeads,  // where there is a mask
  kHeadScales,   // one of these two, or none
  kRequestHeadScales,
  kRowScales,   // of q and out
  kPaddedRows,  // seqused_q, of packed keys seqused_k; a decode has none
};

/// q and out: f32, f16 or bf16. kv: what a cache may hold.
struct KernelTypes {
  DType q = DType::kF32, kv = DType::kF32, out = DType::kF32;
  bool operator==(const KernelTypes&) const = default;
};
/// Elements of a query and key, and of a value.
struct HeadDims {
  int32_t qk = 64, vo = 64;
  bool operator==(const HeadDims&) const = default;
};

/// The calls that a kernel supports, and its promises. The test draws no other call. A value of a
/// list that the test never draws is a finding (test.nothing).
struct KernelSupport {
  std::vector<KernelCall> calls = {KernelCall::kPagedDecode};
  // Terms that a call may have or not, several at once; those that every call has
  std::vector<Term> terms, always;
  std::vector<KernelTypes> types = {{}};  // i8 has scales, and is for paged calls
  std::vector<HeadDims> head_dims = {{}};
  std::vector<int32_t> group_sizes = {1};  // query heads of a KV head
  std::vector<int32_t> num_kv_heads = {1, 2, 3};
  std::vector<int32_t> page_sizes = {16};
  std::vector<KvLayout> layouts = {KvLayout::kNhd};
  std::vector<PageTable::Form> tables = {PageTable::Form::kDense};
  int32_t max_requests = 6, max_q_len = 40, max_kv_len = 1025;
  bool strided = false;    // rows of tensors may have gaps between them
  bool empty_rows = true;  // rows may see no key, requests may have no query or no key
  // Pools may be so large that the offset of an element takes more than 32 bits. Their memory is
  // reserved and not touched: 2^33 elements
  bool far_pages = true;

  bool lse = true;
  LseBase lse_base = LseBase::kNatural;  // of the numbers in PagedAttention::lse
  LseSink lse_sink = LseSink::kExcluded;
  EmptyRowMark empty_row = {.lse = -std::numeric_limits<double>::infinity()};
  // Rows that see a NaN in a key or value are NaN. False: they may hold anything. Rows that do not
  // see it hold what they should in either case
  bool propagates_nan = false;

  // A name of `shadowgraph list arithmetics`, and how the kernel departs from that
  std::string arithmetic = "plain_f32";
  DeclaredArithmetic departs = {};
};

/// The kernel: reads a call as the engine takes it, and writes call.out, and call.lse.tensor where
/// it is defined. It ignores options and plan. It may throw: test.exception.
struct Kernel {
  std::function<void(const PagedAttention& call)> paged;
  std::function<void(const RaggedAttention& call)> ragged;
};

struct KernelOptions : Repetition {
  KernelSupport support;
  int64_t calls = 2000;
  // A file that names the call that runs; a kernel that ends the program leaves it. Empty: none
  std::string journal;
};

/// Draws calls and judges what the kernel leaves: first exact data, whose results are known bit for
/// bit, then random data, within the error bound that is derived from the declared arithmetic. What
/// no query sees holds NaN, or huge numbers; what some query sees may hold a NaN. Logits of exact
/// data may be a number of any size, above 0 or below, as far as f32 scores, and a maximum that the
/// declared arithmetic rounds apart, bear it. The first call that breaks a law is shrunk; findings
/// name the law, row, head, value, limit, and the choices that repeat it. num.exact, num.bound,
/// num.lse_bound, num.empty_row, num.poison, num.write_set, test.exception, test.options,
/// test.nothing. calls: how many the kernel ran.
Status check(const KernelOptions& options, const Kernel& kernel, int64_t* calls = nullptr);

}  // namespace shadowgraph::testing
