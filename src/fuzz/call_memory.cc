#include "fuzz/call_memory.h"

#include <algorithm>
#include <cassert>

#include "core/laws.h"

namespace shadowgraph {

TensorView CallMemory::add(const char* field, DType dtype, std::span<const int64_t> shape, Rng& rng,
                           AxisOrder order) {
  Tensor& t = tensors_.emplace_back();
  t.field = field;
  t.view = make_gapped(t.memory, dtype, shape, rng, order);
  return t.view;
}

void CallMemory::remember() {
  for (Tensor& t : tensors_) t.before = t.memory;
}

ConstTensorView CallMemory::before(const ConstTensorView& t) const {
  for (const Tensor& mine : tensors_) {
    if (!mine.holds(t)) continue;
    ConstTensorView was = t;
    was.data = mine.before.data() + (t.data - mine.memory.data());
    return was;
  }
  assert(false);
  return {};
}

std::vector<uint8_t> CallMemory::bytes_of(const Tensor& t, const Footprint& spans, Access access) {
  std::vector<uint8_t> flags(static_cast<size_t>(t.memory.size()), 0);
  for (const AccessSpan& s : spans) {
    if (s.buffer != t.view.data || s.access != access) continue;
    const int64_t size = s.element_bytes;
    std::fill_n(flags.begin() + s.first * size, s.count * size, uint8_t{1});
  }
  return flags;
}

std::vector<uint8_t> CallMemory::bytes_of(const Tensor& t, std::span<const ConstTensorView> views) {
  std::vector<uint8_t> flags(static_cast<size_t>(t.memory.size()), 0);
  for (const ConstTensorView& view : views) {
    if (!t.holds(view) || view.numel() == 0) continue;
    for_each_run(view, [&](const std::byte* at, size_t bytes) {
      std::fill_n(flags.begin() + (at - t.memory.data()), bytes, uint8_t{1});
    });
  }
  return flags;
}

Status CallMemory::check_written(std::span<const ConstTensorView> written) const {
  Status status;
  for (const Tensor& t : tensors_) {
    const std::vector<uint8_t> flags = bytes_of(t, written);
    GuardedBuffer rest = t.memory;
    for (size_t i = 0; i < flags.size(); ++i)
      if (flags[i] != 0) rest.data()[i] = t.before.data()[i];
    if (const auto byte = rest.first_difference(t.before))
      status.add(make_finding("num.write_set", at(std::string(t.field) + " byte", *byte),
                              "as before the call: it belongs to no row that is written", "other"));
  }
  return status;
}

Status CallMemory::check_footprint(const Footprint& spans,
                                   std::span<const ConstTensorView> written) const {
  Status status;
  for (const Tensor& t : tensors_) {
    const std::vector<uint8_t> wanted = bytes_of(t, written),
                               said = bytes_of(t, spans, Access::kWrite);
    const auto [a, b] = std::ranges::mismatch(wanted, said);
    if (a == wanted.end()) continue;
    status.add(make_finding(
        "num.write_set", at("footprint of " + std::string(t.field) + " byte", a - wanted.begin()),
        *a != 0 ? "a write" : "no write", *b != 0 ? "a write" : "no write"));
  }
  return status;
}

void CallMemory::poison_unread(const Footprint& spans) {
  for (Tensor& t : tensors_) {
    const std::vector<uint8_t> read = bytes_of(t, spans, Access::kRead);
    for (size_t i = 0; i < read.size(); ++i)
      if (read[i] == 0) t.memory.data()[i] = kPoison;
  }
}

}  // namespace shadowgraph
