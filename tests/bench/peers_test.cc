#include "bench/peers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/composed_flash.h"
#include "check/bounds/compare.h"
#include "core/choices.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::bench::peers_test {
namespace {

std::vector<float> random(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = rng.signed_unit();
  return values;
}

/// One small causal call, with its memory.
struct Small {
  std::vector<float> q, k, v, out;
  std::vector<int32_t> q_indptr, k_indptr;
  FlashCall flash;
  RaggedAttention call;

  Small(int32_t q_len, int32_t kv_len) {
    constexpr int32_t kHeads = 4, kKvHeads = 2, kDim = 32;
    q = random(int64_t{q_len} * kHeads * kDim, 1);
    k = random(int64_t{kv_len} * kKvHeads * kDim, 2);
    v = random(int64_t{kv_len} * kKvHeads * kDim, 3);
    out.assign(q.size(), NAN);
    flash = {.q = q.data(),
             .k = k.data(),
             .v = v.data(),
             .out = out.data(),
             .q_len = q_len,
             .kv_len = kv_len,
             .num_qo_heads = kHeads,
             .num_kv_heads = kKvHeads,
             .head_dim = kDim,
             .sm_scale = 0.25f,
             .threads = 2};
    q_indptr = {0, q_len}, k_indptr = {0, kv_len};
    call.q = ConstTensorView(q.data(), DType::kF32, {q_len, kHeads, kDim});
    call.k = ConstTensorView(k.data(), DType::kF32, {kv_len, kKvHeads, kDim});
    call.v = ConstTensorView(v.data(), DType::kF32, {kv_len, kKvHeads, kDim});
    call.out = TensorView(out.data(), DType::kF32, {q_len, kHeads, kDim});
    call.cu_seqlens_q = q_indptr, call.cu_seqlens_k = k_indptr;
    call.params = {.num_qo_heads = kHeads,
                   .num_kv_heads = kKvHeads,
                   .head_dim_qk = kDim,
                   .head_dim_vo = kDim,
                   .sm_scale = 0.25f,
                   .causal = true};
  }
  Status judged() const {
    return judge(call, {.out = call.out, .lse = {}}, kComposedFlash, {}).findings;
  }
};

/// A product as it is written down.
void plain_product(const Product& p) {
  for (int i = 0; i < p.m; ++i) {
    for (int j = 0; j < p.n; ++j) {
      float sum = p.beta == 0 ? 0 : p.c[i * p.ldc + j];
      for (int l = 0; l < p.k; ++l)
        sum += p.a[i * p.lda + l] * (p.b_transposed ? p.b[j * p.ldb + l] : p.b[l * p.ldb + j]);
      p.c[i * p.ldc + j] = sum;
    }
  }
}

constexpr std::pair<int32_t, int32_t> kShapes[] = {
    {1, 1}, {5, 5}, {3, 700}, {130, 1100}, {800, 800}};

TEST(ComposedFlash, OfPlainProductsLiesWithinTheBoundOfTheOracle) {
  for (const auto& [q_len, kv_len] : kShapes) {
    Small small(q_len, kv_len);
    composed_flash(small.flash, plain_product);
    EXPECT_TRUE(small.judged().ok()) << q_len << ' ' << kv_len << ' ' << small.judged().to_string();
  }
}

TEST(ComposedFlash, OneKeyTooManyIsSeen) {
  Small small(130, 1100);
  small.flash.q_len = 129;  // queries then stand one key further on than the call says
  composed_flash(small.flash, plain_product);
  small.call.out.shape[0] = small.call.q.shape[0] = 129;
  small.q_indptr[1] = 129, small.call.cu_seqlens_q = small.q_indptr;
  EXPECT_TRUE(small.judged().ok());
  small.flash.kv_len = 1099;
  composed_flash(small.flash, plain_product);
  EXPECT_FALSE(small.judged().ok());
}

TEST(Peers, LieWithinTheBoundOfTheOracle) {
  bool any = false;
  for (const std::string_view name : {"openblas", "eigen"}) {
    const Peer* peer = find_peer(name);
    if (peer == nullptr || !peer->missing().empty()) continue;
    any = true;
    for (const auto& [q_len, kv_len] : kShapes) {
      Small small(q_len, kv_len);
      peer->attention(small.flash);
      EXPECT_TRUE(small.judged().ok())
          << name << ' ' << q_len << ' ' << kv_len << ' ' << small.judged().to_string();
    }
  }
  if (!any) GTEST_SKIP() << "neither OpenBLAS nor a processor for the peer Eigen";
}

TEST(Peers, OneThatIsNotKnownIsNone) { EXPECT_EQ(find_peer("abacus"), nullptr); }

}  // namespace
}  // namespace shadowgraph::bench::peers_test
