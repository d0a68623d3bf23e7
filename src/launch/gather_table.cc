#include "launch/gather_table.h"

#include <algorithm>
#include <cassert>

#include "attn/page_table.h"
#include "launch/checked_array.h"

namespace shadowgraph {

namespace {

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

}  // namespace

constinit const Kernel kGatherTable = walked_kernel<GatherTable, Gather>("gather_table");

KernelLaunch gather_table_launch(const GatherTable& call) {
  assert(call.unit > 0 && call.lens.size() == call.req_pool_indices.size());
  assert(call.page_table.shape[0] >= std::ssize(call.lens));
  assert(call.offsets.empty() || call.offsets.size() == call.lens.size());
  return launch_of(kGatherTable, call, {}, std::ssize(call.lens));
}

}  // namespace shadowgraph
