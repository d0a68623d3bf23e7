// Two tensors share a byte exactly where some byte of memory is an element's of both; and the
// layouts whose fields lie between each other are accepted by every call that meets them.
#include "attn/validate/shared_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "attn/finding_ids.h"
#include "attn/validate/validate.h"
#include "core/choices.h"

namespace shadowgraph::shared_bytes_test {
namespace {

// No element is read: addresses are all that counts.
const std::byte* address(int64_t byte) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<const std::byte*>(static_cast<uintptr_t>((int64_t{1} << 32) + byte));
}

ConstTensorView view(int64_t byte, DType type, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> stride) {
  return {address(byte), type, shape, stride};
}

/// Marks the bytes of a tensor, of which byte 0 of the marks is at `low`.
void mark(const ConstTensorView& t, int axis, int64_t element, int64_t low,
          std::vector<char>* marks) {
  if (axis < t.rank) {
    const auto a = static_cast<size_t>(axis);
    for (int64_t i = 0; i < t.shape[a]; ++i)
      mark(t, axis + 1, element + i * t.stride[a], low, marks);
    return;
  }
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  const int64_t first = t.data - address(low) + element * size;
  for (int64_t b = first; b < first + size; ++b) (*marks)[static_cast<size_t>(b)] = 1;
}

bool share_by_force(const ConstTensorView& a, const ConstTensorView& b) {
  constexpr int64_t kReach = 4096;
  std::vector<char> of_a(2 * kReach), of_b(2 * kReach);
  mark(a, 0, 0, -kReach, &of_a), mark(b, 0, 0, -kReach, &of_b);
  for (size_t i = 0; i < of_a.size(); ++i)
    if (of_a[i] != 0 && of_b[i] != 0) return true;
  return false;
}

ConstTensorView any_tensor(Rng& rng) {
  constexpr DType kTypes[] = {DType::kU8, DType::kF16, DType::kF32, DType::kI64};
  ConstTensorView t;
  t.data = address(rng.below(64));
  t.dtype = kTypes[rng.below(4)];
  t.rank = static_cast<int>(rng.below(5));
  const uint32_t widest = rng.below(3) == 0 ? 40 : 12;
  for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i) {
    t.shape[i] = rng.below(12) == 0 ? 0 : 1 + rng.below(4);
    t.stride[i] = static_cast<int64_t>(rng.below(widest)) - (rng.below(4) == 0 ? 12 : 0);
  }
  return t;
}

TEST(SharedBytes, IsWhatMarkingEveryByteSays) {
  Rng rng = Rng::stream(11, 0);
  int64_t sharing = 0, apart_inside = 0;
  for (int pair = 0; pair < 20000; ++pair) {
    const ConstTensorView a = any_tensor(rng), b = any_tensor(rng);
    const bool expected = share_by_force(a, b);
    for (const bool turned : {false, true}) {
      const SharedBytes got = turned ? shares_bytes(b, a) : shares_bytes(a, b);
      ASSERT_EQ(got, expected ? SharedBytes::kSome : SharedBytes::kNone) << "pair " << pair;
    }
    sharing += expected;
    apart_inside += !expected && a.rank > 0 && b.rank > 0;
  }
  EXPECT_GT(sharing, 4000);
  EXPECT_GT(apart_inside, 4000);
}

TEST(SharedBytes, OfManyPagesIsFoundAtOnce) {
  // A million pages of 3 and of 5 KiB fields: in one grid, and in grids of their own.
  const int64_t pages = 1000000;
  const ConstTensorView k = view(0, DType::kU8, {pages, 3072}, {8192, 1});
  const ConstTensorView v = view(3072, DType::kU8, {pages, 5120}, {8192, 1});
  EXPECT_EQ(shares_bytes(k, v), SharedBytes::kNone);
  EXPECT_EQ(shares_bytes(k, view(3071, DType::kU8, {pages, 5120}, {8192, 1})), SharedBytes::kSome);
  const ConstTensorView twice = view(3072, DType::kU8, {pages / 2, 5120}, {16384, 1});
  EXPECT_EQ(shares_bytes(k, twice), SharedBytes::kNone);
}

TEST(SharedBytes, GridsOfAllAxesAreSeenAtOnce) {
  const auto many = [](int64_t byte, int64_t a, int64_t b, int64_t c) {
    return view(byte, DType::kU8, {1 << 20, 1 << 20, 1 << 14}, {a, b, c});
  };
  EXPECT_EQ(shares_bytes(many(0, 6, 10, 14), many(1, 22, 26, 34)), SharedBytes::kNone)
      << "one has the even bytes, one the odd ones";
}

TEST(SharedBytes, StridesOfNoCommonGridAreRefusedByThatName) {
  // Thousands of floats apart but for the last axis, whose 999 are too few for the 500 between.
  const auto floats = [](int64_t first, std::initializer_list<int64_t> shape,
                         std::initializer_list<int64_t> stride) {
    TensorView t;
    t.data = const_cast<std::byte*>(address(4 * first));
    t.dtype = DType::kF32, t.rank = static_cast<int>(shape.size());
    std::ranges::copy(shape, t.shape.begin());
    std::ranges::copy(stride, t.stride.begin());
    return t;
  };
  MergeStates<LseBase::kNatural> call;
  call.v = floats(int64_t{1} << 40, {3000, 3000, 2, 1}, {6000, 2, 1, 1});
  call.s = floats(500, {3000, 3000, 2}, {997000, 991000, 999});
  call.lse = NaturalLse(floats(0, {3000, 2}, {983000, 1000}));
  call.out = floats(int64_t{1} << 41, {3000, 2, 1}, {2, 1, 1});
  EXPECT_EQ(validate(call).to_string(),
            "input.alias: lse is between its bytes, with strides of no common grid: not told apart "
            "in 1048576 steps, expected memory apart from s");
}

/// A pool of 3 pages, 4 tokens and 2 heads whose fields lie in records. Bytes count from `at`.
struct Records {
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  int64_t at = 1 << 14;

  TensorView field(int64_t byte, DType t, std::initializer_list<int64_t> shape,
                   std::initializer_list<int64_t> stride_bytes) {
    TensorView view(memory.data() + at + byte, t, shape);
    for (size_t i = 0; i < stride_bytes.size(); ++i)
      view.stride[i] = stride_bytes.begin()[i] / static_cast<int64_t>(size_of(t));
    return view;
  }
  /// [3, 4, 2, dim] in records of so many bytes, one a token and head.
  TensorView plane(int64_t byte, DType t, int64_t dim, int64_t record) {
    return field(byte, t, {3, 4, 2, dim},
                 {8 * record, 2 * record, record, static_cast<int64_t>(size_of(t))});
  }
  TensorView scales(int64_t byte, int64_t record) {
    return field(byte, DType::kF32, {3, 4, 2}, {8 * record, 2 * record, record});
  }
  /// 12 codes and their scale, of K and then of V.
  KvCache int8(int64_t v_scale_byte = 28) {
    return KvCache::nhd(plane(0, DType::kI8, 12, 32), plane(16, DType::kI8, 12, 32))
        .with_scales(scales(12, 32), scales(v_scale_byte, 32));
  }
  /// K of 24 and V of 16 in one record, from its byte on.
  KvCache wide(int64_t byte = 0, int64_t record = 80) {
    return KvCache::nhd(plane(byte, DType::kF16, 24, record),
                        plane(byte + 48, DType::kF16, 16, record));
  }
};

Ids store_into(const KvCache& cache) {
  const std::vector<float> k(2 * 2 * 24), v(2 * 2 * 24);
  const std::vector<int64_t> slots = {7, 2};
  StoreKv call;
  call.cache = cache, call.out_cache_loc = slots;
  call.k = ConstTensorView(k.data(), DType::kF32, {2, 2, cache.k.head_dim});
  call.v = ConstTensorView(v.data(), DType::kF32, {2, 2, cache.v.head_dim});
  EXPECT_EQ(ids(validate(call)), ids(store_kv(call)));
  return ids(validate(call));
}

Ids copy_between(const KvCache& source, const KvCache& target) {
  const CopyKv call{.source = source, .target = target, .whole_pool = true};
  return ids(validate(call));
}

TEST(SharedBytes, FieldsOfOneRecordAreApartInStoresAndCopies) {
  Records r, far;
  EXPECT_EQ(store_into(r.int8()), Ids{});
  EXPECT_EQ(copy_between(far.int8(), r.int8()), Ids{});
  EXPECT_EQ(store_into(r.wide()), Ids{});
  EXPECT_EQ(copy_between(far.wide(), r.wide()), Ids{});
  // Two layers in one allocation.
  EXPECT_EQ(store_into(r.wide(80, 160)), Ids{});
  EXPECT_EQ(copy_between(r.wide(0, 160), r.wide(80, 160)), Ids{});
  EXPECT_EQ(copy_between(r.wide(80, 160), r.wide(0, 160)), Ids{});
}

TEST(SharedBytes, EachOverlapInARecordIsOneFinding) {
  Records r;
  EXPECT_EQ(store_into(r.int8(24)), Ids{"input.alias v_cache.scales"}) << "over V's codes";
  EXPECT_EQ(store_into(r.int8(12)), Ids{"input.alias v_cache.scales"}) << "over K's scales";
  EXPECT_EQ(copy_between(r.wide(0, 160), r.wide(78, 160)), Ids{"input.alias target k_cache"});
  EXPECT_EQ(copy_between(r.wide(0, 160), r.wide(82, 160)), Ids{"input.alias target v_cache"})
      << "over the next record's K";
  EXPECT_EQ(copy_between(r.wide(0, 160), r.wide(0, 160)),
            (Ids{"input.alias target k_cache", "input.alias target v_cache"}));
}

TEST(SharedBytes, AGridOfPlacesIsRefusedWhereRecordsMeet) {
  // V's 32 bytes beside K's 48 in records of 96: apart in 48 .. 64 of each, and outside the pool.
  for (int64_t byte = -2 * 96; byte < 25 * 96; byte += 2) {
    Records r;
    KvCache cache = r.wide(0, 96);
    cache.v.data = r.memory.data() + r.at + byte;
    const int64_t in_record = (byte % 96 + 96) % 96, record = (byte - in_record) / 96;
    // V's records are record .. record + 23, K's are 0 .. 23; one that begins past 64 ends in the
    // next.
    const bool meets_own = in_record < 48 && record > -24 && record < 24;
    const bool meets_next = in_record > 64 && record > -25 && record < 23;
    const Ids expected = meets_own || meets_next ? Ids{"input.alias v_cache"} : Ids{};
    EXPECT_EQ(store_into(cache), expected) << byte;
  }
}

TEST(SharedBytes, RowsOfOneRecordAreApartInAttention) {
  // q, out and the LSE of 3 rows and 2 heads, 4 elements each, in records of 4 + 4 + 1 floats.
  Records r, pool;
  const std::vector<int32_t> table = {0, 1, 2}, lens = {4, 2, 3};
  const auto rows = [&](int64_t float_of_record) {
    return r.field(4 * float_of_record, DType::kF32, {3, 2, 4}, {72, 36, 4});
  };
  PagedAttention call;
  call.params.num_qo_heads = call.params.num_kv_heads = 2;
  call.params.head_dim_qk = call.params.head_dim_vo = 4;
  call.params.sm_scale = 1;
  call.cache = KvCache::nhd(pool.plane(0, DType::kF32, 4, 16), pool.plane(512, DType::kF32, 4, 16));
  call.pages = PageTable::dense(table, 1, lens);
  call.q = rows(0), call.out = rows(4);
  call.lse = NaturalLse(r.field(32, DType::kF32, {3, 2}, {72, 36}));
  EXPECT_EQ(ids(validate(call)), Ids{});
  EXPECT_EQ(ids(attention_with_kvcache(call)), Ids{});
  for (int64_t place = 0; place < 9; ++place) {
    PagedAttention moved = call;
    moved.lse.tensor.data = r.field(4 * place, DType::kF32, {1}, {4}).data;
    EXPECT_EQ(ids(validate(moved)), place == 8 ? Ids{} : Ids{"input.alias lse"}) << place;
  }
  PagedAttention over = call;
  over.out = rows(3);
  EXPECT_EQ(ids(validate(over)), Ids{"input.alias out"});
  over.out = rows(5);
  EXPECT_EQ(ids(validate(over)), Ids{"input.alias lse"});
}

TEST(SharedBytes, ALatentCacheIsMetOnce) {
  std::vector<float> latents(4 * 2 * 6), out(2 * 1 * 4);
  const std::vector<int32_t> table = {0, 1}, lens = {2, 1};
  PagedAttention call;
  call.params.num_qo_heads = call.params.num_kv_heads = 1;
  call.params.head_dim_qk = 6, call.params.head_dim_vo = 4;
  call.params.sm_scale = 1;
  call.cache = KvCache::mla_latent(TensorView(latents.data(), DType::kF32, {4, 2, 6}), 4);
  call.pages = PageTable::dense(table, 1, lens);
  std::vector<float> q(2 * 6);
  call.q = ConstTensorView(q.data(), DType::kF32, {2, 1, 6});
  call.out = TensorView(latents.data(), DType::kF32, {2, 1, 4});
  EXPECT_EQ(ids(validate(call)), Ids{"input.alias out"});
}

}  // namespace
}  // namespace shadowgraph::shared_bytes_test
