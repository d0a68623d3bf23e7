// The attention calls in C under the mutations of those in C++ (fuzz/mutate/): both refuse the same
// calls, and what both take has the same bits. Also what only a DLTensor can say.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "c_api/dl_tensors.h"
#include "c_api/tensors.h"
#include "fuzz/call/attention_scene.h"
#include "fuzz/mutate/legal_calls.h"
#include "fuzz/mutate/mutant.h"
#include "fuzz/mutate/mutant_judge.h"

namespace shadowgraph::c_api::mutate_test {
namespace {

/// A call's arguments as a caller of C gives them.
class CArguments {
 public:
  struct Argument {
    std::string name;
    int64_t shape[6], strides[6];
    DLTensor t;
  };

  explicit CArguments(const AttentionCall& call) {
    std::visit([this](const auto& c) { read(c); }, call);
  }
  CArguments(const CArguments&) = delete;
  CArguments& operator=(const CArguments&) = delete;

  std::deque<Argument>& all() { return all_; }
  sg_status run(sg_report** report) {
    if (paged_)
      return sg_paged_attention(q_, &cache_, &pages_, cu_q_, &params_, out_, lse_, report);
    return sg_ragged_attention(q_, k_, v_, cu_q_, cu_k_, &params_, out_, lse_, report);
  }

 private:
  static DLDataType type_of(DType type) {
    for (uint8_t code = 0; code < 32; ++code)
      for (uint8_t bits = 8; bits <= 64; bits = static_cast<uint8_t>(2 * bits))
        if (dtype_of({code, bits, 1}) == type) return {code, bits, 1};
    return {};
  }
  DLTensor* view(const char* name, const ConstTensorView& v) {
    if (!v.defined()) return nullptr;
    Argument& a = all_.emplace_back();
    a.name = name;
    std::copy_n(v.shape.begin(), v.rank, a.shape);
    std::copy_n(v.stride.begin(), v.rank, a.strides);
    a.shape[v.rank] = a.strides[v.rank] = 1;
    a.t = {const_cast<std::byte*>(v.data),
           {kDLCPU, 0},
           v.rank,
           type_of(v.dtype),
           a.shape,
           a.strides,
           0};
    return &a.t;
  }
  template <class T>
  DLTensor* list(const char* name, std::span<const T> l, DType type) {
    return l.empty() ? nullptr : view(name, {l.data(), type, {std::ssize(l)}});
  }
  DLTensor* ints(const char* name, std::span<const int32_t> l) {
    return list(name, l, DType::kI32);
  }
  DLTensor* plane(const char* name, const KvPlane& p, const KvCache& c) {
    return view(name, {p.data,
                       p.dtype,
                       {c.num_pages, c.page_size, c.num_kv_heads, p.head_dim},
                       {p.page_stride, p.token_stride, p.head_stride, 1}});
  }
  DLTensor* scales(const char* name, const KvPlane& p, const KvCache& c) {
    if (p.scales == nullptr) return nullptr;
    return view(name, {p.scales,
                       DType::kF32,
                       {c.num_pages, c.page_size, c.num_kv_heads},
                       {p.scale_page_stride, p.scale_token_stride, p.scale_head_stride}});
  }
  void read_layer(const AttentionParams& p, const CallOptions& o) {
    params_.sm_scale = p.sm_scale, params_.logits_soft_cap = p.logits_soft_cap;
    params_.causal = p.causal ? 1 : 0;
    params_.window_left = p.window_left, params_.window_right = p.window_right;
    params_.sinks = list("sinks", p.sinks, DType::kF32);
    if (p.custom_mask.kind != CustomMask::Kind::kNone) {
      const bool bits = p.custom_mask.kind == CustomMask::Kind::kPacked;
      params_.mask = list("custom_mask", p.custom_mask.data, bits ? DType::kU8 : DType::kBool);
      params_.mask_indptr = list("mask_indptr", p.custom_mask.mask_indptr, DType::kI64);
    }
    params_.arith = o.arith == Arith::kFast ? SG_FAST : SG_PORTABLE;
    params_.num_threads = o.num_threads;
    params_.lse_sink = o.lse_sink == LseSink::kIncluded ? 1 : 0;
  }
  template <class Call>
  void read_rows(const Call& c) {
    read_layer(c.params, c.options);
    params_.max_seqlen_q = c.max_seqlen_q;
    q_ = view("q", c.q), out_ = view("out", c.out), lse_ = view("lse", c.lse.tensor);
    cu_q_ = ints("cu_seqlens_q", c.cu_seqlens_q);
  }
  void read(const PagedAttention& c) {
    read_rows(c);
    cache_.k = plane("k_cache", c.cache.k, c.cache),
    cache_.v = plane("v_cache", c.cache.v, c.cache);
    cache_.k_scales = scales("k_scales", c.cache.k, c.cache);
    cache_.v_scales = scales("v_scales", c.cache.v, c.cache);
    cache_.k_scale = c.cache.k_scale, cache_.v_scale = c.cache.v_scale;
    const PageTable& t = c.pages;
    const int64_t width = std::max<int64_t>(t.max_pages, 1);
    if (!t.page_table.empty())
      pages_.page_table =
          view("page_table",
               {t.page_table.data(), DType::kI32, {std::ssize(t.page_table) / width, width}});
    pages_.cache_seqlens = ints("cache_seqlens", t.cache_seqlens);
    pages_.kv_indptr = ints("kv_indptr", t.kv_indptr);
    pages_.kv_indices = ints("kv_indices", t.kv_indices);
    pages_.last_page_len = ints("last_page_len", t.last_page_len);
  }
  void read(const RaggedAttention& c) {
    paged_ = false;
    read_rows(c);
    k_ = view("k", c.k), v_ = view("v", c.v), cu_k_ = ints("cu_seqlens_k", c.cu_seqlens_k);
  }

  bool paged_ = true;
  std::deque<Argument> all_;
  DLTensor *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *cu_q_ = nullptr, *cu_k_ = nullptr,
           *out_ = nullptr, *lse_ = nullptr;
  sg_cache cache_ = SG_CACHE_INIT;
  sg_pages pages_ = SG_PAGES_INIT;
  sg_params params_ = SG_PARAMS_INIT;
};

/// In C heads and head dims are the tensors', packed keys have no scale, there are no plans, and no
/// scratch is given.
AttentionCall as_in_c(AttentionCall call) {
  const auto n = [](int64_t size) { return static_cast<int32_t>(size); };
  std::visit(
      [&](auto& c) {
        AttentionParams& p = c.params;
        p.num_qo_heads = n(c.q.shape[1]), p.head_dim_qk = n(c.q.shape[2]);
        if constexpr (requires { c.cache; }) {
          p.num_kv_heads = c.cache.num_kv_heads, p.head_dim_vo = c.cache.v.head_dim;
          c.plan = {};
        } else {
          p.num_kv_heads = n(c.k.shape[1]), p.head_dim_vo = n(c.v.shape[2]);
          c.k_scale = c.v_scale = 1;
        }
        c.options.scratch = {};
      },
      call);
  return call;
}

/// Is there such a call in C? Of tensors and lists, and of the parameters that are numbers there,
/// too.
bool is_in_c(const AttentionCall& call, const Mutation& m) {
  static const std::set<std::string> kMembers = {"q",
                                                 "k",
                                                 "v",
                                                 "out",
                                                 "lse",
                                                 "sinks",
                                                 "page_table",
                                                 "kv_indices",
                                                 "kv_indptr",
                                                 "cache_seqlens",
                                                 "pages",
                                                 "mask_indptr",
                                                 "custom_mask",
                                                 "cu_seqlens_q",
                                                 "cu_seqlens_k",
                                                 "last_page_len",
                                                 "params.sm_scale",
                                                 "params.causal",
                                                 "params.window_left",
                                                 "params.window_right",
                                                 "params.logits_soft_cap",
                                                 "max_seqlen_q",
                                                 "options.lse_sink"};
  if (!kMembers.contains(m.member)) return false;
  const CustomMask& mask = *std::visit([](const auto& c) { return &c.params.custom_mask; }, call);
  if (mask.kind != CustomMask::Kind::kNone && mask.data.empty()) return false;  // there it is none
  const auto* c = std::get_if<PagedAttention>(&call);
  // Rows of a table are whole.
  return c == nullptr || c->pages.max_pages == 0 ||
         std::ssize(c->pages.page_table) % c->pages.max_pages == 0;
}

std::vector<std::byte> results_of(const AttentionCall& call) {
  return std::visit(
      [](const auto& c) {
        std::vector<std::byte> bytes = gather(c.out);
        if (!c.lse.defined()) return bytes;
        const std::vector<std::byte> lse = gather(c.lse.tensor);
        bytes.insert(bytes.end(), lse.begin(), lse.end());
        return bytes;
      },
      call);
}

std::string text_of(sg_report* report) {
  std::string text;
  for (const std::string& found : taken(report)) text += found + "; ";
  return text;
}

/// Runs the call in both languages.
void compare(AttentionScene& scene, Mutant<AttentionCall>& mutant, const Mutation& m,
             std::map<std::string, int>* counts) {
  const AttentionCall call = as_in_c(mutant.call);
  if (validate_any(call).ok()) {
    const Footprint spans = footprint_of(call);
    if (!scene.backs(spans) || !mutant.memory.backs(spans)) return;
  }
  const Status said = execute(call);
  const std::vector<std::byte> results = said.ok() ? results_of(call) : std::vector<std::byte>();
  scene.restore(), mutant.memory.restore();
  CArguments in_c(call);
  sg_report* report = nullptr;
  const sg_status status = in_c.run(&report);
  const std::string why = text_of(report);
  ASSERT_TRUE(status == SG_OK || status == SG_BAD_INPUT) << m.name << ": " << sg_last_error();
  if (status == SG_OK) {
    EXPECT_TRUE(said.ok()) << m.name << ": taken in C, but " << said.to_string();
    EXPECT_TRUE(!said.ok() || results == results_of(call)) << m.name << ": other bits in C";
    ++(*counts)["taken"];
  } else {
    // C asks more of a list: it is there, and compact.
    const bool more = said.ok() && m.expect != Expect::kTaken &&
                      (why.starts_with("input.null") || why.starts_with("input.shape") ||
                       why.starts_with("input.stride"));
    EXPECT_TRUE(!said.ok() || more) << m.name << ": refused in C: " << why;
    EXPECT_EQ(scene.check_untouched().to_string(), "ok") << m.name;
    ++(*counts)["refused"];
  }
  scene.restore(), mutant.memory.restore();
}

template <class Visit>
void for_each_scene(const Visit& visit) {
  for (const LegalCallId& id : legal_calls()) {
    const auto* x = std::get_if<Case>(&id);
    const auto* a = x == nullptr ? nullptr : x->as<AttentionCase>();
    if (a == nullptr || a->terms.any() || a->layout == KvLayout::kPanels) continue;
    const AttentionData data = make_attention_data(*x);
    AttentionScene scene(*x, data, AttentionArrangement::of(*x));
    scene.lay(0);
    visit(scene);
  }
}

TEST(CMutations, AreRefusedAsInCppOrHaveItsBits) {
  std::map<std::string, int> counts;
  for_each_scene([&](AttentionScene& scene) {
    const size_t count = Mutant<AttentionCall>(scene.call()).mutations().size();
    for (size_t i = 0; i < count; ++i) {
      Mutant<AttentionCall> mutant(scene.call());
      const Mutation& m = mutant.apply(i);
      if (is_in_c(mutant.call, m)) compare(scene, mutant, m, &counts);
    }
  });
  EXPECT_GT(counts["taken"], 500);
  EXPECT_GT(counts["refused"], 2000);
}

TEST(CMutations, PagesAreNamedInOneForm) {
  int tried = 0;
  for_each_scene([&](AttentionScene& scene) {
    if (!std::holds_alternative<PagedAttention>(scene.call())) return;
    const size_t count = Mutant<AttentionCall>(scene.call()).mutations().size();
    for (size_t i = 0; i < count; ++i) {
      Mutant<AttentionCall> mutant(scene.call());
      const Mutation& m = mutant.mutations()[i];
      if (m.member != "pages" || !m.name.ends_with("too")) continue;
      mutant.apply(i);
      CArguments in_c(as_in_c(mutant.call));
      sg_report* report = nullptr;
      EXPECT_EQ(in_c.run(&report), SG_BAD_INPUT);
      EXPECT_NE(text_of(report).find("input.shape"), std::string::npos);
      ++tried;
    }
  });
  EXPECT_GT(tried, 4);
}

struct TensorSlip {
  const char* law;
  bool (*apply)(CArguments::Argument&);  // false: not of this one
};
/// A slip that every tensor may have.
template <auto Apply>
bool always(CArguments::Argument& a) {
  Apply(a);
  return true;
}
const TensorSlip kTensorSlips[] = {
    {"input.device",
     always<[](auto& a) { a.t.device.device_type = static_cast<DLDeviceType>(2); }>},
    {"input.align",
     [](CArguments::Argument& a) {
       a.t.byte_offset += 1;
       return a.t.dtype.bits > 8;
     }},
    {"input.null", always<[](auto& a) { a.t.data = nullptr; }>},
    {"input.null", always<[](auto& a) { a.t.shape = nullptr; }>},
    {"input.shape", always<[](auto& a) { --a.t.ndim; }>},
    {"input.shape", always<[](auto& a) { ++a.t.ndim; }>},
    {"input.shape", always<[](auto& a) { a.shape[0] = -1; }>},
    {"input.dtype", always<[](auto& a) { a.t.dtype.lanes = 2; }>},
    {"input.dtype", always<[](auto& a) { a.t.dtype.code = kDLComplex; }>},
    {"input.dtype", [](CArguments::Argument& a) {  // offsets of 64 bits, where these may begin
       a.t.dtype.bits = a.t.dtype.bits == 32 ? 64 : 32;
       const bool aligned = reinterpret_cast<uintptr_t>(a.t.data) % 8 == 0;
       return a.t.dtype.code == kDLInt && a.t.dtype.bits == 64 && aligned;
     }}};

/// A DLTensor can say these, and no view can.
TEST(CMutations, EachTensorIsRefusedByWhatIsWrongWithIt) {
  for_each_scene([&](AttentionScene& scene) {
    const AttentionCall call = as_in_c(scene.call());
    const size_t count = CArguments(call).all().size();
    for (size_t i = 0; i < count; ++i) {
      for (const TensorSlip& slip : kTensorSlips) {
        CArguments in_c(call);
        CArguments::Argument& a = in_c.all()[i];
        if (std::ranges::count(a.shape, a.shape + a.t.ndim, 0) > 0 || !slip.apply(a)) continue;
        sg_report* report = nullptr;
        ASSERT_EQ(in_c.run(&report), SG_BAD_INPUT) << slip.law << " " << a.name;
        const std::vector<std::string> found = taken(report);
        EXPECT_TRUE(std::ranges::any_of(
            found, [&](const std::string& f) { return f.starts_with(slip.law + (" " + a.name)); }))
            << slip.law << " " << a.name << ": " << found[0];
        EXPECT_EQ(scene.check_untouched().to_string(), "ok");
      }
    }
  });
}

}  // namespace
}  // namespace shadowgraph::c_api::mutate_test
