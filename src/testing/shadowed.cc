// Arrays between red zones, and the poison of what a step has not written.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "core/laws.h"
#include "graph/memory/asan_guard.h"
#include "testing/poison.h"
#include "testing/steps.h"

#ifdef SG_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace shadowgraph::testing {
namespace {

constexpr std::byte kRedZone{0xc7};

/// As many elements on either side as the array has: a row too many lies inside.
size_t zone_elements(int64_t count) { return std::max<size_t>(64, static_cast<size_t>(count)); }

void guard(std::span<std::byte> zone, bool on) {
#ifdef SG_ASAN
  if (on)
    __asan_poison_memory_region(zone.data(), zone.size());
  else
    __asan_unpoison_memory_region(zone.data(), zone.size());
#else
  (void)zone, (void)on;
#endif
}

/// Written elements grow older by a step.
template <class T>
void grow_old(std::byte* data, int64_t count) {
  for (T& element : std::span(reinterpret_cast<T*>(data), static_cast<size_t>(count))) {
    const std::optional<int> age = poison_age(element);
    if (age != 0) element = poison<T>(age ? *age + 1 : 1);
  }
}

template <class T>
void never_written(std::byte* data, int64_t count) {
  std::fill_n(reinterpret_cast<T*>(data), count, poison<T>(0));
}

/// The element that holds the byte at this offset from the first.
int64_t element_of(int64_t offset, int64_t bytes) {
  return offset >= 0 ? offset / bytes : -((bytes - 1 - offset) / bytes);
}

/// Calls fn(T()) with the type of so many bytes.
template <class Fn>
void with_type(size_t bytes, Fn fn) {
  if (bytes == sizeof(int32_t)) fn(int32_t{});
  if (bytes == sizeof(int64_t)) fn(int64_t{});
  if (bytes == sizeof(uint8_t)) fn(uint8_t{});
}

}  // namespace

ShadowedMemory::ShadowedMemory(Steps& steps, std::string name, int64_t count, size_t element_bytes,
                               Lifetime lifetime)
    : state_(steps.state_),
      name_(std::move(name)),
      count_(count),
      element_bytes_(element_bytes),
      lifetime_(lifetime) {
  assert(count >= 0);
  const size_t zone = zone_elements(count) * element_bytes;
  const size_t bytes = 2 * zone + static_cast<size_t>(count) * element_bytes;
  bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  data_ = bytes_.get() + zone;
  std::fill_n(bytes_.get(), bytes, kRedZone);
  with_type(element_bytes, [&]<class T>(T) { never_written<T>(data_, count); });
  for (const std::span<std::byte> z : zones()) guard(z, true);
  state_.arrays.push_back(this);
}

ShadowedMemory::~ShadowedMemory() {
  state_.findings.add(red_zones());
  std::erase(state_.arrays, this);
  for (const std::span<std::byte> z : zones()) guard(z, false);
}

std::array<std::span<std::byte>, 2> ShadowedMemory::zones() const {
  const size_t zone = zone_elements(count_) * element_bytes_;
  return {std::span(bytes_.get(), zone),
          std::span(data_ + static_cast<size_t>(count_) * element_bytes_, zone)};
}

void ShadowedMemory::begin_step() {
  if (lifetime_ != Lifetime::kPerStep) return;
  with_type(element_bytes_, [&]<class T>(T) { grow_old<T>(data_, count_); });
}

/// Once for each side.
Status ShadowedMemory::red_zones() {
  Status status;
  for (const std::span<std::byte> zone : zones()) {
    guard(zone, false);
    const auto written = [](std::byte b) { return b != kRedZone; };
    const auto first = std::ranges::find_if(zone, written);
    if (first != zone.end()) {
      const int64_t element = element_of(&*first - data_, static_cast<int64_t>(element_bytes_));
      status.add(make_finding("mem.red_zone", at(name_, element),
                              "0 <= index < " + std::to_string(count_), "written"));
      std::ranges::fill(zone, kRedZone);
    }
    guard(zone, true);
  }
  return status;
}

}  // namespace shadowgraph::testing
