#include "fuzz/call/sparse_generate.h"

#include <algorithm>

#include "fuzz/call/call_sizes.h"
#include "fuzz/call/draw_names.h"
#include "fuzz/call/recurrent_generate.h"

namespace shadowgraph {
namespace {

using Call = SparseCase::Call;

DType wide_dtype(Choices& c, std::string_view factor) {
  return c.of(factor, {DType::kF32, DType::kBF16, DType::kF16});
}

/// None, one, few, a tile's end, or many.
int32_t choose_keys(Choices& c) {
  if (c.one_in(4)) return c.between(60, 68);
  if (c.one_in(6)) return c.between(100, 200);
  return c.one_in(2) ? c.between(4, 40) : c.between(0, 3);
}

void choose_rows(Choices& c, SparseCase& x, int most, CallSizes sizes) {
  constexpr int64_t kMost = 130;
  const int rows = sizes == CallSizes::kRows ? large_size(c, Axis::kTokens, most, kMost)
                   : c.one_in("one_row", 5)  ? 1
                                             : c.between(2, c.one_in("many_rows", 4) ? most : 3);
  x.rows.assign(static_cast<size_t>(rows), {});
}

/// Keys of the rows: many of the first one, so many that their products, `key` of one, are no more
/// than a call may have; few where there are many rows.
void choose_row_keys(Choices& c, SparseCase& x, CallSizes sizes, int64_t key) {
  constexpr int64_t kMost = 2100;
  const int64_t most = std::clamp<int64_t>(choose_work(c) / key, 1, kMost);
  for (SparseCase::Row& row : x.rows) {
    const int32_t keys = sizes == CallSizes::kRows ? c.between(0, 20) : choose_keys(c);
    row.count = sizes == CallSizes::kKeys && &row == x.rows.data()
                    ? large_size(c, Axis::kKeys, 16, most)
                : sizes == CallSizes::kHeads
                    ? std::min(keys, static_cast<int32_t>(most / std::ssize(x.rows)))
                    : keys;
  }
}

void choose_layout(Choices& c, SparseCase& x, CallSizes sizes) {
  if (sizes != CallSizes::kWidth)
    x.layout = c.of("layout", {LatentLayout::kRows, LatentLayout::kDsa, LatentLayout::kV4});
  if (sizes == CallSizes::kWidth) {
    x.head_dim = x.head_dim_v = large_size(c, Axis::kHeadDim, 4, 520);
  } else if (x.layout == LatentLayout::kDsa) {
    x.head_dim = 576, x.head_dim_v = 512;
  } else if (x.layout == LatentLayout::kV4) {
    x.head_dim = x.head_dim_v = 512;
  } else {
    x.head_dim = c.one_in("wide_rows", 16) ? c.of("head_dim", {576, 512})
                                           : c.of("head_dim", {16, 32, 17, 5, 80});
    x.head_dim_v = x.head_dim;
  }
  if (c.one_in("narrow_v", x.layout == LatentLayout::kRows ? 2 : 6))
    x.head_dim_v = c.between(1, x.head_dim);
}

/// Latents of an element each: of rows these are few.
void choose_attention(Choices& c, SparseCase& x) {
  const CallSizes sizes =
      choose_sizes(c, {CallSizes::kKeys, CallSizes::kRows, CallSizes::kHeads, CallSizes::kWidth});
  choose_rows(c, x, 5, sizes);
  choose_layout(c, x, sizes);
  using enum DType;
  x.heads = sizes == CallSizes::kHeads   ? large_size(c, Axis::kHeads, 4, 130)
            : c.one_in("many_heads", 16) ? c.of("heads", {17, 67})
                                         : c.of("heads", {1, 2, 3, 16, 5});
  x.dtype = c.of("dtype", {kF32, kBF16, kF16, kF32, kBF16, kF16, kE4M3});
  x.rows_dtype = c.of("rows_dtype", {kF32, kBF16, kF16, kF32, kBF16, kF16, kE4M3, kE5M2});
  x.out_dtype = wide_dtype(c, "out_dtype");
  x.has_extra = c.one_in("extra", 2);
  x.extra_layout = c.one_in("extra_rows", 2) ? LatentLayout::kRows : x.layout;
  // Its latents are as wide as the first list's.
  if (x.layout == LatentLayout::kRows && x.head_dim == 576 && c.one_in("extra_dsa", 2))
    x.extra_layout = LatentLayout::kDsa;
  x.sinks = c.one_in("sinks", 2);
  x.lse_sink = c.of("lse_sink", {LseSink::kExcluded, LseSink::kIncluded});
  choose_row_keys(c, x, sizes, int64_t{x.heads} * (x.head_dim + x.head_dim_v));
  for (SparseCase::Row& row : x.rows)
    if (x.has_extra) row.extra = sizes == CallSizes::kSmall ? choose_keys(c) : c.between(0, 3);
}

void choose_pack(Choices& c, SparseCase& x) {
  const CallSizes sizes = choose_sizes(c, {CallSizes::kRows, CallSizes::kWidth});
  choose_rows(c, x, 9, sizes);
  choose_layout(c, x, sizes);
  x.dtype = wide_dtype(c, "dtype"), x.rows_dtype = wide_dtype(c, "rows_dtype");
  x.padding_page = c.one_in("padding_page", 2);
  for (SparseCase::Row& row : x.rows) row.slot = !c.one_in(6);
}

/// Rows of a table, or of keys; each token sees some of its request's.
void choose_logits(Choices& c, SparseCase& x) {
  const CallSizes sizes = choose_sizes(c, {CallSizes::kKeys, CallSizes::kRows, CallSizes::kHeads});
  choose_rows(c, x, 6, sizes);
  x.requests = c.between("requests", 1, 3);
  x.heads = sizes == CallSizes::kHeads   ? large_size(c, Axis::kHeads, 4, 66)
            : c.one_in("many_heads", 12) ? c.of("heads", {64, 32})
                                         : c.of("heads", {1, 2, 3, 5});
  choose_row_keys(c, x, sizes, x.heads * kIndexDim);
  for (SparseCase::Row& row : x.rows)
    if (c.one_in(3)) row.first = c.between(1, 70);
}

void choose_lists(Choices& c, SparseCase& x) {
  const CallSizes sizes = choose_sizes(c, {CallSizes::kKeys, CallSizes::kRows});
  choose_rows(c, x, 6, sizes);
  x.topk = sizes == CallSizes::kKeys    ? large_size(c, Axis::kKeys, 16, 2050)
           : c.one_in("many_chosen", 8) ? c.of("topk", {64, 128})
                                        : c.of("topk", {4, 1, 2, 7, 16});
  for (SparseCase::Row& row : x.rows)
    row.count = x.call == Call::kSelect ? (c.one_in(3) ? x.topk + c.between(-1, 1) : choose_keys(c))
                                        : c.between(0, x.topk);
  if (x.call != Call::kTransform) return;
  x.requests = c.between("requests", 1, 3);
  x.by_table = !c.one_in("by_offsets", 3);
}

/// Often around the end of a block.
void choose_compress(Choices& c, SparseCase& x) {
  const CallSizes sizes =
      choose_sizes(c, {CallSizes::kTokens, CallSizes::kRows, CallSizes::kWidth});
  choose_rows(c, x, 5, sizes);
  x.ratio = c.of("ratio", {4, 4, 4, 128});
  x.head_dim = sizes == CallSizes::kWidth ? large_size(c, Axis::kChannels, 4, 130)
               : x.ratio == 128           ? c.of("head_dim", {4, 1, 33})
                                          : c.of("head_dim", {8, 1, 32, 33, 65});
  x.dtype = wide_dtype(c, "dtype"), x.out_dtype = wide_dtype(c, "out_dtype");
  x.ring = c.one_in("ring", 3), x.padding_page = c.one_in("padding_page", 3);
  const bool decode = c.one_in("decode", 3);
  for (SparseCase::Row& row : x.rows) {
    row.first = c.one_in(3) ? 0 : c.between(0, 3) * x.ratio + c.between(0, x.ratio - 1);
    const int most = x.ratio == 128 && sizes != CallSizes::kRows ? 140 : 14;
    row.count = decode ? 1 : c.one_in(8) ? 0 : c.between(1, most);
    row.slot = !c.one_in(8);
  }
  if (sizes == CallSizes::kTokens && !decode)
    x.rows[0].count = large_size(c, Axis::kTokens, 14, 300);
}

void choose_norm(Choices& c, SparseCase& x) {
  const CallSizes sizes = choose_sizes(c, {CallSizes::kRows, CallSizes::kWidth});
  choose_rows(c, x, 7, sizes);
  if (x.call == Call::kPoolNormRope) x.ratio = c.of("ratio", {4, 4, 4, 4, 4, 128});
  x.head_dim = sizes == CallSizes::kWidth ? 2 * large_size(c, Axis::kChannels, 4, 130)
               : x.ratio == 128           ? c.of("head_dim", {4, 34})
                                          : c.of("head_dim", {8, 2, 64, 33, 128});
  x.rope_dim = 2 * c.between(0, x.head_dim / 2);
  x.dtype = wide_dtype(c, "dtype"), x.out_dtype = wide_dtype(c, "out_dtype");
}

void choose_stores(Choices& c, SparseCase& x) {
  const CallSizes sizes = x.call == Call::kGatherKeys
                              ? choose_sizes(c, {CallSizes::kKeys, CallSizes::kRows})
                              : choose_sizes(c, {CallSizes::kRows});
  choose_rows(c, x, 9, sizes);
  x.padding_page = x.call == Call::kStoreKeys && c.one_in("padding_page", 2);
  for (SparseCase::Row& row : x.rows) {
    if (x.call == Call::kStoreKeys) row.slot = !c.one_in(6);
  }
  if (x.call == Call::kGatherKeys) choose_row_keys(c, x, sizes, 16 * kIndexDim);
}

}  // namespace

SparseCase generate_sparse(Choices& c) {
  SparseCase x;
  x.call =
      c.of(kCallFactor, {Call::kAttention, Call::kAttention, Call::kPack, Call::kAttention,
                         Call::kActQuant, Call::kStoreKeys, Call::kGatherKeys, Call::kLogits,
                         Call::kLogits, Call::kSelect, Call::kTransform, Call::kCompact,
                         Call::kCompress, Call::kCompress, Call::kPoolNormRope, Call::kNormRope});
  switch (x.call) {
    case Call::kAttention: choose_attention(c, x); break;
    case Call::kPack: choose_pack(c, x); break;
    case Call::kActQuant:
      choose_rows(c, x, 20, choose_sizes(c, {CallSizes::kRows}));
      x.head_dim = static_cast<int32_t>(kIndexDim) * c.of("blocks", {1, 2, 5});
      x.dtype = wide_dtype(c, "dtype"), x.ue8m0 = c.one_in("ue8m0", 2);
      break;
    case Call::kStoreKeys:
    case Call::kGatherKeys: choose_stores(c, x); break;
    case Call::kLogits: choose_logits(c, x); break;
    case Call::kSelect:
    case Call::kTransform:
    case Call::kCompact: choose_lists(c, x); break;
    case Call::kCompress: choose_compress(c, x); break;
    case Call::kPoolNormRope:
    case Call::kNormRope: choose_norm(c, x); break;
  }
  return x;
}

}  // namespace shadowgraph
