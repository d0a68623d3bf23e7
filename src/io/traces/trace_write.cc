#include "io/traces/trace_write.h"

#include <charconv>
#include <string_view>

namespace shadowgraph {
namespace {

class TraceWriter {
 public:
  void write(const JsonValue::Object& head, const RecordedFields& input,
             const RecordedFields& expect) {
    text_ += '{';
    for (const auto& [key, value] : head) {
      member(key);
      add(value);
    }
    add("input", input);
    add("expect", expect);
    text_ += '}';
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

  void add(const char* name, const RecordedFields& fields) {
    member(name);
    text_ += '{';
    for (const auto& [key, field] : fields) {
      member(key);
      if (field.pages) text_ += "{\"pages\":";
      text_ += "{\"dtype\":" + json_quoted(field.dtype) + ",\"shape\":[";
      for (const int64_t size : field.shape) {
        comma();
        number(size);
      }
      text_ += "],\"data\":";
      size_t at = 0;
      add_axis(field, 0, &at);
      text_ += field.pages ? "}}" : "}";
    }
    text_ += '}';
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

std::string trace_text(const JsonValue::Object& head, const RecordedFields& input,
                       const RecordedFields& expect) {
  TraceWriter writer;
  writer.write(head, input, expect);
  return std::move(writer).text();
}

}  // namespace shadowgraph
