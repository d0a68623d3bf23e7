// The oracle of attention over chosen keys, against sums that are written out; and the bound of
// kernels that round their weights to 8 bits.
#include "oracle/sparse_oracle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "check/bounds/compare.h"
#include "core/float_formats.h"
#include "kernels/small_sparse.h"
#include "oracle/in_double.h"

namespace shadowgraph::sparse_oracle_test {
namespace {

TEST(SparseOracle, APackedElementIsItsCodeTimesItsScaleRoundedToBf16) {
  std::vector<std::byte> dsa(2 * kDsaBytes);
  dsa[kDsaBytes + 130] = std::byte{0x3a};  // 1.25
  store_float(dsa.data() + kDsaBytes + kDsaCodes, DType::kF32, 1, 0.3F);
  store_float(dsa.data() + kDsaBytes + kDsaCodes + 16, DType::kBF16, 2, -7);
  const LatentPool pool{ConstTensorView(dsa.data(), DType::kU8, {2, kDsaBytes}), LatentLayout::kDsa,
                        1};
  const std::vector<double> latent = latent_of(pool, 1);
  ASSERT_EQ(latent.size(), 576U);
  EXPECT_EQ(latent[130], 0.375);  // of 0.37500001...
  EXPECT_EQ(latent[514], -7);
  EXPECT_EQ(latent[129], 0);

  std::vector<std::byte> v4(static_cast<size_t>(2 * v4_page_bytes(3)));
  const LatentPool pages{ConstTensorView(v4.data(), DType::kU8, {2, v4_page_bytes(3)}),
                         LatentLayout::kV4, 3};
  const int64_t page = v4_page_bytes(3), token = page + 2 * kV4Bytes;  // slot 5
  v4[static_cast<size_t>(token + 70)] = std::byte{0xba};               // -1.25
  v4[static_cast<size_t>(page + 3 * kV4Bytes + 2 * kV4Scales + 1)] = std::byte{129};
  v4[static_cast<size_t>(page + 3 * kV4Bytes + 2 * kV4Scales + 2)] = std::byte{255};
  const std::vector<double> paged = latent_of(pages, 5);
  ASSERT_EQ(paged.size(), 512U);
  EXPECT_EQ(paged[70], -5);
  EXPECT_EQ(paged[0], 0);
  EXPECT_TRUE(std::isnan(paged[128]));
}

/// Softmax and mean of one row, as they stand in the formula.
struct Sum {
  double lse = 0, lse_with_sink = 0;
  std::vector<double> out;
};
Sum written_out(const SmallSparse& x, int64_t token, int64_t head) {
  Sum sum;
  sum.out.assign(static_cast<size_t>(x.s.dim_v), 0);
  double mass = 0;
  for (const ChosenKeys* keys : {&x.call.keys, &x.call.extra}) {
    if (!keys->defined()) continue;
    for (const int32_t slot : keys->of(token)) {
      if (slot < 0) continue;
      const std::vector<double> k = latent_of(keys->pool, slot);
      double dot = 0;
      for (int64_t i = 0; i < x.s.dim; ++i)
        dot += k[static_cast<size_t>(i)] * load_float(x.call.q.at(token, head), x.s.dtype, i);
      const double weight = std::exp(dot * double{x.call.sm_scale});
      mass += weight;
      for (size_t i = 0; i < sum.out.size(); ++i) sum.out[i] += weight * k[i];
    }
  }
  const double sink = x.sinks.empty() ? 0 : std::exp(double{x.sinks[static_cast<size_t>(head)]});
  sum.lse = std::log(mass), sum.lse_with_sink = std::log(mass + sink);
  for (double& o : sum.out) o /= mass + sink;
  return sum;
}

TEST(SparseOracle, IsTheFormula) {
  SparseShape plain;
  plain.sinks = true, plain.lengths = true, plain.extra = true;
  for (const SparseShape& s : {plain, dsa_shape(), v4_shape()}) {
    const SmallSparse x(s);
    for (const SparseKeys count : {SparseKeys::kSeen, SparseKeys::kListed}) {
      int64_t rows = 0;
      for_each_row(x.call, count, [&](const OracleRow& row) {
        ++rows;
        if (row.empty()) return;
        const Sum sum = written_out(x, row.row, row.head);
        const InDouble apart(row);
        EXPECT_LE(std::abs(row.lse - sum.lse), apart.lse(sum.lse));
        EXPECT_LE(std::abs(row.lse_with_sink - sum.lse_with_sink), apart.lse(sum.lse_with_sink));
        for (size_t i = 0; i < sum.out.size(); ++i)
          ASSERT_LE(std::abs(row.out[static_cast<Eigen::Index>(i)] - sum.out[i]),
                    apart.out(row.value_max))
              << i;
      });
      EXPECT_EQ(rows, s.tokens * s.heads);
    }
  }
}

TEST(SparseOracle, KeysAreCountedAsTheyAreSeenOrListed) {
  SparseShape s;
  s.lengths = true, s.extra = true;
  const SmallSparse x(s);
  std::vector<int32_t> listed, seen;
  int32_t place = 0;
  for (const ChosenKeys* keys : {&x.call.keys, &x.call.extra}) {
    for (const int32_t slot : keys->of(2)) {
      if (slot >= 0) seen.push_back(static_cast<int32_t>(seen.size()));
      if (slot >= 0) listed.push_back(place);
      ++place;
    }
  }
  const auto keys_of = [&](SparseKeys count) {
    std::vector<int32_t> keys;
    for_each_row(x.call, count, [&](const OracleRow& row) {
      if (row.row == 2) keys = row.keys;
    });
    return keys;
  };
  EXPECT_EQ(keys_of(SparseKeys::kSeen), seen);
  EXPECT_EQ(keys_of(SparseKeys::kListed), listed);
}

/// Weights times `scale` as fp8 before they meet the values: within the bound of a kernel that does
/// that, far outside that of one that does not.
TEST(SparseOracle, TheBoundOfWeightsOfEightBitsHoldsAndIsNeeded) {
  SparseShape s;
  s.dtype = s.rows = DType::kE4M3, s.dim = 64, s.dim_v = 64, s.lengths = true;
  const SmallSparse x(s);
  const auto judged = [&](double scale, const char* kernel, bool rounds = true) {
    Arithmetic a = *find_arithmetic(kernel);
    if (!rounds) a.round_p = RoundP::kNever;
    std::vector<float> out(static_cast<size_t>(s.tokens * s.heads * s.dim_v), 0);
    for_each_row(x.call, SparseKeys::kListed, [&](const OracleRow& row) {
      if (row.empty()) return;
      const double top = row.logits.maxCoeff();
      double mass = 0;
      Eigen::ArrayXd o = Eigen::ArrayXd::Zero(s.dim_v);
      for (size_t j = 0; j < row.keys.size(); ++j) {
        const double p = std::exp(row.logits[static_cast<Eigen::Index>(j)] - top);
        const auto narrow = static_cast<float>(p * scale);
        o += decode_float(encode_float(narrow, kE4M3Format), kE4M3Format) / scale *
             row.values->row(row.keys[j]).transpose().array();
        mass += p;
      }
      for (Eigen::Index i = 0; i < s.dim_v; ++i)
        out[static_cast<size_t>((row.row * s.heads + row.head) * s.dim_v + i)] =
            static_cast<float>(o[i] / mass);
    });
    const ConstTensorView view(out.data(), DType::kF32, {s.tokens, s.heads, s.dim_v});
    return judge(AnyCall(x.call), {view, {}}, a, {});
  };
  EXPECT_EQ(judged(448, "dsa_sparse_mla").findings.to_string(), "ok");
  EXPECT_GT(judged(448, "dsa_sparse_mla").error_over_bound, 0.02);
  EXPECT_FALSE(judged(448, "dsa_sparse_mla", false).findings.ok());
  EXPECT_FALSE(judged(0x1p-6, "dsa_sparse_mla").findings.ok()) << "most weights become 0";
}

}  // namespace
}  // namespace shadowgraph::sparse_oracle_test
