#include "launch/counters_launch.h"

#include <algorithm>
#include <cassert>

#include "launch/checked_array.h"
#include "launch/partial_rows.h"

namespace shadowgraph {
namespace {

class CountedRowsRun {
 public:
  CountedRowsRun(const CountedRows& c, Footprint* spans)
      : c_(c),
        spans_(spans),
        counters_(c.counters.data(), std::ssize(c.counters), spans),
        offsets_(c.cu_seqlens_q.data(), std::ssize(c.cu_seqlens_q), spans) {}

  void run() {
    for (int64_t i = 0; i < counters_.size(); ++i) {
      const auto row = static_cast<int32_t>(i);
      if (counters_.load(i, row) != 0) lose(row);
      counters_.store(i, 0, row);
    }
  }

 private:
  void lose(int32_t row) {
    const int64_t tokens = c_.out.shape[0];
    const int64_t begin = std::clamp<int64_t>(*offsets_.load(row, row), 0, tokens),
                  end = std::clamp<int64_t>(*offsets_.load(row + 1, row), 0, tokens);
    for (int64_t t = begin; t < end; ++t) {
      lose_row(c_.out, t, row, spans_);
      lose_row(c_.lse.tensor, t, row, spans_);
    }
  }

  const CountedRows& c_;
  Footprint* spans_;
  CheckedArray<int32_t> counters_;
  CheckedArray<const int32_t> offsets_;
};

}  // namespace

constinit const Kernel kCountedRows = walked_kernel<CountedRows, CountedRowsRun>("counted_rows");

KernelLaunch counted_rows_launch(const CountedRows& call, const RequestRows& rows) {
  assert(call.cu_seqlens_q.size() == call.counters.size() + 1);
  return launch_of(kCountedRows, call, rows, std::ssize(call.counters));
}

}  // namespace shadowgraph
