#include "kernels/sparse/index_lists.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "attn/index_page.h"
#include "attn/validate/validate_indexer.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/state_spans.h"

namespace shadowgraph {
namespace {

void store_i32(const TensorView& t, int64_t i, int64_t j, int32_t value) {
  std::memcpy(t.at(i, j), &value, sizeof value);
}

/// Larger numbers have larger keys; zeros are equal, NaN is as -inf.
uint32_t order_key(const std::byte* at) {
  float x;
  std::memcpy(&x, at, sizeof x);
  if (std::isnan(x)) x = -INFINITY;
  const auto bits = std::bit_cast<uint32_t>(x == 0 ? 0.F : x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

/// One token's choice. The key of the smallest that is kept is found byte by byte, of counts; then
/// one walk in the order of positions keeps what is above, and of what is equal as many as are
/// left.
class Selection {
 public:
  Selection(const SelectIndices& call, int64_t token)
      : call_(call), token_(token), first_(call.ks.empty() ? 0 : call.ks[at(token)]) {
    count_ = call.ke[at(token)] - first_;
  }

  void run() {
    const int64_t topk = call_.indices.shape[1];
    int64_t kept = 0;
    if (count_ > topk && topk > 0) find_threshold(topk);
    for (int64_t s = 0; s < count_ && kept < topk; ++s) {
      if (count_ > topk) {
        const uint32_t k = key(s);
        if (k < threshold_ || (k == threshold_ && equal_ == 0)) continue;
        equal_ -= k == threshold_;
      }
      store_i32(call_.indices, token_, kept++, static_cast<int32_t>(s));
    }
    for (; kept < topk; ++kept) store_i32(call_.indices, token_, kept, -1);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  uint32_t key(int64_t s) const { return order_key(call_.logits.at(token_, first_ + s)); }

  void find_threshold(int64_t wanted) {
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      std::array<int64_t, 256> counts{};
      for (int64_t s = 0; s < count_; ++s)
        if (const uint32_t k = key(s); (k & mask) == prefix) ++counts[k >> shift & 255];
      uint32_t byte = 255;
      for (; counts[byte] < wanted; --byte) wanted -= counts[byte];
      prefix |= byte << shift, mask |= 255U << shift;
    }
    threshold_ = prefix, equal_ = wanted;
  }

  const SelectIndices& call_;
  const int64_t token_, first_;
  int64_t count_ = 0, equal_ = 0;
  uint32_t threshold_ = 0;
};

template <class Fn>
void for_each_token(int64_t tokens, int threads, const Fn& fn) {
  parallel_for(tokens, team_size(threads, tokens), [&](int64_t t, int) { fn(t); });
}

int32_t transformed(const TransformIndices& call, int64_t token, int32_t index) {
  if (index < 0) return -1;
  if (!call.page_table_1.defined()) return index + call.offsets[static_cast<size_t>(token)];
  return load_i32(call.page_table_1, call.row(token), index);
}

}  // namespace

void select_indices_kernel(const SelectIndices& call) {
  for_each_token(call.logits.shape[0], call.options.num_threads,
                 [&](int64_t t) { Selection(call, t).run(); });
}

void transform_indices_kernel(const TransformIndices& call) {
  for_each_token(call.indices.shape[0], call.options.num_threads, [&](int64_t t) {
    for (int64_t j = 0; j < call.indices.shape[1]; ++j)
      store_i32(call.out, t, j, transformed(call, t, load_i32(call.indices, t, j)));
  });
}

void compact_indices_kernel(const CompactIndices& call) {
  for_each_token(call.indices.shape[0], call.options.num_threads, [&](int64_t t) {
    auto to = static_cast<size_t>(call.kv_indptr[static_cast<size_t>(t)]);
    for (int64_t j = 0; j < call.indices.shape[1]; ++j)
      if (const int32_t index = load_i32(call.indices, t, j); index >= 0)
        call.kv_indices[to++] = index;
  });
}

Footprint select_indices_footprint(const SelectIndices& call) {
  Footprint spans;
  add_list(&spans, call.ks);
  add_list(&spans, call.ke);
  const int64_t topk = call.indices.shape[1];
  for (int64_t t = 0; t < call.logits.shape[0]; ++t) {
    const auto i = static_cast<size_t>(t);
    const int64_t first = call.ks.empty() ? 0 : call.ks[i], count = call.ke[i] - first;
    // Where all are kept nobody asks how large they are.
    if (topk > 0 && count > topk) add_line(&spans, call.logits, t, first, count, Access::kRead);
    add_line(&spans, call.indices, t, Access::kWrite);
  }
  return spans;
}

Footprint transform_indices_footprint(const TransformIndices& call) {
  Footprint spans;
  add_list(&spans, call.rows);
  add_list(&spans, call.offsets);
  for (int64_t t = 0; t < call.indices.shape[0]; ++t) {
    const auto of = static_cast<int32_t>(t);
    add_line(&spans, call.indices, t, Access::kRead);
    for (int64_t j = 0; call.page_table_1.defined() && j < call.indices.shape[1]; ++j)
      if (const int32_t index = load_i32(call.indices, t, j); index >= 0)
        append(&spans, {call.page_table_1.data, call.page_table_1.offset(call.row(t), index), 1, 4,
                        Access::kRead, of});
    add_line(&spans, call.out, t, Access::kWrite);
  }
  return spans;
}

Footprint compact_indices_footprint(const CompactIndices& call) {
  Footprint spans;
  add_list(&spans, call.kv_indptr);
  for (int64_t t = 0; t < call.indices.shape[0]; ++t) {
    const auto i = static_cast<size_t>(t);
    add_line(&spans, call.indices, t, Access::kRead);
    if (const int32_t count = call.kv_indptr[i + 1] - call.kv_indptr[i]; count > 0)
      spans.push_back({call.kv_indices.data(), call.kv_indptr[i], count, 4, Access::kWrite,
                       static_cast<int32_t>(t)});
  }
  return spans;
}

Status select_indices(const SelectIndices& call) noexcept {
  return checked(call, [&] { select_indices_kernel(call); });
}
Status transform_indices(const TransformIndices& call) noexcept {
  return checked(call, [&] { transform_indices_kernel(call); });
}
Status compact_indices(const CompactIndices& call) noexcept {
  return checked(call, [&] { compact_indices_kernel(call); });
}

}  // namespace shadowgraph
