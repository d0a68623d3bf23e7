#include "io/recorded/case_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/nearest.h"
#include "io/file.h"
#include "io/recorded/form_fields.h"

namespace shadowgraph {
namespace {

/// One name, number or "?" of a shape. group: '(' or '[', or ' ' outside of them.
struct Axis {
  std::string_view name;
  char group;
  bool first;    // of its group
  int64_t size;  // -1: any
};

std::vector<Axis> axes_of(std::string_view shape,
                          const std::map<std::string, int64_t, std::less<>>& sizes) {
  std::vector<Axis> axes;
  char group = ' ';
  bool first = true;
  for (size_t i = 0; i < shape.size();) {
    const char c = shape[i];
    if (c == '(' || c == '[') group = c, first = true;
    if (c == ')' || c == ']') group = ' ', first = true;
    const size_t end = std::min(shape.find_first_of(" ()[]", i), shape.size());
    if (end == i) {
      ++i;
      continue;
    }
    const std::string_view name = shape.substr(i, end - i);
    const auto at = sizes.find(name);
    int64_t size = at == sizes.end() ? -1 : at->second;
    std::from_chars(name.data(), name.data() + name.size(), size);
    axes.push_back({name, group, first || group == ' ', size});
    first = false;
    i = end;
  }
  return axes;
}

/// Sizes, those of a group of that kind as one; -1 with any size.
std::vector<int64_t> folded(const std::vector<Axis>& axes, char group) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes) {
    if (axis.group != group || axis.first)
      sizes.push_back(axis.size);
    else if (sizes.back() < 0 || axis.size < 0)
      sizes.back() = -1;
    else
      sizes.back() *= axis.size;
  }
  return sizes;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string s;
  for (const int64_t dim : shape)
    s += (s.empty() ? "" : ", ") + (dim < 0 ? "any" : std::to_string(dim));
  return '[' + s + ']';
}

std::string type_text(const ConstTensorView& t) {
  return std::string(name_of(t.dtype)) + ' ' +
         shape_text({t.shape.data(), static_cast<size_t>(t.rank)});
}

std::string dtypes_text(DTypes dtypes) {
  std::string s;
  for (const DType t : dtypes) s += (s.empty() ? "" : " or ") + std::string(name_of(t));
  return s;
}

/// The same dense memory in other axes.
ConstTensorView reshaped(const ConstTensorView& dense, std::span<const int64_t> shape) {
  ConstTensorView view;
  view.data = dense.data, view.dtype = dense.dtype, view.rank = static_cast<int>(shape.size());
  uint64_t step = 1;  // wraps where an axis of no elements stands beside absurd ones
  for (size_t i = shape.size(); i-- > 0; step *= static_cast<uint64_t>(shape[i]))
    view.shape[i] = shape[i], view.stride[i] = static_cast<int64_t>(step);
  return view;
}

bool shape_matches(const ConstTensorView& t, std::span<const int64_t> shape) {
  if (t.rank != static_cast<int>(shape.size())) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0 && t.shape[i] != shape[i]) return false;
  }
  return true;
}

std::optional<int64_t> int64_of(const JsonValue& value) {
  if (const auto* i = value.as<int64_t>()) return *i;
  if (const auto* u = value.as<uint64_t>(); u != nullptr && *u <= INT64_MAX)
    return static_cast<int64_t>(*u);
  return {};
}

}  // namespace

const JsonValue* CaseReader::field(std::string_view name) {
  const JsonValue* value = metadata_.find(name);
  members_read_.emplace(name);
  if (value == nullptr) bad_field(name, meaning_of_member(name), "missing");
  return value;
}

bool CaseReader::is_null(std::string_view name) {
  const JsonValue* value = field(name);
  return value == nullptr || value->as<std::nullptr_t>() != nullptr;
}

bool CaseReader::flag(std::string_view name) {
  const JsonValue* value = field(name);
  if (value == nullptr) return false;
  if (const auto* b = value->as<bool>()) return *b;
  bad_field(name, "true or false", value->describe());
  return false;
}

int32_t CaseReader::integer(std::string_view name, int32_t low, int32_t high) {
  const JsonValue* value = field(name);
  if (value == nullptr) return low;
  if (const std::optional<int64_t> n = int64_of(*value); n && *n >= low && *n <= high) {
    bind(name, *n);
    return static_cast<int32_t>(*n);
  }
  bad_field(name, "an integer from " + std::to_string(low) + " to " + std::to_string(high),
            value->describe());
  return low;
}

float CaseReader::number(std::string_view name, const char* expected, bool (*good)(float)) {
  const JsonValue* value = field(name);
  if (value == nullptr) return 1;
  const double wide = value->number().value_or(std::numeric_limits<double>::quiet_NaN());
  // Past float's range the cast is undefined; a NaN fails the comparison.
  if (std::abs(wide) <= std::numeric_limits<float>::max()) {
    const auto n = static_cast<float>(wide);
    if (good(n)) return n;
  }
  bad_field(name, expected, value->describe());
  return 1;
}

float CaseReader::positive(std::string_view name) {
  return number(name, "a finite number above 0", [](float n) { return n > 0; });
}

float CaseReader::not_negative(std::string_view name) {
  return number(name, "a finite number, 0 or more", [](float n) { return n >= 0; });
}

float CaseReader::negative(std::string_view name) {
  return number(name, "a finite number below 0", [](float n) { return n < 0; });
}

std::string CaseReader::text(std::string_view name) {
  const JsonValue* value = field(name);
  if (value == nullptr) return {};
  if (const auto* s = value->as<std::string>()) return *s;
  bad_field(name, "a string", value->describe());
  return {};
}

void CaseReader::known_text(std::string_view name, std::string_view expected) {
  const JsonValue* value = field(name);
  if (value == nullptr) return;
  const auto* s = value->as<std::string>();
  if (s == nullptr || *s != expected) bad_field(name, std::string(expected), value->describe());
}

void CaseReader::known_flag(std::string_view name, bool expected) {
  const JsonValue* value = field(name);
  if (value == nullptr) return;
  const auto* b = value->as<bool>();
  if (b == nullptr || *b != expected)
    bad_field(name, expected ? "true" : "false", value->describe());
}

size_t CaseReader::one_of(std::string_view name, std::initializer_list<std::string_view> texts) {
  const JsonValue* value = field(name);
  if (value == nullptr) return 0;
  const auto* s = value->as<std::string>();
  const auto* at = s == nullptr ? texts.end() : std::find(texts.begin(), texts.end(), *s);
  if (at != texts.end()) return static_cast<size_t>(at - texts.begin());
  std::string expected;
  for (const std::string_view text : texts)
    expected += (expected.empty() ? "" : " or ") + std::string(text);
  bad_field(name, expected, s == nullptr ? value->describe() : printable(*s));
  return 0;
}

DType CaseReader::dtype(std::string_view name) {
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kE4M3};
  return kTypes[one_of(name, {"f16", "bf16", "f32", "e4m3fn"})];
}

DType CaseReader::torch_dtype(std::string_view name) {
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};
  return kTypes[one_of(name, {"torch.float16", "torch.bfloat16", "torch.float32"})];
}

std::vector<int32_t> CaseReader::lengths(std::string_view name, int32_t batch) {
  const JsonValue* value = field(name);
  if (value == nullptr) return {};
  const auto* items = value->as<JsonValue::Array>();
  if (items == nullptr || (batch >= 0 && items->size() != static_cast<size_t>(batch))) {
    bad_field(name, "a list of " + (batch < 0 ? "lengths" : std::to_string(batch) + " lengths"),
              value->describe());
    return {};
  }
  std::vector<int32_t> list(items->size());
  int64_t sum = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto* n = (*items)[i].as<uint64_t>();
    if (n == nullptr || *n > static_cast<uint64_t>(kMaxVectorTokens - sum)) {
      bad_field(name, "lengths from 0, at most " + std::to_string(kMaxVectorTokens) + " in all",
                (*items)[i].describe() + " at [" + std::to_string(i) + ']');
      return {};
    }
    list[i] = static_cast<int32_t>(*n);
    sum += list[i];
  }
  return list;
}

std::vector<std::string> CaseReader::missing_names(std::string_view form, bool tensor) const {
  std::vector<std::string> names = names_of_form_fields(form, tensor);
  std::erase_if(names, [&](const std::string& n) { return tensor ? has_tensor(n) : has(n); });
  return names;
}

void CaseReader::check_all_read(std::string_view form, std::string_view kind) {
  const bool whole = ok();
  int suggestions = 16;  // each takes as long as the form has names
  const std::string of = std::string(form) + (kind.empty() ? "" : ' ' + printable(kind));
  const auto expected = [&](std::string_view name, bool tensor) {
    const std::string what = tensor ? "a tensor" : "a member";
    if (find_form_field(form, name, tensor) != nullptr)
      return what + " that this case of " + of + " has";
    const std::string meant =
        find_form_field(form, name, !tensor) != nullptr
            ? std::string("; ") + (tensor ? "a member" : "a tensor") + " has that name"
        : suggestions-- > 0 ? did_you_mean(name, missing_names(form, tensor))
                            : "";
    return what + " of " + std::string(form) + " (`shadowgraph list keys`)" + meant;
  };
  const auto is_passed_over = [&](std::string_view name, bool tensor, const auto& read) {
    const FormField* field = find_form_field(form, name, tensor);
    return field == nullptr || (whole && !field->for_people() && !read.contains(name));
  };
  for (const auto& [name, value] : *metadata_.as<JsonValue::Object>())
    if (is_passed_over(name, false, members_read_))
      bad_field(name, expected(name, false), value.describe() + ", which nothing reads");
  const auto see_tensor = [&](const std::string& full, const std::string& type) {
    if (case_of(file_, full) != id_) return;
    const std::string name = full.substr(id_.size() + 1);
    if (is_passed_over(name, true, tensors_read_))
      bad_tensor(name, expected(name, true), type + ", which nothing reads");
  };
  for (const auto& [full, view] : file_.tensors) see_tensor(full, type_text(view));
  for (const SkippedTensor& t : file_.skipped) see_tensor(t.name, t.reason);
}

void CaseReader::bad_field(std::string_view name, std::string expected, std::string got) {
  status_.add(file_finding("vector.case", file_name_ + '#' + id_, printable(name),
                           std::move(expected), std::move(got)));
}

void CaseReader::bad_tensor(std::string_view name, std::string expected, std::string got,
                            std::optional<int64_t> row) {
  Finding finding = file_finding("vector.tensor", file_name_ + '#' + id_, printable(name),
                                 std::move(expected), std::move(got));
  finding.where.row = row;
  status_.add(std::move(finding));
}

const ConstTensorView* CaseReader::find(std::string_view name) const {
  const auto at = file_.tensors.find(full_name(name));
  return at == file_.tensors.end() ? nullptr : &at->second;
}

bool CaseReader::has_tensor(std::string_view name) const {
  const auto is_it = [full = full_name(name)](const SkippedTensor& t) { return t.name == full; };
  return find(name) != nullptr || std::any_of(file_.skipped.begin(), file_.skipped.end(), is_it);
}

std::string_view CaseReader::shape_of(std::string_view name,
                                      std::initializer_list<std::string_view> shapes) {
  const ConstTensorView* found = find(name);
  std::string expected;
  for (const std::string_view shape : shapes) {
    const std::vector<int64_t> stored = folded(axes_of(shape, sizes_), '[');
    if (found != nullptr && shape_matches(*found, stored)) return shape;
    expected += (expected.empty() ? "" : " or ") + shape_text(stored);
  }
  bad_tensor(name, expected, found == nullptr ? "not readable" : type_text(*found));
  return {};
}

DType CaseReader::tensor_dtype(std::string_view name) {
  const ConstTensorView* found = find(name);
  if (found != nullptr && is_float16_or_32(found->dtype)) return found->dtype;
  bad_tensor(name, "f16, bf16 or f32",
             found == nullptr ? "missing or not readable" : std::string(name_of(found->dtype)));
  return DType::kF32;
}

void CaseReader::bind(std::string_view name, int64_t size) {
  sizes_.insert_or_assign(std::string(name), size);
}

int64_t CaseReader::size(std::string_view name) const {
  const auto at = sizes_.find(name);
  return at == sizes_.end() ? -1 : at->second;
}

ConstTensorView CaseReader::tensor(std::string_view name, DTypes dtypes, std::string_view shape) {
  const ConstTensorView* found = find(name);
  tensors_read_.emplace(name);
  std::vector<Axis> axes = axes_of(shape, sizes_);
  const std::vector<int64_t> stored = folded(axes, '[');
  const std::string expected = dtypes_text(dtypes) + ' ' + shape_text(stored);
  if (found == nullptr) {
    std::string got = "missing";
    for (const SkippedTensor& t : file_.skipped) {
      if (t.name == full_name(name)) got = "not readable: " + t.reason;
    }
    bad_tensor(name, expected, got);
    return {};
  }
  const bool dtype_ok = std::find(dtypes.begin(), dtypes.end(), found->dtype) != dtypes.end();
  if (!dtype_ok || !shape_matches(*found, stored)) {
    bad_tensor(name, expected, type_text(*found));
    return {};
  }
  size_t in_file = 0;
  for (Axis& axis : axes) {
    const size_t here = axis.group == '[' && !axis.first ? in_file - 1 : in_file++;
    if (axis.size >= 0) continue;
    axis.size = found->shape[here];
    if (axis.name != "?") bind(axis.name, axis.size);
  }
  return aligned(reshaped(*found, folded(axes, '(')));
}

ConstTensorView CaseReader::e4m3(std::string_view name, std::string_view shape) {
  ConstTensorView view = tensor(name, {DType::kU8, DType::kE4M3}, shape);
  view.dtype = DType::kE4M3;
  return view;
}

ConstTensorView CaseReader::aligned(ConstTensorView view) {
  if (reinterpret_cast<uintptr_t>(view.data) % size_of(view.dtype) == 0) return view;
  const size_t size = static_cast<size_t>(view.numel()) * size_of(view.dtype);
  view.data = own(std::vector<std::byte>(view.data, view.data + size)).data();
  return view;
}

std::span<const int32_t> CaseReader::indices(std::string_view name,
                                             std::span<const int32_t> expected) {
  const std::span<const int32_t> found = i32(name, std::to_string(expected.size()));
  const bool same = all_as(
      name, found, [&](size_t i) { return expected[i]; }, "the metadata says");
  return same ? found : std::span<const int32_t>();
}

std::vector<std::shared_ptr<const void>> CaseReader::take_storage() {
  storage_.push_back(file_.bytes);
  return std::move(storage_);
}

std::string_view case_of(const SafetensorsFile& file, std::string_view tensor) {
  for (size_t slash = tensor.rfind('/'); slash != std::string_view::npos && slash > 0;
       slash = tensor.rfind('/', slash - 1))
    if (file.metadata.contains(std::string(tensor.substr(0, slash))))
      return tensor.substr(0, slash);
  return tensor.substr(0, tensor.find('/'));
}

std::vector<int32_t> indptr_of(std::span<const int32_t> lengths) {
  std::vector<int32_t> indptr(1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), std::back_inserter(indptr));
  return indptr;
}

}  // namespace shadowgraph
