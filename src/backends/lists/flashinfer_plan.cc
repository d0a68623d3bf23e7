#include "backends/lists/flashinfer_plan.h"

#include <cassert>
#include <string>

#include "core/int_math.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

int32_t tile_for(int64_t packed_rows, const PlanShape& s) {
  if (s.head_dim_vo >= 512) return packed_rows <= 32 ? 16 : 32;  // edge: query_rows, head_dim
  if (s.head_dim_qk >= 512) return 16;                           // edge: head_dim
  if (packed_rows > 64 && s.head_dim_vo < 256) return 128;       // edge: query_rows, head_dim
  return packed_rows > 16 ? 64 : 16;                             // edge: query_rows
}

/// Items that fill the GPU.
int64_t items_of_grid(const PlanShape& s) {
  return int64_t{s.split.num_sms} * s.split.blocks_per_sm / s.num_kv_heads;
}

/// So many requests fill the GPU without a cut.
bool is_full(const PlanShape& s) {
  return s.kind == PlanKind::kDecode && s.split.fixed_size <= 0 &&
         int64_t{s.rows} * s.num_kv_heads >= int64_t{s.split.num_sms} * s.split.blocks_per_sm;
}

int32_t min_chunk(const PlanShape& s) {
  return std::max(1, s.split.fixed_size > 0 ? s.split.fixed_size : s.split.min_size);
}

int64_t most_tiles(const PlanShape& s) {
  if (s.kind == PlanKind::kDecode || s.rows == 0) return s.rows;
  return ceil_div(int64_t{s.tokens} * s.group(), s.cta_tile_q()) + s.rows - 1;
}

/// The lengths of a batch.
class Lengths {
 public:
  Lengths(const PlanShape& shape, std::span<const int32_t> qo_indptr,
          std::span<const int32_t> kv_indptr)
      : qo_(qo_indptr), kv_(kv_indptr), group_(shape.group()), tile_(shape.cta_tile_q()) {
    assert(std::ssize(kv_) == shape.rows + 1);
    assert(qo_.empty() == (shape.kind == PlanKind::kDecode));
  }

  size_t rows() const { return kv_.size() - 1; }
  int32_t queries(size_t i) const { return qo_.empty() ? 1 : qo_[i + 1] - qo_[i]; }
  int32_t keys(size_t i) const { return kv_[i + 1] - kv_[i]; }
  int64_t tiles(size_t i) const { return ceil_div(int64_t{queries(i)} * group_, tile_); }
  /// A request without keys has one chunk. FlashInfer's search for a decode counts none there, and
  /// may find more items in the end than its grid has.
  int64_t chunks(size_t i, int64_t chunk) const { return ceil_div(std::max(keys(i), 1), chunk); }

  int32_t longest() const {
    int32_t most = 1;
    for (size_t i = 0; i < rows(); ++i) most = std::max(most, keys(i));
    return most;
  }
  int64_t items(int64_t chunk) const {
    int64_t count = 0;
    for (size_t i = 0; i < rows(); ++i) count += tiles(i) * chunks(i, chunk);
    return count;
  }

 private:
  std::span<const int32_t> qo_, kv_;
  int32_t group_, tile_;
};

/// The smallest chunk whose items are not more than those of the grid.
int32_t search_chunk(const PlanShape& shape, const Lengths& lens, int32_t longest) {
  int32_t low = min_chunk(shape), high = longest;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (lens.items(middle) > items_of_grid(shape)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

void write_items(const Lengths& lens, const PlanResult& plan, const PlanArrays& to) {
  size_t item = 0;
  for (size_t i = 0; i < lens.rows(); ++i) {
    for (int64_t tile = 0; tile < lens.tiles(i); ++tile) {
      for (int32_t chunk = 0; chunk < plan.chunks(lens.keys(i)); ++chunk, ++item) {
        to.request_indices[item] = static_cast<int32_t>(i);
        to.kv_tile_indices[item] = chunk;
        if (!to.qo_tile_indices.empty()) to.qo_tile_indices[item] = static_cast<int32_t>(tile);
      }
    }
  }
  for (size_t t = 0; t < to.block_valid_mask.size(); ++t) to.block_valid_mask[t] = t < item;
}

void write_rows(const Lengths& lens, const PlanResult& plan, const PlanArrays& to) {
  const bool merges = !to.merge_indptr.empty();
  size_t token = 0;
  to.o_indptr[0] = 0;
  if (merges) to.merge_indptr[0] = 0;
  for (size_t i = 0; i < lens.rows(); ++i) {
    const int32_t chunks = plan.chunks(lens.keys(i)), queries = lens.queries(i);
    to.o_indptr[i + 1] = to.o_indptr[i] + queries * chunks;
    for (int32_t q = 0; merges && q < queries; ++q, ++token)
      to.merge_indptr[token + 1] = to.merge_indptr[token] + chunks;
  }
}

}  // namespace

int32_t PlanShape::cta_tile_q() const {
  if (kind == PlanKind::kDecode) return group();
  if (rows == 0) return tile_for(0, *this);
  // Every other request of a grid that is padded has one query; else it is as many on average.
  const int64_t queries = padded ? std::max(1, tokens - rows + 1) : 0;
  return tile_for(padded ? queries * group() : int64_t{tokens} * group() / rows, *this);
}

PlanCapacity plan_capacity(const PlanShape& shape, int64_t max_kv_len) {
  const SplitConfig& split = shape.split;
  const int64_t tiles = most_tiles(shape);
  const int64_t chunks = ceil_div(std::max<int64_t>(max_kv_len, 1), min_chunk(shape));
  if (split.off || is_full(shape)) return {tiles, 0};
  const int64_t items =
      split.fixed_size > 0 ? tiles * chunks : std::max(tiles, items_of_grid(shape));
  const int64_t tokens = shape.kind == PlanKind::kDecode ? shape.rows : shape.tokens;
  return {items, std::min(tokens * chunks, items * shape.cta_tile_q() / shape.group())};
}

PlanResult measure_plan(const PlanShape& shape, std::span<const int32_t> qo_indptr,
                        std::span<const int32_t> kv_indptr) {
  const Lengths lens(shape, qo_indptr, kv_indptr);
  PlanResult r;
  const int32_t longest = lens.longest();
  if (shape.split.off) {
    r.kv_chunk_size = INT32_MAX;
  } else if (shape.split.fixed_size > 0) {
    // Whatever the batch, so that a row has the same bits in each.
    r.kv_chunk_size = shape.split.fixed_size;
    r.split_kv = true;
  } else if (is_full(shape)) {
    r.kv_chunk_size = longest;
  } else {
    r.kv_chunk_size = search_chunk(shape, lens, longest);
    r.split_kv = shape.padded || r.kv_chunk_size < longest;
  }
  r.items = lens.items(r.kv_chunk_size);
  return r;
}

Status write_plan(const PlanShape& shape, std::span<const int32_t> qo_indptr,
                  std::span<const int32_t> kv_indptr, const PlanResult& plan,
                  const PlanArrays& arrays) {
  Status status;
  const auto grid = std::ssize(arrays.request_indices);
  if (plan.items > grid) {
    status.add(make_finding("plan.capacity", at("request_indices"),
                            "<= " + std::to_string(grid) + " items", std::to_string(plan.items)));
    return status;
  }
  const Lengths lens(shape, qo_indptr, kv_indptr);
  write_items(lens, plan, arrays);
  write_rows(lens, plan, arrays);
  arrays.kv_chunk_size[0] = plan.kv_chunk_size;
  return status;
}

}  // namespace shadowgraph
