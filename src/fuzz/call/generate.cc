#include "fuzz/call/generate.h"

#include <algorithm>
#include <cmath>

#include "fuzz/call/attention_scene.h"
#include "fuzz/call/call_sizes.h"
#include "fuzz/call/draw_names.h"
#include "fuzz/call/recurrent_generate.h"
#include "fuzz/call/sparse_generate.h"
#include "fuzz/kernel/support.h"

namespace shadowgraph {
namespace {

using testing::KernelSupport;
using testing::Term;

/// Draws what a call is made of: of all that the engine takes, or of what somebody declares.
struct Draws {
  Choices& c;
  const KernelSupport* declared;  // null: everything

  bool has(Term term, uint32_t one_in) const {
    const auto names = [&](const std::vector<Term>& list) {
      return std::ranges::find(list, term) != list.end();
    };
    if (declared != nullptr && names(declared->always)) return true;
    return (declared == nullptr || names(declared->terms)) && c.one_in(name_of(term), one_in);
  }
  template <class T>
  T of(const std::vector<T>& list) const {
    return list[c.below(static_cast<uint32_t>(list.size()))];
  }
};

/// A number of keys: mostly some dozens, often at an edge, rarely past a split of the decode
/// kernel. A declared call's first choice is the shortest: a failure is shrunk to it.
int32_t kv_len(const Draws& d) {
  Choices& c = d.c;
  const auto edge = [&] {
    const int at = c.of({0, 1, 16, 64, 128, 256, 512, 1024});
    return std::max(0, at + c.between(-1, 1));
  };
  if (d.declared != nullptr) {
    const uint32_t kind = c.below(4);
    const int keys = kind == 3 ? edge() : kind == 0 ? c.between(1, 64) : c.between(64, 192);
    return std::min(keys, d.declared->max_kv_len);
  }
  if (c.one_in(4)) return edge();
  return c.one_in(3) ? c.between(1, 64) : c.between(64, 192);
}

/// Queries of one request; q_len > kv_len (rows that see nothing) happens.
int32_t q_len(Choices& c, int32_t keys) {
  if (c.one_in(12)) return 0;
  if (c.one_in(8)) return std::min(keys + c.between(1, 4), 40);
  return c.between(1, c.one_in(10) ? 40 : 4);
}

RequestExtent extent(int64_t queries, int64_t keys) {
  RequestExtent r;
  r.q_len = static_cast<int32_t>(queries), r.kv_len = static_cast<int32_t>(keys);
  r.prefix_len = std::max(0, r.kv_len - r.q_len);
  return r;
}

/// None, one or two queries. The keys are drawn first: the order of draws is part of a seed.
RequestExtent short_extent(Choices& c, int most_keys) {
  const int32_t keys = c.between(0, most_keys);
  return extent(c.between(0, 2), keys);
}

RequestExtent choose_request(const Draws& d, CaseKernel kernel) {
  const int32_t keys = kv_len(d);
  const int32_t queries = kernel == CaseKernel::kDecodePaged ? 1 : q_len(d.c, keys);
  return extent(d.declared == nullptr ? queries : std::min(queries, d.declared->max_q_len), keys);
}

/// A choice behind each request of a declared call says whether there is another: shrinking drops
/// any.
void choose_requests(const Draws& d, AttentionCase& x) {
  Choices& c = d.c;
  if (d.declared == nullptr) {
    const int batch =
        c.one_in("one_request", 5) ? 1 : c.between(2, c.one_in("many_requests", 4) ? 6 : 3);
    for (int i = 0; i < batch; ++i) x.requests.push_back(choose_request(d, x.kernel));
    return;
  }
  do {
    x.requests.push_back(choose_request(d, x.kernel));
  } while (c.below(3) != 0 && std::ssize(x.requests) < d.declared->max_requests);
}

constexpr int64_t kMostPoolElements = 2 << 20;  // of the last pages of requests
int64_t page_elements(const AttentionCase& x) {
  return int64_t{x.page_size} * x.num_kv_heads * std::max(x.head_dim_qk, x.head_dim_vo);
}

/// One request or two, of which one has many keys and few queries.
void choose_many_keys(Choices& c, AttentionCase& x, int64_t pairs) {
  constexpr int64_t kLeast = 64, kMost = 4200;
  const bool decode = x.kernel == CaseKernel::kDecodePaged;
  const int64_t keys = large_size(c, Axis::kKeys, kLeast, std::min(pairs, kMost));
  const int64_t most = std::clamp<int64_t>(pairs / keys, 1, 6);
  x.requests = {extent(decode ? 1 : c.between(1, static_cast<int>(most)), keys)};
  if (c.one_in(2)) x.requests.push_back(extent(1, c.between(0, 40)));
}

/// One request or two, of which one has many queries: with a prefix, or with rows that see no key.
void choose_many_queries(Choices& c, AttentionCase& x, int64_t pairs) {
  constexpr int64_t kLeast = 16, kMost = 400;
  int64_t queries = large_size(c, Axis::kQueryRows, kLeast, std::min(pairs, kMost));
  if (c.one_in(2)) queries = std::max(int64_t{1}, queries * x.num_kv_heads / x.num_qo_heads);
  const auto some = static_cast<int>(queries);
  const int64_t keys = c.one_in(4) ? c.between(0, some) : some + c.between(0, 200);
  x.requests = {extent(queries, std::min(keys, pairs / queries))};
  if (c.one_in(2)) x.requests.push_back(short_extent(c, 40));
}

/// Many requests, each with a page at least.
void choose_many_requests(Choices& c, AttentionCase& x, int64_t pairs) {
  const int64_t room = std::min(kMostPoolElements / page_elements(x), pairs / 40);
  const int64_t many = c.of({8, 7, 9, 16, 17, 31, 33, 64});
  for (int64_t i = std::clamp<int64_t>(room, 1, many); i > 0; --i)
    x.requests.push_back(x.kernel == CaseKernel::kDecodePaged ? extent(1, c.between(0, 20))
                                                              : short_extent(c, 20));
}

/// Products of a query and a key, and what else they cost. Requires heads.
int64_t products_of_pair(const AttentionCase& x) {
  constexpr int64_t kOfMask = 32;
  return int64_t{x.num_qo_heads} * (x.head_dim_qk + x.head_dim_vo + kOfMask);
}

/// No call takes long, or more memory than its file may ask for (fuzz/file/call_file.cc): its
/// requests have fewer keys and queries where their products, or elements, are too many.
void bound_work(AttentionCase& x) {
  constexpr int64_t kMostProducts = 32 << 20, kMostElements = 16 << 20;
  const int64_t requests = std::ssize(x.requests);
  const int64_t token = int64_t{x.num_qo_heads} * (x.head_dim_qk + x.head_dim_vo);
  const int64_t pairs = kMostProducts / requests / products_of_pair(x);
  const int64_t most = std::min(pairs, kMostElements / 2 / requests / token);
  for (RequestExtent& r : x.requests) {
    const int64_t keys = std::min<int64_t>(r.kv_len, most);
    const int64_t queries = std::min(most, pairs / std::max<int64_t>(1, keys));
    r = extent(std::min<int64_t>(r.q_len, queries), keys);
  }
}

/// A call with much of one is small otherwise. Requires heads.
void choose_large_requests(Choices& c, AttentionCase& x, CallSizes sizes) {
  const int64_t pairs = std::max<int64_t>(64, choose_work(c) / products_of_pair(x));
  if (sizes == CallSizes::kKeys) return choose_many_keys(c, x, pairs);
  if (sizes == CallSizes::kTokens) return choose_many_queries(c, x, pairs);
  choose_many_requests(c, x, pairs);
}

bool has_large_requests(CallSizes sizes) {
  return sizes == CallSizes::kKeys || sizes == CallSizes::kTokens || sizes == CallSizes::kRows;
}

void choose_declared_heads(const Draws& d, AttentionCase& x) {
  x.num_kv_heads = d.of(d.declared->num_kv_heads);
  x.num_qo_heads = x.num_kv_heads * d.of(d.declared->group_sizes);
  const testing::HeadDims dims = d.of(d.declared->head_dims);
  x.head_dim_qk = dims.qk, x.head_dim_vo = dims.vo;
}

constexpr int64_t kMostHeads = 130;

/// Heads of a cache of latents, in which K and V are the same memory.
void choose_latent_heads(Choices& c, AttentionCase& x, CallSizes sizes) {
  x.num_kv_heads = 1;
  x.num_qo_heads = sizes == CallSizes::kHeads ? large_size(c, Axis::kHeads, 4, kMostHeads)
                                              : c.of("heads", {4, 1, 16});
  x.head_dim_vo = c.one_in("wide_latent", 8) ? 512 : c.of("latent_dim", {32, 64});
  x.head_dim_qk = x.head_dim_vo + (x.head_dim_vo == 512 ? 64 : c.of("rope_dim", {16, 8}));
}

/// Few heads of few channels leave a call room for many keys or queries.
void choose_few_heads(Choices& c, AttentionCase& x) {
  x.head_dim_qk = x.head_dim_vo = c.of({32, 16, 64, 8});
  x.num_kv_heads = c.of({1, 1, 2});
  x.num_qo_heads = x.num_kv_heads * c.of({1, 2, 3, 5});
}

void choose_head_dims(Choices& c, AttentionCase& x, CallSizes sizes) {
  const bool stacked = x.layout == KvLayout::kStackedNhd || x.layout == KvLayout::kStackedHnd;
  if (sizes == CallSizes::kWidth) {
    const auto wide = [&] { return large_size(c, Axis::kHeadDim, 4, 520); };
    x.head_dim_qk = x.head_dim_vo = wide();
    if (!stacked && c.one_in(2)) x.head_dim_vo = wide();
    return;
  }
  x.head_dim_qk = c.one_in("wide_head", 48)
                      ? c.of("head_dim", {192, 256})
                      : c.of("head_dim", {32, 64, 32, 64, 128, 16, 48, 72, 1, 5, 96, 112});
  x.head_dim_vo = !stacked && c.one_in("other_head_dim_vo", 4)
                      ? c.of("head_dim_vo", {32, 64, 16, 40, 96, 4})
                      : x.head_dim_qk;
}

/// Requires dims and a page size.
void choose_head_counts(Choices& c, AttentionCase& x, CallSizes sizes) {
  if (sizes != CallSizes::kHeads) {
    x.num_kv_heads = c.of("kv_heads", {1, 1, 2, 1, 3});
    x.num_qo_heads =
        x.num_kv_heads *
        (c.one_in("wide_group", 40) ? 16 : c.of("group_size", {1, 2, 4, 1, 2, 3, 8, 5, 6, 7, 12}));
    return;
  }
  if (c.one_in(4)) {
    const int64_t room = std::max(int64_t{1}, kMostPoolElements / 8 / page_elements(x));
    x.num_qo_heads = x.num_kv_heads = large_size(c, Axis::kHeads, 4, std::min(room, kMostHeads));
    return;
  }
  x.num_kv_heads = c.of({1, 1, 2});
  x.num_qo_heads = x.num_kv_heads * large_size(c, c.of({Axis::kQueryRows, Axis::kGroup}), 4,
                                               kMostHeads / x.num_kv_heads);
}

void choose_heads(const Draws& d, AttentionCase& x, CallSizes sizes) {
  if (d.declared != nullptr) return choose_declared_heads(d, x);
  if (x.layout == KvLayout::kMlaLatent) return choose_latent_heads(d.c, x, sizes);
  if ((sizes == CallSizes::kKeys || sizes == CallSizes::kTokens) && !d.c.one_in(4))
    return choose_few_heads(d.c, x);
  choose_head_dims(d.c, x, sizes);
  choose_head_counts(d.c, x, sizes);
}

void choose_dtypes(const Draws& d, AttentionCase& x) {
  Choices& c = d.c;
  if (d.declared != nullptr) {
    const testing::KernelTypes types = d.of(d.declared->types);
    x.q_dtype = types.q, x.kv_dtype = types.kv, x.out_dtype = types.out;
  } else {
    using enum DType;
    const DType q = x.q_dtype = c.of("q_dtype", {kF32, kF16, kBF16});
    // Mostly that of q; int8 is no type of packed keys.
    const DType i8 = x.kernel == CaseKernel::kPrefillRagged ? q : kI8;
    x.kv_dtype = c.of("kv_dtype", {q, q, q, q, q, q, q, q, q, kF32, kBF16, kE4M3, kE5M2, kE4M3,
                                   kE5M2, i8, i8, kF16});
    x.out_dtype = c.of("out_dtype", {q, q, q, q, q, q, q, q, q, kF32, kF16, kBF16});
  }
  if (is_fp8(x.kv_dtype)) {
    x.k_scale = c.of("k_scale", {1.f, 0.5f, 0.037f, 1.7f});
    x.v_scale = c.of("v_scale", {1.f, 2.f, 0.25f, 2.3f});
  } else if (x.kv_dtype == DType::kI8) {
    // Scales of few bits: store_kv gives back codes and scales, bit for bit.
    x.k_scale = c.of("k_scale", {1.f, 0.5f, 0.625f, 1.75f});
    x.v_scale = c.of("v_scale", {1.f, 2.f, 0.25f, 1.25f});
  }
}

CustomMask::Kind mask_kind(const Draws& d) {
  using enum CustomMask::Kind;
  if (d.declared == nullptr)
    return d.c.of("custom_mask", {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
                                  kNone, kBool, kPacked});
  if (d.has(Term::kBoolMask, 4)) return kBool;
  return d.has(Term::kPackedMask, 4) ? kPacked : kNone;
}

void choose_mask(const Draws& d, AttentionCase& x) {
  Choices& c = d.c;
  x.causal = d.has(Term::kCausal, x.kernel == CaseKernel::kDecodePaged ? 4 : 2);
  if (d.has(Term::kWindowLeft, 3))
    x.window_left = d.declared == nullptr && c.one_in(4)
                        ? large_size(c, Axis::kKeys, 16, 1030)
                        : c.of({0, 1, 2, 7, 15, 16, 17, 31, 64, 127, 128});
  if (d.has(Term::kWindowRight, 8)) x.window_right = c.of({0, 1, 5, 16});
  x.mask = mask_kind(d);
  x.sinks = d.has(Term::kSinks, 5);
  if (d.declared != nullptr) {
    x.lse_sink = d.declared->lse_sink;
  } else if (x.sinks && c.one_in("lse_sink", 2)) {
    x.lse_sink = LseSink::kIncluded;
  }
}

/// How the cache lies; store_kv cannot write latents, in which K and V are the same memory.
void choose_arrangement(const Draws& d, AttentionCase& x) {
  if (x.kernel == CaseKernel::kPrefillRagged) return;
  Choices& c = d.c;
  if (d.declared != nullptr) {
    x.page_size = d.of(d.declared->page_sizes);
    x.layout = d.of(d.declared->layouts);
    if (x.layout == KvLayout::kMlaLatent) x.num_qo_heads /= x.num_kv_heads, x.num_kv_heads = 1;
    x.table = d.of(d.declared->tables);
    return;
  }
  using enum KvLayout;
  x.layout =
      c.of("layout", {kNhd, kHnd, kStackedNhd, kStackedHnd, kNhd, kHnd, kStackedNhd, kStackedHnd,
                      kNhd, kHnd, kPanels, kPanels, kPanels, kPanels, kPanels, kMlaLatent});
  x.page_size = x.layout == kPanels
                    ? c.of("page_size", {16, 16, 32, 64, 48, 128, 256})
                    : c.of("page_size", {16, 1, 2, 3, 4, 8, 32, 64, 5, 128, 256, 512});
  x.table = c.of("table", {PageTable::Form::kDense, PageTable::Form::kCsr});
  x.through_store_kv = x.layout != kMlaLatent && c.one_in("store_kv", 4);
}

/// Steps of the one body that terms of scores have: it takes a key after the other.
int64_t scalar_steps(const AttentionCase& x) {
  int64_t pairs = 0;
  for (const RequestExtent& r : x.requests) pairs += int64_t{r.q_len} * r.kv_len;
  return pairs * x.num_qo_heads * (x.head_dim_qk + x.head_dim_vo);
}

/// Are some logits far from 0?
bool has_far_keys(CaseData data) { return data == CaseData::kSelector || is_shifted(data); }

/// Terms that the engine's one portable body computes.
void choose_score_terms(const Draws& d, AttentionCase& x, CaseData data) {
  using Alibi = AttentionTerms::Alibi;
  constexpr int64_t kMostSteps = 4 << 20;
  CaseTerms& t = x.terms;
  if (d.declared == nullptr && scalar_steps(x) > kMostSteps) return;
  if (!is_exact(data) && d.has(Term::kAlibi, 3))
    t.alibi = d.c.of("alibi_slope", {Alibi::kLinear, Alibi::kDistance, Alibi::kSqrt});
  t.key_bias = d.has(Term::kKeyBias, 4), t.qq_bias = d.has(Term::kQqBias, 4);
  t.relative_bias = d.has(Term::kRelativeBias, 4);
  if (d.has(Term::kTemperature, 4)) t.temperature_len = d.c.of("temperature", {2, 16, 100});
  if (x.mask != CustomMask::Kind::kNone) t.mask_of_heads = d.has(Term::kMaskOfHeads, 2);
}

void choose_terms(const Draws& d, AttentionCase& x, CaseData data) {
  Choices& c = d.c;
  if (d.declared == nullptr && !c.one_in("terms", 4)) return;
  CaseTerms& t = x.terms;
  if (d.has(Term::kChunks, 4)) {
    t.attention_chunk = c.of("chunk", {16, 1, 5, 64, 100});
    t.chunk_lookback = c.of("chunk_lookback", {0, 1, 2});
  }
  t.request_causal = d.has(Term::kRequestCausal, 4);
  t.cache_leftpad = d.has(Term::kLeftpad, 4), t.bidirectional = d.has(Term::kBidirectional, 4);
  t.request_head_scales = d.has(Term::kRequestHeadScales, 6);
  t.head_scales = !t.request_head_scales && d.has(Term::kHeadScales, 5);
  if (d.has(Term::kRowScales, 6))
    t.q_scale = c.of("q_scale", {2.F, 4.F}), t.out_scale = c.of("out_scale", {0.5F, 1.F, 4.F});
  t.padded_rows = x.kernel != CaseKernel::kDecodePaged && d.has(Term::kPaddedRows, 4);
  choose_score_terms(d, x, data);
}

MergeCase choose_merge(Choices& c, CaseData* data) {
  MergeCase x;
  *data =
      c.of("data", {CaseData::kUniform, CaseData::kRandom, CaseData::kShifted, CaseData::kHuge});
  const CallSizes sizes = choose_sizes(c, {CallSizes::kKeys, CallSizes::kRows, CallSizes::kWidth});
  x.rows = c.between(1, 24), x.states = c.between(1, 9);
  x.heads = c.between(1, 8);
  x.head_dim = sizes == CallSizes::kWidth ? large_size(c, Axis::kHeadDim, 4, 520)
                                          : c.of("head_dim", {32, 64, 128, 16, 7});
  const int64_t work = choose_work(c) / 4 / (int64_t{x.heads} * x.head_dim);
  if (sizes == CallSizes::kKeys)  // partial results of a row
    x.states = large_size(c, Axis::kStates, 10, std::min<int64_t>(130, work / x.rows));
  if (sizes == CallSizes::kRows)
    x.rows = large_size(c, Axis::kBatch, 25, std::min<int64_t>(520, work / x.states));
  x.dtype = x.out_dtype = c.of("out_dtype", {DType::kF32, DType::kF16, DType::kBF16});
  x.lse_base = c.of("lse_base", {LseBase::kNatural, LseBase::kLog2});
  return x;
}

AttentionCase choose_call(const Draws& d, CaseKernel kernel, CaseData data) {
  Choices& c = d.c;
  AttentionCase x;
  x.kernel = kernel;
  using enum CallSizes;
  const bool any = d.declared == nullptr;
  CallSizes sizes = kSmall;
  if (any)
    sizes = kernel == CaseKernel::kDecodePaged
                ? choose_sizes(c, {kKeys, kRows, kHeads, kWidth})
                : choose_sizes(c, {kKeys, kTokens, kRows, kHeads, kWidth});
  if (any && !has_large_requests(sizes)) choose_requests(d, x);
  if (any) choose_arrangement(d, x);
  choose_heads(d, x, sizes);
  if (has_large_requests(sizes)) choose_large_requests(c, x, sizes);
  if (any) bound_work(x);
  choose_dtypes(d, x);
  choose_mask(d, x);
  if (!any) choose_arrangement(d, x);
  x.sm_scale = c.of({1.f, 2.f, 0.11f}) / std::sqrt(static_cast<float>(x.head_dim_qk));
  // A far logit must keep its lead of 2^126 behind the cap.
  if (d.has(Term::kSoftCap, 5))
    x.logits_soft_cap = has_far_keys(data) ? 200.f : c.of({30.f, 5.f, 20.f, 50.f});
  choose_terms(d, x, data);
  if (any && !is_exact(data) && x.kv_dtype != DType::kI8) x.nan = c.one_in("nan", 12);
  // Behind what they share, so that shrinking can drop some.
  if (!any) choose_requests(d, x);
  return x;
}

/// Do the values of lists go together? Far keys are told by an element that is none of V.
bool is_call(const AttentionCase& x, CaseData data) {
  if (x.kernel == CaseKernel::kPrefillRagged) return x.kv_dtype != DType::kI8;
  switch (x.layout) {
    case KvLayout::kStackedNhd:
    case KvLayout::kStackedHnd: return x.head_dim_qk == x.head_dim_vo;
    case KvLayout::kMlaLatent: return x.head_dim_qk >= x.head_dim_vo + (has_far_keys(data) ? 1 : 0);
    case KvLayout::kPanels: return x.page_size % kPanelTokens == 0;
    default: return true;
  }
}

CaseKernel kernel_of(testing::KernelCall call) {
  switch (call) {
    case testing::KernelCall::kPagedDecode: return CaseKernel::kDecodePaged;
    case testing::KernelCall::kPagedExtend: return CaseKernel::kPrefillPaged;
    case testing::KernelCall::kRagged: break;
  }
  return CaseKernel::kPrefillRagged;
}

constexpr std::initializer_list<CaseData> kStateData = {CaseData::kUniform, CaseData::kSelector,
                                                        CaseData::kRandom, CaseData::kPeaked};
constexpr std::initializer_list<CaseData> kScoreData = {
    CaseData::kUniform,  CaseData::kSelector, CaseData::kRandom,  CaseData::kPeaked,
    CaseData::kSelector, CaseData::kRandom,   CaseData::kShifted, CaseData::kHuge};

/// Logits far from 0 are for scores that f32 holds, and huge ones for a maximum that is taken away
/// before anything is rounded. Exact data has no slopes.
std::vector<CaseData> data_of(const KernelSupport& declared) {
  const Arithmetic a = testing::arithmetic_of(declared);
  const bool slopes = std::ranges::find(declared.always, Term::kAlibi) != declared.always.end();
  std::vector<CaseData> all;
  for (const CaseData d : kScoreData) {
    if (slopes && is_exact(d)) continue;
    if (is_shifted(d) && a.scores_type != DType::kF32) continue;
    if (d == CaseData::kHuge && a.scaled_maximum) continue;
    all.push_back(d);
  }
  return all;
}

}  // namespace

Case generate(Choices& c) {
  using enum CaseKernel;
  const CaseKernel kernel =
      c.of(kKernelFactor,
           {kDecodePaged, kDecodePaged, kPrefillPaged, kDecodePaged, kPrefillPaged, kPrefillRagged,
            kPrefillPaged, kMergeStates, kLinear, kLinear, kLinear, kSparse, kSparse, kSparse});
  Case x;
  x.seed = c.below(1u << 30);
  x.more_threads = c.of("threads", {1, 1, 1, 1, 2, 3}) - 1;
  if (kernel == kMergeStates) {
    x.call = choose_merge(c, &x.data);
    return x;
  }
  x.data = c.of("data", kernel == kLinear ? kStateData : kScoreData);
  if (kernel == kLinear) {
    x.call = generate_recurrent(c, x.data);
  } else if (kernel == kSparse) {
    x.call = generate_sparse(c);
  } else {
    x.call = choose_call({c, nullptr}, kernel, x.data);
  }
  if (can_be_far(x)) x.far = c.one_in("far", 16);
  return x;
}

std::optional<Case> generate_declared(Choices& c, const KernelSupport& declared) {
  const Draws d{c, &declared};
  Case x;
  x.seed = c.below(1u << 30);
  x.data = d.of(data_of(declared));
  AttentionCase call = choose_call(d, kernel_of(d.of(declared.calls)), x.data);
  if (!is_call(call, x.data)) return std::nullopt;
  x.call = std::move(call);
  return x;
}

}  // namespace shadowgraph
