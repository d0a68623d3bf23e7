// The batch of a trace line, rebuilt for a twin: its real rows only, and the model that its config
// tells of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/trace.h"
#include "shadowgraph/backend.h"

namespace shadowgraph {

class TraceBatch {
 public:
  TraceBatch() = default;
  TraceBatch(const TraceBatch&) = delete;
  TraceBatch& operator=(const TraceBatch&) = delete;

  /// Empty, or why this line cannot be judged.
  std::string build(const TraceLine& line);

  /// Of a capture: none of its rows is real.
  ForwardBatch batch;
  ModelConfig model;
  int32_t rows = 0;   // with padding
  int32_t width = 1;  // queries that the graph holds for each row
  bool graph = false, capture = false;

 private:
  std::string read_mode(const TraceLine& line);
  void read_model(const TraceConfig& config);
  void read_requests(const TraceLine& line);
  void read_new_tokens(const TraceLine& line);
  void read_tokens(const TraceLine& line);
  bool whole_pages(std::span<const int32_t> slots) const;
  std::string check_slots() const;
  void need(std::string_view name, const char* what);
  template <class T>
  bool read(const TraceLine& line, std::string_view name, std::vector<T>* to);

  std::string problem_;
  std::vector<int32_t> pool_rows_, seq_lens_, extend_lens_, encoder_lens_, table_;
  std::vector<int64_t> out_cache_loc_, positions_, full_to_swa_;
  std::vector<uint8_t> mask_;
};

}  // namespace shadowgraph
