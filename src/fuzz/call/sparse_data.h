// The values of a Case of the sparse family, in their types and in logical order, before anything
// is laid out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/call/data.h"

namespace shadowgraph {

struct SparseData {
  /// Where a row's keys, scores, entries or tokens begin, [rows + 1]; [1]: its second list's.
  std::array<std::vector<int64_t>, 2> first;

  // One entry per row: q, latents, activations, keys to store, q of the indexer, x of a norm [rows,
  // heads, dim]; for kPoolNormRope the window [rows, window, channels * head_dim]
  LogicalTensor x;
  // Attention: f32 [keys, 1, head_dim], then latents that nobody names; hot: of far higher score
  std::array<LogicalTensor, 2> latents;
  std::array<std::vector<uint8_t>, 2> hot;
  std::vector<float> sinks;
  float sm_scale = 1;

  // Indexer: e4m3 [keys, 1, 128] and f32 [keys, 1, 1] of each row (kGatherKeys), of each request
  // (kLogits), or to store; f32 [rows, heads, 1]
  LogicalTensor keys, key_scales, head_weights;
  std::vector<int64_t> first_of_request;  // [requests + 1]
  LogicalTensor scores;                   // f32 [scores of all rows, 1, 1]
  std::vector<int32_t> indices, offsets;  // [rows, topk]; [rows]
  std::vector<int32_t> table;             // [requests, table_width]
  int64_t table_width = 0;

  // kCompress: rows of kv and score of each request, from first_position on: first what its state
  // holds before, then its tokens
  LogicalTensor stream;  // [positions, 1, channels * head_dim]
  std::vector<int64_t> first_position, first_in_stream;
  LogicalTensor ape, weight, freqs;  // f32 [window | ratio, 1, any], [1, 1, dim], [rows, 1, rope]
  float eps = 1e-6F;

  static constexpr int64_t kForeign = 6;  // latents that nobody names
};

SparseData make_sparse_data(const Case& x);

/// Keys of a request of kLogits: what its tokens see at most.
int64_t request_keys(const SparseCase& x, int64_t request);
/// Pages of a compressor's request, of which the first holds the block before its first token's.
int64_t compress_pages(const SparseCase& x, const SparseCase::Row& row);
/// Which of them the block at that position of the request is in.
int64_t compress_page(const SparseCase& x, const SparseCase::Row& row, int64_t position);

}  // namespace shadowgraph
