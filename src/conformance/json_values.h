// JSON values as the types of a record: convert is false if a value is not one, and throws nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/records.h"

namespace shadowgraph {

using Json = nlohmann::ordered_json;

inline std::string text_of(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

inline bool convert(const Json& j, bool* out) {
  const auto* value = j.get_ptr<const Json::boolean_t*>();
  if (value != nullptr) *out = *value;
  return value != nullptr;
}
inline bool convert(const Json& j, int64_t* out) {
  const auto* value = j.get_ptr<const Json::number_integer_t*>();
  // A number of 64 bits without a sign looks negative here.
  if (value == nullptr || (j.is_number_unsigned() && *value < 0)) return false;
  *out = *value;
  return true;
}
inline bool convert(const Json& j, int32_t* out) {
  int64_t wide = 0;
  if (!convert(j, &wide) || wide != static_cast<int32_t>(wide)) return false;
  *out = static_cast<int32_t>(wide);
  return true;
}
inline bool convert(const Json& j, std::string* out) {
  const auto* value = j.get_ptr<const Json::string_t*>();
  if (value != nullptr) *out = *value;
  return value != nullptr;
}
inline bool convert(const Json& j, Fact* out) {
  bool flag = false;
  int64_t number = 0;
  std::string text;
  if (convert(j, &flag)) return *out = flag, true;
  if (convert(j, &number)) return *out = number, true;
  if (convert(j, &text)) return *out = std::move(text), true;
  return false;
}
inline bool convert(const Json& j, std::optional<int32_t>* out) {
  if (j.is_null()) return *out = std::nullopt, true;
  return convert(j, &out->emplace());
}
inline bool convert(const Json& j, Verdict* out) {
  for (const Verdict verdict : {Verdict::kExact, Verdict::kSet, Verdict::kUndefined}) {
    if (j != name_of(verdict)) continue;
    *out = verdict;
    return true;
  }
  return false;
}
template <size_t n>
bool convert(const Json& j, std::array<int32_t, n>* out) {
  if (!j.is_array() || j.size() != n) return false;
  for (size_t i = 0; i < n; ++i) {
    if (!convert(j[i], &(*out)[i])) return false;
  }
  return true;
}
inline bool convert(const Json& j, std::pair<int32_t, int32_t>* out) {
  std::array<int32_t, 2> both;
  if (!convert(j, &both)) return false;
  *out = {both[0], both[1]};
  return true;
}
template <class T>
bool convert(const Json& j, std::vector<T>* out) {
  if (!j.is_array()) return false;
  out->resize(j.size());
  for (size_t i = 0; i < j.size(); ++i) {
    if (!convert(j[i], &(*out)[i])) return false;
  }
  return true;
}
template <class T>
bool convert(const Json& j, std::map<std::string, T>* out) {
  if (!j.is_object()) return false;
  for (const auto& [key, value] : j.items()) {
    if (!convert(value, &(*out)[key])) return false;
  }
  return true;
}

}  // namespace shadowgraph
