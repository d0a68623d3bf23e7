// The ladder of calls over chosen keys sees planted slips: exact data names the slot that was read,
// the bound sees a scale that is off, and write sets, bits and poison see the rest.
#include "fuzz/call/sparse_laws.h"

#include <map>
#include <set>

#include "fuzz/fuzz.h"
#include "fuzz/small_sparse_case.h"

namespace shadowgraph::sparse_laws_test {
namespace {

using Call = SparseCase::Call;
constexpr CaseData kAllData[] = {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom,
                                 CaseData::kPeaked};
constexpr CaseData kExact[] = {CaseData::kUniform, CaseData::kSelector};

template <class Test>
void for_each_call(const Test& test) {
  for (size_t call = 0; call < kSparseCalls; ++call)
    for (const CaseData data : kAllData) test(small_sparse_case(static_cast<Call>(call), data));
}

TEST(SparseJudge, AcceptsWhatTheKernelsGive) {
  for_each_call([](const Case& x) { EXPECT_EQ(RanSparse(x).as_it_is().to_string(), "ok"); });
}

TEST(SparseJudge, SeesEachElementThatIsWritten) {
  for_each_call([](const Case& x) {
    RanSparse run(x);
    ASSERT_EQ(run.as_it_is().to_string(), "ok");
    for (const AccessSpan& s : footprint_of(run.scene.call())) {
      if (s.access != Access::kWrite) continue;
      for (const int64_t i : {s.first, s.first + s.count - 1}) {
        // The second highest bit: of a float one of the exponent.
        auto* top = const_cast<std::byte*>(static_cast<const std::byte*>(s.buffer)) +
                    (i + 1) * s.element_bytes - 1;
        *top ^= std::byte{0x40};
        EXPECT_FALSE(judge_sparse(x, run.scene).ok()) << x.to_string() << " element " << i;
        *top ^= std::byte{0x40};
      }
    }
  });
}

void expect_named(const Status& status, const std::string& got) {
  bool named = false;
  for (const Finding& f : status.findings())
    named |= f.id == "num.exact" && f.got.find(got) != std::string::npos;
  EXPECT_TRUE(named) << got << ": " << status.to_string();
}

TEST(SparseExact, NamesTheKeyThatIsLeftOutOrReadInstead) {
  for (const CaseData data : kExact) {
    Case x = small_sparse_case(Call::kAttention, data);
    // A key of the first token that weighs 1, and what a slot of nobody has instead.
    size_t hot = 0;
    for (const bool all = data == CaseData::kUniform; !all; ++x.seed) {
      const std::vector<uint8_t> flags = make_sparse_data(x).hot[0];
      hot = static_cast<size_t>(std::ranges::find(flags, 1) - flags.begin());
      if (hot < 5) break;
    }
    RanSparse run(x);
    const ChosenKeys& keys = run.call<SparseAttention>().keys;
    std::vector<int32_t> entries(keys.indices.begin(), keys.indices.end());
    const int32_t slot = entries[hot];
    entries[hot] = -1;
    const auto slip = [&](SparseAttention& c) { c.keys.indices = entries; };
    expect_named(run.with<SparseAttention>(slip), "did not see slot " + std::to_string(slot));
    for (int32_t other = 0; other < keys.pool.slots(); ++other) {
      if (std::ranges::find(keys.indices, other) != keys.indices.end()) continue;
      entries[hot] = other;
      EXPECT_FALSE(run.with<SparseAttention>(slip).ok());
    }
    entries[hot] = keys.of(1)[0];
    if (data == CaseData::kUniform)
      expect_named(run.with<SparseAttention>(slip), "saw slot " + std::to_string(entries[hot]) +
                                                        " of keys instead of slot " +
                                                        std::to_string(slot));
  }
}

TEST(SparseExact, SeesASecondListASinkAndAScaleThatAreLeftOut) {
  const auto see = [](CaseData data, const auto& slip, const std::string& id) {
    RanSparse run(small_sparse_case(Call::kAttention, data));
    bool seen = false;
    const Status status = run.with<SparseAttention>(slip);
    for (const Finding& f : status.findings()) seen |= f.id == id;
    EXPECT_TRUE(seen) << id << ": " << status.to_string();
  };
  for (const char* id : {"num.exact", "num.bound"}) {
    const CaseData data = id == std::string("num.exact") ? CaseData::kUniform : CaseData::kRandom;
    see(
        data, [](SparseAttention& c) { c.extra = {}; }, id);
    see(
        data, [](SparseAttention& c) { c.sinks = {}; }, id);
  }
  see(
      CaseData::kRandom, [](SparseAttention& c) { c.sm_scale *= 1.001F; }, "num.lse_bound");
  see(
      CaseData::kRandom, [](SparseAttention& c) { c.options.lse_sink = LseSink::kIncluded; },
      "num.lse_bound");
}

/// The call with a slip in it is found out, on all data, or on exact data alone.
template <class C, class Slip>
void expect_seen(Call call, const Slip& slip, bool exact_only = false) {
  for (const CaseData data : kAllData) {
    if (exact_only && !is_exact(data)) continue;
    RanSparse run(small_sparse_case(call, data));
    EXPECT_FALSE(run.with<C>([&](C& c) { slip(run, c); }).ok()) << run.x.to_string();
  }
}

TEST(SparseSlips, OfStoresAreSeen) {
  std::vector<int64_t> slots;
  const auto swapped = [&](RanSparse&, auto& c) {
    slots.assign(c.out_cache_loc.begin(), c.out_cache_loc.end());
    std::swap(slots[0], slots[2]);
    c.out_cache_loc = slots;
  };
  const auto kept = [&](RanSparse&, auto& c) {  // what is dropped
    slots.assign(c.out_cache_loc.begin(), c.out_cache_loc.end());
    for (slots[1] = 0; std::ranges::count(slots, slots[1]) > 1;) ++slots[1];
    c.out_cache_loc = slots;
  };
  expect_seen<PackLatents>(Call::kPack, swapped);
  expect_seen<PackLatents>(Call::kPack, kept);
  expect_seen<StoreIndexKeys>(Call::kStoreKeys, swapped);
  expect_seen<StoreIndexKeys>(Call::kStoreKeys, kept);
}

TEST(SparseSlips, OfTheIndexerAreSeen) {
  std::vector<int32_t> list;
  expect_seen<ActQuant>(Call::kActQuant, [](RanSparse&, ActQuant& c) {
    c.x.data = c.x.at(0, kIndexDim), c.x.shape[1] = 256;
    c.x.stride[0] = 0;  // another's blocks
  });
  expect_seen<GatherIndexKeys>(Call::kGatherKeys, [](RanSparse&, GatherIndexKeys& c) {
    c.page_table.stride[0] = 0;  // the first request's pages for all
  });
  expect_seen<IndexerLogits>(Call::kLogits, [&](RanSparse&, IndexerLogits& c) {
    list.assign(c.rows.begin(), c.rows.end());
    std::swap(list[0], list[1]);
    c.rows = list;
  });
  expect_seen<IndexerLogits>(Call::kLogits, [&](RanSparse&, IndexerLogits& c) {
    list.assign(c.ke.begin(), c.ke.end());
    --list[2];
    c.ke = list;
  });
  expect_seen<IndexerLogits>(Call::kLogits,
                             [&](RanSparse&, IndexerLogits& c) { c.weights.stride[0] = 0; });
  expect_seen<SelectIndices>(Call::kSelect, [&](RanSparse&, SelectIndices& c) {
    list.assign(c.ke.begin(), c.ke.end());
    for (int32_t& end : list) end -= 2;
    c.ke = list;
  });
  expect_seen<TransformIndices>(Call::kTransform, [&](RanSparse&, TransformIndices& c) {
    list.assign(c.rows.begin(), c.rows.end());
    std::swap(list[0], list[1]);
    c.rows = list;
  });
}

TEST(SparseSlips, OfTheCompressorAreSeen) {
  std::vector<int32_t> list;
  const auto pages = [&](RanSparse&, Compress& c) {
    list.assign(c.extra.begin(), c.extra.end());
    for (size_t t = 0; t < list.size(); ++t)
      if (!c.drops(static_cast<int64_t>(t))) list[t] = c.indices[t];  // the block itself instead
    c.extra = list;
  };
  expect_seen<Compress>(Call::kCompress, pages);
  expect_seen<Compress>(Call::kCompress, [](RanSparse&, Compress& c) {
    c.ape.stride[0] = 0;  // that of the first token for all
  });
  expect_seen<Compress>(Call::kCompress, [&](RanSparse&, Compress& c) {
    list.assign(c.seq_lens.begin(), c.seq_lens.end());
    std::swap(list[0], list[1]);
    c.seq_lens = list;
  });
  expect_seen<PoolNormRope>(Call::kPoolNormRope,
                            [](RanSparse&, PoolNormRope& c) { c.ape.stride[0] = 0; });
  expect_seen<PoolNormRope>(
      Call::kPoolNormRope, [](RanSparse&, PoolNormRope& c) { c.eps = c.eps * 2; }, true);
  expect_seen<NormRope>(Call::kNormRope, [](RanSparse&, NormRope& c) { c.freqs.stride[0] = 0; });
  expect_seen<NormRope>(Call::kNormRope, [](RanSparse&, NormRope& c) { c.freqs.shape[1] = 4; });
}

TEST(SparseWrites, SeesAByteOfAnotherSlotOrGap) {
  for (const Call call : {Call::kPack, Call::kStoreKeys, Call::kCompress}) {
    RanSparse run(small_sparse_case(call, CaseData::kRandom));
    ASSERT_EQ(run.as_it_is().to_string(), "ok");
    const TensorView stored = std::visit(
        [](const auto& c) -> TensorView {
          if constexpr (requires {
                          c.pool.data;
                          c.latents;
                        })
            return c.pool.data;
          if constexpr (requires {
                          c.pages;
                          c.first_slot;
                        })
            return c.pages;
          if constexpr (requires { c.state; }) return c.state;
          return {};
        },
        run.scene.call());
    const Footprint spans = footprint_of(run.scene.call());
    const auto size = static_cast<int64_t>(size_of(stored.dtype));
    std::vector<bool> own(static_cast<size_t>(stored.shape[0] * stored.stride[0] * size), false);
    for (const AccessSpan& span : spans) {
      if (span.buffer != stored.data || span.access != Access::kWrite) continue;
      for (int64_t i = span.first * size; i < (span.first + span.count) * size; ++i)
        own[static_cast<size_t>(i)] = true;
    }
    for (size_t i = 0; i < own.size(); i += 7) {
      stored.data[i] ^= std::byte{1};
      EXPECT_EQ(run.scene.check_writes(spans).ok(), own[i]) << i;
      stored.data[i] ^= std::byte{1};
    }
    stored.data[-1] ^= std::byte{1};
    EXPECT_FALSE(run.scene.check_writes(spans).ok());
    stored.data[-1] ^= std::byte{1};
    EXPECT_TRUE(run.scene.check_writes(spans).ok());
  }
}

TEST(SparseBits, VariantsAreOfEveryForm) {
  const Case x = small_sparse_case(Call::kCompress, CaseData::kRandom);
  std::map<std::string, int> seen;
  Rng rng(3);
  for (int i = 0; i < 100; ++i) {
    const SparseArrangement a = vary_sparse(x, RunOptions(), rng);
    const auto count = [&](const char* what, bool has) { seen[what] += has ? 1 : 0; };
    std::vector<int32_t> tokens(4, 0);
    bool cut = false;
    for (const auto& call : a.calls) {
      for (const RowPiece& p : call) {
        const auto row = static_cast<size_t>(p.row);
        EXPECT_EQ(p.begin, tokens[row]);
        tokens[row] = p.end;
        cut |= p.end < std::get<SparseCase>(x.call).rows[row].count;
      }
    }
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(tokens[r], std::get<SparseCase>(x.call).rows[r].count);
    count("cut", cut), count("alone", a.calls.size() == 4), count("poison", a.poison_unread);
    count("idle", a.idle_rows > 0), count("holes", a.holes), count("ragged", a.ragged[0]);
    count("no lse", !a.with_lse), count("packed", !a.paged), count("listed", a.row_list);
    count("moved", a.calls.size() == 1 && a.calls[0][0].row != 0);
  }
  for (const auto& [what, cases] : seen) EXPECT_GT(cases, 3) << what;
}

TEST(SparseBits, SeesOneBitOfAnything) {
  for_each_call([](const Case& x) {
    RanSparse run(x);
    ASSERT_EQ(run.as_it_is().to_string(), "ok");
    RowResults a(x);
    run.scene.collect(&a);
    EXPECT_EQ(compare_bits(a, a, "").to_string(), "ok");
    int64_t parts = 0;
    for (const auto part : {&RowResults::out, &RowResults::beside}) {
      for (size_t i = 0; i < a.out.size(); ++i) {
        if ((a.*part)[i].empty()) continue;
        ++parts;
        RowResults b = a;
        (b.*part)[i].back() ^= std::byte{1};
        EXPECT_FALSE(compare_bits(a, b, "").ok());
      }
    }
    EXPECT_GE(parts, 3) << x.to_string();
  });
}

TEST(SparseBits, PoisonLiesWhereTheFootprintDoesNotRead) {
  // A key that nobody names is poison: taken for another, it is NaN.
  const Case x = small_sparse_case(Call::kAttention, CaseData::kUniform);
  SparseArrangement how = SparseArrangement::of(x);
  how.poison_unread = true;
  RanSparse run(x, how);
  EXPECT_EQ(run.as_it_is().to_string(), "ok");
  const ChosenKeys& keys = run.call<SparseAttention>().keys;
  std::vector<int32_t> entries(keys.indices.begin(), keys.indices.end());
  for (entries[0] = 0; std::ranges::find(keys.indices, entries[0]) != keys.indices.end();)
    ++entries[0];
  EXPECT_FALSE(run.with<SparseAttention>([&](auto& c) { c.keys.indices = entries; }).ok());
}

TEST(SparseCases, FindNothing) {
  int64_t cases = 0;
  for (uint64_t number = 0; cases < 600; ++number) {
    const Case x = fuzz_case(505, number);
    if (x.as<SparseCase>() == nullptr) continue;
    ++cases;
    ASSERT_EQ(check_case(x, RunOptions()).to_string(), "ok") << number << ": " << x.to_string();
  }
}

TEST(SparseCases, HaveEveryFeature) {
  std::map<std::string, int> seen;
  for (uint64_t number = 0; number < 6000; ++number) {
    const Case x = fuzz_case(1, number);
    if (x.as<SparseCase>() == nullptr) continue;
    const SparseCase& s = *x.as<SparseCase>();
    const auto count = [&](const std::string& what, bool has) { seen[what] += has ? 1 : 0; };
    const bool attention = s.call == Call::kAttention;
    for (size_t call = 0; call < kSparseCalls; ++call)
      count("call " + std::to_string(call), s.call == static_cast<Call>(call));
    for (const LatentLayout layout : {LatentLayout::kRows, LatentLayout::kDsa, LatentLayout::kV4})
      for (const bool extra : {false, true})
        count("layout " + std::to_string(static_cast<int>(layout)) + (extra ? " extra" : ""),
              attention && s.layout == layout && s.has_extra == extra);
    count("two layouts", attention && s.has_extra && s.extra_layout != s.layout);
    count("rows of 8 bits", attention && is_fp8(s.rows_dtype));
    count("queries of 8 bits", attention && s.dtype == DType::kE4M3);
    count("narrow values", attention && s.head_dim_v < s.head_dim);
    count("sinks in lse", attention && s.sinks && s.lse_sink == LseSink::kIncluded);
    count("ratio 128", s.call == Call::kCompress && s.ratio == 128);
    count("ring", s.ring), count("padding", s.padding_page), count("offsets", !s.by_table);
    count("powers", s.ue8m0), count("windows of 128", s.call == Call::kPoolNormRope && s.ratio > 4);
    for (const SparseCase::Row& r : s.rows) {
      count("dropped", !r.slot), count("no keys", attention && r.count == 0);
      count("many keys", r.count > 128),
          count("all kept", s.call == Call::kSelect && r.count <= s.topk);
      count("from later on", s.call == Call::kLogits && r.first > 64);
    }
  }
  for (const auto& [what, cases] : seen) EXPECT_GT(cases, 5) << what;
}

}  // namespace
}  // namespace shadowgraph::sparse_laws_test
