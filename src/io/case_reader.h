// CaseReader: one case of a kernel-vector file, field by field. Every getter checks; a fault
// becomes a finding and the getter returns something harmless. Read the metadata first, then, if
// ok(), the tensors that it describes.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/kernel_vector.h"
#include "io/safetensors.h"
#include "io/strict_json.h"

namespace shadowgraph {

/// No length, and no sum of lengths, may be larger: sums of two then fit in int32.
inline constexpr int32_t kMaxVectorTokens = (1 << 30) - 1;

using DTypes = std::initializer_list<DType>;

class CaseReader {
 public:
  CaseReader(const SafetensorsFile& file, const std::string& file_name, const std::string& id,
             const JsonValue& metadata)
      : file_(file), file_name_(file_name), id_(id), metadata_(metadata) {}

  bool ok() const { return status_.ok(); }
  Status take_status() { return std::move(status_); }

  // Metadata (vector.case).
  bool has(std::string_view field) const { return metadata_.find(field) != nullptr; }
  bool flag(std::string_view field);
  int32_t integer(std::string_view field, int32_t low, int32_t high);
  float positive(std::string_view field);
  float not_negative(std::string_view field);
  float negative(std::string_view field);
  std::string text(std::string_view field);
  /// A field that says what everybody knows: a finding unless it is that.
  void known_text(std::string_view field, std::string_view expected);
  /// "f16", "bf16", "f32" or "e4m3fn".
  DType dtype(std::string_view field);
  /// batch lengths (-1: any number) from 0, their sum at most kMaxVectorTokens; none after a
  /// finding.
  std::vector<int32_t> lengths(std::string_view field, int32_t batch);
  /// Of any type; null after a finding.
  const JsonValue* field(std::string_view name);
  void bad_field(std::string_view field, std::string expected, std::string got);

  // Tensors (vector.tensor). A view is dense and starts at a multiple of its element size.
  bool has_tensor(std::string_view name) const;
  /// f16, bf16 or f32, as the tensor has it.
  DType tensor_dtype(std::string_view name);
  ConstTensorView tensor(std::string_view name, DTypes dtypes, std::span<const int64_t> shape);
  ConstTensorView tensor(std::string_view name, DTypes dtypes,
                         std::initializer_list<int64_t> shape) {
    return tensor(name, dtypes, std::span<const int64_t>(shape.begin(), shape.size()));
  }
  /// i32 [size]
  std::span<const int32_t> indices(std::string_view name, int64_t size);
  /// i32 [expected.size()] holding exactly that: metadata and tensors tell the same lengths.
  std::span<const int32_t> indices(std::string_view name, std::span<const int32_t> expected);
  /// u8 or bool [size]
  std::span<const uint8_t> bytes(std::string_view name, int64_t size);
  void bad_tensor(std::string_view name, std::string expected, std::string got,
                  std::optional<int64_t> row = {});

  /// Memory that lives as long as the case.
  template <class T>
  std::span<const T> own(std::vector<T> values) {
    auto owned = std::make_shared<const std::vector<T>>(std::move(values));
    storage_.push_back(owned);
    return *owned;
  }
  /// The case's memory: the file's bytes and what was owned.
  std::vector<std::shared_ptr<const void>> take_storage();

 private:
  float number(std::string_view field, const char* expected, bool (*good)(float));
  const ConstTensorView* find(std::string_view name) const;
  ConstTensorView aligned(ConstTensorView view);
  std::string full_name(std::string_view name) const { return id_ + '/' + std::string(name); }

  const SafetensorsFile& file_;
  const std::string& file_name_;
  const std::string& id_;
  const JsonValue& metadata_;
  std::vector<std::shared_ptr<const void>> storage_;
  Status status_;
};

/// [0, l0, l0 + l1, ...]
std::vector<int32_t> indptr_of(std::span<const int32_t> lengths);

/// A cache takes writable planes, since store_kv writes; attention only reads them, and that is all
/// that is done with a vector's.
TensorView cache_view(const ConstTensorView& view);

/// Without its tensors.
Recorded recorded_by(std::string_view kernel, std::string name, size_t call = 0,
                     std::string known_wrong = {});

/// [a, b, rest...] seen as [b, a, rest...].
ConstTensorView swap_leading(ConstTensorView view);

}  // namespace shadowgraph
