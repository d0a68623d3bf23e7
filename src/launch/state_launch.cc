#include "launch/state_launch.h"

#include <cstring>

#include "kernels/spans.h"
#include "launch/view_args.h"

namespace shadowgraph {
namespace {

struct ListScalars {
  int64_t num_rows, num_tokens;
  RequestRows rows;
};

int64_t place_elements(const ConstTensorView& t) {
  int64_t n = 1;
  for (int i = 1; i < t.rank; ++i) n *= t.shape[i];
  return n;
}

bool has_place(const ConstTensorView& t, int64_t place) { return place >= 0 && place < t.shape[0]; }

/// fn(row, source, target) of rows that are not skipped.
template <class Fn>
void for_each_copy(const CopyStates& c, Fn fn) {
  for (size_t i = 0; i < c.targets.size(); ++i)
    if (c.sources[i] != -1 && c.targets[i] != -1)
      fn(static_cast<int32_t>(i), c.sources[i], c.targets[i]);
}

Progress copy_body(LaunchFrame& f) {
  const CopyStates c = copy_states_call(f.launch).call;
  const auto bytes = static_cast<size_t>(place_elements(c.to)) * size_of(c.to.dtype);
  for_each_copy(c, [&](int32_t, int64_t source, int64_t target) {
    if (has_place(c.from, source) && has_place(c.to, target))
      std::memmove(c.to.at(target), c.from.at(source), bytes);
  });
  return Progress::kDone;
}

void copy_spans(const LaunchFrame& f, Footprint* spans) {
  const auto [c, rows] = copy_states_call(f.launch);
  add_whole(spans, c.sources);
  add_whole(spans, c.targets);
  const int64_t elements = place_elements(c.to);
  const CopyStates& call = c;
  for_each_copy(c, [&](int32_t row, int64_t source, int64_t target) {
    const uint32_t bytes = element_bytes(call.to.dtype);
    spans->push_back(
        {call.from.data, source * call.from.stride[0], elements, bytes, Access::kRead, row});
    spans->push_back(
        {call.to.data, target * call.to.stride[0], elements, bytes, Access::kWrite, row});
  });
  name_requests(rows, spans);
}

/// fn(row, target, tokens) of rows that leave a window.
template <class Fn>
void for_each_window(const TrackWindows& c, Fn fn) {
  const auto history = static_cast<size_t>(c.states.shape[2]);
  for (size_t i = 0; i < c.targets.size(); ++i)
    if (c.targets[i] != -1)
      fn(static_cast<int32_t>(i), c.targets[i], c.tokens.subspan(i * history, history));
}

Progress track_body(LaunchFrame& f) {
  const TrackWindows c = track_windows_call(f.launch).call;
  const size_t element = size_of(c.states.dtype);
  for_each_window(c, [&](int32_t, int64_t target, std::span<const int32_t> tokens) {
    if (!has_place(c.states, target)) return;
    for (int64_t d = 0; d < c.states.shape[1]; ++d) {
      for (size_t w = 0; w < tokens.size(); ++w) {
        if (has_place(c.x, tokens[w]))
          std::memcpy(c.states.at(target, d, static_cast<int64_t>(w)), c.x.at(tokens[w], d),
                      element);
      }
    }
  });
  return Progress::kDone;
}

void track_spans(const LaunchFrame& f, Footprint* spans) {
  const auto [call, rows] = track_windows_call(f.launch);
  const TrackWindows& c = call;
  add_whole(spans, c.targets);
  const int64_t history = c.states.shape[2], dim = c.x.shape[1];
  for_each_window(c, [&](int32_t row, int64_t target, std::span<const int32_t> tokens) {
    spans->push_back(
        {c.tokens.data(), row * history, history, sizeof(int32_t), Access::kRead, row});
    for (const int64_t token : tokens)
      spans->push_back(
          {c.x.data, token * c.x.stride[0], dim, element_bytes(c.x.dtype), Access::kRead, row});
    spans->push_back({c.states.data, target * c.states.stride[0], dim * history,
                      element_bytes(c.states.dtype), Access::kWrite, row});
  });
  name_requests(rows, spans);
}

KernelLaunch list_launch(const Kernel& kernel, const std::array<ConstTensorView, 2>& views,
                         std::span<const int32_t> a, std::span<const int32_t> targets,
                         const RequestRows& rows) {
  KernelLaunch launch = launch_of(kernel, std::ssize(targets));
  add_views<2>(launch.args, views);
  launch.args.pointer(a.data())
      .pointer(targets.data())
      .scalar(ListScalars{std::ssize(targets), std::ssize(a), rows});
  return launch;
}

/// What list_launch was given: two views, a list, and one of targets.
template <class Call>
CallOf<Call> call_of(const KernelLaunch& launch) {
  constexpr size_t kFirstList = 3;
  const LaunchFrame f{launch};
  const auto t = views_of<2>(f, 0);
  const auto s = f.scalar<ListScalars>(kFirstList + 2);
  return {{t[0], t[1], array_of<int32_t>(f, kFirstList, s.num_tokens),
           array_of<int32_t>(f, kFirstList + 1, s.num_rows)},
          s.rows};
}

}  // namespace

constinit const Kernel kCopyStates{
    .name = "copy_states", .body = copy_body, .footprint = copy_spans};
constinit const Kernel kTrackWindows{
    .name = "track_windows", .body = track_body, .footprint = track_spans};

KernelLaunch copy_states_launch(const CopyStates& c, const RequestRows& rows) {
  return list_launch(kCopyStates, {c.from, c.to}, c.sources, c.targets, rows);
}

CallOf<CopyStates> copy_states_call(const KernelLaunch& launch) {
  return call_of<CopyStates>(launch);
}

KernelLaunch track_windows_launch(const TrackWindows& c, const RequestRows& rows) {
  return list_launch(kTrackWindows, {c.x, c.states}, c.tokens, c.targets, rows);
}

CallOf<TrackWindows> track_windows_call(const KernelLaunch& launch) {
  return call_of<TrackWindows>(launch);
}

}  // namespace shadowgraph
