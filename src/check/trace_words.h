// What went wrong, in the field's words: named slips are tried on a difference.
#pragma once

#include <string>

#include "check/trace_fields.h"

namespace shadowgraph {

/// Words, empty if no slip fits, and what they stand on ("K01 sglang#26512").
struct SlipWords {
  std::string words;
  std::string_view refs = {};
  bool wrong_unit = false;  // a slot where an id of a page belongs, or the other way round
};

/// All that explanations stand on.
inline constexpr std::string_view kExplanationRefs =
    "K01 K02 K31 K48 K75 fa.I-19 fa.I-29 fa.I-33 fa.I-34 fa.I-35 fa.I-37 fa.I-42 fa.I-43 fa.I-45 "
    "fa.I-48 fa.I-52 fa.I-66 fi.I-20 fi.I-21 fi.I-23 fi.I-27 fi.I-31 fi.I-32 fi.I-33 fi.I-35 "
    "fi.I-38 "
    "fi.I-41 sglang#16267 sglang#25045 sglang#26512 sglang#26628 sglang#26651";

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
