// Terms that recordings of FlashInfer's forms have, on recorded cases that say the same without
// them.
#include <gtest/gtest.h>

#include "io/curated_vectors.h"

namespace shadowgraph::terms_vectors_test {
namespace {

template <class T>
std::span<const T> values_of(const ConstTensorView& t) {
  return {reinterpret_cast<const T*>(t.data), static_cast<size_t>(t.numel())};
}

TEST(TermsVectors, AMaskOfEachHeadIsReadHeadByHead) {
  auto [id, file] = case_of_kind("custom_mask");
  const Json metadata = Json::parse(file.metadata.at(id));
  const int64_t heads = metadata.at("num_qo_heads");
  std::vector<uint8_t> bools, packed;
  const auto one = values_of<uint8_t>(file.tensors.at(id + "/custom_mask"));
  size_t first = 0;
  for (size_t r = 0; r < metadata.at("q_lens").size(); ++r) {
    const size_t pairs = metadata["q_lens"][r].get<size_t>() * metadata["kv_lens"][r].get<size_t>();
    for (size_t pair = 0; pair < static_cast<size_t>(heads) * pairs; ++pair) {
      bools.push_back(one[first + pair % pairs]);
      if (pair % 8 == 0) packed.push_back(0);
      packed.back() |= static_cast<uint8_t>((bools.back() != 0 ? 1U : 0U) << (pair % 8));
    }
    first += pairs;
  }
  set_field(file, id, "mask_heads", heads);
  // Held against the sizes of one mask.
  EXPECT_TRUE(names(parse(file).status, "custom_mask"));
  file.tensors[id + "/custom_mask"] = {
      reinterpret_cast<const std::byte*>(bools.data()), DType::kU8, {std::ssize(bools)}};
  file.tensors[id + "/packed_mask"] = {
      reinterpret_cast<const std::byte*>(packed.data()), DType::kU8, {std::ssize(packed)}};
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.to_string(), "ok");
  for (const AnyCall& call : p.cases.at(0).attention().calls) {
    const CustomMask& mask = std::get<PagedAttention>(call).params.custom_mask;
    EXPECT_EQ(mask.heads, heads);
    EXPECT_EQ(mask.mask_indptr.back(), std::ssize(mask.data));
  }
  set_field(file, id, "mask_heads", heads + 1);
  EXPECT_TRUE(names(parse(file).status, "mask_heads"));
}

TEST(TermsVectors, PackedRowsBeginWhereTheirOffsetsSay) {
  auto [id, file] = case_of_kind("ragged_prefill");
  const Json metadata = Json::parse(file.metadata.at(id));
  const auto of_q = values_of<int32_t>(file.tensors.at(id + "/qo_indptr"));
  const auto of_k = values_of<int32_t>(file.tensors.at(id + "/kv_indptr"));
  std::vector<int32_t> padded(of_k.begin(), of_k.end());
  for (size_t i = 1; i < padded.size(); ++i) padded[i] += static_cast<int32_t>(2 * i);
  std::vector<std::vector<std::byte>> memory;
  for (const char* name : {"k", "v"}) {
    ConstTensorView& t = file.tensors[id + '/' + name];
    const size_t row = static_cast<size_t>(t.stride[0]) * size_of(t.dtype);
    std::vector<std::byte>& to = memory.emplace_back(static_cast<size_t>(padded.back()) * row);
    for (size_t r = 0; r + 1 < of_k.size(); ++r)
      std::copy_n(t.data + static_cast<size_t>(of_k[r]) * row,
                  static_cast<size_t>(of_k[r + 1] - of_k[r]) * row,
                  to.data() + static_cast<size_t>(padded[r]) * row);
    t.data = to.data(), t.shape[0] = padded.back();
  }
  const ConstTensorView offsets = file.tensors.at(id + "/kv_indptr");
  file.tensors[id + "/kv_indptr_padded"] = {
      reinterpret_cast<const std::byte*>(padded.data()), offsets.dtype, {offsets.shape[0]}};
  file.tensors[id + "/qo_indptr_padded"] = file.tensors.at(id + "/qo_indptr");
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.to_string(), "ok");
  const auto& call = std::get<RaggedAttention>(p.cases.at(0).attention().calls.at(0));
  EXPECT_TRUE(std::ranges::equal(call.cu_seqlens_k, padded));
  EXPECT_TRUE(std::ranges::equal(call.cu_seqlens_q, of_q));
  for (size_t r = 0; r + 1 < of_k.size(); ++r) {
    EXPECT_EQ(call.params.terms.seqused_k[r], of_k[r + 1] - of_k[r]);
    EXPECT_EQ(call.params.terms.seqused_q[r], of_q[r + 1] - of_q[r]);
  }
}

TEST(TermsVectors, ACaseInPartsHasNoTerms) {
  auto [id, file] = case_of_kind("swa_merge");
  set_field(file, id, "temperature_len", 100);
  EXPECT_FALSE(parse(file).status.ok());
}

}  // namespace
}  // namespace shadowgraph::terms_vectors_test
