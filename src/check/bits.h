// Arrays that must agree bit by bit: where they do not, and what stands there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "shadowgraph/device/arena.h"
#include "shadowgraph/dtype.h"

namespace shadowgraph {

/// Index of the first of `count` elements that differs; -1: none.
inline int64_t first_difference(const void* want, const void* got, int64_t count, DType type) {
  const size_t size = size_of(type);
  const auto *a = static_cast<const char*>(want), *b = static_cast<const char*>(got);
  if (count <= 0 || std::memcmp(a, b, static_cast<size_t>(count) * size) == 0) return -1;
  int64_t i = 0;
  for (; std::memcmp(a, b, size) == 0; ++i) a += size, b += size;
  return i;
}

/// "0.5 (0x3f000000)" of an f32, else a byte.
inline std::string bits_of(const void* at, DType type) {
  char text[48];
  if (type != DType::kF32) {
    std::snprintf(text, sizeof text, "0x%02x", *static_cast<const unsigned char*>(at));
    return text;
  }
  uint32_t bits = 0;
  float x = 0;
  std::memcpy(&bits, at, sizeof bits);
  std::memcpy(&x, at, sizeof x);
  std::snprintf(text, sizeof text, "%.9g (0x%08x)", static_cast<double>(x), bits);
  return text;
}

/// What an idle device holds there; of a buffer that is not bound nothing.
inline std::vector<std::byte> bytes_in(const Buffer& b) {
  if (b.data == nullptr) return {};
  return {b.data, b.data + b.bytes()};
}

}  // namespace shadowgraph
