#include "fuzz/kernel/support.h"

#include <algorithm>

#include "attn/cases/case_names.h"
#include "check/bounds/declared.h"
#include "core/laws.h"
#include "fuzz/call/far_memory.h"

namespace shadowgraph::testing {
namespace {

struct TermRow {
  Term term;
  std::string_view name;
  bool (*is_drawn)(const AttentionCase& x);
};
constexpr TermRow kTerms[] = {
    {Term::kCausal, "causal", [](const AttentionCase& x) { return x.causal; }},
    {Term::kWindowLeft, "window_left", [](const AttentionCase& x) { return x.window_left >= 0; }},
    {Term::kWindowRight, "window_right",
     [](const AttentionCase& x) { return x.window_right >= 0; }},
    {Term::kSoftCap, "logits_soft_cap",
     [](const AttentionCase& x) { return x.logits_soft_cap > 0; }},
    {Term::kSinks, "sinks", [](const AttentionCase& x) { return x.sinks; }},
    {Term::kBoolMask, "custom_mask bool",
     [](const AttentionCase& x) { return x.mask == CustomMask::Kind::kBool; }},
    {Term::kPackedMask, "custom_mask packed",
     [](const AttentionCase& x) { return x.mask == CustomMask::Kind::kPacked; }},
    {Term::kAlibi, "alibi_slopes",
     [](const AttentionCase& x) { return x.terms.alibi.has_value(); }},
    {Term::kKeyBias, "key_bias", [](const AttentionCase& x) { return x.terms.key_bias; }},
    {Term::kQqBias, "qq_bias", [](const AttentionCase& x) { return x.terms.qq_bias; }},
    {Term::kRelativeBias, "relative_bias",
     [](const AttentionCase& x) { return x.terms.relative_bias; }},
    {Term::kTemperature, "temperature_len",
     [](const AttentionCase& x) { return x.terms.temperature_len > 0; }},
    {Term::kChunks, "attention_chunk",
     [](const AttentionCase& x) { return x.terms.attention_chunk > 0; }},
    {Term::kRequestCausal, "request_causal",
     [](const AttentionCase& x) { return x.terms.request_causal; }},
    {Term::kLeftpad, "cache_leftpad", [](const AttentionCase& x) { return x.terms.cache_leftpad; }},
    {Term::kBidirectional, "bidirectional_ranges",
     [](const AttentionCase& x) { return x.terms.bidirectional; }},
    {Term::kMaskOfHeads, "custom_mask heads",
     [](const AttentionCase& x) { return x.terms.mask_of_heads; }},
    {Term::kHeadScales, "k_scales", [](const AttentionCase& x) { return x.terms.head_scales; }},
    {Term::kRequestHeadScales, "k_scales of requests",
     [](const AttentionCase& x) { return x.terms.request_head_scales; }},
    {Term::kRowScales, "q_scale, out_scale",
     [](const AttentionCase& x) { return x.terms.q_scale != 1 || x.terms.out_scale != 1; }},
    {Term::kPaddedRows, "seqused_q", [](const AttentionCase& x) { return x.terms.padded_rows; }},
};

constexpr CaseKernel kKernels[] = {CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged,
                                   CaseKernel::kPrefillRagged};

class SupportCheck {
 public:
  SupportCheck(const KernelOptions& options, const Kernel& kernel)
      : options_(options), s_(options.support), kernel_(kernel) {}

  Status run() {
    at_least("calls", 1, options_.calls);
    lists();
    terms();
    at_least("support.max_requests", 1, s_.max_requests);
    at_least("support.max_q_len", 1, s_.max_q_len);
    at_least("support.max_kv_len", 1, s_.max_kv_len);
    for (const KernelCall call : s_.calls) {
      const bool ragged = call == KernelCall::kRagged;
      const bool given = ragged ? kernel_.ragged != nullptr : kernel_.paged != nullptr;
      if (!given)
        fail(ragged ? "kernel.ragged" : "kernel.paged", "a function, as support.calls says",
             "none");
    }
    if (find_arithmetic(s_.arithmetic) == nullptr)
      fail("support.arithmetic", no_such_arithmetic("", s_.arithmetic).expected, s_.arithmetic);
    if (s_.far_pages && !far_memory_is_free())
      fail("support.far_pages", "2^37 bytes of address space, or false", "true");
    return std::move(status_);
  }

 private:
  void lists() {
    at_least("support.calls", 1, std::ssize(s_.calls));
    at_least("support.types", 1, std::ssize(s_.types));
    at_least("support.head_dims", 1, std::ssize(s_.head_dims));
    at_least("support.layouts", 1, std::ssize(s_.layouts));
    at_least("support.tables", 1, std::ssize(s_.tables));
    sizes("support.group_sizes", s_.group_sizes);
    sizes("support.num_kv_heads", s_.num_kv_heads);
    sizes("support.page_sizes", s_.page_sizes);
    for (const HeadDims& d : s_.head_dims) {
      at_least("support.head_dims.qk", 1, d.qk);
      at_least("support.head_dims.vo", 1, d.vo);
    }
    for (const KernelTypes& t : s_.types) {
      if (!is_float16_or_32(t.q))
        fail("support.types.q", "f32, f16 or bf16", std::string(name_of(t.q)));
      if (!is_float16_or_32(t.out))
        fail("support.types.out", "f32, f16 or bf16", std::string(name_of(t.out)));
      if (!is_float16_or_32(t.kv) && !is_fp8(t.kv) && t.kv != DType::kI8)
        fail("support.types.kv", "a type of a cache", std::string(name_of(t.kv)));
    }
  }
  /// Terms that no call can have: in place of each comes one that every call has, or what it needs
  /// is not declared.
  void terms() {
    using enum Term;
    const auto always = [&](Term t) { return std::ranges::count(s_.always, t) > 0; };
    const auto has = [&](Term t) { return always(t) || std::ranges::count(s_.terms, t) > 0; };
    for (const auto& [term, other] : {std::pair(kHeadScales, kRequestHeadScales),
                                      {kRequestHeadScales, kHeadScales},
                                      {kBoolMask, kPackedMask},
                                      {kPackedMask, kBoolMask}})
      if (always(term) && has(other))
        fail("support.terms", "no " + name(other) + ": every call has " + name(term) + " instead",
             name(other));
    if (has(kMaskOfHeads) && !has(kBoolMask) && !has(kPackedMask))
      fail("support.terms",
           name(kBoolMask) + " or " + name(kPackedMask) + ", as there is " + name(kMaskOfHeads),
           "neither");
    const std::vector decodes(s_.calls.size(), KernelCall::kPagedDecode);
    if (has(kPaddedRows) && s_.calls == decodes)
      fail("support.terms", "no " + name(kPaddedRows) + ": a decode has none", name(kPaddedRows));
  }
  static std::string name(Term term) { return std::string(name_of(term)); }
  void sizes(const char* field, const std::vector<int32_t>& list) {
    at_least(field, 1, std::ssize(list));
    for (const int32_t size : list) at_least(field, 1, size);
  }
  void at_least(const char* field, int64_t least, int64_t got) {
    if (got < least) fail(field, ">= " + std::to_string(least), std::to_string(got));
  }
  void fail(const char* field, std::string expected, std::string got) {
    status_.add(make_finding("test.options", at(field), std::move(expected), std::move(got)));
  }

  const KernelOptions& options_;
  const KernelSupport& s_;
  const Kernel& kernel_;
  Status status_;
};

}  // namespace

std::string_view name_of(Term term) {
  return std::ranges::find(kTerms, term, &TermRow::term)->name;
}

Status validate(const KernelOptions& options, const Kernel& kernel) {
  return SupportCheck(options, kernel).run();
}

std::vector<DeclaredValue> declared_values(const KernelSupport& s) {
  std::vector<DeclaredValue> all;
  const auto add = [&](std::string_view field, const auto& list, auto text, auto is_drawn) {
    for (const auto& value : list)
      all.push_back({field, std::string(text(value)),
                     [=](const AttentionCase& x) { return is_drawn(x, value); }});
  };
  const auto number = [](int32_t n) { return std::to_string(n); };
  const auto kernel = [](KernelCall c) { return kKernels[static_cast<size_t>(c)]; };
  const auto paged = [](const AttentionCase& x) { return x.kernel != CaseKernel::kPrefillRagged; };
  const bool any_paged = s.calls != std::vector{KernelCall::kRagged};
  add(
      "calls", s.calls, [&](KernelCall c) { return word(kCaseKernelNames, kernel(c)); },
      [=](const AttentionCase& x, KernelCall c) { return x.kernel == kernel(c); });
  for (const auto* terms : {&s.terms, &s.always}) {
    for (const Term term : *terms) {
      const TermRow& row = *std::ranges::find(kTerms, term, &TermRow::term);
      all.push_back({"terms", std::string(row.name), row.is_drawn});
    }
  }
  add(
      "types", s.types,
      [](const KernelTypes& t) {
        return std::string(name_of(t.q)) + "/" + std::string(name_of(t.kv)) + "/" +
               std::string(name_of(t.out));
      },
      [](const AttentionCase& x, const KernelTypes& t) {
        return KernelTypes{x.q_dtype, x.kv_dtype, x.out_dtype} == t;
      });
  add(
      "head_dims", s.head_dims,
      [](const HeadDims& d) { return std::to_string(d.qk) + "/" + std::to_string(d.vo); },
      [](const AttentionCase& x, const HeadDims& d) {
        return HeadDims{x.head_dim_qk, x.head_dim_vo} == d;
      });
  add("group_sizes", s.group_sizes, number,
      [](const AttentionCase& x, int32_t n) { return x.num_qo_heads == n * x.num_kv_heads; });
  add("num_kv_heads", s.num_kv_heads, number,
      [](const AttentionCase& x, int32_t n) { return x.num_kv_heads == n; });
  if (!any_paged) return all;
  add("page_sizes", s.page_sizes, number,
      [=](const AttentionCase& x, int32_t n) { return paged(x) && x.page_size == n; });
  add(
      "layouts", s.layouts, [](KvLayout l) { return word(kCaseLayoutNames, l); },
      [=](const AttentionCase& x, KvLayout l) { return paged(x) && x.layout == l; });
  add(
      "tables", s.tables,
      [](PageTable::Form f) { return f == PageTable::Form::kCsr ? "csr" : "dense"; },
      [=](const AttentionCase& x, PageTable::Form f) { return paged(x) && x.table == f; });
  return all;
}

Arithmetic arithmetic_of(const KernelSupport& support) {
  return with_declared(*find_arithmetic(support.arithmetic), support.departs);
}

}  // namespace shadowgraph::testing
