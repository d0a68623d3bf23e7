// How many rows and tokens a step has with its padding.
#include <algorithm>

#include "check/traces/trace_batch.h"

namespace shadowgraph {

int64_t TraceBatch::tokens() const {
  const bool draft = batch.mode == ForwardMode::kDraftDecode;
  const int64_t of_rows = int64_t{rows} * width * (draft ? batch.spec.topk : 1);
  if (!open) return graph ? of_rows : 0;
  const bool same = is_decode(batch.mode) || is_target_verify(batch.mode);  // for each row
  return std::max(listed_tokens_, same ? of_rows : 0);
}

/// Offsets of queries are made for the launch; lengths and offsets of keys are read row by row.
/// Tables may be longer: engines hand over those of their largest bucket.
void TraceBatch::read_arrays(const TraceLine& line) {
  if (!open || batch.size() == 0) return;
  struct PerRow {
    const char* role;
    int64_t ends;  // elements beside those of rows
  };
  static constexpr PerRow kPerRow[] = {
      {"cu_seqlens_q", 1}, {"q_ends", 0},       {"q_lens", 0},  {"kv_lens", 0},
      {"kv_indptr", 1},    {"cu_seqlens_k", 1}, {"kv_ends", 0}, {"swa_kv_indptr", 1}};
  for (const auto& [role, ends] : kPerRow) {
    const auto array = line.expect.find(role);
    if (array == line.expect.end() || array->second.shape.size() != 1) continue;
    rows_said_by = role;
    rows = static_cast<int32_t>(std::clamp<int64_t>(array->second.rows() - ends, rows, 1 << 24));
    break;
  }
  for (const char* role : {"out_cache_loc", "positions"}) {
    for (const RecordedFields* fields : {&line.input, &line.expect}) {
      const auto array = fields->find(role);
      if (array != fields->end() && batch.mode != ForwardMode::kDraftDecode)
        listed_tokens_ = std::max(listed_tokens_, array->second.width());
    }
  }
}

/// A graph tells of its bucket's tokens, or of the real ones, as all others do. False: of neither.
bool TraceBatch::cut_padding(std::vector<int64_t>* values, int64_t tokens, int64_t each,
                             std::vector<int64_t>* padding) const {
  const auto size = static_cast<int64_t>(values->size());
  const int64_t bucket = this->tokens();
  bool fits = padded && (open || bucket == 0 ? size > tokens * each : size == bucket * each);
  // A draft's are those of the largest bucket.
  const int64_t request = batch.spec.topk * each;
  if (graph && batch.mode == ForwardMode::kDraftDecode && request > 0)
    fits = fits || (size > bucket * each && size % request == 0);
  if (!padded && size > tokens * each) fits = size == padded_tokens_;
  if (tokens < 0 || (size != tokens * each && !fits)) return false;
  if (const int64_t end = graph ? std::min(size, bucket * each) : size;
      padded && end > tokens * each)
    padding->assign(values->begin() + tokens * each, values->begin() + end);
  values->resize(static_cast<size_t>(tokens * each));
  return true;
}

}  // namespace shadowgraph
