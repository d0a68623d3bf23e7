// Mistakes about which keys a query sees.
#include <algorithm>

#include "attn/mask.h"
#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

bool has_window(const AttentionParams& p) { return p.window_left >= 0 || p.window_right >= 0; }

/// Windows whose left or right end is n keys off: `grow` times n further from the query.
void moved_ends(const Reading& right, int32_t grow, const AddReading& add) {
  const auto length = static_cast<int32_t>(right.keys.size());
  const auto moved = [&right, grow](bool left, int64_t n) {
    return changed(right, [&](Reading& r) {
      int32_t& end = left ? r.params.window_left : r.params.window_right;
      end += grow * static_cast<int32_t>(n);
      r.detail = (left ? "" : "at its right end, ") + by(n), r.of_call = true;
    });
  };
  for (const bool left : {true, false}) {
    const int32_t size = left ? right.params.window_left : right.params.window_right;
    if (size < 0 || (!left && right.params.causal)) continue;
    add(Family{1, 1 + (grow < 0 ? std::min(size, length) : length),
               [&right, left, grow](const RowSums& row, int64_t n) -> std::optional<Estimate> {
                 AttentionParams p = right.params;
                 (left ? p.window_left : p.window_right) += grow * static_cast<int32_t>(n);
                 return row.of(row.seen(0, row.length(), {.params = &p}));
               },
               [moved, left](int64_t n) { return moved(left, n); }});
  }
}

Reading with_mask(const Reading& right, const std::vector<uint8_t>& mask, std::string detail) {
  return changed(right, [&](Reading& r) { r.mask = mask, r.detail = std::move(detail); });
}

}  // namespace

void ignored_window(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (!has_window(right.params)) return;
  add(changed(right, [](Reading& r) { r.params.window_left = r.params.window_right = -1; }));
}

void ignored_left_end(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.window_left >= 0 && right.params.window_right >= 0)
    add(changed(right, [](Reading& r) { r.params.window_left = -1; }));
}

void ignored_right_end(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.window_left >= 0 && right.params.window_right >= 0 && !right.params.causal)
    add(changed(right, [](Reading& r) { r.params.window_right = -1; }));
}

void shorter_window(const Scene&, size_t, const Reading& right, const AddReading& add) {
  moved_ends(right, -1, add);
  // If the window holds only the query itself, nothing is left.
  if (right.params.window_left == 0)
    add(changed(right, [](Reading& r) { r.result = Reading::Result::kNoKeys; }));
}

void longer_window(const Scene&, size_t, const Reading& right, const AddReading& add) {
  moved_ends(right, 1, add);
}

void window_of_new_keys(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const int32_t left = right.params.window_left;
  if (left < 0) return;
  const int64_t prefix = std::ssize(right.keys) - right.q_len;
  const auto add_seen = [&](std::string detail, auto sees_of_prefix) {
    add(changed(right, [&](Reading& r) {
      r.params.window_left = -1;
      r.sees = [=](int32_t i, int32_t k) {
        return k < prefix ? sees_of_prefix(i, k) : prefix + i - k <= left;
      };
      r.detail = std::move(detail);
    }));
  };
  add_seen("all of them are seen", [](int32_t, int32_t) { return true; });
  add_seen("it is counted from the prefix's end", [=, q_len = right.q_len](int32_t i, int32_t k) {
    return prefix - q_len + i - k <= left;
  });
}

void ignored_causal(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.params.causal) add(changed(right, [](Reading& r) { r.params.causal = false; }));
}

void top_left_causal(const Scene&, size_t, const Reading& right, const AddReading& add) {
  const bool aligned = std::ssize(right.keys) == right.q_len;
  if ((right.params.causal || has_window(right.params)) && !aligned)
    add(changed(right, [](Reading& r) { r.ahead = 0; }));
}

void shifted_causal(const Scene&, size_t, const Reading& right, const AddReading& add) {
  constexpr int64_t kMost = 8;
  if (!right.params.causal || right.q_len == 1) return;
  const int64_t ahead = std::ssize(right.keys) - right.q_len;
  for (int64_t n = 1; n <= kMost; ++n) {
    for (const int64_t shift : {n, -n})
      add(changed(right, [&](Reading& r) { r.ahead = ahead + shift, r.detail = by(shift); }));
  }
}

void ignored_mask(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.mask.empty()) return;
  add(changed(unmasked(right), [](Reading& r) { r.detail = "all keys are seen"; }));
  add(changed(unmasked(right), [](Reading& r) {
    r.params.causal = true, r.detail = "the causal mask stands in its place";
  }));
}

void stale_mask(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  const Reading bare = changed(unmasked(right), [](Reading& r) { r.params.causal = false; });
  const int64_t own_width = std::ssize(right.keys);
  for (const RowsRead& rows : scene.before) {
    if (request >= rows.masks.size() || rows.masks[request] == right.mask) continue;
    // As it lies in memory: the next requests' follow.
    std::vector<uint8_t> old;
    for (size_t r = request; r < rows.masks.size(); ++r)
      old.insert(old.end(), rows.masks[r].begin(), rows.masks[r].end());
    const int64_t old_width = std::ssize(rows.keys[request]);
    for (const int64_t width : {own_width, old_width}) {
      for (const bool beyond : {true, false}) {
        add(changed(bare, [&](Reading& r) {
          r.sees = [=](int32_t i, int32_t k) {
            const int64_t bit = i * width + k;
            if (k >= width || bit >= std::ssize(old)) return beyond;
            return old[static_cast<size_t>(bit)] != 0;
          };
          r.detail = width == own_width ? "read with this step's width" : "with its width";
        }));
      }
    }
  }
}

void wrapped_mask(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  Reading r = right;
  const int64_t width = std::ssize(r.keys);
  if (r.mask.empty()) {
    // A call has no mask; a step's builder may write causal and window as pairs.
    if (scene.before.empty()) return;
    const MaskShape shape = mask_of(r, r.params, r.q_len, static_cast<int32_t>(width));
    for (int64_t q = 0; q < r.q_len; ++q)
      for (int64_t k = 0; k < width; ++k) r.mask.push_back(attends(shape, q, k));
    r.mask_width = static_cast<int32_t>(width);
    r.params.causal = false, r.params.window_left = r.params.window_right = -1;
    r.params.terms.attention_chunk = r.first_key = 0;
  }
  for (size_t limit = 8; limit < r.mask.size(); limit *= 2) {
    std::vector<uint8_t> wrapped = r.mask;
    for (size_t i = limit; i < wrapped.size(); ++i) wrapped[i] = r.mask[i % limit];
    add(with_mask(r, wrapped, "at " + std::to_string(limit) + " bits"));
  }
}

void foreign_mask(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  if (right.mask.empty()) return;
  each_other(scene, request, [&](size_t other) {
    std::vector<uint8_t> theirs = scene.rows.masks[other];
    theirs.resize(right.mask.size(), 0);
    add(with_mask(right, theirs, of_row(other)));
  });
}

void mask_as_length(const Scene&, size_t, const Reading& right, const AddReading& add) {
  if (right.mask.empty()) return;
  add(changed(right, [&](Reading& r) {
    std::vector<int32_t> shown;
    for (int32_t i = 0; i < r.q_len; ++i) {
      const auto row = right.mask.begin() + int64_t{i} * right.mask_width;
      shown.push_back(static_cast<int32_t>(
          std::count_if(row, row + right.mask_width, [](uint8_t bit) { return bit != 0; })));
    }
    r.mask.clear(), r.mask_width = 0;
    r.sees = [shown](int32_t i, int32_t k) { return k < shown[static_cast<size_t>(i)]; };
  }));
}

void hidden_values(const Scene&, size_t, const Reading& right, const AddReading& add) {
  add(changed(right, [](Reading& r) { r.hidden_values = true; }));
}

}  // namespace shadowgraph
