#include "io/traces/trace_line.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "io/file.h"
#include "io/traces/recorded_field.h"
#include "io/traces/trace_calls.h"

namespace shadowgraph {
namespace {

constexpr int32_t kMaxConfig = 1 << 24;

/// One line, member by member. Every fault is a finding.
class LineReader {
 public:
  LineReader(const JsonDocument& document, const std::string& name, size_t line)
      : root_(document.root), document_(document), name_(name) {
    line_.line = line;
  }

  Status read(TraceLine* out) {
    line_.id = text("id");
    line_.backend = text("backend");
    line_.mode = text("mode");
    line_.phase = text("phase");
    if (const JsonValue* config = object("config")) read_config(*config);
    if (const JsonValue* input = object("input")) read_input(*input);
    if (const JsonValue* expect = object("expect")) read_expect(*expect);
    read_oob();
    read_roles();
    const JsonValue* source = root_.find("source");
    const JsonValue* role = source == nullptr ? nullptr : source->find("role");
    if (role != nullptr && role->as<std::string>() != nullptr)
      line_.role = *role->as<std::string>();
    keep_keys(
        root_,
        {"id", "backend", "mode", "phase", "config", "input", "expect", "triton_oob", "roles"},
        &line_.line_keys);
    for (Finding& f : status_.findings()) f.case_id = line_.id;
    if (status_.ok()) *out = std::move(line_);
    return std::move(status_);
  }

 private:
  void fail(std::string_view field, std::string expected, std::string got) {
    const std::string_view member = field.substr(0, field.find('.'));
    const auto at = document_.key_offsets.find(member);
    if (at != document_.key_offsets.end()) got += " after column " + std::to_string(at->second);
    status_.add(
        file_finding("io.line", name_, printable(field), std::move(expected), std::move(got)));
  }

  std::string text(const char* key) {
    const JsonValue* v = root_.find(key);
    const auto* s = v == nullptr ? nullptr : v->as<std::string>();
    if (s != nullptr) return *s;
    fail(key, "a string", v == nullptr ? "missing" : v->describe());
    return "";
  }

  /// Those that are not in `read`.
  static void keep_keys(const JsonValue& object, std::initializer_list<std::string_view> read,
                        std::vector<std::string>* keys) {
    for (const auto& [key, value] : *object.as<JsonValue::Object>()) {
      if (std::ranges::find(read, key) == read.end()) keys->push_back(key);
    }
  }

  const JsonValue* object(const char* key) {
    const JsonValue* v = root_.find(key);
    if (v != nullptr && v->as<JsonValue::Object>() != nullptr) return v;
    fail(key, "an object", v == nullptr ? "missing" : v->describe());
    return nullptr;
  }

  /// nullptr: the line does not say it. A null says nothing.
  const JsonValue* said(const JsonValue& config, const char* key) {
    const JsonValue* v = config.find(key);
    if (v == nullptr) return nullptr;
    const bool null = v->as<std::nullptr_t>() != nullptr;
    (null ? line_.config.nulls : line_.config.said).emplace_back(key);
    return null ? nullptr : v;
  }

  std::optional<int32_t> integer(const char* key, const JsonValue& v, int32_t low,
                                 const std::string& else_word = "") {
    const auto i = json_integer(v);
    if (i && *i >= low && *i <= kMaxConfig) return static_cast<int32_t>(*i);
    fail(std::string("config.") + key,
         "an integer from " + std::to_string(low) + " to " + std::to_string(kMaxConfig) +
             (else_word.empty() ? "" : ", or " + else_word),
         described(v));
    return {};
  }
  std::optional<int32_t> setting(const JsonValue& config, const char* key, int32_t low) {
    const JsonValue* v = said(config, key);
    return v == nullptr ? std::nullopt : integer(key, *v, low);
  }

  void read_config(const JsonValue& config) {
    TraceConfig& c = line_.config;
    c.page_size = setting(config, "page_size", 1).value_or(1);
    if (!std::has_single_bit(static_cast<uint32_t>(c.page_size)))
      fail("config.page_size", "a power of two", std::to_string(c.page_size));
    c.pool_pages = setting(config, "pool_pages", 1);
    c.max_context_len = setting(config, "max_context_len", 1).value_or(0);
    c.topk = setting(config, "topk", 0).value_or(0);
    c.num_steps = setting(config, "num_steps", 0).value_or(0);
    c.num_draft_tokens = setting(config, "num_draft_tokens", 0).value_or(0);
    c.step_id = setting(config, "step_id", 0).value_or(0);
    c.window = setting(config, "window", -1);
    c.chunk = setting(config, "chunk", 1);
    c.prefix_chunk_tokens = setting(config, "prefix_chunk_tokens", 0).value_or(0);
    c.num_heads = setting(config, "num_heads", 1);
    c.num_kv_heads = setting(config, "num_kv_heads", 1);
    c.max_kv_splits = setting(config, "max_kv_splits", 1);
    c.device_core_count = setting(config, "device_core_count", 1);
    c.engine = word(config, "engine");
    c.seq_lens_semantics = word(config, "seq_lens_semantics");
    read_conventions(config);
    for (const auto& [key, value] : *config.as<JsonValue::Object>()) {
      const auto has = [&name = key](const std::vector<std::string>& keys) {
        return std::ranges::find(keys, name) != keys.end();
      };
      if (!has(c.said) && !has(c.nulls)) line_.config_keys.push_back(key);
    }
  }

  std::string word(const JsonValue& config, const char* key) {
    const JsonValue* v = said(config, key);
    if (v == nullptr) return "";
    if (const auto* s = v->as<std::string>()) return *s;
    fail(std::string("config.") + key, "a string", v->describe());
    return "";
  }

  /// Members of Engine: a number, or a word where there is none; truths.
  void read_conventions(const JsonValue& config) {
    const auto read = [&](const char* key, int32_t low, const std::string& none) {
      const JsonValue* v = said(config, key);
      const auto* s = v == nullptr ? nullptr : v->as<std::string>();
      if (v == nullptr) return;
      if (s != nullptr && !none.empty() && *s == none) {
        line_.config.conventions[key] = {};
      } else if (const auto value = integer(key, *v, low, none)) {
        line_.config.conventions[key] = value;
      }
    };
    read("padding_len", 0, "");
    read("max_padding_len", 0, "any");
    read("padding_page", -1, "any");
    read("padding_slot", -1, "any");
    read("reserved_page", 0, "none");
    for (const char* key : {"window_columns", "inclusive_ends"}) {
      const JsonValue* v = said(config, key);
      if (v == nullptr) continue;
      if (const auto* truth = v->as<bool>())
        line_.config.conventions[key] = *truth ? 1 : 0;
      else
        fail(std::string("config.") + key, "true or false", v->describe());
    }
  }

  void read_roles() {
    const JsonValue* roles = root_.find("roles");
    if (roles == nullptr || roles->as<std::nullptr_t>() != nullptr) return;
    if (roles->as<JsonValue::Object>() == nullptr) {
      fail("roles", "an object", roles->describe());
      return;
    }
    for (const auto& [name, role] : *roles->as<JsonValue::Object>()) {
      if (const auto* s = role.as<std::string>())
        line_.roles[name] = *s;
      else
        fail("roles." + name, "a string", role.describe());
    }
  }

  /// A name is said once: as a field, or as an argument of a call.
  void read_member(const std::string& key, const JsonValue& value, const std::string& member,
                   RecordedFields* fields, std::vector<std::string>* nulls) {
    if (value.as<std::nullptr_t>() != nullptr) {
      nulls->push_back(key);
      return;
    }
    RecordedField field;
    if (read_recorded_field(value, member + '.' + key, fail_, &field) &&
        !fields->emplace(key, std::move(field)).second)
      fail(member + '.' + key, "once", "twice: in calls, too");
  }

  void read_input(const JsonValue& input) {
    for (const auto& [key, value] : *input.as<JsonValue::Object>())
      read_member(key, value, "input", &line_.input, &line_.null_inputs);
  }

  void read_expect(const JsonValue& expect) {
    for (const auto& [key, value] : *expect.as<JsonValue::Object>()) {
      if (key == "exception") {
        read_exception(value);
      } else if (const auto* calls = key == "calls" ? as_calls(value) : nullptr) {
        read_calls(*calls);
      } else {
        read_member(key, value, "expect", &line_.expect, &line_.null_fields);
      }
    }
  }

  void read_calls(const JsonValue::Array& calls) {
    line_.calls = name_calls(calls);
    line_.no_calls = calls.empty();
    for (size_t i = 0; i < calls.size(); ++i) {
      if (line_.calls[i].name.empty()) continue;
      for (const auto& [key, value] : *calls[i].as<JsonValue::Object>()) {
        if (key == "wrapper" || key == "call") continue;
        read_member(line_.calls[i].name + '.' + key, value, "expect", &line_.expect,
                    &line_.null_fields);
      }
    }
  }

  void read_exception(const JsonValue& e) {
    if (e.as<std::nullptr_t>() != nullptr) return;
    const JsonValue* type = e.find("type");
    const JsonValue* message = e.find("msg");
    const auto* t = type == nullptr ? nullptr : type->as<std::string>();
    const auto* m = message == nullptr ? nullptr : message->as<std::string>();
    if (t == nullptr || m == nullptr) {
      fail("expect.exception", "{type, msg}", e.describe());
      return;
    }
    line_.exception = printable(*t) + ": " + printable(*m);
  }

  void read_oob() {
    const JsonValue* list = root_.find("triton_oob");
    if (list == nullptr || list->as<std::nullptr_t>() != nullptr) return;
    if (list->as<JsonValue::Array>() == nullptr) {
      fail("triton_oob", "a list", list->describe());
      return;
    }
    for (const JsonValue& access : *list->as<JsonValue::Array>()) {
      const auto part = [&](const char* key) {
        const JsonValue* v = access.find(key);
        const auto* s = v == nullptr ? nullptr : v->as<std::string>();
        return s != nullptr ? printable(*s) : v == nullptr ? "?" : v->describe();
      };
      line_.triton_oob.push_back(part("kind") + " by " + part("kernel") + " at offset " +
                                 part("first_off") + " of " + part("size"));
    }
  }

  const JsonValue& root_;
  const JsonDocument& document_;
  const std::string& name_;
  TraceLine line_;
  Status status_;
  TellFault fail_ = [this](std::string_view field, std::string expected, std::string got) {
    fail(field, std::move(expected), std::move(got));
  };
};

}  // namespace

Status read_trace_line(const JsonDocument& document, const std::string& name, size_t number,
                       TraceLine* line) {
  return LineReader(document, name, number).read(line);
}

}  // namespace shadowgraph
