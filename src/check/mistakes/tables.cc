// Mistakes about which tokens are a row's keys.
#include <algorithm>

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

/// What stands at a place of the row; before it, where nothing of its own does, that of the row
/// before, as in a list.
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

}  // namespace

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
  for (int64_t n = 1; n < std::max<int64_t>(kMostShift, std::ssize(right.keys)); ++n) {
    if (n > kMostShift && n % scene.page_size != 0) continue;
    for (const int64_t shift : {n, -n}) {
      add(mapped(scene, right, by(shift),
                 [&](int64_t k) { return token_of(scene, request, right, k + shift); }));
    }
  }
}

void keys_of_padding(const Scene& scene, size_t, const Reading& right, const AddReading& add) {
  for (int64_t place = 0; place < std::ssize(right.keys); ++place) {
    add(mapped(scene, right, "at place " + std::to_string(place),
               [&](int64_t k) { return k == place ? 0 : right.keys[static_cast<size_t>(k)]; }));
  }
  for (int64_t first = 0; first < std::ssize(right.keys); ++first) {
    add(mapped(scene, right, "from place " + std::to_string(first) + " on", [&](int64_t k) {
      const int64_t slot = right.keys[static_cast<size_t>(k)];
      return k < first ? slot : slot % scene.page_size;
    }));
  }
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
