// DeepSeek sparse attention's indexer: quantised activations, index keys in pages, their scores,
// and lists of chosen keys.
#include <algorithm>
#include <string>

#include "attn/index_page.h"
#include "io/recorded/recorded_cases.h"
#include "io/recorded/state_rows.h"

namespace shadowgraph {
namespace {

constexpr int64_t kGuards = 4;  // cells behind kv_indices that nobody writes

/// The sizes of index keys and of their pages, for shapes.
void bind_index_pages(CaseReader& reader) {
  reader.bind("channels", kIndexDim), reader.bind("page_bytes", kIndexPageBytes);
}

/// The pages of keys 0 .. len - 1 of each row; as wide as the longest needs.
ConstTensorView read_index_pages(CaseReader& reader, std::span<const int32_t> lens) {
  const auto pages_of = [](int64_t len) { return (len + kIndexPageTokens - 1) / kIndexPageTokens; };
  const int64_t num_pages = reader.size("pages");
  const int64_t longest = lens.empty() ? 0 : std::ranges::max(lens);
  reader.bind("pages_of_row", pages_of(longest));
  const ConstTensorView table = reader.tensor("page_table", {DType::kI32}, "rows pages_of_row");
  for (int64_t row = 0; table.defined() && row < std::ssize(lens); ++row)
    for (int64_t p = 0; p < pages_of(lens[static_cast<size_t>(row)]); ++p) {
      const int32_t id = load_i32(table, row, p);
      if (id >= 0 && id < num_pages) continue;
      reader.bad_tensor("page_table", "a page from 0 to " + std::to_string(num_pages - 1),
                        std::to_string(id), row);
      return {};
    }
  return table;
}

/// f32, one after the other, as f32 or as bytes in the file.
ConstTensorView read_scales(CaseReader& reader, std::string_view name, DType stored,
                            std::string_view shape) {
  const ConstTensorView scales = reader.tensor(name, {stored}, shape);
  return {scales.data, DType::kF32, {scales.shape[0]}};
}

}  // namespace

void read_act_quant(CaseReader& reader, RecordedCase* c) {
  ActQuantCase q;
  reader.integer("block", kIndexDim, kIndexDim);
  if (!reader.is_null("scale_fmt")) {
    reader.known_text("scale_fmt", "ue8m0");
    q.call.ue8m0 = true;
  }
  c->dtype = reader.tensor_dtype("x");
  q.call.x = reader.tensor("x", {c->dtype}, "tokens dim");
  if (!reader.ok()) return;
  if (reader.size("dim") % kIndexDim != 0)
    reader.bad_tensor("x", "a multiple of 128 channels", std::to_string(reader.size("dim")));
  reader.bind("blocks", reader.size("dim") / kIndexDim);
  q.y = reader.e4m3("y", "tokens dim");
  q.scale = reader.f32("s", "tokens blocks");
  q.scale_ref = reader.reference("s_ref", "tokens blocks");
  q.call.y = without_memory(q.y), q.call.scale = without_memory(q.scale);
  c->call = q;
}

void read_index_buf(CaseReader& reader, RecordedCase* c) {
  IndexKeysCase k;
  c->dtype = DType::kE4M3;
  reader.integer("page_size", kIndexPageTokens, kIndexPageTokens);
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  bind_index_pages(reader);
  k.before = reader.tensor("buf_before", {DType::kU8}, "pages page_bytes");
  if (!reader.ok()) return;
  k.after = reader.tensor("buf_after", {DType::kU8}, "pages page_bytes");
  k.reference = reader.tensor("buf_ref", {DType::kU8}, "pages page_bytes");
  k.store.k = reader.e4m3("index_k", "tokens channels");
  k.store.k_scale = read_scales(reader, "index_k_scale", DType::kF32, "tokens 1");
  k.store.out_cache_loc = reader.i64("loc", "tokens");
  reader.in_range("loc", k.store.out_cache_loc, 0, reader.size("pages") * kIndexPageTokens - 1);
  k.store.pages = without_memory(k.before);
  k.gather.pages = k.after;
  k.gather.page_table = read_index_pages(reader, lens);
  k.gather.cu_seqlens_k = reader.own(indptr_of(lens));
  k.k = reader.e4m3("gathered_k", "tokens channels");
  k.k_scale = read_scales(reader, "gathered_s", DType::kU8, "tokens 4");
  k.gather.k = without_memory(k.k), k.gather.k_scale = without_memory(k.k_scale);
  c->call = k;
}

void read_indexer_logits(CaseReader& reader, RecordedCase* c) {
  IndexerLogitsCase l;
  c->dtype = DType::kE4M3;
  c->gpu().kernel = reader.text("which");
  reader.integer("page_size", kIndexPageTokens, kIndexPageTokens);
  reader.dim("heads"), reader.dim("topk");
  const std::vector<int32_t> lens = read_lens(reader);
  if (!reader.ok()) return;
  bind_index_pages(reader);
  const int64_t width = lens.empty() ? 0 : std::ranges::max(lens);
  reader.bind("width", width);
  l.call.q = reader.e4m3("q_fp8", "(rows 1) heads channels");
  l.call.weights = reader.f32("weights", "rows heads");
  l.call.pages = reader.tensor("index_buf", {DType::kU8}, "pages page_bytes");
  if (!reader.ok()) return;
  l.call.page_table = read_index_pages(reader, lens);
  l.call.ke = reader.indices("seq_lens", lens);
  l.logits = reader.f32("logits", "rows width");
  l.reference = reader.reference("logits_ref", "rows width");
  l.topk_ref = reader.tensor("topk_ref", {DType::kI32}, "rows topk");
  const auto has_key = [&](size_t i) {
    return static_cast<int64_t>(i) % width < lens[i / static_cast<size_t>(width)];
  };
  reader.all_as("valid", reader.bytes("valid", "rows width"), has_key, "lens says", width);
  l.call.logits = without_memory(l.logits);
  c->call = l;
}

void read_topk_transform(CaseReader& reader, RecordedCase* c) {
  TopkTransformCase t;
  const int64_t topk = reader.dim("topk"), width = reader.dim("width");
  if (!reader.ok()) return;
  t.transform.indices = reader.tensor("topk_indices", {DType::kI32}, "tokens topk");
  if (!reader.ok()) return;
  const int64_t tokens = reader.size("tokens");
  reader.in_range("topk_indices", reader.i32("topk_indices", "tokens topk"), -1, width - 1, topk);
  t.transform.page_table_1 = reader.tensor("page_table_1", {DType::kI32}, "tokens width");
  t.out = reader.tensor("out", {DType::kI32}, "tokens topk");
  t.out_ref = reader.tensor("out_ref", {DType::kI32}, "tokens topk");
  t.transform.out = without_memory(t.out);
  t.compact.indices = t.out;
  t.compact.kv_indptr = reader.i32("kv_indptr", std::to_string(tokens + 1));
  if (!reader.ok()) return;
  const int64_t kept = t.compact.kv_indptr.back();
  if (kept < 0 || kept > tokens * topk)
    return reader.bad_tensor("kv_indptr", "at most all of the indices", std::to_string(kept),
                             tokens);
  reader.bind("cells", kept + kGuards);
  t.kv_indices = reader.i32("kv_indices", "cells");
  t.kv_indices_ref = reader.i32("kv_indices_ref", "cells");
  c->call = t;
}

}  // namespace shadowgraph
