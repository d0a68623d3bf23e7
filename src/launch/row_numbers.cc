#include "launch/row_numbers.h"

#include <algorithm>
#include <cassert>

#include "launch/checked_array.h"

namespace shadowgraph {
namespace {

using Ints = CheckedArray<const int32_t>;

Ints ints(std::span<const int32_t> s, Footprint* spans) { return {s.data(), std::ssize(s), spans}; }
CheckedArray<int32_t> written(std::span<int32_t> s, Footprint* spans) {
  return {s.data(), std::ssize(s), spans};
}
int32_t clamped(int64_t n) {
  return static_cast<int32_t>(std::clamp<int64_t>(n, INT32_MIN, INT32_MAX));
}
/// int32, contiguous.
template <class T, class View>
CheckedArray<T> elements_of(const View& t, Footprint* spans) {
  return {reinterpret_cast<T*>(t.data), t.shape[0] * t.shape[1], spans};
}

struct RowLensWalk {
  RowLensWalk(const RowLens& c, Footprint* spans)
      : call(c),
        lens(ints(c.lens, spans)),
        counts(ints(c.counts, spans)),
        out(written(c.out, spans)) {}

  void run() {
    const bool offsets = counts.size() > lens.size();
    for (int64_t i = 0; i < lens.size(); ++i) {
      const auto row = static_cast<int32_t>(i);
      int64_t n = *counts.load(i, row);
      if (offsets) n = *counts.load(i + 1, row) - n;
      const int64_t len = *lens.load(i, row);
      out.store(i, clamped(call.of_lens * len + call.of_counts * n + call.plus), row);
    }
  }

  const RowLens& call;
  Ints lens, counts;
  CheckedArray<int32_t> out;
};

struct RankLensWalk {
  RankLensWalk(const RankLens& c, Footprint* spans)
      : call(c),
        lens(ints(c.lens, spans)),
        global_lens(ints(c.global_lens, spans)),
        q_lens(ints(c.q_lens, spans)),
        out(written(c.out, spans)) {}

  void run() {
    for (int64_t i = 0; i < lens.size(); ++i) {
      const auto row = static_cast<int32_t>(i);
      const int32_t most = *lens.load(i, row);
      const int64_t before = int64_t{*global_lens.load(i, row)} - *q_lens.load(i, row);
      for (int64_t t = 0; t < call.max_q_len; ++t) {
        const int32_t seen = std::max(0, clamped(before + t + 1));
        out.store(t * lens.size() + i, std::min(most, local_len(seen, call.rank, call.size)), row);
      }
    }
  }

  const RankLens& call;
  Ints lens, global_lens, q_lens;
  CheckedArray<int32_t> out;
};

struct DenseRowsWalk {
  DenseRowsWalk(const DenseRows& c, Footprint* spans)
      : tokens(c.tokens), offsets(ints(c.offsets, spans)), out(written(c.out, spans)) {}

  void run() {
    const int32_t last = *offsets.load(offsets.size() - 1, -1);
    for (int64_t i = 0; i < offsets.size(); ++i) {
      const int32_t offset = *offsets.load(i, -1);
      out.store(i, offset == last ? clamped(i * tokens) : offset, -1);
    }
  }

  int64_t tokens;
  Ints offsets;
  CheckedArray<int32_t> out;
};

struct BlocksWalk {
  BlocksWalk(const BlocksOfPages& c, Footprint* spans)
      : pages(c.page_table.shape[1]),
        columns(c.out.shape[1]),
        a_page(c.a_page),
        table(elements_of<const int32_t>(c.page_table, spans)),
        lens(ints(c.lens, spans)),
        out(elements_of<int32_t>(c.out, spans)) {}

  void run() {
    for (int64_t t = 0; t < lens.size(); ++t) {
      const auto row = static_cast<int32_t>(t);
      const int64_t whole = *lens.load(t, row);
      for (int64_t j = 0; j < columns; ++j) {
        const auto page = j < whole ? table.load(t * pages + j / a_page, row) : std::nullopt;
        out.store(t * columns + j, page ? clamped(*page * a_page + j % a_page) : -1, row);
      }
    }
  }

  int64_t pages, columns, a_page;
  Ints table, lens;
  CheckedArray<int32_t> out;
};

}  // namespace

constinit const Kernel kRowLens = walked_kernel<RowLens, RowLensWalk>("row_lens");
constinit const Kernel kRankLens = walked_kernel<RankLens, RankLensWalk>("rank_lens");
constinit const Kernel kDenseRows = walked_kernel<DenseRows, DenseRowsWalk>("dense_rows");
constinit const Kernel kBlocksOfPages = walked_kernel<BlocksOfPages, BlocksWalk>("blocks_of_pages");

KernelLaunch row_lens_launch(const RowLens& call, const RequestRows& rows) {
  assert(call.out.size() == call.lens.size());
  assert(call.counts.size() == call.lens.size() || call.counts.size() == call.lens.size() + 1);
  return launch_of(kRowLens, call, rows, std::ssize(call.lens));
}

KernelLaunch rank_lens_launch(const RankLens& call, const RequestRows& rows) {
  assert(call.size > 0 &&
         call.out.size() == call.lens.size() * static_cast<size_t>(call.max_q_len));
  assert(call.global_lens.size() == call.lens.size() && call.q_lens.size() == call.lens.size());
  return launch_of(kRankLens, call, rows, std::ssize(call.lens));
}

KernelLaunch dense_rows_launch(const DenseRows& call, const RequestRows& rows) {
  assert(!call.offsets.empty() && call.out.size() == call.offsets.size());
  return launch_of(kDenseRows, call, rows, std::ssize(call.offsets));
}

KernelLaunch blocks_of_pages_launch(const BlocksOfPages& call, const RequestRows& tokens) {
  assert(call.a_page > 0 && call.out.shape[0] == std::ssize(call.lens));
  assert(call.page_table.shape[0] == call.out.shape[0]);
  return launch_of(kBlocksOfPages, call, tokens, std::ssize(call.lens));
}

}  // namespace shadowgraph
