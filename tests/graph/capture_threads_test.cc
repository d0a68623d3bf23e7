// Threads that capture at the same time. Nothing here depends on who comes first: what the rules
// say holds for every interleaving, and a fixed interleaving gives a fixed history.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "core/choices.h"
#include "graph/capture_fixture.h"

namespace shadowgraph::capture_threads_test {
namespace {

using enum DeviceError;
using enum CaptureMode;
using enum CaptureStatus;

/// Rule 3: does a capture forbid unsafe calls to a thread?
bool forbidden(CaptureMode capture, CaptureMode thread, bool own) {
  if (capture == kRelaxed || thread == kRelaxed) return false;
  return own || (capture == kGlobal && thread == kGlobal);
}

void run_all(std::vector<std::thread>& threads) {
  for (std::thread& t : threads) t.join();
  threads.clear();
}

class CaptureThreads : public CaptureTest {};

struct Side {
  CaptureMode capture = kGlobal, thread = kGlobal;
  bool unsafe = false;  // does it make its unsafe call?
  StreamHandle stream;
  DeviceError call = kSuccess, ended = kSuccess;
  CaptureStatus before_end = kNone;
};

/// Both capture, both may call, both end: steps that the barrier keeps apart.
void capture_beside_another(DeviceApi& api, Side& side, std::barrier<>& barrier) {
  CaptureMode mode = side.thread;
  api.thread_exchange_stream_capture_mode(&mode);
  api.stream_begin_capture(side.stream, side.capture);
  barrier.arrive_and_wait();
  void* p = nullptr;
  if (side.unsafe) side.call = api.malloc(16, &p);
  barrier.arrive_and_wait();
  api.stream_is_capturing(side.stream, &side.before_end);
  barrier.arrive_and_wait();
  GraphHandle graph;
  side.ended = api.stream_end_capture(side.stream, &graph);
}

void expect_rules(const std::array<Side, 2>& sides) {
  for (size_t i = 0; i < 2; ++i) {
    const Side &own = sides[i], &other = sides[1 - i];
    const bool refused = own.unsafe && (forbidden(own.capture, own.thread, true) ||
                                        forbidden(other.capture, own.thread, false));
    EXPECT_EQ(own.call, refused ? kStreamCaptureUnsupported : kSuccess);
    const bool invalidated = (own.unsafe && forbidden(own.capture, own.thread, true)) ||
                             (other.unsafe && forbidden(own.capture, other.thread, false));
    EXPECT_EQ(own.before_end, invalidated ? kInvalidated : kActive);
    EXPECT_EQ(own.ended, invalidated ? kStreamCaptureInvalidated : kSuccess);
  }
}

TEST_F(CaptureThreads, TwoCapturesForbidWhatTheirModesSay) {
  for (const CaptureMode a : kModes)
    for (const CaptureMode b : kModes)
      for (const CaptureMode thread_a : kModes)
        for (const CaptureMode thread_b : kModes)
          for (int unsafe = 0; unsafe < 4; ++unsafe) {
            std::array<Side, 2> sides = {Side{a, thread_a, (unsafe & 1) != 0, {}},
                                         Side{b, thread_b, (unsafe & 2) != 0, {}}};
            std::barrier<> barrier(2);
            std::vector<std::thread> threads;
            for (Side& side : sides) {
              side.stream = stream();
              threads.emplace_back([&] { capture_beside_another(*api, side, barrier); });
            }
            run_all(threads);
            expect_rules(sides);
          }
}

TEST_F(CaptureThreads, OnlyARelaxedCaptureEndsInAnotherThread) {
  for (const CaptureMode mode : kModes) {
    for (const CaptureMode thread : kModes) {
      const StreamHandle a = capturing(mode, false);
      DeviceError ended = kSuccess;
      std::vector<std::thread> threads;
      threads.emplace_back([&] {
        exchange(thread);
        ended = end(a);
      });
      run_all(threads);
      EXPECT_EQ(ended, mode == kRelaxed ? kSuccess : kStreamCaptureWrongThread);
      EXPECT_EQ(status(a), kNone);
    }
  }
}

TEST_F(CaptureThreads, EveryThreadHasItsOwnModeErrorAndStream) {
  exchange(kRelaxed);
  EXPECT_EQ(end(kPerThreadStream), kIllegalState);
  EXPECT_EQ(api->stream_begin_capture(kPerThreadStream, kRelaxed), kSuccess);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    EXPECT_EQ(api->get_last_error(), kSuccess);
    EXPECT_EQ(status(kPerThreadStream), kNone);
    CaptureMode mode = kThreadLocal;
    EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), kSuccess);
    EXPECT_EQ(mode, kGlobal);
  });
  run_all(threads);
  EXPECT_EQ(api->get_last_error(), kIllegalState);
  EXPECT_EQ(end(kPerThreadStream), kSuccess);
}

// Stress: random legal programs, one a thread, for a fixed count.

constexpr int kThreads = 4;

/// Captures adds to a counter of its own and replays them; what the counter must hold.
int32_t capture_and_replay(DeviceApi& api, StreamHandle s, int32_t* counter, Rng& rng) {
  const auto launch = [&](int32_t v) {
    const KernelLaunch add{&k::add, {}, {.x = 32}, 0, k::args(counter, v, 1), false};
    EXPECT_EQ(api.launch_kernel(add, s), kSuccess);
    return v;
  };
  // Neither of the modes lets another thread's calls in, and this thread makes no unsafe ones.
  EXPECT_EQ(api.stream_begin_capture(s, rng.below(2) == 0 ? kThreadLocal : kRelaxed), kSuccess);
  int32_t captured = 0, sum = 0;
  for (uint32_t i = rng.below(4); i > 0; --i) captured += launch(static_cast<int32_t>(i));
  GraphHandle graph;
  ExecHandle exec;
  EXPECT_EQ(api.stream_end_capture(s, &graph), kSuccess);
  EXPECT_EQ(api.graph_instantiate(graph, 0, &exec), kSuccess);
  for (uint32_t i = rng.below(3); i > 0; --i) {
    EXPECT_EQ(api.graph_launch(exec, s), kSuccess);
    sum += captured + launch(1);
  }
  if (rng.below(2) == 0) {
    EXPECT_EQ(api.stream_synchronize(s), kSuccess);
  }
  EXPECT_EQ(api.graph_exec_destroy(exec), kSuccess);
  EXPECT_EQ(api.graph_destroy(graph), kSuccess);
  return sum;
}

TEST_F(CaptureThreads, ThreadsThatCaptureByThemselvesDoNotDisturbEachOther) {
  for (const uint64_t seed : {0, 1, 2}) {
    SimOptions options;
    options.seed = seed;
    make(options);
    std::array<int32_t, kThreads> sums{};
    std::array<StreamHandle, kThreads> streams;
    for (StreamHandle& x : streams) x = stream();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        Rng rng(seed * kThreads + i + 1);
        for (int n = 0; n < 100; ++n) sums[i] += capture_and_replay(*api, streams[i], p + i, rng);
      });
    run_all(threads);
    EXPECT_EQ(api->device_synchronize(), kSuccess);
    std::array<int32_t, kThreads> counters{};
    EXPECT_EQ(api->memcpy({.dst = counters.data(), .src = p, .width = sizeof counters}), kSuccess);
    EXPECT_EQ(counters, sums);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(CaptureThreads, ThreadsThatDisturbEachOtherGetTheCodesOfTheRules) {
  std::array<StreamHandle, kThreads> streams;
  for (StreamHandle& x : streams) x = stream();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      Rng rng(i + 1);
      for (int n = 0; n < 200; ++n) {
        const CaptureMode mode = kModes[rng.below(3)];
        EXPECT_EQ(api->stream_begin_capture(streams[i], mode), kSuccess);
        void* q = nullptr;
        const DeviceError allocated = rng.below(2) == 0 ? api->malloc(16, &q) : kSuccess;
        // Its own capture refuses it for certain; another thread's may.
        const bool may_refuse = allocated == kSuccess || allocated == kStreamCaptureUnsupported;
        EXPECT_TRUE(may_refuse && (mode == kRelaxed || q == nullptr));
        const bool own = mode != kRelaxed && allocated != kSuccess;
        GraphHandle graph;
        const DeviceError ended = api->stream_end_capture(streams[i], &graph);
        EXPECT_TRUE(ended == kStreamCaptureInvalidated || (ended == kSuccess && !own));
        // Only a global capture is open to other threads' calls.
        if (!own && mode != kGlobal) {
          EXPECT_EQ(ended, kSuccess);
        }
        EXPECT_EQ(status(streams[i]), kNone);
      }
    });
  run_all(threads);
}

// Determinism.

/// Lets threads take turns as it is written down.
class Turns {
 public:
  explicit Turns(std::vector<size_t> order) : order_(std::move(order)) {}
  template <class Step>
  void take(size_t thread, Step step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_[next_] == thread; });
    step();
    ++next_;
    changed_.notify_all();
  }

 private:
  const std::vector<size_t> order_;
  size_t next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// Codes in the order of the calls, and then in which order the work ran.
std::vector<int32_t> history(uint64_t seed, uint64_t interleaving) {
  constexpr size_t kSteps = 40;
  SimOptions options;
  options.seed = seed;
  SimDevice api(options);
  void* q = nullptr;
  EXPECT_EQ(api.malloc(1024, &q), kSuccess);
  EXPECT_EQ(api.memset({.dst = q, .width = 1024}), kSuccess);
  EXPECT_EQ(api.device_synchronize(), kSuccess);
  std::vector<int32_t> codes;
  Rng rng(interleaving);
  std::vector<size_t> order;
  for (size_t left[] = {kSteps, kSteps}; left[0] + left[1] > 0;) {
    const size_t thread = left[0] == 0 || (left[1] > 0 && rng.below(2) == 1) ? 1 : 0;
    --left[thread];
    order.push_back(thread);
  }
  order.push_back(2);  // nobody
  std::array<StreamHandle, 2> streams;
  for (StreamHandle& s : streams)
    EXPECT_EQ(api.stream_create_with_flags(kStreamNonBlocking, &s), kSuccess);
  Turns turns(order);
  const auto step = [&](size_t thread, Rng& own) {
    void* unused = nullptr;
    GraphHandle graph;
    const StreamHandle s = streams[thread];
    const int32_t value = static_cast<int32_t>(codes.size());
    switch (own.below(8)) {
      case 0: return api.stream_begin_capture(s, kModes[own.below(3)]);
      case 1: return api.stream_end_capture(s, &graph);
      case 2: return api.malloc(16, &unused);
      case 3: return api.stream_query(s);
      default:
        return api.launch_kernel(
            {&k::append, {}, {.x = 1}, 0, k::args(static_cast<int32_t*>(q), value), false}, s);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      Rng own(interleaving * 2 + i + 1);
      for (size_t n = 0; n < kSteps; ++n)
        turns.take(i, [&] { codes.push_back(static_cast<int32_t>(step(i, own))); });
    });
  run_all(threads);
  for (const StreamHandle s : streams) {
    GraphHandle graph;
    codes.push_back(static_cast<int32_t>(api.stream_end_capture(s, &graph)));
  }
  std::array<int32_t, 256> log{};
  EXPECT_EQ(api.device_synchronize(), kSuccess);
  EXPECT_EQ(api.memcpy({.dst = log.data(), .src = q, .width = sizeof log}), kSuccess);
  codes.insert(codes.end(), log.begin(), log.end());
  return codes;
}

TEST(CaptureHistory, IsFixedBySeedAndInterleaving) {
  bool seed_matters = false, interleaving_matters = false;
  for (uint64_t interleaving = 1; interleaving <= 8; ++interleaving) {
    for (const uint64_t seed : {0, 7}) {
      EXPECT_EQ(history(seed, interleaving), history(seed, interleaving));
    }
    seed_matters = seed_matters || history(7, interleaving) != history(8, interleaving);
    interleaving_matters =
        interleaving_matters || history(0, interleaving) != history(0, interleaving + 1);
  }
  EXPECT_TRUE(seed_matters && interleaving_matters);
}

}  // namespace
}  // namespace shadowgraph::capture_threads_test
