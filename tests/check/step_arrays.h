// A step in memory and right arrays of it, each of which a test may change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph/engine/batch.h"
#include "shadowgraph/judge.h"

namespace shadowgraph::testing {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Laws = std::vector<std::string>;

/// Two requests in pages of 4 slots, behind prefixes of 3 and 4 tokens: 5 keys in pages 2 and 5, 8
/// keys in pages 3 and 10. Its arrays have two rows of padding.
struct StepArrays {
  Ints pool_rows = {1, 0}, seq_lens = {5, 8}, extend_lens = {2, 4};
  Ints map = {12, 13, 14, 15, 40, 41, 42, 43,  //
              8,  9,  10, 11, 20, 0,  0,  0};
  ForwardMode mode = ForwardMode::kExtend;
  Longs batch_slots, batch_positions;

  Ints kv_lens = {5, 8, 0, 1}, q_lens = {2, 4, 0, 1}, cu_seqlens_q = {0, 2, 6, 6, 7};
  Ints cu_seqlens_k = {0, 5, 13, 13, 14};
  Ints page_table = {2, 5, 3, 10, 0, 0, 7, 0};        // [4, 2]
  Ints slot_table = {8,  9,  10, 11, 20, -1, -1, -1,  //
                     12, 13, 14, 15, 40, 41, 42, 43,  //
                     0,  0,  0,  0,  0,  0,  0,  0,   //
                     7,  0,  0,  0,  0,  0,  0,  0};
  Ints kv_indptr = {0, 2, 4, 4, 5};
  Longs kv_indices = {2, 5, 3, 10, 0};
  Ints slot_indptr = {0, 5, 13};
  Ints slot_indices = {8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43};
  Ints last_page_len = {1, 4, 0, 1};
  Longs slots = {11, 20, 40, 41, 42, 43, -1, 99};
  Longs positions = {3, 4, 4, 5, 6, 7};
  std::vector<uint8_t> mask = std::vector<uint8_t>(2 * 5 + 4 * 8, 1);
  int64_t max_seqlen_q = 4, max_seqlen_k = 8;
  JudgeOptions options = {.page_size = 4, .pool_pages = 32, .max_context_len = 8};

  StepArrays() {
    mask[4] = 0;  // the first query of request 0 does not see the second
    for (size_t q = 0; q < 4; ++q)
      for (size_t k = 5 + q; k < 8; ++k) mask[10 + q * 8 + k] = 0;
  }

  ForwardBatch batch() const {
    ForwardBatch b;
    b.mode = mode;
    b.req_pool_indices = pool_rows, b.seq_lens = seq_lens;
    if (mode == ForwardMode::kExtend) b.extend_lens = extend_lens;
    b.req_to_token = {map, 8};
    b.out_cache_loc = batch_slots, b.positions = batch_positions;
    return b;
  }

  template <class T>
  static RoleValue vector(std::string_view role, const std::vector<T>& v, int32_t unit = 0) {
    const DType type = sizeof(T) == 8 ? DType::kI64 : sizeof(T) == 4 ? DType::kI32 : DType::kU8;
    return {.role = role,
            .values = ConstTensorView(v.data(), type, {std::ssize(v)}),
            .number = {},
            .unit = unit};
  }
  static RoleValue number(std::string_view role, int64_t n) {
    return {.role = role, .values = {}, .number = n};
  }
  static RoleValue table(std::string_view role, const Ints& v, int64_t width, int32_t unit) {
    return {.role = role,
            .values = ConstTensorView(v.data(), DType::kI32, {std::ssize(v) / width, width}),
            .number = {},
            .unit = unit};
  }

  std::vector<RoleValue> values() const {
    return {vector("kv_lens", kv_lens),
            vector("q_lens", q_lens),
            vector("cu_seqlens_q", cu_seqlens_q),
            vector("cu_seqlens_k", cu_seqlens_k),
            table("page_table", page_table, 2, 4),
            table("page_table", slot_table, 8, 1),
            vector("kv_indptr", kv_indptr),
            vector("kv_indices", kv_indices),
            vector("last_page_len", last_page_len),
            vector("slots", slots),
            vector("positions", positions),
            vector("custom_mask", mask),
            number("max_seqlen_q", max_seqlen_q),
            number("max_seqlen_k", max_seqlen_k)};
  }
  Status judged() const { return judge(batch(), values(), options); }
};

/// "law field row col" of each finding.
inline Laws laws_at(const Status& status) {
  Laws s;
  for (const Finding& f : status.findings())
    s.push_back(f.id + ' ' + f.where.field + f.where.index());
  return s;
}

}  // namespace shadowgraph::testing
