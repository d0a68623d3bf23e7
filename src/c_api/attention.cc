// The engine's calls in C: each reads its tensors, makes the call of shadowgraph/attention/ and
// hands out what that finds.
#include "shadowgraph/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "attn/lse.h"
#include "attn/validate/validate.h"
#include "c_api/errors.h"
#include "c_api/tensors.h"
#include "check/bounds/declared.h"
#include "check/mistakes/call_scene.h"
#include "check/mistakes/diagnose.h"

namespace shadowgraph::c_api {
namespace {

std::atomic<int32_t> default_num_threads = 0;

CallOptions default_options() {
  CallOptions options;
  options.num_threads = default_num_threads;
  return options;
}

/// Every call of attention has these beside its keys.
struct Layer {
  AttentionParams params;
  CallOptions options;
  int32_t max_seqlen_q = 0;
  bool lse_base2 = false;
};

/// [n] truths, one behind the other; undefined if there are none.
TensorView truths(const char* name, const DLTensor* t, TensorReader& reader) {
  const TensorView view = reader.may(name, t, 1);
  if (!view.defined()) return view;
  if (view.dtype != DType::kBool && view.dtype != DType::kU8)
    reader.fail("input.dtype", name, "bool or u8", std::string(name_of(view.dtype)));
  if (view.stride[0] != 1) reader.fail("input.stride", name, "1", std::to_string(view.stride[0]));
  return view;
}

std::span<const uint8_t> bytes_of(const TensorView& truths) {
  return {reinterpret_cast<const uint8_t*>(truths.data), static_cast<size_t>(truths.shape[0])};
}

bool read_terms(const sg_terms* given, TensorReader& reader, AttentionParams* params) {
  sg_terms t;
  if (!take("terms", given, &t)) return false;
  if (t.alibi < SG_ALIBI_LINEAR || t.alibi > SG_ALIBI_SQRT) {
    fail(SG_USAGE, "terms.alibi is none of SG_ALIBI_LINEAR to SG_ALIBI_SQRT");
    return false;
  }
  AttentionTerms& a = params->terms;
  a.alibi = static_cast<AttentionTerms::Alibi>(t.alibi);
  a.alibi_slopes = reader.list<float>("alibi_slopes", t.alibi_slopes, 1);
  a.key_bias = reader.flat<float>("key_bias", t.key_bias, 2);
  a.qq_bias = reader.flat<float>("qq_bias", t.qq_bias, 2);
  a.relative_bias = reader.flat<float>("relative_bias", t.relative_bias, 2);
  a.temperature_len = t.temperature_len;
  a.attention_chunk = t.attention_chunk, a.chunk_lookback = t.chunk_lookback;
  a.request_causal = bytes_of(truths("request_causal", t.request_causal, reader));
  a.cache_leftpad = reader.list<int32_t>("cache_leftpad", t.cache_leftpad);
  a.bidirectional_ranges = reader.flat<int32_t>("bidirectional_ranges", t.bidirectional_ranges, 2);
  a.bidirectional_indptr = reader.list<int32_t>("bidirectional_indptr", t.bidirectional_indptr, 1);
  const auto scales = [&](const char* name, const DLTensor* s) {
    return reader.flat<float>(name, s, s != nullptr && s->ndim == 2 ? 2 : 1);
  };
  a.k_scales = scales("k_scales", t.k_scales), a.v_scales = scales("v_scales", t.v_scales);
  a.q_scale = t.q_scale == 0 ? 1 : t.q_scale, a.out_scale = t.out_scale == 0 ? 1 : t.out_scale;
  a.seqused_q = reader.list<int32_t>("seqused_q", t.seqused_q);
  a.seqused_k = reader.list<int32_t>("seqused_k", t.seqused_k);
  params->custom_mask.heads = t.mask_heads == 0 ? 1 : t.mask_heads;
  return true;
}

bool read_layer(const sg_params* given, TensorReader& reader, Layer* layer) {
  sg_params p;
  if (!take("params", given, &p)) return false;
  if (p.arith != SG_PORTABLE && p.arith != SG_FAST) {
    fail(SG_USAGE, "params.arith is none of SG_PORTABLE, SG_FAST");
    return false;
  }
  AttentionParams& a = layer->params;
  a.sm_scale = p.sm_scale, a.logits_soft_cap = p.logits_soft_cap, a.causal = p.causal != 0;
  a.window_left = p.window_left, a.window_right = p.window_right;
  a.sinks = reader.list<float>("sinks", p.sinks, 1);
  const TensorView mask = truths("custom_mask", p.mask, reader);
  if (p.mask != nullptr) {
    const bool bits = mask.dtype == DType::kU8;
    a.custom_mask.kind = bits ? CustomMask::Kind::kPacked : CustomMask::Kind::kBool;
    a.custom_mask.data = bytes_of(mask);
    a.custom_mask.mask_indptr = reader.need_list<int64_t>("mask_indptr", p.mask_indptr);
  }
  if (p.terms != nullptr && !read_terms(p.terms, reader, &a)) return false;
  layer->options.arith = p.arith == SG_FAST ? Arith::kFast : Arith::kPortable;
  layer->options.num_threads = p.num_threads == 0 ? default_num_threads.load() : p.num_threads;
  layer->options.lse_sink = p.lse_sink != 0 ? LseSink::kIncluded : LseSink::kExcluded;
  layer->max_seqlen_q = p.max_seqlen_q, layer->lse_base2 = p.lse_base2 != 0;
  return true;
}

/// Heads and head dims are the tensors'.
template <class Call>
void take_layer(const Layer& layer, int32_t num_kv_heads, int32_t head_dim_vo, Call* call) {
  call->params = layer.params;
  call->params.num_qo_heads = static_cast<int32_t>(std::min<int64_t>(call->q.shape[1], INT32_MAX));
  call->params.head_dim_qk = static_cast<int32_t>(std::min<int64_t>(call->q.shape[2], INT32_MAX));
  call->params.num_kv_heads = num_kv_heads, call->params.head_dim_vo = head_dim_vo;
  call->options = layer.options;
  call->max_seqlen_q = layer.max_seqlen_q;
}

/// Writes the natural LSE of rows [begin, end) to base 2.
void to_base2(const TensorView& lse, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < lse.shape[1]; ++head) {
      auto* value = reinterpret_cast<float*>(lse.at(row, head));
      *value = static_cast<float>(double{*value} * kLog2E);
    }
  }
}

/// Rows that the call did not compute keep what they hold.
template <class Call>
void rebase_lse(const Layer& layer, const Call& call) {
  const TensorView& lse = call.lse.tensor;
  if (!layer.lse_base2 || !lse.defined()) return;
  if (call.cu_seqlens_q.empty()) return to_base2(lse, 0, lse.shape[0]);
  for (size_t i = 0; i + 1 < call.cu_seqlens_q.size(); ++i) {
    const int32_t first = call.cu_seqlens_q[i], q_len = call.cu_seqlens_q[i + 1] - first;
    const std::span<const int32_t> used = call.params.terms.seqused_q;
    const int32_t there = used.empty() ? q_len : used[i];
    const int32_t rows = layer.max_seqlen_q > 0 ? std::min(there, layer.max_seqlen_q) : there;
    to_base2(lse, first, int64_t{first} + rows);
  }
}

/// A table whose rows lie apart is taken by the distance of its rows; what lies between them is
/// never read, and no length may reach there.
struct TableRows {
  int64_t columns = 0, apart = 0;
  bool between() const { return apart > columns; }
};

PageTable read_table(const sg_pages& p, TensorReader& reader, TableRows* rows) {
  const TensorView table = reader.need("page_table", p.page_table, 2);
  const auto lens = reader.need_list<int32_t>("cache_seqlens", p.cache_seqlens);
  if (!table.defined()) return {};
  if (table.dtype != DType::kI32)
    reader.fail("input.dtype", "page_table", "i32", std::string(name_of(table.dtype)));
  const int64_t columns = table.shape[1], count = table.shape[0];
  const int64_t apart = count > 1 ? table.stride[0] : columns;
  if (table.stride[1] != 1 || apart < columns || apart > INT32_MAX || count > INT32_MAX)
    reader.fail("input.stride", "page_table", "columns side by side, rows apart",
                std::to_string(table.stride[0]) + ", " + std::to_string(table.stride[1]));
  if (!reader.ok()) return {};
  *rows = {columns, apart};
  const auto size = static_cast<size_t>(count * apart);
  return PageTable::dense({reinterpret_cast<const int32_t*>(table.data), size}, apart, lens);
}

/// Pages are named once: by the form whose members these are not.
void refuse_given(TensorReader& reader, const char* form,
                  std::initializer_list<std::pair<const char*, const DLTensor*>> others) {
  for (const auto& [name, tensor] : others)
    if (tensor != nullptr)
      reader.fail("input.shape", name, std::string("NULL: ") + form + " names the pages",
                  "a tensor");
}

bool read_pages(const sg_pages* given, TensorReader& reader, PageTable* pages, TableRows* rows) {
  sg_pages p;
  if (!take("pages", given, &p)) return false;
  if (p.page_table != nullptr || p.kv_indptr == nullptr) {
    refuse_given(reader, "page_table",
                 {{"kv_indptr", p.kv_indptr},
                  {"kv_indices", p.kv_indices},
                  {"last_page_len", p.last_page_len}});
    *pages = read_table(p, reader, rows);
    return true;
  }
  refuse_given(reader, "kv_indptr", {{"cache_seqlens", p.cache_seqlens}});
  const auto indptr = reader.list<int32_t>("kv_indptr", p.kv_indptr, 1);
  const auto indices = reader.need_list<int32_t>("kv_indices", p.kv_indices);
  *pages =
      PageTable::csr(indptr, indices, reader.need_list<int32_t>("last_page_len", p.last_page_len));
  return true;
}

/// Lengths that reach behind the last column of a table whose rows lie apart.
void check_columns(const PagedAttention& call, const TableRows& rows, Status* status) {
  if (!rows.between()) return;
  const int64_t most = rows.columns * call.cache.page_size;
  for (size_t i = 0; i < call.pages.cache_seqlens.size(); ++i) {
    const int32_t len = call.pages.cache_seqlens[i];
    if (len <= most) continue;
    status->add(make_finding(
        "len.capacity", at("cache_seqlens", static_cast<int64_t>(i)),
        "<= " + std::to_string(rows.columns) + " pages of " + std::to_string(call.cache.page_size),
        std::to_string(len)));
  }
}

/// A call as it was read, and what is wrong with its tensors.
template <class Call>
struct Asked {
  Status status;
  Layer layer;
  Call call;
};

/// False: a struct is wrong (SG_USAGE).
bool read_call(const DLTensor* q, const sg_cache* cache, const sg_pages* pages,
               const DLTensor* cu_seqlens_q, const sg_params* params, const DLTensor* out,
               const DLTensor* lse, Asked<PagedAttention>* asked) {
  TensorReader reader(&asked->status);
  PagedAttention& call = asked->call;
  TableRows rows;
  if (!read_layer(params, reader, &asked->layer) || !read_cache("", cache, reader, &call.cache) ||
      !read_pages(pages, reader, &call.pages, &rows))
    return false;
  call.q = reader.need("q", q, 3);
  call.cu_seqlens_q = reader.list<int32_t>("cu_seqlens_q", cu_seqlens_q, 1);
  call.out = reader.need("out", out, 3);
  call.lse = NaturalLse(reader.may("lse", lse, 2));
  if (!reader.ok()) return true;
  take_layer(asked->layer, call.cache.num_kv_heads, call.cache.v.head_dim, &call);
  check_columns(call, rows, &asked->status);
  return true;
}

bool read_call(const DLTensor* q, const DLTensor* k, const DLTensor* v,
               const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k, const sg_params* params,
               const DLTensor* out, const DLTensor* lse, Asked<RaggedAttention>* asked) {
  TensorReader reader(&asked->status);
  RaggedAttention& call = asked->call;
  if (!read_layer(params, reader, &asked->layer)) return false;
  call.q = reader.need("q", q, 3);
  call.k = reader.need("k", k, 3), call.v = reader.need("v", v, 3);
  call.cu_seqlens_q = reader.need_list<int32_t>("cu_seqlens_q", cu_seqlens_q);
  call.cu_seqlens_k = reader.need_list<int32_t>("cu_seqlens_k", cu_seqlens_k);
  call.out = reader.need("out", out, 3);
  call.lse = NaturalLse(reader.may("lse", lse, 2));
  const auto size = [](int64_t n) { return static_cast<int32_t>(std::min<int64_t>(n, INT32_MAX)); };
  if (reader.ok()) take_layer(asked->layer, size(call.k.shape[1]), size(call.v.shape[2]), &call);
  return true;
}

Status compute(const PagedAttention& call) { return attention_with_kvcache(call); }
Status compute(const RaggedAttention& call) { return attention_varlen(call); }

template <class Call>
sg_status run(Asked<Call>* asked, sg_report** report) {
  if (asked->status.ok()) asked->status = compute(asked->call);
  if (asked->status.ok()) rebase_lse(asked->layer, asked->call);
  return hand_out(asked->status, SG_BAD_INPUT, report);
}

/// "query 2 of request 1": whose row of q it is.
std::string request_of(std::span<const int32_t> cu_seqlens_q, int64_t row) {
  if (cu_seqlens_q.empty()) return "request " + std::to_string(row);
  const auto behind = std::ranges::upper_bound(cu_seqlens_q, row);
  const auto request = behind - cu_seqlens_q.begin() - 1;
  return "query " + std::to_string(row - behind[-1]) + " of request " + std::to_string(request);
}

/// What stands in out and lse is somebody else's.
template <class Call>
sg_status judge_results(Asked<Call>* asked, const char* name, sg_report** report) {
  const Call& call = asked->call;
  const Arithmetic* arithmetic = find_arithmetic(name);
  if (arithmetic == nullptr) {
    std::vector<std::string> known;
    for (const Arithmetic& a : kArithmetics) known.emplace_back(a.kernel);
    return fail_word("arithmetic", name, known);
  }
  if (asked->status.ok()) asked->status = validate(call);
  if (!asked->status.ok()) return hand_out(asked->status, SG_BAD_INPUT, report);
  const Result result = {call.out, call.lse.tensor,
                         asked->layer.lse_base2 ? LseBase::kLog2 : LseBase::kNatural,
                         call.options.lse_sink};
  const JudgeOptions how{"num.bound", "num.lse_bound", true};
  Judgement judged = judge(AnyCall(call), result, *arithmetic, how);
  if (judged.findings.ok()) return SG_OK;
  const CallScene scene(call);
  const std::vector<Explanation> known = diagnose(scene.scene(), result, *arithmetic);
  for (Finding& f : judged.findings.findings()) {
    f.diagnosis = known;
    if (f.where.row) f.got += ", of " + request_of(call.cu_seqlens_q, *f.where.row);
  }
  return hand_out(judged.findings, SG_FINDINGS, report);
}

template <LseBase Base>
Status merged(const TensorView& v, const TensorView& s, const TensorView& out,
              const TensorView& lse) {
  return merge_states(MergeStates<Base>{
      .v = v, .s = s, .out = out, .lse = LseView<Base>(lse), .options = default_options()});
}

}  // namespace
}  // namespace shadowgraph::c_api

using namespace shadowgraph;
using namespace shadowgraph::c_api;

extern "C" {

void sg_set_num_threads(int32_t num_threads) { default_num_threads = std::max(num_threads, 0); }

// Names are literals, which end with a 0.
const char* sg_isa() { return current_isa().data(); }

sg_status sg_set_isa(const char* name) {
  return guarded(nullptr, [&]() -> sg_status {
    if (name == nullptr) return fail(SG_USAGE, "name is NULL");
    return hand_out(set_isa(name), SG_BAD_INPUT, nullptr);
  });
}

sg_status sg_paged_attention(const DLTensor* q, const sg_cache* cache, const sg_pages* pages,
                             const DLTensor* cu_seqlens_q, const sg_params* params, DLTensor* out,
                             DLTensor* lse, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    Asked<PagedAttention> asked;
    if (!read_call(q, cache, pages, cu_seqlens_q, params, out, lse, &asked)) return SG_USAGE;
    return run(&asked, report);
  });
}

sg_status sg_ragged_attention(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                              const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k,
                              const sg_params* params, DLTensor* out, DLTensor* lse,
                              sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    Asked<RaggedAttention> asked;
    if (!read_call(q, k, v, cu_seqlens_q, cu_seqlens_k, params, out, lse, &asked)) return SG_USAGE;
    return run(&asked, report);
  });
}

sg_status sg_judge_paged(const DLTensor* q, const sg_cache* cache, const sg_pages* pages,
                         const DLTensor* cu_seqlens_q, const sg_params* params, const DLTensor* out,
                         const DLTensor* lse, const char* arithmetic, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (arithmetic == nullptr) return fail(SG_USAGE, "arithmetic is NULL");
    Asked<PagedAttention> asked;
    if (!read_call(q, cache, pages, cu_seqlens_q, params, out, lse, &asked)) return SG_USAGE;
    return judge_results(&asked, arithmetic, report);
  });
}

sg_status sg_judge_ragged(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                          const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k,
                          const sg_params* params, const DLTensor* out, const DLTensor* lse,
                          const char* arithmetic, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (arithmetic == nullptr) return fail(SG_USAGE, "arithmetic is NULL");
    Asked<RaggedAttention> asked;
    if (!read_call(q, k, v, cu_seqlens_q, cu_seqlens_k, params, out, lse, &asked)) return SG_USAGE;
    return judge_results(&asked, arithmetic, report);
  });
}

sg_status sg_merge_states(const DLTensor* v, const DLTensor* s, int32_t base2, DLTensor* out,
                          DLTensor* lse, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    Status status;
    TensorReader reader(&status);
    const TensorView values = reader.need("v", v, 4), sums = reader.need("s", s, 3);
    const TensorView merged_out = reader.need("out", out, 3),
                     merged_lse = reader.may("lse", lse, 2);
    if (status.ok())
      status = base2 != 0 ? merged<LseBase::kLog2>(values, sums, merged_out, merged_lse)
                          : merged<LseBase::kNatural>(values, sums, merged_out, merged_lse);
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

sg_status sg_store_kv(const DLTensor* k, const DLTensor* v, const DLTensor* out_cache_loc,
                      const sg_cache* cache, int64_t first_slot, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    Status status;
    TensorReader reader(&status);
    StoreKv call;
    if (!read_cache("", cache, reader, &call.cache)) return SG_USAGE;
    call.k = reader.need("k", k, 3), call.v = reader.may("v", v, 3);
    call.out_cache_loc = reader.need_list<int64_t>("out_cache_loc", out_cache_loc);
    call.first_slot = first_slot, call.options = default_options();
    if (status.ok()) status = store_kv(call);
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

sg_status sg_copy_kv(const sg_cache* source, const sg_cache* target, const DLTensor* source_pages,
                     const DLTensor* target_pages, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    Status status;
    TensorReader reader(&status);
    CopyKv call;
    if (!read_cache("source ", source, reader, &call.source) ||
        !read_cache("target ", target, reader, &call.target))
      return SG_USAGE;
    call.options = default_options();
    call.whole_pool = source_pages == nullptr && target_pages == nullptr;
    if (!call.whole_pool) {
      call.source_pages = reader.need_list<int32_t>("source_pages", source_pages);
      call.target_pages = reader.need_list<int32_t>("target_pages", target_pages);
    }
    if (status.ok()) status = copy_kv(call);
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

}  // extern "C"
