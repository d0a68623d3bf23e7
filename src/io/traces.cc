#include "io/traces.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

#include "core/nearest.h"
#include "io/file.h"
#include "io/strict_json.h"

namespace shadowgraph {
namespace {

constexpr size_t kMaxTraceDepth = 8;  // line, expect, calls, call, field, data, row
constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr size_t kMaxRank = 4;
constexpr int32_t kMaxConfig = 1 << 24;

std::optional<int64_t> integer(const JsonValue& v) {
  if (const auto* i = v.as<int64_t>()) return *i;
  const auto* u = v.as<uint64_t>();
  if (u == nullptr || *u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
  return static_cast<int64_t>(*u);
}

/// What is there instead of an integer; 5.0 is a float.
std::string described(const JsonValue& v) {
  return (v.as<double>() != nullptr ? "the float " : "") + v.describe();
}

struct IntegerType {
  std::string_view name;
  int64_t low, high;
};
template <class T>
constexpr IntegerType type_of(std::string_view name) {
  using Limit = std::numeric_limits<T>;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return {name, static_cast<int64_t>(Limit::min()),
          std::cmp_less(Limit::max(), kMost) ? static_cast<int64_t>(Limit::max()) : kMost};
}
constexpr IntegerType kIntegerTypes[] = {
    {"bool", 0, 1},
    {"pybool", 0, 1},
    type_of<int64_t>("pyint"),
    type_of<int64_t>("pylist"),
    type_of<int8_t>("int8"),
    type_of<int16_t>("int16"),
    type_of<int32_t>("int32"),
    type_of<int64_t>("int64"),
    type_of<uint8_t>("uint8"),
    type_of<uint16_t>("uint16"),
    type_of<uint32_t>("uint32"),
    type_of<uint64_t>("uint64"),
};

/// Why values of a dtype cannot be judged; empty: they are integers.
std::string unreadable_dtype(const std::string& dtype) {
  std::vector<std::string> names;
  for (const IntegerType& type : kIntegerTypes) {
    if (type.name == dtype) return "";
    names.emplace_back(type.name);
  }
  return "of dtype " + printable(dtype) + did_you_mean(dtype, names);
}

bool fits(const RecordedField& f) {
  const auto* const type = std::ranges::find(kIntegerTypes, f.dtype, &IntegerType::name);
  return std::ranges::all_of(f.data, [&](int64_t v) { return v >= type->low && v <= type->high; });
}

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
    if (const JsonValue* input = object("input"))
      read_fields(*input, "input", &line_.input, &line_.null_inputs);
    if (const JsonValue* expect = object("expect")) {
      read_fields(*expect, "expect", &line_.expect, &line_.null_fields);
      read_exception(*expect);
    }
    read_oob();
    const JsonValue* source = root_.find("source");
    const JsonValue* role = source == nullptr ? nullptr : source->find("role");
    if (role != nullptr && role->as<std::string>() != nullptr)
      line_.role = *role->as<std::string>();
    keep_keys(root_, {"id", "backend", "mode", "phase", "config", "input", "expect", "triton_oob"},
              &line_.line_keys);
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

  std::optional<int32_t> setting(const JsonValue& config, const char* key, int32_t low) {
    const JsonValue* v = config.find(key);
    if (v == nullptr || v->as<std::nullptr_t>() != nullptr) return {};
    const auto i = integer(*v);
    if (i && *i >= low && *i <= kMaxConfig) return static_cast<int32_t>(*i);
    fail(std::string("config.") + key, std::to_string(low) + " to " + std::to_string(kMaxConfig),
         v->describe());
    return {};
  }

  void read_config(const JsonValue& config) {
    TraceConfig& c = line_.config;
    c.page_size = setting(config, "page_size", 1).value_or(1);
    c.max_context_len = setting(config, "max_context_len", 0).value_or(0);
    c.topk = setting(config, "topk", 0).value_or(0);
    c.num_steps = setting(config, "num_steps", 0).value_or(0);
    c.num_draft_tokens = setting(config, "num_draft_tokens", 0).value_or(0);
    c.step_id = setting(config, "step_id", 0).value_or(0);
    c.window = setting(config, "window", -1);
    c.chunk = setting(config, "chunk", 1);
    c.prefix_chunk_tokens = setting(config, "prefix_chunk_tokens", 0).value_or(0);
    keep_keys(config,
              {"page_size", "max_context_len", "topk", "num_steps", "num_draft_tokens", "step_id",
               "window", "chunk", "prefix_chunk_tokens", "seq_lens_semantics"},
              &line_.config_keys);
    const JsonValue* kind = config.find("seq_lens_semantics");
    if (kind == nullptr || kind->as<std::nullptr_t>() != nullptr) return;
    if (const auto* s = kind->as<std::string>()) {
      c.seq_lens_semantics = *s;
    } else {
      fail("config.seq_lens_semantics", "a string", kind->describe());
    }
  }

  void read_fields(const JsonValue& object, const std::string& member, RecordedFields* fields,
                   std::vector<std::string>* nulls) {
    for (const auto& [key, value] : *object.as<JsonValue::Object>()) {
      if (member == "expect" && key == "exception") continue;
      if (value.as<std::nullptr_t>() != nullptr) {
        nulls->push_back(key);
        continue;
      }
      RecordedField field;
      if (read_field(value, member + '.' + key, &field)) fields->emplace(key, std::move(field));
    }
  }

  /// {dtype, shape, data}, and of a part {cols}; or plain JSON: an integer, a list of integers.
  /// Anything else is kept unread; this form with values that contradict each other is a fault.
  bool read_field(const JsonValue& value, const std::string& name, RecordedField* f) {
    const JsonValue* dtype = value.find("dtype");
    const JsonValue* shape = value.find("shape");
    const JsonValue* data = value.find("data");
    if (dtype == nullptr || shape == nullptr || data == nullptr ||
        dtype->as<std::string>() == nullptr || shape->as<JsonValue::Array>() == nullptr) {
      read_plain(value, f);
      return true;
    }
    f->dtype = *dtype->as<std::string>();
    f->unreadable = unreadable_dtype(f->dtype);
    for (const JsonValue& size : *shape->as<JsonValue::Array>()) {
      const auto n = integer(size);
      if (!n || *n < 0 || *n > kMaxSize || f->shape.size() == kMaxRank) {
        fail(name + ".shape", "at most 4 sizes from 0 to 2^40", size.describe());
        return false;
      }
      f->shape.push_back(*n);
    }
    const bool good = read_columns(value, name, f) && read_data(*data, 0, name, f);
    if (f->unreadable.empty() && !fits(*f))
      f->unreadable = "a value that " + f->dtype + " cannot hold";
    if (!f->unreadable.empty()) f->data.clear();
    return good;
  }

  static void read_plain(const JsonValue& value, RecordedField* f) {
    const auto* list = value.as<JsonValue::Array>();
    const auto add = [&](const JsonValue& v) {
      if (const auto n = integer(v)) {
        f->data.push_back(*n);
      } else if (f->unreadable.empty()) {
        f->unreadable = (list == nullptr ? "" : "a list with ") + described(v);
      }
    };
    f->dtype = list == nullptr ? "pyint" : "pylist";
    if (list == nullptr) {
      add(value);
    } else {
      std::ranges::for_each(*list, add);
      f->shape = {static_cast<int64_t>(list->size())};
    }
    f->cols = f->width();
    if (value.as<JsonValue::Object>() != nullptr)
      f->unreadable = "an object without dtype, shape and data";
    if (!f->unreadable.empty()) f->data.clear();
  }

  bool read_columns(const JsonValue& value, const std::string& name, RecordedField* f) {
    f->cols = f->width();
    if (const JsonValue* cols = value.find("cols")) {
      const auto n = integer(*cols);
      if (!n || *n < 0 || *n > f->width()) {
        fail(name + ".cols", "0 to " + std::to_string(f->width()), cols->describe());
        return false;
      }
      f->cols = *n;
    }
    return true;
  }

  bool read_data(const JsonValue& v, size_t axis, const std::string& name, RecordedField* f) {
    if (axis < f->shape.size()) {
      const int64_t want = axis + 1 == f->shape.size() ? f->cols : f->shape[axis];
      const auto* list = v.as<JsonValue::Array>();
      if (list == nullptr || static_cast<int64_t>(list->size()) != want) {
        fail(name + ".data", "a list of " + std::to_string(want), v.describe());
        return false;
      }
      return std::ranges::all_of(
          *list, [&](const JsonValue& part) { return read_data(part, axis + 1, name, f); });
    }
    const auto* truth = v.as<bool>();
    if (const auto i = integer(v)) {
      f->data.push_back(*i);
    } else if (truth != nullptr && f->dtype.ends_with("bool")) {
      f->data.push_back(*truth);
    } else if (v.as<double>() != nullptr || v.as<std::string>() != nullptr) {
      if (f->unreadable.empty()) f->unreadable = described(v);
    } else {
      fail(name + ".data", "integers", v.describe());
      return false;
    }
    return true;
  }

  void read_exception(const JsonValue& expect) {
    const JsonValue* e = expect.find("exception");
    if (e == nullptr || e->as<std::nullptr_t>() != nullptr) return;
    const JsonValue* type = e->find("type");
    const JsonValue* message = e->find("msg");
    const auto* t = type == nullptr ? nullptr : type->as<std::string>();
    const auto* m = message == nullptr ? nullptr : message->as<std::string>();
    if (t == nullptr || m == nullptr) {
      fail("expect.exception", "{type, msg}", e->describe());
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
};

/// The JSON reader counts bytes, from 1 here: columns.
void in_line(size_t number, Finding* f) {
  constexpr std::string_view kByte = " at byte ";
  f->where.row = static_cast<int64_t>(number);
  if (f->where.field == "header") f->where.field = "line";
  const size_t byte = f->got.rfind(kByte);
  if (byte != std::string::npos) f->got.replace(byte, kByte.size(), " at column ");
}

/// how: what the text should be, where it is no JSON.
Status parse_line(std::string_view text, const std::string& name, size_t number, const char* how,
                  std::vector<TraceLine>* lines) {
  JsonDocument document;
  Status status = parse_strict_json(text, "io.line", name, 1, &document, kMaxTraceDepth);
  if (how != nullptr && !status.ok()) status.findings()[0].expected = how;
  TraceLine line;
  if (status.ok()) status = LineReader(document, name, number).read(&line);
  for (Finding& f : status.findings()) in_line(number, &f);
  if (status.ok()) lines->push_back(std::move(line));
  return status;
}

constexpr const char* kOneALine =
    "one object on each line, or one alone: jq -c . FILE, and of a list jq -c '.[]' FILE";
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view next_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// A list of objects, or one that goes on behind its first line.
bool is_spread(std::string_view text) {
  std::string_view first;
  while (!text.empty() && is_blank(first)) first = next_line(&text);
  const size_t last = first.find_last_not_of(" \t\r");
  if (last == std::string_view::npos) return false;
  const bool list = first[first.find_first_not_of(" \t\r")] == '[';
  return list ||
         (std::string_view("{,:[").find(first[last]) != std::string_view::npos && !is_blank(text));
}

/// A first line that is cut off looks as if it went on; then the next is an object by itself.
bool is_cut_off(std::string_view text, const std::string& name) {
  std::string_view first, second;
  while (!text.empty() && is_blank(first)) first = next_line(&text);
  while (!text.empty() && is_blank(second)) second = next_line(&text);
  JsonDocument next;
  const bool bracket = first.find_first_not_of(" \t\r{[") == std::string_view::npos;
  return !bracket && parse_strict_json(second, "io.line", name, 1, &next, kMaxTraceDepth).ok() &&
         next.root.as<JsonValue::Object>() != nullptr;
}

}  // namespace

Status parse_traces(std::string_view text, const std::string& name, std::vector<TraceLine>* lines) {
  return with_memory_findings(name, [&] {
    Status status;
    std::vector<TraceLine> read;
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (text.starts_with(kGzip)) {
      status.add(file_finding("io.kind", name, "file", "text: gzip -dc FILE | shadowgraph check -",
                              "a gzip archive"));
      return status;
    }
    if (is_spread(text)) {
      status = parse_line(text, name, 1, kOneALine, &read);
      if (status.ok() || !is_cut_off(text, name)) {
        text = {};
      } else {
        status = {};
      }
    }
    for (size_t number = 1; !text.empty(); ++number) {
      const std::string_view line = next_line(&text);
      if (!is_blank(line)) status.add(parse_line(line, name, number, nullptr, &read));
    }
    if (read.empty() && status.ok())
      status.add(file_finding("io.kind", name, "file", "at least one line", "none"));
    lines->reserve(lines->size() + read.size());
    std::move(read.begin(), read.end(), std::back_inserter(*lines));
    return status;
  });
}

Status read_traces(const std::string& path, std::vector<TraceLine>* lines) {
  std::vector<std::byte> bytes;
  Status status = path == "-" ? read_stdin(&bytes) : read_file(path, &bytes);
  if (!status.ok()) return status;
  return parse_traces({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, lines);
}

}  // namespace shadowgraph
