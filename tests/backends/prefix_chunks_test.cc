// A prefix in chunks: each of its tokens in one of them, and the result that of pages, bit for bit
// where one part decides it.
#include "backends/fill/prefix_chunks.h"

#include <cmath>
#include <limits>
#include <vector>

#include "attn/finding_ids.h"
#include "backends/forward_world.h"

namespace shadowgraph::prefix_chunks_test {
namespace {

using enum ForwardMode;
using enum SeqLensKind;
using Fa = FlashAttention;

constexpr int32_t kRope = 8, kLatent = kDim + kRope, kRows = 3, kMaxKv = 24;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();

ModelConfig latent_model(int32_t chunk_tokens, int32_t page_size = 4) {
  ModelConfig m = model(page_size);
  m.swa_pool = false;
  m.layers = {kind()};
  m.layers[0].mla = true;
  m.layers[0].params.head_dim_qk = kLatent;
  m.prefix_chunk_tokens = chunk_tokens;
  return m;
}
Limits limits_of(const ModelConfig& m, ForwardMode mode = kExtend) {
  return Limits::bucket(mode, kRows, 4, m);
}

struct Batch : OwnedBatch {
  Batch(Ints prefix, Ints added, int32_t page_size = 4, ForwardMode m = kExtend)
      : OwnedBatch(m, kPrefix, std::move(prefix), std::move(added)) {
    set_pages(page_size, kMaxKv);
  }
};

TEST(PrefixChunks, EveryTokenOfAPrefixIsInOneChunk) {
  for (int32_t tokens = 1; tokens <= 70; ++tokens) {
    for (int32_t rows = 1; rows <= 4; ++rows) {
      Limits limits = limits_of(latent_model(tokens));
      limits.rows = rows, limits.max_kv_len = 17;
      const PrefixChunks chunks = PrefixChunks::of(limits);
      ASSERT_EQ(chunks.one_shot, rows * 17 <= tokens);
      // They fit, if every request has at least one token of each.
      ASSERT_LE(rows * chunks.len, std::max(tokens, rows));
      for (int32_t prefix = 0; prefix <= 17; ++prefix) {
        const RequestExtent e{prefix, 17 - prefix, 17};
        int32_t next = 0, parts = 1;
        for (int32_t c = 0; c < chunks.count; ++c) {
          const ChunkKeys keys = chunks.keys(c, e);
          ASSERT_EQ(keys.first, next);
          ASSERT_LE(keys.end - keys.first, chunks.len);
          next = keys.end;
          parts += !chunks.one_shot && keys.end > keys.first;
        }
        ASSERT_EQ(next, chunks.one_shot ? e.kv_len : prefix);
        ASSERT_EQ(chunks.parts(e), parts);
      }
    }
  }
}

TEST(PrefixChunks, ArePrefillsAndLatentsAlone) {
  for (int m = 0; m < kNumForwardModes; ++m) {
    const auto mode = static_cast<ForwardMode>(m);
    const bool prefill = mode == kExtend || mode == kMixed || mode == kSplitPrefill;
    EXPECT_EQ(PrefixChunks::of(limits_of(latent_model(9), mode)).count > 0, prefill)
        << name_of(mode);
  }
  const auto any = [](auto change) {
    ModelConfig m = latent_model(9);
    change(m, m.layers[0]);
    return PrefixChunks::of(limits_of(m)).count > 0;
  };
  EXPECT_FALSE(any([](ModelConfig& m, LayerKind&) { m.prefix_chunk_tokens = 0; }));
  EXPECT_FALSE(any([](ModelConfig&, LayerKind& k) { k.mla = false; }));
  EXPECT_FALSE(any([](ModelConfig&, LayerKind& k) { k.local = true; }));
  EXPECT_FALSE(any([](ModelConfig&, LayerKind& k) { k.cross = true; }));
  EXPECT_FALSE(any([](ModelConfig&, LayerKind& k) { k.params.window_left = 3; }));
}

TEST(PrefixChunks, AllKeysAreOneCallWhereTheirSumFits) {
  const Batch b({2, 9}, {3, 1});  // 5 + 10 keys
  for (const int32_t tokens : {14, 15}) {
    const Limits limits = Limits::exact(b, latent_model(tokens));
    EXPECT_EQ(limits.sum_kv_lens, 15);
    EXPECT_EQ(PrefixChunks::of(limits).one_shot, tokens == 15);
  }
  BoundStep s(kFa, Limits::exact(b, latent_model(15)));
  EXPECT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(ids(s.refill(Batch({6, 9}, {1, 1}))), (Ids{"batch.capacity seq_lens"}));
}

TEST(PrefixChunks, WhoHasNoneRefusesThem) {
  World w(limits_of(latent_model(0)), true);
  Meta meta;
  ModelConfig m = latent_model(9, 32);
  m.attention_chunk = 0;
  const auto bound = [&](const char* name, ForwardMode mode) {
    return ids(find_backend(name)->bind(w.arena().scope(name_of(mode)),
                                        Limits::bucket(mode, 2, 1, m), &meta));
  };
  EXPECT_EQ(bound("trtllm_mla", kDecode), (Ids{"backend.limits prefix_chunk_tokens"}));
  // Whose decodes read none, whoever runs them.
  EXPECT_EQ(bound("trtllm_mla_flashattention", kDecode), Ids{});
  EXPECT_EQ(bound("trtllm_mla_flashattention", kExtend), Ids{});
}

TEST(PrefixChunks, ACapacityBelowZeroIsRefused) {
  SimDevice device;
  Meta meta;
  const Status status = kFa.bind(Arena(device, 1 << 16), limits_of(latent_model(-1)), &meta);
  EXPECT_NE(status.to_string().find("backend.limits: prefix_chunk_tokens"), std::string::npos)
      << status.to_string();
}

/// The slots of each request in all chunks together, in order.
std::vector<Ints> slots_of(BoundStep& s, Fa::BufferId offsets) {
  const Ints cu = s.ints(offsets);
  const Longs all = s.slots(Fa::kChunkSlots);
  const auto width = static_cast<size_t>(s.columns(Fa::kChunkSlots));
  std::vector<Ints> of_request(kRows);
  for (size_t c = 0; c < all.size() / width; ++c) {
    const auto* of_chunk = &cu[c * (kRows + 1)];
    EXPECT_EQ(of_chunk[0], 0);
    for (size_t i = 0; i < kRows; ++i)
      for (auto t = of_chunk[i]; t < of_chunk[i + 1]; ++t)
        of_request[i].push_back(static_cast<int32_t>(all[c * width + static_cast<size_t>(t)]));
  }
  return of_request;
}

TEST(PrefixChunksFill, OffsetsAndSlotsOfEachChunk) {
  BoundStep s(kFa, limits_of(latent_model(10)));  // 3 of a request
  const Batch b({7, 2}, {2, 1});
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.meta[Fa::kChunkCuSeqlensK].shape[0], 8);
  EXPECT_EQ(s.row(Fa::kChunkCuSeqlensK, 0, 4), (Ints{0, 3, 5, 5}));
  EXPECT_EQ(s.row(Fa::kChunkCuSeqlensK, 1, 4), (Ints{0, 3, 3, 3}));
  EXPECT_EQ(s.row(Fa::kChunkCuSeqlensK, 2, 4), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(s.row(Fa::kChunkCuSeqlensK, 3, 4), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(s.columns(Fa::kChunkSlots), 9);
}

/// fa.I-81.
TEST(PrefixChunksFill, ChunksTogetherAreThePrefixAndPaddingHasNothing) {
  for (const int32_t chunk : {1, 4, 9, 16, 30, 64}) {
    BoundStep s(kFa, limits_of(latent_model(chunk)));
    for (const Ints& prefix : {Ints{9, 0}, {0, 0}, {20, 5}, {3}}) {
      const Batch b(prefix, Ints(prefix.size(), 2));
      ASSERT_EQ(s.fill(b).to_string(), "ok");
      const std::vector<Ints> got = slots_of(s, Fa::kChunkCuSeqlensK);
      for (size_t i = 0; i < kRows; ++i) {
        const bool real = i < prefix.size();
        ASSERT_EQ(got[i], real ? tokens(b, static_cast<int64_t>(i), 0, prefix[i]) : Ints{})
            << chunk;
      }
    }
  }
}

TEST(PrefixChunksFill, WhereAllKeysFitTheyAreOneChunkWithTheNewTokens) {
  BoundStep s(kFa, limits_of(latent_model(kRows * kMaxKv)));
  const Batch b({9, 0}, {2, 4});
  ASSERT_EQ(s.fill(b).to_string(), "ok");
  EXPECT_EQ(s.ints(Fa::kCuSeqlensK), (Ints{0, 11, 15, 15}));
  const std::vector<Ints> got = slots_of(s, Fa::kCuSeqlensK);
  EXPECT_EQ(got[0], tokens(b, 0, 0, 11));
  EXPECT_EQ(got[1], tokens(b, 1, 0, 4));
  EXPECT_FALSE(s.meta.has(Fa::kPrefixOut));
}

/// A key is the value of its slot, and a code of its own; a query picks one of them.
class Picked {
 public:
  static constexpr float kHeavy = 256;

  Picked(World* w, const std::vector<Ints>& seen, size_t pick) {
    const World::Tensors& t = w->layer(0);
    std::vector<float> q(static_cast<size_t>(t.q.numel())), k(static_cast<size_t>(t.k.numel())),
        new_k(static_cast<size_t>(t.new_k.numel()), -1);
    for (int32_t slot = 0; slot < kPages * 4; ++slot) put(&k, static_cast<size_t>(slot), slot);
    for (size_t query = 0; query < seen.size(); ++query) {
      const int32_t own = seen[query].back(), picked = seen[query][pick % seen[query].size()];
      // What the step stores is not there before it.
      std::fill_n(k.begin() + own * kLatent, kLatent, -1.0f);
      put(&new_k, query, own);
      for (size_t h = 0; h < kHeads; ++h)
        for (int32_t d = 0; d < kRope; ++d)
          q[(query * kHeads + h) * kLatent + static_cast<size_t>(kDim + d)] =
              kHeavy * code(picked, d);
    }
    w->write(t.q, 0, q), w->write(t.k, 0, k), w->write(t.new_k, 0, new_k);
  }

 private:
  static float code(int32_t slot, int32_t d) { return (slot >> d & 1) != 0 ? 1.f : -1.f; }
  static void put(std::vector<float>* k, size_t row, int32_t slot) {
    const auto at = k->begin() + static_cast<std::ptrdiff_t>(row) * kLatent;
    std::fill_n(at, kDim, static_cast<float>(slot));
    for (int32_t d = 0; d < kRope; ++d) at[kDim + d] = code(slot, d);
  }
};

/// The slots that each query sees, its own last.
std::vector<Ints> seen_by(const Batch& b) {
  std::vector<Ints> seen;
  for (int64_t i = 0; i < b.size(); ++i) {
    const RequestExtent e = b.extent(i);
    for (int32_t p = e.prefix_len; p < e.kv_len; ++p) seen.push_back(tokens(b, i, 0, p + 1));
  }
  return seen;
}

TEST(PrefixChunksForward, APickedKeyIsTheResultWhicheverPartHasIt) {
  const Batch b({9, 5}, {3, 4});
  const std::vector<Ints> seen = seen_by(b);
  for (const int32_t chunk : {1, 6, 14, 24, 72}) {
    World w(limits_of(latent_model(chunk)), true);
    for (size_t pick = 0; pick < 12; ++pick) {
      const Picked picked(&w, seen, pick);
      w.run(b);
      for (size_t query = 0; query < seen.size(); ++query) {
        const auto value = static_cast<float>(seen[query][pick % seen[query].size()]);
        ASSERT_EQ(w.got(0, static_cast<int64_t>(query)), std::vector<float>(kHeads * kDim, value))
            << chunk << " " << pick << " " << query;
      }
    }
  }
}

/// The layer's results, held bit for bit against those of pages.
void expect_bits_of_pages(const World& w, const Batch& b) {
  const std::vector<Ints> seen = seen_by(b);
  for (size_t query = 0; query < seen.size(); ++query) {
    const auto at = static_cast<int64_t>(query);
    ASSERT_EQ(w.got(0, at), w.expected(0, at, seen[query])) << query;
  }
}

TEST(PrefixChunksForward, AllKeysAtOnceHaveTheBitsOfPages) {
  for (const ForwardMode mode : {kExtend, kMixed, kSplitPrefill}) {
    for (const int32_t page_size : {2, 4}) {
      const Batch b({9, 0}, {3, 4}, page_size, mode);
      World w(limits_of(latent_model(kRows * kMaxKv, page_size), mode), true);
      w.run(b);
      expect_bits_of_pages(w, b);
    }
  }
}

TEST(PrefixChunksForward, ScalesOfThePoolAreThoseOfItsChunks) {
  const Batch b({9, 0}, {3, 4});
  World w(limits_of(latent_model(kRows * kMaxKv)), true);
  w.k_scale = 0.5f, w.v_scale = 4;  // exact, and not the same
  w.run(b);
  expect_bits_of_pages(w, b);
}

TEST(PrefixChunksForward, RequestsWithoutPrefixHaveTheBitsOfPages) {
  const Batch b({0, 0}, {3, 4});
  World w(limits_of(latent_model(9)), true);
  w.run(b);
  expect_bits_of_pages(w, b);
}

/// fa.I-81.
TEST(PrefixChunksForward, AChunkWithoutKeysIsEmptyAndChangesNoBit) {
  const Batch b({4, 0}, {3, 4});
  // The prefix is the first chunk; then there is one for each 4 keys that others may have.
  World few(limits_of(latent_model(12)), true);
  Limits wider = limits_of(latent_model(12));
  wider.max_kv_len = 9;
  World many(wider, true);
  few.run(b), many.run(b);
  for (int64_t query = 0; query < 7; ++query) {
    ASSERT_EQ(few.got(0, query), many.got(0, query));
    const float* out = World::row(few.meta[Fa::kPrefixOut], query);
    const float* lse = World::row(few.meta[Fa::kPrefixLse], query);
    ASSERT_EQ(std::vector<float>(out, out + kHeads * kDim), std::vector<float>(kHeads * kDim, 0));
    ASSERT_EQ(std::vector<float>(lse, lse + kHeads), std::vector<float>(kHeads, kEmpty));
  }
}

/// fa.I-79.
TEST(PrefixChunksForward, ASinkIsCountedOnce) {
  const Batch b({9, 5}, {3, 4});
  const std::vector<Ints> seen = seen_by(b);
  World w(limits_of(latent_model(9)), true);
  // As heavy as the picked key: half of its value is left.
  const std::vector<float> sinks(kHeads, Picked::kHeavy * kRope);
  const Buffer on_device = w.bind_values("sinks", sinks);
  w.meta.limits.model.layers[0].params.sinks = {reinterpret_cast<const float*>(on_device.data),
                                                kHeads};
  const Picked picked(&w, seen, 2);
  w.run(b);
  for (size_t query = 0; query < seen.size(); ++query) {
    const float half = static_cast<float>(seen[query][2 % seen[query].size()]) / 2;
    ASSERT_EQ(w.got(0, static_cast<int64_t>(query)), std::vector<float>(kHeads * kDim, half));
  }
}

}  // namespace
}  // namespace shadowgraph::prefix_chunks_test
