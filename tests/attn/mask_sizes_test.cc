// A custom mask has one entry for each query and key of its request: with longer rows, more rows,
// or rows padded to whole bytes, every row but the first would be read from the wrong place.
// After flashinfer#3176, flashinfer#2201, text-generation-inference#3324.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shadowgraph/attention/attention.h"

namespace shadowgraph::mask_sizes_test {
namespace {

/// Requests of q_lens over kv_lens; the answer to a mask of ones.
std::string answer_to_mask(CustomMask::Kind kind, size_t bytes, const std::vector<int64_t>& indptr,
                           const std::vector<int32_t>& cu_q, const std::vector<int32_t>& cu_k) {
  const int64_t queries = cu_q.back(), keys = cu_k.back(), heads = 2, dim = 4;
  const auto of = [&](int64_t rows) {
    return std::vector<float>(static_cast<size_t>(rows * heads * dim), 0.5f);
  };
  const std::vector<float> q = of(queries), k = of(keys);
  std::vector<float> out = of(queries);
  const std::vector<uint8_t> mask(bytes, 1);
  RaggedAttention call;
  call.q = ConstTensorView(q.data(), DType::kF32, {queries, heads, dim});
  call.k = call.v = ConstTensorView(k.data(), DType::kF32, {keys, heads, dim});
  call.params.num_qo_heads = call.params.num_kv_heads = 2;
  call.params.head_dim_qk = call.params.head_dim_vo = 4;
  call.params.sm_scale = 0.5f;
  call.params.custom_mask = {kind, mask, indptr};
  call.cu_seqlens_q = cu_q, call.cu_seqlens_k = cu_k;
  call.out = TensorView(out.data(), DType::kF32, {queries, heads, dim});
  return attention_varlen(call).to_string();
}

TEST(MaskSizes, OthersAreRefusedWithBothNumbers) {
  const auto kBool = CustomMask::Kind::kBool, kPacked = CustomMask::Kind::kPacked;
  // 10 queries over 20 keys; 4 over 8 and 6 over 12.
  const auto one = [](CustomMask::Kind kind, int64_t bytes, const std::vector<int64_t>& indptr) {
    return answer_to_mask(kind, static_cast<size_t>(bytes), indptr, {0, 10}, {0, 20});
  };
  const auto two = [](CustomMask::Kind kind, int64_t bytes, const std::vector<int64_t>& indptr) {
    return answer_to_mask(kind, static_cast<size_t>(bytes), indptr, {0, 4, 10}, {0, 8, 20});
  };
  EXPECT_EQ(one(kBool, 200, {0, 200}), "ok");
  EXPECT_EQ(one(kPacked, 25, {0, 25}), "ok");
  EXPECT_EQ(two(kBool, 104, {0, 32, 104}), "ok");
  EXPECT_EQ(two(kPacked, 13, {0, 4, 13}), "ok");

  const std::string bytes = "0 + 200 bytes, one for each of 10 queries * 20 keys";
  const std::string bits = "0 + 25 bytes, as bits for 10 queries * 20 keys";
  const auto got = [](int64_t end, const std::string& expected) {
    return "mask.size: mask_indptr[1] is " + std::to_string(end) + ", expected " + expected;
  };
  EXPECT_EQ(one(kBool, 150, {0, 150}), got(150, bytes)) << "columns too few";
  EXPECT_EQ(one(kPacked, 19, {0, 19}), got(19, bits));
  EXPECT_EQ(one(kBool, 250, {0, 250}), got(250, bytes)) << "longer rows";
  EXPECT_EQ(one(kBool, 400, {0, 400}), got(400, bytes)) << "more rows, or a mask a head";
  EXPECT_EQ(one(kPacked, 30, {0, 30}), got(30, bits)) << "rows padded to whole bytes";
  EXPECT_EQ(one(kPacked, 25, {0, 200}),
            got(200, bits) +
                "\nmask.size: custom_mask is 25, expected 200 bytes, where "
                "mask_indptr ends")
      << "offsets that count pairs";
  EXPECT_EQ(two(kBool, 144, {0, 72, 144}),
            got(72, "0 + 32 bytes, one for each of 4 queries * 8 keys"))
      << "both padded to 6 x 12";
  EXPECT_EQ(one(kBool, 400, {0, 200}),
            "mask.size: custom_mask is 400, expected 200 bytes, where mask_indptr ends")
      << "a mask a head, of which the offsets say the first";
}

}  // namespace
}  // namespace shadowgraph::mask_sizes_test
