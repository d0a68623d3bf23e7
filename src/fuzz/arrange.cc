#include "fuzz/arrange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "attn/page_table.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/guarded.h"

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

  TensorView make_rows(GuardedBuffer& buffer, DType dtype, int64_t rows, int64_t heads,
                       int64_t dim);
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
  void store_tokens(const KvCache& cache);
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

/// [rows, heads, dim] with gaps between heads and rows, at an odd address for the type's size.
TensorView ArrangedCall::Memory::make_rows(GuardedBuffer& buffer, DType dtype, int64_t rows,
                                           int64_t heads, int64_t dim) {
  const int64_t head_stride = dim + rng.below(3), row_stride = heads * head_stride + rng.below(5);
  const auto size = static_cast<int64_t>(size_of(dtype));
  buffer = GuardedBuffer(rows * row_stride * size, rng.below(8) * size);
  return TensorView(buffer.data(), dtype, {rows, heads, dim}, {row_stride, head_stride, 1});
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
}

void ArrangedCall::Memory::lay_q() {
  const TensorView view = make_rows(q, x.q_dtype, total_q(), x.num_qo_heads, x.head_dim_qk);
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
  paged.out = ragged.out = make_rows(out, x.out_dtype, total_q(), x.num_qo_heads, x.head_dim_vo);
  const int64_t rows = total_q(), heads = x.num_qo_heads, stride = heads + rng.below(3);
  lse = GuardedBuffer(rows * stride * 4, rng.below(8) * 4);
  paged.lse = ragged.lse =
      NaturalLse(TensorView(lse.data(), DType::kF32, {rows, heads}, {stride, 1}));
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
  const TensorView keys = make_rows(k, x.kv_dtype, tokens, x.num_kv_heads, x.head_dim_qk);
  const TensorView values = make_rows(v, x.kv_dtype, tokens, x.num_kv_heads, x.head_dim_vo);
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
  const auto size = static_cast<int64_t>(size_of(x.kv_dtype));
  const bool stacked =
      how.layout == CaseLayout::kStackedNhd || how.layout == CaseLayout::kStackedHnd;
  k = GuardedBuffer(p * s * h * (stacked ? 2 * dk : dk) * size, rng.below(8) * size);
  if (!stacked) v = GuardedBuffer(p * s * h * dv * size, rng.below(8) * size);
  const DType t = x.kv_dtype;
  switch (how.layout) {
    case CaseLayout::kNhd:
      return KvCache::nhd(TensorView(k.data(), t, {p, s, h, dk}),
                          TensorView(v.data(), t, {p, s, h, dv}));
    case CaseLayout::kHnd:
      return KvCache::hnd(TensorView(k.data(), t, {p, h, s, dk}),
                          TensorView(v.data(), t, {p, h, s, dv}));
    case CaseLayout::kStackedNhd:
      return KvCache::stacked_nhd(TensorView(k.data(), t, {p, 2, s, h, dk}));
    case CaseLayout::kStackedHnd:
      return KvCache::stacked_hnd(TensorView(k.data(), t, {p, 2, h, s, dk}));
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

/// The same through the engine's own store_kv, from f32 rows.
void ArrangedCall::Memory::store_tokens(const KvCache& cache) {
  std::vector<float> keys, values;
  for_each_token(data, how.slices, &RequestData::visible, [&](size_t i, int32_t t) {
    const RequestData& from = request(how.slices[i]);
    const int64_t page = page_id(i, t);
    out_cache_loc.push_back(page * how.page_size + t % how.page_size);
    for (int64_t head = 0; head < x.num_kv_heads; ++head) {
      for (int64_t d = 0; d < x.head_dim_qk; ++d)
        keys.push_back(load_float(from.k.row(t, head), x.kv_dtype, d));
      for (int64_t d = 0; d < x.head_dim_vo; ++d)
        values.push_back(load_float(from.v.row(t, head), x.kv_dtype, d));
    }
  });
  StoreKv store;
  const auto tokens = static_cast<int64_t>(out_cache_loc.size());
  store.k = ConstTensorView(keys.data(), DType::kF32, {tokens, x.num_kv_heads, x.head_dim_qk});
  store.v = ConstTensorView(values.data(), DType::kF32, {tokens, x.num_kv_heads, x.head_dim_vo});
  store.out_cache_loc = out_cache_loc;
  store.cache = cache;
  store.cache.k_scale = store.cache.v_scale = 1;  // the values are as they are to be stored
  store.options = how.options;
  stored.add(store_kv(store));
}

void ArrangedCall::Memory::lay_paged() {
  int64_t pages = 1 + rng.below(3);
  for (const Slice& s : how.slices) pages += pages_for(s.kv_len, how.page_size);
  paged.cache = make_pool(pages);
  paged.cache.k_scale = x.k_scale;
  paged.cache.v_scale = x.v_scale;
  lay_table(pages);
  how.through_store_kv ? store_tokens(paged.cache) : lay_tokens(paged.cache);
  paged.pages = dense.view();
  if (how.table == PageTable::Form::kCsr) {
    csr = to_csr(dense.view(), how.page_size);
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
  // What is left when the rows themselves are taken away must be as it was.
  GuardedBuffer out = m_->out, lse = m_->lse;
  const TensorView &out_rows = m_->out_view(), &lse_rows = m_->lse_view();
  for (int64_t row = 0; row < m_->total_q(); ++row) {
    for (int64_t head = 0; head < m_->x.num_qo_heads; ++head) {
      const auto size = static_cast<int64_t>(size_of(m_->x.out_dtype));
      std::memset(out.data() + out_rows.offset(row, head) * size, 0xff,
                  static_cast<size_t>(m_->x.head_dim_vo * size));
      std::memset(lse.data() + lse_rows.offset(row, head) * 4, 0xff, 4);
    }
  }
  if (!out.untouched())
    status.add(make_finding("num.write_set", at("out"), "writes to its rows only", "others"));
  if (!lse.untouched())
    status.add(make_finding("num.write_set", at("lse"), "writes to its rows only", "others"));
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
        std::memcpy(&results->lse[static_cast<size_t>(cell)], lse.at(from, head), 4);
      }
    }
  }
}

bool ArrangedCall::ragged() const { return m_->how.ragged; }
const PagedAttention& ArrangedCall::paged_call() const { return m_->paged; }
const RaggedAttention& ArrangedCall::ragged_call() const { return m_->ragged; }

}  // namespace shadowgraph
