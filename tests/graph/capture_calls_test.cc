// Capture as the device's calls show it: which call meets which rule of the gate, what the capture
// then holds, and that a refusal changes nothing else.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::capture_calls_test {
namespace {

using enum DeviceError;
using enum CaptureMode;
using enum CaptureStatus;

class CaptureCalls : public CaptureTest {};

using Call = std::function<DeviceError(CaptureTest&)>;

// Rule 1.

TEST_F(CaptureCalls, SynchronousWorkIsOnTheLegacyStream) {
  const std::pair<const char*, Call> calls[] = {
      {"memset", [](CaptureTest& t) { return t.api->memset({.dst = t.p, .width = 4}); }},
      {"memcpy",
       [](CaptureTest& t) { return t.api->memcpy({.dst = t.p, .src = t.p + 1, .width = 4}); }},
      {"memcpy_to_symbol", [](CaptureTest& t) { return t.api->memcpy_to_symbol(&t.host, 4); }},
      {"kernel", [](CaptureTest& t) { return t.add(kLegacyStream, 1); }},
      {"null stream", [](CaptureTest& t) { return t.add(kNullStream, 1); }},
      {"record", [](CaptureTest& t) { return t.api->event_record(t.event(), kLegacyStream); }},
      {"wait",
       [](CaptureTest& t) { return t.api->stream_wait_event(kLegacyStream, t.event(), 0); }},
      {"synchronize", [](CaptureTest& t) { return t.api->stream_synchronize(kLegacyStream); }},
      {"query", [](CaptureTest& t) { return t.api->stream_query(kLegacyStream); }},
      {"launch", [](CaptureTest& t) { return t.api->graph_launch(t.exec(), kLegacyStream); }},
  };
  for (const auto& [name, call] : calls) {
    for (const CaptureMode mode : kModes) {
      for (const bool blocking : {false, true}) {
        make();
        exec();
        s = capturing(mode, blocking);
        // In no stricter mode than relaxed, so that nothing else refuses the call.
        exchange(kRelaxed);
        EXPECT_EQ(call(*this), blocking ? kStreamCaptureImplicit : kSuccess) << name;
        EXPECT_EQ(status(s), blocking ? kInvalidated : kActive) << name;
        EXPECT_EQ(end(s), blocking ? kStreamCaptureInvalidated : kSuccess) << name;
      }
    }
  }
}

TEST_F(CaptureCalls, QueriesOfTheLegacyStreamsStateAreRefusedAndHarmless) {
  s = capturing(kGlobal, true);
  CaptureStatus seen = kActive;
  CaptureInfo info;
  EXPECT_EQ(api->stream_is_capturing(kLegacyStream, &seen), kStreamCaptureImplicit);
  EXPECT_EQ(api->stream_get_capture_info(kLegacyStream, &info), kStreamCaptureImplicit);
  EXPECT_EQ(status(s), kActive);
  EXPECT_EQ(end(s), kSuccess);
  EXPECT_EQ(api->stream_is_capturing(kLegacyStream, &seen), kSuccess);
  EXPECT_EQ(seen, kNone);
}

// Rule 2.

TEST_F(CaptureCalls, WhatIsCapturedIsNotWaitedFor) {
  const std::tuple<const char*, Call, DeviceError> calls[] = {
      {"stream_synchronize", [](CaptureTest& t) { return t.api->stream_synchronize(t.s); },
       kStreamCaptureUnsupported},
      {"stream_query", [](CaptureTest& t) { return t.api->stream_query(t.s); },
       kStreamCaptureUnsupported},
      {"device_synchronize", [](CaptureTest& t) { return t.api->device_synchronize(); },
       kStreamCaptureUnsupported},
      {"event_synchronize", [](CaptureTest& t) { return t.api->event_synchronize(t.e); },
       kCapturedEvent},
      {"event_query", [](CaptureTest& t) { return t.api->event_query(t.e); }, kCapturedEvent},
  };
  for (const auto& [name, call, error] : calls) {
    for (const CaptureMode mode : kModes) {
      for (const CaptureMode thread : kModes) {
        make();
        s = capturing(mode, false);
        ASSERT_EQ(api->event_record(e = event(), s), kSuccess);
        exchange(thread);
        EXPECT_EQ(call(*this), error) << name;
        EXPECT_EQ(status(s), kInvalidated) << name;
        EXPECT_EQ(end(s), kStreamCaptureInvalidated);
        EXPECT_EQ(status(s), kNone);
      }
    }
  }
}

// Rule 3.

TEST_F(CaptureCalls, EveryUnsafeCallIsRefusedWhereTheModeForbidsIt) {
  std::vector<std::pair<std::string, Call>> calls = {
      {"malloc", [](CaptureTest& t) { return t.api->malloc(4, &t.out); }},
      {"free", [](CaptureTest& t) { return t.api->free(t.device_block); }},
      {"malloc_managed", [](CaptureTest& t) { return t.api->malloc_managed(4, &t.out); }},
      {"host_alloc", [](CaptureTest& t) { return t.api->host_alloc(4, 0, &t.out); }},
      {"free_host", [](CaptureTest& t) { return t.api->free_host(t.host_block); }},
      {"malloc_async", [](CaptureTest& t) { return t.api->malloc_async(4, t.other, &t.out); }},
      {"free_async", [](CaptureTest& t) { return t.api->free_async(t.pool_block, t.other); }},
      {"stream_synchronize", [](CaptureTest& t) { return t.api->stream_synchronize(t.other); }},
      {"stream_query", [](CaptureTest& t) { return t.api->stream_query(t.other); }},
      {"event_synchronize", [](CaptureTest& t) { return t.api->event_synchronize(t.e); }},
      {"event_query", [](CaptureTest& t) { return t.api->event_query(t.e); }},
      {"instantiate", [](CaptureTest& t) { return t.api->graph_instantiate(t.empty, 0, &t.made); }},
      {"exec_destroy", [](CaptureTest& t) { return t.api->graph_exec_destroy(t.exec()); }},
      {"MallocPitch", [](CaptureTest& t) { return t.api->other_call(OtherCall::kMallocPitch); }},
  };
  for (const auto& [name, call] : calls) {
    for (const CaptureMode mode : kModes) {
      for (const CaptureMode thread : kModes) {
        make_all();
        s = capturing(mode, false);
        exchange(thread);
        const bool refused = mode != kRelaxed && thread != kRelaxed;
        EXPECT_EQ(call(*this), refused ? kStreamCaptureUnsupported : kSuccess) << name;
        EXPECT_EQ(status(s), refused ? kInvalidated : kActive) << name;
        // Nothing of it happened, and it added nothing: the same call goes through after the end.
        EXPECT_EQ(end(s), refused ? kStreamCaptureInvalidated : kSuccess) << name;
        if (refused) {
          EXPECT_EQ(call(*this), kSuccess) << name;
        } else {
          EXPECT_EQ(nodes(), 0u) << name;
        }
      }
    }
  }
}

TEST_F(CaptureCalls, TheThreadsModeIsExchanged) {
  CaptureMode mode = kRelaxed;
  EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, kGlobal);
  mode = kThreadLocal;
  EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, kRelaxed);
  EXPECT_EQ(api->thread_exchange_stream_capture_mode(nullptr), kInvalidValue);
}

// Rule 4.

TEST_F(CaptureCalls, WorkBecomesAChainAndDoesNotRun) {
  const StreamHandle a = capturing(kGlobal, false);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(edges(), (Pairs{{0, 1}, {1, 2}}));
  EXPECT_EQ(read(), 0);
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(api->graph_launch(instantiated(), a), kSuccess);
    EXPECT_EQ(read(), 3 * i);
  }
}

TEST_F(CaptureCalls, AnInvalidatedCaptureTakesNothingUntilItsEnd) {
  const StreamHandle a = capturing(kGlobal, false);
  EXPECT_EQ(api->stream_synchronize(a), kStreamCaptureUnsupported);
  void* q = nullptr;
  EXPECT_EQ(add(a, 1), kStreamCaptureInvalidated);
  EXPECT_EQ(api->memset_async({.dst = p, .width = 4}, a), kStreamCaptureInvalidated);
  EXPECT_EQ(api->memcpy_async({.dst = p, .src = p + 1, .width = 4}, a), kStreamCaptureInvalidated);
  EXPECT_EQ(api->malloc_async(4, a, &q), kStreamCaptureInvalidated);
  EXPECT_EQ(api->event_record(event(), a), kStreamCaptureInvalidated);
  EXPECT_EQ(api->launch_host_func(
                a, [](void*) {}, nullptr),
            kStreamCaptureInvalidated);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
  EXPECT_FALSE(g);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(read(), 1);
}

TEST_F(CaptureCalls, WhatNoCaptureTakesInvalidatesIt) {
  const std::pair<const char*, Call> calls[] = {
      {"launch", [](CaptureTest& t) { return t.api->graph_launch(t.exec(), t.s); }},
      {"upload", [](CaptureTest& t) { return t.api->graph_upload(t.exec(), t.s); }},
      {"callback",
       [](CaptureTest& t) {
         return t.api->stream_add_callback(
             t.s, [](void*) {}, nullptr);
       }},
  };
  for (const auto& [name, call] : calls) {
    make_all();
    s = capturing(kRelaxed, false);
    EXPECT_EQ(call(*this), kStreamCaptureUnsupported) << name;
    EXPECT_EQ(end(s), kStreamCaptureInvalidated) << name;
    EXPECT_EQ(call(*this), kSuccess) << name;
  }
}

TEST_F(CaptureCalls, AWrongShapeInvalidates) {
  const StreamHandle a = capturing(kGlobal, false);
  KernelLaunch wrong = adds(1);
  wrong.block.x = 4096;
  EXPECT_EQ(api->launch_kernel(wrong, stream()), kInvalidConfiguration);
  EXPECT_EQ(status(a), kActive);
  EXPECT_EQ(api->launch_kernel(wrong, a), kInvalidValue);
  EXPECT_EQ(api->launch_kernel(wrong, a), kStreamCaptureInvalidated);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);
}

// Rule 5.

TEST_F(CaptureCalls, AForkAndItsJoinAreEdges) {
  const StreamHandle a = capturing(kGlobal, false), b = stream();
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(wait(a, b), kSuccess);
  EXPECT_EQ(status(b), kActive);
  EXPECT_EQ(add(b, 10), kSuccess);
  EXPECT_EQ(add(a, 100), kSuccess);
  EXPECT_EQ(wait(b, a), kSuccess);
  EXPECT_EQ(add(a, 1000), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(status(b), kNone);
  EXPECT_EQ(edges(), (Pairs{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
}

TEST_F(CaptureCalls, WaitsUniteAndNameNoNodeTwice) {
  const StreamHandle a = capturing(kGlobal, false), b = stream(), c = stream();
  EXPECT_EQ(add(a, 1), kSuccess);
  for (const StreamHandle fork : {b, c}) {
    EXPECT_EQ(wait(a, fork), kSuccess);
    EXPECT_EQ(wait(a, fork), kSuccess);
    EXPECT_EQ(add(fork, 1), kSuccess);
  }
  for (const StreamHandle fork : {b, c}) EXPECT_EQ(wait(fork, a), kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(edges(), (Pairs{{0, 1}, {0, 2}, {0, 3}, {1, 3}, {2, 3}}));
}

TEST_F(CaptureCalls, OnlyAnExternalWaitNamesAnEventOfNoCapture) {
  const StreamHandle a = capturing(kGlobal, false);
  const EventHandle outside = event();
  ASSERT_EQ(api->event_record(outside, stream()), kSuccess);
  EXPECT_EQ(api->stream_wait_event(a, outside, kEventWaitExternal), kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(status(a), kActive);
  EXPECT_EQ(api->stream_wait_event(a, outside, kEventWaitDefault), kStreamCaptureIsolation);
  EXPECT_EQ(status(a), kInvalidated);
  EXPECT_EQ(end(a), kStreamCaptureInvalidated);

  const StreamHandle b = capturing(kGlobal, false);
  EXPECT_EQ(api->stream_wait_event(b, outside, kEventWaitExternal), kSuccess);
  EXPECT_EQ(add(b, 1), kSuccess);
  EXPECT_EQ(end(b), kSuccess);
  EXPECT_EQ(edges(), (Pairs{{0, 1}}));
}

TEST_F(CaptureCalls, CapturesDoNotMerge) {
  const StreamHandle a = capturing(kRelaxed, false), b = capturing(kRelaxed, false);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(wait(a, b), kStreamCaptureMerge);
  for (const StreamHandle x : {a, b}) EXPECT_EQ(end(x), kStreamCaptureInvalidated);
}

// Rule 6.

TEST_F(CaptureCalls, TheEndTellsWhatIsWrong) {
  EXPECT_EQ(end(stream()), kIllegalState);
  EXPECT_EQ(end(kLegacyStream), kIllegalState);
  {
    const StreamHandle a = capturing(kGlobal, false), b = stream();
    EXPECT_EQ(wait(a, b), kSuccess);
    EXPECT_EQ(end(b), kStreamCaptureUnmatched);
    EXPECT_EQ(status(b), kInvalidated);
    EXPECT_EQ(end(a), kStreamCaptureInvalidated);
    EXPECT_EQ(status(b), kNone);
  }
  const StreamHandle a = capturing(kGlobal, false), b = stream();
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(wait(a, b), kSuccess);
  EXPECT_EQ(add(b, 1), kSuccess);
  EXPECT_EQ(end(a), kStreamCaptureUnjoined);
  EXPECT_FALSE(g);
  for (const StreamHandle x : {a, b}) {
    EXPECT_EQ(status(x), kNone);
    EXPECT_EQ(add(x, 1), kSuccess);
  }
  EXPECT_EQ(read(), 2);
}

TEST_F(CaptureCalls, AForkIsJoinedOnlyWithAllOfItsNodes) {
  const StreamHandle a = capturing(kGlobal, false), b = stream(), c = stream();
  EXPECT_EQ(add(a, 1), kSuccess);
  for (const StreamHandle fork : {b, c}) {
    EXPECT_EQ(wait(a, fork), kSuccess);
    EXPECT_EQ(add(fork, 1), kSuccess);
  }
  EXPECT_EQ(wait(c, b), kSuccess);  // b stands behind both
  EXPECT_EQ(wait(c, a), kSuccess);  // and the origin behind one of them
  EXPECT_EQ(end(a), kStreamCaptureUnjoined);
}

TEST_F(CaptureCalls, ADestroyedForksWorkMustBeJoinedToo) {
  for (const bool joined : {false, true}) {
    make();
    const StreamHandle a = capturing(kGlobal, false), b = stream();
    EXPECT_EQ(add(a, 1), kSuccess);
    EXPECT_EQ(wait(a, b), kSuccess);
    EXPECT_EQ(add(b, 1), kSuccess);
    if (joined) {
      EXPECT_EQ(wait(b, a), kSuccess);
    }
    EXPECT_EQ(api->stream_destroy(b), kSuccess);
    EXPECT_EQ(found(), "graph.destroyed_in_capture");
    EXPECT_EQ(end(a), joined ? kSuccess : kStreamCaptureUnjoined);
  }
}

// Rule 7.

TEST_F(CaptureCalls, ARefusedBeginIsHarmless) {
  const StreamHandle a = capturing(kGlobal, false), b = stream();
  EXPECT_EQ(wait(a, b), kSuccess);
  for (const CaptureMode mode : kModes) {
    EXPECT_EQ(api->stream_begin_capture(a, mode), kIllegalState);
    EXPECT_EQ(api->stream_begin_capture(b, mode), kIllegalState);
    EXPECT_EQ(api->stream_begin_capture(kLegacyStream, mode), kStreamCaptureUnsupported);
  }
  EXPECT_EQ(api->stream_begin_capture(a, CaptureMode{-1}), kInvalidValue);
  EXPECT_EQ(api->stream_begin_capture({12345}, kGlobal), kInvalidResourceHandle);
  EXPECT_EQ(status(a), kActive);
  EXPECT_EQ(end(a), kSuccess);
}

// Dependencies by hand.

TEST_F(CaptureCalls, DependenciesAreReadAddedAndSet) {
  const StreamHandle a = capturing(kGlobal, false);
  CaptureInfo first, second;
  EXPECT_EQ(add(a, 1), kSuccess);
  ASSERT_EQ(api->stream_get_capture_info(a, &first), kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  ASSERT_EQ(api->stream_get_capture_info(a, &second), kSuccess);
  EXPECT_EQ(first.id, second.id);
  EXPECT_EQ(first.dependencies.size(), 1u);
  EXPECT_NE(first.dependencies, second.dependencies);
  EXPECT_EQ(
      api->stream_update_capture_dependencies(a, first.dependencies, {}, kSetCaptureDependencies),
      kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(
      api->stream_update_capture_dependencies(a, second.dependencies, {}, kAddCaptureDependencies),
      kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(edges(), (Pairs{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
}

TEST_F(CaptureCalls, ACaptureGoesOnInAGraph) {
  const StreamHandle a = capturing(kGlobal, false);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  std::vector<NodeHandle> before;
  ASSERT_EQ(api->graph_get_nodes(g, &before), kSuccess);
  const GraphHandle kept = g;
  ASSERT_EQ(api->stream_begin_capture_to_graph(a, g, before, {}, kGlobal), kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(end(a), kSuccess);
  EXPECT_EQ(g, kept);
  EXPECT_EQ(edges(), (Pairs{{0, 1}}));
}

TEST_F(CaptureCalls, AGraphThatWasGivenIsKeptWithoutAskingForIt) {
  ASSERT_EQ(api->graph_create(&g), kSuccess);
  const StreamHandle a = stream();
  ASSERT_EQ(api->stream_begin_capture_to_graph(a, g, {}, {}, kGlobal), kSuccess);
  EXPECT_EQ(add(a, 1), kSuccess);
  EXPECT_EQ(api->stream_end_capture(a, nullptr), kSuccess);
  EXPECT_EQ(nodes(), 1u);
}

}  // namespace
}  // namespace shadowgraph::capture_calls_test
