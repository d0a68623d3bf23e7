#include "io/flashinfer_swa.h"

#include <cstring>
#include <numeric>

#include "attn/mask.h"
#include "attn/page_table.h"
#include "io/case_tensors.h"

namespace shadowgraph {
namespace {

enum Call : size_t { kOnePass, kRagged, kPrefixWindow, kPrefixMask, kNaive };

constexpr const char* kNaiveIsWrong =
    "sglang#26513: the prefix part ran with window_left counted from the end of the prefix, not "
    "from each query's "
    "own position, so it saw keys that had already left the window";

/// Are all pages that the table names in the cache?
bool pages_in_cache(CaseReader& reader, const PagedAttention& call) {
  const std::span<const int32_t> ids = call.pages.kv_indices;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < call.cache.num_pages) continue;
    reader.bad_tensor("kv_indices", "0 <= id < " + std::to_string(call.cache.num_pages),
                      std::to_string(ids[i]), static_cast<int64_t>(i));
    return false;
  }
  return true;
}

/// The extend tokens' rows of a plane, packed: [rows, num_kv_heads, head_dim].
ConstTensorView gather(CaseReader& reader, const FlashInferCase& c, const PagedAttention& call,
                       const KvPlane& plane) {
  const int64_t heads = c.params.num_kv_heads, dim = plane.head_dim;
  const size_t head_bytes = static_cast<size_t>(dim) * size_of(plane.dtype);
  std::vector<std::byte> packed;
  packed.reserve(static_cast<size_t>(c.rows * heads) * head_bytes);
  for (size_t r = 0; r < c.q_lens.size(); ++r) {
    const RequestPages pages = request_pages(call.pages, c.page_size, static_cast<int64_t>(r));
    for (int64_t token = c.prefix_lens[r]; token < pages.kv_len; ++token) {
      const int64_t page = pages.page_ids[token / c.page_size];
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = plane.offset(page, token % c.page_size, head, 0);
        const std::byte* row = plane.data + at * static_cast<int64_t>(size_of(plane.dtype));
        packed.insert(packed.end(), row, row + head_bytes);
      }
    }
  }
  return {reader.own(std::move(packed)).data(), plane.dtype, {c.rows, heads, dim}};
}

/// Packed mask over the prefix: what each query of the whole request sees of it.
CustomMask prefix_mask(CaseReader& reader, const FlashInferCase& c) {
  return packed_mask(reader, "prefix_lens", c.q_lens, c.prefix_lens,
                     [&](size_t r, int64_t q, int64_t k) {
                       return attends(MaskShape::of(c.params, c.q_lens[r], c.kv_lens[r]), q, k);
                     });
}

/// What the naive merge really computes, in one pass: own keys within the window, and of the prefix
/// what a window shows that is counted from its end.
CustomMask naive_mask(CaseReader& reader, const FlashInferCase& c) {
  AttentionParams prefix_params = c.params;
  prefix_params.causal = false;
  return packed_mask(reader, "kv_lens", c.q_lens, c.kv_lens,
                     [&, prefix_params](size_t r, int64_t q, int64_t k) {
                       const int32_t prefix = c.prefix_lens[r];
                       if (k < prefix)
                         return attends(MaskShape::of(prefix_params, c.q_lens[r], prefix), q, k);
                       AttentionParams own = c.params;
                       own.causal = true;
                       return attends(MaskShape::of(own, c.q_lens[r], c.q_lens[r]), q, k - prefix);
                     });
}

RaggedAttention ragged_part(CaseReader& reader, const FlashInferCase& c,
                            const PagedAttention& one_pass) {
  RaggedAttention part;
  part.q = one_pass.q;
  part.k = gather(reader, c, one_pass, one_pass.cache.k);
  part.v = gather(reader, c, one_pass, one_pass.cache.v);
  part.cu_seqlens_q = part.cu_seqlens_k = one_pass.cu_seqlens_q;
  part.params = one_pass.params;
  return part;
}

}  // namespace

void read_swa_merge(CaseReader& reader, const FlashInferCase& c, KernelVector* vector) {
  PagedAttention one_pass = read_paged_call(reader, c);
  one_pass.params.causal = true;
  PagedAttention prefix_window = one_pass;
  prefix_window.pages = read_csr(reader, c, "prefix_", c.prefix_lens);
  prefix_window.pages.last_page_len =
      read_last_page_len(reader, c, "prefix_last_page_len", c.prefix_lens);
  prefix_window.params.causal = false;
  if (!reader.ok() || !pages_in_cache(reader, one_pass)) return;
  PagedAttention prefix_masked = prefix_window;
  prefix_masked.params.window_left = -1;  // the mask holds the window
  prefix_masked.params.custom_mask = prefix_mask(reader, c);
  PagedAttention naive = one_pass;
  naive.params.causal = false;
  naive.params.window_left = -1;
  naive.params.custom_mask = naive_mask(reader, c);
  vector->calls = {one_pass, ragged_part(reader, c, one_pass), prefix_window, prefix_masked, naive};

  const std::string prefill = "flashinfer_prefill", merged = "flashinfer_merged";
  const auto record = [&](const char* name, const std::string& kernel, Call call,
                          const char* known_wrong = "") {
    std::string prefix = std::string(name) + '_';
    if (call == kOnePass && kernel == prefill) prefix = "";
    if (call == kNaive) prefix = "naive_merged_";
    read_recorded(reader, c, prefix, recorded_by(kernel, name, call, known_wrong), vector);
  };
  record("one_pass", prefill, kOnePass);
  record("ragged", prefill, kRagged);
  record("prefix_window", prefill, kPrefixWindow);
  record("prefix_mask", prefill, kPrefixMask);
  record("mask_merged", merged, kOnePass);
  record("naive_merged", merged, kOnePass, kNaiveIsWrong);
  record("naive_as_planned", merged, kNaive);
}

}  // namespace shadowgraph
