#include "io/safetensors.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "io/file.h"
#include "io/safetensors_dtype.h"
#include "io/strict_json.h"

namespace shadowgraph {
namespace {

constexpr size_t kPrefix = 8;  // the header length

/// One entry of the header.
struct Entry {
  std::string name;
  const SafetensorsDType* dtype = nullptr;  // null: not known
  std::string dtype_name;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data part
};

std::string list_text(const std::vector<uint64_t>& list) {
  std::string s;
  for (const uint64_t n : list) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return '[' + s + ']';
}

class HeaderReader {
 public:
  HeaderReader(const std::string& name, const JsonDocument& header)
      : name_(name), header_(header) {}

  Status read(uint64_t data_size, std::vector<Entry>* entries, MetadataMap* metadata) {
    for (const auto& [key, value] : *header_.root.as<JsonValue::Object>()) {
      if (key == "__metadata__") {
        read_metadata(value, metadata);
      } else if (std::optional<Entry> entry = read_entry(key, value, data_size)) {
        entries->push_back(*std::move(entry));
      }
    }
    // Without every tensor's place there is no telling what is covered.
    if (status_.ok()) check_cover(data_size, entries);
    return std::move(status_);
  }

 private:
  void add(LawId law, const std::string& key, std::string expected, std::string got) {
    const auto at = header_.key_offsets.find(key);
    if (at != header_.key_offsets.end()) got += " (header byte " + std::to_string(at->second) + ")";
    status_.add(file_finding(law, name_, printable(key), std::move(expected), std::move(got)));
  }

  void read_metadata(const JsonValue& value, MetadataMap* metadata) {
    const auto* object = value.as<JsonValue::Object>();
    if (object == nullptr) return add("io.header", "__metadata__", "an object", value.describe());
    for (const auto& [key, text] : *object) {
      if (const auto* s = text.as<std::string>()) {
        metadata->emplace(key, *s);
      } else {
        add("io.header", "__metadata__", "a string for \"" + printable(key) + '"', text.describe());
      }
    }
  }

  /// A list of integers 0 <= n <= limit.
  std::optional<std::vector<uint64_t>> read_list(LawId law, const std::string& key,
                                                 const char* what, const JsonValue& value,
                                                 uint64_t limit) {
    const auto* list = value.as<JsonValue::Array>();
    if (list == nullptr) {
      add(law, key, std::string(what) + ": a list", value.describe());
      return {};
    }
    std::vector<uint64_t> numbers;
    for (const JsonValue& item : *list) {
      const auto* n = item.as<uint64_t>();
      if (n == nullptr || *n > limit) {
        add(law, key, std::string(what) + ": integers from 0 to " + std::to_string(limit),
            item.describe());
        return {};
      }
      numbers.push_back(*n);
    }
    return numbers;
  }

  std::optional<Entry> read_entry(const std::string& key, const JsonValue& value,
                                  uint64_t data_size) {
    const auto* object = value.as<JsonValue::Object>();
    const JsonValue *dtype = value.find("dtype"), *shape = value.find("shape"),
                    *offsets = value.find("data_offsets");
    if (object == nullptr || object->size() != 3 || !dtype || !shape || !offsets) {
      add("io.header", key, "an object of dtype, shape and data_offsets", value.describe());
      return {};
    }
    const auto* dtype_name = dtype->as<std::string>();
    if (dtype_name == nullptr) add("io.dtype", key, "dtype: a string", dtype->describe());
    auto dims = read_list("io.shape", key, "shape", *shape, kMaxSafetensorsDim);
    auto range = read_list("io.offsets", key, "data_offsets", *offsets, data_size);
    if (dims && dims->size() > kMaxSafetensorsRank) {
      add("io.shape", key, "at most " + std::to_string(kMaxSafetensorsRank) + " axes",
          std::to_string(dims->size()));
      dims.reset();
    }
    if (range && (range->size() != 2 || (*range)[0] > (*range)[1])) {
      add("io.offsets", key, "data_offsets [begin, end] with begin <= end", list_text(*range));
      range.reset();
    }
    if (dtype_name == nullptr || !dims || !range) return {};
    Entry entry{key,         find_safetensors_dtype(*dtype_name),
                *dtype_name, *std::move(dims),
                (*range)[0], (*range)[1]};
    return check_length(entry) ? std::optional(std::move(entry)) : std::nullopt;
  }

  bool check_length(const Entry& entry) {
    if (entry.dtype == nullptr)
      return true;  // its element size is not known, so neither is its length
    uint64_t strides = entry.dtype->size;  // zero dims aside: strides must not overflow either
    bool empty = false, overflow = false;
    for (const uint64_t dim : entry.shape) {
      empty = empty || dim == 0;
      overflow = overflow || __builtin_mul_overflow(strides, std::max<uint64_t>(dim, 1), &strides);
    }
    const uint64_t length = empty ? 0 : strides;
    if (!overflow && strides <= INT64_MAX && length == entry.end - entry.begin) return true;
    add("io.shape", entry.name,
        "as many bytes as data_offsets span, " + std::to_string(entry.end - entry.begin),
        overflow || strides > INT64_MAX ? "more than 2^63" : std::to_string(length));
    return false;
  }

  void check_cover(uint64_t data_size, std::vector<Entry>* entries) {
    std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    uint64_t covered = 0;
    for (const Entry& entry : *entries) {
      if (entry.begin != covered) {
        add("io.offsets", entry.name,
            "begin at " + std::to_string(covered) + ", where the one before ends",
            std::to_string(entry.begin) + (entry.begin < covered ? ": an overlap" : ": a hole"));
      }
      covered = std::max(covered, entry.end);
    }
    if (covered != data_size) {
      status_.add(file_finding("io.offsets", name_, "data part",
                               std::to_string(data_size) + " covered bytes",
                               std::to_string(covered)));
    }
  }

  const std::string& name_;
  const JsonDocument& header_;
  Status status_;
};

/// The entry as a view, or why there is none.
std::string add_tensor(const Entry& entry, const std::byte* data, TensorMap* tensors) {
  if (entry.dtype == nullptr) return "dtype " + printable(entry.dtype_name) + " is not known";
  if (!entry.dtype->dtype) return "dtype " + entry.dtype_name + " is not used by any kernel here";
  if (entry.shape.size() > static_cast<size_t>(ConstTensorView::kMaxRank)) {
    return "it has " + std::to_string(entry.shape.size()) + " axes, at most 5 are read";
  }
  ConstTensorView view;
  view.data = data + entry.begin;
  view.dtype = *entry.dtype->dtype;
  view.rank = std::max(1, static_cast<int>(entry.shape.size()));
  view.shape[0] = 1;
  std::copy(entry.shape.begin(), entry.shape.end(), view.shape.begin());
  uint64_t step = 1;  // wraps only where check_length has seen to it: not at all
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.stride[axis] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(view.shape[axis]);
  }
  tensors->emplace(entry.name, view);
  return {};
}

Status parse(std::shared_ptr<const std::vector<std::byte>> bytes, const std::string& name,
             SafetensorsFile* out) {
  Status status;
  const uint64_t size = bytes == nullptr ? 0 : bytes->size();
  if (size < kPrefix) {
    status.add(
        file_finding("io.truncated", name, "file", "at least 8 bytes", std::to_string(size)));
    return status;
  }
  uint64_t header_size = 0;
  for (size_t i = 0; i < kPrefix; ++i) {
    header_size |= std::to_integer<uint64_t>((*bytes)[i]) << (8 * i);
  }
  if (header_size > kMaxSafetensorsHeader) {
    status.add(file_finding("io.header", name, "header length at byte 0",
                            "at most " + std::to_string(kMaxSafetensorsHeader),
                            std::to_string(header_size)));
  } else if (header_size > size - kPrefix) {
    status.add(file_finding("io.truncated", name, "header length at byte 0",
                            "at most the " + std::to_string(size - kPrefix) + " bytes that follow",
                            std::to_string(header_size)));
  }
  if (!status.ok()) return status;

  JsonDocument header;
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()) + kPrefix, header_size);
  status = parse_strict_json(text, "io.header", name, kPrefix, &header);
  if (!status.ok()) return status;
  SafetensorsFile file;
  std::vector<Entry> entries;
  status = HeaderReader(name, header).read(size - kPrefix - header_size, &entries, &file.metadata);
  if (!status.ok()) return status;
  for (const Entry& entry : entries) {
    std::string reason = add_tensor(entry, bytes->data() + kPrefix + header_size, &file.tensors);
    if (!reason.empty()) file.skipped.push_back({entry.name, std::move(reason)});
  }
  file.bytes = std::move(bytes);
  *out = std::move(file);
  return status;
}

}  // namespace

Status parse_safetensors(std::shared_ptr<const std::vector<std::byte>> bytes,
                         const std::string& name, SafetensorsFile* out) {
  return with_memory_findings(name, [&] { return parse(std::move(bytes), name, out); });
}

Status read_safetensors(const std::string& path, SafetensorsFile* out) {
  return with_memory_findings(path, [&] {
    auto bytes = std::make_shared<std::vector<std::byte>>();
    Status status = read_file(path, bytes.get());
    return status.ok() ? parse(std::move(bytes), path, out) : status;
  });
}

}  // namespace shadowgraph
