#include "launch/scale_keys.h"

#include <algorithm>

#include "core/float_formats.h"
#include "kernels/spans.h"
#include "launch/partial_rows.h"

namespace shadowgraph {

namespace {

bool is_sound(const ScaleKeys& c) {
  const int64_t rows = std::min(c.k.shape[0], c.out.shape[0]);
  return !c.cu_seqlens.empty() && c.cu_seqlens.front() == 0 &&
         std::ranges::is_sorted(c.cu_seqlens) && c.cu_seqlens.back() <= rows;
}

/// fn(request, row) for every row of a sound call.
template <class Fn>
void for_each_token(const ScaleKeys& c, Fn fn) {
  for (size_t i = 0; i + 1 < c.cu_seqlens.size(); ++i)
    for (int64_t t = c.cu_seqlens[i]; t < c.cu_seqlens[i + 1]; ++t) fn(i, t);
}

void scale(const ScaleKeys& c) {
  if (!is_sound(c)) return;
  for_each_token(c, [&](size_t i, int64_t t) {
    for (int64_t h = 0; h < c.k.shape[1]; ++h)
      for (int64_t d = 0; d < c.k.shape[2]; ++d)
        store_float(c.out.at(t, h), DType::kF32, d,
                    load_float(c.k.at(t, h), c.k.dtype, d) * c.factors[i]);
  });
}

void note_scale(const ScaleKeys& c, Footprint* spans) {
  add_whole(spans, c.cu_seqlens);
  if (!is_sound(c)) {
    const int64_t end = c.cu_seqlens.empty() ? 0 : c.cu_seqlens.back();
    add_rows_beyond(spans, c.k, 0, end, -1);
    return;
  }
  for (size_t i = 0; i + 1 < c.cu_seqlens.size(); ++i)
    append(spans, {c.factors.data(), static_cast<int64_t>(i), 1, sizeof(float), Access::kRead,
                   static_cast<int32_t>(i)});
  for_each_token(c, [&](size_t i, int64_t t) {
    const auto request = static_cast<int32_t>(i);
    for (int64_t h = 0; h < c.k.shape[1]; ++h) {
      append(spans, {c.k.data, c.k.offset(t, h), c.k.shape[2], element_bytes(c.k.dtype),
                     Access::kRead, request});
      append(spans, {c.out.data, c.out.offset(t, h), c.out.shape[2], element_bytes(c.out.dtype),
                     Access::kWrite, request});
    }
  });
}

}  // namespace

constinit const Kernel kScaleKeys = launch_kernel<ScaleKeys, scale, note_scale>("scale_keys");

KernelLaunch scale_keys_launch(const ScaleKeys& call, const RequestRows& rows) {
  return launch_of(kScaleKeys, call, rows, call.k.shape[0]);
}

}  // namespace shadowgraph
