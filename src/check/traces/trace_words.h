// The words for a wrong field, by the hints of mistakes.inc. A cause is named only if it gives what
// was recorded; where several do, all are named, or the one that says more. Each has a state in
// which it is true, and one beside it in which it is not, in tests/check/trace_causes_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/mistakes/hints.h"
#include "check/traces/trace_fields.h"
#include "core/laws.h"

namespace shadowgraph {

/// Words, empty if no cause is known, and what they stand on, the ids of the causes last:
/// "K01 sglang#26512 extent.short_by_extend".
struct SlipWords {
  std::string words = {}, refs = {};
  LawId law = "table.slot";  // that a table with this cause breaks
};

/// The hint's, filled in.
SlipWords slip(HintId id, const std::vector<std::string>& fill = {});
/// The words of all: causes that give the same cannot be told apart.
SlipWords either(const std::vector<SlipWords>& fit);
/// "45: only the cached prefix, the new tokens are missing"
std::string explained(int64_t got, const SlipWords& why);

inline constexpr int64_t kNeverWritten = -7777;  // how recorders mark memory that nobody wrote

/// "token 3 of request 1", or the encoder's, for a column of the request's row of req_to_token.
std::string token_words(const ForwardBatch& batch, int64_t request, int64_t column);

/// Why a length is not the twin's. Rows [0, live) hold something in this step.
SlipWords explain_length(const TraceStep& step, const BufferInfo& field,
                         const RecordedField& recorded, int64_t row, int64_t live);

/// Keys that rows of offsets count.
struct CountPlace {
  int64_t row = 0, rows = 0;      // of all rows of the twin
  std::vector<int64_t> expected;  // [real rows]
  int64_t got = 0;
};
SlipWords explain_count(const TraceStep& step, const CountPlace& place);

/// The first difference in a table or a list.
struct TablePlace {
  int64_t unit = 1;  // tokens that a recorded column stands for
  int64_t row = 0;
  int64_t token = 0;                  // of the row
  int64_t expected = 0;               // slot
  int64_t got = 0;                    // the recorded column
  std::vector<int64_t> columns = {};  // all that were recorded of the row's live tokens
};
SlipWords explain_table(const TraceStep& step, const BufferInfo& field, const TablePlace& place);

}  // namespace shadowgraph
