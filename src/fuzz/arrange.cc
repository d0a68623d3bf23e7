#include "fuzz/arrange.h"

#include <cstring>

#include "core/laws.h"
#include "fuzz/arranged_memory.h"

namespace shadowgraph {

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

Status ArrangedCall::Memory::call() const {
  if (device != nullptr) return how.ragged ? device->run(ragged) : device->run(paged);
  return how.ragged ? attention_varlen(ragged) : attention_with_kvcache(paged);
}

ArrangedCall::ArrangedCall(const Case& x, const LogicalData& data, const Arrangement& how,
                           DeviceCalls* device)
    : m_(std::make_unique<Memory>(x, data, how, device)) {
  m_->lay_lengths();
  m_->lay_q();
  m_->lay_outputs();
  m_->lay_mask();
  how.ragged ? m_->lay_ragged() : m_->lay_paged();
}

ArrangedCall::~ArrangedCall() = default;

Status ArrangedCall::run() {
  const auto fingerprint = [&] {
    return m_->q.fingerprint() ^ m_->k.fingerprint() * 3 ^ m_->v.fingerprint() * 5 ^
           m_->k_scales.fingerprint() * 7 ^ m_->v_scales.fingerprint() * 11;
  };
  const uint64_t before = fingerprint();
  if (!m_->stored.ok()) return m_->stored;
  Status status = m_->call();
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
