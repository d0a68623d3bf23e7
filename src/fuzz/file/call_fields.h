// The members of a Case in its file, one list for its reader, its writer and its check
// (case_json.h).
#pragma once

#include "attn/cases/case.h"
#include "attn/cases/case_names.h"
#include "fuzz/file/json_fields.h"

namespace shadowgraph {

inline constexpr std::string_view kLseSinkNames[] = {"excluded", "included"};
inline constexpr std::string_view kLseBaseNames[] = {"natural", "log2"};
inline constexpr std::string_view kTableFormNames[] = {"dense", "csr"};

template <>
struct EnumWords<CaseKernel> : ListedWords<CaseKernel, kCaseKernelNames> {};
template <>
struct EnumWords<CaseData> : ListedWords<CaseData, kCaseDataNames> {};
template <>
struct EnumWords<KvLayout> : ListedWords<KvLayout, kCaseLayoutNames> {};
template <>
struct EnumWords<CustomMask::Kind> : ListedWords<CustomMask::Kind, kMaskKindNames> {};
template <>
struct EnumWords<AttentionTerms::Alibi> : ListedWords<AttentionTerms::Alibi, kAlibiNames> {};
template <>
struct EnumWords<LseSink> : ListedWords<LseSink, kLseSinkNames> {};
template <>
struct EnumWords<LseBase> : ListedWords<LseBase, kLseBaseNames> {};
template <>
struct EnumWords<PageTable::Form> : ListedWords<PageTable::Form, kTableFormNames> {};
template <>
struct EnumWords<RecurrentCase::Call> : ListedWords<RecurrentCase::Call, kRecurrentCallNames> {};
template <>
struct EnumWords<PadRow> : ListedWords<PadRow, kPadRowNames> {};
template <>
struct EnumWords<LinearAttention::Rule> : ListedWords<LinearAttention::Rule, kRuleNames> {};
template <>
struct EnumWords<LinearAttention::Form> : ListedWords<LinearAttention::Form, kFormNames> {};
template <>
struct EnumWords<LinearAttention::StateOrder>
    : ListedWords<LinearAttention::StateOrder, kStateOrderNames> {};
template <>
struct EnumWords<ChunkGrid> : ListedWords<ChunkGrid, kChunkGridNames> {};
template <>
struct EnumWords<SparseCase::Call> : ListedWords<SparseCase::Call, kSparseCallNames> {};
template <>
struct EnumWords<DecayGate::Kind> : ListedWords<DecayGate::Kind, kGateKindNames> {};

template <class V>
void visit_fields(V& v, RequestExtent& r) {
  v("prefix_len", r.prefix_len);
  v("q_len", r.q_len);
  v("kv_len", r.kv_len);
}

template <class V>
void visit_fields(V& v, RecurrentCase::Row& r) {
  v("tokens", r.tokens, 0, 4096);
  v("slot", r.slot);
  v("initial", r.initial);
}

template <class V>
void visit_fields(V& v, RecurrentCase& x) {
  v("call", x.call);
  v("rows", x.rows);
  v("dtype", x.dtype);
  v("state_dtype", x.state_dtype);
  v("out_dtype", x.out_dtype);
  v("pad", x.pad);
  v("drafts", x.drafts);
  v("tree", x.tree);
  v("of_padding", x.of_padding);
  v("draft_dtype", x.draft_dtype);
  v("rule", x.rule);
  v("form", x.form);
  v("order", x.order);
  v("num_k_heads", x.num_k_heads, 1, 256);
  v("num_v_heads", x.num_v_heads, 1, 256);
  v("head_dim_k", x.head_dim_k, 1, 1024);
  v("head_dim_v", x.head_dim_v, 1, 1024);
  v("decay_rank", x.decay_rank);
  v("beta", x.beta);
  v("l2norm", x.l2norm);
  v("skip", x.skip);
  v("z", x.z);
  v("store", x.store);
  v("scale", x.scale);
  v("chunk_size", x.chunk_size, 0, 4096);
  v("chunk_dtype", x.chunk_dtype);
  v("chunk_grid", x.chunk_grid);
  v("dim", x.dim, 1, 4096);
  v("width", x.width, 2, 8);
  v("bias", x.bias);
  v("silu", x.silu);
  v("gate", x.gate);
  v("dt_bias", x.dt_bias);
  v("b", x.b);
  v("lower_bound", x.lower_bound);
}

template <class V>
void visit_fields(V& v, SparseCase::Row& r) {
  v("first", r.first, 0, 4096);
  v("count", r.count);
  v("extra", r.extra, 0, 4096);
  v("slot", r.slot);
}

template <class V>
void visit_fields(V& v, SparseCase& x) {
  v("call", x.call);
  v("rows", x.rows);
  v("dtype", x.dtype);
  v("out_dtype", x.out_dtype);
  v("heads", x.heads, 1, 256);
  v("head_dim", x.head_dim, 1, 1024);
  v("head_dim_v", x.head_dim_v);
  v("rows_dtype", x.rows_dtype);
  v("layout", x.layout);
  v("extra_layout", x.extra_layout);
  v("has_extra", x.has_extra);
  v("sinks", x.sinks);
  v("lse_sink", x.lse_sink);
  v("requests", x.requests, 1, 64);
  v("topk", x.topk, 1, 4096);
  v("ue8m0", x.ue8m0);
  v("by_table", x.by_table);
  v("padding_page", x.padding_page);
  v("ratio", x.ratio);
  v("ring", x.ring);
  v("rope_dim", x.rope_dim);
}

template <class V>
void visit_fields(V& v, CaseTerms& t) {
  v.optional("alibi", t.alibi);
  v("key_bias", t.key_bias);
  v("qq_bias", t.qq_bias);
  v("relative_bias", t.relative_bias);
  v("temperature_len", t.temperature_len);
  v("attention_chunk", t.attention_chunk, 0, 1 << 20);
  v("chunk_lookback", t.chunk_lookback, 0, t.attention_chunk > 0 ? 1 << 20 : 0);
  v("request_causal", t.request_causal);
  v("cache_leftpad", t.cache_leftpad);
  v("bidirectional", t.bidirectional);
  v("mask_of_heads", t.mask_of_heads);
  v("head_scales", t.head_scales);
  v("request_head_scales", t.request_head_scales);
  v("q_scale", t.q_scale);
  v("out_scale", t.out_scale);
  v("padded_rows", t.padded_rows);
}

/// Files have a base for every call of attention.
template <class V>
void visit_attention(V& v, AttentionCase& x, LseBase& base) {
  v("requests", x.requests);
  v("num_qo_heads", x.num_qo_heads);
  v("num_kv_heads", x.num_kv_heads);
  v("head_dim_qk", x.head_dim_qk);
  v("head_dim_vo", x.head_dim_vo);
  v("q_dtype", x.q_dtype);
  v("kv_dtype", x.kv_dtype);
  v("out_dtype", x.out_dtype);
  v("k_scale", x.k_scale);
  v("v_scale", x.v_scale);
  v("sm_scale", x.sm_scale);
  v("causal", x.causal);
  v("window_left", x.window_left);
  v("window_right", x.window_right);
  v("logits_soft_cap", x.logits_soft_cap);
  v("sinks", x.sinks);
  v("mask", x.mask);
  v("lse_sink", x.lse_sink);
  v("lse_base", base);
  v("page_size", x.page_size);
  v("layout", x.layout);
  v("table", x.table);
  v("through_store_kv", x.through_store_kv);
  v.optional("terms", x.terms);
  v.optional("nan", x.nan);
}

/// In files a merge has the members of attention: its rows are q_len, its states kv_len of a
/// request.
template <class V>
void visit_merge(V& v, MergeCase& x) {
  AttentionCase a;
  a.requests = {{0, x.rows, x.states}};
  a.num_qo_heads = a.num_kv_heads = x.heads;
  a.head_dim_qk = a.head_dim_vo = x.head_dim;
  a.q_dtype = a.kv_dtype = x.dtype, a.out_dtype = x.out_dtype;
  visit_attention(v, a, x.lse_base);
  const bool one = a.requests.size() == 1;
  x.rows = one ? a.requests[0].q_len : 0, x.states = one ? a.requests[0].kv_len : 0;
  x.heads = a.num_qo_heads, x.head_dim = a.head_dim_vo;
  x.dtype = a.q_dtype, x.out_dtype = a.out_dtype;
}

template <class V>
void visit_fields(V& v, Case& x) {
  CaseKernel kernel = x.kernel();
  v("kernel", kernel);
  if (kernel != x.kernel()) x.set_kernel(kernel);
  v("data", x.data);
  v("seed", x.seed);
  v.optional("more_threads", x.more_threads);
  v.optional("far", x.far);
  if (auto* linear = std::get_if<RecurrentCase>(&x.call)) return v("linear", *linear);
  if (auto* sparse = std::get_if<SparseCase>(&x.call)) return v("sparse", *sparse);
  if (auto* merge = std::get_if<MergeCase>(&x.call)) return visit_merge(v, *merge);
  LseBase base = LseBase::kNatural;
  visit_attention(v, std::get<AttentionCase>(x.call), base);
}

}  // namespace shadowgraph
