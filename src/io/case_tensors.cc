#include "io/case_tensors.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace shadowgraph {

ConstTensorView merge_leading(const ConstTensorView& view) {
  if (!view.defined()) return view;
  if (view.rank == 3)
    return {view.data, view.dtype, {view.shape[0] * view.shape[1], view.shape[2]}};
  return {view.data, view.dtype, {view.shape[0] * view.shape[1], view.shape[2], view.shape[3]}};
}

ConstTensorView rows_before_heads(CaseReader& reader, const ConstTensorView& view) {
  if (!view.defined()) return view;
  const int64_t a = view.shape[0], b = view.shape[1], c = view.shape[2];
  const size_t item = size_of(view.dtype);
  std::vector<std::byte> rows(static_cast<size_t>(a * b * c) * item);
  for (int64_t i = 0; i < a * b * c; ++i) {
    const int64_t from = i % b * c + i / b % c + i / (b * c) * (b * c);
    std::memcpy(rows.data() + static_cast<size_t>(i) * item,
                view.data + static_cast<size_t>(from) * item, item);
  }
  return {reader.own(std::move(rows)).data(), view.dtype, {a * c, b}};
}

std::span<const int32_t> read_list_lengths(CaseReader& reader, std::string_view name,
                                           int64_t tokens, int64_t width) {
  const std::span<const int32_t> lengths = reader.indices(name, tokens);
  for (size_t t = 0; t < lengths.size(); ++t)
    if (lengths[t] < 0 || lengths[t] > width)
      reader.bad_tensor(name, "0 to " + std::to_string(width) + " entries",
                        std::to_string(lengths[t]), static_cast<int64_t>(t));
  return lengths;
}

void check_chosen(CaseReader& reader, std::string_view name, const ChosenKeys& keys,
                  int64_t tokens) {
  if (!reader.ok()) return;
  const int64_t slots = keys.pool.slots();
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<const int32_t> list = keys.of(t);
    const auto bad = std::ranges::find_if(list, [&](int32_t i) { return i < -1 || i >= slots; });
    if (bad != list.end())
      reader.bad_tensor(name, "-1, or a slot below " + std::to_string(slots), std::to_string(*bad),
                        t);
  }
}

PageIds read_page_ids(CaseReader& reader, std::string_view name, int64_t batch) {
  const ConstTensorView table = reader.tensor(name, {DType::kI32}, {batch, -1});
  if (!table.defined()) return {};
  return {{reinterpret_cast<const int32_t*>(table.data), static_cast<size_t>(table.numel())},
          table.shape[1]};
}

CustomMask packed_mask(CaseReader& reader, std::string_view field, std::span<const int32_t> q_lens,
                       std::span<const int32_t> kv_lens,
                       const std::function<bool(size_t request, int64_t q, int64_t k)>& sees) {
  std::vector<int64_t> indptr(1, 0);
  for (size_t r = 0; r < q_lens.size(); ++r) {
    indptr.push_back(indptr.back() + (int64_t{q_lens[r]} * kv_lens[r] + 7) / 8);
    if (indptr.back() > kMaxVectorMask) {
      reader.bad_field(field, "a mask of at most " + std::to_string(kMaxVectorMask) + " bytes",
                       "more");
      return {};
    }
  }
  std::vector<uint8_t> bits(static_cast<size_t>(indptr.back()), 0);
  for (size_t r = 0; r < q_lens.size(); ++r) {
    for (int64_t pair = 0; pair < int64_t{q_lens[r]} * kv_lens[r]; ++pair) {
      const bool bit = sees(r, pair / kv_lens[r], pair % kv_lens[r]);
      bits[static_cast<size_t>(indptr[r] + pair / 8)] |= static_cast<uint8_t>(bit << (pair % 8));
    }
  }
  return {CustomMask::Kind::kPacked, reader.own(std::move(bits)), reader.own(std::move(indptr))};
}

}  // namespace shadowgraph
