// The ladder of calls over states sees planted slips: exact data names the slot that was read, the
// bound sees a step too few, and write sets, bits and refusals see the rest.
#include "fuzz/call/recurrent_laws.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "core/float_formats.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::recurrent_laws_test {
namespace {

using Call = RecurrentScene::Call;
using Row = RecurrentCase::Row;

/// Four rows: whole, from zero, padding, whole.
Case small_case(RecurrentCase::Call call, CaseData data) {
  Case x;
  x.data = data;
  x.seed = 7;
  auto& l = x.call.emplace<RecurrentCase>();
  l.call = call;
  l.rows = {{5, true, true}, {3, true, false}, {4, false, true}, {6, true, true}};
  l.num_v_heads = 2;
  l.head_dim_k = 16, l.head_dim_v = 8;
  l.rule = LinearAttention::Rule::kDelta;
  l.beta = true;
  l.dim = 6, l.bias = true;
  l.pad = PadRow::kFromZero;
  return x;
}
RecurrentCase& linear(Case& x) { return std::get<RecurrentCase>(x.call); }
Case with_drafts(Case x, bool tree) {
  linear(x).drafts = true, linear(x).tree = tree;
  linear(x).store = false;
  return x;
}

/// A scene whose call is laid; slip: what runs instead of it.
struct Ran {
  explicit Ran(const Case& c) : x(c), data(make_recurrent_data(x)), scene(x, data, how()) {
    scene.lay(0);
  }
  RecurrentArrangement how() const { return RecurrentArrangement::of(x); }
  template <class Slip>
  Status with(const Slip& slip) {
    Call call = scene.call();
    std::visit([&](auto& c) { slip(c); }, call);
    EXPECT_EQ(execute(call).to_string(), "ok");
    return judge_recurrent(x, scene);
  }

  Case x;
  RecurrentData data;
  RecurrentScene scene;
};

void expect_finding(const Status& status, const std::string& id, const std::string& got) {
  ASSERT_FALSE(status.ok());
  const Finding& f = status.findings()[0];
  EXPECT_EQ(f.id, id);
  EXPECT_NE(f.got.find(got), std::string::npos) << status.to_string();
}

constexpr RecurrentCase::Call kCalls[] = {RecurrentCase::Call::kAttention,
                                          RecurrentCase::Call::kConv1d};
constexpr CaseData kExact[] = {CaseData::kUniform, CaseData::kSelector};

template <class Test>
void for_each_exact(const Test& test) {
  for (const RecurrentCase::Call call : kCalls)
    for (const CaseData data : kExact) test(small_case(call, data));
}

std::vector<int32_t> slots_of(const Call& call) {
  return std::visit(
      [](const auto& c) {
        return std::vector<int32_t>(c.rows.state_indices.begin(), c.rows.state_indices.end());
      },
      call);
}

TEST(RecurrentExact, AcceptsWhatTheKernelsGive) {
  for_each_exact([](const Case& x) {
    EXPECT_EQ(Ran(x).with([](auto&) {}).to_string(), "ok");
    EXPECT_EQ(Ran(with_drafts(x, true)).with([](auto&) {}).to_string(), "ok");
  });
}

TEST(RecurrentExact, TheChunkedFormGivesTheSameIntegers) {
  for (const CaseData data : kExact) {
    for (const int32_t rank : {1, 2, 3}) {
      Case x = small_case(RecurrentCase::Call::kAttention, data);
      linear(x).rows[0].tokens = 70, linear(x).decay_rank = rank;
      linear(x).form = LinearAttention::Form::kChunked;
      EXPECT_EQ(Ran(x).with([](auto&) {}).to_string(), "ok") << x.to_string();
    }
  }
}

TEST(RecurrentExact, NamesTheSlotOfAnotherRow) {
  for_each_exact([](const Case& x) {
    Ran run(x);
    std::vector<int32_t> slots = slots_of(run.scene.call());
    const std::string named =
        "as if it started from slot " + std::to_string(slots[3]) + " of row 3";
    std::swap(slots[0], slots[3]);
    const std::vector<uint8_t> flags = {1, 0, 0, 1};
    expect_finding(
        run.with([&](auto& c) { c.rows.state_indices = slots, c.rows.has_initial_state = flags; }),
        "num.exact", named);
  });
}

TEST(RecurrentExact, NamesAStaleSlotReadAsAState) {
  for_each_exact([](const Case& x) {
    Ran run(x);
    const std::vector<uint8_t> flags(4, 1);
    expect_finding(run.with([&](auto& c) { c.rows.has_initial_state = flags; }), "num.exact",
                   "its own, which is not its state");
  });
}

TEST(RecurrentExact, NamesAStateTakenForNone) {
  for_each_exact([](const Case& x) {
    Ran run(x);
    const std::vector<uint8_t> flags(4, 0);
    expect_finding(run.with([&](auto& c) { c.rows.has_initial_state = flags; }), "num.exact",
                   "as if it started from zero");
  });
}

TEST(RecurrentExact, NamesPaddingTakenForASlot) {
  for_each_exact([](const Case& x) {
    Ran run(x);
    std::vector<int32_t> slots = slots_of(run.scene.call());
    for (int32_t s = 0; slots[2] < 0; ++s)
      if (std::ranges::find(slots, s) == slots.end()) slots[2] = s;
    const std::vector<uint8_t> flags = {1, 0, 1, 1};
    expect_finding(
        run.with([&](auto& c) { c.rows.state_indices = slots, c.rows.has_initial_state = flags; }),
        "num.exact", "as if it started from slot " + std::to_string(slots[2]));
    EXPECT_FALSE(
        run.scene.check_writes(footprint_of(run.scene.call())).ok());  // and it stored there
  });
}

TEST(RecurrentExact, NamesATreeTakenForAChain) {
  for_each_exact([](const Case& x) {
    Ran run(with_drafts(x, true));
    expect_finding(run.with([](auto& c) { c.draft.parents = {}; }), "num.exact",
                   "as of a chain of drafts");
  });
}

TEST(RecurrentExact, SeesPaddingThatIsNotZero) {
  for_each_exact([](Case x) {
    linear(x).pad = PadRow::kZeroOut;
    Ran run(x);
    EXPECT_FALSE(run.with([](auto& c) { c.rows.pad = PadRow::kSkip; }).ok());
  });
}

TEST(RecurrentExact, SeesADecayOfTheTokenBefore) {
  for (const CaseData data : {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom}) {
    Ran run(small_case(RecurrentCase::Call::kAttention, data));
    LinearAttention call = std::get<LinearAttention>(run.scene.call());
    std::vector<std::byte> decays = gather(call.log_decay);
    const size_t token = decays.size() / static_cast<size_t>(call.v.shape[0]);
    std::memmove(decays.data() + token, decays.data(), decays.size() - token);
    call.log_decay = ConstTensorView(decays.data(), DType::kF32, {call.v.shape[0], 2});
    EXPECT_EQ(linear_attention(call).to_string(), "ok");
    EXPECT_FALSE(judge_recurrent(run.x, run.scene).ok());
  }
}

TEST(RecurrentExact, SeesAWindowThatIsOneOff) {
  for (const CaseData data : {CaseData::kUniform, CaseData::kSelector, CaseData::kRandom}) {
    Ran run(small_case(RecurrentCase::Call::kConv1d, data));
    CausalConv1d call = std::get<CausalConv1d>(run.scene.call());
    std::vector<std::byte> weight = gather(call.weight);  // [6, 4]: rotated by one tap
    std::rotate(weight.begin(), weight.begin() + 4, weight.end());
    call.weight = ConstTensorView(weight.data(), DType::kF32, {6, 4});
    EXPECT_EQ(causal_conv1d(call).to_string(), "ok");
    EXPECT_FALSE(judge_recurrent(run.x, run.scene).ok());
  }
}

TEST(LinearBound, SeesEachOptionThatIsLeftOut) {
  Case x = small_case(RecurrentCase::Call::kAttention, CaseData::kRandom);
  linear(x).skip = linear(x).z = linear(x).l2norm = true, linear(x).scale = 0.5F;
  using Slip = void (*)(LinearAttention&);
  const Slip slips[] = {
      [](LinearAttention& c) { c.skip = {}; },
      [](LinearAttention& c) { c.z = {}; },
      [](LinearAttention& c) { c.beta = {}; },
      [](LinearAttention& c) { c.l2norm = false; },
      [](LinearAttention& c) { c.scale = 1; },
      [](LinearAttention& c) { c.rule = LinearAttention::Rule::kAdd; },
      [](LinearAttention& c) { c.store = false; },
  };
  EXPECT_EQ(Ran(x).with([](auto&) {}).to_string(), "ok");
  for (const Slip slip : slips) {
    Ran run(x);
    LinearAttention call = std::get<LinearAttention>(run.scene.call());
    slip(call);
    EXPECT_EQ(linear_attention(call).to_string(), "ok");
    EXPECT_FALSE(judge_recurrent(x, run.scene).ok()) << &slip - slips;
  }
}

TEST(LinearBound, SeesStatesOfDraftsAndChunksThatAreOneTokenLate) {
  for (const CaseData data : {CaseData::kUniform, CaseData::kRandom}) {
    Case x = with_drafts(small_case(RecurrentCase::Call::kAttention, data), false);
    linear(x).chunk_size = 2;
    for (const bool of_chunks : {false, true}) {
      Ran run(x);
      EXPECT_EQ(run.with([](auto&) {}).to_string(), "ok");
      const auto& call = std::get<LinearAttention>(run.scene.call());
      const int64_t place = call.draft.place(0);
      std::byte* const first = of_chunks ? call.chunk_states.at(0) : call.draft.states.at(place, 0);
      const std::byte* const second =
          of_chunks ? call.chunk_states.at(1) : call.draft.states.at(place, 1);
      std::memcpy(first, second, 4);
      EXPECT_FALSE(judge_recurrent(x, run.scene).ok()) << of_chunks;
    }
  }
}

TEST(LinearWrites, SeesAByteOfAnotherSlotOrGap) {
  for_each_exact([](Case x) {
    linear(x).drafts = true;
    linear(x).pad = PadRow::kSkip;
    Ran run(x);
    EXPECT_EQ(run.scene.run().to_string(), "ok");
    const auto see = [&](std::byte* at) {
      const std::byte was = *at;
      *at ^= std::byte{1};
      EXPECT_EQ(run.scene.check_writes(footprint_of(run.scene.call())).findings().size(), 1u);
      *at = was;
    };
    std::visit(
        [&](auto& c) {
          std::set<int32_t> taken(c.rows.state_indices.begin(), c.rows.state_indices.end());
          for (int32_t slot = 0; slot < c.states.shape[0]; ++slot)
            if (!taken.contains(slot)) see(c.states.at(slot));
          see(c.out.at(c.rows.begin(2)));  // padding
          see(c.draft.states.at(c.draft.place(0), 5));
          see(c.draft.states.at(c.draft.place(2)));
          see(const_cast<std::byte*>(c.out.data) - 1);
        },
        run.scene.call());
    EXPECT_TRUE(run.scene.check_writes(footprint_of(run.scene.call())).ok());
  });
}

TEST(LinearBits, VariantsAreOfEveryForm) {
  const Case x = small_case(RecurrentCase::Call::kAttention, CaseData::kRandom);
  std::set<size_t> calls;
  bool cut = false, poisoned = false, idle = false, moved = false;
  Rng rng(3);
  for (int i = 0; i < 100; ++i) {
    const RecurrentArrangement a = vary_recurrent(x, RunOptions(), rng);
    calls.insert(a.calls.size());
    poisoned |= a.poison_unread, idle |= a.idle_rows > 0;
    moved |= a.calls[0].size() == 4 && a.calls[0][0].row != 0;
    std::vector<int32_t> tokens(4, 0);
    for (const auto& call : a.calls) {
      for (const RowPiece& p : call) {
        const auto row = static_cast<size_t>(p.row);
        EXPECT_EQ(p.begin, tokens[row]);  // in order, without gaps
        tokens[row] = p.end;
        cut |= p.end < std::get<RecurrentCase>(x.call).rows[row].tokens;
      }
    }
    for (size_t r = 0; r < 4; ++r)
      EXPECT_EQ(tokens[r], std::get<RecurrentCase>(x.call).rows[r].tokens);
  }
  Case chunked = x;
  linear(chunked).form = LinearAttention::Form::kChunked;
  linear(chunked).rows[0].tokens = 100;
  std::set<int32_t> ends;
  for (int i = 0; i < 200; ++i) {
    for (const auto& call : vary_recurrent(chunked, RunOptions(), rng).calls)
      for (const RowPiece& p : call)
        if (p.row == 0) ends.insert(p.end);
  }
  EXPECT_EQ(ends, (std::set<int32_t>{32, 64, 96, 100}));
  EXPECT_EQ(calls, (std::set<size_t>{1, 2, 4}));
  EXPECT_TRUE(cut && poisoned && idle && moved);
}

TEST(LinearBits, SeesOneBitOfAnything) {
  Case x = small_case(RecurrentCase::Call::kAttention, CaseData::kRandom);
  linear(x).drafts = true, linear(x).chunk_size = 2;
  Ran run(x);
  EXPECT_EQ(run.scene.run().to_string(), "ok");
  RecurrentResults a(x);
  run.scene.collect(&a);
  EXPECT_EQ(compare_bits(a, a, "").to_string(), "ok");
  for (const auto part :
       {&RecurrentResults::out, &RecurrentResults::draft, &RecurrentResults::states}) {
    RecurrentResults b = a;
    (b.*part)[3][2] ^= std::byte{1};
    EXPECT_FALSE(compare_bits(a, b, "").ok());
    b = a;
    (b.*part)[3].clear();
    EXPECT_FALSE(compare_bits(a, b, "").ok());
  }
  RecurrentResults b = a;
  b.chunks[0][2] ^= std::byte{1};
  EXPECT_FALSE(compare_bits(a, b, "").ok());
  b.chunks[0].clear();  // cut elsewhere, it begins no chunk
  EXPECT_TRUE(compare_bits(a, b, "").ok());
}

TEST(LinearBits, PoisonWhereTheFootprintDoesNotReadChangesNothing) {
  // A row from zero does not read its slot: with the flag set it would find the poison.
  for_each_exact([](const Case& x) {
    RecurrentArrangement how = RecurrentArrangement::of(x);
    how.poison_unread = true;
    const RecurrentData data = make_recurrent_data(x);
    RecurrentScene scene(x, data, how);
    scene.lay(0);
    Call call = scene.call();
    const std::vector<uint8_t> flags(4, 1);
    std::visit([&](auto& c) { c.rows.has_initial_state = flags; }, call);
    EXPECT_EQ(execute(call).to_string(), "ok");
    EXPECT_FALSE(judge_recurrent(x, scene).ok());
    scene.lay(0);
    EXPECT_EQ(scene.run().to_string(), "ok");
  });
}

TEST(LinearCases, FindNothing) {
  int64_t cases = 0;
  for (uint64_t number = 0; cases < 600; ++number) {
    const Case x = fuzz_case(404, number);
    if (x.as<RecurrentCase>() == nullptr) continue;
    ++cases;
    ASSERT_EQ(check_case(x, RunOptions()).to_string(), "ok") << number << ": " << x.to_string();
  }
}

TEST(LinearCases, HaveEveryFeature) {
  std::map<std::string, int> seen;
  for (uint64_t number = 0; number < 4000; ++number) {
    const Case x = fuzz_case(1, number);
    if (x.as<RecurrentCase>() == nullptr) continue;
    const RecurrentCase& l = *x.as<RecurrentCase>();
    const auto count = [&](const char* what, bool has) { seen[what] += has ? 1 : 0; };
    const bool attention = l.call == RecurrentCase::Call::kAttention;
    const bool conv = l.call == RecurrentCase::Call::kConv1d;
    count("tree", attention && l.tree), count("tree of inputs", conv && l.tree);
    count("tree without windows", conv && l.tree && !l.drafts);
    count("tree of few bits", attention && l.tree && l.draft_dtype != DType::kF32);
    count("chain", attention && l.drafts && !l.tree && !l.store);
    count("chunks of rows", l.chunk_size > 0 && l.chunk_grid == ChunkGrid::kRow);
    count("chunks of all", l.chunk_size > 0 && l.chunk_grid == ChunkGrid::kTokens);
    const bool chunked = l.form == LinearAttention::Form::kChunked;
    count("chunked", attention && chunked), count("chunked channels", chunked && l.decay_rank == 3);
    count("channels", attention && l.decay_rank == 3), count("slopes", l.decay_rank == 1);
    count("l2norm", l.l2norm), count("z", l.z), count("skip", l.skip), count("silu", l.silu);
    count("key_value", l.order == LinearAttention::StateOrder::kKeyValue);
    count("states of few bits", l.state_dtype != DType::kF32);
    count("gate step", l.gate == DecayGate::Kind::kStep);
    for (const Row& r : l.rows) {
      count("padding", !r.slot), count("from zero", !r.initial), count("empty", r.tokens == 0);
      count("long", r.tokens > 64);
    }
  }
  for (const auto& [what, cases] : seen) EXPECT_GT(cases, 5) << what;
}

}  // namespace
}  // namespace shadowgraph::recurrent_laws_test
