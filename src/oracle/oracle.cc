#include "oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/mask.h"
#include "attn/page_table.h"
#include "attn/request_terms.h"
#include "core/float_formats.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The scales of a token's key and value, in an i8 cache.
struct TokenScales {
  double k = 1, v = 1;
};

/// One request, wherever its tokens lie: load reads one key of one KV head, as it is stored.
struct Request {
  size_t index;
  int64_t first_row;  // of q
  int32_t q_len, kv_len;
  double k_scale, v_scale;
  bool k_scaled, v_scaled;
  int64_t first_bias;  // its first key, of the keys of all requests
  std::function<TokenScales(int32_t kv_head, int32_t key, double* k, double* v)> load;
};

void load_row(const std::byte* data, DType dtype, int64_t first, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = load_float(data, dtype, first + i);
}

void load_row(const KvPlane& p, int64_t page, int64_t token, int64_t head, double* to) {
  for (int64_t d = 0; d < p.head_dim; ++d)
    to[d] = load_float(p.data, p.dtype, p.offset(page, token, head, d));
}

double scale_of(const KvPlane& p, int64_t page, int64_t token, int64_t head) {
  return p.scales == nullptr ? 1 : p.scales[p.scale_offset(page, token, head)];
}

/// The custom mask's word on (head, q, k). Packed: least significant bit first.
bool allowed(const CustomMask& mask, const Request& r, int64_t head, int64_t q, int64_t k) {
  if (mask.kind == CustomMask::Kind::kNone) return true;
  const uint8_t* data = mask.data.data() + mask.mask_indptr[r.index];
  const int64_t of_head = mask.heads == 1 ? 0 : head * r.q_len;
  const int64_t pair = (of_head + q) * r.kv_len + k;
  if (mask.kind == CustomMask::Kind::kBool) return data[pair] != 0;
  return (data[pair / 8] >> (pair % 8) & 1) != 0;
}

ScorePlace place_of(const Request& r, int64_t head, int64_t q, int64_t k) {
  return {head, q, k, int64_t{r.kv_len} - r.q_len, r.first_bias};
}

/// A bias of -inf hides a key.
std::vector<int32_t> visible_keys(const AttentionParams& p, const Request& r, int64_t head,
                                  int64_t q) {
  const MaskShape shape = MaskShape::of(p, static_cast<int64_t>(r.index), r.q_len, r.kv_len);
  std::vector<int32_t> keys;
  for (int32_t k = 0; k < r.kv_len; ++k) {
    if (attends(shape, q, k) && allowed(p.custom_mask, r, head, q, k) &&
        added_terms(p, place_of(r, head, q, k)).sum != -kInfinity)
      keys.push_back(k);
  }
  return keys;
}

}  // namespace

AddedTerms added_terms(const AttentionParams& p, const ScorePlace& at) {
  const AttentionTerms& t = p.terms;
  const int64_t ahead = at.key - (at.first_position + at.query);
  const auto distance = static_cast<double>(ahead);
  AddedTerms a;
  if (!t.alibi_slopes.empty()) {
    const double slope = t.alibi_slopes[static_cast<size_t>(at.head)];
    if (t.alibi == AttentionTerms::Alibi::kLinear) a.add(slope * distance);
    if (t.alibi == AttentionTerms::Alibi::kDistance) a.add(-slope * std::abs(distance));
    if (t.alibi == AttentionTerms::Alibi::kSqrt && ahead < 0) a.add(-slope * std::sqrt(-distance));
  }
  if (!t.key_bias.empty()) {
    const int64_t all = std::ssize(t.key_bias) / p.num_qo_heads;
    a.add(t.key_bias[static_cast<size_t>(at.head * all + at.first_bias + at.key)]);
  }
  if (!t.qq_bias.empty()) {
    const auto width = std::lround(std::sqrt(static_cast<double>(t.qq_bias.size())));
    const int64_t other = at.key - at.first_position;
    if (at.query < width && other >= 0 && other < width)
      a.add(t.qq_bias[static_cast<size_t>(at.query * width + other)]);
  }
  if (!t.relative_bias.empty()) {
    const int64_t width = std::ssize(t.relative_bias) / p.num_qo_heads, most = width / 2;
    const int64_t column = most + std::clamp<int64_t>(ahead, -most, most);
    a.add(t.relative_bias[static_cast<size_t>(at.head * width + column)]);
  }
  return a;
}

double temperature_at(const AttentionTerms& t, int64_t position) {
  if (t.temperature_len == 0 || position <= t.temperature_len) return 1;
  return std::log(static_cast<double>(position)) / std::log(static_cast<double>(t.temperature_len));
}

void finish(OracleRow& row) {
  const int64_t dim = row.values->cols();
  row.out = Eigen::ArrayXd::Zero(dim);
  row.lse = -kInfinity;
  row.lse_with_sink = row.sink;
  row.mass = row.mass_with_sink = 0;
  if (row.empty()) return;
  const double top = row.logits.maxCoeff(), high = std::max(top, row.sink);
  row.weights = (row.logits - top).exp();
  row.mass = row.weights.sum();
  row.mass_with_sink = row.mass * std::exp(top - high) + std::exp(row.sink - high);
  row.lse = top + std::log(row.mass);
  row.lse_with_sink = high + std::log(row.mass_with_sink);
  row.weights *= std::exp(top - high) / row.mass_with_sink;
  for (size_t j = 0; j < row.keys.size(); ++j) {
    row.out += row.weights[static_cast<Eigen::Index>(j)] *
               row.values->row(row.keys[j]).transpose().array();
  }
}

double largest_of(const RowMatrix& x) {
  return x.size() == 0 ? 0 : std::max(0.0, x.cwiseAbs().maxCoeff<Eigen::PropagateNumbers>());
}

int32_t terms_of(const Eigen::VectorXd& q) {
  return std::max(1, static_cast<int32_t>((q.array() != 0.0).count()));
}

void resize_logits(OracleRow& row) {
  for (Eigen::ArrayXd* of_keys :
       {&row.logits, &row.uncapped, &row.magnitudes, &row.products, &row.key_scales})
    of_keys->resize(static_cast<Eigen::Index>(row.keys.size()));
}

void set_logits(const RowMatrix& k, const RowMatrix& abs_k, const Eigen::ArrayXd& key_scales,
                const Eigen::VectorXd& q, const KeyRun& run, OracleRow& row) {
  if (run.begin == run.end) return;
  const Eigen::Index first = row.keys[run.begin], count = row.keys[run.end - 1] - first + 1;
  const Eigen::VectorXd dots = k.middleRows(first, count) * q;
  const Eigen::VectorXd sums = abs_k.middleRows(first, count) * q.cwiseAbs();
  for (auto j = static_cast<Eigen::Index>(run.begin); j < static_cast<Eigen::Index>(run.end); ++j) {
    const Eigen::Index at = row.keys[static_cast<size_t>(j)] - first;
    const double key_scale = key_scales[at + first], s = dots[at] * row.scale * key_scale;
    row.logits[j] = row.soft_cap > 0 ? row.soft_cap * std::tanh(s / row.soft_cap) : s;
    row.uncapped[j] = std::abs(s);
    row.products[j] = sums[at];
    row.key_scales[j] = std::abs(key_scale);
    row.magnitudes[j] = sums[at] * row.scale * row.key_scales[j];
  }
}

namespace {

/// dual: null for a call with one query a row, of `position`.
std::vector<KeyRun> runs_of(const ConstTensorView& q, const DualChunkQueries* dual,
                            const std::vector<int32_t>& keys, int32_t position) {
  if (dual == nullptr) return {{&q, 0, keys.size()}};
  std::vector<KeyRun> runs;
  for (size_t j = 0; j < keys.size(); ++j) {
    const auto part = static_cast<size_t>(dual->chunks.part(position, keys[j]));
    if (runs.empty() || runs.back().q != &dual->q[part]) runs.push_back({&dual->q[part], j, j});
    ++runs.back().end;
  }
  return runs;
}

/// Temperature, and what is added to logits.
void add_terms(const AttentionParams& p, const Request& r, int64_t q, OracleRow& row) {
  row.logits *= row.temperature;
  row.magnitudes *= row.temperature;
  row.added.resize(row.logits.size());
  for (size_t j = 0; j < row.keys.size(); ++j) {
    const AddedTerms a = added_terms(p, place_of(r, row.head, q, row.keys[j]));
    row.logits[static_cast<Eigen::Index>(j)] += a.sum;
    row.added[static_cast<Eigen::Index>(j)] = a.magnitude;
  }
}

/// The keys that each query and head of a request sees. Heads see the same ones unless something of
/// their own says otherwise.
class RequestKeys {
 public:
  RequestKeys(const AttentionParams& p, const Request& r)
      : alike_(p.custom_mask.heads == 1 && p.terms.key_bias.empty() && p.terms.qq_bias.empty() &&
               p.terms.relative_bias.empty()),
        q_len_(r.q_len),
        seen_(static_cast<size_t>(r.kv_len)) {
    for (int32_t head = 0; head < (alike_ ? 1 : p.num_qo_heads); ++head) {
      for (int32_t i = 0; i < r.q_len; ++i) {
        keys_.push_back(visible_keys(p, r, head, i));
        for (int32_t k : keys_.back()) seen_[static_cast<size_t>(k)] = 1;
      }
    }
  }
  const std::vector<int32_t>& of(int32_t head, int32_t query) const {
    const int64_t list = (alike_ ? 0 : int64_t{head} * q_len_) + query;
    return keys_[static_cast<size_t>(list)];
  }
  bool seen(int32_t key) const { return seen_[static_cast<size_t>(key)] != 0; }

 private:
  const bool alike_;
  const int32_t q_len_;
  std::vector<std::vector<int32_t>> keys_;
  std::vector<char> seen_;
};

void visit_request(const ConstTensorView& q, const DualChunkQueries* dual, const AttentionParams& p,
                   const Request& r, const VisitRow& visit) {
  const AttentionTerms& t = p.terms;
  const int32_t group = p.num_qo_heads / p.num_kv_heads;
  const auto request = static_cast<int64_t>(r.index);
  const RequestKeys keys(p, r);
  OracleRow row;
  const bool scales = dual != nullptr && !dual->scales.empty();
  row.soft_cap = p.logits_soft_cap;
  row.terms = p.head_dim_qk;
  row.k_scaled = r.k_scaled, row.v_scaled = r.v_scaled;
  row.scale_factors = (t.q_scale == 1 ? 0 : 1) + (t.k_scales.empty() ? 0 : 1);
  row.v_scale_factors = (t.out_scale == 1 ? 0 : 1) + (t.v_scales.empty() ? 0 : 1);
  Eigen::VectorXd query(p.head_dim_qk);
  for (int32_t kv_head = 0; kv_head < p.num_kv_heads; ++kv_head) {
    row.scale = double{scales ? dual->scales[r.index] : p.sm_scale} * r.k_scale * t.q_scale *
                head_scale(t.k_scales, request, kv_head, p.num_kv_heads);
    row.v_scale =
        r.v_scale * t.out_scale * head_scale(t.v_scales, request, kv_head, p.num_kv_heads);
    RowMatrix k = RowMatrix::Zero(r.kv_len, p.head_dim_qk);
    RowMatrix v = RowMatrix::Zero(r.kv_len, p.head_dim_vo);
    Eigen::ArrayXd key_scales = Eigen::ArrayXd::Ones(r.kv_len);
    row.value_scale_max = r.v_scaled ? 0 : 1;
    for (int32_t key = 0; key < r.kv_len; ++key) {
      if (!keys.seen(key)) continue;
      const TokenScales z = r.load(kv_head, key, k.row(key).data(), v.row(key).data());
      key_scales[key] = z.k;
      v.row(key) *= z.v;
      row.value_scale_max = std::max(row.value_scale_max, std::abs(z.v));
    }
    const RowMatrix abs_k = k.cwiseAbs();
    row.key_max = largest_of(abs_k);
    v *= row.v_scale;
    row.value_max = largest_of(v);
    row.values = &v;
    for (int32_t i = 0; i < r.q_len; ++i) {
      row.row = r.first_row + i;
      row.temperature = temperature_at(t, int64_t{r.kv_len} - r.q_len + i);
      for (row.head = kv_head * group; row.head < (kv_head + 1) * group; ++row.head) {
        row.keys = keys.of(row.head, i);
        const std::vector<KeyRun> runs = runs_of(q, dual, row.keys, r.kv_len - r.q_len + i);
        resize_logits(row);
        row.query_max = 0;
        for (const KeyRun& run : runs) {
          load_row(run.q->data, run.q->dtype, run.q->offset(row.row, row.head, 0), p.head_dim_qk,
                   query.data());
          row.query_max = std::max(row.query_max, query.lpNorm<Eigen::Infinity>());
          set_logits(k, abs_k, key_scales, query, run, row);
        }
        if (dual == nullptr) row.terms = terms_of(query);
        if (t.changes_scores()) add_terms(p, r, i, row);
        row.sink = p.sinks.empty() ? -kInfinity : p.sinks[static_cast<size_t>(row.head)];
        finish(row);
        visit(row);
      }
    }
  }
}

template <LseBase Base>
void visit_merge(const MergeStates<Base>& call, const VisitRow& visit) {
  const double to_natural = Base == LseBase::kLog2 ? std::log(2.0) : 1;
  const int64_t states = call.v.shape[1], dim = call.v.shape[3];
  RowMatrix values = RowMatrix::Zero(states, dim);
  OracleRow row;
  row.values = &values;
  row.sink = -kInfinity;
  for (row.row = 0; row.row < call.v.shape[0]; ++row.row) {
    for (row.head = 0; row.head < call.v.shape[2]; ++row.head) {
      row.keys.clear();
      std::vector<double> logits;
      for (int32_t i = 0; i < states; ++i) {
        const double s = load_float(call.s.data, DType::kF32, call.s.offset(row.row, i, row.head));
        if (std::isinf(s)) continue;
        row.keys.push_back(i);
        logits.push_back(s * to_natural);
        load_row(call.v.data, call.v.dtype, call.v.offset(row.row, i, row.head, 0), dim,
                 values.row(i).data());
      }
      const auto n = static_cast<Eigen::Index>(logits.size());
      row.value_max = values.lpNorm<Eigen::Infinity>();
      row.logits = Eigen::Map<Eigen::ArrayXd>(logits.data(), n);
      // The logits are given; what a kernel may have to do is turn s - max into an exponent of 2.
      row.magnitudes = Eigen::ArrayXd::Zero(n);
      row.products = row.magnitudes;
      row.key_scales = Eigen::ArrayXd::Ones(n);
      if (Base != LseBase::kLog2 && !row.empty())
        row.magnitudes = row.logits.maxCoeff() - row.logits;
      finish(row);
      visit(row);
    }
  }
}

void visit_paged(const PagedAttention& call, const DualChunkQueries* dual, const VisitRow& visit) {
  const KvCache& c = call.cache;
  const AttentionParams& p = call.params;
  int64_t first_bias = 0;
  for (size_t i = 0; i < static_cast<size_t>(call.pages.batch()); ++i) {
    const RequestPages pages = request_pages(call.pages, c.page_size, static_cast<int64_t>(i));
    const auto load = [&](int32_t head, int32_t key, double* k, double* v) {
      const int64_t page = pages.page_ids[key / c.page_size], token = key % c.page_size;
      load_row(c.k, page, token, head, k);
      load_row(c.v, page, token, head, v);
      return TokenScales{scale_of(c.k, page, token, head), scale_of(c.v, page, token, head)};
    };
    const bool decode = call.cu_seqlens_q.empty();
    const int64_t first_row = decode ? static_cast<int64_t>(i) : call.cu_seqlens_q[i];
    const int32_t rows = decode ? 1 : call.cu_seqlens_q[i + 1] - call.cu_seqlens_q[i];
    visit_request(call.q, dual, p,
                  {i, first_row, used_rows(p.terms.seqused_q, i, rows), pages.kv_len, c.k_scale,
                   c.v_scale, c.k.scales != nullptr, c.v.scales != nullptr, first_bias, load},
                  visit);
    first_bias += pages.kv_len;
  }
}

void visit_ragged(const RaggedAttention& call, const DualChunkQueries* dual,
                  const VisitRow& visit) {
  const AttentionParams& p = call.params;
  int64_t first_bias = 0;
  for (size_t i = 0; i + 1 < call.cu_seqlens_q.size(); ++i) {
    const int32_t first_row = call.cu_seqlens_q[i], first_key = call.cu_seqlens_k[i];
    const auto load = [&](int32_t head, int32_t key, double* k, double* v) {
      load_row(call.k.data, call.k.dtype, call.k.offset(first_key + key, head, 0), p.head_dim_qk,
               k);
      load_row(call.v.data, call.v.dtype, call.v.offset(first_key + key, head, 0), p.head_dim_vo,
               v);
      return TokenScales{};
    };
    const int32_t q_len = used_rows(p.terms.seqused_q, i, call.cu_seqlens_q[i + 1] - first_row);
    const int32_t kv_len = used_rows(p.terms.seqused_k, i, call.cu_seqlens_k[i + 1] - first_key);
    visit_request(
        call.q, dual, p,
        {i, first_row, q_len, kv_len, call.k_scale, call.v_scale, false, false, first_bias, load},
        visit);
    first_bias += kv_len;
  }
}

}  // namespace

void for_each_row(const PagedAttention& call, const VisitRow& visit) {
  visit_paged(call, nullptr, visit);
}
void for_each_row(const RaggedAttention& call, const VisitRow& visit) {
  visit_ragged(call, nullptr, visit);
}
void for_each_row(const DualChunkCall<PagedAttention>& call, const VisitRow& visit) {
  visit_paged(call.call, &call.queries, visit);
}
void for_each_row(const DualChunkCall<RaggedAttention>& call, const VisitRow& visit) {
  visit_ragged(call.call, &call.queries, visit);
}
void for_each_row(const MergeStates<LseBase::kNatural>& call, const VisitRow& visit) {
  visit_merge(call, visit);
}
void for_each_row(const MergeStates<LseBase::kLog2>& call, const VisitRow& visit) {
  visit_merge(call, visit);
}

}  // namespace shadowgraph
