// CaseReader: one case of a file of recorded kernels, field by field and tensor by tensor. Every
// getter checks; a fault becomes a finding, and the getter returns something harmless. Read the
// metadata first, then, if ok(), the tensors that it describes, then check_all_read().
//
// Shapes are texts, one word an axis: "tokens heads 128". A number is that size. A name is the size
// that it stands for: integer() and bind() give names their sizes; a name that has none yet takes
// the tensor's, and from then on stands for it. "?" is any size. Axes in parentheses are one axis
// of the view: [batch, steps, dim] read as "(batch steps) dim" is [batch * steps, dim]. Axes in
// brackets are one axis of the file: [tokens, heads * dim] read as "tokens [heads dim]" is [tokens,
// heads, dim]. Tested by tests/io/case_reader_test.cc.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  /// Names each member and tensor of the case that form_fields.inc does not have for the form,
  /// or that no getter took: a case of this kind does not need it. After another finding only those
  /// of the first sort: the reader may have stopped before it took them.
  void check_all_read(std::string_view form, std::string_view kind);
  Status take_status() { return std::move(status_); }

  // Metadata (vector.case).
  bool has(std::string_view field) const { return metadata_.find(field) != nullptr; }
  /// A missing field is a finding, and as good as null.
  bool is_null(std::string_view field);
  bool flag(std::string_view field);
  /// The field's name then stands for the number in shapes.
  int32_t integer(std::string_view field, int32_t low, int32_t high);
  /// A number of heads, of channels: from 1.
  int32_t dim(std::string_view field) { return integer(field, 1, INT16_MAX); }
  /// A number of rows, of keys: from 0.
  int32_t count(std::string_view field) { return integer(field, 0, kMaxVectorTokens); }
  float positive(std::string_view field);
  float not_negative(std::string_view field);
  float negative(std::string_view field);
  std::string text(std::string_view field);
  /// A finding unless the field is that text, or that flag.
  void known_text(std::string_view field, std::string_view expected);
  void known_flag(std::string_view field, bool expected);
  /// Where in `texts` the field's text stands; 0 after a finding.
  size_t one_of(std::string_view field, std::initializer_list<std::string_view> texts);
  /// "f16", "bf16", "f32" or "e4m3fn"; also "torch.float16" and so on, then not of 8 bits.
  DType dtype(std::string_view field);
  DType torch_dtype(std::string_view field);
  /// batch lengths (-1: any number) from 0, their sum at most kMaxVectorTokens; none after a
  /// finding.
  std::vector<int32_t> lengths(std::string_view field, int32_t batch);
  /// Null after a finding; else of any type.
  const JsonValue* field(std::string_view name);
  void bad_field(std::string_view field, std::string expected, std::string got);

  // Sizes of shapes.
  void bind(std::string_view name, int64_t size);
  /// The size that a name stands for; -1: none yet.
  int64_t size(std::string_view name) const;

  // Tensors (vector.tensor). A view is dense and starts at a multiple of its element size.
  bool has_tensor(std::string_view name) const;
  /// The one of these shapes that the tensor has; empty after a finding that names them all.
  std::string_view shape_of(std::string_view name, std::initializer_list<std::string_view> shapes);
  /// f16, bf16 or f32, as the tensor has it.
  DType tensor_dtype(std::string_view name);
  ConstTensorView tensor(std::string_view name, DTypes dtypes, std::string_view shape);
  ConstTensorView f32(std::string_view name, std::string_view shape) {
    return tensor(name, {DType::kF32}, shape);
  }
  /// A float64 result, which a file may hold in f32.
  ConstTensorView reference(std::string_view name, std::string_view shape) {
    return tensor(name, {DType::kF32, DType::kF64}, shape);
  }
  /// e4m3, also where a file has it as bytes.
  ConstTensorView e4m3(std::string_view name, std::string_view shape);
  std::span<const int32_t> i32(std::string_view name, std::string_view shape) {
    return values<int32_t>(name, {DType::kI32}, shape);
  }
  std::span<const int64_t> i64(std::string_view name, std::string_view shape) {
    return values<int64_t>(name, {DType::kI64}, shape);
  }
  std::span<const float> floats(std::string_view name, std::string_view shape) {
    return values<float>(name, {DType::kF32}, shape);
  }
  /// u8 or bool.
  std::span<const uint8_t> bytes(std::string_view name, std::string_view shape) {
    return values<uint8_t>(name, {DType::kU8, DType::kBool}, shape);
  }
  /// i32 [expected.size()] holding exactly that: metadata and tensors tell the same lengths. Empty
  /// after a finding.
  std::span<const int32_t> indices(std::string_view name, std::span<const int32_t> expected);
  /// Looks at every element, row by row of `width` elements: the first that is not from `low` to
  /// `high` is a finding at its row. False: there is one.
  template <class T>
  bool in_range(std::string_view name, std::span<const T> found, int64_t low, int64_t high,
                int64_t width = 1) {
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] >= low && found[i] <= high) continue;
      bad_tensor(name, "from " + std::to_string(low) + " to " + std::to_string(high),
                 std::to_string(found[i]), static_cast<int64_t>(i) / width);
      return false;
    }
    return true;
  }
  /// Each element is expected(i), or a finding at the first that is not. why: how one knows.
  template <class T, class Expected>
  bool all_as(std::string_view name, std::span<const T> found, const Expected& expected,
              const std::string& why, int64_t width = 1) {
    for (size_t i = 0; i < found.size(); ++i) {
      const int64_t want = expected(i);
      if (static_cast<int64_t>(found[i]) == want) continue;
      bad_tensor(name, std::to_string(want) + ", as " + why, std::to_string(found[i]),
                 static_cast<int64_t>(i) / width);
      return false;
    }
    return true;
  }
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
  /// Names that the form has and the case has not.
  std::vector<std::string> missing_names(std::string_view form, bool tensor) const;
  ConstTensorView aligned(ConstTensorView view);
  std::string full_name(std::string_view name) const { return id_ + '/' + std::string(name); }
  template <class T>
  std::span<const T> values(std::string_view name, DTypes dtypes, std::string_view shape) {
    const ConstTensorView view = tensor(name, dtypes, shape);
    if (!view.defined()) return {};
    return {reinterpret_cast<const T*>(view.data), static_cast<size_t>(view.numel())};
  }

  const SafetensorsFile& file_;
  const std::string& file_name_;
  const std::string& id_;
  const JsonValue& metadata_;
  std::map<std::string, int64_t, std::less<>> sizes_;
  std::set<std::string, std::less<>> members_read_, tensors_read_;
  std::vector<std::shared_ptr<const void>> storage_;
  Status status_;
};

/// The id in "ID/NAME", a tensor's full name: the longest that the metadata has, since an id may
/// have a '/', too; else all before the first '/'.
std::string_view case_of(const SafetensorsFile& file, std::string_view tensor);

/// [0, l0, l0 + l1, ...]
std::vector<int32_t> indptr_of(std::span<const int32_t> lengths);

}  // namespace shadowgraph
