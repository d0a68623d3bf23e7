// An engine's conventions, which its metadata does not say: how rows of padding look, which page is
// nobody's, which columns of a table are live. A recorded line may differ (docs/traces.md). Facts:
// docs/metadata.md "Pools", "Padding". Tested by tests/check/trace_laws_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shadowgraph {

struct Engine {
  std::string_view name;
  std::string_view about;
  // The fewest keys that a row of padding has: 1 where a kernel must not meet a row without keys
  int32_t padding_len = 0;
  // And the most; nullopt: as many as any row may have
  std::optional<int32_t> max_padding_len = {};
  // The page that the keys of padding lie in, -1: no page; nullopt: any page of the pool
  std::optional<int32_t> padding_page = {};
  // The slot where padding is stored, -1: nothing is stored; nullopt: wherever no live key lies
  std::optional<int64_t> padding_slot = {};
  // The page that holds no request's key; nullopt: every page may
  std::optional<int32_t> reserved_page = {};
  // Whether columns whose keys all lie before the window of a row's first query lead to those keys;
  // else they may hold anything
  bool window_columns = true;
  // Whether offsets of rows are their inclusive ends [rows], without the 0 before the first
  bool inclusive_ends = false;

  /// Whether a slot is in the page that is nobody's.
  bool is_reserved(int64_t slot, int64_t page_size) const {
    return reserved_page && slot >= 0 && slot / page_size == *reserved_page;
  }
};

inline constexpr Engine kEngines[] = {
    {.name = "sglang",
     .about = "SGLang on a GPU",
     .padding_len = 1,
     .padding_page = {},
     .padding_slot = 0,
     .reserved_page = 0},
    {.name = "sglang_npu",
     .about = "SGLang on an NPU: padding has no keys, and operators take the ends of rows",
     .padding_len = 0,
     .padding_page = {},
     .padding_slot = 0,
     .reserved_page = 0,
     .inclusive_ends = true},
    {.name = "any", .about = "an engine of which nothing is known"},
};
inline constexpr const Engine& kSglang = kEngines[0];
inline constexpr const Engine& kSglangNpu = kEngines[1];
inline constexpr const Engine& kAnyEngine = kEngines[2];

}  // namespace shadowgraph
