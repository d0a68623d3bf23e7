// Conventions as types: what engines count in two ways, each way a type of its own. Nothing
// converts without a name, so a mix-up does not compile. The base of an LSE is such a type too:
// lse.h. Facts: docs/conventions.md. Tested by tests/attn/conventions_test.cc.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shadowgraph {

/// A sliding window given as a radius: how many keys before its own a query sees. 0: only its own
/// key; -1: no window. AttentionParams::window_left, FlashInfer and SGLang count so.
struct WindowLeft {
  int32_t keys = -1;

  constexpr WindowLeft() = default;
  constexpr explicit WindowLeft(int32_t radius) : keys(radius) {}
  bool operator==(const WindowLeft&) const = default;
};

/// The same window given as a count of all keys that a query sees, its own included; 0: no window.
/// Hugging Face's sliding_window counts so: WindowLeft(127) is WindowCount(128).
struct WindowCount {
  int64_t keys = 0;

  constexpr WindowCount() = default;
  constexpr explicit WindowCount(int64_t count) : keys(count) {}
  bool operator==(const WindowCount&) const = default;
};

constexpr WindowCount to_count(WindowLeft w) { return WindowCount(int64_t{w.keys} + 1); }
/// Requires at most 2^31 keys.
constexpr WindowLeft to_left(WindowCount w) { return WindowLeft(static_cast<int32_t>(w.keys - 1)); }

/// The place of one token in a pool; -1: none.
struct Slot {
  int32_t value = -1;

  constexpr Slot() = default;
  constexpr explicit Slot(int32_t slot) : value(slot) {}
  bool operator==(const Slot&) const = default;
};

/// A page of a pool; -1: none.
struct PageId {
  int32_t value = -1;

  constexpr PageId() = default;
  constexpr explicit PageId(int32_t page) : value(page) {}
  bool operator==(const PageId&) const = default;
};

/// The page that holds the slot. page_size must be a power of two.
constexpr PageId to_page(Slot slot, int32_t page_size) {
  return PageId(slot.value >> std::countr_zero(static_cast<uint32_t>(page_size)));
}
constexpr Slot first_slot(PageId page, int32_t page_size) { return Slot(page.value * page_size); }

/// Offsets of n parts that follow each other: [n + 1] entries, the first is 0; part i is [i] to [i
/// + 1]. Parts of 2, 0 and 3 elements have the offsets 0, 2, 2, 5.
struct Indptr {
  std::span<const int32_t> offsets;

  constexpr Indptr() = default;
  constexpr explicit Indptr(std::span<const int32_t> of_parts) : offsets(of_parts) {}
};

/// The same parts, given by where each ends: [n] entries, without the leading 0 (2, 2, 5). NPU
/// kernels' actual_seq_lengths.
struct InclusiveEnds {
  std::span<const int32_t> ends;

  constexpr InclusiveEnds() = default;
  constexpr explicit InclusiveEnds(std::span<const int32_t> of_parts) : ends(of_parts) {}
};

/// A view of the same memory. Requires at least one offset.
constexpr InclusiveEnds to_ends(Indptr indptr) { return InclusiveEnds(indptr.offsets.subspan(1)); }
/// Writes the offsets to indptr, which has n + 1 entries.
constexpr Indptr to_indptr(InclusiveEnds ends, std::span<int32_t> indptr) {
  assert(indptr.size() == ends.ends.size() + 1);
  indptr[0] = 0;
  for (size_t i = 0; i < ends.ends.size(); ++i) indptr[i + 1] = ends.ends[i];
  return Indptr(indptr);
}

}  // namespace shadowgraph
