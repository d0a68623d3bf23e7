// Members of a JSON object by their names and types; what has another type, is missing or is not
// asked for is a finding (io.report).
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/strict_json.h"

namespace shadowgraph {

inline bool from_json(const JsonValue& v, std::string* out) {
  const auto* s = v.as<std::string>();
  if (s != nullptr) *out = *s;
  return s != nullptr;
}

inline bool from_json(const JsonValue& v, bool* out) {
  const auto* b = v.as<bool>();
  if (b != nullptr) *out = *b;
  return b != nullptr;
}

inline bool from_json(const JsonValue& v, uint64_t* out) {
  const auto* u = v.as<uint64_t>();
  if (u != nullptr) *out = *u;
  return u != nullptr;
}

inline bool from_json(const JsonValue& v, int64_t* out) {
  const auto* u = v.as<uint64_t>();
  const auto* i = v.as<int64_t>();
  if (u != nullptr && *u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  if (u != nullptr) *out = static_cast<int64_t>(*u);
  if (i != nullptr) *out = *i;
  return u != nullptr || i != nullptr;
}

inline bool from_json(const JsonValue& v, double* out) {
  if (const auto* d = v.as<double>()) return *out = *d, true;
  if (const auto* u = v.as<uint64_t>()) return *out = static_cast<double>(*u), true;
  if (const auto* i = v.as<int64_t>()) return *out = static_cast<double>(*i), true;
  const auto* s = v.as<std::string>();
  if (s == nullptr || (*s != "inf" && *s != "-inf" && *s != "nan")) return false;
  *out = *s == "nan" ? std::nan("") : *s == "inf" ? HUGE_VAL : -HUGE_VAL;
  return true;
}

template <class T>
bool from_json(const JsonValue& v, std::optional<T>* out) {
  return from_json(v, &out->emplace());
}

template <class T>
bool from_json(const JsonValue& v, std::vector<T>* out) {
  const auto* array = v.as<JsonValue::Array>();
  if (array == nullptr) return false;
  for (const JsonValue& item : *array) {
    if (!from_json(item, &out->emplace_back())) return false;
  }
  return true;
}

inline const char* words_of(const std::string*) { return "a string"; }
inline const char* words_of(const bool*) { return "true or false"; }
inline const char* words_of(const uint64_t*) { return "a number that is not negative"; }
inline const char* words_of(const int64_t*) { return "a whole number"; }
inline const char* words_of(const double*) { return "a number"; }
template <class T>
const char* words_of(const std::optional<T>*) {
  return words_of(static_cast<const T*>(nullptr));
}
template <class T>
std::string words_of(const std::vector<T>*) {
  return "an array, each item " + std::string(words_of(static_cast<const T*>(nullptr)));
}

class JsonMembers {
 public:
  /// path: of the object in the document, "findings[3]."; empty: the document.
  JsonMembers(const JsonValue& object, std::string path, const std::string& name, Status* status)
      : object_(object), path_(std::move(path)), name_(name), status_(*status) {}

  /// The member's value, left as it is where there is none.
  template <class T>
  void get(const char* key, T* out) {
    const JsonValue* v = take(key);
    if (v != nullptr && !from_json(*v, out)) fail(key, words_of(out), v->describe());
  }
  /// A member that must be there.
  template <class T>
  void need(const char* key, T* out) {
    if (object_.find(key) == nullptr) fail(key, "a value", "missing");
    get(key, out);
  }
  /// A count: sums of thousands of them fit.
  void count(const char* key, int64_t* out) {
    need(key, out);
    if (*out >= 0 && *out <= kMostCounted) return;
    fail(key, "a count", std::to_string(*out));
    *out = 0;
  }
  /// visit(JsonMembers) of each object of an array; a missing array is empty.
  template <class Visit>
  void each(const char* key, const Visit& visit) {
    const JsonValue* v = take(key);
    if (v == nullptr) return;
    const auto* array = v->as<JsonValue::Array>();
    if (array == nullptr) return fail(key, "an array", v->describe());
    for (size_t i = 0; i < array->size(); ++i) {
      const std::string path = path_ + key + '[' + std::to_string(i) + ']';
      visit_object((*array)[i], path, visit);
    }
  }
  /// visit(JsonMembers) of a member that is an object; of one that is missing, nothing.
  template <class Visit>
  void inside(const char* key, const Visit& visit) {
    if (const JsonValue* v = take(key)) visit_object(*v, path_ + key, visit);
  }
  /// visit(name, value) of each member that was not asked for.
  template <class Visit>
  void others(const Visit& visit) {
    const auto* members = object_.as<JsonValue::Object>();
    if (members == nullptr) return;
    for (const auto& [key, value] : *members) {
      if (taken_.insert(key).second) visit(key, value);
    }
  }
  /// What is known and not needed.
  void skip(std::initializer_list<const char*> keys) { taken_.insert(keys.begin(), keys.end()); }

  void fail(std::string_view key, std::string expected, std::string got) {
    status_.add(file_finding("io.report", name_, printable(path_ + std::string(key)),
                             std::move(expected), std::move(got)));
  }

 private:
  static constexpr int64_t kMostCounted = int64_t{1} << 48;

  const JsonValue* take(const char* key) {
    taken_.insert(key);
    return object_.find(key);
  }
  template <class Visit>
  void visit_object(const JsonValue& v, const std::string& path, const Visit& visit) {
    JsonMembers members(v, path + '.', name_, &status_);
    if (v.as<JsonValue::Object>() == nullptr) return members.fail("", "an object", v.describe());
    visit(members);
    members.others(
        [&](const std::string& key, const JsonValue&) { members.fail(key, "no such key", "one"); });
  }

  const JsonValue& object_;
  std::string path_;
  const std::string& name_;
  Status& status_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace shadowgraph
