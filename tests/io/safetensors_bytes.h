// Hand-made safetensors files.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace shadowgraph {

using Bytes = std::vector<std::byte>;

inline Bytes as_bytes(std::string_view s) {
  const auto* p = reinterpret_cast<const std::byte*>(s.data());
  return Bytes(p, p + s.size());
}

/// Header length, header, data.
inline Bytes file_of(std::string_view header, std::string_view data) {
  std::string s;
  for (size_t i = 0; i < 8; ++i) s += static_cast<char>(header.size() >> (8 * i) & 0xff);
  s += header;
  s += data;
  return as_bytes(s);
}

inline Status parse_bytes(Bytes bytes, SafetensorsFile* file) {
  return parse_safetensors(std::make_shared<const Bytes>(std::move(bytes)), "test", file);
}

/// The laws that the file breaks, in order.
inline std::vector<std::string> laws_broken(Bytes bytes) {
  SafetensorsFile file;
  std::vector<std::string> ids;
  const Status status = parse_bytes(std::move(bytes), &file);
  for (const Finding& f : status.findings()) ids.push_back(f.id);
  return ids;
}

}  // namespace shadowgraph
