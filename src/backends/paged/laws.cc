#include "backends/paged/laws.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr ForwardMode kLawsModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                      ForwardMode::kMixed,         ForwardMode::kIdle,
                                      ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                      ForwardMode::kDraftExtendV2, ForwardMode::kSplitPrefill,
                                      ForwardMode::kDllmExtend,    ForwardMode::kDraftDecode};

constexpr BufferInfo last_page_len() {
  BufferInfo row = field::bounded(field::rows(Laws::kKvLastPageLen, "kv_last_page_len", ""), 0, 1);
  row.role = Role::kOnes, row.of_last_page = true, row.any_integers = true;
  return row;
}
constexpr BufferInfo key_offsets(int buffer, std::string_view name) {
  BufferInfo row = recorded(buffer, Role::kKeyOffsets, name, "");
  row.any_integers = true;
  return row;
}

constexpr BufferInfo pages_of(int buffer, int indptr, std::string_view name, Role role) {
  BufferInfo row = field::any(field::list(buffer, indptr, name, "", true));
  row.role = role;
  return row;
}
constexpr BufferInfo lengths(int buffer, std::string_view name, Role role) {
  BufferInfo row = field::any(field::rows(buffer, name, ""));
  row.role = role;
  return row;
}

// Engines differ in the width of integers.
constexpr auto kLawsBuffers = dead_from(
    Laws::kFirstOwn,
    with_family(
        kPagedBuffers,
        {field::any(recorded(Laws::kKvLens, Role::kKeyLens, "kv_lens", "")),
         field::any(recorded(Laws::kQueryLens, Role::kQueryLens, "q_lens", "")),
         lengths(Laws::kPrefixLens, "prefix_lens", Role::kPrefixLens),
         field::any(recorded(Laws::kCuSeqlensQ, Role::kQueryOffsets, "cu_seqlens_q", "")),
         recorded(Laws::kQueryEnds, Role::kQueryEnds, "q_ends", ""),
         key_offsets(Laws::kCuSeqlensK, "cu_seqlens_k"),
         field::any(recorded(Laws::kKeyEnds, Role::kKeyEnds, "kv_ends", "")),
         field::any(field::table(Laws::kPageTable, Laws::kKvLens, "page_table", "")),
         field::any(field::table(Laws::kPageTable, Laws::kKvLens, "slot_table", "", false)),
         field::of_window(
             field::any(field::table(Laws::kSwaPageTable, Laws::kKvLens, "swa_page_table", ""))),
         field::of_window(field::any(
             field::table(Laws::kSwaPageTable, Laws::kKvLens, "swa_slot_table", "", false))),
         key_offsets(Laws::kKvIndptr, "kv_indptr"),
         pages_of(Laws::kKvIndices, Laws::kKvIndptr, "kv_indices", Role::kListedKeys),
         field::any(field::list(Laws::kKvIndices, Laws::kKvIndptr, "slot_indices", "")),
         key_offsets(Laws::kSwaKvIndptr, "swa_kv_indptr"),
         field::of_window(pages_of(Laws::kSwaKvIndices, Laws::kSwaKvIndptr, "swa_kv_indices",
                                   Role::kListedInWindow)),
         last_page_len(),
         recorded(Laws::kOutCacheLoc, Role::kStored, "out_cache_loc", ""),
         recorded(Laws::kSwaOutCacheLoc, Role::kStoredInWindow, "swa_out_cache_loc", ""),
         field::any(field::shaped(FieldShape::kMask, -1, "custom_mask", "")),
         recorded(Laws::kMaxSeqLenQ, Role::kLongestQuery, "max_seqlen_q", ""),
         recorded(Laws::kMaxSeqLenK, Role::kLongestKeys, "max_seqlen_k", "", Laws::kKvLens)}),
    "nobody has said what its engine's kernel reads");

constexpr BackendInfo kLawsInfo{.name = "laws",
                                .about = "metadata by role, of an engine that has no twin",
                                .modes = kLawsModes,
                                .page_sizes = {},
                                .latent = true,
                                .swa_pool = true,
                                .engine = &kAnyEngine,
                                .buffers = kLawsBuffers};

}  // namespace

const BackendInfo& Laws::info() const { return kLawsInfo; }

void Laws::bind_own(Binder& binder, const Limits& limits) const {
  const int64_t rows = limits.rows, keys = most_listed_keys(limits, limits.max_kv_len);
  binder.ints(kCuSeqlensK, "cu_seqlens_k", {rows + 1});
  binder.ints(kQueryLens, "q_lens", {rows});
  binder.ints(kQueryEnds, "q_ends", {rows});
  binder.ints(kKeyEnds, "kv_ends", {rows});
  binder.ints(kPrefixLens, "prefix_lens", {rows});
  bind_csr(binder, kKv, "kv", rows, keys);
  if (limits.model.swa_pool) bind_csr(binder, kSwaKv, "swa_kv", rows, keys);
  binder.constant(kKvLastPageLen, "kv_last_page_len", rows, 1);
}

void Laws::fill_own(const ForwardBatch& batch, const Limits& limits, Filler& filler) const {
  const auto q_lens = filler.ints(kQueryLens), q_ends = filler.ints(kQueryEnds),
             prefix_lens = filler.ints(kPrefixLens), kv_ends = filler.ints(kKeyEnds),
             cu_seqlens_k = filler.ints(kCuSeqlensK);
  const bool swa = limits.model.swa_pool;
  CsrRows kv(filler, kKv);
  std::optional<CsrRows<>> swa_kv;
  if (swa) swa_kv.emplace(filler, kSwaKv);
  int32_t queries = 0, keys = 0;
  cu_seqlens_k[0] = 0;
  for (int32_t i = 0; i < limits.rows; ++i) {
    const RequestRow row = row_of(batch, limits, i);
    const RequestExtent& e = row.extent;
    const auto at = static_cast<size_t>(i);
    q_lens[at] = e.q_len, prefix_lens[at] = std::max(0, e.prefix_len);
    q_ends[at] = queries += e.q_len;
    cu_seqlens_k[at + 1] = kv_ends[at] = keys += e.kv_len;
    kv.add(row, {0, e.kv_len});
    if (swa) swa_kv->add(row, {0, e.kv_len}, batch.full_to_swa);
  }
  kv.close();
  if (swa) swa_kv->close();
}

}  // namespace shadowgraph
