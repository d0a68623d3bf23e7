// Writes safetensors files.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_dtype.h"
#include "io/strict_json.h"

namespace shadowgraph {
namespace {

using Item = std::pair<const std::string, ConstTensorView>;

bool is_dense(const ConstTensorView& t) {
  int64_t step = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    if (t.shape[axis] > 1 && t.stride[axis] != step) return false;
    step *= t.shape[axis];
  }
  return t.rank > 0;
}

size_t bytes_of(const ConstTensorView& t) {
  return static_cast<size_t>(t.numel()) * size_of(t.dtype);
}

/// Wide elements first: then each tensor starts at a multiple of its element size.
std::vector<const Item*> file_order(const TensorMap& tensors) {
  std::vector<const Item*> order;
  for (const Item& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    return size_of(a->second.dtype) > size_of(b->second.dtype);
  });
  return order;
}

std::string entry_text(const ConstTensorView& t, size_t begin) {
  std::string shape;
  for (int axis = 0; axis < t.rank; ++axis)
    shape += (axis == 0 ? "" : ",") + std::to_string(t.shape[axis]);
  return "{\"dtype\":" + json_quoted(safetensors_name_of(t.dtype)) + ",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + ',' +
         std::to_string(begin + bytes_of(t)) + "]}";
}

std::string header_text(const std::vector<const Item*>& order, const MetadataMap& metadata) {
  std::string entries, texts;
  size_t at = 0;
  for (const Item* item : order) {
    entries += (entries.empty() ? "" : ",") + json_quoted(item->first) + ':' +
               entry_text(item->second, at);
    at += bytes_of(item->second);
  }
  for (const auto& [key, value] : metadata) {
    texts += (texts.empty() ? "" : ",") + json_quoted(key) + ':' + json_quoted(value);
  }
  if (!texts.empty()) texts = "\"__metadata__\":{" + texts + '}' + (entries.empty() ? "" : ",");
  std::string text = '{' + texts + entries + '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Status serialize(const TensorMap& tensors, const MetadataMap& metadata,
                 std::vector<std::byte>* out) {
  Status status;
  for (const auto& [name, t] : tensors) {
    if (!is_dense(t)) {
      status.add(
          make_finding("input.stride", at(printable(name)), "a dense tensor", "a strided one"));
    }
  }
  if (!status.ok()) return status;
  const std::vector<const Item*> order = file_order(tensors);
  const std::string header = header_text(order, metadata);
  std::vector<std::byte> bytes(8);
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(header.size() >> (8 * i));
  const auto* text = reinterpret_cast<const std::byte*>(header.data());
  bytes.insert(bytes.end(), text, text + header.size());
  for (const Item* item : order) {
    bytes.insert(bytes.end(), item->second.data, item->second.data + bytes_of(item->second));
  }
  // Names and sizes have one set of rules, the reader's.
  auto written = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  SafetensorsFile file;
  status = parse_safetensors(written, "output", &file);
  if (status.ok()) *out = *written;
  return status;
}

}  // namespace

Status serialize_safetensors(const TensorMap& tensors, const MetadataMap& metadata,
                             std::vector<std::byte>* out) {
  return with_memory_findings("output", [&] { return serialize(tensors, metadata, out); });
}

Status write_safetensors(const std::string& path, const TensorMap& tensors,
                         const MetadataMap& metadata) {
  std::vector<std::byte> bytes;
  Status status = serialize_safetensors(tensors, metadata, &bytes);
  if (!status.ok()) return status;
  return write_file(path, bytes);
}

}  // namespace shadowgraph
