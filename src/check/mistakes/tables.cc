// Mistakes about which tokens are a row's keys.
#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check/mistakes/readings.h"

namespace shadowgraph {
namespace {

constexpr int32_t kMostBits = 16;
constexpr int64_t kMostShift = 16;

/// Each key by its place; one that leads out of the pool holds nothing.
template <class Fn>
Reading mapped(const Scene& scene, const Reading& right, std::string detail, Fn token_at) {
  Reading r = right;
  for (size_t k = 0; k < r.keys.size(); ++k) {
    const int64_t token = token_at(static_cast<int64_t>(k));
    const bool there = token >= 0 && token < scene.tokens.num_slots();
    r.keys[k] = there ? static_cast<int32_t>(token) : kNoToken;
  }
  r.detail = std::move(detail);
  return r;
}

}  // namespace

int64_t token_of(const Scene& scene, size_t request, const Reading& right, int64_t place) {
  if (place < 0) {
    const bool own = request < scene.front.size() && !scene.front[request].empty();
    if (!own && request == 0) return kNoToken;
    const std::vector<int32_t>& row = own ? scene.front[request] : scene.rows.keys[request - 1];
    const int64_t from_end = std::ssize(row) + place;
    return from_end < 0 ? kNoToken : row[static_cast<size_t>(from_end)];
  }
  if (place < std::ssize(right.keys)) return right.keys[static_cast<size_t>(place)];
  const int64_t past = place - std::ssize(right.keys);
  if (request >= scene.behind.size() || past >= std::ssize(scene.behind[request])) return kNoToken;
  return scene.behind[request][static_cast<size_t>(past)];
}

void stale_table(const Scene& scene, size_t request, const Reading& right, const AddReading& add) {
  for (const RowsRead& rows : scene.before) {
    if (request >= rows.keys.size()) continue;
    const std::vector<int32_t>& old = rows.keys[request];
    add(changed(right, [&](Reading& r) {
      r.keys = old;
      r.detail = "with their number";
    }));
    add(mapped(scene, right, "", [&](int64_t k) {
      return k < std::ssize(old) ? old[static_cast<size_t>(k)] : int64_t{kNoToken};
    }));
    // What is past the old ones was already there.
    add(mapped(scene, right, "in part", [&](int64_t k) {
      return (k < std::ssize(old) ? old : right.keys)[static_cast<size_t>(k)];
    }));
  }
}

void stale_offsets(const Scene& scene, size_t request, const Reading& right,
                   const AddReading& add) {
  std::vector<int32_t> list;
  for (const std::vector<int32_t>& row : scene.rows.keys)
    list.insert(list.end(), row.begin(), row.end());
  for (const RowsRead& rows : scene.before) {
    if (request >= rows.keys.size()) continue;
    size_t begin = 0;
    for (size_t r = 0; r < request; ++r) begin += rows.keys[r].size();
    const size_t count = rows.keys[request].size();
    if (begin + count > list.size()) continue;
    add(changed(right, [&](Reading& r) {
      r.keys.assign(list.begin() + static_cast<ptrdiff_t>(begin),
                    list.begin() + static_cast<ptrdiff_t>(begin + count));
    }));
  }
}

void table_of_request(const Scene& scene, size_t request, const Reading& right,
                      const AddReading& add) {
  each_other(scene, request, [&](size_t other) {
    const Reading theirs = right_reading(scene, other);
    add(changed(right, [&](Reading& r) {
      r.keys = theirs.keys;
      r.detail = of_row(other) + ", and their number";
    }));
    add(mapped(scene, right, of_row(other),
               [&](int64_t k) { return token_of(scene, other, theirs, k); }));
  });
}

void page_off_by_one(const Scene& scene, size_t request, const Reading& right,
                     const AddReading& add) {
  for (const int64_t pages : {1, -1}) {
    const int64_t shift = pages * scene.page_size;
    const std::string detail = pages > 0 ? "the next one" : "the one before";
    add(mapped(scene, right, detail + " of the row",
               [&](int64_t k) { return token_of(scene, request, right, k + shift); }));
    add(mapped(scene, right, detail + " of the pool",
               [&](int64_t k) { return right.keys[static_cast<size_t>(k)] + shift; }));
  }
}

void table_of_other_unit(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  const int64_t page = scene.page_size;
  if (page == 1) return;
  const auto slot = [&](int64_t k) { return int64_t{right.keys[static_cast<size_t>(k)]}; };
  add(mapped(scene, right, "numbers of pages are read as slots",
             [&](int64_t k) { return slot(k) / page; }));
  add(mapped(scene, right, "the page of every key is read as its slot",
             [&](int64_t k) { return slot(k / page) / page; }));
  add(mapped(scene, right, "slots are read as numbers of pages",
             [&](int64_t k) { return slot(k) * page + k % page; }));
  add(mapped(scene, right, "a page's slot is read as its number",
             [&](int64_t k) { return slot(k / page * page) * page + k % page; }));
  for (int64_t smaller = 1; smaller < page; smaller *= 2) {
    add(mapped(scene, right, "pages of " + std::to_string(smaller) + " tokens",
               [&](int64_t k) { return slot(k / smaller) / page * smaller + k % smaller; }));
  }
}

namespace {

/// A page times its stride, in elements of the pool.
void wrapped_products(const Scene& scene, const Reading& right, int64_t limit,
                      const AddReading& add) {
  const int64_t stride = scene.tokens.k.page_stride, page = scene.page_size;
  if (stride != scene.tokens.v.page_stride) return;
  add(changed(right, [&](Reading& r) {
    for (int32_t& key : r.keys) {
      const int64_t begins = key / page * page * stride % limit;
      key = static_cast<int32_t>(begins + key % page * stride);
    }
    r.elements = true;
    r.detail = "the elements at which pages begin at " + std::to_string(limit);
  }));
}

}  // namespace

void wrapped_slots(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  for (int32_t bits = 1; bits <= kMostBits; ++bits) {
    const int64_t limit = int64_t{1} << bits;
    const std::string detail = "at " + std::to_string(limit);
    const auto slot = [&](int64_t k) { return int64_t{right.keys[static_cast<size_t>(k)]}; };
    const int64_t page = scene.page_size;
    wrapped_products(scene, right, limit, add);
    add(mapped(scene, right, "slots " + detail, [&](int64_t k) { return slot(k) % limit; }));
    if (page == 1 || limit <= page) continue;
    add(mapped(scene, right, "numbers of pages " + detail,
               [&](int64_t k) { return slot(k) / page % limit * page + slot(k) % page; }));
    add(mapped(scene, right, "the beginnings of pages " + detail,
               [&](int64_t k) { return slot(k) / page * page % limit + slot(k) % page; }));
  }
}

void wrapped_places(const Scene& scene, size_t request, const Reading& right,
                    const AddReading& add) {
  for (int64_t limit = 2; limit < 2 * std::ssize(right.keys); limit *= 2) {
    const std::string detail = "at " + std::to_string(limit);
    add(mapped(scene, right, detail,
               [&](int64_t k) { return right.keys[static_cast<size_t>(k % limit)]; }));
    add(mapped(scene, right, detail + ", signed", [&](int64_t k) {
      return token_of(scene, request, right, (k + limit / 2) % limit - limit / 2);
    }));
  }
}

void shifted_table(const Scene& scene, size_t request, const Reading& right,
                   const AddReading& add) {
  const int64_t length = std::ssize(right.keys), most = std::max(kMostShift, length) - 1;
  const auto shifted = [&](int64_t shift) {
    return mapped(scene, right, by(shift),
                  [&](int64_t k) { return token_of(scene, request, right, k + shift); });
  };
  const auto estimate = [&](const RowSums& row, int64_t shift) -> std::optional<Estimate> {
    const bool tried = std::abs(shift) <= kMostShift || shift % scene.page_size == 0;
    if (shift == 0 || !tried || std::abs(shift) > length) return {};
    const KeySum keys = row.seen(0, length, {.list = Stretch::List::kRow, .shift = shift});
    if (keys.unknown) return {};
    return row.of(keys);
  };
  add(Family{-most, most + 1, estimate, shifted});
}

namespace {

/// Walks of keys in blocks of one length and of values in blocks of another.
std::vector<int32_t> block_lengths(const Scene& scene) {
  std::vector<int32_t> lengths = {8, 16, 32, 64, 128, 256};
  for (const int32_t own : {scene.params.head_dim_qk, scene.params.head_dim_vo, scene.page_size})
    if (std::ranges::find(lengths, own) == lengths.end()) lengths.push_back(own);
  return lengths;
}

}  // namespace

void values_of_others(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  const auto length = static_cast<int32_t>(right.keys.size());
  std::vector<std::pair<std::string, std::function<int32_t(int32_t)>>> ways;
  for (int32_t n = 1; n <= std::min<int32_t>(kMostShift, length - 1); ++n) {
    for (const int32_t shift : {n, -n}) {
      const auto end = [=](int32_t k) { return std::clamp(k + shift, 0, length - 1); };
      ways.emplace_back(by(shift), end);
      ways.emplace_back(by(shift) + ", round the end",
                        [=](int32_t k) { return (k + shift + length) % length; });
    }
  }
  for (const int32_t keys : block_lengths(scene)) {
    for (const int32_t values : block_lengths(scene)) {
      if (keys == values || keys >= length) continue;
      ways.emplace_back(
          "keys in blocks of " + std::to_string(keys) + ", values of " + std::to_string(values),
          [=](int32_t k) {
            const int32_t place = k / keys * values + k % keys;
            return place < length ? place : kNoToken;
          });
    }
  }
  add(Family{0, std::ssize(ways),
             [&](const RowSums& row, int64_t way) -> std::optional<Estimate> {
               const KeySum keys = row.read_as(1, ways[static_cast<size_t>(way)].second);
               if (keys.unknown) return {};
               return row.of(keys);
             },
             [&](int64_t way) {
               return changed(right, [&](Reading& r) {
                 std::tie(r.detail, r.value_of) = ways[static_cast<size_t>(way)];
               });
             }});
}

void other_strides(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  const int32_t page = scene.page_size, heads = scene.params.num_kv_heads;
  const KvPlane &k = scene.tokens.k, &v = scene.tokens.v;
  const bool dense = k.page_stride == int64_t{heads} * k.head_stride &&
                     k.page_stride == v.page_stride && k.head_stride == v.head_stride;
  if (page == 1 || heads == 1 || !dense) return;
  add(changed(right, [&](Reading& r) {
    r.placed = [=](int32_t token, int32_t head) {
      const int32_t place = head * page + token % page;  // of the page's rows
      return std::pair(token / page * page + place / heads, place % heads);
    };
    r.detail = "a page's tokens, then heads, are read as heads, then tokens";
  }));
  add(changed(right, [&](Reading& r) {
    r.placed = [=](int32_t token, int32_t head) {
      const int32_t place = token % page * heads + head;
      return std::pair(token / page * page + place % page, place / page);
    };
    r.detail = "a page's heads, then tokens, are read as tokens, then heads";
  }));
}

void keys_of_padding(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  const int64_t length = std::ssize(right.keys);
  const auto at_place = [&](int64_t place) {
    return mapped(scene, right, "at place " + std::to_string(place),
                  [&](int64_t k) { return k == place ? 0 : right.keys[static_cast<size_t>(k)]; });
  };
  const auto from_place = [&](int64_t first) {
    return mapped(scene, right, "from place " + std::to_string(first) + " on", [&](int64_t k) {
      const int64_t slot = right.keys[static_cast<size_t>(k)];
      return k < first ? slot : slot % scene.page_size;
    });
  };
  add(Family{0, length,
             [&](const RowSums& row, int64_t place) -> std::optional<Estimate> {
               if (!row.sees(place)) return {};
               return row.of(row.seen(0, place) + row.token(0) + row.seen(place + 1, length));
             },
             at_place});
  add(Family{0, length,
             [&](const RowSums& row, int64_t first) -> std::optional<Estimate> {
               return row.of(row.seen(0, first) +
                             row.seen(first, length, {.list = Stretch::List::kPadding}));
             },
             from_place});
}

void one_foreign_key(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  constexpr int64_t kMost = 4096;
  const int64_t tokens = scene.tokens.num_slots();
  if (tokens * std::ssize(right.keys) > kMost) return;
  for (size_t k = 0; k < right.keys.size(); ++k) {
    for (int64_t token = 0; token < tokens; ++token) {
      if (token == right.keys[k]) continue;
      add(changed(right, [&](Reading& r) {
        r.keys[k] = static_cast<int32_t>(token);
        r.detail = "slot " + std::to_string(token) + " at place " + std::to_string(k);
      }));
    }
  }
}

}  // namespace shadowgraph
