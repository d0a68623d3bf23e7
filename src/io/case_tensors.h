// What several families make of a case's tensors: the same memory seen otherwise, and what a call
// needs beside it.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "io/case_reader.h"

namespace shadowgraph {

/// Largest mask that a reader builds itself, in bytes.
inline constexpr int64_t kMaxVectorMask = int64_t{1} << 28;

/// [a, b, rest...], dense, seen as [a * b, rest...].
ConstTensorView merge_leading(const ConstTensorView& view);

/// [a, b, c], dense, copied to [a * c, b]: heads before rows become rows before heads.
ConstTensorView rows_before_heads(CaseReader& reader, const ConstTensorView& view);

/// i32 [tokens], each from 0 to the lists' width.
std::span<const int32_t> read_list_lengths(CaseReader& reader, std::string_view name,
                                           int64_t tokens, int64_t width);

/// Entries that are looked at are slots of the list's pool, or -1. The first of each token that is
/// neither is a finding at the token. Nothing after another finding: lists may not be walked then.
void check_chosen(CaseReader& reader, std::string_view name, const ChosenKeys& keys,
                  int64_t tokens);

/// Row-major page ids [batch, any], and how long a row is.
struct PageIds {
  std::span<const int32_t> ids;
  int64_t max_pages = 0;
};
PageIds read_page_ids(CaseReader& reader, std::string_view name, int64_t batch);

/// Bits of the [q_len, kv_len] pairs of every request. A finding about the field if they take more
/// than kMaxVectorMask bytes.
CustomMask packed_mask(CaseReader& reader, std::string_view field, std::span<const int32_t> q_lens,
                       std::span<const int32_t> kv_lens,
                       const std::function<bool(size_t request, int64_t q, int64_t k)>& sees);

}  // namespace shadowgraph
