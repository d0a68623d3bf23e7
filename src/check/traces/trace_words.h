// What went wrong, in the field's words: named slips are tried on a difference.
#pragma once

#include <string>

#include "check/traces/trace_fields.h"

namespace shadowgraph {

/// Words, empty if no slip fits, and what they stand on ("K01 sglang#26512").
struct SlipWords {
  std::string words;
  std::string_view refs = {};
  bool wrong_unit = false;  // a slot where an id of a page belongs, or the other way round
};

/// "token 3 of request 1", or the encoder's, for a column of the request's row of req_to_token.
std::string token_words(const ForwardBatch& batch, int64_t request, int64_t column);

/// A length of this row that should be `expected`. lens: the twin's, all rows.
SlipWords explain_length(const TraceStep& step, const Buffer& lens, int64_t row, int64_t got);

/// Keys that a row of offsets counts.
struct CountPlace {
  int64_t row = 0, rows = 0;
  int64_t expected = 0, got = 0;
};
SlipWords explain_count(const TraceStep& step, const CountPlace& place);

/// Where the difference in a table or a list lies.
struct TablePlace {
  int buffer = -1;
  int64_t unit = 1;  // tokens that a recorded column stands for
  int64_t row = 0;
  int64_t token = 0;     // of the row
  int64_t expected = 0;  // slot
  int64_t got = 0;       // the recorded column
  int list = -1;         // of a list its indptr; -1: a table
};
SlipWords explain_table(const TraceStep& step, const TablePlace& place);

}  // namespace shadowgraph
