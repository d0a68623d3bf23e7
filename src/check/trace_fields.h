// One recorded field against the twin's buffer of the same meaning.
#pragma once

#include <optional>
#include <string>

#include "check/trace_batch.h"

namespace shadowgraph {

/// A step that is judged: what was recorded, its batch, and the twin's metadata of that batch. Of a
/// capture the twin's is bound for the bucket and not filled.
struct TraceStep {
  const TraceLine& line;
  const TraceBatch& rebuilt;
  const BackendInfo& backend;
  const Meta& twin;

  const RecordedField* recorded(std::string_view name) const;
  /// What the engine calls a buffer that holds lengths; nullptr if it was not recorded.
  const RecordedField* recorded_lens(int buffer) const;
  /// The request of a row, where every request has as many rows.
  std::optional<int64_t> request(int64_t row, int64_t rows) const;
};

/// Appends what the field breaks. Empty, or why it could not be judged.
std::string judge_field(const TraceStep& step, const Field& field, const RecordedField& recorded,
                        Status* findings);

/// Element i of an int32 or int64 buffer.
int64_t value_of(const Buffer& buffer, int64_t i);

}  // namespace shadowgraph
