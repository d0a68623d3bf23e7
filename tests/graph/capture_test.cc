// docs/graphs.md "The gate": the state machine by itself, every rule in full tables.
#include "graph/capture/capture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

namespace shadowgraph::capture_test {
namespace {

using enum DeviceError;
using enum CaptureMode;

constexpr CaptureMode kModes[] = {kGlobal, kThreadLocal, kRelaxed};
constexpr bool kBooleans[] = {false, true};

/// Rule 3 as one predicate: does a capture forbid unsafe calls to a thread?
bool forbidden(CaptureMode capture, CaptureMode thread, bool own) {
  if (capture == kRelaxed || thread == kRelaxed) return false;
  return own || (capture == kGlobal && thread == kGlobal);
}

class Gate : public ::testing::Test {
 protected:
  struct State {
    State() {
      for (SimStream& s : streams) s.blocking = false;
      legacy.legacy = true;
      here.id = 1, there.id = 2;
    }
    void begin(SimStream& s, CaptureMode mode = kGlobal, bool own = true) {
      captures.begin(s, mode, own ? here : there, {}, {});
    }
    /// The stream captured into, as an event-record leaves it.
    SimEvent record(const SimStream& s) {
      SimEvent e;
      e.state = SimEvent::State::kCaptured;
      e.capture_id = s.capture->id;
      e.nodes = s.dependencies.nodes;
      return e;
    }
    DeviceError wait(SimStream& s, const SimEvent& e, bool external = false) {
      return captures.wait(s, e, external, &add_node, &eager);
    }
    DeviceError fork(SimStream& from, SimStream& to) { return wait(to, record(from)); }
    Captures::End end(SimStream& s, bool joined = true, bool own = true) {
      const auto is_joined = [](void* context, const Capture&) {
        return *static_cast<bool*>(context);
      };
      return captures.end(s, own ? here : there, is_joined, &joined);
    }

    Captures captures;
    std::array<SimStream, 3> streams;
    SimStream &a = streams[0], &b = streams[1], &c = streams[2];
    SimStream legacy;
    ThreadState here, there;
    bool add_node = false, eager = false;
  };

  static bool is_valid(const SimStream& s) {
    return s.capture != nullptr && !s.capture->invalidated;
  }
  static SimEvent recorded() {
    SimEvent e;
    e.state = SimEvent::State::kRecorded;
    return e;
  }
};

// Rule 1.

TEST_F(Gate, WorkOnTheLegacyStreamIsRefusedWhileABlockingStreamCaptures) {
  using Enter = std::function<DeviceError(State&)>;
  const Enter calls[] = {
      [](State& s) { return s.captures.enter_legacy(); },
      [](State& s) { return s.captures.enter_uncapturable(s.legacy); },
      [](State& s) { return s.captures.enter_synchronize(s.legacy, s.there); },
      [](State& s) {
        bool captures = true;
        const DeviceError error = s.captures.enter_enqueue(s.legacy, &captures);
        EXPECT_FALSE(captures);
        return error;
      },
  };
  for (const Enter& call : calls) {
    for (int bits = 0; bits < 16; ++bits) {
      State s;
      const bool captures[] = {(bits & 1) != 0, (bits & 2) != 0};
      bool blocked = false;
      for (int i = 0; i < 2; ++i) {
        const auto at = static_cast<size_t>(i);
        s.streams[at].blocking = (bits & (4 << i)) != 0;
        if (captures[i]) s.begin(s.streams[at], kRelaxed);
        blocked = blocked || (captures[i] && s.streams[at].blocking);
      }
      const DeviceError expected = blocked ? kStreamCaptureImplicit : kSuccess;
      EXPECT_EQ(s.captures.query_legacy(), expected) << bits;
      for (int i = 0; i < 2; ++i)
        EXPECT_EQ(is_valid(s.streams[static_cast<size_t>(i)]), captures[i]) << "a query, " << bits;
      EXPECT_EQ(call(s), expected) << bits;
      for (int i = 0; i < 2; ++i) {
        const SimStream& stream = s.streams[static_cast<size_t>(i)];
        EXPECT_EQ(is_valid(stream), captures[i] && !stream.blocking) << bits;
      }
    }
  }
}

TEST_F(Gate, AForkedBlockingStreamCountsToo) {
  State s;
  s.b.blocking = true;
  s.begin(s.a);
  EXPECT_EQ(s.captures.enter_legacy(), kSuccess);
  ASSERT_EQ(s.fork(s.a, s.b), kSuccess);
  EXPECT_EQ(s.captures.enter_legacy(), kStreamCaptureImplicit);
  EXPECT_FALSE(is_valid(s.a));
}

// Rule 2.

TEST_F(Gate, NothingCapturedIsSynchronisedOrQueriedInAnyMode) {
  for (const CaptureMode mode : kModes) {
    for (const CaptureMode thread_mode : kModes) {
      for (const bool own : kBooleans) {
        const auto state = [&] {
          auto s = std::make_unique<State>();
          s->here.mode = s->there.mode = thread_mode;
          s->begin(s->a, mode, own);
          EXPECT_EQ(s->fork(s->a, s->b), kSuccess);
          s->begin(s->c, kRelaxed, own);
          return s;
        };
        for (int fork = 0; fork < 2; ++fork) {
          const auto s = state();
          EXPECT_EQ(s->captures.enter_synchronize(fork == 0 ? s->a : s->b, s->here),
                    kStreamCaptureUnsupported);
          EXPECT_FALSE(is_valid(s->a));
          EXPECT_TRUE(is_valid(s->c));
        }
        const auto e = state();
        EXPECT_EQ(e->captures.enter_event(e->record(e->b), e->here), kCapturedEvent);
        EXPECT_FALSE(is_valid(e->a));
        EXPECT_TRUE(is_valid(e->c));
        const auto d = state();
        EXPECT_EQ(d->captures.enter_device_synchronize(), kStreamCaptureUnsupported);
        EXPECT_FALSE(is_valid(d->a));
        EXPECT_FALSE(is_valid(d->c));
      }
    }
  }
  State idle;
  EXPECT_EQ(idle.captures.enter_device_synchronize(), kSuccess);
}

TEST_F(Gate, AnEventOfACaptureThatIsOverIsAnInvalidValue) {
  State s;
  s.begin(s.a, kRelaxed);
  s.begin(s.b, kRelaxed);
  const SimEvent invalidated = s.record(s.a), ended = s.record(s.b);
  EXPECT_TRUE(s.captures.active(invalidated) != nullptr && !s.captures.is_stale(invalidated));
  Captures::invalidate(s.a.capture);
  ASSERT_EQ(s.end(s.b).error, kSuccess);
  for (const SimEvent& e : {invalidated, ended}) {
    EXPECT_TRUE(s.captures.active(e) == nullptr && s.captures.is_stale(e));
    EXPECT_EQ(s.captures.enter_event(e, s.here), kInvalidValue);
  }
  EXPECT_FALSE(s.captures.is_stale(SimEvent()) || s.captures.is_stale(recorded()));
}

// Rule 3.

TEST_F(Gate, UnsafeCallsAreForbiddenAsTheRuleSays) {
  const std::pair<const char*, std::function<DeviceError(State&)>> calls[] = {
      {"unsafe", [](State& s) { return s.captures.enter_unsafe(s.here); }},
      {"another stream", [](State& s) { return s.captures.enter_synchronize(s.c, s.here); }},
      {"another event", [](State& s) { return s.captures.enter_event(recorded(), s.here); }},
      {"no event yet", [](State& s) { return s.captures.enter_event(SimEvent(), s.here); }},
  };
  for (const auto& [name, call] : calls)
    for (const CaptureMode thread : kModes)
      for (const CaptureMode first : kModes)
        for (const CaptureMode second : kModes)
          for (const bool own_first : kBooleans)
            for (const bool own_second : kBooleans) {
              State s;
              s.here.mode = thread;
              s.begin(s.a, first, own_first);
              s.begin(s.b, second, own_second);
              const bool a = forbidden(first, thread, own_first);
              const bool b = forbidden(second, thread, own_second);
              EXPECT_EQ(call(s), a || b ? kStreamCaptureUnsupported : kSuccess) << name;
              EXPECT_EQ(is_valid(s.a), !a) << name << ' ' << static_cast<int>(first);
              EXPECT_EQ(is_valid(s.b), !b) << name << ' ' << static_cast<int>(second);
            }
}

// Rule 4.

TEST_F(Gate, WorkIsCapturedWhileTheCaptureIsValid) {
  State s;
  bool captures = true;
  EXPECT_EQ(s.captures.enter_enqueue(s.a, &captures), kSuccess);
  EXPECT_FALSE(captures);
  s.begin(s.a);
  EXPECT_EQ(s.captures.enter_enqueue(s.a, &captures), kSuccess);
  EXPECT_TRUE(captures);
  EXPECT_EQ(s.captures.enter_enqueue(s.b, &captures), kSuccess);
  EXPECT_FALSE(captures);
  Captures::invalidate(s.a.capture);
  EXPECT_EQ(s.captures.enter_enqueue(s.a, &captures), kStreamCaptureInvalidated);
}

TEST_F(Gate, WhatNoCaptureTakesInvalidatesIt) {
  State s;
  EXPECT_EQ(s.captures.enter_uncapturable(s.a), kSuccess);
  s.begin(s.a, kRelaxed);
  EXPECT_EQ(s.captures.enter_uncapturable(s.b), kSuccess);
  EXPECT_TRUE(is_valid(s.a));
  EXPECT_EQ(s.captures.enter_uncapturable(s.a), kStreamCaptureUnsupported);
  EXPECT_FALSE(is_valid(s.a));
}

TEST_F(Gate, ADependencySetHoldsANodeOnce) {
  DependencySet set;
  set.become({5});
  set.join(NodeHandle{7}, EdgeData{1, 0, 1});
  set.join(std::vector<NodeHandle>{{5}, {6}, {7}});
  EXPECT_EQ(set.nodes, (std::vector<NodeHandle>{{5}, {7}, {6}}));
  EXPECT_EQ(set.edge_data, (std::vector<EdgeData>{{}, {1, 0, 1}, {}}));
  set.become({8});
  EXPECT_EQ(set.nodes, std::vector<NodeHandle>{{8}});
  EXPECT_EQ(set.edge_data.size(), 1u);
}

// Rule 5.

TEST_F(Gate, WaitsForACapturedEventForkAndJoin) {
  State s;
  s.begin(s.a);
  s.a.dependencies.become({5});
  EXPECT_EQ(s.fork(s.a, s.b), kSuccess);
  EXPECT_FALSE(s.add_node || s.eager);
  EXPECT_EQ(s.b.capture, s.a.capture);
  EXPECT_EQ(s.b.dependencies.nodes, std::vector<NodeHandle>{{5}});
  EXPECT_EQ(s.a.capture->participants, (std::vector<SimStream*>{&s.a, &s.b}));

  s.b.dependencies.become({6});
  EXPECT_EQ(s.fork(s.b, s.a), kSuccess);
  EXPECT_EQ(s.a.dependencies.nodes, (std::vector<NodeHandle>{{5}, {6}}));
  EXPECT_EQ(s.a.capture->participants.size(), 2u);
}

TEST_F(Gate, AWaitThatIsRefusedSaysWhyAndInvalidatesWhatItTouches) {
  {
    State s;
    s.begin(s.a);
    s.begin(s.b);
    s.begin(s.c);
    EXPECT_EQ(s.fork(s.a, s.b), kStreamCaptureMerge);
    EXPECT_FALSE(is_valid(s.a) || is_valid(s.b));
    EXPECT_TRUE(is_valid(s.c));
  }
  {
    State s;
    s.begin(s.a);
    EXPECT_EQ(s.fork(s.a, s.legacy), kStreamCaptureImplicit);
    EXPECT_FALSE(is_valid(s.a));
    EXPECT_EQ(s.legacy.capture, nullptr);
  }
  {
    State s;
    s.begin(s.a);
    EXPECT_EQ(s.wait(s.a, recorded()), kStreamCaptureIsolation);
    EXPECT_FALSE(is_valid(s.a));
    for (const bool external : kBooleans)
      EXPECT_EQ(s.wait(s.a, recorded(), external), kStreamCaptureInvalidated);
    EXPECT_FALSE(s.add_node || s.eager);
  }
}

TEST_F(Gate, AWaitForAnEventOfNoCaptureIsANodeOrEager) {
  for (const bool external : kBooleans) {
    State s;
    EXPECT_EQ(s.wait(s.b, recorded(), external), kSuccess);
    EXPECT_TRUE(s.eager && !s.add_node);
    s.begin(s.a);
    EXPECT_EQ(s.wait(s.a, SimEvent(), external), kSuccess);  // never recorded: nothing to wait for
    EXPECT_EQ(s.add_node, external);
    EXPECT_FALSE(s.eager);
    EXPECT_TRUE(is_valid(s.a));
  }
  State s;
  s.begin(s.a);
  EXPECT_EQ(s.wait(s.a, recorded(), true), kSuccess);
  EXPECT_TRUE(s.add_node && !s.eager && is_valid(s.a));
}

TEST_F(Gate, AWaitForAnEventOfACaptureThatIsOverIsRefused) {
  for (const bool external : kBooleans) {
    State s;
    s.begin(s.a);
    const SimEvent stale = s.record(s.a);
    ASSERT_EQ(s.end(s.a).error, kSuccess);
    EXPECT_EQ(s.wait(s.b, stale, external), kInvalidValue);
    EXPECT_FALSE(s.add_node || s.eager);
    s.begin(s.a);
    EXPECT_EQ(s.wait(s.a, stale, external), kInvalidValue);
    EXPECT_FALSE(is_valid(s.a));
  }
}

// Rule 6.

/// What EndCapture answers, in the order in which CUDA looks.
DeviceError expected_end(bool fork, bool invalidated, bool own, CaptureMode mode, bool joined) {
  if (fork) return kStreamCaptureUnmatched;
  if (invalidated) return kStreamCaptureInvalidated;
  if (!own && mode != kRelaxed) return kStreamCaptureWrongThread;
  return joined ? kSuccess : kStreamCaptureUnjoined;
}

TEST_F(Gate, TheEndAnswersAsTheRuleSaysAndReleasesEveryStream) {
  for (const CaptureMode mode : kModes)
    for (const bool own : kBooleans)
      for (const bool fork : kBooleans)
        for (const bool invalidated : kBooleans)
          for (const bool joined : kBooleans) {
            State s;
            s.begin(s.a, mode);
            s.a.dependencies.become({5});
            ASSERT_EQ(s.fork(s.a, s.b), kSuccess);
            s.begin(s.c, mode);
            if (invalidated) Captures::invalidate(s.a.capture);
            const Captures::End end = s.end(fork ? s.b : s.a, joined, own);
            EXPECT_EQ(end.error, expected_end(fork, invalidated, own, mode, joined));
            EXPECT_TRUE(is_valid(s.c));
            ASSERT_EQ(end.over == nullptr, fork);
            for (const SimStream* p : {&s.a, &s.b}) {
              EXPECT_EQ(p->capture == nullptr, !fork);
              EXPECT_EQ(p->dependencies.nodes.empty(), !fork);
              EXPECT_FALSE(is_valid(*p));  // the wrong stream's end invalidates
            }
          }
}

TEST_F(Gate, TheEndOfNoCaptureIsAnIllegalState) {
  State s;
  for (SimStream* stream : {&s.a, &s.legacy}) {
    const Captures::End end = s.end(*stream);
    EXPECT_EQ(end.error, kIllegalState);
    EXPECT_EQ(end.over, nullptr);
  }
}

TEST_F(Gate, CapturesAreToldApartForEver) {
  State s;
  s.begin(s.a);
  const uint64_t first = s.a.capture->id;
  const SimEvent stale = s.record(s.a);
  ASSERT_EQ(s.end(s.a).error, kSuccess);
  s.begin(s.a);
  EXPECT_NE(s.a.capture->id, first);
  EXPECT_TRUE(s.captures.is_stale(stale));
}

TEST_F(Gate, ADestroyedForkLeavesItsWorkBehindAndADestroyedOriginEndsTheCapture) {
  State s;
  s.begin(s.a);
  s.a.dependencies.become({5});
  ASSERT_EQ(s.fork(s.a, s.b), kSuccess);
  s.b.dependencies.become({6});
  std::unique_ptr<Capture> over;
  EXPECT_FALSE(s.captures.destroy(s.c, &over));
  EXPECT_FALSE(s.captures.destroy(s.b, &over));
  ASSERT_EQ(s.a.capture->left_behind.size(), 1u);
  EXPECT_EQ(s.a.capture->left_behind[0].nodes, std::vector<NodeHandle>{{6}});
  EXPECT_EQ(s.a.capture->participants, std::vector<SimStream*>{&s.a});

  ASSERT_EQ(s.fork(s.a, s.c), kSuccess);
  EXPECT_TRUE(s.captures.destroy(s.a, &over));
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(s.c.capture, nullptr);
  EXPECT_EQ(s.captures.enter_device_synchronize(), kSuccess);
}

}  // namespace
}  // namespace shadowgraph::capture_test
