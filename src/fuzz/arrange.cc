#include "fuzz/arrange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attn/page_table.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/gapped.h"

namespace shadowgraph {

struct ArrangedCall::Memory {
  const Case& x;
  const LogicalData& data;
  Arrangement how;
  Rng rng;
  GuardedBuffer q, k, v, out, lse;
  std::vector<uint8_t> mask;
  std::vector<int64_t> mask_indptr;
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;
  DenseTable dense;
  CsrTable csr;
  std::vector<int64_t> out_cache_loc;
  PagedAttention paged;
  RaggedAttention ragged;
  Status stored;  // what store_kv said

  Memory(const Case& c, const LogicalData& d, const Arrangement& a)
      : x(c), data(d), how(a), rng(a.seed) {}

  const RequestData& request(const Slice& s) const {
    return data.requests[static_cast<size_t>(s.request)];
  }
  int64_t batch() const { return static_cast<int64_t>(how.slices.size()) + how.empty_requests; }
  int64_t total_q() const { return cu_seqlens_q.back(); }
  const TensorView& out_view() const { return how.ragged ? ragged.out : paged.out; }
  const TensorView& lse_view() const { return how.ragged ? ragged.lse.tensor : paged.lse.tensor; }

  int32_t& page_id(size_t slice, int32_t token) {
    return dense.page_table[slice * static_cast<size_t>(dense.max_pages) +
                            static_cast<size_t>(token / how.page_size)];
  }
  void lay_lengths();
  void lay_q();
  void lay_outputs();
  void lay_mask();
  AttentionParams params() const;
  void lay_ragged();
  void lay_paged();
  KvCache make_pool(int64_t num_pages);
  void lay_table(int64_t num_pages);
  void lay_tokens(const KvCache& cache);
  void store_tokens(KvCache cache);
  void check_store(const KvCache& cache);
};

namespace {

/// Visits the tokens of every slice that `which` (visible, reachable) marks: (slice index, token).
template <class Visit>
void for_each_token(const LogicalData& data, const std::vector<Slice>& slices,
                    std::vector<uint8_t> RequestData::*which, const Visit& visit) {
  for (size_t i = 0; i < slices.size(); ++i) {
    const RequestData& request = data.requests[static_cast<size_t>(slices[i].request)];
    for (int32_t t = 0; t < slices[i].kv_len; ++t) {
      if ((request.*which)[static_cast<size_t>(t)]) visit(i, t);
    }
  }
}

/// Blocks of exactly the size of their contents, so that ASan sees a read past the end.
template <class... Vectors>
void trim(Vectors&... vectors) {
  (vectors.shrink_to_fit(), ...);
}

}  // namespace

Arrangement Arrangement::of(const Case& x) {
  Arrangement a;
  a.ragged = x.kernel == CaseKernel::kPrefillRagged;
  a.decode = x.kernel == CaseKernel::kDecodePaged;
  a.page_size = x.page_size;
  a.layout = x.layout;
  a.table = x.table;
  a.through_store_kv = x.through_store_kv;
  a.seed = x.seed;
  for (size_t i = 0; i < x.requests.size(); ++i) {
    a.slices.push_back({static_cast<int64_t>(i), 0, x.requests[i].q_len, x.requests[i].kv_len});
  }
  a.options.num_threads = 1;
  a.options.lse_sink = x.lse_sink;
  return a;
}

void ArrangedCall::Memory::lay_lengths() {
  cu_seqlens_q = {0};
  cu_seqlens_k = {0};
  for (const Slice& s : how.slices) {
    cu_seqlens_q.push_back(cu_seqlens_q.back() + s.q_end - s.q_begin);
    cu_seqlens_k.push_back(cu_seqlens_k.back() + s.kv_len);
  }
  for (int32_t i = 0; i < how.empty_requests; ++i) {
    cu_seqlens_q.push_back(cu_seqlens_q.back() + (how.decode ? 1 : 0));
    cu_seqlens_k.push_back(cu_seqlens_k.back());
  }
  trim(cu_seqlens_q, cu_seqlens_k);
}

void ArrangedCall::Memory::lay_q() {
  const TensorView view =
      make_gapped(q, x.q_dtype, {total_q(), x.num_qo_heads, x.head_dim_qk}, rng);
  for (size_t i = 0; i < how.slices.size(); ++i) {
    const Slice& s = how.slices[i];
    const LogicalTensor& from = request(s).q;
    for (int32_t t = s.q_begin; t < s.q_end; ++t) {
      for (int64_t head = 0; head < x.num_qo_heads; ++head) {
        std::memcpy(view.at(cu_seqlens_q[i] + t - s.q_begin, head), from.row(t, head),
                    static_cast<size_t>(from.row_bytes()));
      }
    }
  }
  paged.q = ragged.q = view;
}

void ArrangedCall::Memory::lay_outputs() {
  const int64_t rows = total_q(), heads = x.num_qo_heads;
  paged.out = ragged.out = make_gapped(out, x.out_dtype, {rows, heads, x.head_dim_vo}, rng);
  if (how.with_lse) paged.lse = ragged.lse = NaturalLse(make_gapped_lse(lse, rows, heads, rng));
}

/// The slices' parts of the requests' masks, packed if the Case says so; gaps between requests are
/// ones.
void ArrangedCall::Memory::lay_mask() {
  if (x.mask == CustomMask::Kind::kNone) return;
  const bool packed = x.mask == CustomMask::Kind::kPacked;
  mask_indptr = {static_cast<int64_t>(rng.below(4))};
  mask.assign(static_cast<size_t>(mask_indptr[0]), 0xff);
  for (int64_t i = 0; i < batch(); ++i) {
    int64_t pair = 0;
    if (i < static_cast<int64_t>(how.slices.size())) {
      const Slice& s = how.slices[static_cast<size_t>(i)];
      const int64_t row_length = x.requests[static_cast<size_t>(s.request)].kv_len;
      for (int64_t t = s.q_begin; t < s.q_end; ++t) {
        for (int64_t key = 0; key < s.kv_len; ++key, ++pair) {
          const uint8_t seen = request(s).mask[static_cast<size_t>(t * row_length + key)];
          if (!packed) mask.push_back(seen ? 1 : 0);
          if (packed && pair % 8 == 0) mask.push_back(0);
          if (packed && seen) mask.back() = static_cast<uint8_t>(mask.back() | 1u << (pair % 8));
        }
      }
    }
    mask_indptr.push_back(static_cast<int64_t>(mask.size()));
  }
  trim(mask, mask_indptr);
}

AttentionParams ArrangedCall::Memory::params() const {
  AttentionParams p;
  p.num_qo_heads = x.num_qo_heads;
  p.num_kv_heads = x.num_kv_heads;
  p.head_dim_qk = x.head_dim_qk;
  p.head_dim_vo = x.head_dim_vo;
  p.sm_scale = x.sm_scale;
  p.causal = x.causal;
  p.window_left = x.window_left;
  p.window_right = x.window_right;
  p.logits_soft_cap = x.logits_soft_cap;
  p.sinks = data.sinks;
  p.custom_mask = {x.mask, mask, mask_indptr};
  return p;
}

void ArrangedCall::Memory::lay_ragged() {
  const int64_t tokens = cu_seqlens_k.back();
  const TensorView keys = make_gapped(k, x.kv_dtype, {tokens, x.num_kv_heads, x.head_dim_qk}, rng);
  const TensorView values =
      make_gapped(v, x.kv_dtype, {tokens, x.num_kv_heads, x.head_dim_vo}, rng);
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    const RequestData& from = request(how.slices[i]);
    for (int64_t head = 0; head < x.num_kv_heads; ++head) {
      const int64_t row = cu_seqlens_k[i] + t;
      std::memcpy(keys.at(row, head), from.k.row(t, head), static_cast<size_t>(from.k.row_bytes()));
      std::memcpy(values.at(row, head), from.v.row(t, head),
                  static_cast<size_t>(from.v.row_bytes()));
    }
  });
  ragged.k = keys;
  ragged.v = values;
  ragged.k_scale = x.k_scale;
  ragged.v_scale = x.v_scale;
  ragged.cu_seqlens_q = cu_seqlens_q;
  ragged.cu_seqlens_k = cu_seqlens_k;
  ragged.params = params();
  ragged.options = how.options;
}

KvCache ArrangedCall::Memory::make_pool(int64_t num_pages) {
  const int64_t p = num_pages, s = how.page_size, h = x.num_kv_heads, dk = x.head_dim_qk,
                dv = x.head_dim_vo;
  const auto plane = [&](GuardedBuffer& buffer, std::initializer_list<int64_t> shape) {
    return make_gapped(buffer, x.kv_dtype, shape, rng);
  };
  switch (how.layout) {
    case CaseLayout::kNhd: return KvCache::nhd(plane(k, {p, s, h, dk}), plane(v, {p, s, h, dv}));
    case CaseLayout::kHnd: return KvCache::hnd(plane(k, {p, h, s, dk}), plane(v, {p, h, s, dv}));
    case CaseLayout::kStackedNhd: return KvCache::stacked_nhd(plane(k, {p, 2, s, h, dk}));
    case CaseLayout::kStackedHnd: return KvCache::stacked_hnd(plane(k, {p, 2, h, s, dk}));
    case CaseLayout::kMlaLatent: return KvCache::mla_latent(plane(k, {p, s, dk}), x.head_dim_vo);
  }
  return {};
}

/// Pages in random order for the pages that a query can reach; every other entry is absurd.
void ArrangedCall::Memory::lay_table(int64_t num_pages) {
  std::vector<int32_t> ids(static_cast<size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t i = ids.size(); i > 1; --i)
    std::swap(ids[i - 1], ids[rng.below(static_cast<uint32_t>(i))]);
  size_t next = 0;
  const int32_t absurd = rng.below(2) ? -1 : 2147483647;
  dense.cache_seqlens.clear();
  int64_t longest = 0;
  for (const Slice& s : how.slices) {
    dense.cache_seqlens.push_back(s.kv_len);
    longest = std::max(longest, pages_for(s.kv_len, how.page_size));
  }
  dense.cache_seqlens.resize(static_cast<size_t>(batch()), 0);
  trim(dense.cache_seqlens);
  dense.max_pages = longest + rng.below(3);
  dense.page_table.assign(static_cast<size_t>(batch() * dense.max_pages), absurd);
  for_each_token(data, how.slices, &RequestData::reachable, [&](size_t i, int32_t t) {
    int32_t& id = page_id(i, t);
    if (id == absurd) id = ids[next++];
  });
}

void ArrangedCall::Memory::lay_tokens(const KvCache& cache) {
  const auto size = static_cast<int64_t>(size_of(x.kv_dtype));
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    const RequestData& from = request(how.slices[i]);
    const int64_t page = page_id(i, t);
    for (int64_t head = 0; head < x.num_kv_heads; ++head) {
      std::memcpy(cache.k.data + cache.k.offset(page, t % how.page_size, head, 0) * size,
                  from.k.row(t, head), static_cast<size_t>(from.k.row_bytes()));
      std::memcpy(cache.v.data + cache.v.offset(page, t % how.page_size, head, 0) * size,
                  from.v.row(t, head), static_cast<size_t>(from.v.row_bytes()));
    }
  });
}

/// The same through the engine's own store_kv: as they are, or in f32, for the scales to divide;
/// with tokens between them that a negative slot drops.
void ArrangedCall::Memory::store_tokens(KvCache cache) {
  std::vector<std::pair<size_t, int32_t>> tokens;  // of a slice; token -1: dropped
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    if (rng.below(8) == 0) tokens.emplace_back(i, -1);
    tokens.emplace_back(i, t);
  });
  const bool as_is = rng.below(2) == 0;
  const DType type = as_is && !is_fp8(x.kv_dtype) ? x.kv_dtype : DType::kF32;
  if (as_is) cache.k_scale = cache.v_scale = 1;
  const auto count = static_cast<int64_t>(tokens.size());
  GuardedBuffer key_memory, value_memory;
  const TensorView keys =
      make_gapped(key_memory, type, {count, x.num_kv_heads, x.head_dim_qk}, rng);
  const TensorView values =
      make_gapped(value_memory, type, {count, x.num_kv_heads, x.head_dim_vo}, rng);
  const auto fill = [&](const TensorView& to, int64_t row, const LogicalTensor& from, int32_t token,
                        float scale) {
    for (int64_t head = 0; head < from.heads; ++head) {
      for (int64_t d = 0; d < from.dim; ++d) {
        store_float(to.at(row, head), type, d,
                    load_float(from.row(token, head), from.dtype, d) * scale);
      }
    }
  };
  out_cache_loc.reserve(tokens.size());
  for (int64_t row = 0; row < count; ++row) {
    const auto [slice, token] = tokens[static_cast<size_t>(row)];
    if (token < 0) {
      out_cache_loc.push_back(-1 - static_cast<int64_t>(rng.below(3)));
      continue;
    }
    out_cache_loc.push_back(int64_t{page_id(slice, token)} * how.page_size + token % how.page_size);
    fill(keys, row, request(how.slices[slice]).k, token, cache.k_scale);
    fill(values, row, request(how.slices[slice]).v, token, cache.v_scale);
  }
  stored.add(store_kv({keys, values, out_cache_loc, cache, how.options}));
}

/// The pool as store_kv leaves it must be the pool as written by hand: the values, and nothing
/// else.
void ArrangedCall::Memory::check_store(const KvCache& cache) {
  const GuardedBuffer by_hand_k = k, by_hand_v = v;
  k.poison();
  v.poison();
  store_tokens(cache);
  if (!stored.ok()) return;
  const auto compare = [&](const GuardedBuffer& got, const GuardedBuffer& wanted,
                           const char* field) {
    if (const auto byte = got.first_difference(wanted)) {
      stored.add(make_finding("num.write_set", at(field, *byte),
                              "the values in their slots, and nothing else", "another byte"));
    }
  };
  compare(k, by_hand_k, "store_kv k_cache byte");
  compare(v, by_hand_v, "store_kv v_cache byte");
}

void ArrangedCall::Memory::lay_paged() {
  int64_t pages = 1 + rng.below(3);
  for (const Slice& s : how.slices) pages += pages_for(s.kv_len, how.page_size);
  paged.cache = make_pool(pages);
  paged.cache.k_scale = x.k_scale;
  paged.cache.v_scale = x.v_scale;
  lay_table(pages);
  lay_tokens(paged.cache);
  if (how.through_store_kv) check_store(paged.cache);
  paged.pages = dense.view();
  if (how.table == PageTable::Form::kCsr) {
    csr = to_csr(dense.view(), how.page_size);
    trim(csr.kv_indptr, csr.kv_indices, csr.last_page_len);
    paged.pages = csr.view();
  }
  if (!how.decode) paged.cu_seqlens_q = cu_seqlens_q;
  paged.params = params();
  paged.options = how.options;
}

ArrangedCall::ArrangedCall(const Case& x, const LogicalData& data, const Arrangement& how)
    : m_(std::make_unique<Memory>(x, data, how)) {
  m_->lay_lengths();
  m_->lay_q();
  m_->lay_outputs();
  m_->lay_mask();
  how.ragged ? m_->lay_ragged() : m_->lay_paged();
}

ArrangedCall::~ArrangedCall() = default;

Status ArrangedCall::run() {
  const auto fingerprint = [&] {
    return m_->q.fingerprint() ^ m_->k.fingerprint() * 3 ^ m_->v.fingerprint() * 5;
  };
  const uint64_t before = fingerprint();
  if (!m_->stored.ok()) return m_->stored;
  Status status = m_->how.ragged ? attention_varlen(m_->ragged) : attention_with_kvcache(m_->paged);
  if (!status.ok()) return status;
  if (fingerprint() != before) {
    status.add(make_finding("num.write_set", at("q, k, v"), "unchanged", "changed by the call"));
  }
  status.add(check_write_set(m_->out, m_->out_view(), "out"));
  status.add(check_write_set(m_->lse, m_->lse_view(), "lse"));
  return status;
}

RowResults::RowResults(const Case& x)
    : heads(x.num_qo_heads), row_bytes(x.head_dim_vo * static_cast<int64_t>(size_of(x.out_dtype))) {
  int64_t rows = 0;
  for (const RequestExtent& r : x.requests) {
    first_row.push_back(rows);
    rows += r.q_len;
  }
  out.assign(static_cast<size_t>(rows * heads * row_bytes), kPoison);
  lse.assign(static_cast<size_t>(rows * heads), 0);
}

void ArrangedCall::collect(RowResults* results) const {
  const TensorView &out = m_->out_view(), &lse = m_->lse_view();
  for (size_t i = 0; i < m_->how.slices.size(); ++i) {
    const Slice& s = m_->how.slices[i];
    for (int64_t t = s.q_begin; t < s.q_end; ++t) {
      const int64_t from = m_->cu_seqlens_q[i] + t - s.q_begin;
      const int64_t to = results->first_row[static_cast<size_t>(s.request)] + t;
      for (int64_t head = 0; head < results->heads; ++head) {
        const int64_t cell = to * results->heads + head;
        std::memcpy(results->out.data() + cell * results->row_bytes, out.at(from, head),
                    static_cast<size_t>(results->row_bytes));
        if (lse.defined())
          std::memcpy(&results->lse[static_cast<size_t>(cell)], lse.at(from, head), 4);
      }
    }
  }
}

bool ArrangedCall::ragged() const { return m_->how.ragged; }
const PagedAttention& ArrangedCall::paged_call() const { return m_->paged; }
const RaggedAttention& ArrangedCall::ragged_call() const { return m_->ragged; }

}  // namespace shadowgraph
