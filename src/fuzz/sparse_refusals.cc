#include "fuzz/sparse_refusals.h"

#include <cstring>
#include <limits>

#include "attn/index_page.h"

namespace shadowgraph {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A breakage of one kind of call: fn(call, spoils), false where it has nothing to break.
template <class Call, auto fn>
bool of(SparseCall* call, Spoils* spoils) {
  auto* c = std::get_if<Call>(call);
  return c != nullptr && fn(*c, *spoils);
}

/// Of what every call writes.
template <class Fn>
bool on_output(SparseCall* call, const Fn& fn) {
  return std::visit(
      [&](auto& c) {
        if constexpr (requires { c.out; }) return fn(c.out);
        if constexpr (requires {
                        c.logits.stride;
                        c.q;
                      })
          return fn(c.logits);
        if constexpr (requires {
                        c.indices.at(0);
                        c.ke;
                      })
          return fn(c.indices);
        if constexpr (requires {
                        c.pool.data;
                        c.latents;
                      })
          return fn(c.pool.data);
        if constexpr (requires { c.y; }) return fn(c.y);
        if constexpr (requires {
                        c.pages;
                        c.out_cache_loc;
                      })
          return fn(c.pages);
        if constexpr (requires { c.cu_seqlens_k; }) return fn(c.k);
        return false;
      },
      *call);
}

bool no_memory(SparseCall* call, Spoils*) {
  return on_output(call, [](TensorView& t) {
    t.data = nullptr;
    return t.numel() > 0;
  });
}
bool of_64_bits(SparseCall* call, Spoils*) {
  return on_output(call, [](TensorView& t) {
    t.dtype = DType::kI64;
    return true;
  });
}
bool a_column_more(SparseCall* call, Spoils*) {
  // These may be wider; rows of a pool then overlap.
  if (std::holds_alternative<IndexerLogits>(*call) ||
      std::holds_alternative<SelectIndices>(*call) || std::holds_alternative<PackLatents>(*call))
    return false;
  return on_output(call, [](TensorView& t) {
    ++t.shape[static_cast<size_t>(t.rank) - 1];
    return true;
  });
}
bool unknown_isa(SparseCall* call, Spoils*) {
  std::visit([](auto& c) { c.options.isa = "riscv"; }, *call);
  return true;
}

// ---- lists of keys

bool set_entry(SparseAttention& c, Spoils& s, int32_t slot) {
  for (int64_t t = 0; t < c.q.shape[0]; ++t) {
    if (c.keys.count(t) == 0) continue;
    auto& entries = s.copy(c.keys.indices);
    entries[static_cast<size_t>(c.keys.begin(t))] = slot;
    c.keys.indices = entries;
    return true;
  }
  return false;
}
bool entry_behind(SparseAttention& c, Spoils& s) {
  return set_entry(c, s, static_cast<int32_t>(c.keys.pool.slots()));
}
bool entry_below(SparseAttention& c, Spoils& s) { return set_entry(c, s, -2); }
bool entry_twice(SparseAttention& c, Spoils& s) {
  for (int64_t t = 0; t < c.q.shape[0]; ++t) {
    int64_t first = -1;
    for (int64_t j = 0; j < c.keys.count(t); ++j) {
      if (c.keys.of(t)[static_cast<size_t>(j)] < 0) continue;
      if (first >= 0) {
        auto& entries = s.copy(c.keys.indices);
        entries[static_cast<size_t>(c.keys.begin(t) + j)] =
            c.keys.of(t)[static_cast<size_t>(first)];
        c.keys.indices = entries;
        return true;
      }
      first = j;
    }
  }
  return false;
}
bool length_beyond(SparseAttention& c, Spoils& s) {
  if (c.keys.lengths.empty()) return false;
  auto& lengths = s.copy(c.keys.lengths);
  lengths.back() = static_cast<int32_t>(c.keys.width) + 1;
  c.keys.lengths = lengths;
  return true;
}
bool length_below(SparseAttention& c, Spoils& s) {
  if (c.keys.lengths.empty()) return false;
  auto& lengths = s.copy(c.keys.lengths);
  lengths[0] = -1;
  c.keys.lengths = lengths;
  return true;
}
bool offsets_behind(SparseAttention& c, Spoils& s) {
  if (c.keys.indptr.empty()) return false;
  auto& offsets = s.copy(c.keys.indptr);
  offsets.back() = static_cast<int32_t>(c.keys.indices.size()) + 1;
  c.keys.indptr = offsets;
  return true;
}
bool scale_nan(SparseAttention& c, Spoils&) {
  c.sm_scale = kNaN;
  return true;
}
bool value_too_wide(SparseAttention& c, Spoils&) {
  c.head_dim_v = static_cast<int32_t>(c.q.shape[2]) + 1;
  return true;
}
bool sink_too_few(SparseAttention& c, Spoils&) {
  if (c.sinks.size() < 2) return false;
  c.sinks = c.sinks.first(c.sinks.size() - 1);
  return true;
}
bool out_over_q(SparseAttention& c, Spoils&) {
  c.out.data = const_cast<std::byte*>(c.q.data);
  return c.out.numel() > 0;
}

// ---- slots of what is stored

bool set_slot(std::span<const int64_t>* list, int64_t slot, Spoils& s) {
  s.slots.assign(list->begin(), list->end());
  if (s.slots.empty()) return false;
  s.slots.back() = slot;
  *list = s.slots;
  return true;
}
bool pack_behind(PackLatents& c, Spoils& s) {
  return set_slot(&c.out_cache_loc, c.pool.slots(), s);
}
bool pack_twice(PackLatents& c, Spoils& s) {
  return c.out_cache_loc.size() > 1 && !c.drops(c.out_cache_loc[0]) &&
         set_slot(&c.out_cache_loc, c.out_cache_loc[0], s);
}
bool store_behind(StoreIndexKeys& c, Spoils& s) {
  return set_slot(&c.out_cache_loc, c.pages.shape[0] * kIndexPageTokens, s);
}
bool store_twice(StoreIndexKeys& c, Spoils& s) {
  return c.out_cache_loc.size() > 1 && !c.drops(c.out_cache_loc[0]) &&
         set_slot(&c.out_cache_loc, c.out_cache_loc[0], s);
}
bool short_page(StoreIndexKeys& c, Spoils&) {
  --c.pages.shape[1];
  return true;
}

// ---- tables, extents and offsets of the indexer

bool page_behind(GatherIndexKeys& c, Spoils& s) {
  for (int64_t r = 0; r < c.page_table.shape[0]; ++r) {
    const auto i = static_cast<size_t>(r);
    if (c.cu_seqlens_k[i] == c.cu_seqlens_k[i + 1]) continue;
    c.page_table = s.copy(c.page_table);
    const auto id = static_cast<int32_t>(c.pages.shape[0]);
    std::memcpy(s.bytes.data() + c.page_table.offset(r) * 4, &id, sizeof id);
    return true;
  }
  return false;
}
bool keys_beyond_table(GatherIndexKeys& c, Spoils&) {
  if (c.cu_seqlens_k.back() == 0) return false;
  c.page_table.shape[1] = 0;
  return true;
}
bool gather_falls(GatherIndexKeys& c, Spoils& s) {
  auto& offsets = s.copy(c.cu_seqlens_k);
  if (offsets.size() < 3 || offsets[1] == 0) return false;
  offsets[2] = offsets[1] - 1;
  c.cu_seqlens_k = offsets;
  return true;
}
template <class Call>
bool end_before_first(Call& c, Spoils& s) {
  if (c.ke.empty() || c.ks.empty()) return false;
  auto& ends = s.copy(c.ke);
  ends[0] = c.ks[0] - 1;
  c.ke = ends;
  return true;
}
template <auto Tensor, class Call>
bool end_behind_width(Call& c, Spoils& s) {
  if (c.ke.empty()) return false;
  auto& ends = s.copy(c.ke);
  ends.back() = static_cast<int32_t>((c.*Tensor).shape[1]) + 1;
  c.ke = ends;
  return true;
}
bool row_behind(IndexerLogits& c, Spoils& s) {
  if (c.rows.empty()) return false;
  auto& rows = s.copy(c.rows);
  rows.back() = static_cast<int32_t>(c.page_table.shape[0]);
  c.rows = rows;
  return true;
}
bool keys_twice(IndexerLogits& c, Spoils&) {
  c.is_paged() ? void(c.k = c.q) : void(c.pages = c.k);
  return true;
}
bool index_behind(TransformIndices& c, Spoils& s) {
  if (!c.page_table_1.defined() || c.indices.numel() == 0) return false;
  c.indices = s.copy(c.indices);
  const auto index = static_cast<int32_t>(c.page_table_1.shape[1]);
  std::memcpy(s.bytes.data(), &index, sizeof index);
  return true;
}
bool offset_below(TransformIndices& c, Spoils& s) {
  if (c.offsets.empty()) return false;
  auto& offsets = s.copy(c.offsets);
  offsets[0] = -1;
  c.offsets = offsets;
  return true;
}
bool offset_overflows(TransformIndices& c, Spoils& s) {
  for (int64_t t = 0; t < std::ssize(c.offsets); ++t) {
    for (int64_t j = 0; j < c.indices.shape[1]; ++j) {
      const int32_t index = load_i32(c.indices, t, j);
      if (index < 1) continue;
      auto& offsets = s.copy(c.offsets);
      offsets[static_cast<size_t>(t)] = INT32_MAX - index + 1;
      c.offsets = offsets;
      return true;
    }
  }
  return false;
}
bool table_and_offsets(TransformIndices& c, Spoils& s) {
  if (!c.page_table_1.defined()) return false;
  c.offsets = s.numbers.emplace_back(static_cast<size_t>(c.indices.shape[0]), 0);
  return true;
}
bool entries_miscounted(CompactIndices& c, Spoils& s) {
  auto& offsets = s.copy(c.kv_indptr);
  if (offsets.size() < 2 || offsets.back() == 0) return false;
  --offsets.back();
  c.kv_indptr = offsets;
  return offsets[offsets.size() - 2] <= offsets.back();
}
bool entries_too_few(CompactIndices& c, Spoils&) {
  if (c.kv_indptr.back() == 0) return false;
  c.kv_indices = c.kv_indices.first(static_cast<size_t>(c.kv_indptr.back()) - 1);
  return true;
}

// ---- the compressor

int64_t first_kept(const Compress& c) {
  for (int64_t t = 0; t < std::ssize(c.indices); ++t)
    if (!c.drops(t)) return t;
  return -1;
}
bool state_behind(Compress& c, Spoils& s) {
  if (first_kept(c) < 0) return false;
  auto& pages = s.copy(c.indices);
  pages[static_cast<size_t>(first_kept(c))] = static_cast<int32_t>(c.state.shape[0]);
  c.indices = pages;
  return true;
}
bool state_of_another(Compress& c, Spoils& s) {
  int64_t of = -1;
  for (int64_t row = 0; row < c.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    for (int64_t t = c.cu_seqlens_q[i]; t < c.cu_seqlens_q[i + 1]; ++t) {
      if (c.drops(t)) continue;
      if (of >= 0) {
        auto& pages = s.copy(c.indices);
        pages[static_cast<size_t>(t)] = c.indices[static_cast<size_t>(of)];
        c.indices = pages;
        return true;
      }
      of = t;
      break;
    }
  }
  return false;
}
bool block_before_behind(Compress& c, Spoils& s) {
  for (int64_t t = 0; t < std::ssize(c.extra); ++t) {
    if (c.drops(t) || !c.reads_extra(t)) continue;
    auto& pages = s.copy(c.extra);
    pages[static_cast<size_t>(t)] = -1;
    c.extra = pages;
    return true;
  }
  return false;
}
bool no_length(Compress& c, Spoils& s) {
  if (first_kept(c) < 0) return false;
  auto& lengths = s.copy(c.seq_lens);
  lengths[static_cast<size_t>(first_kept(c))] = 0;
  c.seq_lens = lengths;
  return true;
}
bool tokens_too_few(Compress& c, Spoils& s) {
  if (c.seq_lens.empty()) return false;
  auto& lengths = s.copy(c.seq_lens);
  lengths.pop_back();
  c.seq_lens = lengths;
  return true;
}
template <class Call>
bool other_ratio(Call& c, Spoils&) {
  c.shape.ratio = 8;
  return true;
}
template <class Call>
bool eps_of_none(Call& c, Spoils&) {
  c.eps = 0;
  return true;
}
template <class Call>
bool rope_too_wide(Call& c, Spoils&) {
  c.freqs.shape[1] = c.out.shape[1] + 1;
  return true;
}

constexpr Breakage<SparseCall> kSparseBreakages[] = {
    {"an output without memory", "input.null", no_memory},
    {"an output of 64 bits", "input.dtype", of_64_bits},
    {"an output with a column more", "input.shape", a_column_more},
    {"an instruction set that there is not", "input.isa", unknown_isa},
    {"an entry behind the pool", "list.slot", of<SparseAttention, entry_behind>},
    {"entry -2", "list.slot", of<SparseAttention, entry_below>},
    {"a slot that a token names twice", "list.duplicate", of<SparseAttention, entry_twice>},
    {"a length beyond the width", "len.capacity", of<SparseAttention, length_beyond>},
    {"length -1", "len.negative", of<SparseAttention, length_below>},
    {"offsets that end behind the entries", "len.total", of<SparseAttention, offsets_behind>},
    {"a scale that is no number", "param.scale", of<SparseAttention, scale_nan>},
    {"values wider than keys", "param.head_dim", of<SparseAttention, value_too_wide>},
    {"a sink too few", "param.sinks", of<SparseAttention, sink_too_few>},
    {"outputs over queries", "input.alias", of<SparseAttention, out_over_q>},
    {"a latent's slot behind the pool", "slot.range", of<PackLatents, pack_behind>},
    {"two latents of one slot", "slot.duplicate", of<PackLatents, pack_twice>},
    {"a key's slot behind the pages", "slot.range", of<StoreIndexKeys, store_behind>},
    {"two keys of one slot", "slot.duplicate", of<StoreIndexKeys, store_twice>},
    {"a page a byte short", "input.shape", of<StoreIndexKeys, short_page>},
    {"a page behind the pool", "table.page_id", of<GatherIndexKeys, page_behind>},
    {"keys beyond the table", "len.capacity", of<GatherIndexKeys, keys_beyond_table>},
    {"offsets that fall", "len.indptr_monotone", of<GatherIndexKeys, gather_falls>},
    {"logits that end before they begin", "len.negative",
     of<IndexerLogits, end_before_first<IndexerLogits>>},
    {"logits behind the width", "len.capacity",
     of<IndexerLogits, end_behind_width<&IndexerLogits::logits, IndexerLogits>>},
    {"a row behind the table", "table.pool_row", of<IndexerLogits, row_behind>},
    {"keys in pages and beside them", "input.shape", of<IndexerLogits, keys_twice>},
    {"scores that end before they begin", "len.negative",
     of<SelectIndices, end_before_first<SelectIndices>>},
    {"scores behind the width", "len.capacity",
     of<SelectIndices, end_behind_width<&SelectIndices::logits, SelectIndices>>},
    {"an index behind the table", "table.capacity", of<TransformIndices, index_behind>},
    {"offset -1", "len.negative", of<TransformIndices, offset_below>},
    {"an index that overflows", "len.overflow", of<TransformIndices, offset_overflows>},
    {"a table and offsets", "input.shape", of<TransformIndices, table_and_offsets>},
    {"an entry that is not counted", "len.q_extent", of<CompactIndices, entries_miscounted>},
    {"no room for an entry", "len.total", of<CompactIndices, entries_too_few>},
    {"a page behind the state", "slot.range", of<Compress, state_behind>},
    {"a page of another request", "slot.duplicate", of<Compress, state_of_another>},
    {"a block before without a page", "slot.range", of<Compress, block_before_behind>},
    {"length 0", "len.negative", of<Compress, no_length>},
    {"a length too few", "len.batch", of<Compress, tokens_too_few>},
    {"ratio 8 of states", "input.shape", of<Compress, other_ratio<Compress>>},
    {"ratio 8 of windows", "input.shape", of<PoolNormRope, other_ratio<PoolNormRope>>},
    {"windows' eps of 0", "param.scale", of<PoolNormRope, eps_of_none<PoolNormRope>>},
    {"windows' rotation that is too wide", "input.shape",
     of<PoolNormRope, rope_too_wide<PoolNormRope>>},
    {"eps of 0", "param.scale", of<NormRope, eps_of_none<NormRope>>},
    {"a rotation that is too wide", "input.shape", of<NormRope, rope_too_wide<NormRope>>},
};

}  // namespace

std::span<const Breakage<SparseCall>> sparse_breakages() { return kSparseBreakages; }

}  // namespace shadowgraph
