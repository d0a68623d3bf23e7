#include "fuzz/call/generate.h"

#include <algorithm>
#include <cmath>

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

RequestExtent choose_request(const Draws& d, CaseKernel kernel) {
  RequestExtent r;
  r.kv_len = kv_len(d);
  r.q_len = kernel == CaseKernel::kDecodePaged ? 1 : q_len(d.c, r.kv_len);
  if (d.declared != nullptr) r.q_len = std::min(r.q_len, d.declared->max_q_len);
  r.prefix_len = std::max(0, r.kv_len - r.q_len);
  return r;
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

void choose_declared_heads(const Draws& d, AttentionCase& x) {
  x.num_kv_heads = d.of(d.declared->num_kv_heads);
  x.num_qo_heads = x.num_kv_heads * d.of(d.declared->group_sizes);
  const testing::HeadDims dims = d.of(d.declared->head_dims);
  x.head_dim_qk = dims.qk, x.head_dim_vo = dims.vo;
}

/// Heads of a cache of latents, in which K and V are the same memory.
void choose_latent_heads(Choices& c, AttentionCase& x) {
  x.num_kv_heads = 1;
  x.num_qo_heads = c.of("heads", {4, 1, 16});
  x.head_dim_vo = c.one_in("wide_latent", 8) ? 512 : c.of("latent_dim", {32, 64});
  x.head_dim_qk = x.head_dim_vo + (x.head_dim_vo == 512 ? 64 : c.of("rope_dim", {16, 8}));
}

void choose_heads(const Draws& d, AttentionCase& x) {
  if (d.declared != nullptr) return choose_declared_heads(d, x);
  Choices& c = d.c;
  if (x.layout == KvLayout::kMlaLatent) return choose_latent_heads(c, x);
  // A token's group alone has more rows than a block of the prefill kernel: too dear for a factor.
  const bool tall = c.one_in(100);
  x.num_kv_heads = tall ? 1 : c.of("kv_heads", {1, 1, 2, 1, 3});
  const auto group = [&] {
    if (tall) return 104;
    return c.one_in("wide_group", 40) ? 16 : c.of("group_size", {1, 2, 4, 1, 2, 3, 8});
  };
  x.num_qo_heads = x.num_kv_heads * group();
  if (tall) {
    x.head_dim_qk = x.head_dim_vo = 16;
    return;
  }
  x.head_dim_qk = c.one_in("wide_head", 48)
                      ? c.of("head_dim", {192, 256})
                      : c.of("head_dim", {32, 64, 32, 64, 128, 16, 48, 72, 1, 5});
  const bool stacked = x.layout == KvLayout::kStackedNhd || x.layout == KvLayout::kStackedHnd;
  x.head_dim_vo = !stacked && c.one_in("other_head_dim_vo", 4)
                      ? c.of("head_dim_vo", {32, 64, 16, 40, 96, 4})
                      : x.head_dim_qk;
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
  if (d.has(Term::kWindowLeft, 3)) x.window_left = c.of({0, 1, 2, 7, 15, 16, 17, 31, 64, 127, 128});
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
  x.page_size = x.layout == kPanels ? c.of("page_size", {16, 16, 32, 64, 48, 128, 256})
                                    : c.of("page_size", {16, 1, 2, 3, 4, 8, 32, 64, 5, 128, 256});
  x.table = c.of("table", {PageTable::Form::kDense, PageTable::Form::kCsr});
  x.through_store_kv = x.layout != kMlaLatent && c.one_in("store_kv", 4);
}

/// Steps of the one body that terms of scores have: it takes a key after the other.
int64_t scalar_steps(const AttentionCase& x) {
  int64_t pairs = 0;
  for (const RequestExtent& r : x.requests) pairs += int64_t{r.q_len} * r.kv_len;
  return pairs * x.num_qo_heads * (x.head_dim_qk + x.head_dim_vo);
}

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
  *data = c.of("data", {CaseData::kUniform, CaseData::kRandom});
  x.rows = c.between(1, 24), x.states = c.between(1, 9);
  x.heads = c.between(1, 8);
  x.head_dim = c.of("head_dim", {32, 64, 128, 16, 7});
  x.dtype = x.out_dtype = c.of("out_dtype", {DType::kF32, DType::kF16, DType::kBF16});
  x.lse_base = c.of("lse_base", {LseBase::kNatural, LseBase::kLog2});
  return x;
}

AttentionCase choose_call(const Draws& d, CaseKernel kernel, CaseData data) {
  Choices& c = d.c;
  AttentionCase x;
  x.kernel = kernel;
  const bool any = d.declared == nullptr;
  if (any) choose_requests(d, x);
  if (any) choose_arrangement(d, x);
  choose_heads(d, x);
  choose_dtypes(d, x);
  choose_mask(d, x);
  if (!any) choose_arrangement(d, x);
  x.sm_scale = c.of({1.f, 2.f, 0.11f}) / std::sqrt(static_cast<float>(x.head_dim_qk));
  // A selector's winner must keep its lead of 2^126 behind the cap.
  if (d.has(Term::kSoftCap, 5))
    x.logits_soft_cap = data == CaseData::kSelector ? 200.f : c.of({30.f, 5.f, 20.f, 50.f});
  choose_terms(d, x, data);
  // Behind what they share, so that shrinking can drop some.
  if (!any) choose_requests(d, x);
  return x;
}

/// Do the values of lists go together? A selector's keys are told by an element that is none of V.
bool is_call(const AttentionCase& x, CaseData data) {
  if (x.kernel == CaseKernel::kPrefillRagged) return x.kv_dtype != DType::kI8;
  switch (x.layout) {
    case KvLayout::kStackedNhd:
    case KvLayout::kStackedHnd: return x.head_dim_qk == x.head_dim_vo;
    case KvLayout::kMlaLatent:
      return x.head_dim_qk >= x.head_dim_vo + (data == CaseData::kSelector ? 1 : 0);
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

constexpr std::initializer_list<CaseData> kDenseData = {CaseData::kUniform, CaseData::kSelector,
                                                        CaseData::kRandom, CaseData::kPeaked};

}  // namespace

Case generate(Choices& c) {
  using enum CaseKernel;
  const CaseKernel kernel =
      c.of(kKernelFactor,
           {kDecodePaged, kDecodePaged, kPrefillPaged, kDecodePaged, kPrefillPaged, kPrefillRagged,
            kPrefillPaged, kMergeStates, kLinear, kLinear, kLinear, kSparse, kSparse, kSparse});
  Case x;
  x.seed = c.below(1u << 30);
  if (kernel == kMergeStates) {
    x.call = choose_merge(c, &x.data);
    return x;
  }
  x.data = c.of("data", kDenseData);
  if (kernel == kLinear) {
    x.call = generate_recurrent(c, x.data);
  } else if (kernel == kSparse) {
    x.call = generate_sparse(c);
  } else {
    x.call = choose_call({c, nullptr}, kernel, x.data);
  }
  return x;
}

std::optional<Case> generate_declared(Choices& c, const KernelSupport& declared) {
  const Draws d{c, &declared};
  Case x;
  x.seed = c.below(1u << 30);
  // Exact data has no slopes.
  const bool slopes = std::ranges::find(declared.always, Term::kAlibi) != declared.always.end();
  x.data = slopes ? c.of({CaseData::kRandom, CaseData::kPeaked}) : c.of(kDenseData);
  AttentionCase call = choose_call(d, kernel_of(d.of(declared.calls)), x.data);
  if (!is_call(call, x.data)) return std::nullopt;
  x.call = std::move(call);
  return x;
}

}  // namespace shadowgraph
