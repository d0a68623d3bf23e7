#include "kernels/decode_paged.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/merge_states.h"
#include "kernels/problem.h"

namespace shadowgraph {
namespace {

struct Split {
  int64_t request;
  int32_t kv_head, begin, end;
};

/// The splits of one (request, KV head): [first, first + count) of all splits. Empty for a row that
/// sees no key.
struct Row {
  int64_t request;
  int32_t kv_head;
  int64_t first, count;
};

struct Plan {
  std::vector<Split> splits;
  std::vector<Row> rows;
  int64_t most_splits = 1;
};

Plan make_plan(const Problem& p) {
  Plan plan;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const RowMask mask = row_mask(p, static_cast<int64_t>(i), 0);
    for (int32_t head = 0; head < p.params.num_kv_heads; ++head) {
      Row row = {static_cast<int64_t>(i), head, static_cast<int64_t>(plan.splits.size()), 0};
      for (int64_t at = mask.begin; at < mask.end; ++row.count) {
        const int64_t next =
            std::min<int64_t>(mask.end, at / kDecodeSplit * kDecodeSplit + kDecodeSplit);
        plan.splits.push_back(
            {row.request, head, static_cast<int32_t>(at), static_cast<int32_t>(next)});
        at = next;
      }
      plan.most_splits = std::max(plan.most_splits, row.count);
      plan.rows.push_back(row);
    }
  }
  return plan;
}

/// Partial states of all splits: group rows each.
struct Partials {
  int64_t group, width;
  Floats m, d, o;
  Partials(int64_t splits, int64_t group_size, int64_t head_dim)
      : group(group_size),
        width(round_up(head_dim, kPanel)),
        m(allocate_floats(splits * group)),
        d(allocate_floats(splits * group)),
        o(allocate_floats(splits * group * width)) {}
};

void run_split(const Problem& p, const Split& split, int64_t index, const Partials& partials,
               AttendFn attend, float* scratch) {
  const RowMask mask = row_mask(p, split.request, 0);
  AttendUnit unit =
      make_unit(p, p.requests[static_cast<size_t>(split.request)], split.kv_head, 0, 1, &mask);
  unit.begin = split.begin;
  unit.end = split.end;
  unit.tile = kDecodeTile;
  unit.m = partials.m.get() + index * partials.group;
  unit.d = partials.d.get() + index * partials.group;
  unit.o = partials.o.get() + index * partials.group * partials.width;
  unit.scratch = scratch;
  attend(unit);
}

/// Merges the splits of each query head of the row and writes its result.
void finish_splits(const Problem& p, const Row& row, const Partials& partials,
                   StateMerger<LseBase::kLog2>& merger) {
  for (int32_t g = 0; g < p.group(); ++g) {
    merger.clear();
    for (int64_t s = row.first; s < row.first + row.count; ++s) {
      const int64_t at = s * partials.group + g;
      merger.add({partials.m[at], partials.d[at]}, partials.o.get() + at * partials.width);
    }
    const RowState state = merger.merge();
    const int64_t q_row = p.requests[static_cast<size_t>(row.request)].q_begin;
    finish_row(p, q_row, row.kv_head * p.group() + g, state, merger.o());
  }
}

}  // namespace

void decode_paged(const PagedAttention& call) {
  const Problem p = make_problem(call);
  const Plan plan = make_plan(p);
  const auto splits = static_cast<int64_t>(plan.splits.size()),
             rows = static_cast<int64_t>(plan.rows.size());
  const Partials partials(splits, p.group(), p.params.head_dim_vo);
  const int threads = team_size(p.options.num_threads, std::max(splits, rows));
  std::vector<Floats> scratch;
  std::vector<StateMerger<LseBase::kLog2>> mergers;
  for (int i = 0; i < threads; ++i) {
    const AttendScratch layout =
        attend_scratch(p.group(), p.params.head_dim_qk, p.params.head_dim_vo, kDecodeTile);
    scratch.push_back(allocate_floats(layout.total));
    mergers.emplace_back(plan.most_splits, partials.width);
  }
  const AttendFn attend = attend_fn(p);
  parallel_for(splits, threads, [&](int64_t i, int thread) {
    run_split(p, plan.splits[static_cast<size_t>(i)], i, partials, attend,
              scratch[static_cast<size_t>(thread)].get());
  });
  parallel_for(rows, threads, [&](int64_t i, int thread) {
    finish_splits(p, plan.rows[static_cast<size_t>(i)], partials,
                  mergers[static_cast<size_t>(thread)]);
  });
}

}  // namespace shadowgraph
