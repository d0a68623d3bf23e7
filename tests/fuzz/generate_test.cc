// What the generator owes: cases of a useful size, every feature, and the same case for the same
// choices.
#include "fuzz/call/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "fuzz/fuzz.h"
#include "kernels/dense/decode_paged.h"
#include "kernels/dense/prefill.h"

namespace shadowgraph::generate_test {
namespace {

constexpr uint64_t kCases = 10000;

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> all;
  for (uint64_t number = 0; number < kCases; ++number) {
    const Case x = fuzz_case(1, number);
    if (const auto* attention = x.as<AttentionCase>()) all.push_back(*attention);
  }
  return all;
}

int64_t median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(Generate, HalfOfTheCasesAreOfAUsefulSize) {
  std::vector<int64_t> keys, requests, dims;
  for (const AttentionCase& x : attention_cases()) {
    std::vector<int64_t> lens;
    for (const RequestExtent& r : x.requests) lens.push_back(r.kv_len);
    keys.push_back(median(lens));
    requests.push_back(static_cast<int64_t>(x.requests.size()));
    dims.push_back(x.head_dim_qk);
  }
  EXPECT_GE(median(keys), 64);
  EXPECT_GE(median(requests), 2);
  EXPECT_GE(median(dims), 32);
}

bool any(const AttentionCase& x, const std::function<bool(const RequestExtent&)>& holds) {
  return std::any_of(x.requests.begin(), x.requests.end(), holds);
}

const std::map<std::string, std::function<bool(const AttentionCase&)>> kFeatures = {
    {"sliding window", [](const AttentionCase& x) { return x.window_left > 0; }},
    {"window of self only", [](const AttentionCase& x) { return x.window_left == 0; }},
    {"window right", [](const AttentionCase& x) { return x.window_right >= 0; }},
    {"causal", [](const AttentionCase& x) { return x.causal; }},
    {"causal window", [](const AttentionCase& x) { return x.causal && x.window_left >= 0; }},
    {"soft cap", [](const AttentionCase& x) { return x.logits_soft_cap > 0; }},
    {"sinks in the LSE",
     [](const AttentionCase& x) { return x.sinks && x.lse_sink == LseSink::kIncluded; }},
    {"sinks beside the LSE",
     [](const AttentionCase& x) { return x.sinks && x.lse_sink == LseSink::kExcluded; }},
    {"bool mask", [](const AttentionCase& x) { return x.mask == CustomMask::Kind::kBool; }},
    {"packed mask", [](const AttentionCase& x) { return x.mask == CustomMask::Kind::kPacked; }},
    {"GQA",
     [](const AttentionCase& x) { return x.num_kv_heads > 1 && x.num_qo_heads > x.num_kv_heads; }},
    {"MQA", [](const AttentionCase& x) { return x.num_kv_heads == 1 && x.num_qo_heads > 1; }},
    {"one head", [](const AttentionCase& x) { return x.num_qo_heads == 1; }},
    {"head dims that differ",
     [](const AttentionCase& x) { return x.head_dim_qk != x.head_dim_vo; }},
    {"head dims of no whole panel", [](const AttentionCase& x) { return x.head_dim_qk % 16 != 0; }},
    {"fp8 with scales",
     [](const AttentionCase& x) { return is_fp8(x.kv_dtype) && x.k_scale != 1 && x.v_scale != 1; }},
    {"cache narrower than q",
     [](const AttentionCase& x) { return x.q_dtype == DType::kF32 && x.kv_dtype == DType::kBF16; }},
    {"out of another type", [](const AttentionCase& x) { return x.out_dtype != x.q_dtype; }},
    {"page of one token", [](const AttentionCase& x) { return x.page_size == 1; }},
    {"page of no power of 2", [](const AttentionCase& x) { return x.page_size == 3; }},
    {"page of 256", [](const AttentionCase& x) { return x.page_size == 256; }},
    {"dense table", [](const AttentionCase& x) { return x.table == PageTable::Form::kDense; }},
    {"CSR table", [](const AttentionCase& x) { return x.table == PageTable::Form::kCsr; }},
    {"written by store_kv", [](const AttentionCase& x) { return x.through_store_kv; }},
    {"causal decode",
     [](const AttentionCase& x) { return x.causal && x.kernel == CaseKernel::kDecodePaged; }},
    {"group of 16", [](const AttentionCase& x) { return x.num_qo_heads == 16 * x.num_kv_heads; }},
    {"group larger than a block of rows",
     [](const AttentionCase& x) {
       return x.num_qo_heads / x.num_kv_heads > kPrefillRows &&
              any(x, [](auto& r) { return r.q_len > 0; });
     }},
    {"wide heads", [](const AttentionCase& x) { return x.head_dim_qk >= 192; }},
    {"panels", [](const AttentionCase& x) { return x.layout == KvLayout::kPanels; }},
    {"panels through store_kv",
     [](const AttentionCase& x) { return x.layout == KvLayout::kPanels && x.through_store_kv; }},
    {"int8", [](const AttentionCase& x) { return x.kv_dtype == DType::kI8; }},
    {"int8 in panels",
     [](const AttentionCase& x) {
       return x.kv_dtype == DType::kI8 && x.layout == KvLayout::kPanels;
     }},
    {"int8 through store_kv",
     [](const AttentionCase& x) {
       return x.kv_dtype == DType::kI8 && x.through_store_kv && x.k_scale != 1;
     }},
    {"int8 MLA latent",
     [](const AttentionCase& x) {
       return x.kv_dtype == DType::kI8 && x.layout == KvLayout::kMlaLatent;
     }},
    {"MLA latent", [](const AttentionCase& x) { return x.layout == KvLayout::kMlaLatent; }},
    {"fp8 with scales through store_kv",
     [](const AttentionCase& x) { return x.through_store_kv && x.k_scale != 1; }},
    {"request without queries",
     [](const AttentionCase& x) { return any(x, [](auto& r) { return r.q_len == 0; }); }},
    {"request without keys",
     [](const AttentionCase& x) { return any(x, [](auto& r) { return r.kv_len == 0; }); }},
    {"more queries than keys",
     [](const AttentionCase& x) { return any(x, [](auto& r) { return r.q_len > r.kv_len; }); }},
    {"several blocks of queries",
     [](const AttentionCase& x) {
       return any(x, [&](auto& r) { return r.q_len * x.num_qo_heads / x.num_kv_heads > 64; });
     }},
    {"several splits",
     [](const AttentionCase& x) { return any(x, [](auto& r) { return r.kv_len > kSplit; }); }},
};

TEST(Generate, EveryFeatureOccurs) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, holds] : kFeatures) counts[name] = 0;
  for (const AttentionCase& x : attention_cases()) {
    for (const auto& [name, holds] : kFeatures) counts[name] += holds(x) ? 1 : 0;
  }
  for (const auto& [name, count] : counts) EXPECT_GT(count, 20) << name;
}

/// Small calls do not have these: a size around an edge, and more.
const std::map<std::string, std::function<bool(const Case&, const AttentionCase&)>> kLarge = {
    {"several threads", [](const Case& c, auto&) { return c.more_threads > 0; }},
    {"three threads and several splits",
     [](const Case& c, const AttentionCase& x) {
       return c.more_threads == 2 && any(x, [](auto& r) { return r.kv_len > kSplit; });
     }},
    {"a far pool", [](const Case& c, auto&) { return c.far; }},
    {"a far pool of int8",
     [](const Case& c, const AttentionCase& x) { return c.far && x.kv_dtype == DType::kI8; }},
    {"a far pool of panels",
     [](const Case& c, const AttentionCase& x) { return c.far && x.layout == KvLayout::kPanels; }},
    {"a NaN that is seen", [](auto&, const AttentionCase& x) { return x.nan; }},
    {"over 1025 keys",
     [](auto&, const AttentionCase& x) { return any(x, [](auto& r) { return r.kv_len > 1025; }); }},
    {"2000 keys in pages of 128 and more",
     [](auto&, const AttentionCase& x) {
       return x.page_size >= 128 && any(x, [](auto& r) { return r.kv_len > 2000; });
     }},
    {"over 40 queries",
     [](auto&, const AttentionCase& x) { return any(x, [](auto& r) { return r.q_len > 40; }); }},
    {"over 128 queries that see all keys before them",
     [](auto&, const AttentionCase& x) {
       return x.window_left < 0 &&
              any(x, [](auto& r) { return r.q_len > 128 && r.kv_len >= r.q_len; });
     }},
    {"over 32 requests", [](auto&, const AttentionCase& x) { return x.requests.size() > 32; }},
    {"many KV heads", [](auto&, const AttentionCase& x) { return x.num_kv_heads > 16; }},
    {"a head_dim over 256", [](auto&, const AttentionCase& x) { return x.head_dim_qk > 256; }},
    {"head_dim 96", [](auto&, const AttentionCase& x) { return x.head_dim_qk == 96; }},
    {"head_dim 112", [](auto&, const AttentionCase& x) { return x.head_dim_qk == 112; }},
    {"a window wider than the keys, more queries than keys",
     [](auto&, const AttentionCase& x) {
       return any(x, [&](auto& r) {
         return r.kv_len > 0 && r.q_len > r.kv_len && x.window_left > r.kv_len;
       });
     }},
    {"a custom mask that chunks may cut",
     [](auto&, const AttentionCase& x) {
       return x.causal && x.mask != CustomMask::Kind::kNone &&
              any(x, [](auto& r) { return r.q_len > 1; });
     }},
};

TEST(Generate, EveryLargeSizeIsReachedWithinSomeThousandCases) {
  std::map<std::string, int64_t> counts;
  std::map<int32_t, int64_t> groups;
  for (const auto& [name, holds] : kLarge) counts[name] = 0;
  for (uint64_t number = 0; number < 8000; ++number) {
    const Case c = fuzz_case(2, number);
    const auto* x = c.as<AttentionCase>();
    if (x == nullptr) continue;
    ++groups[x->num_qo_heads / x->num_kv_heads];
    for (const auto& [name, holds] : kLarge) counts[name] += holds(c, *x) ? 1 : 0;
  }
  for (const auto& [name, count] : counts) EXPECT_GT(count, 1) << name;
  for (const int32_t group : {5, 6, 7, 12, 16}) EXPECT_GT(groups[group], 0) << group;
}

TEST(Generate, RecurrentAndSparseCallsHaveLargeSizesToo) {
  std::map<std::string, int64_t> counts = {{"threads", 0}};
  for (uint64_t number = 0; number < 8000; ++number) {
    const Case c = fuzz_case(2, number);
    const auto count = [&](const char* what, bool has) { counts[what] += has ? 1 : 0; };
    if (const auto* r = c.as<RecurrentCase>()) {
      const auto over = [&](int32_t tokens) {
        return std::ranges::any_of(r->rows, [&](auto& row) { return row.tokens > tokens; });
      };
      const bool attention = r->call == RecurrentCase::Call::kAttention;
      count("over 256 tokens", attention && over(256));
      count("over 256 tokens in chunks",
            attention && r->form == LinearAttention::Form::kChunked && over(256));
      count("over 256 tokens of a convolution",
            r->call == RecurrentCase::Call::kConv1d && over(256));
      count("over 16 rows", r->rows.size() > 16);
      count("over 8 heads", r->num_v_heads > 9);
      count("far states", c.far), count("threads", c.more_threads > 0);
    }
    if (const auto* s = c.as<SparseCase>()) {
      const auto over = [&](int32_t keys) {
        return std::ranges::any_of(s->rows, [&](auto& row) { return row.count > keys; });
      };
      count("over 512 keys", s->call == SparseCase::Call::kAttention && over(512));
      count("over 512 logits", s->call == SparseCase::Call::kLogits && over(512));
      count("over 512 chosen", s->topk > 512);
      count("over 64 tokens", s->rows.size() > 64);
      count("over 64 heads", s->heads > 67);
      count("far latents or pages", c.far);
    }
    if (const auto* m = c.as<MergeCase>()) {
      count("over 256 pairs", m->rows * m->heads > 256), count("over 16 states", m->states > 16);
    }
  }
  for (const auto& [name, cases] : counts) EXPECT_GT(cases, 1) << name;
}

/// A call with much of one is small otherwise: no case takes long.
TEST(Generate, WorkAndMemoryOfACallAreBounded) {
  for (uint64_t number = 0; number < kCases; ++number) {
    const Case c = fuzz_case(3, number);
    const auto* x = c.as<AttentionCase>();
    if (x == nullptr) continue;
    int64_t pairs = 0, slots = 0;
    for (const RequestExtent& r : x->requests) {
      pairs += int64_t{r.q_len} * r.kv_len;
      slots += int64_t{r.kv_len} + x->page_size;
    }
    const int64_t dims = x->head_dim_qk + x->head_dim_vo;
    EXPECT_LE(pairs * x->num_qo_heads * dims, 40 << 20) << c.to_string();
    EXPECT_LE(slots * x->num_kv_heads * dims, 16 << 20) << c.to_string();
  }
}

TEST(Generate, EveryKindOccurs) {
  std::map<CaseKernel, int64_t> kernels;
  std::map<CaseData, int64_t> data;
  std::map<KvLayout, int64_t> layouts;
  std::map<DType, int64_t> q, kv, out;
  std::map<LseBase, int64_t> bases;
  for (uint64_t number = 0; number < kCases; ++number) {
    const Case x = fuzz_case(1, number);
    ++kernels[x.kernel()], ++data[x.data];
    if (const auto* merge = x.as<MergeCase>()) ++bases[merge->lse_base];
    const auto* a = x.as<AttentionCase>();
    if (a == nullptr) continue;
    ++layouts[a->layout], ++q[a->q_dtype], ++kv[a->kv_dtype], ++out[a->out_dtype];
  }
  EXPECT_EQ(kernels.size(), 6u);
  EXPECT_EQ(data.size(), 6u);
  EXPECT_EQ(layouts.size(), 6u);
  EXPECT_EQ(q.size(), 3u);
  EXPECT_EQ(kv.size(), 6u);
  EXPECT_EQ(out.size(), 3u);
  EXPECT_EQ(bases.size(), 2u);
}

TEST(Generate, RecordedChoicesGiveTheSameCase) {
  for (uint64_t number = 0; number < 200; ++number) {
    Choices random(Rng::stream(5, number));
    const Case x = generate(random);
    Choices replayed(random.made());
    EXPECT_EQ(generate(replayed).to_string(), x.to_string());
  }
}

TEST(Generate, AnyChoicesGiveALawfulCase) {
  // A fuzzer's bytes, or a shrunk sequence, may be anything.
  Rng rng(9);
  for (int i = 0; i < 500; ++i) {
    std::vector<uint32_t> choices(rng.below(40));
    for (uint32_t& c : choices) c = static_cast<uint32_t>(rng.next());
    Choices stream(choices);
    const Case x = generate(stream);
    ASSERT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
  }
}

}  // namespace
}  // namespace shadowgraph::generate_test
