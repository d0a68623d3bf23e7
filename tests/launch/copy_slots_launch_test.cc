// Slots copied on the device: bit for bit in every layout, nothing else changes, and slots that are
// refused.
#include "launch/copy_slots_launch.h"

#include "kernels/cache/copy_kv.h"
#include "launch/cache_world.h"

namespace shadowgraph::copy_slots_launch_test {
namespace {

using Slots = std::vector<int64_t>;

constexpr std::initializer_list<Layout> kLayouts = {Layout::kNhd, Layout::kHnd, Layout::kPanels,
                                                    Layout::kLatent};

class World : public CacheWorld {
 public:
  World(const CacheForm& form, const Slots& from, const Slots& to) : CacheWorld(form) {
    sources = bind_values("sources", DType::kI64, from);
    targets = bind_values("targets", DType::kI64, to);
    for (const Buffer* b : planes()) start_.push_back(random(DType::kF32, b->numel()));
    reset();
  }
  CopySlots call() const {
    return {cache(), elements<int64_t>(sources), elements<int64_t>(targets)};
  }
  void reset() {
    size_t i = 0;
    for (const Buffer* b : planes()) write_bytes(*b, start_[i++]);
  }
  /// The pairs copied element by element.
  Bytes expected(const Slots& from, const Slots& to) {
    reset();
    stream().synchronize();
    const KvCache c = cache();
    const auto size = static_cast<int64_t>(size_of(cache_form.dtype)),
               tokens = int64_t{c.page_size};
    for (size_t i = 0; i < from.size(); ++i) {
      for (const KvPlane* p : {&c.k, &c.v}) {
        for (int64_t head = 0; head < c.num_kv_heads; ++head) {
          for (int64_t d = 0; d < p->head_dim; ++d)
            std::memcpy(p->data + p->offset(to[i] / tokens, to[i] % tokens, head, d) * size,
                        p->data + p->offset(from[i] / tokens, from[i] % tokens, head, d) * size,
                        static_cast<size_t>(size));
          if (p->scales != nullptr)
            p->scales[p->scale_offset(to[i] / tokens, to[i] % tokens, head)] =
                p->scales[p->scale_offset(from[i] / tokens, from[i] % tokens, head)];
        }
      }
    }
    return contents();
  }

  Buffer sources, targets;

 private:
  std::vector<Bytes> start_;  // at least as long as the planes
};

TEST(CopySlotsLaunch, TokensGoToTheirSlotsAndNothingElseChanges) {
  for_each_form(kLayouts, [](const CacheForm& form) {
    const int64_t page = form.page_size();
    // One source twice; one of page 0; a pair of the padding page, twice.
    const Slots from = {page + 1, page + 1, 2, 3 * page, 3 * page};
    World w(form, from, {2 * page, 3 * page + 3, 2 * page + 1, 0, 0});
    const Bytes expected =
        w.expected({from[0], from[1], from[2]}, {2 * page, 3 * page + 3, 2 * page + 1});
    w.run_both(
        copy_slots_launch(w.call()), [&] { w.reset(); },
        [&] {
          EXPECT_EQ(w.contents(), expected);
          EXPECT_EQ(w.found(), "ok");
        });
  });
}

TEST(CopySlotsLaunch, SlotsAreReadWhenItRuns) {
  World w({}, {4, 5}, {8, 9});
  GraphExec exec = w.record(copy_slots_launch(w.call()));
  w.write(w.sources, 0, Slots{6, 7});
  w.write(w.targets, 0, Slots{12, 11});
  const Bytes expected = w.expected({6, 7}, {12, 11});
  w.reset();
  exec.replay(w.stream());
  EXPECT_EQ(w.contents(), expected);
  EXPECT_EQ(w.found(), "ok");
}

TEST(CopySlotsLaunch, ASlotBeyondThePoolIsFoundAndNothingIsCopied) {
  for_each_form(kLayouts, [](const CacheForm& form) {
    const int64_t page = form.page_size();
    for (const int64_t missing : {form.pages * page, int64_t{-1}, INT64_MAX, INT64_MIN}) {
      for (const bool source : {true, false}) {
        if (!source && missing < 0) continue;  // dropped
        World w(form, {page, source ? missing : page}, {2 * page, source ? 2 * page + 1 : missing});
        const Bytes before = w.contents();
        w.stream().launch(copy_slots_launch(w.call()));
        EXPECT_EQ(w.contents(), before);
        const std::string found = w.found();
        EXPECT_NE(found.find("mem."), std::string::npos) << missing << found;
        EXPECT_NE(found.find(source ? "read by" : "written by"), std::string::npos) << found;
      }
    }
  });
}

TEST(CopySlotsLaunch, WhatWasCopiedIsInitialised) {
  World w({}, {4}, {8});
  constexpr int64_t kToken = World::kKvHeads * World::kDimQk;
  const Buffer fresh = w.bind("fresh", DType::kF32, w.k.shape, World::kDimQk);
  w.write(fresh, 4 * kToken, std::vector<float>(kToken, 1));
  CopySlots call = w.call();
  call.cache.k.data = fresh.data;
  const KernelLaunch launch = copy_slots_launch(call);
  w.stream().launch(launch);
  w.write(w.sources, 0, Slots{8});
  w.write(w.targets, 0, Slots{12});
  w.stream().launch(launch);
  EXPECT_EQ(w.found(), "ok");
  w.write(w.sources, 0, Slots{9});
  w.stream().launch(launch);
  const std::string found = w.found();
  EXPECT_NE(found.find("mem.uninit_read: fresh["), std::string::npos) << found;
}

TEST(CopySlotsLaunch, ATargetThatIsNamedTwiceOrASourceCopiesNothing) {
  for (const Slots& targets : {Slots{8, 8}, Slots{5, 9}, Slots{8, 5}}) {
    World w({}, {4, 5}, targets);
    const Bytes before = w.contents();
    w.run_both(
        copy_slots_launch(w.call()), [] {},
        [&] {
          EXPECT_EQ(w.contents(), before);
          EXPECT_EQ(w.found(), "ok");
        });
  }
}

TEST(CopySlotsLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w({}, {4, 5}, {8, 9});
  CopySlots call = w.call();
  const KernelLaunch kept = copy_slots_launch(call);
  EXPECT_EQ(kept, copy_slots_launch(call));
  call.cache.page_size = 2;
  EXPECT_NE(kept, copy_slots_launch(call));
}

}  // namespace
}  // namespace shadowgraph::copy_slots_launch_test
