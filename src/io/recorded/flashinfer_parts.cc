// FlashInfer: an extend with a cached prefix under a sliding window, in one pass and in parts.
#include "attn/mask.h"
#include "attn/page_table.h"
#include "io/recorded/flashinfer_batch.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph {
namespace {

enum PartOfPrefill : size_t { kOnePass, kRagged, kPrefixWindow, kPrefixMask, kNaive };

constexpr const char* kNaiveIsWrong =
    "sglang#26513: the prefix part ran with window_left counted from the end of the prefix, not "
    "from each query's own position, so it saw keys that had already left the window";

/// The extend tokens' rows of a plane, packed: [rows, num_kv_heads, head_dim].
ConstTensorView gather(CaseReader& reader, const FlashInferBatch& b, const PagedAttention& call,
                       const KvPlane& plane) {
  const int64_t rows = reader.size("rows"), heads = b.params.num_kv_heads, dim = plane.head_dim;
  const size_t head_bytes = static_cast<size_t>(dim) * size_of(plane.dtype);
  std::vector<std::byte> packed;
  packed.reserve(static_cast<size_t>(rows * heads) * head_bytes);
  for (size_t r = 0; r < b.q_lens.size(); ++r) {
    const RequestPages pages = request_pages(call.pages, b.page_size, static_cast<int64_t>(r));
    for (int64_t token = b.prefix_lens[r]; token < pages.kv_len; ++token) {
      const int64_t page = pages.page_ids[token / b.page_size];
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = plane.offset(page, token % b.page_size, head, 0);
        const std::byte* row = plane.data + at * static_cast<int64_t>(size_of(plane.dtype));
        packed.insert(packed.end(), row, row + head_bytes);
      }
    }
  }
  return {reader.own(std::move(packed)).data(), plane.dtype, {rows, heads, dim}};
}

/// Packed mask over the prefix: what each query of the whole request sees of it.
CustomMask prefix_mask(CaseReader& reader, const FlashInferBatch& b) {
  return packed_mask(reader, "prefix_lens", b.q_lens, b.prefix_lens,
                     [&](size_t r, int64_t q, int64_t k) {
                       return attends(MaskShape::of(b.params, b.q_lens[r], b.kv_lens[r]), q, k);
                     });
}

/// What the naive merge really computes, in one pass: own keys within the window, and of the prefix
/// what a window shows that is counted from its end.
CustomMask naive_mask(CaseReader& reader, const FlashInferBatch& b) {
  AttentionParams prefix_params = b.params;
  prefix_params.causal = false;
  return packed_mask(reader, "kv_lens", b.q_lens, b.kv_lens,
                     [&, prefix_params](size_t r, int64_t q, int64_t k) {
                       const int32_t prefix = b.prefix_lens[r];
                       if (k < prefix)
                         return attends(MaskShape::of(prefix_params, b.q_lens[r], prefix), q, k);
                       AttentionParams own = b.params;
                       own.causal = true;
                       return attends(MaskShape::of(own, b.q_lens[r], b.q_lens[r]), q, k - prefix);
                     });
}

RaggedAttention ragged_part(CaseReader& reader, const FlashInferBatch& b,
                            const PagedAttention& one_pass) {
  RaggedAttention part;
  part.q = one_pass.q;
  part.k = gather(reader, b, one_pass, one_pass.cache.k);
  part.v = gather(reader, b, one_pass, one_pass.cache.v);
  part.cu_seqlens_q = part.cu_seqlens_k = one_pass.cu_seqlens_q;
  part.params = one_pass.params;
  part.k_scale = b.k_scale, part.v_scale = b.v_scale;
  return part;
}

}  // namespace

void read_flashinfer_parts(CaseReader& reader, RecordedCase* c) {
  const FlashInferBatch b = read_flashinfer_batch(reader, FlashInferKind::kPaged, c);
  if (!reader.ok()) return;
  PagedAttention one_pass = read_paged_call(reader, b, *c);
  one_pass.params.causal = true;
  refuse_terms(reader, one_pass.params, c->kind);
  PagedAttention prefix_window = one_pass;
  prefix_window.pages = read_csr(reader, b, "prefix_", "prefix_last_page_len", b.prefix_lens);
  prefix_window.params.causal = false;
  // The table is followed below.
  if (!reader.ok() ||
      !reader.in_range("kv_indices", one_pass.pages.kv_indices, 0, one_pass.cache.num_pages - 1))
    return;
  PagedAttention prefix_masked = prefix_window;
  prefix_masked.params.window_left = -1;  // the mask holds the window
  prefix_masked.params.custom_mask = prefix_mask(reader, b);
  PagedAttention naive = one_pass;
  naive.params.causal = false;
  naive.params.window_left = -1;
  naive.params.custom_mask = naive_mask(reader, b);
  c->attention().calls = {one_pass, ragged_part(reader, b, one_pass), prefix_window, prefix_masked,
                          naive};

  const std::string prefill = c->gpu().kernel, merged = "flashinfer_merged";
  c->recorded = {
      {.name = "one_pass", .kernel = prefill},
      {.name = "ragged", .kernel = prefill, .call = kRagged},
      {.name = "prefix_window", .kernel = prefill, .call = kPrefixWindow},
      {.name = "prefix_mask", .kernel = prefill, .call = kPrefixMask},
      {.name = "mask_merged", .kernel = merged},
      {.name = "naive_merged", .kernel = merged, .known_wrong = kNaiveIsWrong},
      {.name = "naive_as_planned", .kernel = merged, .call = kNaive},
  };
  for (Recorded& r : c->recorded) {
    const std::string tensor = r.call == kNaive ? "naive_merged" : r.name;
    read_log2_answer(reader, tensor == "one_pass" ? "" : tensor + '_', &r);
  }
  read_references(reader, {}, c);
}

}  // namespace shadowgraph
