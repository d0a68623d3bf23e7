// Writing and reading the members of case files, which visit_fields() lists (history_fields.h,
// call_fields.h): numbers, strings, enumerations by name, lists of them, structs that are listed.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attn/cases/case_names.h"
#include "core/laws.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "shadowgraph/dtype.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph {

/// Names of an enumeration: static std::string_view of(E), static bool find(std::string_view, E*).
template <class E>
struct EnumWords;

/// Those in a table, in the order of the values.
template <class E, const auto& Names>
struct ListedWords {
  static std::string_view of(E value) { return Names[static_cast<size_t>(value)]; }
  static bool find(std::string_view word, E* value) {
    const auto it = std::ranges::find(Names, word);
    if (it != std::end(Names)) *value = static_cast<E>(it - std::begin(Names));
    return it != std::end(Names);
  }
};

template <>
struct EnumWords<DType> {
  static std::string_view of(DType t) { return name_of(t); }
  static bool find(std::string_view word, DType* t) {
    const std::optional<DType> found = dtype_from_name(word);
    if (found) *t = *found;
    return found.has_value();
  }
};

template <>
struct EnumWords<LatentLayout> : ListedWords<LatentLayout, kLatentNames> {};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

class CaseWriter {
 public:
  template <class T>
  void operator()(const char* name, T& value) {
    out += first_ ? "" : ", ";
    first_ = false;
    out += '"' + std::string(name) + "\": ";
    write(value);
  }

  template <class T>
  void operator()(const char* name, T& value, int64_t /*low*/, int64_t /*high*/) {
    (*this)(name, value);
  }

  /// A member that a file has only where it says something.
  template <class T>
  void optional(const char* name, T& value) {
    if (value != T{}) (*this)(name, value);
  }

  std::string out;

 private:
  template <class T>
  void write(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      out += json_quoted(value);
    } else if constexpr (std::is_enum_v<T>) {
      out += '"' + std::string(EnumWords<T>::of(value)) + '"';
    } else if constexpr (std::floating_point<T>) {
      char text[40];
      std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
      out += text;
    } else if constexpr (std::integral<T>) {
      out += std::to_string(value);
    } else if constexpr (IsOptional<T>::value) {
      write(*value);
    } else if constexpr (IsVector<T>::value) {
      write_list(value);
    } else {
      out += '{';
      first_ = true;
      visit_fields(*this, value);
      first_ = false;
      out += '}';
    }
  }
  template <class T>
  void write_list(std::vector<T>& list) {
    out += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out += ", ";
      write(list[i]);
    }
    out += ']';
  }

  bool first_ = true;
};

/// Reads every member that is asked for; one that is missing, or of another type, is a finding.
class CaseFileReader {
 public:
  CaseFileReader(const JsonValue& object, const std::string& file, std::string path, Status* status)
      : object_(object), file_(file), path_(std::move(path)), status_(status) {}

  template <class T>
  void operator()(const char* name, T& value) {
    const JsonValue* json = object_.find(name);
    ++known_;
    if (json == nullptr) {
      fail(name, "a value", "nothing");
    } else {
      read(*json, name, value);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, int64_t /*low*/, int64_t /*high*/) {
    (*this)(name, value);  // CaseRanges follow
  }
  template <class T>
  void optional(const char* name, T& value) {
    if (object_.find(name) != nullptr) (*this)(name, value);
  }
  /// Every member was one of those that were asked for.
  void finish() {
    const auto* members = object_.as<JsonValue::Object>();
    if (members != nullptr && members->size() > known_)
      fail("", std::to_string(known_) + " members", std::to_string(members->size()));
  }

 private:
  void fail(const std::string& name, std::string expected, std::string got) {
    status_->add(
        file_finding("case.field", file_, path_ + name, std::move(expected), std::move(got)));
  }

  template <class T>
  void read(const JsonValue& json, const std::string& name, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const bool* b = json.as<bool>();
      b != nullptr ? void(value = *b) : fail(name, "true or false", json.describe());
    } else if constexpr (std::is_same_v<T, std::string>) {
      const auto* text = json.as<std::string>();
      text != nullptr ? void(value = *text) : fail(name, "a string", json.describe());
    } else if constexpr (std::is_enum_v<T>) {
      const auto* word = json.as<std::string>();
      if (word == nullptr || !EnumWords<T>::find(*word, &value))
        fail(name, "a name", json.describe());
    } else if constexpr (std::floating_point<T>) {
      read_float(json, name, value);
    } else if constexpr (std::integral<T>) {
      read_integer(json, name, value);
    } else if constexpr (IsOptional<T>::value) {
      read(json, name, value.emplace());
    } else if constexpr (IsVector<T>::value) {
      read_list(json, name, value);
    } else {
      if (json.as<JsonValue::Object>() == nullptr) return fail(name, "an object", json.describe());
      CaseFileReader inner(json, file_, path_ + name + ".", status_);
      visit_fields(inner, value);
      inner.finish();
    }
  }
  template <class T>
  void read_float(const JsonValue& json, const std::string& name, T& value) {
    double d = std::numeric_limits<double>::quiet_NaN();
    if (const auto* x = json.as<double>()) d = *x;
    if (const auto* x = json.as<uint64_t>()) d = static_cast<double>(*x);
    if (const auto* x = json.as<int64_t>()) d = static_cast<double>(*x);
    if (std::isfinite(d) && std::abs(d) <= std::numeric_limits<T>::max())
      value = static_cast<T>(d);
    else
      fail(name, "a finite number", json.describe());
  }
  template <class T>
  void read_integer(const JsonValue& json, const std::string& name, T& value) {
    const auto* u = json.as<uint64_t>();
    const auto* i = json.as<int64_t>();
    if (u != nullptr && std::in_range<T>(*u))
      value = static_cast<T>(*u);
    else if (i != nullptr && std::in_range<T>(*i))
      value = static_cast<T>(*i);
    else
      fail(name, "an integer of " + std::to_string(8 * sizeof(T)) + " bits", json.describe());
  }
  template <class T>
  void read_list(const JsonValue& json, const std::string& name, std::vector<T>& list) {
    const auto* array = json.as<JsonValue::Array>();
    if (array == nullptr) return fail(name, "a list", json.describe());
    list.assign(array->size(), T{});
    for (size_t i = 0; i < array->size(); ++i)
      read((*array)[i], name + '[' + std::to_string(i) + ']', list[i]);
  }

  const JsonValue& object_;
  const std::string& file_;
  const std::string path_;
  Status* status_;
  size_t known_ = 0;
};

/// What a run relies on: numbers that are in their ranges.
class CaseRanges {
 public:
  explicit CaseRanges(const std::string& file) : file_(file) {}
  Status take() { return std::move(status_); }

  /// For visit_fields: the members that have a range there.
  template <class T>
  void operator()(const char* /*name*/, T& /*value*/) {}
  template <class T>
  void operator()(const char* name, T& value, int64_t low, int64_t high) {
    in(prefix_ + name, low, value, high);
  }
  template <class T>
  void optional(const char* /*name*/, T& /*value*/) {}

 protected:
  /// prefix: "model."
  template <class T>
  void listed(std::string prefix, T members) {
    prefix_ = std::move(prefix);
    visit_fields(*this, members);
  }
  void fail(const std::string& field, std::string expected, int64_t got) {
    status_.add(file_finding("case.range", file_, field, std::move(expected), std::to_string(got)));
  }
  void in(const std::string& field, int64_t low, int64_t got, int64_t high) {
    if (got < low || got > high)
      fail(field, std::to_string(low) + " to " + std::to_string(high), got);
  }
  template <class T>
  void all_in(const std::string& field, int64_t low, const std::vector<T>& list, int64_t high) {
    for (const T value : list) in(field, low, static_cast<int64_t>(value), high);
  }

  const std::string& file_;
  std::string prefix_;
  Status status_;
};

}  // namespace shadowgraph
