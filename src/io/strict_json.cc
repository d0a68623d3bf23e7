#include "io/strict_json.h"

#include <cassert>
#include <cstdio>
#include <iterator>
#include <list>
#include <nlohmann/json.hpp>

#include "io/file.h"

namespace shadowgraph {
namespace {

/// Reads text and tells how far the parser has come: its events carry no position.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// Control characters, C1 included, in valid UTF-8.
bool has_control(std::string_view s) {
  for (size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x20 || c == 0x7f) return true;
    if (c == 0xc2 && i + 1 < s.size() && static_cast<unsigned char>(s[i + 1]) < 0xa0) return true;
  }
  return false;
}

class StrictBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  StrictBuilder(std::string_view text, LawId syntax, const std::string& name, size_t base,
                size_t max_depth)
      : text_(text),
        furthest_(text.data()),
        syntax_(syntax),
        name_(name),
        base_(base),
        max_depth_(max_depth) {}

  Cursor begin() { return {text_.data(), &furthest_}; }
  Cursor end() { return {text_.data() + text_.size(), &furthest_}; }

  bool null() override { return add_value({nullptr}); }
  bool boolean(bool b) override { return add_value({b}); }
  bool number_integer(int64_t i) override { return add_value({i}); }
  bool number_unsigned(uint64_t u) override { return add_value({u}); }
  bool number_float(double d, const std::string&) override { return add_value({d}); }
  bool string(std::string& s) override { return add_value({std::move(s)}); }
  bool binary(nlohmann::json::binary_t&) override { return true; }  // JSON text has none
  bool start_object(size_t) override { return open({JsonValue::Object()}); }
  bool start_array(size_t) override { return open({JsonValue::Array()}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& k) override {
    last_key_ = k;
    if (k.size() > kMaxJsonKeyLength) {
      add("io.key", "a key of at most " + std::to_string(kMaxJsonKeyLength) + " bytes",
          std::to_string(k.size()) + " bytes");
    }
    if (has_control(k)) add("io.key", "a key without control characters", '"' + printable(k) + '"');
    auto& object = std::get<JsonValue::Object>(open_.back()->value);
    if (object.size() >= kMaxJsonKeys) {
      add("io.key", "at most " + std::to_string(kMaxJsonKeys) + " keys", "more");
      return false;
    }
    if (object.contains(k)) {
      add("io.key", "a key that occurs once", "a second one");
      slot_ = &discarded_.emplace_back();
      return true;
    }
    if (open_.size() == 1) document_.key_offsets[k] = offset();
    slot_ = &object[k];
    return true;
  }

  bool parse_error(size_t, const std::string& token,
                   const nlohmann::detail::exception& e) override {
    std::string what = e.what();
    const size_t cause = what.rfind(" - ");  // before it: the library's own numbering
    if (cause != std::string::npos) what = what.substr(cause + 3);
    add(syntax_, "valid JSON", printable(what) + " near \"" + printable(token) + '"');
    return false;
  }

  Status finish(bool parsed, JsonDocument* out) {
    assert(parsed || !status_.ok());  // whatever ends the parser says why
    if (parsed && status_.ok()) *out = std::move(document_);
    return std::move(status_);
  }

 private:
  size_t offset() const { return base_ + static_cast<size_t>(furthest_ - text_.data()); }

  void add(LawId law, std::string expected, std::string got) {
    const std::string field = last_key_.empty() ? "header" : printable(last_key_);
    status_.add(file_finding(law, name_, field, std::move(expected),
                             std::move(got) + " at byte " + std::to_string(offset())));
  }

  /// Where the next value goes.
  JsonValue* place() {
    if (open_.empty()) return &document_.root;
    if (auto* array = std::get_if<JsonValue::Array>(&open_.back()->value))
      return &array->emplace_back();
    return slot_;
  }

  bool add_value(JsonValue v) {
    if (++values_ > kMaxJsonValues) {
      add(syntax_, "at most " + std::to_string(kMaxJsonValues) + " values", "more");
      return false;
    }
    last_ = place();
    *last_ = std::move(v);
    return true;
  }

  bool open(JsonValue container) {
    if (open_.size() >= max_depth_) {
      add(syntax_, "depth at most " + std::to_string(max_depth_), "deeper");
      return false;
    }
    if (!add_value(std::move(container))) return false;
    open_.push_back(last_);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const char* furthest_;
  LawId syntax_;
  const std::string& name_;
  size_t base_, max_depth_;
  JsonDocument document_;
  std::list<JsonValue> discarded_;  // the values of duplicate keys, which may hold more of them
  std::vector<JsonValue*> open_;    // containers from the root inwards
  JsonValue* slot_ = nullptr;       // where the value of the last key goes
  JsonValue* last_ = nullptr;       // where the last value went
  std::string last_key_;
  size_t values_ = 0;
  Status status_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object* object = as<Object>();
  if (object == nullptr) return nullptr;
  const auto at = object->find(key);
  return at == object->end() ? nullptr : &at->second;
}

std::optional<double> JsonValue::number() const {
  if (const auto* d = as<double>()) return *d;
  if (const auto* u = as<uint64_t>()) return static_cast<double>(*u);
  if (const auto* i = as<int64_t>()) return static_cast<double>(*i);
  return {};
}

std::string JsonValue::describe() const {
  if (const auto* b = as<bool>()) return *b ? "true" : "false";
  if (const auto* u = as<uint64_t>()) return std::to_string(*u);
  if (const auto* i = as<int64_t>()) return std::to_string(*i);
  if (const auto* d = as<double>()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", *d);
    return text;
  }
  if (const auto* s = as<std::string>()) return '"' + printable(*s) + '"';
  if (const auto* a = as<Array>()) return "a list of " + std::to_string(a->size());
  if (const auto* o = as<Object>()) return "an object of " + std::to_string(o->size());
  return "null";
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[7];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

Status parse_strict_json(std::string_view text, LawId syntax, const std::string& name, size_t base,
                         JsonDocument* out, size_t max_depth) {
  Status status;
  // The parser would skip a byte order mark, and take a NUL for the end of the text.
  const size_t nul = text.find('\0');
  if (text.empty() || text.front() != '{') {
    status.add(
        file_finding(syntax, name, "header", "a JSON object, from the first byte on",
                     "\"" + printable(text.substr(0, 8)) + "\" at byte " + std::to_string(base)));
  } else if (nul != std::string_view::npos) {
    status.add(file_finding(syntax, name, "header", "text",
                            "a NUL at byte " + std::to_string(base + nul)));
  }
  if (!status.ok()) return status;
  StrictBuilder builder(text, syntax, name, base, max_depth);
  const bool parsed = nlohmann::json::sax_parse(builder.begin(), builder.end(), &builder);
  return builder.finish(parsed, out);
}

}  // namespace shadowgraph
