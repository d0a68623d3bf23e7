// The batch of a trace line, rebuilt for a twin: its real rows only, and the model that its config
// tells of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/cases/trace.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// io.line: a mode, phase or meaning of lengths that there is not.
Status check_words(const TraceLine& line);

/// The conventions that a line follows: its engine's, and what it says itself. An engine that is
/// not known is its backend's.
Engine engine_of(const TraceLine& line, const BackendInfo& backend);

/// Why nothing reads what such a line says in this key of `input`; empty: it is read. Requires that
/// check_words(line) is ok.
std::string_view why_unread(const TraceLine& line, std::string_view input);

/// "[2, 3]", or "one number".
std::string shape_text(const std::vector<int64_t>& shape);

class TraceBatch {
 public:
  TraceBatch() = default;
  TraceBatch(const TraceBatch&) = delete;
  TraceBatch& operator=(const TraceBatch&) = delete;

  /// Requires that check_words(line) is ok. Empty, or why this line cannot be judged: its batch is
  /// too large. A line that says what no trace says is `refused` instead, and what contradicts
  /// itself is `wrong`. at_hand: the batch, of which `input` has slots and positions alone.
  std::string build(const TraceLine& line, const BackendInfo& backend,
                    const ForwardBatch* at_hand = nullptr);
  /// Slots of new tokens that a twin is to follow, in place of those that the line tells.
  void store(std::vector<int64_t> slots) {
    out_cache_loc_ = std::move(slots);
    batch.out_cache_loc = out_cache_loc_;
  }
  Status refused;  // io.line: words, inputs that are missing or no arrays of numbers in range
  Status wrong;    // findings of validate(batch): no twin can fill it

  /// The batch; in a capture none of its rows is real.
  ForwardBatch batch;
  ModelConfig model;
  Engine engine = kSglang;                                   // whose conventions the line follows
  int64_t pool_slots = std::numeric_limits<int32_t>::max();  // of the full pool, if it is told
  int32_t rows = 0;                                          // with padding
  int32_t width = 1;  // queries that the graph holds for each row
  bool graph = false, capture = false;
  bool padded = false;           // arrays may have rows of padding behind the batch's
  bool open = false;             // no bucket is told: the arrays say how many rows the kernel runs
  std::string rows_said_by;      // the array that says it, if any does
  bool one_step = false;         // of a draft's slots only those of this step are told
  bool kernel_has_mask = false;  // the backend hands its kernels a mask
  // Slots and positions that a replay records for the bucket's other tokens, behind the batch's
  std::vector<int64_t> padding_slots, padding_positions;
  std::vector<uint8_t>
      tree_mask;  // a verify has it; positions follow it even if no kernel reads it
  // Copies of lengths that the host keeps, if the line has them. bucket_lens: seq_lens with padding
  std::vector<int32_t> bucket_lens;
  std::optional<std::vector<int32_t>> lens_cpu, prefix_lens;
  std::optional<int64_t> lens_sum;

  /// The window of the layers that have one; -1: none has.
  int32_t window() const { return model.layers.back().params.window_left; }
  /// A slot that holds no key: of no pool, or of the page that the engine reserves.
  bool is_nobodys(int64_t slot) const {
    return slot < 0 || engine.is_reserved(slot, model.page_size);
  }
  /// "; the pool has 16 pages" for an id behind it, "; full_to_swa has 12 entries" for one that
  /// only the map to the window's pool lacks; empty for any other. An id stands for `unit` slots.
  std::string end_of_pool(int64_t id, int64_t unit = 1) const;
  /// The first of a request's tokens whose column is live where only keys of the window are read.
  int64_t first_in_window(int64_t request) const;
  /// The same of all its tokens: 0, unless the engine lets go of columns before the window.
  int64_t first_live(int64_t request) const {
    return engine.window_columns ? 0 : first_in_window(request);
  }
  /// Query tokens that the bucket has room for; 0: not known.
  int64_t tokens() const;

 private:
  void take(const ForwardBatch& at_hand);
  void read_mode(const TraceLine& line, const BackendInfo& backend);
  void read_model(const TraceLine& line);
  AttentionParams heads_of(const TraceLine& line) const;
  void read_requests(const TraceLine& line);
  void read_arrays(const TraceLine& line);
  void read_copies(const TraceLine& line);
  void read_new_tokens(const TraceLine& line);
  std::string read_tokens(const TraceLine& line);
  bool cut_padding(std::vector<int64_t>* values, int64_t tokens, int64_t each,
                   std::vector<int64_t>* padding) const;
  void refuse(std::string field, std::string expected, std::string got);
  template <class T>
  bool read(const TraceLine& line, const char* name, std::vector<T>* to);
  std::optional<std::vector<int32_t>> copy(const TraceLine& line, const char* name);
  template <class T>
  bool need(const TraceLine& line, const char* name, std::vector<T>* to);
  std::optional<int64_t> number(const TraceLine& line, const char* name, int64_t most);

  int64_t padded_tokens_ = -1;  // of an eager step, if it is padded
  int64_t listed_tokens_ = 0;   // of which arrays tell, if the step is open
  bool unreadable_ = false;     // some input is no array of integers
  std::vector<int32_t> pool_rows_, seq_lens_, extend_lens_, encoder_lens_, table_;
  std::vector<int64_t> out_cache_loc_, positions_, full_to_swa_;
  bool mask_is_batchs_ = false;  // no twin has it
  bool heads_ = true;            // the backend has layers with K and V of their own
  bool dual_chunk_ = false;
};

}  // namespace shadowgraph
