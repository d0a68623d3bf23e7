#include "launch/scheduled_launch.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "attn/tensor_rows.h"
#include "launch/attention_launch.h"
#include "launch/checked_array.h"
#include "launch/partial_rows.h"

namespace shadowgraph {

namespace {

class ScheduledRun {
 public:
  ScheduledRun(const ScheduledAttention& c, Footprint* spans)
      : c_(c), spans_(spans), schedule_(c.schedule.data(), std::ssize(c.schedule), spans) {}

  void run() {
    const int64_t rows = c_.pages.batch(), first = schedule_.load(0, -1).value_or(0);
    std::vector<bool> fits;
    for (int64_t i = 0; i < rows; ++i) {
      const auto splits = schedule_.load(1 + i, static_cast<int32_t>(i));
      fits.push_back(splits && *splits >= 1 && *splits <= c_.max_splits);
    }
    if (first <= 0 && std::ranges::find(fits, false) == fits.end()) {
      attend(c_, 0);
    } else {
      for (int64_t i = std::max<int64_t>(first, 0); i < rows; ++i) {
        if (fits[static_cast<size_t>(i)])
          attend(row(i), i);
        else
          lose(i);
      }
    }
    schedule_.store(0, 0, -1);
  }

 private:
  PagedAttention row(int64_t i) const {
    PagedAttention one = c_;
    const PageTable& t = c_.pages;
    const auto columns = static_cast<size_t>(t.max_pages), at = static_cast<size_t>(i);
    one.q = rows_of(c_.q, i, 1);
    one.out = rows_of(c_.out, i, 1);
    if (c_.lse.defined()) one.lse = NaturalLse(rows_of(c_.lse.tensor, i, 1));
    one.pages = PageTable::dense(t.page_table.subspan(at * columns, columns), t.max_pages,
                                 t.cache_seqlens.subspan(at, 1));
    one.cu_seqlens_q = {};
    return one;
  }
  void attend(const PagedAttention& c, int64_t first_row) const {
    const KernelLaunch launch = attention_launch(c, {1, static_cast<int32_t>(first_row)});
    LaunchFrame frame{launch};
    if (spans_ == nullptr) {
      (void)kPagedAttention.body(frame);
      return;
    }
    Footprint of;
    kPagedAttention.footprint(frame, &of);
    spans_->insert(spans_->end(), of.begin(), of.end());
  }
  void lose(int64_t i) const {
    lose_row(c_.out, i, static_cast<int32_t>(i), spans_);
    lose_row(c_.lse.tensor, i, static_cast<int32_t>(i), spans_);
  }

  const ScheduledAttention& c_;
  Footprint* spans_;
  CheckedArray<int32_t> schedule_;
};

}  // namespace

constinit const Kernel kScheduledAttention =
    walked_kernel<ScheduledAttention, ScheduledRun>("scheduled_attention");

KernelLaunch scheduled_launch(const ScheduledAttention& call, const RequestRows& rows) {
  assert(call.pages.form == PageTable::Form::kDense && call.max_seqlen_q == 1 &&
         call.q.shape[0] >= call.pages.batch() && call.plan.empty() &&
         call.params.custom_mask.kind == CustomMask::Kind::kNone);
  return launch_of(kScheduledAttention, call, rows, call.pages.batch());
}

}  // namespace shadowgraph
