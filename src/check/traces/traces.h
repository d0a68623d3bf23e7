// Judging engine traces: a twin makes the metadata of the recorded batch anew, and what an engine's
// builder left is held against it, field by field as the twin's table says. Who recorded a line,
// and under which name, has no say. Tested by tests/check/traces_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/cases/trace.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// A part of a line that nobody judges.
struct LeftOut {
  std::string_view law;  // left_out.*, unread.field
  std::string name;      // "input.seq_len"
  std::string why;       // "not known; did you mean seq_lens?"

  std::string to_string() const { return name + ": " + why; }
};

struct TraceVerdict {
  enum class Kind : uint8_t { kAgreed, kFlagged, kSkipped, kRefused };
  Kind kind = Kind::kAgreed;
  std::string why;        // why a line is skipped: it lacks this
  std::string_view skip;  // the law of a skipped line, skip.*
  std::vector<LeftOut> left_out;
  std::vector<LeftOut> unread;  // keys and fields that nothing reads in such a line
  // len.*, table.*, slot.write, trace.*, mem.out_of_bounds; where is the recorded field's name, row
  // and column, case_id the line's id. Of a refused line io.line, with the line in where.row; or
  // what kept the judge from its work (input.memory, mem.*, graph.*)
  Status findings;

  /// The line is skipped, and no engine is known to have its backend.
  bool unknown_backend() const { return skip == "skip.unknown_backend"; }
};

/// A line is flagged exactly when its batch contradicts itself (trace_input.h), when metadata that
/// is live breaks the canonical triple of its batch, a law or memory, or when its builder raised.
/// Padded rows answer to laws only; stale columns, and what nothing reads, to none. It is refused
/// if it says what no trace says: a mode that there is not, an array that is none; skipped if its
/// backend has no twin, or is composed of others.
TraceVerdict judge_trace(const TraceLine& line);

/// The same, but which keys of `config` are unread is not told: trying them takes most of the time.
/// at_hand: the batch, in memory, in place of all of the line's `input` but out_cache_loc and
/// positions.
TraceVerdict judge_fields(const TraceLine& line);
TraceVerdict judge_fields(TraceLine&& line, const ForwardBatch* at_hand = nullptr);

/// Parts that were not judged, as findings for whoever wants them judged (`check --strict`), at the
/// field or at the line as a whole.
Finding passed_over(std::string_view law, std::string field, std::string why);
std::vector<Finding> passed_over(const TraceLine& line, const TraceVerdict& verdict);

}  // namespace shadowgraph
