// Mistakes about how many keys a row has.
#include <algorithm>

#include "attn/page_table.h"
#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

constexpr int64_t kMostOff = 16;     // keys that a length is tried to be off
constexpr int64_t kMostRanges = 96;  // keys of a row whose parts are tried

int64_t length_of(const Reading& r) { return std::ssize(r.keys); }

/// fn(begin, end) of parts of the keys that are neither all nor none.
template <class Fn>
void each_range(int64_t length, Fn fn) {
  if (length > kMostRanges) return;
  for (int64_t begin = 1; begin < length; ++begin)
    for (int64_t end = begin + 1; end < length; ++end) fn(begin, end);
}

std::string from_to(int64_t begin, int64_t end) {
  return "places " + std::to_string(begin) + " to " + std::to_string(end - 1);
}

}  // namespace

void no_keys(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!right.keys.empty())
    add(changed(right,
                [](Reading& r) { r.result = Reading::Result::kNoKeys, r.some_rows = true; }));
}

void short_by_extend(const Scene& scene, size_t request, const Reading& right,
                     const AddReading& add) {
  const int32_t q_len = right.q_len;
  const int64_t length = length_of(right), prefix = length - q_len;
  if (prefix < 0) return;
  add(of_length(scene, request, right, prefix, by(q_len)));
  if (prefix < q_len) return;
  // A kernel that is given the new tokens apart has them all: it lacks the end of the prefix.
  add(changed(right, [&](Reading& r) {
    r.sees = [=](int32_t, int32_t k) { return k < prefix - q_len || k >= prefix; };
    r.detail = by(q_len);
  }));
}

void long_by_extend(const Scene& scene, size_t request, const Reading& right,
                    const AddReading& add) {
  const int32_t q_len = right.q_len;
  add(of_length(scene, request, right, length_of(right) + q_len, by(q_len)));
}

void short_by_some(const Scene& scene, size_t request, const Reading& right,
                   const AddReading& add) {
  const int64_t length = length_of(right);
  const auto tried = [=, page = scene.page_size](int64_t n) {
    return n <= kMostOff || length <= kMostRanges || n % page == 0;
  };
  const auto shorter = [&](int64_t n) {
    return of_length(scene, request, right, length - n, by(n));
  };
  const auto estimate = [&](const RowSums& row, int64_t n, int64_t moved) {
    std::optional<Estimate> e;
    if (tried(n)) e = row.of(row.seen(0, length - n, {.moved = moved}));
    return e;
  };
  add(Family{1, length, [&](const RowSums& row, int64_t n) { return estimate(row, n, -n); },
             shorter});
  // The mask stays where it was.
  add(Family{1, length, [&](const RowSums& row, int64_t n) { return estimate(row, n, 0); },
             [&](int64_t n) {
               Reading r = shorter(n);
               r.ahead = length - right.q_len;
               return r;
             }});
}

void long_by_some(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  for (int64_t n = 1; n <= kMostOff; ++n)
    add(of_length(scene, request, right, length_of(right) + n, by(n)));
}

void length_of_request(const Scene& scene, size_t request, const Reading& right,
                       const AddReading& add) {
  each_other(scene, request, [&](size_t other) {
    const int64_t length = std::ssize(scene.rows.keys[other]);
    if (length != length_of(right)) add(of_length(scene, request, right, length, of_row(other)));
  });
}

void stale_length(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  for (const RowsRead& rows : scene.before) {
    if (request >= rows.keys.size()) continue;
    const int64_t length = std::ssize(rows.keys[request]);
    if (length != length_of(right)) add(of_length(scene, request, right, length, {}));
  }
}

void length_of_pages(const Scene& scene, size_t request, const Reading& right,
                     const AddReading& add) {
  const int64_t room = pages_for(length_of(right), scene.page_size) * scene.page_size;
  if (room == length_of(right)) return;
  Reading r = of_length(scene, request, right, room, by(room - length_of(right)));
  add(r);
  // The rest of the last page, whatever its row says.
  for (size_t i = right.keys.size(); i < r.keys.size(); ++i)
    r.keys[i] = right.keys.back() + static_cast<int32_t>(i - right.keys.size() + 1);
  add(std::move(r));
}

void first_missing(const Scene&, size_t, const Reading& right, const AddReading& add) {
  for (int64_t n = 1; n < length_of(right); ++n) {
    if (n > kMostOff && length_of(right) > kMostRanges) return;
    add(changed(right, [&](Reading& r) {
      r.sees = [n](int32_t, int32_t k) { return k >= n; };
      r.detail = by(n);
    }));
  }
}

/// For decodes, whose queries all see the same keys.
void overlapping_chunks(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const int64_t length = length_of(right);
  if (right.q_len != 1 || length > kMostRanges) return;
  for (const int64_t tile : {2, 4, 8, 16, 32, 64}) {
    for (int64_t chunk = 1; chunk < length; ++chunk) {
      const int64_t whole = pages_for(chunk, tile) * tile;
      if (whole == chunk) continue;
      add(changed(right, [&](Reading& r) {
        r.keys.clear();
        for (int64_t first = 0; first < length; first += chunk) {
          const int64_t end = std::min(length, first + whole);
          r.keys.insert(r.keys.end(), right.keys.begin() + first, right.keys.begin() + end);
        }
        r.params.causal = false;
        r.detail = "chunks of " + std::to_string(chunk) + " keys, tiles of " + std::to_string(tile);
      }));
    }
  }
}

void range_missing(const Scene&, size_t, const Reading& right, const AddReading& add) {
  each_range(length_of(right), [&](int64_t begin, int64_t end) {
    add(changed(right, [&](Reading& r) {
      r.sees = [=](int32_t, int32_t k) { return k < begin || k >= end; };
      r.detail = from_to(begin, end);
    }));
  });
}

void range_twice(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const int64_t length = length_of(right);
  // In the order in which they would be read a second time: behind, and for every query alike.
  for (int64_t begin = 0; begin < length && length <= kMostRanges; ++begin) {
    for (int64_t end = begin + 1; end <= length; ++end) {
      Reading r = right;
      r.keys.insert(r.keys.end(), right.keys.begin() + begin, right.keys.begin() + end);
      r.ahead = length - right.q_len;
      r.twice = {static_cast<int32_t>(begin), static_cast<int32_t>(length)};
      r.detail = from_to(begin, end);
      add(std::move(r));
    }
  }
}

}  // namespace shadowgraph
