// Streams, events and host functions as the device's calls show them: what is waited for, what is
// not ready, and what a host function may ask.
#include <gtest/gtest.h>

#include <vector>

#include "graph/capture_fixture.h"

namespace shadowgraph::device_streams_test {
namespace {

using enum DeviceError;

class DeviceStreams : public CaptureTest {
 protected:
  DeviceStreams() {
    SimOptions options;
    options.choose = [this](uint32_t bound) { return lazy ? bound - 1 : 0; };
    make(options);
    s = stream();
    lazy = true;
  }
  EventHandle timed() {
    EventHandle made_event;
    EXPECT_EQ(api->event_create_with_flags(kEventDefault, &made_event), kSuccess);
    return made_event;
  }
  int32_t read_now() {
    lazy = false;
    return read();
  }

  bool lazy = false;  // nothing runs before it is waited for
};

TEST_F(DeviceStreams, WorkThatIsPendingIsNotReady) {
  ASSERT_EQ(add(s, 1), kSuccess);
  ASSERT_EQ(api->event_record(e = event(), s), kSuccess);
  EXPECT_EQ(api->stream_query(s), kNotReady);
  EXPECT_EQ(api->event_query(e), kNotReady);
  EXPECT_EQ(api->stream_query(stream()), kSuccess);
  EXPECT_EQ(api->event_synchronize(e), kSuccess);
  EXPECT_EQ(api->stream_query(s), kSuccess);
  EXPECT_EQ(api->event_query(e), kSuccess);
  EXPECT_EQ(read_now(), 1);
}

TEST_F(DeviceStreams, NoTimeElapsesBeforeBothEventsAreDone) {
  const EventHandle first = timed(), last = timed();
  ASSERT_EQ(api->event_record(first, s), kSuccess);
  ASSERT_EQ(api->event_synchronize(first), kSuccess);
  ASSERT_EQ(add(s, 1), kSuccess);
  ASSERT_EQ(api->event_record(last, s), kSuccess);
  float ms = -1;
  EXPECT_EQ(api->event_elapsed_time(first, last, &ms), kNotReady);
  EXPECT_EQ(api->event_elapsed_time(last, first, &ms), kNotReady);
  EXPECT_EQ(ms, -1);
  ASSERT_EQ(api->event_synchronize(last), kSuccess);
  EXPECT_EQ(api->event_elapsed_time(last, first, &ms), kSuccess);
  EXPECT_LT(ms, 0);
}

TEST_F(DeviceStreams, TimeDoesNotElapseInACapture) {
  const EventHandle first = timed(), last = timed();
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  ASSERT_EQ(api->event_record(last, a), kSuccess);
  float ms = -1;
  EXPECT_EQ(api->event_elapsed_time(first, last, &ms), kCapturedEvent);
  ASSERT_EQ(end(a), kSuccess);
  EXPECT_EQ(api->event_elapsed_time(first, last, &ms), kInvalidValue) << "of a capture that ended";
  EXPECT_EQ(ms, -1);
}

TEST_F(DeviceStreams, TheLegacyStreamStandsBehindManyDestroyedStreams) {
  for (int32_t i = 0; i < 70; ++i) {
    const StreamHandle x = stream(true);
    ASSERT_EQ(add(x, 1), kSuccess);
    ASSERT_EQ(wait(x, s), kSuccess) << "they race with one another otherwise";
    ASSERT_EQ(wait(s, other = stream(true)), kSuccess);
    ASSERT_EQ(api->stream_destroy(x), kSuccess);
    ASSERT_EQ(api->stream_destroy(other), kSuccess);
  }
  EXPECT_EQ(*p, 0) << "all of it is pending";
  EXPECT_EQ(add(kLegacyStream, 100), kSuccess);
  EXPECT_EQ(api->stream_synchronize(kLegacyStream), kSuccess);
  EXPECT_EQ(*p, 170);
}

TEST_F(DeviceStreams, AnEventThatWasNotRecordedIsWaitedForByNobody) {
  e = event();
  EXPECT_EQ(api->stream_wait_event(s, e, 0), kSuccess);
  EXPECT_EQ(api->event_query(e), kSuccess);
  EXPECT_EQ(api->event_synchronize(e), kSuccess);
  EXPECT_EQ(api->output_ticket(), 1u) << "the fixture's own alone";
}

TEST_F(DeviceStreams, WorkOnAThreadsOwnStreamIsTheLegacyStreamsToo) {
  ASSERT_EQ(add(kPerThreadStream, 1), kSuccess);
  ASSERT_EQ(add(kLegacyStream, 10), kSuccess);
  ASSERT_EQ(add(kPerThreadStream, 100), kSuccess);
  EXPECT_EQ(api->stream_synchronize(kLegacyStream), kSuccess);
  EXPECT_EQ(*p, 111);
  int32_t priority = 7;
  EXPECT_EQ(api->stream_get_priority(kPerThreadStream, &priority), kSuccess);
  EXPECT_EQ(priority, 0);
  EXPECT_EQ(found(), "");
}

TEST_F(DeviceStreams, PrioritiesAreThoseThatThereAre) {
  int32_t least = 7, greatest = 7, priority = 7;
  ASSERT_EQ(api->device_get_stream_priority_range(&least, &greatest), kSuccess);
  EXPECT_GT(least, greatest) << "lower numbers come first";
  for (const auto& [asked, given] :
       {std::pair(least + 5, least), {greatest - 5, greatest}, {greatest + 1, greatest + 1}}) {
    StreamHandle x;
    ASSERT_EQ(api->stream_create_with_priority(kStreamNonBlocking, asked, &x), kSuccess);
    EXPECT_EQ(api->stream_get_priority(x, &priority), kSuccess);
    EXPECT_EQ(priority, given);
  }
}

TEST_F(DeviceStreams, AModeThatIsNotIsTheStrictest) {
  CaptureMode mode{7};
  EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, CaptureMode::kGlobal);
  mode = CaptureMode{-1};
  EXPECT_EQ(api->thread_exchange_stream_capture_mode(&mode), kSuccess);
  EXPECT_EQ(mode, CaptureMode::kGlobal);
}

TEST_F(DeviceStreams, SomeCallsNeedAThreadThatMadeOneBefore) {
  SimDevice fresh;
  EXPECT_EQ(fresh.other_call(OtherCall::kCtxResetPersistingL2Cache), kDeviceUninitialized);
  EXPECT_EQ(fresh.other_call(OtherCall::kCtxResetPersistingL2Cache), kSuccess);
}

TEST_F(DeviceStreams, AHostFunctionHasABody) {
  EXPECT_EQ(api->launch_host_func(s, nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api->stream_add_callback(s, nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api->func_get_attributes(nullptr), kInvalidDeviceFunction);
  EXPECT_EQ(api->func_get_attributes(&k::add), kSuccess);
  KernelLaunch none = adds(1);
  none.kernel = nullptr;
  const StreamHandle a = capturing(CaptureMode::kRelaxed, false);
  EXPECT_EQ(api->launch_kernel(none, s), kInvalidDeviceFunction);
  EXPECT_EQ(api->launch_kernel(none, a), kInvalidDeviceFunction);
  EXPECT_EQ(status(a), CaptureStatus::kActive);
  EXPECT_EQ(end(a), kSuccess);
}

/// What a host function asks, and what it is told.
struct Asked {
  SimDevice* device;
  const int32_t* p;
  EventHandle never, recorded;
  std::vector<DeviceError> answers;
};

TEST_F(DeviceStreams, AHostFunctionIsToldNothingAndChangesNothing) {
  lazy = false;
  Asked asked{&*api, p, event(), event(), {}};
  ASSERT_EQ(api->event_record(asked.recorded, s), kSuccess);
  api->name_buffer(p, "counter");
  EXPECT_EQ(api->stream_query({12345}), kInvalidResourceHandle);
  ASSERT_EQ(
      api->launch_host_func(
          s,
          [](void* user_data) {
            auto& a = *static_cast<Asked*>(user_data);
            a.device->name_buffer(a.p, "renamed");
            a.device->retire(a.p, 4);
            EXPECT_EQ(a.device->output_ticket(), 0u);
            EXPECT_EQ(a.device->shadow_cost(a.p).arena_bytes, 0u);
            a.answers = {
                a.device->peek_at_last_error(), a.device->get_last_error(),
                a.device->event_query(a.never), a.device->event_query(a.recorded),
                a.device->event_query({12345}), a.device->other_call(OtherCall::kMallocPitch)};
          },
          &asked),
      kSuccess);
  EXPECT_EQ(api->stream_synchronize(s), kSuccess);
  EXPECT_EQ(asked.answers, (std::vector{kSuccess, kSuccess, kSuccess, kNotPermitted, kNotPermitted,
                                        kNotPermitted}));
  EXPECT_EQ(found(),
            "graph.host_callback graph.host_callback graph.host_callback graph.host_callback");
  EXPECT_EQ(api->get_last_error(), kInvalidResourceHandle) << "it was not taken";
  EXPECT_EQ(api->launch_kernel({&k::add, {}, {.x = 32}, 0, k::args(p, 1, 17), false}, s), kSuccess);
  EXPECT_EQ(api->stream_synchronize(s), kSuccess);
  const Status status = api->take_findings();
  EXPECT_NE(status.to_string().find("counter"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace shadowgraph::device_streams_test
