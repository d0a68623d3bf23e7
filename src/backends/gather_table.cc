#include "backends/gather_table.h"

#include <algorithm>
#include <cassert>

#include "attn/page_table.h"
#include "backends/checked_array.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t { kTokens, kMap, kPoolRows, kLens, kOffsets, kTable, kScalars };

struct GatherScalars {
  int64_t pool_rows, width, mapped, requests, columns;
  int32_t unit;
  uint8_t has_map, has_offsets, unused[2];
};
static_assert(sizeof(GatherScalars) == 5 * 8 + 8);

constexpr int32_t kNoPage = -1;  // of an index that leads nowhere

/// The kernel over arrays that read and write, or only note it.
class Gather {
 public:
  Gather(const LaunchFrame& f, Footprint* spans)
      : s_(f.scalar<GatherScalars>(kScalars)),
        tokens_(f.pointer<int32_t>(kTokens), s_.pool_rows * s_.width, spans),
        map_(f.pointer<int64_t>(kMap), s_.mapped, spans),
        pool_row_(f.pointer<int32_t>(kPoolRows), s_.requests, spans),
        len_(f.pointer<int32_t>(kLens), s_.requests, spans),
        offset_(f.pointer<int32_t>(kOffsets), s_.requests, spans),
        table_(f.pointer<int32_t>(kTable), s_.requests * s_.columns, spans) {}

  void run() {
    for (int64_t i = 0; i < s_.requests; ++i) gather_row(i);
  }

 private:
  void gather_row(int64_t i) {
    const auto row = static_cast<int32_t>(i);
    const int64_t pool_row = *pool_row_.load(i, row), len = *len_.load(i, row);
    const int64_t offset = s_.has_offsets != 0 ? *offset_.load(i, row) : 0;
    const int64_t from = pool_row * s_.width + offset, to = i * s_.columns;
    const int64_t columns = pages_for(std::max<int64_t>(len, 0), s_.unit);
    const int64_t known = std::min(columns, table_.size() - to);
    for (int64_t j = 0; j < known; ++j) table_.store(to + j, page(from + j * s_.unit, row), row);
    table_.store_outside(to + known, columns - known, row);
  }
  int32_t page(int64_t token, int32_t row) {
    const auto slot = tokens_.load(token, row);
    if (!slot) return kNoPage;
    if (s_.has_map == 0) return *slot / s_.unit;
    const auto mapped = map_.load(*slot, row);
    return mapped ? static_cast<int32_t>(*mapped / s_.unit) : kNoPage;
  }

  GatherScalars s_;
  CheckedArray<const int32_t> tokens_;
  CheckedArray<const int64_t> map_;
  CheckedArray<const int32_t> pool_row_, len_, offset_;
  CheckedArray<int32_t> table_;
};

Progress body(LaunchFrame& f) {
  Gather(f, nullptr).run();
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) { Gather(f, spans).run(); }

}  // namespace

constinit const Kernel kGatherTable{.name = "gather_table", .body = body, .footprint = footprint};

KernelLaunch gather_table_launch(const GatherTable& c) {
  assert(c.unit > 0 && c.lens.size() == c.req_pool_indices.size());
  assert(c.page_table.shape[0] >= static_cast<int64_t>(c.lens.size()));
  assert(c.offsets.empty() || c.offsets.size() == c.lens.size());
  GatherScalars s{};
  s.pool_rows = c.req_to_token.shape[0];
  s.width = c.req_to_token.shape[1];
  s.mapped = c.full_to_swa.shape[0];
  s.requests = static_cast<int64_t>(c.lens.size());
  s.columns = c.page_table.shape[1];
  s.unit = c.unit;
  s.has_map = c.full_to_swa.defined();
  s.has_offsets = !c.offsets.empty();
  KernelLaunch launch;
  launch.kernel = &kGatherTable;
  launch.grid.x = static_cast<uint32_t>(std::max<int64_t>(1, s.requests));
  launch.args.pointer(c.req_to_token.data)
      .pointer(c.full_to_swa.data)
      .pointer(c.req_pool_indices.data())
      .pointer(c.lens.data())
      .pointer(c.offsets.data())
      .pointer(c.page_table.data)
      .scalar(s);
  return launch;
}

}  // namespace shadowgraph
