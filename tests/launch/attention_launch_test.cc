// The attention launch: the call's bits, from the memory as it is when the launch runs, and what a
// shadow sees of bad metadata.
#include "launch/attention_launch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/dense/work_list.h"
#include "launch/cache_world.h"

namespace shadowgraph::attention_launch_test {
namespace {

enum class Extra {
  kNone,
  kNoLse,
  kSinks,
  kSinksInLse,
  kBoolMask,
  kPackedMask,
  kWindow,
  kPlan,
  kTerms
};

constexpr int64_t kBatch = 3, kMaxPages = 3, kPages = 8;
constexpr int32_t kHeads = 4;
constexpr int32_t kQueries[kBatch] = {3, 1, 4};
constexpr int32_t kNoPage = -1;
const Ints kTable = {6, 1, kNoPage, 4, kNoPage, kNoPage, 0, 7, 2};

/// How a call looks. In panels pages, and requests, are four times as long.
struct Form {
  bool csr = false, varlen = false;
  Layout layout = Layout::kNhd;
  DType dtype = DType::kF32;
  Extra extra = Extra::kNone;

  int32_t longer() const { return layout == Layout::kPanels ? 4 : 1; }
  int32_t page_size() const { return 4 * longer(); }
  int32_t keys(size_t request) const {
    constexpr int32_t kKeys[kBatch] = {5, 1, 11};
    return kKeys[request] * longer();
  }
};

/// Three requests on a device, bound and written.
class World : public CacheWorld {
 public:
  /// unwritten: a slot whose keys and values are left out; -1: none.
  explicit World(const Form& form, int64_t unwritten = -1)
      : CacheWorld({form.layout, form.dtype, kPages}), form_(form) {
    bind_tensors();
    bind_metadata();
    for (Buffer* b : {&q, &sinks, &slopes}) randomise(*b);
    randomise_mask();
    show_last_keys();
    write_cache(cache().k, k, k_scales, unwritten);
    write_cache(cache().v, v, v_scales, unwritten);
    if (form_.extra == Extra::kPlan) make_plan();
  }

  PagedAttention call() const {
    PagedAttention c;
    c.q = q.view();
    c.cache = cache();
    c.pages = form_.csr ? PageTable::csr(ints(indptr), ints(table), ints(lens))
                        : PageTable::dense(ints(table), kMaxPages, ints(lens));
    if (form_.varlen) c.cu_seqlens_q = ints(queries);
    if (plan.data != nullptr) c.plan = ints(plan);
    c.params = {.num_qo_heads = kHeads,
                .num_kv_heads = kKvHeads,
                .head_dim_qk = kDimQk,
                .head_dim_vo = kDimVo,
                .sm_scale = 0.25f,
                .causal = !masked(),
                .window_left = form_.extra == Extra::kWindow ? 2 : -1};
    if (form_.extra == Extra::kTerms) {
      c.params.terms.alibi_slopes = elements<float>(slopes);
      c.params.terms.cache_leftpad = ints(leftpad);
      c.params.terms.out_scale = 0.5F;
    }
    if (form_.extra == Extra::kSinks || form_.extra == Extra::kSinksInLse)
      c.params.sinks = elements<float>(sinks);
    if (form_.extra == Extra::kSinksInLse) c.options.lse_sink = LseSink::kIncluded;
    if (masked()) {
      const bool packed = form_.extra == Extra::kPackedMask;
      c.params.custom_mask = {packed ? CustomMask::Kind::kPacked : CustomMask::Kind::kBool,
                              elements<uint8_t>(mask), elements<int64_t>(mask_indptr)};
    }
    c.out = out.view();
    if (has_lse()) c.lse = NaturalLse(lse.view());
    return c;
  }

  /// out, then lse, as the launch left them.
  Bytes results() {
    Bytes all = bytes(out);
    const Bytes lses = has_lse() ? bytes(lse) : Bytes{};
    all.insert(all.end(), lses.begin(), lses.end());
    return all;
  }
  /// What the call gives on the memory as it is.
  Bytes expected() {
    stream().synchronize();
    Bytes all(out.bytes() + (has_lse() ? lse.bytes() : 0));
    PagedAttention c = call();
    if (masked()) {
      CustomMask& m = c.params.custom_mask;
      m.data = m.data.first(static_cast<size_t>(m.mask_indptr.back()));
    }
    c.out.data = all.data();
    if (has_lse()) c.lse.tensor.data = all.data() + out.bytes();
    const Status status = attention_with_kvcache(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return all;
  }
  void clear() {
    fill(out, 0);
    if (has_lse()) fill(lse, 0);
  }
  void write(const Buffer& b, int64_t at, int32_t value) { LaunchWorld::write(b, at, Ints{value}); }
  /// The last request's mask is for so many keys.
  void fit_mask(size_t last, int32_t keys) {
    const int64_t pairs = int64_t{form_.varlen ? kQueries[last] : 1} * keys;
    const int64_t bytes = form_.extra == Extra::kPackedMask ? (pairs + 7) / 8 : pairs;
    LaunchWorld::write(mask_indptr, static_cast<int64_t>(last) + 1,
                       std::vector<int64_t>{mask_starts_[last] + bytes});
  }
  GraphExec record() { return LaunchWorld::record(attention_launch(call())); }
  /// Every page is its request's.
  void set_owners() {
    for (size_t i = 0; i < kTable.size(); ++i) {
      if (kTable[i] == kNoPage) continue;
      const auto owner = static_cast<OwnerId>(i / kMaxPages + 1);
      for (const Buffer* b : planes()) set_owner(*b, kTable[i], owner);
    }
    const OwnerId rows[] = {1, 2, 3};
    device.set_row_owners(rows);
  }
  /// Where request's page of that number stands in the table.
  int64_t entry(int64_t request, int64_t page) const {
    return form_.csr ? ints(indptr)[static_cast<size_t>(request)] + page
                     : request * kMaxPages + page;
  }

 private:
  bool masked() const {
    return form_.extra == Extra::kBoolMask || form_.extra == Extra::kPackedMask;
  }
  bool has_lse() const { return form_.extra != Extra::kNoLse; }
  static std::span<const int32_t> ints(const Buffer& b) { return elements<int32_t>(b); }
  DType row_type() const { return cache_form.int8() ? DType::kF32 : form_.dtype; }
  void bind_tensors() {
    int64_t rows = 0;
    for (const int32_t n : kQueries) rows += form_.varlen ? n : 1;
    q = bind("q", row_type(), {rows, kHeads, kDimQk}, kHeads * kDimQk);
    out = bind("out", row_type(), {rows, kHeads, kDimVo}, kHeads * kDimVo);
    lse = bind("lse", DType::kF32, {rows, kHeads}, kHeads);
    sinks = bind("sinks", DType::kF32, {kHeads});
    slopes = bind("slopes", DType::kF32, {kHeads});
  }
  void bind_metadata() {
    Ints ids, pages{0}, keys, last, starts{0};
    for (size_t i = 0; i < kBatch; ++i) {
      for (size_t p = 0; p < kMaxPages; ++p)
        if (kTable[i * kMaxPages + p] != kNoPage) ids.push_back(kTable[i * kMaxPages + p]);
      pages.push_back(static_cast<int32_t>(ids.size()));
      keys.push_back(form_.keys(i));
      last.push_back((form_.keys(i) - 1) % form_.page_size() + 1);
      const int32_t rows = form_.varlen ? kQueries[i] : 1, pairs = rows * form_.keys(i);
      starts.push_back(starts.back() + rows);
      mask_starts_.push_back(mask_starts_.back() +
                             (form_.extra == Extra::kPackedMask ? (pairs + 7) / 8 : pairs));
    }
    table = bind_values("table", DType::kI32, form_.csr ? ids : kTable);
    lens = bind_values("lens", DType::kI32, form_.csr ? last : keys);
    indptr = bind_values("indptr", DType::kI32, pages);
    queries = bind_values("queries", DType::kI32, starts);
    leftpad = bind_values("leftpad", DType::kI32, Ints(kBatch, 0));
    mask = bind("mask", DType::kU8, {mask_starts_.back()});
    mask_indptr = bind_values("mask_indptr", DType::kI64, mask_starts_);
  }

  /// The rest of its room is never written.
  void make_plan() {
    stream().synchronize();
    PagedAttention planned = call();
    planned.options.num_threads = 2;  // one thread's plan fills its room
    Ints values(static_cast<size_t>(attention_plan_size(planned)));
    EXPECT_TRUE(plan_attention(planned, values).ok());
    plan = bind("plan", DType::kI32, {static_cast<int64_t>(values.size())});
    values.resize(used_part(values).size());
    EXPECT_LT(std::ssize(values), plan.numel());
    LaunchWorld::write(plan, 0, values);
  }

  void randomise_mask() {
    std::vector<uint8_t> bits(static_cast<size_t>(mask.numel()));
    for (uint8_t& b : bits)
      b = static_cast<uint8_t>(rng_.below(form_.extra == Extra::kPackedMask ? 256 : 2));
    LaunchWorld::write(mask, 0, bits);
  }
  /// Shows every request's last key to the request's first row.
  void show_last_keys() {
    const bool packed = form_.extra == Extra::kPackedMask;
    const std::vector<uint8_t> shown = {static_cast<uint8_t>(packed ? 0xff : 1)};
    for (size_t i = 0; i < kBatch; ++i) {
      const int64_t pair = form_.keys(i) - 1;
      LaunchWorld::write(mask, mask_starts_[i] + (packed ? pair / 8 : pair), shown);
    }
  }
  void write_cache(const KvPlane& plane, const Buffer& b, const Buffer& scales, int64_t unwritten) {
    const int64_t page_size = form_.page_size();
    const int64_t together = plane.order == KvOrder::kStrided ? plane.head_dim : 1;
    for (int64_t slot = 0; slot < kPages * page_size; ++slot) {
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const Bytes values = random(b.dtype, plane.head_dim);
        if (slot == unwritten) continue;
        if (plane.scales != nullptr) {
          const int64_t at = plane.scale_offset(slot / page_size, slot % page_size, head);
          LaunchWorld::write(scales, at, std::vector<float>{rng_.signed_unit() / 64});
        }
        for (int64_t d = 0; d < plane.head_dim; d += together) {
          const int64_t at = plane.offset(slot / page_size, slot % page_size, head, d);
          const auto size = static_cast<int64_t>(size_of(b.dtype));
          const std::byte* value = values.data() + d * size;
          write_bytes(b, at, Bytes(value, value + together * size), together);
        }
      }
    }
  }

  const Form form_;
  std::vector<int64_t> mask_starts_{0};

 public:
  Buffer q, out, lse, sinks, table, lens, indptr, queries, mask, mask_indptr, plan, slopes, leftpad;
};

constexpr const char* kLayouts[] = {"Nhd", "Hnd", "Panels"};
const char* name_of_type(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kI8 ? "I8" : "BF16";
}
std::string name_of(const Form& form) {
  constexpr const char* kExtras[] = {"none",        "no lse", "sinks", "sinks in lse", "bool mask",
                                     "packed mask", "window", "plan",  "terms"};
  return std::string(form.csr ? "csr " : "dense ") + (form.varlen ? "varlen " : "decode ") +
         kExtras[static_cast<size_t>(form.extra)];
}

using Extras = std::vector<Extra>;
const Extras kAll = {Extra::kNone,       Extra::kNoLse,    Extra::kSinks,
                     Extra::kSinksInLse, Extra::kBoolMask, Extra::kPackedMask,
                     Extra::kWindow,     Extra::kPlan,     Extra::kTerms};

/// A layout and a type: each form of tables and queries is tried, with each of the extras.
using Parameters = std::tuple<Layout, DType, Extras>;

class AttentionLaunch : public ::testing::TestWithParam<Parameters> {
 protected:
  template <class Body>
  static void for_each_form(Body body) {
    const auto& [layout, dtype, extras] = GetParam();
    for (const bool csr : {false, true})
      for (const bool varlen : {false, true})
        for (const Extra extra : extras) {
          const Form form{csr, varlen, layout, dtype, extra};
          SCOPED_TRACE(name_of(form));
          body(form);
        }
  }
  /// One finding at least for K, for V, and for their scales in i8.
  static void expect_of_caches(const Form& form, const std::string& found, const std::string& law) {
    for (const char* name : {"k[", "v[", "k_scales[", "v_scales["}) {
      if (name[1] == '_' && form.dtype != DType::kI8) continue;
      EXPECT_NE(found.find(law + ": " + name), std::string::npos) << name << " " << found;
    }
  }
  /// Runs the launch eagerly, then as a replay; check() after each.
  template <class Check>
  static void run_both(World& w, Check check) {
    w.clear();
    w.stream().launch(attention_launch(w.call()));
    {
      SCOPED_TRACE("eager");
      check();
    }
    w.clear();
    w.record().replay(w.stream());
    SCOPED_TRACE("replayed");
    check();
  }
};

TEST_P(AttentionLaunch, TheBitsOfTheCallEagerAndReplayed) {
  for_each_form([](const Form& form) {
    World w(form);
    const Bytes expected = w.expected();
    run_both(w, [&] {
      EXPECT_EQ(w.results(), expected);
      EXPECT_EQ(w.found(), "ok");
    });
  });
}

TEST_P(AttentionLaunch, LengthsAreReadWhenItRuns) {
  for_each_form([](const Form& form) {
    World w(form);
    const Bytes before = w.expected();
    GraphExec exec = w.record();
    // Two keys fewer of the last request.
    w.write(w.lens, 2, form.csr ? (form.keys(2) - 3) % form.page_size() + 1 : form.keys(2) - 2);
    w.fit_mask(2, form.keys(2) - 2);
    w.clear();
    exec.replay(w.stream());
    EXPECT_EQ(w.results(), w.expected());
    EXPECT_NE(w.results(), before);
    EXPECT_EQ(w.found(), "ok");
  });
}

TEST_P(AttentionLaunch, APageOutsideThePoolIsFoundAndPoisonsTheOutputs) {
  for_each_form([](const Form& form) {
    World w(form);
    w.write(w.table, w.entry(0, 1), 1000);
    run_both(w, [&] {
      EXPECT_TRUE(is_poison(w.results()));
      const std::string found = w.found();
      expect_of_caches(form, found, "mem.out_of_bounds");
      EXPECT_NE(found.find("kernel attention_with_kvcache"), std::string::npos) << found;
    });
    w.write(w.table, w.entry(0, 1), 1);
    run_both(w, [&] { EXPECT_EQ(w.found(), "ok"); });
  });
}

TEST_P(AttentionLaunch, ALengthBeyondTheTableIsFoundAndPoisonsTheOutputs) {
  for_each_form([](const Form& form) {
    World w(form);
    const bool csr = form.csr;
    w.write(csr ? w.indptr : w.lens, csr ? 3 : 2, csr ? 1000 : 1000 * form.longer());
    run_both(w, [&] {
      EXPECT_TRUE(is_poison(w.results()));
      const std::string found = w.found();
      EXPECT_NE(found.find("mem.out_of_bounds: table["), std::string::npos) << found;
    });
  });
}

TEST_P(AttentionLaunch, AnotherRequestsPageIsFound) {
  for_each_form([](const Form& form) {
    World w(form);
    w.set_owners();
    run_both(w, [&] { EXPECT_EQ(w.found(), "ok"); });
    w.write(w.table, w.entry(1, 0), kTable[0]);
    run_both(w, [&] {
      const std::string found = w.found();
      expect_of_caches(form, found, "mem.wrong_region");
      EXPECT_NE(found.find("that of request 1"), std::string::npos) << found;
      EXPECT_NE(found.find("row 1"), std::string::npos) << found;
    });
  });
}

TEST_P(AttentionLaunch, AnUnwrittenSlotIsFound) {
  for_each_form([](const Form& form) {
    // The last key of request 0, which some row of every form sees.
    const int64_t page_size = form.page_size();
    const int64_t slot = 1 * page_size + (form.keys(0) - 1) % page_size, other = 3 * page_size;
    World unused(form, other), w(form, slot);
    run_both(unused, [&] { EXPECT_EQ(unused.found(), "ok"); });
    run_both(w, [&] {
      const std::string found = w.found();
      expect_of_caches(form, found, "mem.uninit_read");
      EXPECT_NE(found.find("never written"), std::string::npos) << found;
    });
  });
}

class PlannedLaunch : public AttentionLaunch {};

TEST_P(PlannedLaunch, AStalePlanPoisonsTheOutputs) {
  for_each_form([](const Form& form) {
    World w(form);
    // Request 1 loses its only key.
    if (form.csr) {
      w.write(w.indptr, 2, static_cast<int32_t>(w.entry(1, 0)));
    } else {
      w.write(w.lens, 1, 0);
    }
    run_both(w, [&] {
      EXPECT_TRUE(is_poison(w.results()));
      EXPECT_EQ(w.found(), "ok");
    });
  });
}

TEST_P(PlannedLaunch, APlanIsReadAsFarAsItSays) {
  for_each_form([](const Form& form) {
    World w(form);
    w.write(w.plan, kPieces, static_cast<int32_t>((w.plan.numel() - kPlanHeader) / 4));
    run_both(w, [&] {
      EXPECT_TRUE(is_poison(w.results()));
      const std::string found = w.found();
      EXPECT_NE(found.find("mem.uninit_read: plan["), std::string::npos) << found;
    });
  });
}

/// A launch built on a stack full of that byte.
KernelLaunch built_over(int byte, const PagedAttention& call) {
  volatile char stack[4096];
  for (volatile char& c : stack) c = static_cast<char>(byte);
  return attention_launch(call);
}

TEST_P(AttentionLaunch, BuiltAgainItIsTheSameByteByByte) {
  for_each_form([](const Form& form) {
    const World w(form);
    PagedAttention call = w.call();
    const KernelLaunch kept = built_over(0x00, call);
    EXPECT_EQ(kept, built_over(0xff, call));
    call.params.sm_scale *= 2;
    EXPECT_NE(kept, built_over(0x00, call));
  });
}

std::string name_of_parameters(const ::testing::TestParamInfo<Parameters>& parameters) {
  return std::string(kLayouts[static_cast<size_t>(std::get<Layout>(parameters.param))]) +
         name_of_type(std::get<DType>(parameters.param));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, AttentionLaunch,
    ::testing::Combine(::testing::Values(Layout::kNhd, Layout::kHnd, Layout::kPanels),
                       ::testing::Values(DType::kF32, DType::kBF16), ::testing::Values(kAll)),
    name_of_parameters);
INSTANTIATE_TEST_SUITE_P(
    Int8, AttentionLaunch,
    ::testing::Combine(::testing::Values(Layout::kNhd, Layout::kHnd, Layout::kPanels),
                       ::testing::Values(DType::kI8),
                       ::testing::Values(Extras{Extra::kNone, Extra::kBoolMask, Extra::kPlan})),
    name_of_parameters);
INSTANTIATE_TEST_SUITE_P(Forms, PlannedLaunch,
                         ::testing::Combine(::testing::Values(Layout::kNhd),
                                            ::testing::Values(DType::kF32),
                                            ::testing::Values(Extras{Extra::kPlan})),
                         name_of_parameters);

}  // namespace
}  // namespace shadowgraph::attention_launch_test
