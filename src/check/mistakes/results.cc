// Mistakes about where results go, and about how partial results are merged.
#include <numbers>
#include <vector>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

/// Every way to cut a row's keys in two, or in chunks of one size. as: how the parts are merged.
void cut_anywhere(const Reading& as, const std::string& detail, const AddReading& add) {
  const int64_t length = std::ssize(as.keys);
  const auto cut_at = [&](int64_t cut, bool chunks, const char* how) {
    return changed(as, [&](Reading& r) {
      r.cut = static_cast<int32_t>(cut), r.chunks = chunks;
      r.detail = detail + how + std::to_string(cut);
    });
  };
  add(Family{1, length,
             [&](const RowSums& row, int64_t cut) {
               const KeySum parts[] = {row.seen(0, cut), row.seen(cut, length)};
               return row.merged(parts, as);
             },
             [&](int64_t cut) { return cut_at(cut, false, "cut at place "); }});
  add(Family{1, (length + 1) / 2,
             [&](const RowSums& row, int64_t cut) {
               std::vector<KeySum> parts;
               for (int64_t begin = 0; begin < length; begin += cut)
                 parts.push_back(row.seen(begin, begin + cut));
               return row.merged(parts, as);
             },
             [&](int64_t cut) { return cut_at(cut, true, "in chunks of "); }});
}

Reading merging(const Reading& right, Reading::Merge merge) {
  return changed(right, [&](Reading& r) { r.merge = merge; });
}

}  // namespace

void empty_is_nan(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.result = Reading::Result::kMadeNan, r.some_rows = true; }));
}

void no_number(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right,
              [](Reading& r) { r.result = Reading::Result::kNoNumber, r.some_rows = true; }));
}

void marked_rows(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.result = Reading::Result::kMark, r.some_rows = true; }));
}

void unwritten_rows(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right,
              [](Reading& r) { r.result = Reading::Result::kUnwritten, r.some_rows = true; }));
}

void zero_rows(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.result = Reading::Result::kZero, r.some_rows = true; }));
}

void other_query(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  const int64_t rows = scene.rows.cu_seqlens_q.back();
  const int64_t first = scene.rows.cu_seqlens_q[request];
  for (int64_t shift = -rows + 1; shift < rows; ++shift) {
    if (shift == 0) continue;
    add(changed(right, [&](Reading& r) {
      r.first_query = first + shift, r.some_rows = true;
      r.detail = by(shift);
    }));
    // Its place among the keys moves with it.
    add(changed(right, [&](Reading& r) {
      r.first_query = first + shift, r.some_rows = true;
      r.ahead = std::ssize(r.keys) - right.q_len + shift;
      r.detail = by(shift) + ", and stands there";
    }));
  }
}

void row_of_request(const Scene& scene, size_t request, const Reading&, const AddReading& add) {
  each_other(scene, request, [&](size_t other) {
    const Reading theirs = right_reading(scene, other);
    const int64_t first = scene.rows.cu_seqlens_q[other];
    for (int32_t shift = 0; shift < scene.rows.q_len(other); ++shift) {
      for (const bool one_query : {false, true}) {
        add(changed(theirs, [&](Reading& r) {
          r.first_query = first + shift, r.one_query = one_query, r.some_rows = true;
          r.first_mask_row = shift;
          r.ahead = std::ssize(r.keys) - scene.rows.q_len(other) + shift;
          r.detail = of_row(other) + ", query " + std::to_string(shift);
        }));
      }
    }
  });
}

void row_of_head(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.num_qo_heads > 1)
    add(changed(right,
                [](Reading& r) { r.result = Reading::Result::kOtherHead, r.some_rows = true; }));
}

void merged_in_other_base(const Scene&, size_t, const Reading& right, const AddReading& add) {
  using std::numbers::ln2, std::numbers::log2e;
  const struct {
    double first, other;
    const char* detail;
  } kWays[] = {{log2e, log2e, "base 2 as natural, "},
               {1, log2e, "the last one's, "},
               {log2e, 1, "the first one's, "},
               {ln2, ln2, "natural as base 2, "},
               {1, ln2, "the last one's, natural as base 2, "},
               {ln2, 1, "the first one's, natural as base 2, "}};
  for (const auto& way : kWays) {
    Reading as = merging(right, Reading::Merge::kWeighted);
    as.first_factor = way.first, as.other_factor = way.other;
    cut_anywhere(as, way.detail, add);
  }
}

void merged_unweighted(const Scene&, size_t, const Reading& right, const AddReading& add) {
  cut_anywhere(merging(right, Reading::Merge::kUnweighted), "", add);
}

void lse_of_part(const Scene&, size_t, const Reading& right, const AddReading& add) {
  cut_anywhere(merging(right, Reading::Merge::kFirstLse), "the first one's, ", add);
  cut_anywhere(merging(right, Reading::Merge::kLastLse), "the last one's, ", add);
}

}  // namespace shadowgraph
