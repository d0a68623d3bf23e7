#include "backends/fill/rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "attn/page_table.h"
#include "shadowgraph/attention/conventions.h"

namespace shadowgraph {
namespace {

/// An engine's graph runner pads seq_lens with its fill value; the rest follows from the mode. A
/// draft extend is padded with its width of queries, so that these may be more than the keys.
RequestExtent padding_extent(const Limits& limits) {
  const int32_t fill = limits.model.seq_len_fill;
  switch (limits.mode) {
    case ForwardMode::kTargetVerify: return {fill, limits.max_q_len, fill + limits.max_q_len};
    case ForwardMode::kDraftDecode: return {fill + limits.step, 1, fill + limits.step + 1};
    case ForwardMode::kDecode:
    case ForwardMode::kIdle: return {fill - 1, 1, fill};
    case ForwardMode::kDraftExtend:
    case ForwardMode::kDraftExtendV2:
    case ForwardMode::kDllmExtend: return {fill - limits.max_q_len, limits.max_q_len, fill};
    default: return {fill, 0, fill};
  }
}

/// Entries of out_cache_loc from one token of a step to the next: a draft's has those of all steps.
struct Stride {
  int64_t first = 0, step = 1;
};
Stride stride_of(const ForwardBatch& b) {
  if (b.mode != ForwardMode::kDraftDecode) return {};
  return {b.spec.step, b.spec.num_steps};
}

}  // namespace

RequestRow row_of(const ForwardBatch& batch, const Limits& limits, int64_t i) {
  if (i >= batch.size()) return {padding_extent(limits), {}, 0};
  const auto at = static_cast<size_t>(i);
  const int32_t encoder_len = batch.encoder_len(i);
  return {
      batch.extent(i),
      batch.req_to_token.row(batch.req_pool_indices[at]).subspan(static_cast<size_t>(encoder_len)),
      encoder_len};
}

int32_t items_len(const ForwardBatch& batch, int64_t i) {
  const std::span<const int32_t> places = batch.delimiters(i);
  return places.empty() ? 0 : batch.q_len(i) - places.front();
}

RequestRows token_rows(const Limits& limits) {
  const bool alike = is_decode_or_idle(limits.mode) || is_target_verify(limits.mode);
  const int32_t tokens = is_draft_tree(limits) ? limits.model.topk : limits.max_q_len;
  return {alike ? tokens : 0, limits.first_row};
}

bool is_draft_tree(const Limits& limits) {
  return limits.model.topk > 1 && limits.mode == ForwardMode::kDraftDecode;
}
bool is_verify_tree(const Limits& limits) {
  return limits.model.topk > 1 && limits.mode == ForwardMode::kTargetVerify;
}

bool in_window_pool(const ModelConfig& model, const LayerKind& kind) {
  return model.swa_pool && is_dense_attention(kind) && !kind.cross &&
         (kind.local || has_window(kind));
}

std::span<const int64_t> drafted_slots(const ForwardBatch& batch, const Limits& limits,
                                       int64_t branch) {
  return batch.out_cache_loc.subspan(static_cast<size_t>(branch * batch.spec.num_steps),
                                     static_cast<size_t>(limits.step) + 1);
}

TensorView scratch_rows(const Buffer& b, int64_t rows, int64_t heads, int64_t dim) {
  if (dim == 0) return TensorView(b.data, DType::kF32, {rows, heads}, {b.shape[1], 1});
  return TensorView(b.data, DType::kF32, {rows, heads, dim}, {b.shape[1], dim, 1});
}

void ResultRoom::add(const AttentionParams& p, int64_t of_layer) {
  rows = std::max(rows, of_layer);
  heads = std::max<int64_t>(heads, p.num_qo_heads);
  width = std::max(width, int64_t{p.num_qo_heads} * p.head_dim_vo);
  granule = std::gcd(granule, int64_t{p.head_dim_vo});
}

Binder::Binder(const Backend& backend, const Arena& arena, const Limits& limits, size_t num_buffers,
               size_t num_scalars) {
  meta_.backend = &backend;
  meta_.limits = limits;
  meta_.arena = arena;
  meta_.buffers.resize(num_buffers);
  meta_.units.resize(num_buffers);
  meta_.scalars.resize(num_scalars);
}

void Binder::add(int buffer, BufferSpec spec) {
  order_.push_back(buffer);
  specs_.push_back(std::move(spec));
}

void Binder::ints(int buffer, std::string_view name, std::initializer_list<int64_t> shape) {
  add(buffer, {.name = std::string(name), .shape = shape, .lifetime = Lifetime::kPerStep});
}

void Binder::slots(int buffer, std::string_view name, int64_t count) {
  add(buffer, {.name = std::string(name),
               .dtype = DType::kI64,
               .shape = {count},
               .lifetime = Lifetime::kPerStep});
}

void Binder::list(int buffer, std::string_view name, int64_t capacity, DType dtype) {
  add(buffer, {.name = std::string(name),
               .dtype = dtype,
               .shape = {capacity},
               .lifetime = Lifetime::kPerStep});
}

void Binder::slot_table(int buffer, std::string_view name, int64_t rows, int64_t columns) {
  add(buffer, {.name = std::string(name),
               .dtype = DType::kI64,
               .shape = {rows, columns},
               .lifetime = Lifetime::kPerStep});
}

void Binder::table(int buffer, std::string_view name, int64_t rows, int64_t max_tokens,
                   int32_t unit, Lifetime lifetime) {
  add(buffer, {.name = std::string(name),
               .shape = {rows, pages_for(max_tokens, unit)},
               .lifetime = lifetime});
  meta_.units[static_cast<size_t>(buffer)] = unit;
}

void Binder::tables(const RowTables& t, int64_t max_tokens, int32_t unit, bool swa) {
  const int64_t rows = meta_.limits.rows;
  const bool gathered = meta_.limits.model.in_graph_tables;
  const Lifetime lifetime = gathered ? Lifetime::kScratch : Lifetime::kPerStep;
  if (gathered) ints(t.pool_rows, "pool_rows", {rows});
  table(t.table, "page_table", rows, max_tokens, unit, lifetime);
  if (swa) table(t.swa_table, "swa_page_table", rows, max_tokens, unit, lifetime);
}

void Binder::zeros(int buffer, std::string_view name, int64_t count) {
  add(buffer, {.name = std::string(name), .shape = {count}, .lifetime = Lifetime::kPersistent});
  constants_.push_back({buffer, 0, 0});
}
void Binder::constant_steps(int buffer, std::string_view name, int64_t count, int32_t step) {
  add(buffer, {.name = std::string(name), .shape = {count}, .lifetime = Lifetime::kConstant});
  constants_.push_back({buffer, 0, step});
}

void Binder::constant(int buffer, std::string_view name, int64_t count, int32_t value) {
  add(buffer, {.name = std::string(name), .shape = {count}, .lifetime = Lifetime::kConstant});
  constants_.push_back({buffer, value, 0});
}

void Binder::scratch(int buffer, std::string_view name, DType dtype,
                     std::initializer_list<int64_t> shape, int64_t granule) {
  add(buffer, {.name = std::string(name),
               .dtype = dtype,
               .shape = shape,
               .lifetime = Lifetime::kScratch,
               .granule = granule});
}

void Binder::query_offsets(int buffer, std::string_view name, int64_t rows, int32_t each) {
  if (is_decode_or_idle(meta_.limits.mode)) return constant_steps(buffer, name, rows + 1, each);
  ints(buffer, name, {rows + 1});
}

void Binder::result(int out, int lse, const std::string& name, const ResultRoom& room) {
  scratch(out, name + "_out", DType::kF32, {room.rows, room.width},
          std::max<int64_t>(room.granule, 1));
  scratch(lse, name + "_lse", DType::kF32, {room.rows, room.heads}, 1);
}

void Binder::out_cache_loc(int full, int swa) {
  slots(full, "out_cache_loc", meta_.limits.tokens);
  if (meta_.limits.model.swa_pool) slots(swa, "swa_out_cache_loc", meta_.limits.tokens);
}

Status Binder::bind(Meta* meta) {
  std::vector<Buffer> bound;
  Status status = meta_.arena.bind(specs_, &bound);
  if (!status.ok()) return status;
  for (size_t i = 0; i < bound.size(); ++i)
    meta_.buffers[static_cast<size_t>(order_[i])] = std::move(bound[i]);
  Filler filler(meta_);
  for (const Steps& c : constants_) {
    int32_t value = c.first;
    for (int32_t& v : filler.ints(c.buffer)) v = std::exchange(value, value + c.step);
  }
  status = filler.take_status();
  if (status.ok()) *meta = std::move(meta_);
  return status;
}

Filler::Filler(Meta& meta) : meta_(meta) {
  for (const Buffer& b : meta_.buffers)
    if (b.lifetime == Lifetime::kPerStep) meta_.arena.begin_fill(b);
}

template <class T>
std::span<T> Filler::stage(const Buffer& buffer, Elements range) {
  std::span<T> values;
  Status status = meta_.arena.stage(buffer, range, &values);
  if (status.ok()) return values;
  status_.add(std::move(status));
  const auto count = static_cast<size_t>(range.count);
  nowhere_.push_back(std::make_unique<std::byte[]>(count * sizeof(T)));
  return {reinterpret_cast<T*>(nowhere_.back().get()), count};
}

std::span<int32_t> Filler::ints(int buffer) {
  const Buffer& b = meta_[static_cast<size_t>(buffer)];
  return stage<int32_t>(b, b.all());
}

std::span<int64_t> Filler::slots(int buffer) {
  const Buffer& b = meta_[static_cast<size_t>(buffer)];
  return stage<int64_t>(b, b.all());
}

template <class T>
std::span<T> Filler::first_columns(int buffer, int64_t row, int64_t columns) {
  const Buffer& b = meta_[static_cast<size_t>(buffer)];
  const Elements all = b.rows(row, 1);
  const std::span<T> values = stage<T>(b, {all.first, columns});
  status_.add(meta_.arena.retire(b, {all.first + columns, all.count - columns}));
  return values;
}

std::span<int32_t> Filler::row(int buffer, int64_t row, int64_t columns) {
  return first_columns<int32_t>(buffer, row, columns);
}

std::span<int64_t> Filler::slot_row(int buffer, int64_t row, int64_t columns) {
  return first_columns<int64_t>(buffer, row, columns);
}

template <class T>
std::span<T> Filler::list(int buffer, int64_t first, int64_t count) {
  return stage<T>(meta_[static_cast<size_t>(buffer)], {first, count});
}
template std::span<uint8_t> Filler::list<uint8_t>(int, int64_t, int64_t);
template std::span<int32_t> Filler::list<int32_t>(int, int64_t, int64_t);
template std::span<float> Filler::list<float>(int, int64_t, int64_t);
template std::span<int64_t> Filler::list<int64_t>(int, int64_t, int64_t);

void Filler::retire_behind(int buffer, int64_t first) {
  const Buffer& b = meta_[static_cast<size_t>(buffer)];
  status_.add(meta_.arena.retire(b, {first, b.numel() - first}));
}

std::span<const int32_t> Filler::table_row(int buffer, int64_t i, std::span<const int32_t> slots,
                                           int64_t tokens, std::span<const int64_t> map) {
  const int32_t unit = meta_.units[static_cast<size_t>(buffer)];
  const std::span<int32_t> columns = row(buffer, i, pages_for(tokens, unit));
  if (slots.empty()) {
    std::ranges::fill(columns, 0);
    return columns;
  }
  const int32_t* slot = slots.data();
  const auto step = static_cast<size_t>(unit);
  if (map.empty()) {
    for (size_t j = 0; j < columns.size(); ++j)
      columns[j] = to_page(Slot(slot[j * step]), unit).value;
  } else {
    for (size_t j = 0; j < columns.size(); ++j)
      columns[j] = to_page(Slot(translate(map, slot[j * step])), unit).value;
  }
  return columns;
}

void Filler::tables(const RowTables& t, const ForwardBatch& batch, int64_t i, const RequestRow& row,
                    int64_t tokens) {
  const auto has = [&](int buffer) { return meta_.has(static_cast<size_t>(buffer)); };
  if (has(t.pool_rows)) {
    const auto at = static_cast<size_t>(i);
    const Buffer& pool_rows = meta_[static_cast<size_t>(t.pool_rows)];
    stage<int32_t>(pool_rows, {i, 1})[0] = row.padding() ? 0 : batch.req_pool_indices[at];
    return;
  }
  table_row(t.table, i, row.slots, tokens);
  if (has(t.swa_table)) table_row(t.swa_table, i, row.slots, tokens, batch.full_to_swa);
}

void Filler::out_cache_loc(const ForwardBatch& batch, int full, int swa) {
  const auto fill = [&](int buffer, auto slot_of) {
    if (!meta_.has(static_cast<size_t>(buffer))) return;
    const std::span<int64_t> to = slots(buffer);
    size_t n = 0;
    if (!batch.out_cache_loc.empty()) {
      const auto [first, step] = stride_of(batch);
      for (auto t = static_cast<size_t>(first); t < batch.out_cache_loc.size() && n < to.size();
           t += static_cast<size_t>(step))
        to[n++] = slot_of(batch.out_cache_loc[t]);
    } else {
      for (int64_t i = 0; i < batch.size(); ++i) {
        const RequestRow row = row_of(batch, meta_.limits, i);
        for (int32_t t = row.extent.prefix_len; t < row.extent.kv_len && n < to.size(); ++t)
          to[n++] = slot_of(row.slots[static_cast<size_t>(t)]);
      }
    }
    std::fill(to.begin() + static_cast<std::ptrdiff_t>(n), to.end(), 0);
  };
  fill(full, [](int64_t slot) { return slot; });
  fill(swa, [&](int64_t slot) { return int64_t{translate(batch.full_to_swa, slot)}; });
}

void Filler::encoder_out_cache_loc(const ForwardBatch& batch, int buffer) {
  if (!meta_.has(static_cast<size_t>(buffer))) return;
  const std::span<int64_t> to = slots(buffer);
  const auto rest = std::ranges::copy(batch.encoder_out_cache_loc, to.begin()).out;
  std::fill(rest, to.end(), 0);
}

}  // namespace shadowgraph
