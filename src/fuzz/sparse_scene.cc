#include "fuzz/sparse_scene.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/gapped.h"

namespace shadowgraph {
namespace {

/// Every element of a group is a multiple of its scale where the largest is 448.
constexpr float kLargestCode = 448;
constexpr int64_t kLeastGroup = 64;

/// An exact key: small integers, and in each group one 448; its last element selects it.
void make_exact(const SparseCase& x, bool hot, Rng& rng, float* latent) {
  for (int64_t i = 0; i < x.head_dim; ++i) {
    latent[i] = static_cast<float>(static_cast<int>(rng.below(17)) - 8);
    if (i % kLeastGroup == 1) latent[i] = kLargestCode;
  }
  latent[x.head_dim - 1] = hot ? 1 : 0;
}

}  // namespace

SparseData::SparseData(const SparseCase& x) {
  Rng rng(x.seed);
  for (int64_t i = 0; i < x.tokens() * x.heads * x.head_dim; ++i) {
    const bool last = i % x.head_dim == x.head_dim - 1;
    const float unit = rng.signed_unit() * (x.data == CaseData::kPeaked ? 8.F : 1.F);
    const float exact = x.data == CaseData::kSelector && last ? 8192 : 0;
    q.push_back(is_exact(x.data) ? exact : unit);
  }
  for (int list = 0; list < 2; ++list) {
    const auto l = static_cast<size_t>(list);
    const int64_t keys = first_key(x, list, x.tokens());
    latents[l].resize(static_cast<size_t>(keys * x.head_dim));
    for (int64_t key = 0; key < keys; ++key) {
      hot[l].push_back(x.data == CaseData::kSelector && rng.below(4) == 0);
      float* latent = &latents[l][static_cast<size_t>(key * x.head_dim)];
      if (is_exact(x.data)) {
        make_exact(x, hot[l].back() != 0, rng, latent);
      } else {
        for (int64_t i = 0; i < x.head_dim; ++i) latent[i] = rng.signed_unit();
      }
    }
  }
  // Of logit 0, which on exact data weighs 1 where no hot key is seen, or of none.
  for (int32_t h = 0; x.sinks && h < x.heads; ++h)
    sinks.push_back(is_exact(x.data) ? 0.F : 4 * rng.signed_unit());
}

int64_t SparseData::first_key(const SparseCase& x, int list, int64_t token) {
  const std::vector<int32_t>& seen = list == 0 ? x.seen : x.seen_extra;
  const auto end = std::min<int64_t>(token, std::ssize(seen));
  return std::accumulate(seen.begin(), seen.begin() + end, int64_t{0});
}

SparseScene::SparseScene(const SparseCase& x, const SparseData& data, const SparseArrangement& how)
    : x_(x), how_(how), sinks_(data.sinks) {
  Rng rng(how.seed);
  const auto tokens = std::ssize(how.tokens);
  const TensorView q = make_gapped(q_, x.q_dtype, {tokens, x.heads, x.head_dim}, rng);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < int64_t{x.heads} * x.head_dim; ++i)
      store_float(q.at(t, i / x.head_dim), x.q_dtype, i % x.head_dim,
                  data.q[static_cast<size_t>(
                      how.tokens[static_cast<size_t>(t)] * x.heads * x.head_dim + i)]);
  call_.q = q;
  make_list(make_pool(data, 0, rng, &call_.keys), 0, rng, &call_.keys);
  if (x.has_extra) make_list(make_pool(data, 1, rng, &call_.extra), 1, rng, &call_.extra);
  call_.head_dim_v = x.head_dim_v;
  call_.sm_scale = x.data == CaseData::kSelector ? 0.25F : 0.0721F;
  call_.sinks = sinks_;
  call_.out = make_gapped(out_, x.out_dtype, {tokens, x.heads, x.head_dim_v}, rng);
  if (how.with_lse) call_.lse = NaturalLse(make_gapped_lse(lse_, tokens, x.heads, rng));
  call_.options = how.options;
  call_.options.lse_sink = x.lse_sink;
}

std::vector<int64_t> SparseScene::make_pool(const SparseData& data, int list, Rng& rng,
                                            ChosenKeys* keys) {
  const auto l = static_cast<size_t>(list);
  const LatentLayout layout = list == 0 ? x_.layout : x_.extra_layout;
  const int64_t count = SparseData::first_key(x_, list, x_.tokens());
  const int32_t page_size = layout == LatentLayout::kV4 ? how_.page_size[l] : 1;
  const int64_t units = (count + rng.below(20) + page_size) / page_size;
  PackLatents pack;
  const int64_t width = layout == LatentLayout::kRows  ? x_.head_dim
                        : layout == LatentLayout::kDsa ? kDsaBytes
                                                       : v4_page_bytes(page_size);
  pack.pool = {
      make_gapped(lists_[l].pool, layout == LatentLayout::kRows ? x_.rows_dtype : DType::kU8,
                  {units, width}, rng),
      layout, page_size};
  std::vector<int64_t> slots(static_cast<size_t>(pack.pool.slots()));
  std::iota(slots.begin(), slots.end(), int64_t{0});
  shuffle(slots, rng);
  slots.resize(static_cast<size_t>(count));
  pack.latents = ConstTensorView(data.latents[l].data(), DType::kF32, {count, x_.head_dim});
  pack.out_cache_loc = slots;
  pack.options = how_.options;
  made_.add(pack_latents(pack));
  keys->pool = pack.pool;
  return slots;
}

void SparseScene::make_list(const std::vector<int64_t>& slots, int list, Rng& rng,
                            ChosenKeys* keys) {
  const auto l = static_cast<size_t>(list);
  List& made = lists_[l];
  std::vector<std::vector<int32_t>> rows;
  size_t widest = 0;
  for (const int64_t token : how_.tokens) {
    rows.emplace_back();
    const int64_t end = SparseData::first_key(x_, list, token + 1);
    for (int64_t key = SparseData::first_key(x_, list, token); key < end; ++key) {
      while (how_.holes && rng.below(4) == 0) rows.back().push_back(-1);
      rows.back().push_back(static_cast<int32_t>(slots[static_cast<size_t>(key)]));
    }
    if (rows.back().empty() && rng.below(2) == 0) rows.back().push_back(-1);
    widest = std::max(widest, rows.back().size());
  }
  widest += rng.below(3);
  made.indptr = {0};
  for (std::vector<int32_t>& row : rows) {
    made.lengths.push_back(static_cast<int32_t>(row.size()));
    // What is behind a list's length is not looked at.
    if (!how_.ragged[l]) row.resize(widest, INT32_MIN);
    made.indices.insert(made.indices.end(), row.begin(), row.end());
    made.indptr.push_back(static_cast<int32_t>(made.indices.size()));
  }
  keys->indices = made.indices;
  if (how_.ragged[l]) {
    keys->indptr = made.indptr;
  } else {
    keys->width = static_cast<int64_t>(widest);
    keys->lengths = made.lengths;
  }
}

Status SparseScene::run(const SparseSlip& slip) {
  Status status = std::move(made_);
  if (!status.ok()) return status;
  const auto fingerprint = [&] {
    return q_.fingerprint() ^ lists_[0].pool.fingerprint() * 3 ^ lists_[1].pool.fingerprint() * 5;
  };
  const uint64_t before = fingerprint();
  SparseAttention call = call_;
  if (slip) slip(call);
  status = sparse_attention(call);
  if (!status.ok()) return status;
  if (fingerprint() != before)
    status.add(make_finding("num.write_set", at("q, pool"), "unchanged", "changed by the call"));
  status.add(check_write_set(out_, call_.out, "out"));
  status.add(check_write_set(lse_, call_.lse.tensor, "lse"));
  return status;
}

}  // namespace shadowgraph
