// Recurrent layers as launches: the bits of the call, padding left alone, slots that there are not.
#include "launch/recurrent_launch.h"

#include "launch/launch_world.h"

namespace shadowgraph::recurrent_launch_test {
namespace {

constexpr int64_t kTokens = 6, kSlots = 4;

/// Rows of 2 and 3 tokens, and a token of padding.
class World : public LaunchWorld {
 public:
  explicit World(const Ints& slots) {
    q = tokens("q", 4), k = tokens("k", 4), v = tokens("v", 4), out = tokens("out", 4);
    decay = bind("decay", DType::kF32, {1});
    write(decay, 0, std::vector<float>{-0.25f});
    states = bind("states", DType::kF32, {kSlots, 1, 4, 4}, 4);
    randomise(states);
    rows = bind_values("rows", DType::kI32, Ints{0, 2, 5});
    indices = bind_values("indices", DType::kI32, slots);
    initial = bind_values("initial", DType::kU8, std::vector<uint8_t>{1, 1});
  }
  LinearAttention call() const {
    LinearAttention c;
    c.q = q.view(), c.k = k.view(), c.v = v.view(), c.log_decay = decay.view();
    c.rows = {elements<int32_t>(rows), elements<int32_t>(indices), elements<uint8_t>(initial),
              PadRow::kSkip};
    c.states = states.view(), c.out = out.view();
    return c;
  }

  Buffer q, k, v, out, decay, states, rows, indices, initial;

 private:
  Buffer tokens(const char* name, int64_t dim) {
    Buffer b = bind(name, DType::kF32, {kTokens, 1, dim}, dim);
    randomise(b);
    return b;
  }
};

TEST(RecurrentLaunch, HasTheBitsOfTheCallAndLeavesPaddingAlone) {
  World w({2, 1});
  const Bytes states = w.bytes(w.states), out = w.bytes(w.out);
  // The call itself, elsewhere.
  Bytes host_states = states, host_out = out;
  LinearAttention call = w.call();
  for (ConstTensorView* t : {&call.q, &call.k, &call.v}) t->shape[0] = 5;
  call.states.data = host_states.data(), call.out.data = host_out.data(), call.out.shape[0] = 5;
  ASSERT_EQ(linear_attention(call).to_string(), "ok");
  w.run_both(
      recurrent_launch({w.call()}), [&] { w.write_bytes(w.states, states); },
      [&] {
        EXPECT_EQ(w.bytes(w.states), host_states);
        EXPECT_EQ(w.bytes(w.out), host_out);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(RecurrentLaunch, SaysWhatItWasMadeOf) {
  World w({2, 1});
  LinearAttention call = w.call();
  call.rule = LinearAttention::Rule::kDelta, call.l2norm = true, call.scale = 0.5f;
  call.store = false, call.chunk_size = 3, call.chunk_grid = ChunkGrid::kTokens;
  call.rows.pad = PadRow::kFromZero, call.draft.of_padding = false;
  call.form = LinearAttention::Form::kChunked, call.order = LinearAttention::StateOrder::kKeyValue;
  const auto [back, rows] = call_of<LinearCall>(recurrent_launch({call}, {2, 1}));
  EXPECT_EQ(back.rule, call.rule);
  EXPECT_EQ(back.form, call.form);
  EXPECT_EQ(back.order, call.order);
  EXPECT_EQ(back.chunk_size, call.chunk_size);
  EXPECT_EQ(back.chunk_grid, call.chunk_grid);
  EXPECT_EQ(back.scale, call.scale);
  EXPECT_EQ(back.rows.pad, call.rows.pad);
  EXPECT_TRUE(back.l2norm && !back.store && !back.draft.of_padding);
  EXPECT_EQ(back.states.shape, call.states.shape);
  EXPECT_EQ(back.rows.has_initial_state.size(), 2u);
  EXPECT_EQ(rows.a_request, 2);
}

TEST(RecurrentLaunch, ASlotBehindThePoolIsFoundAndNothingIsComputed) {
  World w({2, kSlots});
  const Bytes states = w.bytes(w.states);
  w.stream().launch(recurrent_launch({w.call()}));
  EXPECT_NE(w.found(), "ok");
  EXPECT_EQ(w.bytes(w.states), states);
  const Bytes out = w.bytes(w.out);
  EXPECT_EQ(out[0], std::byte{0xff});
}

TEST(RecurrentLaunch, AnotherRequestsSlotIsFound) {
  World w({2, 1});
  w.set_owner(w.states, 2, 8), w.set_owner(w.states, 1, 9);
  w.device.set_row_owners(std::vector<OwnerId>{8, 8});
  w.stream().launch(recurrent_launch({w.call()}));
  EXPECT_EQ(w.found().substr(0, 16), "mem.wrong_region");
}

/// Rows of 2 and 3 tokens in chunks of 4, as Mamba2's lists say it.
class ChunkWorld : public World {
 public:
  ChunkWorld() : World({2, 1}) {
    seq_idx = bind("seq_idx", DType::kI32, {kTokens});
    write(seq_idx, 0, Ints{0, 0, 1, 1, 1});
    indices = bind("chunk_indices", DType::kI32, {5});
    write(indices, 0, Ints{0, 0, 1});
    offsets = bind("chunk_offsets", DType::kI32, {5});
    write(offsets, 0, Ints{0, 2, 0});
    count = bind_values("num_chunks", DType::kI32, Ints{3});
    chunk_states = bind("chunk_states", DType::kF32, {5, 1, 4, 4}, 4);
  }
  LinearAttention call() const {
    LinearAttention c = World::call();
    c.chunk_states = chunk_states.view();
    c.chunk_size = 4, c.chunk_grid = ChunkGrid::kTokens;
    return c;
  }
  KernelLaunch launch() const {
    return recurrent_launch({call(),
                             {elements<int32_t>(seq_idx), elements<int32_t>(indices),
                              elements<int32_t>(offsets), elements<int32_t>(count)}});
  }

  Buffer seq_idx, indices, offsets, count, chunk_states;
};

/// fi.I-91.
TEST(TokenChunks, ListsOfTheBatchHaveTheBitsOfItsRows) {
  ChunkWorld w;
  const Bytes states = w.bytes(w.states);
  const auto left = [&] {
    return std::vector{w.bytes(w.states), w.bytes(w.out), w.bytes(w.chunk_states)};
  };
  std::vector<Bytes> plain;
  const auto prepare = [&] {
    w.write_bytes(w.states, states);
    w.clear(w.out), w.clear(w.chunk_states);
  };
  w.run_both(recurrent_launch({w.call()}), prepare, [&] { plain = left(); });
  w.run_both(w.launch(), prepare, [&] {
    EXPECT_TRUE(left() == plain);
    EXPECT_EQ(w.found(), "ok");
  });
}

TEST(TokenChunks, ARowBeginsWhereTheListsSay) {
  ChunkWorld w;
  const Bytes states = w.bytes(w.states);
  // The lists of rows of 3 and 2 tokens.
  w.write(w.rows, 1, Ints{3});
  w.stream().launch(recurrent_launch({w.call()}));
  const Bytes out = w.bytes(w.out);
  w.write_bytes(w.states, states);
  w.write(w.rows, 1, Ints{2});
  w.write(w.seq_idx, 2, Ints{0}), w.write(w.offsets, 1, Ints{3});
  w.stream().launch(w.launch());
  EXPECT_EQ(w.bytes(w.out), out);
  EXPECT_EQ(w.found(), "ok");
}

TEST(TokenChunks, ListsThatAreNoCutAreRefused) {
  struct Fault {
    const char* found;
    void (*plant)(ChunkWorld& w);
  };
  const Fault faults[] = {
      {"ok", [](ChunkWorld& w) { w.write(w.seq_idx, 1, Ints{1}); }},  // tokens of two rows
      {"ok",
       [](ChunkWorld& w) {
         w.write(w.seq_idx, 0, Ints{1, 1, 0, 0, 0});
       }},
      {"ok",
       [](ChunkWorld& w) {
         w.write(w.seq_idx, 2, Ints{2, 2, 2});
       }},                                                            // no row
      {"ok", [](ChunkWorld& w) { w.write(w.offsets, 0, Ints{1}); }},  // a token before
      {"ok", [](ChunkWorld& w) { w.write(w.offsets, 1, Ints{4}); }},  // behind its chunk
      {"ok", [](ChunkWorld& w) { w.write(w.offsets, 2, Ints{-1}); }},
      {"ok", [](ChunkWorld& w) { w.write(w.indices, 2, Ints{0}), w.write(w.offsets, 2, Ints{4}); }},
      {"ok", [](ChunkWorld& w) { w.write(w.indices, 1, Ints{1}); }},  // not ascending
      {"ok", [](ChunkWorld& w) { w.write(w.count, 0, Ints{2}); }},    // leaves its chunk
      {"ok", [](ChunkWorld& w) { w.write(w.count, 0, Ints{0}); }},
      {"mem.uninit_read: chunk_indices[3", [](ChunkWorld& w) { w.write(w.count, 0, Ints{4}); }},
      {"mem.red_zone: chunk_indices[5",
       [](ChunkWorld& w) {
         w.write(w.rows, 2, Ints{6}), w.write(w.count, 0, Ints{6});
         w.write(w.seq_idx, 5, Ints{1});
         w.write(w.indices, 0, Ints{0, 0, 0, 1, 1}), w.write(w.offsets, 0, Ints{0, 1, 2, 0, 1});
       }},
      {"mem.uninit_read: seq_idx[5", [](ChunkWorld& w) { w.write(w.rows, 2, Ints{6}); }},
  };
  for (const Fault& fault : faults) {
    ChunkWorld w;
    SCOPED_TRACE(&fault - faults);
    fault.plant(w);
    const Bytes states = w.bytes(w.states);
    w.run_both(
        w.launch(), [&] { w.clear(w.out); },
        [&] {
          const std::string found = w.found();
          EXPECT_NE(found.find(fault.found), std::string::npos) << found;
          EXPECT_EQ(w.bytes(w.out)[0], std::byte{0xff});
          EXPECT_EQ(w.bytes(w.states), states);
        });
  }
}

TEST(ParentsLaunch, WhatIsNoTreeIsAChain) {
  LaunchWorld w;
  const Buffer next = w.bind_values("next", DType::kI32, Ints{1, -1, -1, 2, -1, -1});
  const Buffer sibling = w.bind_values("sibling", DType::kI32, Ints{-1, 2, -1, -1, -1, -1});
  const Buffer parents = w.bind("parents", DType::kI32, {6});
  const DraftParents call{w.elements<int32_t>(next),
                          w.elements<int32_t>(sibling),
                          {reinterpret_cast<int32_t*>(parents.data), 6},
                          3};
  w.stream().launch(parents_launch(call));
  EXPECT_EQ(w.found(), "ok");
  const auto got = w.elements<int32_t>(parents);
  EXPECT_EQ(Ints(got.begin(), got.end()), (Ints{0, 0, 0, 0, 0, 1}));
}

}  // namespace
}  // namespace shadowgraph::recurrent_launch_test
