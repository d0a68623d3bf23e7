#include "backends/lists/aiter.h"

#include <algorithm>
#include <optional>

#include "backends/compose/children.h"
#include "backends/fill/buffer_rows.h"
#include "backends/fill/longest_query.h"
#include "backends/paged/paged_backend.h"
#include "launch/attention_launch.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kAiterModes[] = {ForwardMode::kExtend,        ForwardMode::kDecode,
                                       ForwardMode::kMixed,         ForwardMode::kIdle,
                                       ForwardMode::kTargetVerify,  ForwardMode::kDraftExtend,
                                       ForwardMode::kDraftExtendV2, ForwardMode::kDraftDecode};

constexpr BufferInfo kAiterBuffers[] = {
    recorded(Aiter::kQoIndptr, Role::kQueryOffsets, "qo_indptr", "fi.I-3 fi.I-4"),
    recorded(Aiter::kKvIndptr, Role::kKeyOffsets, "kv_indptr", "fi.I-1 fi.I-16 fi.I-21"),
    field::list(Aiter::kKvIndices, Aiter::kKvIndptr, "kv_indices", "fi.I-6 fi.I-16"),
    {Aiter::kSwaKvIndptr, Role::kKeyOffsets},
    field::list(Aiter::kSwaKvIndices, Aiter::kSwaKvIndptr, "swa_page_table", "fi.I-6 fi.I-38"),
    recorded(Aiter::kKvLastPageLen, Role::kOnes, "kv_last_page_len", "fi.I-10"),
    {Aiter::kKvLens, Role::kKeyLens},
    field::table(Aiter::kPageTable, Aiter::kKvLens, "page_table", "fi.I-6 fi.I-21"),
    {Aiter::kOutCacheLoc, Role::kStored},
    {Aiter::kSwaOutCacheLoc, Role::kStoredInWindow},
    recorded(Aiter::kMaxQLen, Role::kLongestQuery, "max_q_len", "fa.I-18"),
};

// A verified tree is Triton's.
constexpr PlanKey kAiterPlanKeys[] = {PlanKey::kWindow};

constexpr BackendInfo kAiterInfo{.name = "aiter",
                                 .about = "Aiter on ROCm (SGLang)",
                                 .modes = kAiterModes,
                                 .page_sizes = {},
                                 .tree = true,
                                 .latent = true,
                                 .swa_pool = true,
                                 .plan_keys = kAiterPlanKeys,
                                 .sinks = true,
                                 .graph_storage = kOneForAllModes,
                                 .buffers = kAiterBuffers};

/// Layers whose keys are in the table of the unified kernel; the others' are in lists.
bool reads_table(const Limits& limits, const LayerKind& kind) {
  return is_target_verify(limits.mode) && !kind.mla;
}
bool any_reads(const Limits& limits, bool table) {
  const auto reads = [&](const LayerKind& kind) { return reads_table(limits, kind) == table; };
  const std::vector<LayerKind>& layers = limits.model.layers;
  return layers.empty() ? reads({}) : std::ranges::any_of(layers, reads);
}

Status check_aiter(const Limits& limits) {
  Status status = serves(kAiterInfo, limits);
  const ModelConfig& m = limits.model;
  for (const LayerKind& kind : m.layers)
    if (kind.mla && m.topk > 1) refuse(&status, "topk", "1 with latent layers", m.topk);
  if (const int64_t keys = most_listed_keys(limits, limits.max_kv_len); keys > INT32_MAX)
    refuse(&status, "max_kv_len", "at most 2147483647 keys in a list", keys);
  return status;
}

/// One fill of a batch that fits.
class AiterFill {
 public:
  AiterFill(const ForwardBatch& batch, Meta& meta)
      : batch_(batch), limits_(meta.limits), meta_(meta), f_(meta) {
    if (meta.has(Aiter::kKvIndptr)) kv_.emplace(f_, Aiter::kKv);
    if (meta.has(Aiter::kSwaKvIndptr)) swa_kv_.emplace(f_, Aiter::kSwaKv);
    if (meta.has(Aiter::kKvLens)) kv_lens_ = f_.ints(Aiter::kKvLens);
    if (meta[Aiter::kQoIndptr].lifetime == Lifetime::kPerStep)
      qo_indptr_ = f_.ints(Aiter::kQoIndptr);
  }

  Status run() {
    int32_t queries = 0;
    if (!qo_indptr_.empty()) qo_indptr_[0] = 0;
    for_each_row(batch_, limits_, [&](int32_t i, const RequestRow& row) {
      for (int32_t branch = 0; branch < lists_a_row(limits_); ++branch) list(i, branch, row);
      if (!kv_lens_.empty()) pages(i, row);
      queries += row.extent.q_len;
      if (!qo_indptr_.empty()) qo_indptr_[static_cast<size_t>(i) + 1] = queries;
    });
    meta_.scalars[Aiter::kMaxQLen] = longest_query(batch_);
    if (kv_) kv_->close();
    if (swa_kv_) swa_kv_->close();
    f_.out_cache_loc(batch_, Aiter::kOutCacheLoc, Aiter::kSwaOutCacheLoc);
    return f_.take_status();
  }

 private:
  /// All keys that the row's last query sees, of a tree those of its branch.
  void list(int32_t i, int32_t branch, const RequestRow& row) {
    const KvRange tokens{0, row.extent.kv_len};
    std::span<const int64_t> drafts;
    if (is_draft_tree(limits_) && !row.padding())
      drafts = drafted_slots(batch_, limits_, int64_t{i} * limits_.model.topk + branch);
    if (kv_) kv_->add(row, tokens, drafts, {});
    if (swa_kv_) swa_kv_->add(row, tokens, drafts, batch_.full_to_swa);
  }
  void pages(int32_t i, const RequestRow& row) {
    const int32_t keys = kv_lens_[static_cast<size_t>(i)] = row.extent.kv_len;
    f_.table_row(Aiter::kPageTable, i, row.slots, keys);
    if (meta_.has(Aiter::kSwaPageTable))
      f_.table_row(Aiter::kSwaPageTable, i, row.slots, keys, batch_.full_to_swa);
  }

  const ForwardBatch& batch_;
  const Limits& limits_;
  Meta& meta_;
  Filler f_;
  std::optional<CsrRows<>> kv_, swa_kv_;
  std::span<int32_t> kv_lens_, qo_indptr_;
};

PageTable keys_of(const Meta& meta, bool table, bool swa) {
  const auto ints = [&](size_t buffer) { return elements<int32_t>(meta[buffer]); };
  if (table) {
    const Buffer& pages = meta[swa ? Aiter::kSwaPageTable : Aiter::kPageTable];
    return PageTable::dense(elements<int32_t>(pages), pages.shape[1], ints(Aiter::kKvLens));
  }
  const CsrIds& ids = swa ? Aiter::kSwaKv : Aiter::kKv;
  return PageTable::csr(ints(static_cast<size_t>(ids.indptr)),
                        ints(static_cast<size_t>(ids.indices)), ints(Aiter::kKvLastPageLen));
}

void attend(Stream& stream, const Meta& meta, const LayerIo& io) {
  const Limits& limits = meta.limits;
  const LayerKind& kind = limits.model.layers[static_cast<size_t>(io.kind)];
  const bool table = reads_table(limits, kind), swa = in_window_pool(limits.model, kind);
  launch_store(stream, io, meta[swa ? Aiter::kSwaOutCacheLoc : Aiter::kOutCacheLoc],
               token_rows(limits));
  PagedAttention call;
  call.q = io.q;
  call.cache = table ? io.cache : slot_view(io.cache);
  call.pages = keys_of(meta, table, swa);
  call.cu_seqlens_q = elements<int32_t>(meta[Aiter::kQoIndptr]);
  call.params = kind.params;
  call.out = io.out;
  call.lse = io.lse;
  call.max_seqlen_q = limits.max_q_len;
  stream.launch(attention_launch(call, {lists_a_row(limits), limits.first_row}));
}

}  // namespace

const BackendInfo& Aiter::info() const { return kAiterInfo; }

Status Aiter::bind(const Arena& arena, const Limits& limits, Meta* meta) const {
  Status status = check_aiter(limits);
  if (!status.ok()) return status;
  if (is_verify_tree(limits)) {
    ChildBinder binder(*this, arena, limits);
    binder.bind(triton_, "triton", limits);
    return binder.finish(meta);
  }
  const ModelConfig& m = limits.model;
  const int64_t lists = int64_t{limits.rows} * lists_a_row(limits),
                keys = most_listed_keys(limits, limits.max_kv_len);
  Binder b(*this, arena, limits, kNumBuffers, kNumScalars);
  b.query_offsets(kQoIndptr, "qo_indptr", lists);
  if (any_reads(limits, false)) {
    bind_csr(b, kKv, "kv", lists, keys);
    if (m.swa_pool) bind_csr(b, kSwaKv, "swa_kv", lists, keys);
    b.constant(kKvLastPageLen, "kv_last_page_len", lists, 1);
  }
  if (any_reads(limits, true)) {
    b.ints(kKvLens, "kv_lens", {limits.rows});
    b.table(kPageTable, "page_table", limits.rows, limits.max_kv_len, m.page_size);
    if (m.swa_pool)
      b.table(kSwaPageTable, "swa_page_table", limits.rows, limits.max_kv_len, m.page_size);
  }
  b.out_cache_loc(kOutCacheLoc, kSwaOutCacheLoc);
  Status bound = b.bind(meta);
  if (bound.ok()) meta->scalars[kMaxQLen] = limits.max_q_len;
  return bound;
}

Status Aiter::fill(const ForwardBatch& batch, Meta& meta) const {
  const Limits& limits = meta.limits;
  if (is_verify_tree(limits)) {
    return for_each_part(batch, meta, [](const Backend& b, const ForwardBatch& of, Meta& to) {
      return b.fill(of, to);
    });
  }
  Status status = fits(batch, limits);
  if (status.ok())
    status = translates(batch, limits, meta.has(kKvIndptr) ? 1 : limits.model.page_size);
  return status.ok() ? AiterFill(batch, meta).run() : status;
}

Status Aiter::for_each_part(const ForwardBatch& batch, Meta& meta, const PartFn& fn) const {
  if (!is_verify_tree(meta.limits)) return {};
  return fn(triton_, batch, meta.children[0]);
}

std::vector<KeyList> Aiter::key_lists(const Meta& meta, const LayerKind& kind) const {
  const bool swa = in_window_pool(meta.limits.model, kind);
  if (reads_table(meta.limits, kind))
    return {table_of_keys(swa ? kSwaPageTable : kPageTable, kKvLens, kQoIndptr)};
  const CsrIds& ids = swa ? kSwaKv : kKv;
  return {list_of_slots(ids.indices, ids.indptr, kQoIndptr)};
}

void Aiter::forward(Stream& stream, const Meta& meta, const StepIo& step) const {
  if (is_verify_tree(meta.limits)) return triton_.forward(stream, meta.children[0], step);
  for (const LayerIo& io : step.layers) attend(stream, meta, io);
}

std::vector<int32_t> Aiter::merged_parts(const ForwardBatch& batch, const Limits& limits,
                                         const LayerKind& kind) const {
  if (is_verify_tree(limits)) return triton_.merged_parts(batch, limits, kind);
  return {};
}

}  // namespace shadowgraph
