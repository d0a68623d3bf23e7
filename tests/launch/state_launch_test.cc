// States that move between slots on the device: bit for bit, nothing else, and places that there
// are not.
#include "launch/state_launch.h"

#include "launch/launch_world.h"

namespace shadowgraph::state_launch_test {
namespace {

class World : public LaunchWorld {
 public:
  World(const Ints& from, const Ints& to) {
    pool = bind("pool", DType::kF32, {4, 2, 3}, 3);
    drafts = bind("drafts", DType::kF32, {2, 2, 2, 3}, 3);
    sources = bind_values("sources", DType::kI32, from);
    targets = bind_values("targets", DType::kI32, to);
    randomise(pool), randomise(drafts);
    before = bytes(pool);
  }
  CopyStates within() const {
    return {pool.view(), pool.view(), elements<int32_t>(sources), elements<int32_t>(targets)};
  }
  Bytes slot(const Bytes& of, size_t i) const {
    return {of.begin() + static_cast<int64_t>(i * 24),
            of.begin() + static_cast<int64_t>(i * 24 + 24)};
  }

  Buffer pool, drafts, sources, targets;
  Bytes before;
};

TEST(StateLaunch, StatesGoToTheirSlotsAndNothingElseChanges) {
  World w({1, -1, 0, 2}, {3, 2, -1, 0});
  w.run_both(
      copy_states_launch(w.within()), [&] { w.write_bytes(w.pool, w.before); },
      [&] {
        const Bytes after = w.bytes(w.pool);
        EXPECT_EQ(w.slot(after, 3), w.slot(w.before, 1));
        EXPECT_EQ(w.slot(after, 0), w.slot(w.before, 2));
        EXPECT_EQ(w.slot(after, 1), w.slot(w.before, 1));
        EXPECT_EQ(w.slot(after, 2), w.slot(w.before, 2));
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(StateLaunch, WhatAVerifyLeftIsFoundByRowAndStep) {
  World w({3}, {1});
  CopyStates call = w.within();
  call.from = ConstTensorView(w.drafts.data, DType::kF32, {4, 2, 3});
  w.stream().launch(copy_states_launch(call));
  EXPECT_EQ(w.slot(w.bytes(w.pool), 1), w.slot(w.bytes(w.drafts), 3));
  EXPECT_EQ(w.found(), "ok");
}

TEST(StateLaunch, SlotsBehindThePoolAreFoundAndNotWritten) {
  World w({1}, {4});
  w.stream().launch(copy_states_launch(w.within()));
  EXPECT_NE(w.found(), "ok");
  EXPECT_EQ(w.bytes(w.pool), w.before);
}

TEST(StateLaunch, ASlotOfAnotherRequestIsFound) {
  World w({-1, 1}, {3, 2});
  w.set_owner(w.pool, 2, 7), w.set_owner(w.pool, 1, 8);
  w.device.set_row_owners(std::vector<OwnerId>{5, 8});
  w.stream().launch(copy_states_launch(w.within()));
  EXPECT_EQ(w.found().substr(0, 16), "mem.wrong_region");
}

TEST(StateLaunch, AWindowIsMadeOfTheInputsAtItsTokens) {
  LaunchWorld w;
  const Buffer x = w.bind("x", DType::kF32, {5, 2}, 2);
  const Buffer states = w.bind("states", DType::kF32, {3, 2, 2}, 2);
  const Buffer tokens = w.bind_values("tokens", DType::kI32, Ints{1, 2, 3, 4});
  const Buffer targets = w.bind_values("targets", DType::kI32, Ints{-1, 2});
  w.randomise(x), w.randomise(states);
  const auto in = w.elements<float>(x), out = w.elements<float>(states);
  const TrackWindows call{x.view(), states.view(), w.elements<int32_t>(tokens),
                          w.elements<int32_t>(targets)};
  const TrackWindows back = call_of<TrackWindows>(track_windows_launch(call)).call;
  EXPECT_EQ(back.tokens.data(), call.tokens.data());
  EXPECT_EQ(back.targets.size(), 2u);
  w.stream().launch(track_windows_launch(call));
  EXPECT_EQ(w.found(), "ok");
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(out[8 + 2 * d], in[2 * 3 + d]);
    EXPECT_EQ(out[8 + 2 * d + 1], in[2 * 4 + d]);
  }
}

}  // namespace
}  // namespace shadowgraph::state_launch_test
