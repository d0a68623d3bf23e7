// Every law that calls of the indexer and of the compressor can break is raised by an input that
// breaks it, faults are reported all at once, and each fault starts from a call that is accepted.
#include "attn/validate/validate_indexer.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attn/finding_ids.h"
#include "attn/validate/validate_compress.h"

namespace shadowgraph::validate_indexer_test {
namespace {

/// Memory of tensors, each far from the others.
class Memory {
 public:
  TensorView view(DType type, std::initializer_list<int64_t> shape) {
    bytes_.emplace_back(size_t{1} << 17);
    return {bytes_.back().data() + 4096, type, shape};
  }
  TensorView list(std::initializer_list<int64_t> shape, const std::vector<int32_t>& values) {
    const TensorView t = view(DType::kI32, shape);
    std::copy(values.begin(), values.end(), reinterpret_cast<int32_t*>(t.data));
    return t;
  }

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

/// What the call says once it is changed, after it was accepted as it was.
template <class Scene, class Change>
Ids broken(const Change& change) {
  Scene s;
  EXPECT_EQ(ids(validate(s.call)), Ids{});
  change(s);
  return ids(validate(s.call));
}

struct QuantScene {
  Memory m;
  ActQuant call;
  QuantScene() {
    call.x = m.view(DType::kBF16, {3, 256});
    call.y = m.view(DType::kE4M3, {3, 256});
    call.scale = m.view(DType::kF32, {3, 2});
  }
};

TEST(ValidateIndexer, ActQuant) {
  using S = QuantScene;
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.x = s.m.view(DType::kBF16, {3, 200});
            }),
            (Ids{"input.shape x.shape", "input.shape y.shape", "input.shape scale.shape"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.x.dtype = DType::kI32; }), Ids{"input.dtype x.dtype"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.y.dtype = DType::kU8, s.call.scale.data = nullptr; }),
            (Ids{"input.dtype y.dtype", "input.null scale.data"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.scale.data = s.call.y.data; }), Ids{"input.alias scale"});
}

struct StoreScene {
  Memory m;
  std::vector<int64_t> slots = {64, 127, 0};
  StoreIndexKeys call;
  StoreScene() {
    call.k = m.view(DType::kE4M3, {3, 128});
    call.k_scale = m.view(DType::kF32, {3});
    call.out_cache_loc = slots;
    call.pages = m.view(DType::kU8, {2, kIndexPageBytes});
  }
};

TEST(ValidateIndexer, StoreIndexKeys) {
  using S = StoreScene;
  EXPECT_EQ(broken<S>([](S& s) {
              s.slots = {INT64_MAX, 128, -1};
            }),
            (Ids{"slot.range out_cache_loc", "slot.range out_cache_loc"}));
  EXPECT_EQ(broken<S>([](S& s) { s.slots = {9, 64, 9}, s.call.first_slot = 64; }), Ids{});
  EXPECT_EQ(broken<S>([](S& s) { s.slots = {9, 1, 9}; }), Ids{"slot.duplicate out_cache_loc"});
  EXPECT_EQ(broken<S>([](S& s) { s.slots = {9, 64, 9}; }), Ids{"slot.duplicate out_cache_loc"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.pages = s.m.view(DType::kU8, {2, 8192});
            }),
            Ids{"input.shape pages.shape"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.out_cache_loc = s.call.out_cache_loc.first(2); }),
            (Ids{"input.shape k.shape", "input.shape k_scale.shape"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.pages.stride[0] = kIndexPageBytes - 1; }),
            Ids{"input.stride pages.stride"});
}

struct GatherScene {
  Memory m;
  std::vector<int32_t> cu = {0, 65, 65, 70};
  GatherIndexKeys call;
  GatherScene() {
    call.pages = m.view(DType::kU8, {4, kIndexPageBytes});
    call.page_table = m.list({3, 2}, {3, 0, -9, -9, 1, 99});
    call.cu_seqlens_k = cu;
    call.k = m.view(DType::kE4M3, {70, 128});
    call.k_scale = m.view(DType::kF32, {70});
  }
};

TEST(ValidateIndexer, GatherIndexKeys) {
  using S = GatherScene;
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.page_table = s.m.list({3, 2}, {4, -1, 0, 0, 1, 0});
            }),
            (Ids{"table.page_id page_table", "table.page_id page_table"}));
  EXPECT_EQ(broken<S>([](S& s) { s.cu = {0, 1, 0, 70}; }), Ids{"len.indptr_monotone cu_seqlens_k"});
  EXPECT_EQ(broken<S>([](S& s) { s.cu[3] = 71; }),
            (Ids{"input.shape k.shape", "input.shape k_scale.shape"}));
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.page_table = s.m.list({3, 1}, {3, 0, 1});
            }),
            Ids{"len.capacity cu_seqlens_k"});
}

struct LogitsScene {
  Memory m;
  std::vector<int32_t> rows = {1, 0}, ks = {2, 0}, ke = {65, 0};
  IndexerLogits call;
  LogitsScene() {
    call.q = m.view(DType::kE4M3, {2, 4, 128});
    call.weights = m.view(DType::kF32, {2, 4});
    call.pages = m.view(DType::kU8, {3, kIndexPageBytes});
    call.page_table = m.list({2, 2}, {7, 7, 0, 2});
    call.rows = rows, call.ks = ks, call.ke = ke;
    call.logits = m.view(DType::kF32, {2, 90});
  }
};
struct PackedScene : LogitsScene {
  PackedScene() {
    call.pages = call.page_table = {}, call.rows = {};
    call.k = m.view(DType::kE4M3, {70, 128});
    call.k_scale = m.view(DType::kF32, {70});
  }
};

TEST(ValidateIndexer, IndexerLogits) {
  using S = LogitsScene;
  EXPECT_EQ(broken<S>([](S& s) { s.rows[1] = 2, s.rows[0] = -1; }),
            (Ids{"table.pool_row rows", "table.pool_row rows"}));
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.page_table = s.m.list({2, 2}, {7, 7, 3, -1});
            }),
            (Ids{"table.page_id page_table", "table.page_id page_table"}));
  EXPECT_EQ(broken<S>([](S& s) { s.rows[1] = 0, s.ke[1] = 1; }), Ids{"table.page_id page_table"});
  EXPECT_EQ(broken<S>([](S& s) { s.ks[0] = -1, s.ks[1] = 1, s.ke[0] = 91; }),
            (Ids{"len.negative ks", "len.capacity ke", "len.negative ke"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.ks = s.call.ks.first(1), s.call.ke = {}; }),
            (Ids{"len.batch ks", "len.batch ke"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.rows = s.call.rows.first(1); }), Ids{"len.batch rows"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.rows = {}, s.call.page_table = s.m.list({1, 2}, {0, 0});
            }),
            Ids{"len.batch rows"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.k = s.m.view(DType::kE4M3, {70, 128});
            }),
            Ids{"input.shape k"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.weights = s.m.view(DType::kF32, {2, 3});
            }),
            Ids{"input.shape weights.shape"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.pages.data = s.call.logits.data; }),
            Ids{"input.alias logits"});
  using P = PackedScene;
  EXPECT_EQ(broken<P>([](P& s) { s.ke[0] = 71; }), Ids{"len.capacity ke"});
  EXPECT_EQ(broken<P>([](P& s) { s.call.rows = s.rows; }), Ids{"input.shape page_table"});
  EXPECT_EQ(broken<P>([](P& s) { s.call.k_scale = s.m.view(DType::kF32, {69}); }),
            Ids{"input.shape k_scale.shape"});
}

struct SelectScene {
  Memory m;
  std::vector<int32_t> ks = {0, 3}, ke = {5, 9};
  SelectIndices call;
  SelectScene() {
    call.logits = m.view(DType::kF32, {2, 9});
    call.ks = ks, call.ke = ke;
    call.indices = m.view(DType::kI32, {2, 4});
  }
};

TEST(ValidateIndexer, SelectIndices) {
  using S = SelectScene;
  EXPECT_EQ(broken<S>([](S& s) { s.ke[1] = 10, s.ks[0] = 6; }),
            (Ids{"len.negative ke", "len.capacity ke"}));
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.indices = s.m.view(DType::kI64, {2, 4});
            }),
            Ids{"input.dtype indices.dtype"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.indices = s.m.view(DType::kI32, {3, 4});
            }),
            Ids{"input.shape indices.shape"});
}

struct TransformScene {
  Memory m;
  std::vector<int32_t> rows = {1, 0}, offsets = {INT32_MAX - 5, 0};
  TransformIndices call;
  TransformScene() {
    call.indices = m.list({2, 3}, {5, -1, 0, 3, -1, 2});
    call.page_table_1 = m.view(DType::kI32, {2, 6});
    call.rows = rows;
    call.out = m.view(DType::kI32, {2, 3});
  }
};
struct OffsetScene : TransformScene {
  OffsetScene() { call.page_table_1 = {}, call.rows = {}, call.offsets = offsets; }
};

TEST(ValidateIndexer, TransformIndices) {
  using S = TransformScene;
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.page_table_1 = s.m.view(DType::kI32, {2, 3});
            }),
            (Ids{"table.capacity indices", "table.capacity indices"}));
  EXPECT_EQ(broken<S>([](S& s) { s.rows[0] = 2; }), Ids{"table.pool_row rows"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.offsets = s.offsets; }), Ids{"input.shape offsets"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.out = s.m.view(DType::kI32, {2, 4});
            }),
            Ids{"input.shape out.shape"});
  using P = OffsetScene;
  EXPECT_EQ(broken<P>([](P& s) { s.offsets[0] += 1; }), Ids{"len.overflow indices"});
  EXPECT_EQ(broken<P>([](P& s) { s.offsets[1] = -1; }), Ids{"len.negative offsets"});
  EXPECT_EQ(broken<P>([](P& s) { s.call.offsets = s.call.offsets.first(1); }),
            Ids{"len.batch offsets"});
  EXPECT_EQ(broken<P>([](P& s) { s.call.rows = s.rows; }), Ids{"input.shape rows"});
}

struct CompactScene {
  Memory m;
  std::vector<int32_t> indptr = {0, 2, 4}, kv_indices = std::vector<int32_t>(5);
  CompactIndices call;
  CompactScene() {
    call.indices = m.list({2, 3}, {5, -1, 0, 3, -1, 2});
    call.kv_indptr = indptr, call.kv_indices = kv_indices;
  }
};

TEST(ValidateIndexer, CompactIndices) {
  using S = CompactScene;
  EXPECT_EQ(broken<S>([](S& s) { s.indptr[1] = 1; }),
            (Ids{"len.q_extent kv_indptr", "len.q_extent kv_indptr"}));
  EXPECT_EQ(broken<S>([](S& s) { s.call.kv_indices = s.call.kv_indices.first(3); }),
            Ids{"len.total kv_indptr"});
  EXPECT_EQ(broken<S>([](S& s) { s.indptr[0] = 1; })[0], "len.indptr_first kv_indptr");
  EXPECT_EQ(broken<S>([](S& s) { s.call.kv_indices = s.indptr; })[0], "len.total kv_indptr");
}

struct CompressScene {
  Memory m;
  std::vector<int32_t> cu = {0, 2, 3}, lens = {4, 5, 8}, indices = {0, 2, 4}, extra = {-9, 0, 1};
  Compress call;
  CompressScene() {
    call.kv_score = m.view(DType::kBF16, {3, 32});
    call.ape = m.view(DType::kF32, {8, 8});
    call.cu_seqlens_q = cu, call.seq_lens = lens, call.indices = indices, call.extra = extra;
    call.state = m.view(DType::kF32, {5, 4, 32});
    call.out = m.view(DType::kBF16, {3, 8});
  }
};

TEST(ValidateCompress, Compress) {
  using S = CompressScene;
  EXPECT_EQ(broken<S>([](S& s) { s.call.shape.ratio = 1; }), Ids{"input.shape shape.ratio"});
  EXPECT_EQ(broken<S>([](S& s) { s.indices[2] = 2; }), Ids{"slot.duplicate indices"});
  EXPECT_EQ(broken<S>([](S& s) { s.extra[2] = 2; }), Ids{"slot.duplicate extra"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.indices = {0, -1, 0}, s.lens = {-4, 0, 8}, s.call.first_page = 1;
            }),
            Ids{});
  EXPECT_EQ(broken<S>([](S& s) { s.extra[2] = 5, s.indices[0] = 5; }),
            (Ids{"slot.range indices", "slot.range extra"}));
  EXPECT_EQ(broken<S>([](S& s) { s.lens[1] = 0; }), Ids{"len.negative seq_lens"});
  EXPECT_EQ(broken<S>([](S& s) { s.cu[2] = 4; }), Ids{"len.total cu_seqlens_q"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.extra = {}; }), Ids{"len.batch extra"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.cu_seqlens_q = {}; }).size(), 1U);
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.kv_score = s.m.view(DType::kBF16, {3, 30});
            }),
            (Ids{"input.shape kv_score.shape", "input.shape state.shape"}));
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.ape = s.m.view(DType::kF32, {4, 8});
            }),
            Ids{"input.shape ape.shape"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.state.dtype = DType::kBF16; }),
            Ids{"input.dtype state.dtype"});
}

struct PoolScene {
  Memory m;
  PoolNormRope call;
  PoolScene() {
    call.kv_score = m.view(DType::kF32, {2, 8, 32});
    call.ape = m.view(DType::kF32, {4, 16});
    call.weight = m.view(DType::kF32, {8});
    call.freqs = m.view(DType::kF32, {2, 4});
    call.out = m.view(DType::kBF16, {2, 8});
  }
};
struct NormScene {
  Memory m;
  NormRope call;
  NormScene() {
    call.x = m.view(DType::kF32, {2, 8});
    call.weight = m.view(DType::kF32, {8});
    call.freqs = m.view(DType::kF32, {2, 4});
    call.out = m.view(DType::kBF16, {2, 8});
  }
};

template <class S>
void expect_norm_laws() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(broken<S>([](S& s) { s.call.eps = 0; }), Ids{"param.scale eps"});
  EXPECT_EQ(broken<S>([&](S& s) { s.call.eps = nan; }), Ids{"param.scale eps"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.freqs = s.m.view(DType::kF32, {2, 3});
            }),
            Ids{"input.shape freqs.shape"});
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.freqs = s.m.view(DType::kF32, {2, 10});
            }),
            Ids{"input.shape freqs.shape"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.weight = s.m.view(DType::kF32, {7}); }),
            Ids{"input.shape weight.shape"});
  EXPECT_EQ(broken<S>([](S& s) { s.call.weight.data = s.call.out.data; }), Ids{"input.alias out"});
}

TEST(ValidateCompress, PoolNormRope) {
  using S = PoolScene;
  expect_norm_laws<S>();
  EXPECT_EQ(broken<S>([](S& s) { s.call.shape.ratio = 128; }),
            (Ids{"input.shape kv_score.shape", "input.shape ape.shape"}));
  EXPECT_EQ(broken<S>([](S& s) {
              s.call.ape = s.m.view(DType::kF32, {8, 8});
            }),
            Ids{"input.shape ape.shape"});
}

TEST(ValidateCompress, NormRope) { expect_norm_laws<NormScene>(); }

}  // namespace
}  // namespace shadowgraph::validate_indexer_test
