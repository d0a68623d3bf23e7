// FlashAttention-3's and FlashMLA's cases: how they become calls, and what is refused.
#include <gtest/gtest.h>

#include <tuple>

#include "attn/mask.h"
#include "io/curated_vectors.h"

namespace shadowgraph::flash_vectors_test {
namespace {

const PagedAttention& first_call(const RecordedCase& v) {
  return std::get<PagedAttention>(v.attention().calls.at(0));
}

const float* floats(const ConstTensorView& t) { return reinterpret_cast<const float*>(t.data); }

TEST(FlashVectors, LseOfHeadsBeforeRowsBecomesRowsBeforeHeads) {
  const auto [id, file] = case_of_kind("dense_empty");
  const Parsed p = parse(file);
  const ConstTensorView &stored = file.tensors.at(id + "/lse"),
                        &read = p.cases.at(0).recorded[0].lse;
  const int64_t batch = stored.shape[0], heads = stored.shape[1], q_len = stored.shape[2];
  ASSERT_GT(q_len, 1);
  ASSERT_GT(heads, 1);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t q = 0; q < q_len; ++q) {
        EXPECT_EQ(floats(stored)[stored.offset(b, h, q)],
                  floats(read)[read.offset(b * q_len + q, h)]);
      }
    }
  }
}

TEST(FlashVectors, SplitsChooseTheArithmetic) {
  for (const auto& [kind, field, many, one] :
       {std::tuple{"decode_causal", "num_splits_launched", "fa3_split", "fa3"},
        std::tuple{"dense_f16", "splits_per_request", "flashmla_split", "flashmla"}}) {
    auto [id, file] = case_of_kind(kind);
    EXPECT_EQ(parse(file).cases.at(0).recorded.at(0).kernel, one);
    const bool fa3 = std::string(one) == "fa3";
    set_field(file, id, field, fa3 ? Json(2) : Json::array({2}));
    const std::vector<int32_t> num_splits = {0, 2};
    if (!fa3) {
      file.tensors[id + "/num_splits"].data = reinterpret_cast<const std::byte*>(num_splits.data());
    }
    const Parsed p = parse(file);
    ASSERT_EQ(p.status.to_string(), "ok");
    EXPECT_EQ(p.cases.at(0).recorded.at(0).kernel, many);
  }
}

TEST(FlashVectors, OneQueryOfEachBshdRequestIsADecodeBatch) {
  EXPECT_TRUE(
      first_call(parse(case_of_kind("decode_causal").second).cases.at(0)).cu_seqlens_q.empty());
  EXPECT_TRUE(first_call(parse(case_of_kind("dense_f16").second).cases.at(0)).cu_seqlens_q.empty());
  const Parsed p = parse(case_of_kind("dense_empty").second);
  const std::span<const int32_t> offsets = first_call(p.cases.at(0)).cu_seqlens_q;
  const int32_t q_len = offsets[1];
  EXPECT_GT(q_len, 1);
  for (size_t i = 0; i < offsets.size(); ++i)
    EXPECT_EQ(offsets[i], static_cast<int32_t>(i) * q_len);
}

TEST(FlashVectors, ValueOfALatentIsTheBeginningOfItsKey) {
  const Parsed p = parse(case_of_kind("dense_f16").second);
  const KvCache& cache = first_call(p.cases.at(0)).cache;
  EXPECT_EQ(cache.k.data, cache.v.data);
  EXPECT_EQ(cache.k.head_dim, 576);
  EXPECT_EQ(cache.v.head_dim, 512);
}

TEST(FlashVectors, ChunkHidesTheKeysOfOtherChunks) {
  const auto [id, file] = case_of_kind("attention_chunk");
  const Json metadata = Json::parse(file.metadata.at(id));
  const auto chunk = metadata.at("attention_chunk").get<int64_t>();
  const Parsed p = parse(file);
  const AttentionParams& params = first_call(p.cases.at(0)).params;
  int hidden = 0, shown = 0;
  for (size_t r = 0; r < metadata.at("q_lens").size(); ++r) {
    const int32_t q_len = metadata["q_lens"][r], kv_len = metadata["kv_lens"][r];
    const MaskShape mask = MaskShape::of(params, static_cast<int64_t>(r), q_len, kv_len);
    for (int64_t pair = 0; pair < q_len * kv_len; ++pair) {
      const int64_t position = kv_len - q_len + pair / kv_len, key = pair % kv_len;
      const int64_t first = position - position % chunk;
      const bool sees = first <= key && key < first + chunk;
      ASSERT_EQ(attends(mask, pair / kv_len, key), sees) << r << ' ' << pair;
      (sees ? shown : hidden) += 1;
    }
  }
  EXPECT_GT(shown, 0);
  EXPECT_GT(hidden, 0);
}

TEST(FlashVectors, QueryBeforeTheFirstKeyHasNoChunk) {
  auto [id, file] = case_of_kind("softcap");
  const int64_t q_len = Json::parse(file.metadata.at(id)).at("q_lens")[0];
  const std::vector<int32_t> kv_len = {3};
  ASSERT_GT(q_len, kv_len[0]);
  set_field(file, id, "attention_chunk", 1 << 20);
  set_field(file, id, "kv_lens", kv_len);
  set_field(file, id, "kv_lens_before", kv_len);
  file.tensors[id + "/cache_seqlens"].data = reinterpret_cast<const std::byte*>(kv_len.data());
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.to_string(), "ok");
  MaskShape mask =
      MaskShape::of(first_call(p.cases.at(0)).params, 0, static_cast<int32_t>(q_len), kv_len[0]);
  mask.causal = false;
  for (int64_t q = 0; q < q_len; ++q)
    for (int64_t k = 0; k < kv_len[0]; ++k) EXPECT_EQ(attends(mask, q, k), q >= q_len - kv_len[0]);
}

TEST(FlashVectors, AppendedKeysFollowThoseThatWereThere) {
  const auto [id, file] = case_of_kind("append");
  const Json metadata = Json::parse(file.metadata.at(id));
  const Parsed p = parse(file);
  const RecordedCase& v = p.cases.at(0);
  ASSERT_TRUE(v.attention().appended.has_value());
  const PagedAttention& call = first_call(v);
  const StoreKv& store = v.attention().appended->store;
  ASSERT_EQ(store.out_cache_loc.size(), metadata.at("append_len").get<size_t>());
  const int32_t before = metadata.at("kv_lens_before")[0], size = call.cache.page_size;
  for (int32_t i = 0; i < std::ssize(store.out_cache_loc); ++i) {
    const int32_t page = call.pages.page_table[static_cast<size_t>((before + i) / size)];
    EXPECT_EQ(store.out_cache_loc[static_cast<size_t>(i)],
              int64_t{page} * size + (before + i) % size);
  }
  EXPECT_EQ(call.pages.cache_seqlens[0], before + std::ssize(store.out_cache_loc));
  EXPECT_EQ(store.cache.k.data, file.tensors.at(id + "/k_cache").data);
  EXPECT_EQ(v.attention().appended->k_after.data, file.tensors.at(id + "/k_cache_after").data);
}

TEST(FlashVectors, LengthsAfterAnAppendAreThoseBeforeAndTheNewOnes) {
  auto [id, file] = case_of_kind("append");
  const int32_t kv_len = Json::parse(file.metadata.at(id)).at("kv_lens")[0];
  for (const int32_t wrong : {kv_len - 1, kv_len + 1}) {
    set_field(file, id, "kv_lens", Json::array({wrong}));
    EXPECT_TRUE(names(parse(file).status, "kv_lens")) << wrong;
  }
}

TEST(FlashVectors, BshdHasOneQueryLength) {
  auto [id, file] = case_of_kind("decode_causal");
  const auto batch = Json::parse(file.metadata.at(id)).at("batch").get<size_t>();
  std::vector<int32_t> q_lens(batch, 1);
  q_lens.back() = 2;
  set_field(file, id, "q_lens", q_lens);
  EXPECT_TRUE(names(parse(file).status, "q_lens"));
}

TEST(FlashVectors, AppendBeyondThePageTableIsRefused) {
  auto [id, file] = case_of_kind("append");
  ConstTensorView& table = file.tensors.at(id + "/page_table");
  for (const int64_t width : {int64_t{0}, int64_t{1}}) {
    table.shape[1] = table.stride[0] = width;
    const Json metadata = Json::parse(file.metadata.at(id));
    const bool fits =
        metadata.at("kv_lens")[0].get<int64_t>() <= width * metadata.at("page_size").get<int64_t>();
    EXPECT_EQ(names(parse(file).status, "page_table"), !fits) << width;
  }
}

TEST(FlashVectors, KindsThatNobodyKnowsAreSkippedByName) {
  for (const char* kind : {"sparse_decode_fp4", "sparse_prefill_fp8"}) {
    auto [id, file] = case_of_kind("dense_f16");
    set_field(file, id, "kind", kind);
    EXPECT_EQ(parse(file).skipped, (std::vector<SkippedCase>{{id, kind, "kind not known yet"}}));
  }
}

}  // namespace
}  // namespace shadowgraph::flash_vectors_test
