#include "kernels/dense/attend_terms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/float_formats.h"
#include "core/plain_exp.h"
#include "kernels/dense/work_list.h"

namespace shadowgraph {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double plain_tanh(double x) {
  const double t = plain_exp(-2 * std::abs(x));
  return std::copysign((1 - t) / (1 + t), x);
}

/// Element d of a token; its scale aside.
double element(const KvTokens& kv, const AttendUnit& u, int64_t token, int64_t d) {
  const int64_t lane = token % kPanel;
  const int64_t in_place = kv.order == KvOrder::kStrided ? d
                           : kv.order == KvOrder::kKeyPanels
                               ? key_panel_offset(kv.dtype, lane, d)
                               : value_panel_offset(kv.dtype, kv.head_dim, lane, d);
  return load_float(kv.data, kv.dtype, token_offset(kv, u.page_ids, u.page_size, token) + in_place);
}

double token_scale(const KvTokens& kv, const AttendUnit& u, int64_t token) {
  return kv.scales == nullptr ? 1 : kv.scales[scale_offset(kv, u.page_ids, u.page_size, token)];
}

/// One query of one head.
class Row {
 public:
  Row(const Problem& p, const RequestView& r, int32_t head, int32_t q, const RowMask& mask)
      : p_(p),
        t_(p.params.terms),
        r_(r),
        head_(head),
        q_(q),
        position_(int64_t{r.kv_len} - r.q_len + q),
        mask_(mask) {
    if (t_.temperature_len > 0 && position_ > t_.temperature_len)
      temperature_ = log_portable(static_cast<float>(position_)) /
                     log_portable(static_cast<float>(t_.temperature_len));
    const int64_t heads = p.params.num_qo_heads;
    if (!t_.key_bias.empty()) {
      int64_t first = head * (std::ssize(t_.key_bias) / heads);
      for (int32_t i = 0; i < r.index; ++i) first += p.requests[static_cast<size_t>(i)].kv_len;
      key_bias_ = t_.key_bias.data() + first;
    }
    if (!t_.qq_bias.empty()) width_ = static_cast<int64_t>(std::sqrt(std::ssize(t_.qq_bias)));
    if (!t_.relative_bias.empty()) {
      farthest_ = std::ssize(t_.relative_bias) / heads / 2;
      relative_bias_ = t_.relative_bias.data() + head * (2 * farthest_ + 1) + farthest_;
    }
  }

  bool sees(int64_t key) const {
    const CustomMask& m = p_.params.custom_mask;
    if (key < mask_.begin || key >= mask_.end) return false;
    if (m.kind == CustomMask::Kind::kNone) return true;
    const int64_t pair = mask_.first_pair + head_ * pairs_a_head(p_, r_.index) + key;
    const auto at = [&](int64_t i) { return m.data[static_cast<size_t>(i)]; };
    return m.kind == CustomMask::Kind::kBool ? at(pair) != 0
                                             : (at(pair / 8) >> (pair % 8) & 1) != 0;
  }

  /// Natural. q_k: their product.
  double logit(double q_k, double scale, int64_t key) const {
    const double cap = p_.params.logits_soft_cap;
    double s = q_k * scale;
    if (cap > 0) s = cap * plain_tanh(s / cap);
    return s * temperature_ + bias(key);
  }

  double bias(int64_t key) const {
    const int64_t ahead = key - position_;
    double sum = 0;
    if (!t_.alibi_slopes.empty()) sum += slope_term(ahead);
    if (key_bias_ != nullptr) sum += key_bias_[key];
    const int64_t query_of_key = key - (int64_t{r_.kv_len} - r_.q_len);
    if (q_ < width_ && query_of_key >= 0 && query_of_key < width_)
      sum += t_.qq_bias[static_cast<size_t>(q_ * width_ + query_of_key)];
    if (relative_bias_ != nullptr) sum += relative_bias_[std::clamp(ahead, -farthest_, farthest_)];
    return sum;
  }

 private:
  double slope_term(int64_t ahead) const {
    const double slope = t_.alibi_slopes[static_cast<size_t>(head_)];
    const auto distance = static_cast<double>(ahead);
    switch (t_.alibi) {
      case AttentionTerms::Alibi::kLinear: return slope * distance;
      case AttentionTerms::Alibi::kDistance: return -slope * std::abs(distance);
      case AttentionTerms::Alibi::kSqrt: break;
    }
    return ahead < 0 ? -slope * std::sqrt(-distance) : 0;
  }

  const Problem& p_;
  const AttentionTerms& t_;
  const RequestView& r_;
  const int32_t head_, q_;
  const int64_t position_;
  const RowMask& mask_;
  double temperature_ = 1;
  const float* key_bias_ = nullptr;       // of the head and the request's first key
  const float* relative_bias_ = nullptr;  // of the head and distance 0
  int64_t width_ = 0, farthest_ = 0;
};

/// The states of one row. u: at the row's KV head.
void attend_row(const Row& row, const AttendUnit& u, const std::byte* q, double scale, float* m,
                float* d, float* o) {
  struct SeenKey {
    int64_t key;
    double weight;  // first its logit, in f32 to base 2: equal ones weigh exactly the same
  };
  std::array<SeenKey, kSplit> room;
  size_t count = 0;
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t key = u.begin; key < u.end; ++key) {
    if (!row.sees(key) || row.bias(key) == kNone) continue;
    double dot = 0;
    for (int64_t i = 0; i < u.k.head_dim; ++i)
      dot += double{load_float(q, u.q_dtype, i)} * element(u.k, u, key, i);
    const double natural = row.logit(dot, scale * token_scale(u.k, u, key), key);
    // A bias of the lowest float is a number, too.
    constexpr double kMost = std::numeric_limits<float>::max();
    const double in_base_2 = natural * kLog2E;
    const auto s = static_cast<float>(std::isfinite(natural) ? std::clamp(in_base_2, -kMost, kMost)
                                                             : in_base_2);
    room[count++] = {key, s};
    top = std::isnan(top) || s <= top ? top : s;
  }
  const std::span<SeenKey> seen(room.data(), count);
  std::fill_n(o, u.o_stride, 0.f);
  *m = top;
  double sum = 0;
  for (SeenKey& s : seen) sum += s.weight = plain_exp((s.weight - top) * kLn2);
  *d = static_cast<float>(sum);
  for (SeenKey& s : seen) s.weight *= token_scale(u.v, u, s.key);
  for (int64_t i = 0; i < u.v.head_dim; ++i) {
    double value = 0;
    for (const SeenKey& s : seen) value += s.weight * element(u.v, u, s.key, i);
    o[i] = static_cast<float>(value);
  }
}

}  // namespace

void attend_terms(const Problem& p, const RequestView& r, int32_t kv_head, int32_t q_begin,
                  const AttendUnit& unit) {
  const int64_t rows_a_head = int64_t{unit.tokens} * unit.group;
  for (int32_t h = 0; h < unit.heads; ++h) {
    AttendUnit u = unit;
    u.k = at_head(unit.k, h), u.v = at_head(unit.v, h);
    const double scale = logit_scale(p, r, kv_head + h);
    for (int64_t i = 0; i < rows_a_head; ++i) {
      const auto token = static_cast<int32_t>(i / unit.group);
      const auto in_group = static_cast<int32_t>(i % unit.group);
      const int32_t head = (kv_head + h) * unit.group + in_group;
      const int64_t at = h * rows_a_head + i;
      const Row row(p, r, head, q_begin + token, unit.masks[token]);
      const std::byte* q = p.q.at(r.q_begin + q_begin + token, head);
      attend_row(row, u, q, scale, unit.m + at, unit.d + at, unit.o + at * unit.o_stride);
    }
  }
}

}  // namespace shadowgraph
