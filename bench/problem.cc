#include "bench/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>

#include "bench/team.h"
#include "check/bounds/compare.h"
#include "core/choices.h"
#include "core/float_formats.h"

namespace shadowgraph::bench {
namespace {

DType query_type(DType kv) { return is_fp8(kv) ? DType::kBF16 : kv; }

int32_t pages_of(int32_t keys) { return (keys + kPageSize - 1) / kPageSize; }

}  // namespace

HugeMemory random_memory(int64_t elements, DType t, uint64_t seed, int threads) {
  constexpr int64_t kBlock = 262'139;
  const auto size = static_cast<int64_t>(size_of(t));
  HugeMemory memory(static_cast<size_t>(elements * size));
  if (memory.empty()) throw std::bad_alloc();
  std::vector<std::byte> block(static_cast<size_t>(std::min(elements, kBlock) * size));
  Rng rng(seed);
  for (int64_t i = 0; i < std::min(elements, kBlock); ++i)
    store_float(block.data(), t, i, rng.signed_unit());
  const int64_t blocks = (elements + kBlock - 1) / kBlock;
  time_team(threads, [&](int thread) {
    for (int64_t b = blocks * thread / threads; b < blocks * (thread + 1) / threads; ++b) {
      const int64_t count = std::min(kBlock, elements - b * kBlock);
      std::memcpy(memory.data() + b * kBlock * size, block.data(),
                  static_cast<size_t>(count * size));
    }
  });
  return memory;
}

Problem::Problem(const Shape& shape, uint64_t seed, int threads, double cold_bytes)
    : shape_(shape) {
  if (shape_.threads == 0) shape_.threads = threads;
  make_tables(seed, cold_bytes);
  make_pool(seed);
  const int64_t rows = int64_t{shape_.batch} * shape_.q_len;
  const DType q_type = query_type(shape_.dtype);
  const int64_t q_row = int64_t{shape_.num_qo_heads} * shape_.head_dim_qk;
  const int64_t out_row = int64_t{shape_.num_qo_heads} * shape_.head_dim_vo;
  q_ = random_memory(rows * q_row, q_type, seed + 2, shape_.threads);
  out_ = random_memory(rows * out_row, q_type, seed + 3, shape_.threads);
  lse_.resize(static_cast<size_t>(rows * shape_.num_qo_heads));
  call_.q = TensorView(q_.data(), q_type, {rows, shape_.num_qo_heads, shape_.head_dim_qk});
  call_.out = TensorView(out_.data(), q_type, {rows, shape_.num_qo_heads, shape_.head_dim_vo});
  call_.lse = NaturalLse(TensorView(lse_.data(), DType::kF32, {rows, shape_.num_qo_heads}));
  if (!shape_.is_decode()) {
    for (int32_t i = 0; i <= shape_.batch; ++i) cu_seqlens_q_.push_back(i * shape_.q_len);
    call_.cu_seqlens_q = cu_seqlens_q_;
  }
  AttentionParams& p = call_.params;
  p.num_qo_heads = shape_.num_qo_heads, p.num_kv_heads = shape_.num_kv_heads;
  p.head_dim_qk = shape_.head_dim_qk, p.head_dim_vo = shape_.head_dim_vo;
  p.sm_scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim_qk));
  p.causal = !shape_.tree_mask;
  p.window_left = shape_.window_left;
  if (shape_.tree_mask) make_mask();
  call_.options.arith = shape_.fast_arith ? Arith::kFast : Arith::kPortable;
  call_.options.num_threads = shape_.threads;
  call_.options.isa = shape_.isa;
  use_table(0);
  plan_.resize(static_cast<size_t>(attention_plan_size(call_)));
  // Where this is refused the call is too, and says why.
  if (plan_attention(call_, plan_).ok()) call_.plan = plan_;
}

void Problem::make_tables(uint64_t seed, double cold_bytes) {
  int64_t visible = 0;  // pages of one table that some query sees
  for (int32_t i = 0; i < shape_.batch; ++i) {
    const int32_t keys = shape_.kv_len_of(i), pages = pages_of(keys);
    cache_seqlens_.push_back(keys);
    max_pages_ = std::max<int64_t>(max_pages_, pages);
    visible += pages - first_visible(shape_, i) / kPageSize;
  }
  if (!shape_.hot)
    num_tables_ = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(cold_bytes / kv_bytes())));
  num_pages_ = visible * num_tables_;
  std::vector<int32_t> ids(static_cast<size_t>(num_pages_));
  std::iota(ids.begin(), ids.end(), 0);
  Rng rng(seed);
  if (shape_.shuffled) shuffle(ids, rng);
  page_tables_.resize(static_cast<size_t>(num_tables_ * shape_.batch * max_pages_));
  size_t next = 0;
  for (int64_t row = 0; row < num_tables_ * shape_.batch; ++row) {
    const auto request = static_cast<int32_t>(row % shape_.batch);
    // Pages before the window: no key of theirs is seen, any page will do.
    const int32_t hidden = first_visible(shape_, request) / kPageSize;
    for (int32_t page = 0; page < pages_of(shape_.kv_len_of(request)); ++page) {
      page_tables_[static_cast<size_t>(row * max_pages_ + page)] =
          page < hidden ? ids[static_cast<size_t>(page) % ids.size()] : ids[next++];
    }
  }
}

void Problem::make_pool(uint64_t seed) {
  const DType t = shape_.dtype;
  const int64_t heads = shape_.num_kv_heads;
  const auto memory = [&](HugeMemory& owner, uint64_t s, std::initializer_list<int64_t> dims) {
    TensorView view(nullptr, t, dims);
    owner = random_memory(view.numel(), t, s, shape_.threads);
    view.data = owner.data();
    return view;
  };
  const int32_t qk = shape_.head_dim_qk, vo = shape_.head_dim_vo;
  switch (shape_.layout) {
    case Layout::kMlaLatent:
      call_.cache = KvCache::mla_latent(memory(k_, seed, {num_pages_, kPageSize, qk}), vo);
      break;
    case Layout::kNhd:
      call_.cache = KvCache::nhd(memory(k_, seed, {num_pages_, kPageSize, heads, qk}),
                                 memory(v_, seed + 1, {num_pages_, kPageSize, heads, vo}));
      break;
    case Layout::kPanels: {
      constexpr int64_t kPanels = kPageSize / kPanelTokens;
      call_.cache = KvCache::panels(
          memory(k_, seed, {num_pages_, heads, kPanels, key_panel_elements(t, qk)}),
          memory(v_, seed + 1, {num_pages_, heads, kPanels, value_panel_elements(vo)}), qk, vo);
      break;
    }
  }
}

void Problem::make_mask() {
  mask_indptr_ = {0};
  for (int32_t request = 0; request < shape_.batch; ++request) {
    const int64_t keys = shape_.kv_len_of(request), prefix = keys - shape_.q_len;
    for (int32_t token = 0; token < shape_.q_len; ++token) {
      std::vector<uint8_t> row(static_cast<size_t>(keys));
      std::fill_n(row.begin(), prefix, uint8_t{1});
      for (int32_t up = token; up >= 0; up = tree_parent(up))
        row[static_cast<size_t>(prefix + up)] = 1;
      mask_.insert(mask_.end(), row.begin(), row.end());
    }
    mask_indptr_.push_back(static_cast<int64_t>(mask_.size()));
  }
  call_.params.custom_mask = {CustomMask::Kind::kBool, mask_, mask_indptr_};
}

void Problem::use_table(int64_t table) {
  const auto size = static_cast<size_t>(shape_.batch * max_pages_);
  call_.pages =
      PageTable::dense(std::span(page_tables_).subspan(static_cast<size_t>(table) * size, size),
                       max_pages_, cache_seqlens_);
}

Status Problem::run() {
  use_table(next_);
  next_ = (next_ + 1) % num_tables_;
  return attention_with_kvcache(call_);
}

std::vector<float> Problem::plain(const KvPlane& plane, int32_t request) const {
  const int32_t keys = shape_.kv_len_of(request);
  const int32_t* pages = call_.pages.page_table.data() + request * max_pages_;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(keys) * shape_.num_kv_heads * plane.head_dim);
  for (int32_t key = 0; key < keys; ++key) {
    for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
      for (int32_t i = 0; i < plane.head_dim; ++i) {
        const int64_t at = plane.offset(pages[key / kPageSize], key % kPageSize, head, i);
        values.push_back(load_float(plane.data, plane.dtype, at));
      }
    }
  }
  return values;
}

std::vector<float> Problem::plain_keys(int32_t request) const {
  return plain(call_.cache.k, request);
}
std::vector<float> Problem::plain_values(int32_t request) const {
  return plain(call_.cache.v, request);
}

}  // namespace shadowgraph::bench
