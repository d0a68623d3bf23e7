// Every law that the calls over chosen keys can break is raised by an input that breaks it, from a
// call that is accepted.
#include "attn/validate/validate_sparse.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace shadowgraph::validate_sparse_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using Ids = std::vector<std::string>;

Ids law_ids(const Status& status) {
  Ids all;
  for (const Finding& f : status.findings()) all.push_back(f.id);
  return all;
}

/// Memory of a tensor, far from all other.
class Memory {
 public:
  TensorView view(DType type, std::initializer_list<int64_t> shape) {
    return {bytes_.data() + kApart, type, shape};
  }

 private:
  static constexpr size_t kApart = 1 << 16;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kApart);
};

/// Three tokens, lists of four of eight packed slots, and offsets into six rows.
struct Call {
  Memory q, pool, rows, out, lse;
  std::vector<int32_t> indices = {0, 7, -1, 3, -1, -1, -1, -1, 5, 5, 99, 1}, lengths = {4, 1, 1};
  std::vector<int32_t> ragged = {0, 5, 2, 1, 4}, indptr = {0, 2, 2, 5};
  std::vector<float> sinks = {0, -kInf};
  SparseAttention call;

  Call() {
    call.q = q.view(DType::kBF16, {3, 2, 512});
    call.keys.pool = {pool.view(DType::kU8, {4, v4_page_bytes(2)}), LatentLayout::kV4, 2};
    call.keys.indices = indices, call.keys.width = 4, call.keys.lengths = lengths;
    call.extra.pool = {rows.view(DType::kBF16, {6, 512}), LatentLayout::kRows, 1};
    call.extra.indices = ragged, call.extra.indptr = indptr;
    call.sm_scale = 0.1F;
    call.sinks = sinks;
    call.out = out.view(DType::kBF16, {3, 2, 512});
    call.lse = NaturalLse(lse.view(DType::kF32, {3, 2}));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

void expect_ids(const Ids& expected, const std::function<void(Call&)>& change) {
  Call c;
  EXPECT_EQ(law_ids(validate(c.call)), Ids{});
  change(c);
  EXPECT_EQ(law_ids(validate(c.call)), expected);
}

TEST(ValidateSparse, Tensors) {
  expect_ids({"input.dtype"}, [](Call& c) { c.call.q.dtype = DType::kE5M2; });
  expect_ids({"input.stride"}, [](Call& c) { c.call.q.stride[2] = 2; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.out.shape[1] = 3; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.lse.tensor.shape[0] = 2; });
  expect_ids({"input.null"}, [](Call& c) { c.call.keys.pool.data.data = nullptr; });
  expect_ids({"input.alias"}, [](Call& c) { c.call.out.data = c.q.view(DType::kBF16, {1}).data; });
  expect_ids({}, [](Call& c) { c.call.lse = {}; });
  expect_ids({}, [](Call& c) { c.call.extra = {}; });
}

TEST(ValidateSparse, Parameters) {
  expect_ids({"param.scale"}, [](Call& c) { c.call.sm_scale = 0; });
  expect_ids({"param.sinks"}, [](Call& c) { c.sinks[0] = kInf; });
  expect_ids({"param.sinks"}, [](Call& c) { c.call.sinks = c.call.sinks.first(1); });
  expect_ids({"param.head_dim", "input.shape"}, [](Call& c) { c.call.head_dim_v = 513; });
}

TEST(ValidateSparse, Pools) {
  expect_ids({"input.shape"}, [](Call& c) { c.call.keys.pool.page_size = 0; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.keys.pool.page_size = 3; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.extra.pool.page_size = 2; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.keys.pool.layout = LatentLayout::kDsa; });
  expect_ids({"input.shape"}, [](Call& c) { c.call.extra.pool.data.shape[1] = 500; });
  expect_ids({"input.shape"}, [](Call& c) {
    c.call.extra.pool.data = c.rows.view(DType::kBF16, {6, 576});
  });
  expect_ids({"input.dtype"}, [](Call& c) { c.call.keys.pool.data.dtype = DType::kE4M3; });
  expect_ids({"input.shape"},
             [](Call& c) { c.call.keys.pool.layout = static_cast<LatentLayout>(9); });
}

TEST(ValidateSparse, Lists) {
  expect_ids({"list.slot"}, [](Call& c) { c.indices[1] = 8; });
  expect_ids({"list.slot", "list.slot"}, [](Call& c) { c.indices[1] = -2, c.ragged[4] = 6; });
  expect_ids({"list.duplicate"}, [](Call& c) { c.indices[1] = 3; });
  expect_ids({"list.slot", "list.duplicate"}, [](Call& c) { c.lengths[2] = 3; });
  expect_ids({"list.duplicate"}, [](Call& c) { c.ragged[4] = 1; });
  expect_ids({"len.negative"}, [](Call& c) { c.lengths[1] = -1; });
  expect_ids({"len.capacity"}, [](Call& c) { c.lengths[0] = 5; });
  expect_ids({"len.batch"}, [](Call& c) { c.call.keys.width = 3; });
  expect_ids({"len.batch"}, [](Call& c) { c.call.keys.lengths = c.call.keys.lengths.first(2); });
  expect_ids({"len.batch"}, [](Call& c) { c.call.extra.indptr = c.call.extra.indptr.first(3); });
  expect_ids({"len.indptr_first"}, [](Call& c) { c.indptr[0] = 1; });
  expect_ids({"len.indptr_monotone"}, [](Call& c) { c.indptr[1] = 3; });
  expect_ids({"len.total"}, [](Call& c) { c.indptr[3] = 6; });
}

TEST(ValidateSparse, AFindingNamesTokenEntryAndLimit) {
  Call c;
  c.indices[3] = 8;
  const Status status = validate(c.call);
  ASSERT_EQ(status.findings().size(), 1U);
  EXPECT_EQ(status.findings()[0].to_string(),
            "list.slot: keys.indices[0, 3] is 8, expected -1, or 0 <= slot < 8");
}

struct Pack {
  Memory latents, pool;
  std::vector<int64_t> slots = {7, -1, 0};
  PackLatents call;

  Pack() {
    call.latents = latents.view(DType::kF32, {3, 576});
    call.out_cache_loc = slots;
    call.pool = {pool.view(DType::kU8, {8, 656}), LatentLayout::kDsa, 1};
  }
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;
};

void expect_pack(const Ids& expected, const std::function<void(Pack&)>& change) {
  Pack p;
  EXPECT_EQ(law_ids(validate(p.call)), Ids{});
  change(p);
  EXPECT_EQ(law_ids(validate(p.call)), expected);
}

TEST(ValidateSparse, StoresOfLatents) {
  expect_pack({"slot.range"}, [](Pack& p) { p.slots[0] = 8; });
  expect_pack({"slot.duplicate"}, [](Pack& p) { p.slots[0] = 0; });
  expect_pack({"input.shape"}, [](Pack& p) { p.call.latents.shape[1] = 512; });
  expect_pack({"input.dtype"}, [](Pack& p) { p.call.latents.dtype = DType::kE4M3; });
  expect_pack({"input.shape"}, [](Pack& p) { p.call.pool.data.shape[1] = 600; });
  expect_pack({"input.stride"}, [](Pack& p) { p.call.pool.data.stride[0] = 0; });
  expect_pack({"input.alias"}, [](Pack& p) { p.call.latents.data = p.call.pool.data.data; });
}

}  // namespace
}  // namespace shadowgraph::validate_sparse_test
