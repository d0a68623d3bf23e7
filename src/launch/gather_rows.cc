#include "launch/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/spans.h"

namespace shadowgraph {

namespace {

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

void gather(const GatherRows& c) {
  if (!alike(c) || !are_sound_offsets(c) || !are_sound_entries(c)) return;
  const size_t bytes = static_cast<size_t>(c.out.shape[1]) * size_of(c.out.dtype);
  for (int64_t t = 0; t < c.cu_seqlens.back(); ++t)
    std::memcpy(c.out.at(t), c.rows.at(c.indices[static_cast<size_t>(t)]), bytes);
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

void note_gather(const GatherRows& c, Footprint* spans) {
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
}

}  // namespace

constinit const Kernel kGatherRows = launch_kernel<GatherRows, gather, note_gather>("gather_rows");

KernelLaunch gather_rows_launch(const GatherRows& call, const RequestRows& rows) {
  return launch_of(kGatherRows, call, rows, std::ssize(call.indices));
}

}  // namespace shadowgraph
