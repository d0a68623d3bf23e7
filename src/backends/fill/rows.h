// What backends over paged tables share: the rows of a step, padding included, and the writing of
// lengths, offsets and tables. Tested by tests/backends/rows_test.cc.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "launch/launch_args.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// The elements of a bound buffer, for launches: on the device.
template <class T>
std::span<const T> elements(const Buffer& b) {
  return {reinterpret_cast<const T*>(b.data), static_cast<size_t>(b.numel())};
}

/// The same of a buffer that a launch writes.
template <class T>
std::span<T> written(const Buffer& b) {
  return {reinterpret_cast<T*>(b.data), static_cast<size_t>(b.numel())};
}

/// One request's row, or a padding row: the lengths that an engine's graph runner gives it, and no
/// slots (all its keys lie in page 0).
struct RequestRow {
  RequestExtent extent;
  std::span<const int32_t> slots;  // of its tokens in order, past the encoder's; empty: padding
  int32_t encoder_len = 0;         // of them, before slots

  bool padding() const { return slots.empty(); }
};

/// Row i of the bucket. Requires a batch that fits(batch, limits). With an encoder the slots of its
/// tokens are slots.data() - encoder_len ....
RequestRow row_of(const ForwardBatch& batch, const Limits& limits, int64_t i);

/// A request's tokens from its first delimiter on; 0: it has no items.
int32_t items_len(const ForwardBatch& batch, int64_t request);

/// What every fill asks first: a valid batch of the mode that limits are for, within their rows,
/// tokens, queries, keys and items.
Status fits(const ForwardBatch& batch, const Limits& limits);

/// Checks full_to_swa for a batch that fits: it has entries for the slots that are written and for
/// those that tables of `unit` tokens a column translate.
Status translates(const ForwardBatch& batch, const Limits& limits, int32_t unit);

/// What every bind asks first: a mode, page size, topk and items that the backend serves, sizes
/// that are sizes, layer kinds with what they need.
Status serves(const BackendInfo& info, const Limits& limits);
/// Does the backend run steps of this mode?
inline bool has_mode(const BackendInfo& info, ForwardMode mode) {
  return std::ranges::find(info.modes, mode) != info.modes.end();
}
/// Adds backend.limits: what limits have in this field is not served.
void refuse(Status* status, std::string_view field, std::string expected, std::string got);
inline void refuse(Status* status, std::string_view field, std::string expected, int64_t got) {
  refuse(status, field, std::move(expected), std::to_string(got));
}

/// topk > 1: a request has branches (draft decode), or sees its drafts through a mask (verify).
bool is_draft_tree(const Limits& limits);
bool is_verify_tree(const Limits& limits);

/// Whose new tokens a step stores: known in modes in which all requests have as many.
RequestRows token_rows(const Limits& limits);

inline bool has_window(const LayerKind& kind) { return kind.params.window_left >= 0; }
/// The layer's keys lie in the sliding-window pool.
bool in_window_pool(const ModelConfig& model, const LayerKind& kind);

/// Slots of a draft's branch up to this step, of the full pool. branch: request * topk + its own.
/// Requires a draft decode that fits, with out_cache_loc.
std::span<const int64_t> drafted_slots(const ForwardBatch& batch, const Limits& limits,
                                       int64_t branch);

/// The first rows of a scratch buffer [rows, room] as f32 [rows, heads, dim]; dim 0: [rows, heads].
TensorView scratch_rows(const Buffer& b, int64_t rows, int64_t heads, int64_t dim = 0);

/// A slot in the window pool: 0 where it is evicted, -1 where there is none.
inline int32_t translate(std::span<const int64_t> full_to_swa, int64_t slot) {
  return slot < 0 ? -1 : static_cast<int32_t>(full_to_swa[static_cast<size_t>(slot)]);
}

/// The tables of a request's row of req_to_token, by a backend's numbering of buffers. A fill
/// writes them, or, where the model asks for that, the first launches of a step gather them.
struct RowTables {
  int lens;              // [rows] tokens
  int table, swa_table;  // [rows, pages]; ids of the pool, and of the window pool
  int pool_rows;         // [rows] of req_to_token, padding 0; bound where launches gather
  int offsets = -1;      // [rows] tokens of a row before its first, an encoder's; -1: none
};

/// Room for partial results of the widest layer of those that are added.
struct ResultRoom {
  int64_t rows = 0, heads = 0, width = 0, granule = 0;  // every layer writes a granule whole

  void add(const AttentionParams& params, int64_t of_layer);
};

/// Collects the buffers of a bind. Buffers that a mode does not need are left out.
class Binder {
 public:
  /// backend: the one that binds, which outlives the metadata.
  Binder(const Backend& backend, const Arena& arena, const Limits& limits, size_t num_buffers,
         size_t num_scalars = 0);

  /// int32, filled anew each step.
  void ints(int buffer, std::string_view name, std::initializer_list<int64_t> shape);
  void slots(int buffer, std::string_view name, int64_t count);  // int64
  /// int32 [rows, columns of max_tokens tokens]
  void table(int buffer, std::string_view name, int64_t rows, int64_t max_tokens, int32_t unit,
             Lifetime lifetime = Lifetime::kPerStep);
  /// All but the lengths, for max_tokens tokens a row; swa: the window pool's too.
  void tables(const RowTables& tables, int64_t max_tokens, int32_t unit, bool swa);
  /// A flat list of so many elements, filled anew each step.
  void list(int buffer, std::string_view name, int64_t capacity, DType dtype = DType::kI32);
  /// int64 [rows, columns], filled anew each step.
  void slot_table(int buffer, std::string_view name, int64_t rows, int64_t columns);
  /// int32, written once: 0, step, 2 step, ...
  void constant_steps(int buffer, std::string_view name, int64_t count, int32_t step);
  /// Offsets of rows with queries: written once where each row has `each` of them, in a decode.
  void query_offsets(int buffer, std::string_view name, int64_t rows, int32_t each = 1);
  /// int32, written once: all of one value.
  void constant(int buffer, std::string_view name, int64_t count, int32_t value);
  /// int32, written at bind: 0, as every launch that writes there leaves it.
  void zeros(int buffer, std::string_view name, int64_t count);
  /// Declares a buffer that each replay writes before it reads it.
  void scratch(int buffer, std::string_view name, DType dtype, std::initializer_list<int64_t> shape,
               int64_t granule);
  /// f32 scratch NAME_out [rows, heads * dim] and NAME_lse [rows, heads].
  void result(int out, int lse, const std::string& name, const ResultRoom& room);
  /// int64 [tokens] slots where the step stores, full, and if there is a window pool the slots in
  /// it, swa.
  void out_cache_loc(int full, int swa);
  Status bind(Meta* meta);

 private:
  void add(int buffer, BufferSpec spec);

  struct Steps {
    int buffer;
    int32_t first, step;
  };
  Meta meta_;
  std::vector<int> order_;  // which buffer each spec is
  std::vector<BufferSpec> specs_;
  std::vector<Steps> constants_;
};

/// Writes of one fill, in place in the staging; a fill begins with it. All ranges are inside their
/// buffers once fits() holds; where an arena refuses one all the same (a device error) its status
/// is kept, and the writes go nowhere.
class Filler {
 public:
  explicit Filler(Meta& meta);

  std::span<int32_t> ints(int buffer);
  std::span<int64_t> slots(int buffer);
  /// The first columns of a table's row; the others are retired.
  std::span<int32_t> row(int buffer, int64_t row, int64_t columns);
  std::span<int64_t> slot_row(int buffer, int64_t row, int64_t columns);
  /// Elements of a list. T is its dtype's.
  template <class T>
  std::span<T> list(int buffer, int64_t first, int64_t count);
  /// All from here on.
  void retire_behind(int buffer, int64_t first);
  /// The slots of a row's first tokens, in the table's unit; a padding row's are 0. map, where it
  /// is not empty, translates slots first. The columns.
  std::span<const int32_t> table_row(int buffer, int64_t row, std::span<const int32_t> slots,
                                     int64_t tokens, std::span<const int64_t> map = {});
  /// Row i of what Binder::tables bound: the slots of its first tokens, or where a launch finds
  /// them.
  void tables(const RowTables& tables, const ForwardBatch& batch, int64_t i, const RequestRow& row,
              int64_t tokens);
  /// Where this step's tokens are stored, 0 for padding, and where there is a window pool their
  /// slots in it. A batch without out_cache_loc stores where req_to_token has the tokens.
  void out_cache_loc(const ForwardBatch& batch, int full, int swa);
  /// The encoder's, if the buffer is bound; 0 behind the last.
  void encoder_out_cache_loc(const ForwardBatch& batch, int buffer);

  Status take_status() { return std::move(status_); }

 private:
  template <class T>
  std::span<T> stage(const Buffer& buffer, Elements range);
  template <class T>
  std::span<T> first_columns(int buffer, int64_t row, int64_t columns);

  Meta& meta_;
  Status status_;
  std::vector<std::unique_ptr<std::byte[]>> nowhere_;  // what was refused
};

/// The tables of a model that has them gathered on the device; nothing else.
void launch_gather(Stream& stream, const Meta& meta, const RowTables& tables, const StepIo& step);
/// What a layer's step brings, if anything, to these slots. Before attention: a step's own keys are
/// among those it sees.
void launch_store(Stream& stream, const LayerIo& io, const Buffer& out_cache_loc,
                  const RequestRows& rows);

}  // namespace shadowgraph
