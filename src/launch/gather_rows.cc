#include "launch/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/spans.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t { kRows, kIndices, kCuSeqlens, kOut, kScalars };

struct GatherScalars {
  RowsScalars rows, out;
  int64_t num_indices, num_offsets;
  RequestRows requests;
};
static_assert(sizeof(GatherScalars) == 2 * sizeof(RowsScalars) + 2 * 8 + 2 * 4);

bool alike(const GatherRows& c) {
  return c.rows.rank == 2 && c.out.rank == 2 && c.rows.dtype == c.out.dtype &&
         c.rows.shape[1] == c.out.shape[1] && c.rows.stride[1] == 1 && c.out.stride[1] == 1;
}

bool are_sound_offsets(const GatherRows& c) {
  return !c.cu_seqlens.empty() && c.cu_seqlens.front() == 0 &&
         std::ranges::is_sorted(c.cu_seqlens) &&
         c.cu_seqlens.back() <= std::min(std::ssize(c.indices), c.out.shape[0]);
}

bool names_row(const GatherRows& c, int64_t t) {
  const int32_t row = c.indices[static_cast<size_t>(t)];
  return row >= 0 && row < c.rows.shape[0];
}

bool are_sound_entries(const GatherRows& c) {
  for (int64_t t = 0; t < c.cu_seqlens.back(); ++t)
    if (!names_row(c, t)) return false;
  return true;
}

Progress body(LaunchFrame& f) {
  const GatherRows c = gather_rows_call(f.launch).call;
  if (!alike(c) || !are_sound_offsets(c) || !are_sound_entries(c)) return Progress::kDone;
  const size_t bytes = static_cast<size_t>(c.out.shape[1]) * size_of(c.out.dtype);
  for (int64_t t = 0; t < c.cu_seqlens.back(); ++t)
    std::memcpy(c.out.at(t), c.rows.at(c.indices[static_cast<size_t>(t)]), bytes);
  return Progress::kDone;
}

/// Adds what offsets touch that lead beyond the existing entries or rows.
void add_beyond(Footprint* spans, const GatherRows& c) {
  const int64_t last = c.cu_seqlens.empty() ? 0 : c.cu_seqlens.back();
  const int64_t entries = std::ssize(c.indices), rows = c.out.shape[0];
  if (last > entries)
    spans->push_back(
        {c.indices.data(), entries, last - entries, sizeof(int32_t), Access::kRead, -1});
  if (last > rows)
    spans->push_back({c.out.data, rows * c.out.stride[0], (last - rows) * c.out.stride[0],
                      element_bytes(c.out.dtype), Access::kWrite, -1});
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const auto [c, requests] = gather_rows_call(f.launch);
  add_whole(spans, c.cu_seqlens);
  if (!alike(c)) return;
  if (!are_sound_offsets(c)) return add_beyond(spans, c);
  const bool sound = are_sound_entries(c);
  for (size_t i = 0; i + 1 < c.cu_seqlens.size(); ++i) {
    const auto request = static_cast<int32_t>(i);
    for (int64_t t = c.cu_seqlens[i]; t < c.cu_seqlens[i + 1]; ++t) {
      append(spans, {c.indices.data(), t, 1, sizeof(int32_t), Access::kRead, request});
      const int64_t row = c.indices[static_cast<size_t>(t)];
      const uint32_t element = element_bytes(c.out.dtype);
      if (sound || !names_row(c, t))
        append(spans, {c.rows.data, row * c.rows.stride[0], c.rows.shape[1], element, Access::kRead,
                       request});
      if (sound)
        append(spans,
               {c.out.data, c.out.offset(t), c.out.shape[1], element, Access::kWrite, request});
    }
  }
  name_requests(requests, spans);
}

}  // namespace

constinit const Kernel kGatherRows{.name = "gather_rows", .body = body, .footprint = footprint};

CallOf<GatherRows> gather_rows_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<GatherScalars>(kScalars);
  TensorView rows = view_of(f.pointer<void>(kRows), s.rows);
  TensorView out = view_of(f.pointer<void>(kOut), s.out);
  return {{rows, array_of<int32_t>(f, kIndices, s.num_indices),
           array_of<int32_t>(f, kCuSeqlens, s.num_offsets), out},
          s.requests};
}

KernelLaunch gather_rows_launch(const GatherRows& c, const RequestRows& requests) {
  GatherScalars s{};
  s.rows = scalars_of(c.rows);
  s.out = scalars_of(c.out);
  s.num_indices = std::ssize(c.indices);
  s.num_offsets = std::ssize(c.cu_seqlens);
  s.requests = requests;
  KernelLaunch launch = launch_of(kGatherRows, s.num_indices);
  launch.args.pointer(c.rows.data)
      .pointer(c.indices.data())
      .pointer(c.cu_seqlens.data())
      .pointer(c.out.data)
      .scalar(s);
  return launch;
}

}  // namespace shadowgraph
