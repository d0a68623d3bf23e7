// Slots copied on the device: bit for bit in every layout, nothing else changes, and slots that are
// refused.
#include "backends/copy_slots_launch.h"

#include "backends/launch_world.h"
#include "kernels/copy_kv.h"

namespace shadowgraph {
namespace {

using Slots = std::vector<int64_t>;

enum class Layout { kNhd, kHnd, kPanels, kLatent };

constexpr int64_t kPages = 4;
constexpr int32_t kHeads = 2, kDimQk = 16, kDimVo = 8;

struct Form {
  Layout layout = Layout::kNhd;
  DType dtype = DType::kF32;

  int64_t page_size() const { return layout == Layout::kPanels ? 16 : 4; }
};

class World : public LaunchWorld {
 public:
  World(const Form& form, const Slots& from, const Slots& to) : form_(form) {
    sources = bind_values("sources", DType::kI64, from);
    targets = bind_values("targets", DType::kI64, to);
    bind_cache();
    for (const Buffer* b : planes()) start_.push_back(random(DType::kF32, b->numel()));
    reset();
  }
  CopySlots call() const {
    return {cache(), elements<int64_t>(sources), elements<int64_t>(targets)};
  }
  std::vector<const Buffer*> planes() const {
    if (form_.layout == Layout::kLatent) return {&k};
    if (form_.dtype != DType::kI8) return {&k, &v};
    return {&k, &v, &k_scales, &v_scales};
  }
  void reset() {
    size_t i = 0;
    for (const Buffer* b : planes()) write_bytes(*b, start_[i++]);
  }
  Bytes contents() {
    Bytes all;
    for (const Buffer* b : planes()) {
      const Bytes one = bytes(*b);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  /// The pairs copied element by element.
  Bytes expected(const Slots& from, const Slots& to) {
    reset();
    stream().synchronize();
    const KvCache c = cache();
    const auto size = static_cast<int64_t>(size_of(form_.dtype)), tokens = int64_t{c.page_size};
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

  Buffer sources, targets, k, v, k_scales, v_scales;

 private:
  void bind_cache() {
    const int64_t size = form_.page_size();
    switch (form_.layout) {
      case Layout::kNhd:
        k = bind("k", form_.dtype, {kPages, size, kHeads, kDimQk}, kDimQk);
        v = bind("v", form_.dtype, {kPages, size, kHeads, kDimVo}, kDimVo);
        break;
      case Layout::kHnd:
        k = bind("k", form_.dtype, {kPages, kHeads, size, kDimQk}, kDimQk);
        v = bind("v", form_.dtype, {kPages, kHeads, size, kDimVo}, kDimVo);
        break;
      case Layout::kPanels:
        k = bind("k", form_.dtype, {kPages, kHeads, 1, key_panel_elements(form_.dtype, kDimQk)});
        v = bind("v", form_.dtype, {kPages, kHeads, 1, value_panel_elements(kDimVo)});
        break;
      case Layout::kLatent: k = bind("k", form_.dtype, {kPages, size, kDimQk}, kDimQk); break;
    }
    if (form_.dtype != DType::kI8) return;
    k_scales = bind("k_scales", DType::kF32, {kPages, size, kHeads});
    v_scales = bind("v_scales", DType::kF32, {kPages, size, kHeads});
  }
  KvCache cache() const {
    KvCache c;
    switch (form_.layout) {
      case Layout::kNhd: c = KvCache::nhd(k.view(), v.view()); break;
      case Layout::kHnd: c = KvCache::hnd(k.view(), v.view()); break;
      case Layout::kPanels: c = KvCache::panels(k.view(), v.view(), kDimQk, kDimVo); break;
      case Layout::kLatent: c = KvCache::mla_latent(k.view(), kDimVo); break;
    }
    return form_.dtype == DType::kI8 ? c.with_scales(k_scales.view(), v_scales.view()) : c;
  }

  const Form form_;
  std::vector<Bytes> start_;  // at least as long as the planes
};

template <class Test>
void for_each_form(Test test) {
  for (const Layout layout : {Layout::kNhd, Layout::kHnd, Layout::kPanels, Layout::kLatent}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
      if (layout == Layout::kLatent && dtype == DType::kI8) continue;
      SCOPED_TRACE(std::to_string(static_cast<int>(layout)) + " " + std::string(name_of(dtype)));
      test(Form{layout, dtype});
    }
  }
}

TEST(CopySlotsLaunch, TokensGoToTheirSlotsAndNothingElseChanges) {
  for_each_form([](const Form& form) {
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
  for_each_form([](const Form& form) {
    const int64_t page = form.page_size();
    for (const int64_t missing : {kPages * page, int64_t{-1}, INT64_MAX, INT64_MIN}) {
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
  constexpr int64_t kToken = kHeads * kDimQk;
  const Buffer fresh = w.bind("fresh", DType::kF32, {kPages, 4, kHeads, kDimQk}, kDimQk);
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
}  // namespace shadowgraph
