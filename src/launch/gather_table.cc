#include "launch/gather_table.h"

#include <algorithm>
#include <cassert>

#include "attn/page_table.h"
#include "launch/checked_array.h"
#include "launch/launch_scalars.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t { kTokens, kMap, kPoolRows, kLens, kOffsets, kTable, kScalars };

template <class T, class View>
T* data(const View& t) {
  return reinterpret_cast<T*>(t.data);
}

/// The kernel over arrays that read and write, or only note it.
class Gather {
 public:
  Gather(const GatherTable& c, Footprint* spans)
      : width_(c.req_to_token.shape[1]),
        columns_(c.page_table.shape[1]),
        unit_(c.unit),
        has_map_(c.full_to_swa.defined()),
        tokens_(data<const int32_t>(c.req_to_token), c.req_to_token.shape[0] * width_, spans),
        map_(data<const int64_t>(c.full_to_swa), c.full_to_swa.shape[0], spans),
        pool_row_(c.req_pool_indices.data(), std::ssize(c.req_pool_indices), spans),
        len_(c.lens.data(), std::ssize(c.lens), spans),
        offset_(c.offsets.data(), std::ssize(c.offsets), spans),
        table_(data<int32_t>(c.page_table), std::ssize(c.lens) * columns_, spans) {}

  void run() {
    for (int64_t i = 0; i < len_.size(); ++i) gather_row(i);
  }

 private:
  void gather_row(int64_t i) {
    const auto row = static_cast<int32_t>(i);
    const int64_t pool_row = *pool_row_.load(i, row), len = *len_.load(i, row);
    const int64_t offset = offset_.size() > 0 ? *offset_.load(i, row) : 0;
    const int64_t from = pool_row * width_ + offset, to = i * columns_;
    const int64_t columns = pages_for(std::max<int64_t>(len, 0), unit_);
    const int64_t known = std::min(columns, table_.size() - to);
    for (int64_t j = 0; j < known; ++j) table_.store(to + j, page(from + j * unit_, row), row);
    table_.store_outside(to + known, columns - known, row);
  }
  int32_t page(int64_t token, int32_t row) {
    const auto slot = tokens_.load(token, row);
    if (!slot) return kNoPage;
    if (!has_map_) return *slot / unit_;
    const auto mapped = map_.load(*slot, row);
    return mapped ? static_cast<int32_t>(*mapped / unit_) : kNoPage;
  }

  int64_t width_, columns_;
  int32_t unit_;
  bool has_map_;
  CheckedArray<const int32_t> tokens_;
  CheckedArray<const int64_t> map_;
  CheckedArray<const int32_t> pool_row_, len_, offset_;
  CheckedArray<int32_t> table_;
};

Progress body(LaunchFrame& f) {
  Gather(gather_table_call(f.launch), nullptr).run();
  return Progress::kDone;
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  Gather(gather_table_call(f.launch), spans).run();
}

}  // namespace

constinit const Kernel kGatherTable{.name = "gather_table", .body = body, .footprint = footprint};

GatherTable gather_table_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<GatherTableScalars>(kScalars);
  GatherTable c;
  c.req_to_token = TensorView(f.pointer<std::byte>(kTokens), DType::kI32, {s.pool_rows, s.width});
  if (s.has_map != 0)
    c.full_to_swa = TensorView(f.pointer<std::byte>(kMap), DType::kI64, {s.mapped});
  c.req_pool_indices = array_of<int32_t>(f, kPoolRows, s.requests);
  c.lens = array_of<int32_t>(f, kLens, s.requests);
  if (s.has_offsets != 0) c.offsets = array_of<int32_t>(f, kOffsets, s.requests);
  c.page_table = TensorView(f.pointer<std::byte>(kTable), DType::kI32, {s.requests, s.columns});
  c.unit = s.unit;
  return c;
}

KernelLaunch gather_table_launch(const GatherTable& c) {
  assert(c.unit > 0 && c.lens.size() == c.req_pool_indices.size());
  assert(c.page_table.shape[0] >= static_cast<int64_t>(c.lens.size()));
  assert(c.offsets.empty() || c.offsets.size() == c.lens.size());
  GatherTableScalars s{};
  s.pool_rows = c.req_to_token.shape[0];
  s.width = c.req_to_token.shape[1];
  s.mapped = c.full_to_swa.shape[0];
  s.requests = static_cast<int64_t>(c.lens.size());
  s.columns = c.page_table.shape[1];
  s.unit = c.unit;
  s.has_map = c.full_to_swa.defined();
  s.has_offsets = !c.offsets.empty();
  KernelLaunch launch = launch_of(kGatherTable, s.requests);
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
