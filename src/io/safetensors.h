// safetensors files: an 8-byte little-endian header length, a JSON header, the tensors' bytes.
// Hardened: every size is checked before it is used, and what a header says twice or not at all is
// refused (verification.E). Tested by tests/io/safetensors_test.cc; fuzzed by
// tests/fuzz/fuzz_safetensors.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{16} << 20;
inline constexpr size_t kMaxSafetensorsRank = 8;
inline constexpr uint64_t kMaxSafetensorsDim = uint64_t{1} << 40;

using TensorMap = std::map<std::string, ConstTensorView, std::less<>>;
using MetadataMap = std::map<std::string, std::string, std::less<>>;

/// A well-formed tensor that a TensorView cannot hold: an element type without DType, or more than
/// 5 axes.
struct SkippedTensor {
  std::string name, reason;
  bool operator==(const SkippedTensor&) const = default;
};

struct SafetensorsFile {
  TensorMap tensors;  // dense, row-major, of any alignment; a scalar has shape [1]
  MetadataMap metadata;
  std::vector<SkippedTensor> skipped;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // what the views point into
};

/// Reads a file. A fault names the tensor, the value and the byte; on failure *out is untouched.
Status read_safetensors(const std::string& path, SafetensorsFile* out);

/// The same from memory; name stands for the path in findings.
Status parse_safetensors(std::shared_ptr<const std::vector<std::byte>> bytes,
                         const std::string& name, SafetensorsFile* out);

/// The file's bytes. Every tensor must be dense; it starts at a multiple of its element size. On
/// failure *out is untouched.
Status serialize_safetensors(const TensorMap& tensors, const MetadataMap& metadata,
                             std::vector<std::byte>* out);

/// Writes the file whole or not at all.
Status write_safetensors(const std::string& path, const TensorMap& tensors,
                         const MetadataMap& metadata);

}  // namespace shadowgraph
