// Recurrent layers as launches: the bits of the call, padding left alone, slots that there are not.
#include "launch/recurrent_launch.h"

#include "launch/launch_world.h"

namespace shadowgraph {
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
      recurrent_launch(w.call()), [&] { w.write_bytes(w.states, states); },
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
  const auto [back, rows] = call_of<LinearAttention>(recurrent_launch(call, {2, 1}));
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
  w.stream().launch(recurrent_launch(w.call()));
  EXPECT_NE(w.found(), "ok");
  EXPECT_EQ(w.bytes(w.states), states);
  const Bytes out = w.bytes(w.out);
  EXPECT_EQ(out[0], std::byte{0xff});
}

TEST(RecurrentLaunch, AnotherRequestsSlotIsFound) {
  World w({2, 1});
  w.set_owner(w.states, 2, 8), w.set_owner(w.states, 1, 9);
  w.device.set_row_owners(std::vector<OwnerId>{8, 8});
  w.stream().launch(recurrent_launch(w.call()));
  EXPECT_EQ(w.found().substr(0, 16), "mem.wrong_region");
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
}  // namespace shadowgraph
