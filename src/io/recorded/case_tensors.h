// What several families make of a case's tensors: the same memory seen otherwise, and lists that a
// call needs beside it.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "attn/cases/recorded_case.h"
#include "io/recorded/case_reader.h"

namespace shadowgraph {

/// Largest mask that a reader builds itself, in bytes.
inline constexpr int64_t kMaxVectorMask = int64_t{1} << 28;

/// A cache takes writable planes, since store_kv writes. Attention only reads them, and nothing
/// else is done with a case's.
TensorView cache_view(const ConstTensorView& view);

/// Dtype and shape of a view, without its memory.
TensorView without_memory(const ConstTensorView& view);
TensorView without_memory(DType dtype, std::initializer_list<int64_t> shape);

/// [a, b, rest...] seen as [b, a, rest...].
ConstTensorView swap_leading(ConstTensorView view);

/// [a, b, c], dense, copied to [a * c, b]: heads before rows become rows before heads.
ConstTensorView rows_before_heads(CaseReader& reader, const ConstTensorView& view);

/// [a, b, n] and [a, b, m], dense and of one type, copied side by side: [a, b, n + m].
ConstTensorView side_by_side(CaseReader& reader, const ConstTensorView& left,
                             const ConstTensorView& right);

/// Lists of chosen keys as [tokens, width]: sets keys' indices and width. False: a finding.
bool read_lists(CaseReader& reader, std::string_view name, std::string_view shape,
                ChosenKeys* keys);
/// Entries that are looked at are slots of the list's pool, or -1. The first of each token that is
/// neither is a finding at the token. Nothing after another finding: lists may not be walked then.
void check_chosen(CaseReader& reader, std::string_view name, const ChosenKeys& keys,
                  int64_t tokens);

/// Row-major page ids "batch ?", and how long a row is.
struct PageIds {
  std::span<const int32_t> ids;
  int64_t max_pages = 0;
};
PageIds read_page_ids(CaseReader& reader, std::string_view name);

/// Bits of the [q_len, kv_len] pairs of every request. A finding about the field if they take more
/// than kMaxVectorMask bytes.
CustomMask packed_mask(CaseReader& reader, std::string_view field, std::span<const int32_t> q_lens,
                       std::span<const int32_t> kv_lens,
                       const std::function<bool(size_t request, int64_t q, int64_t k)>& sees);

}  // namespace shadowgraph
