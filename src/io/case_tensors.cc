#include "io/case_tensors.h"

#include <cstring>
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
