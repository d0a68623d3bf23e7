#include "io/recorded/case_tensors.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace shadowgraph {

TensorView cache_view(const ConstTensorView& view) {
  TensorView t;
  t.data = const_cast<std::byte*>(view.data);
  t.dtype = view.dtype, t.rank = view.rank, t.shape = view.shape, t.stride = view.stride;
  return t;
}

TensorView without_memory(const ConstTensorView& view) {
  TensorView t = cache_view(view);
  t.data = nullptr;
  return t;
}

TensorView without_memory(DType dtype, std::initializer_list<int64_t> shape) {
  return {nullptr, dtype, shape};
}

ConstTensorView swap_leading(ConstTensorView view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.stride[0], view.stride[1]);
  return view;
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

ConstTensorView side_by_side(CaseReader& reader, const ConstTensorView& left,
                             const ConstTensorView& right) {
  if (!left.defined() || !right.defined()) return {};
  const auto item = static_cast<int64_t>(size_of(left.dtype));
  const int64_t n = left.shape[2] * item, m = right.shape[2] * item;
  std::vector<std::byte> both;
  both.reserve(static_cast<size_t>(left.shape[0] * left.shape[1] * (n + m)));
  for (int64_t row = 0; row < left.shape[0] * left.shape[1]; ++row) {
    both.insert(both.end(), left.data + row * n, left.data + (row + 1) * n);
    both.insert(both.end(), right.data + row * m, right.data + (row + 1) * m);
  }
  return {reader.own(std::move(both)).data(),
          left.dtype,
          {left.shape[0], left.shape[1], left.shape[2] + right.shape[2]}};
}

bool read_lists(CaseReader& reader, std::string_view name, std::string_view shape,
                ChosenKeys* keys) {
  const ConstTensorView lists = reader.tensor(name, {DType::kI32}, shape);
  if (!lists.defined()) return false;
  keys->width = lists.shape[1];
  keys->indices = {reinterpret_cast<const int32_t*>(lists.data),
                   static_cast<size_t>(lists.numel())};
  return true;
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

PageIds read_page_ids(CaseReader& reader, std::string_view name) {
  const ConstTensorView table = reader.tensor(name, {DType::kI32}, "batch ?");
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
