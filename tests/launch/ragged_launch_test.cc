// Attention launches whose tensors are longer than the batch: rows that are padding, and queries
// past max_seqlen_q. Paged over the slots of a cache and ragged over the same keys: one bit
// pattern.
#include "launch/ragged_launch.h"

#include <algorithm>
#include <cmath>

#include "launch/attention_launch.h"
#include "launch/launch_world.h"

namespace shadowgraph::ragged_launch_test {
namespace {

constexpr int64_t kRows = 12, kTokens = 24, kBatch = 3;
constexpr int32_t kHeads = 4, kKvHeads = 2, kDimQk = 16, kDimVo = 8;
const Ints kCuQ = {0, 3, 4, 8}, kCuK = {0, 5, 6, 17};
constexpr float kNever = 8;  // bytes of out that nobody writes hold it

/// Queries, keys and values of three requests, and behind them rows that are never written.
class World : public LaunchWorld {
 public:
  explicit World(bool causal = true) : causal_(causal) {
    q = bind("q", DType::kF32, {kRows, kHeads, kDimQk}, kHeads * kDimQk);
    k = bind("k", DType::kF32, {kTokens, kKvHeads, kDimQk}, kKvHeads * kDimQk);
    v = bind("v", DType::kF32, {kTokens, kKvHeads, kDimVo}, kKvHeads * kDimVo);
    out = bind("out", DType::kF32, {kRows, kHeads, kDimVo}, kHeads * kDimVo);
    lse = bind("lse", DType::kF32, {kRows, kHeads}, kHeads);
    give(q, kCuQ.back()), give(k, kCuK.back()), give(v, kCuK.back());
    cu_q = bind_values("cu_q", DType::kI32, kCuQ);
    cu_k = bind_values("cu_k", DType::kI32, kCuK);
    Ints table_of_slots, keys;
    for (size_t i = 0; i < kBatch; ++i) {
      keys.push_back(kCuK[i + 1] - kCuK[i]);
      for (int32_t j = 0; j < kTokens; ++j) table_of_slots.push_back(kCuK[i] + j);
    }
    table = bind_values("table", DType::kI32, table_of_slots);
    lens = bind_values("lens", DType::kI32, keys);
  }
  RaggedAttention ragged(int32_t max_seqlen_q = 0) const {
    RaggedAttention c;
    c.q = q.view(), c.k = k.view(), c.v = v.view(), c.out = out.view();
    c.lse = NaturalLse(lse.view());
    c.cu_seqlens_q = elements<int32_t>(cu_q);
    c.cu_seqlens_k = elements<int32_t>(cu_k);
    c.params = params();
    c.max_seqlen_q = max_seqlen_q;
    return c;
  }
  PagedAttention paged(int32_t max_seqlen_q = 0) const {
    PagedAttention c;
    c.q = q.view(), c.out = out.view();
    c.lse = NaturalLse(lse.view());
    c.cache = KvCache::nhd({k.data, DType::kF32, {kTokens, 1, kKvHeads, kDimQk}},
                           {v.data, DType::kF32, {kTokens, 1, kKvHeads, kDimVo}});
    c.pages = PageTable::dense(elements<int32_t>(table), kTokens, elements<int32_t>(lens));
    c.cu_seqlens_q = elements<int32_t>(cu_q);
    c.params = params();
    c.max_seqlen_q = max_seqlen_q;
    return c;
  }
  /// out and lse, as floats.
  std::vector<float> results() {
    stream().synchronize();
    std::vector<float> all;
    for (const Buffer* b : {&out, &lse}) {
      const auto values = elements<float>(*b);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  void clear() {
    write(out, 0, std::vector<float>(static_cast<size_t>(out.numel()), kNever));
    write(lse, 0, std::vector<float>(static_cast<size_t>(lse.numel()), kNever));
  }
  /// What the strict call gives for all queries; of rows that are not launched kNever.
  std::vector<float> expected(int32_t max_seqlen_q = 0) {
    stream().synchronize();
    std::vector<float> all(static_cast<size_t>(out.numel() + lse.numel()), kNever);
    RaggedAttention c = ragged();
    const Ints cu(c.cu_seqlens_q.begin(), c.cu_seqlens_q.end());
    c.q.shape[0] = c.out.shape[0] = c.lse.tensor.shape[0] = cu.back();
    c.k.shape[0] = c.v.shape[0] = c.cu_seqlens_k.back();
    c.out.data = reinterpret_cast<std::byte*>(all.data());
    c.lse.tensor.data = reinterpret_cast<std::byte*>(all.data() + out.numel());
    const Status status = attention_varlen(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (size_t i = 0; i < kBatch && max_seqlen_q > 0; ++i) {
      for (int32_t row = cu[i] + max_seqlen_q; row < cu[i + 1]; ++row) {
        std::fill_n(all.begin() + row * kHeads * kDimVo, kHeads * kDimVo, kNever);
        std::fill_n(all.begin() + out.numel() + row * kHeads, kHeads, kNever);
      }
    }
    return all;
  }

  Buffer q, k, v, out, lse, cu_q, cu_k, table, lens;

 private:
  AttentionParams params() const {
    return {.num_qo_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim_qk = kDimQk,
            .head_dim_vo = kDimVo,
            .sm_scale = 0.25f,
            .causal = causal_};
  }
  void give(const Buffer& b, int64_t rows) {
    const Bytes values = random(DType::kF32, b.rows(0, rows).count);
    std::vector<float> floats(values.size() / sizeof(float));
    std::memcpy(floats.data(), values.data(), values.size());
    write(b, 0, floats);
  }

  const bool causal_;
};

template <class Test>
void for_both_launches(Test test) {
  for (const bool causal : {true, false}) {
    for (const int32_t most : {0, 1, 2, 3, 4, 100}) {
      for (const bool paged : {false, true}) {
        World w(causal);
        SCOPED_TRACE((paged ? "paged, " : "ragged, ") + std::to_string(most));
        test(w, paged ? attention_launch(w.paged(most)) : ragged_launch(w.ragged(most)), most);
      }
    }
  }
}

TEST(RaggedLaunch, PaddingIsNeitherReadNorWritten) {
  for_both_launches([](World& w, const KernelLaunch& launch, int32_t most) {
    const std::vector<float> expected = w.expected(most);
    w.run_both(
        launch, [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.results(), expected);
          EXPECT_EQ(w.found(), "ok");
        });
  });
}

TEST(RaggedLaunch, OffsetsAreReadWhenItRuns) {
  for_both_launches([](World& w, const KernelLaunch& launch, int32_t most) {
    GraphExec exec = w.record(launch);
    // The last request has a query fewer, so that one row more is padding.
    w.write(w.cu_q, 0, Ints{0, 3, 4, 7});
    const std::vector<float> expected = w.expected(most);
    w.clear();
    exec.replay(w.stream());
    EXPECT_EQ(w.results(), expected);
    EXPECT_EQ(w.found(), "ok");
  });
}

TEST(RaggedLaunch, QueriesPastTheMostAreNotRead) {
  for (const bool paged : {false, true}) {
    World w;
    // Two queries of each request at most: the third one of the first was never written, nor were
    // the keys that only the last two of the last request see.
    Buffer other = w.bind("other", DType::kF32, {kRows, kHeads, kDimQk}, kHeads * kDimQk);
    Buffer keys = w.bind("keys", DType::kF32, {kTokens, kKvHeads, kDimQk}, kKvHeads * kDimQk);
    for (const int64_t row : {0, 1, 3, 4, 5})
      w.write(other, row * kHeads * kDimQk, std::vector<float>(kHeads * kDimQk, 1));
    w.write(keys, 0, std::vector<float>(static_cast<size_t>(15 * kKvHeads * kDimQk), 1));
    const auto launch = [&](int32_t most) {
      if (paged) {
        PagedAttention c = w.paged(most);
        c.q = other.view();
        c.cache.k.data = keys.data;
        return attention_launch(c);
      }
      RaggedAttention c = w.ragged(most);
      c.q = other.view(), c.k = keys.view();
      return ragged_launch(c);
    };
    w.run_both(
        launch(2), [] {}, [&] { EXPECT_EQ(w.found(), "ok"); });
    w.run_both(
        launch(3), [] {},
        [&] {
          const std::string found = w.found();
          EXPECT_NE(found.find("mem.uninit_read: other[2]"), std::string::npos) << found;
          EXPECT_NE(found.find("mem.uninit_read: keys[15]"), std::string::npos) << found;
        });
  }
}

TEST(RaggedLaunch, OffsetsBeyondTheTensorsAreFoundAndPoisonTheOutputs) {
  for (const bool paged : {false, true}) {
    for (const bool of_q : {true, false}) {
      if (paged && !of_q) continue;
      World w;
      w.write(of_q ? w.cu_q : w.cu_k, 3, Ints{1000});
      w.run_both(
          paged ? attention_launch(w.paged()) : ragged_launch(w.ragged()), [&] { w.clear(); },
          [&] {
            EXPECT_TRUE(std::isnan(w.results()[0]));
            const bool padding_stays = w.results()[kRows * kHeads * kDimVo - 1] == kNever;
            EXPECT_EQ(padding_stays, !of_q) << "rows of the batch, as far as they are known";
            const std::string found = w.found();
            EXPECT_NE(found.find(of_q ? ": q[" : ": k["), std::string::npos) << found;
            EXPECT_EQ(found.find(": v[") != std::string::npos, !of_q) << found;
          });
    }
  }
}

TEST(RaggedLaunch, KeysOfAnotherRequestAreFound) {
  World w;
  for (size_t i = 0; i < kBatch; ++i)
    for (int64_t t = kCuK[i]; t < kCuK[i + 1]; ++t)
      w.set_owner(w.k, t, static_cast<OwnerId>(i + 2));
  // The call's requests are the last three of the step.
  const OwnerId rows[] = {1, 2, 3, 4};
  w.device.set_row_owners(rows);
  const auto none = [] {};
  w.run_both(ragged_launch(w.ragged(), {1, 1}), none, [&] { EXPECT_EQ(w.found(), "ok"); });
  w.run_both(ragged_launch(w.ragged()), none, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region: k["), std::string::npos) << found;
  });
}

TEST(RaggedLaunch, TheStrictCallTakesNoPadding) {
  World w;
  w.stream().synchronize();
  EXPECT_NE(attention_varlen(w.ragged()).to_string().find("len.total"), std::string::npos);
  EXPECT_NE(attention_with_kvcache(w.paged()).to_string().find("len.total"), std::string::npos);
  EXPECT_NE(attention_varlen(w.ragged(-1)).to_string().find("len.negative: max_seqlen_q"),
            std::string::npos);
  EXPECT_NE(attention_with_kvcache(w.paged(-1)).to_string().find("len.negative: max_seqlen_q"),
            std::string::npos);
}

TEST(RaggedLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w;
  EXPECT_EQ(ragged_launch(w.ragged(2)), ragged_launch(w.ragged(2)));
  EXPECT_NE(ragged_launch(w.ragged(2)), ragged_launch(w.ragged(3)));
  EXPECT_EQ(attention_launch(w.paged(2)), attention_launch(w.paged(2)));
  EXPECT_NE(attention_launch(w.paged(2)), attention_launch(w.paged(3)));
}

}  // namespace
}  // namespace shadowgraph::ragged_launch_test
