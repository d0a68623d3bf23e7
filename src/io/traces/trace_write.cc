#include "io/traces/trace_write.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "io/traces/base64.h"
#include "io/traces/recorded_field.h"

namespace shadowgraph {
namespace {

constexpr int64_t kReadable = 64;  // elements

template <size_t Width>
void put(std::span<const int64_t> elements, char* to) {
  for (const int64_t element : elements) {
    for (size_t i = 0; i < Width; ++i)
      to[i] = static_cast<char>(static_cast<uint64_t>(element) >> (8 * i) & 255);
    to += Width;
  }
}

/// The low width bytes of each element: 1, 2, 4 or 8.
std::string little_endian(std::span<const int64_t> elements, int64_t width) {
  std::string bytes(elements.size() * static_cast<size_t>(width), '\0');
  switch (width) {
    case 1: put<1>(elements, bytes.data()); break;
    case 2: put<2>(elements, bytes.data()); break;
    case 4: put<4>(elements, bytes.data()); break;
    default: put<8>(elements, bytes.data());
  }
  return bytes;
}

class TraceWriter {
 public:
  void write(const WrittenLine& w) {
    text_ += '{';
    for (const auto& [key, value] : w.head) {
      member(key);
      add(value);
    }
    member("input");
    text_ += '{';
    add(w.line.input, w.line.null_inputs);
    text_ += '}';
    member("expect");
    text_ += '{';
    add(w.line.expect, w.line.null_fields, w.line.calls);
    if (!w.line.calls.empty() || w.line.no_calls) add_calls(w);
    if (w.exception != nullptr) {
      member("exception");
      add(*w.exception);
    }
    text_ += "}}";
  }
  std::string&& text() && { return std::move(text_); }

 private:
  void comma() {
    if (text_.back() != '{' && text_.back() != '[') text_ += ',';
  }
  void member(std::string_view key) {
    comma();
    text_ += json_quoted(key) + ':';
  }
  template <class T>
  void number(T n) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, n).ptr;
    text_.append(digits, end);
  }

  void add(const JsonValue& value) {
    if (const auto* text = value.as<std::string>()) {
      text_ += json_quoted(*text);
    } else if (const auto* object = value.as<JsonValue::Object>()) {
      text_ += '{';
      for (const auto& [key, of_key] : *object) {
        member(key);
        add(of_key);
      }
      text_ += '}';
    } else if (const auto* list = value.as<JsonValue::Array>()) {
      text_ += '[';
      for (const JsonValue& element : *list) {
        comma();
        add(element);
      }
      text_ += ']';
    } else if (const auto* truth = value.as<bool>()) {
      text_ += *truth ? "true" : "false";
    } else if (const auto* i = value.as<int64_t>()) {
      number(*i);
    } else if (const auto* u = value.as<uint64_t>()) {
      number(*u);
    } else if (const auto* d = value.as<double>()) {
      number(*d);
    } else {
      text_ += "null";
    }
  }

  static bool is_argument(const std::string& field, const TraceCall& call) {
    return !call.name.empty() && field.starts_with(call.name + '.');
  }

  void add_calls(const WrittenLine& w) {
    member("calls");
    text_ += '[';
    for (size_t i = 0; i < w.line.calls.size(); ++i) {
      comma();
      text_ += "{\"wrapper\":" + json_quoted(w.line.calls[i].wrapper) +
               ",\"call\":" + json_quoted(w.line.calls[i].kind);
      add(w.arguments[i], {});
      text_ += '}';
    }
    text_ += ']';
  }

  /// without: calls whose arguments are among the fields, and are left out.
  void add(const RecordedFields& fields, const std::vector<std::string>& nulls,
           std::span<const TraceCall> without = {}) {
    for (const std::string& key : nulls) {
      member(key);
      text_ += "null";
    }
    for (const auto& [key, field] : fields) {
      if (std::ranges::any_of(without, [&k = key](const auto& c) { return is_argument(k, c); }))
        continue;
      member(key);
      if (field.pages) text_ += "{\"pages\":";
      text_ += "{\"dtype\":" + json_quoted(field.dtype) + ",\"shape\":[";
      for (const int64_t size : field.shape) {
        comma();
        number(size);
      }
      text_ += ']';
      add_elements(field);
      text_ += field.pages ? "}}" : "}";
    }
  }

  /// Few stay readable; many cost a tenth as bytes.
  void add_elements(const RecordedField& field) {
    const int64_t width = integer_bytes(field.dtype);
    if (width == 0 || std::ssize(field.data) <= kReadable || field.cols != field.width()) {
      text_ += ",\"data\":";
      size_t at = 0;
      add_axis(field, 0, &at);
      return;
    }
    text_ += ",\"b64\":\"" + base64(little_endian(field.data, width)) + '"';
  }

  void add_axis(const RecordedField& field, size_t axis, size_t* at) {
    if (axis == field.shape.size()) {
      number(field.data[(*at)++]);
      return;
    }
    text_ += '[';
    for (int64_t i = 0; i < field.shape[axis]; ++i) {
      comma();
      add_axis(field, axis + 1, at);
    }
    text_ += ']';
  }

  std::string text_;
};

}  // namespace

std::string trace_text(const WrittenLine& written) {
  TraceWriter writer;
  writer.write(written);
  return std::move(writer).text();
}

}  // namespace shadowgraph
