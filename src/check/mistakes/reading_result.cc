#include "check/mistakes/reading_result.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>

#include "attn/mask.h"
#include "check/mistakes/readings.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMergeRoundings = 0x1p-20;  // of weights and sums, relative: f32, a few of each

double load(const ConstTensorView& t, int64_t offset) {
  if (t.dtype != DType::kF64) return load_float(t.data, t.dtype, offset);
  double value;
  std::memcpy(&value, t.data + offset * 8, 8);
  return value;
}

bool within(double got, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(got);
  if (got == expected) return true;
  return std::isfinite(bound) && std::isfinite(expected) && std::abs(got - expected) <= bound;
}

/// One query head and one KV head of a pool.
KvCache one_head(KvCache cache, int32_t kv_head) {
  for (KvPlane* p : {&cache.k, &cache.v}) {
    p->data += kv_head * p->head_stride * static_cast<int64_t>(size_of(p->dtype));
    if (p->scales != nullptr) p->scales += kv_head * p->scale_head_stride;
  }
  cache.num_kv_heads = 1;
  return cache;
}

int32_t kv_head_of(const Reading& reading, int32_t head) {
  const AttentionParams& p = reading.params;
  switch (reading.heads) {
    case Reading::Heads::kInterleaved: return head % p.num_kv_heads;
    case Reading::Heads::kByKvHeads: return head / p.num_kv_heads % p.num_kv_heads;
    case Reading::Heads::kGrouped: break;
  }
  return head / (p.num_qo_heads / p.num_kv_heads);
}

}  // namespace

auto ReadingResults::expected_of(const OracleRow& row, int64_t result_row) const
    -> std::optional<Expected> {
  Expected e{row.out,    Eigen::ArrayXd::Zero(row.out.size()), row.lse, 0, row.lse_with_sink,
             row.empty()};
  if (e.empty || (options_.exact && !row.out.isFinite().all())) return e;
  if (options_.exact) {
    if (row.weights.maxCoeff() < 0.4) return {};
    e.out = row.out.cast<float>().cast<double>();
    return e;
  }
  Arithmetic arithmetic = arithmetic_;
  if (!options_.parts.empty()) arithmetic.parts = options_.parts[static_cast<size_t>(result_row)];
  const DType out_type = result_.out.defined() ? result_.out.dtype : DType::kF32;
  const ErrorBound bound = error_bound(row, arithmetic, scene_.q.dtype, out_type, result_.lse_sink);
  e.out_bound = bound.out, e.lse_bound = bound.lse;
  return e;
}

bool ReadingResults::visit_row(const Reading& r, const HeadRow& cell, std::vector<int32_t> tokens,
                               const std::vector<int32_t>* places, const VisitRow& visit) const {
  int32_t kv_head = kv_head_of(r, cell.head);
  const int32_t own_kv_head = kv_head;
  const int64_t query = r.first_query + (r.one_query ? 0 : cell.query);
  if (std::ranges::find(tokens, kNoToken) != tokens.end()) return false;
  if (query < 0 || query >= scene_.q.shape[0]) return false;
  const int32_t length[] = {static_cast<int32_t>(tokens.size())};
  const int32_t cu_seqlens_q[] = {0, 1};
  PagedAttention call;
  call.q = scene_.q;
  call.q.data = scene_.q.at(query) +
                cell.head * scene_.q.stride[1] * static_cast<int64_t>(size_of(scene_.q.dtype));
  call.q.shape[0] = call.q.shape[1] = 1;
  bool elements = r.elements;
  if (r.placed) {
    const auto stride = static_cast<int32_t>(scene_.tokens.k.head_stride);
    for (int32_t& token : tokens) {
      const auto [slot, head] = r.placed(token, kv_head);
      token = slot * static_cast<int32_t>(scene_.tokens.k.page_stride) + head * stride;
    }
    kv_head = 0, elements = true;
  }
  call.cache = one_head(scene_.tokens, kv_head);
  call.cache.k_scale = r.k_scale, call.cache.v_scale = r.v_scale;
  call.pages = PageTable::dense(tokens, std::ssize(tokens), length);
  call.cu_seqlens_q = cu_seqlens_q;
  if (elements) {
    KvCache& c = call.cache;
    if (c.k.scales != nullptr || c.v.scales != nullptr) return false;  // an element has no scale
    c.num_pages = (c.num_pages - 1) * c.k.page_stride + (r.placed ? c.k.page_stride : 1);
    c.k.page_stride = c.v.page_stride = 1;
    if (std::ranges::any_of(tokens, [&](int32_t at) { return at >= c.num_pages; })) return false;
  }
  std::vector<float> bias;
  call.params = params_of(r, cell, own_kv_head, places, &bias);
  for_each_row(call, visit);
  return true;
}

auto ReadingResults::attend(const Reading& r, const HeadRow& cell,
                            const std::vector<int32_t>& places) const -> std::optional<Expected> {
  std::vector<int32_t> tokens;
  for (const int32_t k : places) tokens.push_back(r.keys[static_cast<size_t>(k)]);
  std::optional<Expected> expected;
  const bool plain =
      !r.value_of && std::isinf(r.no_keys_mass) && r.lost_below == 0 && !r.other.before_cap;
  visit_row(r, cell, std::move(tokens), &places, [&](const OracleRow& row) {
    expected = plain ? expected_of(row, cell.row) : reread(r, cell, places, row);
  });
  return expected;
}

auto ReadingResults::reread(const Reading& r, const HeadRow& cell,
                            const std::vector<int32_t>& places, OracleRow row) const
    -> std::optional<Expected> {
  if (row.empty()) return {};
  RowMatrix others;
  if (r.value_of) {
    std::vector<int32_t> tokens;
    for (const int32_t k : places) {
      const int32_t other = r.value_of(k);
      if (other < 0 || other >= std::ssize(r.keys)) return {};
      tokens.push_back(r.keys[static_cast<size_t>(other)]);
    }
    if (!visit_row(r, cell, std::move(tokens), &places,
                   [&](const OracleRow& of) { others = *of.values; }))
      return {};
    row.values = &others;
    row.value_max = others.lpNorm<Eigen::Infinity>();
  }
  if (r.other.before_cap) cap_last(r, cell, places, row);
  const double lse = row.lse;
  const auto with_mass = [&](double log_sum) {
    const double top = std::max(log_sum, r.no_keys_mass);
    return std::isinf(top)
               ? top
               : top + std::log(std::exp(log_sum - top) + std::exp(r.no_keys_mass - top));
  };
  row.sink = with_mass(row.sink);
  finish(row);
  const double least = row.weights.maxCoeff() * r.lost_below;
  for (Eigen::Index j = 0; j < row.weights.size(); ++j) {
    if (row.weights[j] < least)
      row.out -=
          row.weights[j] * row.values->row(row.keys[static_cast<size_t>(j)]).transpose().array();
  }
  std::optional<Expected> e = expected_of(row, cell.row);
  if (e) e->lse = with_mass(lse);
  return e;
}

std::vector<Eigen::Index> ReadingResults::furthest(const Eigen::ArrayXd& right,
                                                   const HeadRow& cell) const {
  std::vector<std::pair<double, Eigen::Index>> apart;
  for (Eigen::Index i = 0; result_.out.defined() && i < right.size(); ++i) {
    const double distance =
        std::abs(load(result_.out, result_.out.offset(cell.row, cell.head, i)) - right[i]);
    apart.emplace_back(std::isnan(distance) ? 0 : -distance, i);
  }
  std::ranges::sort(apart);
  std::vector<Eigen::Index> elements;
  for (size_t i = 0; i < std::min(kLooks, apart.size()); ++i) elements.push_back(apart[i].second);
  return elements;
}

auto ReadingResults::look(size_t request, const Reading& right, const HeadRow& cell) const
    -> Looked {
  const std::vector<int32_t> places = seen_places(right, cell);
  std::vector<int32_t> tokens;
  for (const int32_t k : places) tokens.push_back(right.keys[static_cast<size_t>(k)]);
  std::vector<Eigen::Index> looks;
  Got got{.lse = kNan, .with_sink = result_.lse_sink == LseSink::kIncluded};
  visit_row(right, cell, std::move(tokens), &places, [&](const OracleRow& row) {
    looks = furthest(row.out, cell);
    got.unit = row.value_max;
  });
  got.out.fill(kNan);
  for (size_t i = 0; i < looks.size(); ++i)
    got.out[i] = load(result_.out, result_.out.offset(cell.row, cell.head, looks[i]));
  if (result_.lse.defined() && !options_.exact) {
    const double to_natural = result_.lse_base == LseBase::kLog2 ? std::numbers::ln2 : 1;
    got.lse = load(result_.lse, result_.lse.offset(cell.row, cell.head)) * to_natural;
  }
  const auto of_tokens = [this, right, cell, looks](const std::vector<int32_t>& keys,
                                                    bool unscaled) {
    Reading reading = right;
    if (unscaled) reading = without_scales(reading);
    std::vector<KeySum> sums(keys.size());
    visit_row(reading, cell, keys, nullptr, [&](const OracleRow& row) {
      for (size_t j = 0; j < sums.size(); ++j) {
        sums[j].top = row.logits[static_cast<Eigen::Index>(j)], sums[j].mass = 1;
        for (size_t i = 0; i < looks.size(); ++i)
          sums[j].values[i] = (*row.values)(static_cast<Eigen::Index>(j), looks[i]);
      }
    });
    return sums;
  };
  RowSums::Added added;
  if (changes_scores(right))
    added = [cell](const Reading& how, int32_t place) { return added_at(how, cell, place).sum(); };
  const double cap = right.params.logits_soft_cap * temperature_of(right, cell.query);
  return {RowSums(scene_, request, right, cell.query, cell.head, of_tokens, added, cap), got};
}

/// Weights are softmax(factor * lse). The error of a part's LSE moves its weight, by at most as
/// much relatively, and that moves the mean by what the part differs from it.
auto ReadingResults::merged(const Reading& r, const std::vector<Expected>& parts) const
    -> Expected {
  const bool mean = r.merge == Reading::Merge::kUnweighted;
  std::vector<double> scaled;
  double top = -kInfinity, sum = 0, natural = 0, largest = -kInfinity;
  for (size_t i = 0; i < parts.size(); ++i) {
    scaled.push_back(mean ? 0 : (i == 0 ? r.first_factor : r.other_factor) * parts[i].lse);
    top = std::max(top, scaled.back()), largest = std::max(largest, parts[i].lse);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    sum += std::exp(scaled[i] - top);
    natural += std::exp(parts[i].lse - largest);
  }
  Expected e = parts[0];
  e.out = Eigen::ArrayXd::Zero(e.out.size()), e.out_bound = e.out;
  for (size_t i = 0; i < parts.size(); ++i) e.out += std::exp(scaled[i] - top) / sum * parts[i].out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Expected& p = parts[i];
    const double weight = std::exp(scaled[i] - top) / sum;
    e.out_bound +=
        weight * (p.out_bound + (p.out - e.out).abs() * (4 * p.lse_bound + kMergeRoundings));
    e.out_bound += weight * p.out.abs() * kMergeRoundings;
  }
  e.lse = e.lse_with_sink = largest + std::log(natural);
  for (const Expected& p : parts) e.lse_bound = std::max(e.lse_bound, p.lse_bound);
  if (r.merge == Reading::Merge::kFirstLse) e.lse = e.lse_with_sink = parts.front().lse;
  if (r.merge == Reading::Merge::kLastLse) e.lse = e.lse_with_sink = parts.back().lse;
  return e;
}

auto ReadingResults::merged(const Reading& r, const HeadRow& cell,
                            const std::vector<int32_t>& places) const -> std::optional<Expected> {
  std::vector<std::vector<int32_t>> parts;
  int32_t last = -1;
  for (const int32_t k : places) {
    const int32_t part = r.chunks ? k / r.cut : static_cast<int32_t>(k >= r.cut);
    if (part != last) parts.emplace_back();
    last = part;
    parts.back().push_back(k);
  }
  const bool first_has_keys = !places.empty() && places.front() < r.cut;
  if (parts.empty() || options_.exact || (parts.size() < 2 && !r.first_unscaled)) return {};
  std::vector<Expected> results;
  for (const std::vector<int32_t>& part : parts) {
    Reading of_part = r;
    if (r.first_unscaled && first_has_keys && results.empty()) of_part = without_scales(of_part);
    std::optional<Expected> e = attend(of_part, cell, part);
    if (!e || !e->out.isFinite().all()) return {};
    results.push_back(std::move(*e));
  }
  return merged(r, results);
}

bool ReadingResults::holds_nan(int32_t token, const Reading& r, int32_t head) const {
  if (token == kNoToken) return true;
  const KvPlane& v = scene_.tokens.v;
  return std::isnan(load_float(v.data, v.dtype, v.offset(token, 0, kv_head_of(r, head), 0)));
}

bool ReadingResults::meets_hidden(const Reading& r, const HeadRow& cell,
                                  const std::vector<int32_t>& places) const {
  for (int32_t k = 0; k < static_cast<int32_t>(r.keys.size()); ++k) {
    const bool seen = std::ranges::binary_search(places, k);
    if (!seen && holds_nan(r.keys[static_cast<size_t>(k)], r, cell.head)) return true;
  }
  if (r.keys.empty()) return false;
  for (int64_t slot = r.keys.back() + 1;
       slot % scene_.page_size != 0 && slot < scene_.tokens.num_slots(); ++slot) {
    if (holds_nan(static_cast<int32_t>(slot), r, cell.head)) return true;
  }
  return false;
}

bool ReadingResults::is_unwritten(const ConstTensorView& t, const HeadRow& cell) const {
  if (!t.defined()) return true;
  const bool vector = t.rank == 3;
  const int64_t first = vector ? t.offset(cell.row, cell.head, 0) : t.offset(cell.row, cell.head);
  const int64_t count = vector ? t.shape[2] : 1;
  const auto item = static_cast<int64_t>(size_of(t.dtype));
  if (options_.unwritten) {
    return std::all_of(t.data + first * item, t.data + (first + count) * item,
                       [](std::byte b) { return b == std::byte{kUnwritten}; });
  }
  for (int64_t i = 0; i < count; ++i)
    if (!std::isnan(load(t, first + i))) return false;
  return true;
}

/// The row sees no key, and holds a mark of the kernel. If the judge filled the memory beforehand,
/// a NaN is no mark but a value that was read, and a mark is an LSE that was written and is finite.
bool ReadingResults::is_mark(const Reading& r, const HeadRow& cell) const {
  if (!seen_places(r, cell).empty()) return false;
  for (int64_t i = 0; result_.out.defined() && i < result_.out.shape[2]; ++i) {
    const double got = load(result_.out, result_.out.offset(cell.row, cell.head, i));
    if (got != 0 && (options_.unwritten || !std::isnan(got))) return false;
  }
  if (!result_.lse.defined()) return !options_.unwritten;
  const double lse = load(result_.lse, result_.lse.offset(cell.row, cell.head));
  if (!options_.unwritten) return lse != kInfinity;
  return std::isfinite(lse) && lse != 0 && !is_unwritten(result_.lse, cell);
}

/// A row that would be something else; its LSE may be written, or not.
bool ReadingResults::is_zero(const Reading& r, const HeadRow& cell) const {
  if (!result_.out.defined()) return false;
  for (int64_t i = 0; i < result_.out.shape[2]; ++i)
    if (load(result_.out, result_.out.offset(cell.row, cell.head, i)) != 0) return false;
  if (!result_.lse.defined()) return true;
  const double lse = load(result_.lse, result_.lse.offset(cell.row, cell.head));
  if (lse == 0 || lse == -kInfinity) return true;
  const std::optional<Expected> e = attend(r, cell, seen_places(r, cell));
  return e && agrees_lse(r, *e, cell);
}

bool ReadingResults::agrees_lse(const Reading& r, const Expected& e, const HeadRow& cell) const {
  if (!result_.lse.defined() || options_.exact) return r.lse == Reading::Lse::kRight;
  // What a merge in another base leaves is in neither.
  const bool other_base = r.first_factor != 1 || r.other_factor != 1;
  if (other_base || r.merge == Reading::Merge::kUnweighted) return true;
  if (r.lse == Reading::Lse::kUnwritten) return is_unwritten(result_.lse, cell);
  const bool included = (result_.lse_sink == LseSink::kIncluded) != (r.lse == Reading::Lse::kSink);
  double expected = included ? e.lse_with_sink : e.lse;
  double bound = e.lse_bound + std::abs(e.lse) * 0x1p-24;
  if (r.lse == Reading::Lse::kInfinite) expected = kInfinity;
  if (r.lse == Reading::Lse::kLog2) expected *= std::numbers::log2e, bound *= std::numbers::log2e;
  if (r.lse == Reading::Lse::kNaturalTwice) expected *= std::numbers::ln2;
  const double to_natural = result_.lse_base == LseBase::kLog2 ? std::numbers::ln2 : 1;
  const double got = load(result_.lse, result_.lse.offset(cell.row, cell.head)) * to_natural;
  return within(got, expected, bound);
}

bool ReadingResults::agrees(const Reading& r, const Expected& e, const HeadRow& cell) const {
  if (!agrees_lse(r, e, cell)) return false;
  for (Eigen::Index i = 0; result_.out.defined() && i < e.out.size(); ++i) {
    const double got = load(result_.out, result_.out.offset(cell.row, cell.head, i));
    if (!within(got, e.out[i], e.out_bound[i])) return false;
  }
  return true;
}

auto ReadingResults::nan_of(const HeadRow& cell) const -> Nan {
  Nan found = Nan::kNone;
  const auto see = [&](const ConstTensorView& t, int64_t offset) {
    if (!std::isnan(load(t, offset))) return;
    const auto item = static_cast<int64_t>(size_of(t.dtype));
    const bool held = std::all_of(t.data + offset * item, t.data + (offset + 1) * item,
                                  [](std::byte b) { return b == std::byte{kNanByte}; });
    if (found != Nan::kHeld) found = held ? Nan::kHeld : Nan::kMade;
  };
  const ConstTensorView& out = result_.out;
  for (int64_t i = 0; out.defined() && i < out.shape[2]; ++i)
    see(out, out.offset(cell.row, cell.head, i));
  if (result_.lse.defined()) see(result_.lse, result_.lse.offset(cell.row, cell.head));
  // Nobody knows what other memory held.
  return found == Nan::kMade && !options_.unwritten ? Nan::kHeld : found;
}

bool ReadingResults::agrees_as(Reading r, const HeadRow& cell) const {
  const Reading::Result result = std::exchange(r.result, Reading::Result::kComputed);
  switch (result) {
    case Reading::Result::kUnwritten:
      return is_unwritten(result_.out, cell) && is_unwritten(result_.lse, cell);
    case Reading::Result::kNoNumber: return nan_of(cell) == Nan::kHeld;
    case Reading::Result::kMadeNan: return nan_of(cell) == Nan::kMade;
    case Reading::Result::kZero: return is_zero(r, cell);
    case Reading::Result::kMark: return is_mark(r, cell);
    case Reading::Result::kOtherHead: break;
    case Reading::Result::kComputed:
    case Reading::Result::kNoKeys: return false;
  }
  for (r.computed_head = 0; r.computed_head < r.params.num_qo_heads; ++r.computed_head)
    if (r.computed_head != cell.head && agrees(r, cell)) return true;
  return false;
}

bool ReadingResults::agrees(const Reading& r, const HeadRow& cell) const {
  if (r.result == Reading::Result::kNoKeys) {
    const Eigen::ArrayXd zero = Eigen::ArrayXd::Zero(r.params.head_dim_vo);
    return agrees(r, Expected{zero, zero, -kInfinity, 0, -kInfinity, true}, cell);
  }
  if (r.result != Reading::Result::kComputed) return agrees_as(r, cell);
  for (int32_t other = 0; r.as_of_head && other < r.params.num_qo_heads; ++other) {
    if (other != cell.head && agrees(r.as_of_head(other), cell)) return true;
  }
  if (r.as_of_head) return false;
  const std::vector<int32_t> places = seen_places(r, cell);
  HeadRow computed = cell;
  if (r.computed_head >= 0) computed.head = r.computed_head;
  std::optional<Expected> e =
      r.merge == Reading::Merge::kNone ? attend(r, computed, places) : merged(r, computed, places);
  if (!e) return false;
  if (r.hidden_values && meets_hidden(r, cell, places)) e->out.setConstant(kNan);
  return agrees(r, *e, cell);
}

}  // namespace shadowgraph
