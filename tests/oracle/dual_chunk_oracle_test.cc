// The oracle of dual-chunk attention: one softmax, each key with the query of its part.
#include <gtest/gtest.h>

#include <cmath>

#include "core/choices.h"
#include "oracle/in_double.h"
#include "oracle/small_call.h"

namespace shadowgraph::dual_chunk_oracle_test {
namespace {

struct DualCall : SmallCall {
  std::vector<float> queries[3];
  DualChunkCall<RaggedAttention> dual;

  DualCall(int32_t q_len, int32_t kv_len, int32_t chunk_len)
      : SmallCall(q_len, kv_len, 2, 1, 4, 4) {
    Rng rng = Rng::stream(7, 0);
    for (std::vector<float>* values : {&k, &v})
      for (float& x : *values) x = rng.signed_unit();
    params().causal = true;
    dual.call = call;
    dual.queries.chunks.chunk_len = chunk_len;
    for (size_t part = 0; part < 3; ++part) {
      queries[part].resize(q.size());
      for (float& x : queries[part]) x = rng.signed_unit();
      dual.queries.q[part] = ConstTensorView(queries[part].data(), DType::kF32, {q_len, 2, 4});
    }
  }
  std::vector<OracleRow> dual_rows() const {
    std::vector<OracleRow> all;
    for_each_row(dual, [&](const OracleRow& row) { all.push_back(row); });
    return all;
  }
};

TEST(DualChunkOracle, OfOneQueryForAllPartsItIsOrdinaryAttention) {
  DualCall c(5, 13, 4);
  c.dual.queries.q[1] = c.dual.queries.q[2] = c.dual.queries.q[0];
  c.call = c.dual.call;
  c.call.q = c.dual.queries.q[0];
  const std::vector<OracleRow> dual = c.dual_rows(), plain = c.rows();
  ASSERT_EQ(dual.size(), plain.size());
  for (size_t i = 0; i < dual.size(); ++i) {
    EXPECT_EQ(dual[i].keys, plain[i].keys);
    const InDouble apart(plain[i]);
    EXPECT_LE((dual[i].out - plain[i].out).abs().maxCoeff(), apart.out(plain[i].value_max));
    EXPECT_LE(std::abs(dual[i].lse - plain[i].lse), apart.lse(plain[i].lse));
  }
}

TEST(DualChunkOracle, EveryKeyMeetsTheQueryOfItsPart) {
  const DualCall c(5, 13, 4);
  for (const OracleRow& row : c.dual_rows()) {
    const auto position = static_cast<int32_t>(8 + row.row);
    ASSERT_EQ(std::ssize(row.keys), position + 1);
    for (const int32_t key : row.keys) {
      const auto part = static_cast<size_t>(c.dual.queries.chunks.part(position, key));
      double s = 0;
      for (int64_t d = 0; d < 4; ++d)
        s += double{c.queries[part][static_cast<size_t>((row.row * 2 + row.head) * 4 + d)]} *
             c.k[static_cast<size_t>(key * 4 + d)];
      EXPECT_LE(std::abs(row.logits[key] - s), InDouble(row).logit) << position << ' ' << key;
    }
  }
}

TEST(DualChunkOracle, ScalesAreOfEachRequest) {
  DualCall c(3, 6, 4);
  const std::vector<OracleRow> plain = c.dual_rows();
  const float scales[] = {2};
  c.dual.queries.scales = scales;
  const std::vector<OracleRow> scaled = c.dual_rows();
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_LE((scaled[i].logits - 2 * plain[i].logits).abs().maxCoeff(), InDouble(scaled[i]).logit);
}

}  // namespace
}  // namespace shadowgraph::dual_chunk_oracle_test
