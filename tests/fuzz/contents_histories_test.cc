// Ordinary histories notice bytes that are not those of a slot's tokens, whoever's slots they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fuzz/planted_histories.h"
#include "launch/store_launch.h"

namespace shadowgraph::contents_histories_test {
namespace {

/// Knows the pools of the first layer from what is stored there.
struct PoolTap : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    for (const TappedLaunch& one : all) {
      if (cache_.num_pages > 0 || one.launch.kernel != &kStoreKv) continue;
      cache_ = call_of<StoreKv>(one.launch).call.cache;
    }
  }

 protected:
  bool knows_pool() const { return cache_.num_pages > 0; }
  /// A byte of a key changes, as no launch does it.
  void flip(int32_t slot) {
    const int64_t page = slot / cache_.page_size, token = slot % cache_.page_size;
    const KvPlane& k = cache_.k;
    const auto size = static_cast<int64_t>(size_of(k.dtype));
    k.data[(page * k.page_stride + token * k.token_stride) * size] ^= std::byte{0x41};
    act();
  }

 private:
  KvCache cache_;
};

/// A slot of the prefix cache that no request has.
struct IdleByte final : PoolTap {
  void step(Step& /*step*/, const PoolState& pools) override {
    idle_ = -1;
    for (const CachedSlot& cached : pools.cached) {
      const int32_t slot = cached.slot;
      const bool used = std::ranges::any_of(pools.requests, [&](const PoolRequest& r) {
        return std::ranges::find(pools.slots(r), slot) != pools.slots(r).end();
      });
      if (!used) idle_ = slot;
    }
  }
  void ran(const Meta& /*meta*/) override {
    if (idle_ > 0 && knows_pool()) flip(std::exchange(idle_, -1));
  }

 private:
  int32_t idle_ = -1;
};

/// A token that an earlier step has stored.
struct StoredByte final : PoolTap {
  void step(Step& /*step*/, const PoolState& pools) override {
    if (!knows_pool()) return;
    for (const PoolRequest& r : pools.requests)
      if (r.kv_len > 0) return flip(pools.text(r)[static_cast<size_t>(r.kv_len) - 1]);
  }
};

/// Two layers' keys are each other's.
struct OthersKeys final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool /*capturing*/) override {
    KernelLaunch* first = nullptr;
    for (TappedLaunch& one : all) {
      if (one.launch.kernel != &kStoreKv) continue;
      if (first == nullptr) {
        first = &one.launch;
        continue;
      }
      auto [a, rows_a] = call_of<StoreKv>(*first);
      auto [b, rows_b] = call_of<StoreKv>(one.launch);
      if (a.k.shape != b.k.shape || a.out_cache_loc.data() != b.out_cache_loc.data()) return;
      std::swap(a.k.data, b.k.data);
      *first = store_launch(a, rows_a), one.launch = store_launch(b, rows_b);
      return act();
    }
  }
};

/// A branch of a draft begins with the tail of another request's prefix, or of another token.
struct OtherTail final : Tap {
  void step(Step& step, const PoolState& /*pools*/) override {
    if (step.mode != ForwardMode::kDraftDecode || step.copies.size() < 2) return;
    if (step.copies[0].from == step.copies[1].from) return;
    std::swap(step.copies[0].from, step.copies[1].from);
    act();
  }
};

/// The law that is first to see it.
std::string first_law(const MakeTap& tap, const char* backend, uint64_t cases = 1000) {
  const FuzzResult result = planted_histories(tap, {find_backend(backend)}, cases);
  return result.findings.ok() ? "none" : result.findings.findings()[0].id;
}

TEST(ContentsHistories, AByteOfASlotThatNobodyReadsIsNoticed) {
  EXPECT_EQ(first_law(tap_of<IdleByte>(), "flashattention"), "life.still");
  EXPECT_EQ(first_law(tap_of<IdleByte>(), "flashinfer"), "life.still");
}

TEST(ContentsHistories, AByteThatChangesAfterItsStoreIsNoticed) {
  // A step reads it, or none does.
  for (const char* backend : {"flashattention", "triton", "trtllm_mla"}) {
    const std::string law = first_law(tap_of<StoredByte>(), backend);
    EXPECT_TRUE(law == "life.read" || law == "life.still") << backend << " " << law;
  }
}

TEST(ContentsHistories, KeysOfAnotherLayerAreNoticed) {
  EXPECT_NE(first_law(tap_of<OthersKeys>(), "flashattention"), "none");
}

TEST(ContentsHistories, ACopyOfAnotherTokenIsNoticed) {
  EXPECT_NE(first_law(tap_of<OtherTail>(), "flashattention"), "none");
}

}  // namespace
}  // namespace shadowgraph::contents_histories_test
