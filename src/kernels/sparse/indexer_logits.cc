#include "kernels/sparse/indexer_logits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "attn/index_page.h"
#include "attn/validate/validate_indexer.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/state_spans.h"
#include "kernels/sparse/index_unit.h"

namespace shadowgraph {
namespace {

/// Columns of one item of work.
constexpr int64_t kColumns = 16 * kIndexPanel;  // edge: keys

constexpr auto kE4M3 = [] {
  std::array<double, 256> values{};
  for (uint32_t bits = 0; bits < values.size(); ++bits)
    values[bits] = decode_float(bits, kE4M3Format);
  return values;
}();
double decoded(std::byte b) { return kE4M3[std::to_integer<size_t>(b)]; }

/// Sixteen keys, channel by channel; 0 where there are fewer.
struct KeyPanel {
  std::array<std::array<double, kIndexPanel>, kIndexDim> keys{};
  std::array<double, kIndexPanel> scales{};

  KeyPanel(const IndexerLogits& call, int64_t row, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto lane = static_cast<size_t>(i);
      const IndexKeyPlace place = key_place(call, row, first + i);
      const std::byte* key = key_bytes(call, place);
      scales[lane] = key_scale(call, place);
      for (size_t c = 0; c < keys.size(); ++c) keys[c][lane] = decoded(key[c]);
    }
  }
};

/// One token's scores. memory: scratch_size() doubles of the thread's own.
class TokenScores {
 public:
  TokenScores(const IndexerLogits& call, int64_t token, const IndexIsa& isa, double* memory)
      : call_(call), isa_(isa), token_(token), q_(memory) {
    dots_ = q_ + heads() * kIndexDim;
  }
  static int64_t scratch_size(const IndexerLogits& call) {
    return call.q.shape[1] * (kIndexDim + kIndexPanel);
  }

  /// Columns begin .. end - 1.
  void run(int64_t begin, int64_t end) {
    const int64_t first = std::clamp(call_.first(token_), begin, end);
    const int64_t last = std::clamp(call_.last(token_), first, end);
    for (int64_t s = begin; s < end; ++s)
      if (s < first || s >= last) store(s, -std::numeric_limits<double>::infinity());
    if (first < last) decode_queries();
    for (int64_t s = first; s < last; s += kIndexPanel)
      score(s, std::min<int64_t>(kIndexPanel, last - s));
  }

 private:
  int64_t heads() const { return call_.q.shape[1]; }
  void store(int64_t s, double score) const {
    store_float(call_.logits.at(token_, s), DType::kF32, 0, static_cast<float>(score));
  }

  void decode_queries() {
    for (int64_t head = 0; head < heads(); ++head) {
      const std::byte* q = call_.q.at(token_, head);
      for (int64_t c = 0; c < kIndexDim; ++c) q_[head * kIndexDim + c] = decoded(q[c]);
    }
  }

  void score(int64_t first, int64_t count) {
    const KeyPanel panel(call_, call_.row(token_), first, count);
    isa_.dots({static_cast<int32_t>(heads()), q_, panel.keys[0].data(), dots_});
    std::array<double, kIndexPanel> sum{};
    for (int64_t head = 0; head < heads(); ++head) {
      const double weight = load_float(call_.weights.at(token_, head), DType::kF32, 0);
      const double* dot = dots_ + head * kIndexPanel;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * (dot[i] < 0 ? 0 : dot[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto lane = static_cast<size_t>(i);
      store(first + i, sum[lane] * panel.scales[lane]);
    }
  }

  const IndexerLogits& call_;
  const IndexIsa& isa_;
  const int64_t token_;
  double *q_, *dots_;  // [heads, 128], [heads, kIndexPanel]
};

/// Those that a token sees: of each page its keys, then their scales, which lie side by side.
void add_keys(Footprint* spans, const IndexerLogits& call, int64_t token) {
  const auto of = static_cast<int32_t>(token);
  const void* keys = call.is_paged() ? call.pages.data : call.k.data;
  const void* scales = call.is_paged() ? call.pages.data : call.k_scale.data;
  const uint32_t unit = call.is_paged() ? 1 : 4;  // bytes of a page, or scales
  const int64_t row = call.row(token), last = call.last(token);
  for (int64_t s = call.first(token), end = s; s < last; s = end) {
    end = call.is_paged() ? std::min(last, (s / kIndexPageTokens + 1) * kIndexPageTokens) : last;
    for (int64_t i = s; i < end; ++i)
      append(spans, {keys, key_place(call, row, i).key, kIndexDim, 1, Access::kRead, of});
    for (int64_t i = s; i < end; ++i)
      append(spans,
             {scales, key_place(call, row, i).scale / unit, 4 / unit, unit, Access::kRead, of});
  }
}

}  // namespace

void indexer_logits_kernel(const IndexerLogits& call) {
  const int64_t width = call.logits.shape[1], columns = (width + kColumns - 1) / kColumns;
  const int64_t items = call.tokens() * columns, size = TokenScores::scratch_size(call);
  const int threads = team_size(call.options.num_threads, items);
  const IndexIsa& isa = index_isa(call.options.isa);
  std::vector<double> memory(static_cast<size_t>(threads) * static_cast<size_t>(size));
  parallel_for(items, threads, [&](int64_t item, int thread) {
    const int64_t begin = item % columns * kColumns;
    TokenScores(call, item / columns, isa, memory.data() + thread * size)
        .run(begin, std::min(width, begin + kColumns));
  });
}

Footprint indexer_logits_footprint(const IndexerLogits& call) {
  Footprint spans;
  add_list(&spans, call.rows);
  add_list(&spans, call.ks);
  add_list(&spans, call.ke);
  for (int64_t t = 0; t < call.tokens(); ++t) {
    const auto of = static_cast<int32_t>(t);
    add_line(&spans, call.logits, t, Access::kWrite);
    const int64_t first = call.first(t), last = call.last(t);
    if (first == last) continue;
    add_line(&spans, call.weights, t, Access::kRead);
    add_plane(&spans, call.q, call.q.offset(t), Access::kRead, t);
    if (call.is_paged()) {
      const int64_t page = first / kIndexPageTokens, behind = (last - 1) / kIndexPageTokens + 1;
      add_block(&spans,
                {call.page_table.data, call.page_table.offset(call.row(t), page), 1, 4,
                 Access::kRead, of},
                {}, {behind - page, call.page_table.stride[1]});
    }
    add_keys(&spans, call, t);
  }
  return spans;
}

Status indexer_logits(const IndexerLogits& call) noexcept {
  return checked(call, [&] { indexer_logits_kernel(call); });
}

}  // namespace shadowgraph
