// The ladder sees planted slips: exact data names the foreign key, and one wrong bit is enough.
#include "fuzz/laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "attn/page_table.h"
#include "core/float_formats.h"
#include "fuzz/arrange.h"
#include "fuzz/exact.h"
#include "fuzz/gapped.h"

namespace shadowgraph {
namespace {

Case exact_case(CaseData data) {
  Case x;
  x.kernel = CaseKernel::kPrefillPaged;
  x.data = data;
  x.seed = 5;
  x.requests = {{38, 2, 40}, {17, 3, 20}};
  x.num_qo_heads = 4;
  x.num_kv_heads = 2;
  x.page_size = 4;
  x.causal = true;
  x.window_left = 9;
  return x;
}

struct Ran {
  Case x;
  LogicalData data;
  RowResults results;
  explicit Ran(const Case& c) : x(c), data(make_data(x)), results(x) {
    ArrangedCall call(x, data, Arrangement::of(x));
    EXPECT_EQ(call.run().to_string(), "ok");
    call.collect(&results);
  }
  Status check() const { return check_exact(x, data, results); }
  std::byte* row(int64_t row, int64_t head) {
    return results.out.data() + (row * results.heads + head) * results.row_bytes;
  }
};

void expect_exact_finding(const Status& status, const std::string& part_of_got) {
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "num.exact");
  EXPECT_NE(status.findings()[0].got.find(part_of_got), std::string::npos) << status.to_string();
}

class Exact : public testing::TestWithParam<CaseData> {};

TEST_P(Exact, AcceptsWhatTheKernelsGive) {
  EXPECT_EQ(Ran(exact_case(GetParam())).check().to_string(), "ok");
}

TEST_P(Exact, NamesTheForeignKey) {
  Ran run(exact_case(GetParam()));
  // Query 1 of request 0 gets the value of request 1, key 13, KV head 1.
  std::memcpy(run.row(1, 2), run.data.requests[1].v.row(13, 1),
              static_cast<size_t>(run.results.row_bytes));
  expect_exact_finding(run.check(), "the value of request 1 key 13");
  EXPECT_NE(run.check().findings()[0].where.field.find("request 0, query 1, head 2"),
            std::string::npos);
}

TEST_P(Exact, SeesNaN) {
  Ran run(exact_case(GetParam()));
  store_float(run.row(3, 1), DType::kF32, 7, std::numeric_limits<float>::quiet_NaN());
  expect_exact_finding(run.check(), "nan");
}

TEST_P(Exact, SeesEveryFlippedBit) {
  Ran run(exact_case(GetParam()));
  for (size_t bit = 0; bit < 32; ++bit) {
    std::byte& byte = run.row(4, 3)[bit / 8];
    byte ^= std::byte{1} << static_cast<int>(bit % 8);
    EXPECT_FALSE(run.check().ok()) << bit;
    byte ^= std::byte{1} << static_cast<int>(bit % 8);
  }
  EXPECT_TRUE(run.check().ok());
}

TEST_P(Exact, SeesARowThatWasNotWritten) {
  Ran run(exact_case(GetParam()));
  std::memset(run.row(0, 0), 0xff, static_cast<size_t>(run.results.row_bytes));
  EXPECT_FALSE(run.check().ok());
}

INSTANTIATE_TEST_SUITE_P(Data, Exact, testing::Values(CaseData::kUniform, CaseData::kSelector));

TEST(ExactUniform, SeesAWindowThatIsOneOff) {
  for (int32_t by : {-1, 1}) {
    Ran run(exact_case(CaseData::kUniform));
    run.x.window_left += by;
    EXPECT_FALSE(run.check().ok()) << by;
  }
}

TEST(ExactUniform, SeesAnotherAlignmentHeadOrSink) {
  Ran run(exact_case(CaseData::kUniform));
  const Case x = run.x;
  run.x.causal = false;
  EXPECT_FALSE(run.check().ok());
  run.x = x, run.x.num_kv_heads = 4, run.x.num_qo_heads = 4;
  run.x.num_kv_heads = 1;  // every query head reads KV head 0
  EXPECT_FALSE(run.check().ok());
  run.x = x, run.x.sinks = true, run.data.sinks = {0, 0, 0, 0};
  EXPECT_FALSE(run.check().ok());
  run.x = x;
  EXPECT_TRUE(run.check().ok());
}

TEST(CheckCase, AcceptsEveryKind) {
  for (const CaseKernel kernel :
       {CaseKernel::kDecodePaged, CaseKernel::kPrefillPaged, CaseKernel::kPrefillRagged}) {
    for (const CaseData data :
         {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked}) {
      Case x = exact_case(data);
      x.kernel = kernel;
      if (kernel == CaseKernel::kDecodePaged) x.requests = {{39, 1, 40}, {0, 1, 1}};
      EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
    }
  }
}

TEST(CheckCase, AcceptsInt8InEveryLayout) {
  for (const CaseData data :
       {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked}) {
    for (int layout = 0; layout < 6; ++layout) {
      for (const bool through_store_kv : {false, true}) {
        Case x = exact_case(data);
        x.kv_dtype = DType::kI8;
        x.k_scale = 0.625f, x.v_scale = 1.75f;
        x.layout = static_cast<CaseLayout>(layout);
        x.through_store_kv = through_store_kv && x.layout != CaseLayout::kMlaLatent;
        if (x.layout == CaseLayout::kPanels) x.page_size = 16;
        if (x.layout == CaseLayout::kMlaLatent) x.num_kv_heads = 1, x.head_dim_qk = 24;
        for (x.seed = 0; x.seed < 5; ++x.seed)
          EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
      }
    }
  }
}

TEST(CheckCase, ReportsARefusedCall) {
  Case x = exact_case(CaseData::kRandom);
  x.sm_scale = 0;
  const Status status = check_case(x, RunOptions());
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "param.scale");
}

TEST(MakeData, IsAFunctionOfTheCase) {
  const Case x = exact_case(CaseData::kRandom);
  const LogicalData a = make_data(x), b = make_data(x);
  Case other = x;
  other.seed = 6;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a.requests[i].q.bytes, b.requests[i].q.bytes);
    EXPECT_EQ(a.requests[i].k.bytes, b.requests[i].k.bytes);
    EXPECT_EQ(a.requests[i].v.bytes, b.requests[i].v.bytes);
    EXPECT_NE(a.requests[i].v.bytes, make_data(other).requests[i].v.bytes);
  }
}

TEST(MakeData, MarksTheKeysThatSomeQuerySees) {
  Case x = exact_case(CaseData::kUniform);
  const LogicalData data = make_data(x);
  // Request 0: queries at 38 and 39, a window of 9 before them.
  for (size_t k = 0; k < 40; ++k) EXPECT_EQ(data.requests[0].visible[k] != 0, k >= 29) << k;
}

TEST(CheckCase, AcceptsALatentCache) {
  for (const CaseData data : {CaseData::kUniform, CaseData::kSelector, CaseData::kPeaked}) {
    Case x = exact_case(data);
    x.num_kv_heads = 1;
    x.head_dim_qk = 24;
    x.layout = CaseLayout::kMlaLatent;
    EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
    const LogicalData made = make_data(x);
    ArrangedCall call(x, made, Arrangement::of(x));
    const KvCache& cache = call.paged_call().cache;
    EXPECT_EQ(cache.k.data, cache.v.data);
    EXPECT_EQ(cache.k.page_stride, cache.v.page_stride);
  }
}

TEST(CheckCase, AcceptsMerges) {
  for (const LseBase base : {LseBase::kNatural, LseBase::kLog2}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      Case x;
      x.kernel = CaseKernel::kMergeStates;
      x.data = seed % 2 ? CaseData::kUniform : CaseData::kRandom;
      x.seed = seed;
      x.requests = {{0, 3, static_cast<int32_t>(1 + seed % 5)}};
      x.num_qo_heads = x.num_kv_heads = 2;
      x.lse_base = base;
      EXPECT_EQ(check_case(x, RunOptions()).to_string(), "ok") << x.to_string();
    }
  }
}

TEST(Arrange, LeavesGapsOfPoisonInThePool) {
  Case x = exact_case(CaseData::kUniform);
  const LogicalData data = make_data(x);
  std::set<int64_t> dense, gapped;  // layouts whose pages were seen packed, and apart
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Arrangement how = Arrangement::of(x);
    how.seed = seed;
    how.layout = static_cast<CaseLayout>(seed % 4);
    ArrangedCall call(x, data, how);
    const KvCache& c = call.paged_call().cache;
    const int64_t rows = c.page_size * c.num_kv_heads * (seed % 4 >= 2 ? 2 : 1);
    (c.k.page_stride == rows * c.k.head_dim ? dense : gapped).insert(seed % 4);
    const int64_t head_gap = std::min(c.k.head_stride, c.k.token_stride) - c.k.head_dim;
    const auto at = c.k.offset(0, 0, 0, c.k.head_dim) * static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; i < head_gap * static_cast<int64_t>(sizeof(float)); ++i)
      ASSERT_EQ(c.k.data[at + i], kPoison);
    EXPECT_EQ(call.run().to_string(), "ok");
  }
  EXPECT_EQ(dense.size(), 4u);
  EXPECT_EQ(gapped.size(), 4u);
}

TEST(Arrange, PoisonsAllOfAPanelButItsVisibleTokens) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kE4M3}) {
    Case x = exact_case(CaseData::kUniform);
    x.kv_dtype = type;
    x.head_dim_qk = 5, x.head_dim_vo = 70;
    x.layout = CaseLayout::kPanels;
    x.page_size = 32;
    const LogicalData data = make_data(x);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Arrangement how = Arrangement::of(x);
      how.seed = seed;
      ArrangedCall call(x, data, how);
      const PagedAttention& made = call.paged_call();
      std::set<const std::byte*> own[2];  // first bytes of the visible tokens' elements
      const auto size = static_cast<int64_t>(size_of(type));
      for (size_t r = 0; r < data.requests.size(); ++r) {
        for (int32_t t = 0; t < x.requests[r].kv_len; ++t) {
          if (!data.requests[r].visible[static_cast<size_t>(t)]) continue;
          const RequestPages pages = request_pages(made.pages, 32, static_cast<int64_t>(r));
          for (const bool key : {true, false}) {
            const KvPlane& p = key ? made.cache.k : made.cache.v;
            const LogicalTensor& from = key ? data.requests[r].k : data.requests[r].v;
            for (int64_t head = 0; head < x.num_kv_heads; ++head) {
              for (int64_t d = 0; d < p.head_dim; ++d) {
                const std::byte* at =
                    p.data + p.offset(pages.page_ids[t / 32], t % 32, head, d) * size;
                own[key].insert(at);
                ASSERT_EQ(std::memcmp(at, from.row(t, head) + d * size, size_of(type)), 0);
              }
            }
          }
        }
      }
      for (const bool key : {true, false}) {
        const KvPlane& p = key ? made.cache.k : made.cache.v;
        const int64_t last =
            p.offset(made.cache.num_pages - 1, 31, x.num_kv_heads - 1, p.head_dim - 1) * size;
        for (int64_t i = 0; i <= last; i += size) {
          const bool poison =
              std::all_of(p.data + i, p.data + i + size, [](std::byte b) { return b == kPoison; });
          ASSERT_EQ(poison, !own[key].contains(p.data + i)) << i;
        }
      }
    }
  }
}

TEST(Arrange, PoisonsTheScalesOfWhatNoQuerySees) {
  Case x = exact_case(CaseData::kPeaked);
  x.kv_dtype = DType::kI8;
  const LogicalData data = make_data(x);
  for (int layout = 0; layout < 4; ++layout) {
    Arrangement how = Arrangement::of(x);
    how.layout = static_cast<CaseLayout>(layout);
    ArrangedCall call(x, data, how);
    const PagedAttention& made = call.paged_call();
    std::set<std::pair<bool, int64_t>> own;
    for (size_t r = 0; r < data.requests.size(); ++r) {
      const RequestPages pages = request_pages(made.pages, 4, static_cast<int64_t>(r));
      for (int32_t t = 0; t < x.requests[r].kv_len; ++t) {
        if (!data.requests[r].visible[static_cast<size_t>(t)]) continue;
        for (const bool key : {true, false}) {
          const KvPlane& p = key ? made.cache.k : made.cache.v;
          const LogicalTensor& from = key ? data.requests[r].k : data.requests[r].v;
          for (int64_t head = 0; head < x.num_kv_heads; ++head) {
            const int64_t at = p.scale_offset(pages.page_ids[t / 4], t % 4, head);
            own.emplace(key, at);
            EXPECT_EQ(p.scales[at], from.scale(t, head));
          }
        }
      }
    }
    for (int64_t i = 0; i < made.cache.num_slots() * x.num_kv_heads; ++i) {
      for (const bool key : {true, false}) {
        const KvPlane& p = key ? made.cache.k : made.cache.v;
        const int64_t slot = i / x.num_kv_heads;
        const int64_t at = p.scale_offset(slot / 4, slot % 4, i % x.num_kv_heads);
        EXPECT_EQ(std::isnan(p.scales[at]), !own.contains({key, at}));
      }
    }
  }
}

TEST(Arrange, StoreKvRestoresTheSameBytes) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
    Case x = exact_case(CaseData::kPeaked);
    x.kv_dtype = type;
    if (is_fp8(type)) x.k_scale = 0.037f, x.v_scale = 2.3f;
    if (type == DType::kI8) x.k_scale = 0.625f, x.v_scale = 1.75f;
    x.through_store_kv = true;
    x.page_size = 16;
    const LogicalData data = make_data(x);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Arrangement how = Arrangement::of(x);
      how.seed = seed;
      if (seed % 2) how.layout = CaseLayout::kPanels;
      EXPECT_EQ(ArrangedCall(x, data, how).run().to_string(), "ok") << name_of(type);
    }
  }
}

TEST(Gapped, OnlyItsOwnElementsMayBeWritten) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    GuardedBuffer buffer;
    const TensorView t = i % 2 ? make_gapped(buffer, DType::kF16, {3, 2, 5}, rng)
                               : make_gapped_lse(buffer, 3, 4, rng);
    const auto size = static_cast<int64_t>(size_of(t.dtype));
    const int64_t third = t.rank == 3 ? t.shape[2] : 1;
    std::vector<char> own(static_cast<size_t>(buffer.size()), 0);
    for (int64_t a = 0; a < t.shape[0]; ++a) {
      for (int64_t b = 0; b < t.shape[1]; ++b) {
        for (int64_t c = 0; c < third * size; ++c) {
          const std::byte* at = t.at(a, b) + c;
          own[static_cast<size_t>(at - buffer.data())] = 1;
        }
      }
    }
    for (int64_t byte = -64; byte < buffer.size() + 64; ++byte) {
      const bool inside = byte >= 0 && byte < buffer.size();
      buffer.data()[byte] = std::byte{0};
      EXPECT_EQ(check_write_set(buffer, t, "out").ok(), inside && own[static_cast<size_t>(byte)])
          << byte;
      buffer.data()[byte] = kPoison;
    }
  }
}

TEST(GuardedBuffer, NamesTheFirstByteThatDiffers) {
  GuardedBuffer a(10, 4);
  GuardedBuffer b = a;
  EXPECT_FALSE(a.first_difference(b).has_value());
  for (int64_t i : {9, 0, -5}) {
    b.data()[i] = std::byte{1};
    EXPECT_EQ(a.first_difference(b), i);
  }
  b.poison();
  EXPECT_TRUE(b.untouched());
}

TEST(GuardedBuffer, NoticesAnyByte) {
  for (int64_t skew : {0, 4, 7}) {
    GuardedBuffer b(10, skew);
    EXPECT_TRUE(b.untouched());
    const uint64_t before = b.fingerprint();
    for (int64_t i : {-64, -1, 0, 9, 10, 73}) {
      b.data()[i] = std::byte{0xfe};
      EXPECT_FALSE(b.untouched()) << i;
      EXPECT_NE(b.fingerprint(), before) << i;
      b.data()[i] = kPoison;
    }
    EXPECT_TRUE(b.untouched());
    EXPECT_EQ(b.fingerprint(), before);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(b.data()) - static_cast<uintptr_t>(skew)) % 64, 0u);
  }
}

}  // namespace
}  // namespace shadowgraph
