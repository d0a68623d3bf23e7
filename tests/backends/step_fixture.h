// A batch that owns what it views, and a backend's metadata on a device of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

/// Requests whose tokens lie in req_to_token, row i + 1 being request i's. Copies would view the
/// original's vectors.
struct OwnedBatch : ForwardBatch {
  Ints lens, news, pool_rows, encoders, tokens, places, item_offsets;
  Longs loc, swa, encoder_loc;
  std::vector<uint8_t> mask;

  OwnedBatch(ForwardMode m, SeqLensKind kind, Ints seq, Ints extend = {})
      : lens(std::move(seq)), news(std::move(extend)) {
    mode = m;
    seq_lens_kind = kind;
    pool_rows.resize(lens.size());
    std::iota(pool_rows.begin(), pool_rows.end(), 1);
    seq_lens = lens, extend_lens = news, req_pool_indices = pool_rows;
  }
  OwnedBatch(const OwnedBatch&) = delete;
  OwnedBatch& operator=(const OwnedBatch&) = delete;

  /// The slots of each request; row 0 is padding's, and the rest of a row is stale.
  void set_rows(const std::vector<Ints>& rows, int64_t width, int32_t stale = 0) {
    tokens.assign(static_cast<size_t>(width) * (rows.size() + 1), stale);
    std::fill_n(tokens.begin(), width, 0);
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy(rows[i].begin(), rows[i].end(),
                tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * static_cast<size_t>(width)));
    req_to_token = {tokens, width};
  }
  /// Pages of their own for each request, out of order, from page 1 on.
  void set_pages(int32_t page_size, int64_t width) {
    const auto count = static_cast<int32_t>(lens.size());
    const auto pages = static_cast<int32_t>((width + page_size - 1) / page_size);
    std::vector<Ints> rows(lens.size());
    for (int32_t i = 0; i < count; ++i)
      for (int32_t t = 0; t < width; ++t) {
        const int32_t page = 1 + (pages - 1 - t / page_size) * count + i;
        rows[static_cast<size_t>(i)].push_back(page * page_size + t % page_size);
      }
    set_rows(rows, width);
  }
  void set_loc(Longs slots) { loc = std::move(slots), out_cache_loc = loc; }
  void set_encoders(Ints lengths, Longs slots = {}) {
    encoders = std::move(lengths), encoder_lens = encoders;
    encoder_loc = std::move(slots), encoder_out_cache_loc = encoder_loc;
  }
  /// Page p of the window pool is page (pages - p) of the full one.
  void set_swa(int32_t pages, int32_t page_size) {
    swa.assign(static_cast<size_t>(pages) * static_cast<size_t>(page_size), 0);
    for (int32_t slot = page_size; slot < pages * page_size; ++slot)
      swa[static_cast<size_t>(slot)] = (pages - slot / page_size) * page_size + slot % page_size;
    full_to_swa = swa;
  }
  void set_items(Ints delimiters, Ints offsets) {
    places = std::move(delimiters), item_delimiters = places;
    item_offsets = std::move(offsets), item_indptr = item_offsets;
  }
  void set_mask(std::vector<uint8_t> pairs) { mask = std::move(pairs), spec.custom_mask = mask; }
  /// Request by request the trees' rows; the prefix is seen by all.
  void set_trees(const std::vector<std::vector<Ints>>& trees) {
    mask.clear();
    for (size_t i = 0; i < trees.size(); ++i)
      for (const Ints& row : trees[i]) {
        mask.insert(mask.end(), static_cast<size_t>(lens[i]), 1);
        mask.insert(mask.end(), row.begin(), row.end());
      }
    spec.custom_mask = mask;
  }
};

/// Metadata bound for limits.
class BoundStep {
 public:
  BoundStep(const Backend& backend, const Limits& limits, bool checked = true)
      : device_(SimOptions{.choose = {}, .checked = checked}),
        stream_(device_),
        arena_(device_, size_t{1} << 24),
        backend_(backend) {
    const Status status = backend.bind(arena_, limits, &meta);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  Status fill(const ForwardBatch& batch) {
    Status status = backend_.fill(batch, meta);
    status.add(arena_.upload(stream_.handle()));
    stream_.synchronize();
    return status;
  }
  Status refill(const ForwardBatch& batch) { return backend_.fill(batch, meta); }

  /// As the device has it.
  Ints ints(size_t buffer) const { return values<int32_t>(meta[buffer]); }
  Longs slots(size_t buffer) const { return values<int64_t>(meta[buffer]); }
  int64_t columns(size_t table) const { return meta[table].shape[1]; }
  Ints row(size_t table, int64_t i, int64_t count) const {
    const Ints all = ints(table);
    const auto begin = all.begin() + i * columns(table);
    return {begin, begin + count};
  }

  SimDevice& device() { return device_; }
  Stream& stream() { return stream_; }
  Arena& arena() { return arena_; }

 private:
  template <class T>
  static std::vector<T> values(const Buffer& b) {
    const auto* data = reinterpret_cast<const T*>(b.data);
    return {data, data + b.numel()};
  }

  SimDevice device_;
  Stream stream_;
  Arena arena_;
  const Backend& backend_;

 public:
  Meta meta;  // names the arena, and ends before it
};

}  // namespace shadowgraph
