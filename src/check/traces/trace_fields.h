// One recorded field against the twin's buffer of the same meaning.
#pragma once

#include <optional>
#include <string>

#include "check/traces/trace_batch.h"
#include "shadowgraph/engine/buffer_info.h"

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
  /// The recorded offsets of a buffer's rows, whole and at least `count` of them; nullptr: none.
  const RecordedField* recorded_indptr(int buffer, int64_t count) const;
  /// The request of a row, where every request has as many rows.
  std::optional<int64_t> request(int64_t row, int64_t rows) const;
};

/// What became of one reading of a field.
struct FieldVerdict {
  enum class Kind : uint8_t {
    kJudged,
    kUnread,   // nothing reads it in this mode, or only a graph's capture did
    kAbsent,   // the twin has nothing to hold it against in this mode: another reading's turn
    kLeftOut,  // it should have been judged, and could not be
  };
  Kind kind = Kind::kJudged;
  std::string why = {};       // why, if it was not judged
  std::string_view law = {};  // left_out.*, if kAbsent or kLeftOut
};

/// Findings are added.
FieldVerdict judge_field(const TraceStep& step, const BufferInfo& field,
                         const RecordedField& recorded, Status* findings);

/// Element i of an int32, int64 or byte buffer.
int64_t value_of(const Buffer& buffer, int64_t i);

}  // namespace shadowgraph
