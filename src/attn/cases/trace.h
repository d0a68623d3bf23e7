// TraceLine: one recorded step of an engine, as plain data: the batch as its scheduler saw it, and
// the metadata as its builder left it. src/io reads them, src/check judges them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shadowgraph {

/// A scalar, a vector or a table of integers, as it was recorded.
struct RecordedField {
  std::string dtype;           // "int32", "bool", "pyint", ...; of plain JSON "pyint", "pylist"
  std::vector<int64_t> shape;  // in full; empty: a scalar
  int64_t cols = 0;            // how much of the last axis is stored, from its start
  std::vector<int64_t> data;   // row-major, cols a row
  // What it is instead of integers ("of dtype float32"); empty: integers. Else kept by name only
  std::string unreadable = {};
  bool pages = false;  // an element is a page, and stands for all its slots

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t width() const { return shape.empty() ? 1 : shape.back(); }
};

using RecordedFields = std::map<std::string, RecordedField, std::less<>>;

struct TraceConfig {
  int32_t page_size = 1;
  std::optional<int32_t> pool_pages;
  int32_t max_context_len = 0;
  int32_t topk = 0, num_steps = 0, num_draft_tokens = 0, step_id = 0;
  std::optional<int32_t> window;    // keys before the query, itself not counted
  std::optional<int32_t> chunk;     // of local attention
  int32_t prefix_chunk_tokens = 0;  // > 0: a latent cache, whose prefills read prefixes in chunks
  std::optional<int32_t> num_heads, num_kv_heads;
  std::optional<int32_t> max_kv_splits, device_core_count;
  std::string seq_lens_semantics;  // "full", "prefix_only", or what the line says; empty: the usual
  // The engine's name, empty: the backend's; and members of Engine in which the line differs from
  // it, by name: nullopt says "any" or "none", a truth is 0 or 1
  std::string engine;
  std::map<std::string, std::optional<int32_t>, std::less<>> conventions;
  std::vector<std::string> said, nulls;  // the keys of these that the line has; that hold nothing
};

/// A plan that a line records; its arguments are fields of `expect`, as "NAME.argument".
struct TraceCall {
  std::string wrapper;  // what the engine calls its object
  std::string name;     // "decode[0]", "paged[1]", "ragged[0]"; empty: its arguments are not kept
  std::string kind;     // "plan", "fast_decode_plan"
  int64_t bucket = 0;   // rows of the graphs whose wrapper it is; 0: that of eager steps
};

struct TraceLine {
  std::string id, backend, mode, phase;
  TraceConfig config;
  RecordedFields input, expect;
  // Names that this line has for fields of `expect` -> their names in `list fields`
  std::map<std::string, std::string, std::less<>> roles;
  std::vector<TraceCall> calls;                       // of `expect`, in their order
  bool no_calls = false;                              // `expect` lists them, and there are none
  std::vector<std::string> line_keys, config_keys;    // that are not read
  std::vector<std::string> null_inputs, null_fields;  // keys of input and expect that hold nothing
  std::string exception;                              // "IndexError: ...": the builder raised
  std::vector<std::string> triton_oob;                // accesses outside storage, in words
  std::string role;                                   // for reports only
  size_t line = 0;                                    // of the file, from 1
};

}  // namespace shadowgraph
