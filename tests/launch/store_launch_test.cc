// The store launch: the call's bits, page 0 for padding, and what a shadow sees of bad slots.
#include "launch/store_launch.h"

#include "launch/cache_world.h"

namespace shadowgraph::store_launch_test {
namespace {

using Slots = std::vector<int64_t>;

constexpr std::initializer_list<Layout> kLayouts = {Layout::kNhd, Layout::kHnd, Layout::kPanels};
constexpr int32_t kHeads = CacheWorld::kKvHeads, kDimQk = CacheWorld::kDimQk;

/// Tokens and a cache on a device, whose bytes are all 0x55.
class World : public CacheWorld {
 public:
  World(const CacheForm& form, const Slots& slots_of_tokens) : CacheWorld(form) {
    const auto tokens = static_cast<int64_t>(slots_of_tokens.size());
    k_new = bind("k_new", DType::kF32, {tokens, kHeads, kDimQk}, kHeads * kDimQk);
    v_new = bind("v_new", DType::kF32, {tokens, kHeads, kDimVo}, kHeads * kDimVo);
    slots = bind_values("slots", DType::kI64, slots_of_tokens);
    randomise(k_new);
    randomise(v_new);
    for (const Buffer* b : planes()) write_bytes(*b, Bytes(b->bytes(), std::byte{0x55}));
  }
  StoreKv call() const {
    StoreKv c;
    c.k = k_new.view();
    c.v = v_new.view();
    c.out_cache_loc = elements<int64_t>(slots);
    c.cache = cache();
    return c;
  }
  void clear() {
    for (const Buffer* b : planes()) fill(*b, 0x55);
  }
  /// What the call leaves behind that drops such tokens by itself.
  Bytes expected(const Slots& kept) {
    clear();
    stream().synchronize();
    StoreKv c = call();
    c.out_cache_loc = kept;
    const Status status = store_kv(c);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return contents();
  }

  Buffer k_new, v_new, slots;
};

TEST(StoreLaunch, TheBitsOfTheCallEagerAndReplayed) {
  for_each_form(kLayouts, [](const CacheForm& form) {
    const Slots given = {form.slot(3, 1), -1, form.slot(1, 0), form.slot(2, 3)};
    World w(form, given);
    const Bytes expected = w.expected(given);
    w.run_both(
        store_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.contents(), expected);
          EXPECT_EQ(w.found(), "ok");
        });
  });
}

TEST(StoreLaunch, ManyTokensMayNamePageZeroAndAreDropped) {
  for_each_form(kLayouts, [](const CacheForm& form) {
    const int64_t last_of_page_0 = form.page_size() - 1, first_of_page_1 = form.page_size();
    World w(form, {0, first_of_page_1, 0, last_of_page_0, last_of_page_0});
    const Bytes expected = w.expected({-1, first_of_page_1, -1, -1, -1});
    w.run_both(
        store_launch(w.call()), [&] { w.clear(); },
        [&] {
          EXPECT_EQ(w.contents(), expected);
          EXPECT_EQ(w.found(), "ok");
        });
  });
}

TEST(StoreLaunch, SlotsAreReadWhenItRuns) {
  World w({}, {4, 5});
  GraphExec exec = w.record(store_launch(w.call()));
  w.write(w.slots, 0, Slots{9, 14});
  const Bytes expected = w.expected({9, 14});
  w.clear();
  exec.replay(w.stream());
  EXPECT_EQ(w.contents(), expected);
  EXPECT_EQ(w.found(), "ok");
}

TEST(StoreLaunch, ASlotBeyondThePoolIsFoundAndNothingIsStored) {
  for_each_form(kLayouts, [](const CacheForm& form) {
    // The first one that is not there, one far away, one whose place cannot be computed.
    for (const int64_t slot :
         {form.slot(form.pages, 0), form.slot(form.pages + 1000, 1), INT64_MAX}) {
      World w(form, {4, slot});
      w.clear();
      const Bytes before = w.contents();
      w.stream().launch(store_launch(w.call()));
      EXPECT_EQ(w.contents(), before);
      const std::string found = w.found();
      EXPECT_NE(found.find("mem."), std::string::npos) << found;
      EXPECT_NE(found.find("written by"), std::string::npos) << found;
      for (const char* name : {"k[", "v[", "k_scales[", "v_scales["}) {
        if ((name[1] == '_' && !form.int8()) || slot == INT64_MAX) continue;
        EXPECT_NE(found.find(name), std::string::npos) << name << " " << found;
      }
    }
  });
}

TEST(StoreLaunch, ASlotNamedTwiceStoresNothing) {
  World w({}, {4, 5, 4});
  w.run_both(
      store_launch(w.call()), [&] { w.clear(); },
      [&] {
        EXPECT_EQ(w.contents(), Bytes(w.contents().size(), std::byte{0x55}));
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(StoreLaunch, AnotherRequestsSlotIsFound) {
  // Two tokens a request; the second one's are in page 2.
  World w({}, {4, 5, 8, 9});
  for (const Buffer* b : w.planes()) w.set_owner(*b, 1, 1), w.set_owner(*b, 2, 2);
  const OwnerId rows[] = {1, 2};
  w.device.set_row_owners(rows);
  const auto none = [] {};
  w.run_both(store_launch(w.call(), {.a_request = 2}), none, [&] { EXPECT_EQ(w.found(), "ok"); });
  w.write(w.slots, 0, Slots{4, 10});
  w.run_both(store_launch(w.call(), {.a_request = 2}), none, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.wrong_region: k["), std::string::npos) << found;
    EXPECT_NE(found.find("that of request 2"), std::string::npos) << found;
    EXPECT_NE(found.find("row 0"), std::string::npos) << found;
  });
  w.run_both(store_launch(w.call()), none,
             [&] { EXPECT_EQ(w.found(), "ok") << "whose tokens they are is not known"; });
}

TEST(StoreLaunch, NewKeysOfPaddingAreNotRead) {
  World w({}, {4, 0});
  Buffer other = w.bind("other", DType::kF32, {2, kHeads, kDimQk}, kHeads * kDimQk);
  w.write(other, 0, std::vector<float>(kHeads * kDimQk, 1));  // of the first token only
  StoreKv call = w.call();
  call.k = other.view();
  const auto none = [] {};
  w.run_both(store_launch(call), none, [&] { EXPECT_EQ(w.found(), "ok"); });
  w.write(w.slots, 1, Slots{5});
  w.run_both(store_launch(call), none, [&] {
    const std::string found = w.found();
    EXPECT_NE(found.find("mem.uninit_read: other[1]"), std::string::npos) << found;
  });
}

TEST(StoreLaunch, BuiltAgainItIsTheSameByteByByte) {
  const World w({}, {4, 5});
  StoreKv call = w.call();
  const KernelLaunch kept = store_launch(call, {.a_request = 1});
  EXPECT_EQ(kept, store_launch(call, {.a_request = 1}));
  EXPECT_NE(kept, store_launch(call, {.a_request = 2}));
  call.cache.k_scale *= 2;
  EXPECT_NE(kept, store_launch(call, {.a_request = 1}));
}

}  // namespace
}  // namespace shadowgraph::store_launch_test
