#include "kernels/footprint.h"

#include <algorithm>

#include "attn/page_table.h"
#include "kernels/dense/panel_spans.h"
#include "kernels/dense/problem.h"
#include "kernels/dense/work_list.h"
#include "kernels/spans.h"

namespace shadowgraph {
namespace {

template <class T>
void add_whole(Footprint* spans, std::span<const T> s) {
  if (!s.empty())
    spans->push_back({s.data(), 0, static_cast<int64_t>(s.size()), sizeof(T), Access::kRead, -1});
}

bool hidden(const CustomMask& mask, int64_t pair) {
  if (mask.kind == CustomMask::Kind::kPacked) {
    return (mask.data[static_cast<size_t>(pair / 8)] >> (pair % 8) & 1) == 0;
  }
  return mask.data[static_cast<size_t>(pair)] == 0;
}

/// Does the custom mask show key t to some row whose range holds it?
bool shown(const Problem& p, int64_t request, int64_t t) {
  if (p.params.custom_mask.kind == CustomMask::Kind::kNone) return true;
  for (int32_t q = 0; q < p.requests[static_cast<size_t>(request)].rows; ++q) {
    const RowMask row = row_mask(p, request, q);
    if (t < row.begin || t >= row.end) continue;
    for (int32_t head = 0; head < p.params.custom_mask.heads; ++head) {
      const int64_t pair = row.first_pair + head * pairs_a_head(p, request) + t;
      if (!hidden(p.params.custom_mask, pair)) return true;
    }
  }
  return false;
}

void add_rows(const Problem& p, const RequestView& r, int32_t request, Footprint* spans) {
  if (r.rows == 0) return;
  const auto add = [&](const auto& view, int64_t dim, Access access) {
    const AccessSpan unit{
        view.data, view.offset(r.q_begin, 0), dim, element_bytes(view.dtype), access, request};
    add_block(spans, unit, {r.rows, view.stride[0]}, {p.params.num_qo_heads, view.stride[1]});
  };
  add(p.q, p.params.head_dim_qk, Access::kRead);
  add(p.out, p.params.head_dim_vo, Access::kWrite);
  if (p.lse.defined()) add(p.lse, 1, Access::kWrite);
}

/// The end of the longest run of keys from t on that is evenly spaced in memory and either read or
/// touched as a whole.
int64_t run_end(const Problem& p, const RequestView& r, KvRange keys, int32_t request, int64_t t,
                Access* access) {
  const int64_t page_end = r.page_ids == nullptr ? keys.end : (t / p.page_size + 1) * p.page_size;
  const int64_t limit = std::min<int64_t>(keys.end, page_end);
  const bool masked = p.params.custom_mask.kind != CustomMask::Kind::kNone;
  const bool read = shown(p, request, t);
  *access = read ? Access::kRead : Access::kTouch;
  int64_t end = masked ? t + 1 : limit;
  while (end < limit && shown(p, request, end) == read) ++end;
  return end;
}

constexpr uint32_t kWholePanel = 0xffff;  // no edge: a bit a token

/// For each panel that holds a key in reach, from the first on: which of its tokens are read, one
/// bit each.
std::vector<uint32_t> read_tokens(const Problem& p, KvRange keys, int32_t request) {
  const bool masked = p.params.custom_mask.kind != CustomMask::Kind::kNone;
  const int64_t first = keys.begin / kPanel, last = (keys.end - 1) / kPanel;
  std::vector<uint32_t> read(static_cast<size_t>(last - first + 1), kWholePanel);
  read.front() &= kWholePanel << keys.begin % kPanel;
  read.back() &= kWholePanel >> (kPanel - 1 - (keys.end - 1) % kPanel);
  for (int64_t t = keys.begin; masked && t < keys.end; ++t) {
    if (!shown(p, request, t)) read[static_cast<size_t>(t / kPanel - first)] &= ~(1u << t % kPanel);
  }
  return read;
}

PanelShape panel_shape(const KvTokens& kv) { return {kv.order, kv.dtype, kv.head_dim}; }

/// Adds the tokens that are read of a panel, for every head.
void add_tokens(const Problem& p, const KvTokens& kv, AccessSpan panel, uint32_t tokens,
                Footprint* spans) {
  for (int64_t head = 0; head < p.params.num_kv_heads; ++head) {
    for (int begin = 0, end; begin < kPanel; begin = end) {
      const bool read = (tokens >> begin & 1) != 0;
      for (end = begin + 1; end < kPanel && (tokens >> end & 1) == (read ? 1 : 0);) ++end;
      if (read) add_panel_tokens(spans, panel, panel_shape(kv), begin, end);
    }
    panel.first += kv.head_stride;
  }
}

/// Panels are loaded whole: those that are not read whole, padding included, are touched, and of
/// their elements some are read. read: of the panels from `first` on.
void add_panels(const Problem& p, const RequestView& r, const KvTokens& kv, int64_t first,
                const std::vector<uint32_t>& read, int32_t request, Footprint* spans) {
  const PanelShape shape = panel_shape(kv);
  const auto tokens_of = [&](int64_t panel) { return read[static_cast<size_t>(panel - first)]; };
  const int64_t end = first + static_cast<int64_t>(read.size());
  for (int64_t panel = first, next; panel < end; panel = next) {
    const uint32_t tokens = tokens_of(panel);
    const bool whole = tokens == kWholePanel && !shape.padded();
    next = panel + 1;
    while ((whole || tokens == 0) && next < end && tokens_of(next) == tokens &&
           next * kPanel % p.page_size != 0) {
      ++next;
    }
    AccessSpan unit{kv.data,
                    token_offset(kv, r.page_ids, p.page_size, panel * kPanel),
                    shape.elements(),
                    element_bytes(kv.dtype),
                    whole ? Access::kRead : Access::kTouch,
                    request};
    add_block(spans, unit, {next - panel, kv.token_stride},
              {p.params.num_kv_heads, kv.head_stride});
    unit.access = Access::kRead;
    if (!whole && tokens != 0) add_tokens(p, kv, unit, tokens, spans);
  }
}

/// The scales of i8 keys: one by one in panels too.
void add_scales(const Problem& p, const RequestView& r, KvRange keys, int32_t request,
                Footprint* spans) {
  if (p.k.scales == nullptr && p.v.scales == nullptr) return;
  Access access = Access::kRead;
  for (int64_t t = keys.begin, end; t < keys.end; t = end) {
    end = run_end(p, r, keys, request, t, &access);
    for (const KvTokens* kv : {&p.k, &p.v}) {
      if (kv->scales == nullptr) continue;
      const int64_t first = scale_offset(*kv, r.page_ids, p.page_size, t);
      add_block(spans, {kv->scales, first, 1, sizeof(float), access, request},
                {end - t, kv->scale_token_stride}, {p.params.num_kv_heads, kv->scale_head_stride});
    }
  }
}

void add_keys(const Problem& p, const RequestView& r, KvRange keys, int32_t request,
              Footprint* spans) {
  add_scales(p, r, keys, request, spans);
  if (p.k.order != KvOrder::kStrided) {
    const std::vector<uint32_t> read = read_tokens(p, keys, request);
    add_panels(p, r, p.k, keys.begin / kPanel, read, request, spans);
    return add_panels(p, r, p.v, keys.begin / kPanel, read, request, spans);
  }
  Access access = Access::kRead;
  for (int64_t t = keys.begin, end; t < keys.end; t = end) {
    end = run_end(p, r, keys, request, t, &access);
    for (const KvTokens* kv : {&p.k, &p.v}) {
      const int64_t first = token_offset(*kv, r.page_ids, p.page_size, r.first_token + t);
      add_block(spans, {kv->data, first, kv->head_dim, element_bytes(kv->dtype), access, request},
                {end - t, kv->token_stride}, {p.params.num_kv_heads, kv->head_stride});
    }
  }
}

/// page_ids: the array that holds every request's row.
void add_requests(const Problem& p, const int32_t* page_ids, Footprint* spans) {
  const CustomMask& mask = p.params.custom_mask;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const RequestView& r = p.requests[i];
    const auto request = static_cast<int32_t>(i);
    const KvRange keys = kv_range(mask_of(p, r), 0, r.rows);
    add_rows(p, r, request, spans);
    if (keys.size() == 0) continue;
    if (r.page_ids != nullptr) {
      const int64_t first = keys.begin / p.page_size, last = (keys.end - 1) / p.page_size;
      spans->push_back({page_ids, r.page_ids - page_ids + first, last - first + 1, sizeof(int32_t),
                        Access::kRead, request});
    }
    if (mask.kind != CustomMask::Kind::kNone) {
      spans->push_back({mask.data.data(), mask.mask_indptr[i],
                        mask.mask_indptr[i + 1] - mask.mask_indptr[i], 1, Access::kRead, request});
    }
    add_keys(p, r, keys, request, spans);
  }
  add_whole(spans, p.params.sinks);
  add_whole(spans, mask.mask_indptr);
  add_term_lists(p.params.terms, spans);
}

}  // namespace

void add_term_lists(const AttentionTerms& t, Footprint* spans) {
  for (const auto& list :
       {t.alibi_slopes, t.key_bias, t.qq_bias, t.relative_bias, t.k_scales, t.v_scales})
    add_whole(spans, list);
  for (const auto& list :
       {t.cache_leftpad, t.bidirectional_ranges, t.bidirectional_indptr, t.seqused_q, t.seqused_k})
    add_whole(spans, list);
  add_whole(spans, t.request_causal);
}

Footprint attention_footprint(const PagedAttention& call) {
  const bool dense = call.pages.form == PageTable::Form::kDense;
  Footprint spans;
  add_requests(make_problem(call),
               dense ? call.pages.page_table.data() : call.pages.kv_indices.data(), &spans);
  add_whole(&spans, call.cu_seqlens_q);
  add_whole(&spans, call.pages.cache_seqlens);
  add_whole(&spans, call.pages.kv_indptr);
  add_whole(&spans, call.pages.last_page_len);
  add_whole(&spans, used_part(call.plan));
  return spans;
}

Footprint attention_footprint(const RaggedAttention& call) {
  Footprint spans;
  add_requests(make_problem(call), nullptr, &spans);
  add_whole(&spans, call.cu_seqlens_q);
  add_whole(&spans, call.cu_seqlens_k);
  return spans;
}

}  // namespace shadowgraph
