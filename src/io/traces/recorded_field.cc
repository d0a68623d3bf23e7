#include "io/traces/recorded_field.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "core/nearest.h"
#include "io/file.h"
#include "io/traces/base64.h"

namespace shadowgraph {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr size_t kMaxRank = 4;

struct IntegerType {
  std::string_view name;
  int64_t low, high;
  int64_t bytes = 0;  // 0: Python's own numbers, of any size
};
template <class T>
constexpr IntegerType type_of(std::string_view name) {
  using Limit = std::numeric_limits<T>;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return {name, static_cast<int64_t>(Limit::min()),
          std::cmp_less(Limit::max(), kMost) ? static_cast<int64_t>(Limit::max()) : kMost,
          name.starts_with("py") ? 0 : int64_t{sizeof(T)}};
}
constexpr IntegerType kIntegerTypes[] = {
    {"bool", 0, 1, 1},           {"pybool", 0, 1},
    type_of<int64_t>("pyint"),   type_of<int64_t>("pylist"),
    type_of<int8_t>("int8"),     type_of<int16_t>("int16"),
    type_of<int32_t>("int32"),   type_of<int64_t>("int64"),
    type_of<uint8_t>("uint8"),   type_of<uint16_t>("uint16"),
    type_of<uint32_t>("uint32"), type_of<uint64_t>("uint64"),
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

class FieldReader {
 public:
  FieldReader(const std::string& name, const TellFault& fail, RecordedField* field)
      : name_(name), fail_(fail), f_(*field) {}

  /// {dtype, shape, data} or {dtype, shape, b64}; what is not said follows from the data.
  bool read(const JsonValue& value) {
    if (const JsonValue* pages = value.find("pages")) {
      f_.pages = true;
      return read(*pages);
    }
    const JsonValue* bytes = value.find("b64");
    const JsonValue* data = bytes == nullptr ? value.find("data") : bytes;
    const JsonValue* shape = value.find("shape");
    if (const JsonValue* dtype = value.find("dtype"); data != nullptr && dtype != nullptr) {
      if (dtype->as<std::string>() == nullptr) {
        fail_(name_ + ".dtype", "a string", dtype->describe());
        return false;
      }
      f_.dtype = *dtype->as<std::string>();
      if (f_.dtype.starts_with("torch.")) f_.dtype.erase(0, 6);
      f_.unreadable = unreadable_dtype(f_.dtype);
    }
    const bool taken =
        bytes == nullptr ? read_elements(value, data, shape) : read_bytes(*bytes, shape);
    if (!taken) return false;
    if (f_.dtype.empty()) f_.dtype = f_.shape.empty() ? "pyint" : "pylist";
    if (f_.unreadable.empty() && !fits(f_))
      f_.unreadable = "a value that " + f_.dtype + " cannot hold";
    if (!f_.unreadable.empty()) f_.data.clear();
    return true;
  }

 private:
  bool read_elements(const JsonValue& value, const JsonValue* data, const JsonValue* shape) {
    if (data == nullptr || shape == nullptr) {
      read_nested(data == nullptr ? value : *data);
      return true;
    }
    if (!read_shape(*shape) || !read_columns(value)) return false;
    if (!is_flat(*data)) return read_data(*data, 0);
    return std::ranges::all_of(*data->as<JsonValue::Array>(), [&](const JsonValue& element) {
      return read_data(element, f_.shape.size());
    });
  }

  /// A number, or lists of lists of numbers: rows of one length.
  void read_nested(const JsonValue& value) {
    if (value.as<JsonValue::Object>() != nullptr) {
      f_.unreadable = "an object without data or pages";
      return;
    }
    const JsonValue* first = &value;
    for (const auto* list = value.as<JsonValue::Array>();
         list != nullptr && f_.shape.size() < kMaxRank; list = first->as<JsonValue::Array>()) {
      f_.shape.push_back(std::ssize(*list));
      if (list->empty()) break;
      first = list->data();
    }
    f_.cols = f_.width();
    add_nested(value, 0);
  }

  void add_nested(const JsonValue& value, size_t axis) {
    const auto* list = value.as<JsonValue::Array>();
    const bool is_row = axis < f_.shape.size() && list != nullptr;
    const auto say = [&](const std::string& what) {
      if (f_.unreadable.empty()) f_.unreadable = what;
    };
    if (is_row && std::ssize(*list) == f_.shape[axis]) {
      for (const JsonValue& part : *list) add_nested(part, axis + 1);
    } else if (is_row) {
      say("lists of " + std::to_string(f_.shape[axis]) + " and of " + std::to_string(list->size()) +
          " elements");
    } else if (const auto n = scalar_of(value); n && axis == f_.shape.size()) {
      f_.data.push_back(*n);
    } else {
      say((axis == 0 ? "" : "a list with ") + described(value));
    }
  }

  /// Lists without a dtype hold integers only, or truths only.
  std::optional<int64_t> scalar_of(const JsonValue& value) {
    const auto* truth = value.as<bool>();
    if (truth != nullptr && f_.data.empty() && f_.dtype.empty()) f_.dtype = "pybool";
    if (truth == nullptr) return f_.dtype == "pybool" ? std::nullopt : json_integer(value);
    return f_.dtype.ends_with("bool") ? std::optional<int64_t>(*truth) : std::nullopt;
  }

  /// Elements of an array of several axes, one after the other.
  bool is_flat(const JsonValue& data) const {
    const auto* list = data.as<JsonValue::Array>();
    if (list == nullptr || f_.shape.size() < 2 || f_.cols != f_.width()) return false;
    int64_t numel = 1;
    for (const int64_t size : f_.shape)
      numel *= std::min(size, kMaxSize / std::max<int64_t>(numel, 1));
    return !list->empty() && std::ssize(*list) == numel &&
           list->front().as<JsonValue::Array>() == nullptr;
  }

  /// Elements in row order, each little-endian: of a dtype and a shape that are said.
  bool read_bytes(const JsonValue& value, const JsonValue* shape) {
    const int64_t width = integer_bytes(f_.dtype);
    if (width == 0 && !f_.unreadable.empty()) return true;
    if (width == 0 || shape == nullptr) {
      fail_(name_ + ".b64", "dtype and shape beside it", "without one");
      return false;
    }
    std::string bytes;
    const auto* text = value.as<std::string>();
    if (text == nullptr || !from_base64(*text, &bytes)) {
      fail_(name_ + ".b64", "base64", text == nullptr ? value.describe() : "other characters");
      return false;
    }
    if (!read_shape(*shape)) return false;
    f_.cols = f_.width();
    int64_t want = width;
    for (const int64_t size : f_.shape)
      want *= std::min(size, kMaxSize / std::max<int64_t>(want, 1));
    if (std::ssize(bytes) != want) {
      fail_(name_ + ".b64", std::to_string(want) + " bytes", std::to_string(bytes.size()));
      return false;
    }
    const int unused = static_cast<int>(64 - 8 * width);
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(width)) {
      uint64_t bits = 0;
      for (int64_t j = 0; j < width; ++j)
        bits |= uint64_t{static_cast<uint8_t>(bytes[i + static_cast<size_t>(j)])} << (8 * j);
      const bool is_signed = f_.dtype.starts_with("int");
      f_.data.push_back(is_signed ? static_cast<int64_t>(bits << unused) >> unused
                                  : static_cast<int64_t>(bits));
    }
    return true;
  }

  bool read_shape(const JsonValue& shape) {
    const auto* sizes = shape.as<JsonValue::Array>();
    if (sizes == nullptr) {
      fail_(name_ + ".shape", "a list of sizes", shape.describe());
      return false;
    }
    for (const JsonValue& size : *sizes) {
      const auto n = json_integer(size);
      if (!n || *n < 0 || *n > kMaxSize || f_.shape.size() == kMaxRank) {
        fail_(name_ + ".shape", "at most 4 sizes from 0 to 2^40", size.describe());
        return false;
      }
      f_.shape.push_back(*n);
    }
    return true;
  }

  bool read_columns(const JsonValue& value) {
    f_.cols = f_.width();
    if (const JsonValue* cols = value.find("cols")) {
      const auto n = json_integer(*cols);
      if (!n || *n < 0 || *n > f_.width()) {
        fail_(name_ + ".cols", "0 to " + std::to_string(f_.width()), cols->describe());
        return false;
      }
      f_.cols = *n;
    }
    return true;
  }

  bool read_data(const JsonValue& v, size_t axis) {
    if (axis < f_.shape.size()) {
      const int64_t want = axis + 1 == f_.shape.size() ? f_.cols : f_.shape[axis];
      const auto* list = v.as<JsonValue::Array>();
      if (list == nullptr || static_cast<int64_t>(list->size()) != want) {
        fail_(name_ + ".data", "a list of " + std::to_string(want), v.describe());
        return false;
      }
      return std::ranges::all_of(*list,
                                 [&](const JsonValue& part) { return read_data(part, axis + 1); });
    }
    const auto* truth = v.as<bool>();
    if (const auto i = json_integer(v)) {
      f_.data.push_back(*i);
    } else if (truth != nullptr && f_.dtype.ends_with("bool")) {
      f_.data.push_back(*truth);
    } else if (v.as<double>() != nullptr || v.as<std::string>() != nullptr) {
      if (f_.unreadable.empty()) f_.unreadable = described(v);
    } else {
      fail_(name_ + ".data", "integers", v.describe());
      return false;
    }
    return true;
  }

  const std::string& name_;
  const TellFault& fail_;
  RecordedField& f_;
};

}  // namespace

int64_t integer_bytes(std::string_view dtype) {
  const auto* const type = std::ranges::find(kIntegerTypes, dtype, &IntegerType::name);
  return type == std::end(kIntegerTypes) ? 0 : type->bytes;
}

std::optional<int64_t> json_integer(const JsonValue& v) {
  if (const auto* i = v.as<int64_t>()) return *i;
  const auto* u = v.as<uint64_t>();
  if (u == nullptr || *u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
  return static_cast<int64_t>(*u);
}

std::string described(const JsonValue& v) {
  return (v.as<double>() != nullptr ? "the float " : "") + v.describe();
}

bool read_recorded_field(const JsonValue& value, const std::string& name, const TellFault& fail,
                         RecordedField* field) {
  return FieldReader(name, fail, field).read(value);
}

}  // namespace shadowgraph
