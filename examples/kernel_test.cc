// A property test of somebody's own attention kernel. The right kernel passes; of two planted slips
// each is found, and shrunk to one small call that shows it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "shadowgraph/testing.h"

using namespace shadowgraph;

namespace {

enum class Slip { kNone, kWindowCountsItself, kPaddingJoins };

// The kernel: f32, an NHD cache, a dense page table, causal or not, with a window or not. Keys come
// in tiles of 16, each behind what the tiles before left (online softmax).
class MyKernel {
 public:
  MyKernel(const PagedAttention& call, Slip slip) : c_(call), p_(call.params), slip_(slip) {}

  void run() const {
    for (int64_t b = 0; b < c_.pages.batch(); ++b) {
      const auto i = static_cast<size_t>(b);
      const bool decode = c_.cu_seqlens_q.empty();
      const int64_t first = decode ? b : c_.cu_seqlens_q[i];
      const int64_t end = decode ? b + 1 : c_.cu_seqlens_q[i + 1];
      for (int64_t row = first; row < end; ++row) {
        const int64_t position = c_.pages.cache_seqlens[i] - (end - row);
        for (int64_t head = 0; head < p_.num_qo_heads; ++head) attend(b, row, head, position);
      }
    }
  }

 private:
  static constexpr int64_t kTile = 16;

  const float* token(const KvPlane& plane, int64_t b, int64_t key, int64_t head) const {
    const int64_t column = std::min(key / c_.cache.page_size, c_.pages.max_pages - 1);
    const int32_t page = c_.pages.page_table[static_cast<size_t>(b * c_.pages.max_pages + column)];
    return reinterpret_cast<const float*>(plane.data) +
           plane.offset(page, key % c_.cache.page_size, head, 0);
  }
  bool sees(int64_t position, int64_t key, int64_t kv_len) const {
    if (key >= kv_len) return slip_ == Slip::kPaddingJoins;
    if (p_.causal && key > position) return false;
    const int64_t left = slip_ == Slip::kWindowCountsItself ? p_.window_left - 1 : p_.window_left;
    return p_.window_left < 0 || key >= position - left;
  }

  void attend(int64_t b, int64_t row, int64_t head, int64_t position) const {
    const int64_t kv_len = c_.pages.cache_seqlens[static_cast<size_t>(b)];
    const int64_t kv_head = head / (p_.num_qo_heads / p_.num_kv_heads);
    const float* q = reinterpret_cast<const float*>(c_.q.at(row, head));
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
    std::vector<float> acc(static_cast<size_t>(p_.head_dim_vo));
    for (int64_t tile = 0; tile < kv_len; tile += kTile) {
      for (int64_t key = tile; key < tile + kTile; ++key) {
        if (!sees(position, key, kv_len)) continue;
        const float* k = token(c_.cache.k, b, key, kv_head);
        const float* v = token(c_.cache.v, b, key, kv_head);
        float score = 0;
        for (int64_t d = 0; d < p_.head_dim_qk; ++d) score += q[d] * k[d];
        score *= p_.sm_scale;
        const float higher = std::max(top, score);
        const float old = std::exp(top - higher), weight = std::exp(score - higher);
        top = higher, sum = sum * old + weight;
        for (size_t d = 0; d < acc.size(); ++d) acc[d] = acc[d] * old + weight * v[d];
      }
    }
    auto* out = reinterpret_cast<float*>(c_.out.at(row, head));
    for (size_t d = 0; d < acc.size(); ++d) out[d] = sum > 0 ? acc[d] / sum : 0;
    if (c_.lse.defined())
      *reinterpret_cast<float*>(c_.lse.tensor.at(row, head)) = top + std::log(sum);
  }

  const PagedAttention& c_;
  const AttentionParams& p_;
  Slip slip_;
};

// The test.
Status test(Slip slip, int64_t* calls) {
  testing::KernelOptions options;
  testing::KernelSupport& mine = options.support;
  mine.calls = {testing::KernelCall::kPagedDecode, testing::KernelCall::kPagedExtend};
  mine.terms = {testing::Term::kCausal, testing::Term::kWindowLeft};
  mine.head_dims = {{64, 64}, {128, 128}};
  mine.group_sizes = {1, 4};
  mine.page_sizes = {16, 64};
  mine.arithmetic = "plain_f32";
  options.calls = 300;
  options.command = "./kernel_test";
  const auto paged = [&](const PagedAttention& call) { MyKernel(call, slip).run(); };
  return testing::check(options, {.paged = paged, .ragged = {}}, calls);
}

// The slip is found, by one of two laws.
bool found(const Status& status) {
  std::printf("%s\n", status.to_string().c_str());
  if (status.ok()) return false;
  const std::string& law = status.findings().front().id;
  return law == "num.exact" || law == "num.poison";
}

}  // namespace

int main() {
  int64_t calls = 0;
  const Status clean = test(Slip::kNone, &calls);
  std::printf("%s: %lld calls\n", clean.to_string().c_str(), static_cast<long long>(calls));
  const bool window = found(test(Slip::kWindowCountsItself, nullptr));
  const bool padding = found(test(Slip::kPaddingJoins, nullptr));
  return clean.ok() && window && padding ? 0 : 1;
}
