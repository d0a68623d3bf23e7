// DeepSeek sparse attention's indexer: quantised activations, index keys in pages, their scores,
// and lists of what was chosen.
#include <algorithm>
#include <string>

#include "attn/index_page.h"
#include "io/case_tensors.h"
#include "io/linear_case.h"

namespace shadowgraph {
namespace {

constexpr int64_t kGuards = 4;  // cells behind kv_indices that nobody writes

void known_integer(CaseReader& reader, std::string_view field, int32_t expected) {
  reader.integer(field, expected, expected);
}

ConstTensorView shaped(CaseReader& reader, std::string_view name, DType dtype, const Shape& shape) {
  return reader.tensor(name, {dtype}, shape);
}

void read_act_quant(CaseReader& reader, LinearVector* vector) {
  ActQuantCase c;
  known_integer(reader, "block", kIndexDim);
  const JsonValue* format = reader.field("scale_fmt");
  if (format != nullptr && format->as<std::nullptr_t>() == nullptr) {
    reader.known_text("scale_fmt", "ue8m0");
    c.call.ue8m0 = true;
  }
  vector->dtype = reader.tensor_dtype("x");
  c.call.x = shaped(reader, "x", vector->dtype, {-1, -1});
  if (!reader.ok()) return;
  const int64_t tokens = c.call.x.shape[0], dim = c.call.x.shape[1];
  if (dim % kIndexDim != 0)
    reader.bad_tensor("x", "a multiple of 128 channels", std::to_string(dim));
  c.y = read_e4m3(reader, "y", {tokens, dim});
  c.scale = shaped(reader, "s", DType::kF32, {tokens, dim / kIndexDim});
  c.scale_ref = read_reference(reader, "s_ref", {tokens, dim / kIndexDim});
  c.call.y = without_memory(c.y), c.call.scale = without_memory(c.scale);
  vector->call = IndexerCase(c);
}

/// The pages of keys 0 .. len - 1 of each row; as wide as the longest needs.
ConstTensorView read_index_pages(CaseReader& reader, const RowLengths& lengths, int64_t num_pages) {
  const auto pages_of = [](int64_t len) { return (len + kIndexPageTokens - 1) / kIndexPageTokens; };
  int64_t width = 0;
  for (const int32_t len : lengths.lens) width = std::max(width, pages_of(len));
  const ConstTensorView table = shaped(reader, "page_table", DType::kI32, {lengths.rows(), width});
  if (!table.defined()) return table;
  for (int64_t row = 0; row < lengths.rows(); ++row)
    for (int64_t p = 0; p < pages_of(lengths.lens[static_cast<size_t>(row)]); ++p) {
      const int32_t id = load_i32(table, row, p);
      if (id >= 0 && id < num_pages) continue;
      reader.bad_tensor("page_table", "a page from 0 to " + std::to_string(num_pages - 1),
                        std::to_string(id), row);
      return {};
    }
  return table;
}

/// i64 [tokens], slots of the pages.
std::span<const int64_t> read_slots(CaseReader& reader, int64_t tokens, int64_t num_pages) {
  const ConstTensorView view = shaped(reader, "loc", DType::kI64, {tokens});
  if (!view.defined()) return {};
  const int64_t slots = num_pages * kIndexPageTokens;
  const auto* values = reinterpret_cast<const int64_t*>(view.data);
  for (int64_t t = 0; t < tokens; ++t) {
    if (values[t] >= 0 && values[t] < slots) continue;
    reader.bad_tensor("loc", "a slot from 0 to " + std::to_string(slots - 1),
                      std::to_string(values[t]), t);
    return {};
  }
  return {values, static_cast<size_t>(tokens)};
}

void read_index_buf(CaseReader& reader, LinearVector* vector) {
  IndexKeysCase c;
  vector->dtype = DType::kE4M3;
  known_integer(reader, "page_size", kIndexPageTokens);
  const RowLengths lengths = read_lens(reader);
  if (!reader.ok()) return;
  const int64_t tokens = lengths.tokens;
  c.before = shaped(reader, "buf_before", DType::kU8, {-1, kIndexPageBytes});
  if (!reader.ok()) return;
  const int64_t pages = c.before.shape[0];
  c.after = shaped(reader, "buf_after", DType::kU8, {pages, kIndexPageBytes});
  c.reference = shaped(reader, "buf_ref", DType::kU8, {pages, kIndexPageBytes});
  c.store.k = read_e4m3(reader, "index_k", {tokens, kIndexDim});
  const ConstTensorView stored = shaped(reader, "index_k_scale", DType::kF32, {tokens, 1});
  c.store.k_scale = ConstTensorView(stored.data, DType::kF32, {tokens});
  c.store.out_cache_loc = read_slots(reader, tokens, pages);
  c.store.pages = without_memory(c.before);
  c.gather.pages = c.after;
  c.gather.page_table = read_index_pages(reader, lengths, pages);
  c.gather.cu_seqlens_k = reader.own(indptr_of(lengths.lens));
  c.k = read_e4m3(reader, "gathered_k", {tokens, kIndexDim});
  const ConstTensorView scales =
      shaped(reader, "gathered_s", DType::kU8, {tokens, int64_t{sizeof(float)}});
  c.k_scale = ConstTensorView(scales.data, DType::kF32, {tokens});
  c.gather.k = without_memory(c.k), c.gather.k_scale = without_memory(c.k_scale);
  vector->call = IndexerCase(c);
}

/// valid says of each key whether it is one of the row's.
void check_valid(CaseReader& reader, const RowLengths& lengths, int64_t width) {
  const ConstTensorView valid =
      reader.tensor("valid", {DType::kU8, DType::kBool}, {lengths.rows(), width});
  if (!valid.defined()) return;
  for (int64_t row = 0; row < lengths.rows(); ++row)
    for (int64_t s = 0; s < width; ++s) {
      const int expected = s < lengths.lens[static_cast<size_t>(row)] ? 1 : 0;
      const int found = std::to_integer<int>(*valid.at(row, s));
      if (found == expected) continue;
      reader.bad_tensor("valid", std::to_string(expected) + ", as lens says", std::to_string(found),
                        row);
      return;
    }
}

void read_indexer_logits(CaseReader& reader, LinearVector* vector) {
  IndexerLogitsCase c;
  vector->dtype = DType::kE4M3;
  vector->kernel = reader.text("which");
  known_integer(reader, "page_size", kIndexPageTokens);
  const int64_t heads = read_dim(reader, "heads"), topk = read_dim(reader, "topk");
  const RowLengths lengths = read_lens(reader);
  if (!reader.ok()) return;
  const int64_t rows = lengths.rows();
  const int64_t width =
      lengths.lens.empty() ? 0 : *std::max_element(lengths.lens.begin(), lengths.lens.end());
  c.call.q = merge_leading(read_e4m3(reader, "q_fp8", {rows, 1, heads, kIndexDim}));
  c.call.weights = shaped(reader, "weights", DType::kF32, {rows, heads});
  c.call.pages = shaped(reader, "index_buf", DType::kU8, {-1, kIndexPageBytes});
  if (!reader.ok()) return;
  c.call.page_table = read_index_pages(reader, lengths, c.call.pages.shape[0]);
  c.call.ke = reader.indices("seq_lens", lengths.lens);
  c.logits = shaped(reader, "logits", DType::kF32, {rows, width});
  c.reference = read_reference(reader, "logits_ref", {rows, width});
  c.topk_ref = shaped(reader, "topk_ref", DType::kI32, {rows, topk});
  check_valid(reader, lengths, width);
  c.call.logits = without_memory(c.logits);
  vector->call = IndexerCase(c);
}

/// Indices of a token below `width`.
void check_indices(CaseReader& reader, const ConstTensorView& indices, int64_t width) {
  for (int64_t t = 0; indices.defined() && t < indices.shape[0]; ++t)
    for (int64_t j = 0; j < indices.shape[1]; ++j) {
      const int32_t index = load_i32(indices, t, j);
      if (index >= -1 && index < width) continue;
      reader.bad_tensor("topk_indices", "-1, or a column below " + std::to_string(width),
                        std::to_string(index), t);
      return;
    }
}

void read_topk_transform(CaseReader& reader, LinearVector* vector) {
  TopkTransformCase c;
  const int64_t topk = read_dim(reader, "topk"), width = read_dim(reader, "width");
  if (!reader.ok()) return;
  c.transform.indices = shaped(reader, "topk_indices", DType::kI32, {-1, topk});
  if (!reader.ok()) return;
  const int64_t tokens = c.transform.indices.shape[0];
  check_indices(reader, c.transform.indices, width);
  c.transform.page_table_1 = shaped(reader, "page_table_1", DType::kI32, {tokens, width});
  c.out = shaped(reader, "out", DType::kI32, {tokens, topk});
  c.out_ref = shaped(reader, "out_ref", DType::kI32, {tokens, topk});
  c.transform.out = without_memory(c.out);
  c.compact.indices = c.out;
  c.compact.kv_indptr = reader.indices("kv_indptr", tokens + 1);
  if (!reader.ok()) return;
  const int64_t kept = c.compact.kv_indptr.back();
  if (kept < 0 || kept > tokens * topk) {
    reader.bad_tensor("kv_indptr", "at most all of the indices", std::to_string(kept), tokens);
    return;
  }
  c.kv_indices = reader.indices("kv_indices", kept + kGuards);
  c.kv_indices_ref = reader.indices("kv_indices_ref", kept + kGuards);
  vector->call = IndexerCase(c);
}

constexpr LinearKind kKinds[] = {
    {"act_quant", read_act_quant},
    {"index_buf", read_index_buf},
    {"indexer_logits", read_indexer_logits},
    {"topk_transform", read_topk_transform},
};

}  // namespace

std::span<const LinearKind> indexer_kinds() { return kKinds; }

}  // namespace shadowgraph
