#include "launch/state_launch.h"

#include <cstring>

#include "kernels/spans.h"

namespace shadowgraph {
namespace {

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

void copy(const CopyStates& c) {
  const auto bytes = static_cast<size_t>(place_elements(c.to)) * size_of(c.to.dtype);
  for_each_copy(c, [&](int32_t, int64_t source, int64_t target) {
    if (has_place(c.from, source) && has_place(c.to, target))
      std::memmove(c.to.at(target), c.from.at(source), bytes);
  });
}

void note_copy(const CopyStates& c, Footprint* spans) {
  add_whole(spans, c.sources);
  add_whole(spans, c.targets);
  const int64_t elements = place_elements(c.to);
  for_each_copy(c, [&](int32_t row, int64_t source, int64_t target) {
    const uint32_t bytes = element_bytes(c.to.dtype);
    spans->push_back({c.from.data, source * c.from.stride[0], elements, bytes, Access::kRead, row});
    spans->push_back({c.to.data, target * c.to.stride[0], elements, bytes, Access::kWrite, row});
  });
}

/// fn(row, target, tokens) of rows that leave a window.
template <class Fn>
void for_each_window(const TrackWindows& c, Fn fn) {
  const auto history = static_cast<size_t>(c.states.shape[2]);
  for (size_t i = 0; i < c.targets.size(); ++i)
    if (c.targets[i] != -1)
      fn(static_cast<int32_t>(i), c.targets[i], c.tokens.subspan(i * history, history));
}

void track(const TrackWindows& c) {
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
}

void note_track(const TrackWindows& c, Footprint* spans) {
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
}

}  // namespace

constinit const Kernel kCopyStates = launch_kernel<CopyStates, copy, note_copy>("copy_states");
constinit const Kernel kTrackWindows =
    launch_kernel<TrackWindows, track, note_track>("track_windows");

KernelLaunch copy_states_launch(const CopyStates& call, const RequestRows& rows) {
  return launch_of(kCopyStates, call, rows, std::ssize(call.targets));
}

KernelLaunch track_windows_launch(const TrackWindows& call, const RequestRows& rows) {
  return launch_of(kTrackWindows, call, rows, std::ssize(call.targets));
}

}  // namespace shadowgraph
