// A Problem's result against the oracle. The oracle takes its time, so a call is judged in pieces:
// one token of one request is a small call of its own, with the same keys.
#include <algorithm>
#include <set>

#include "bench/problem.h"
#include "check/bounds/compare.h"

namespace shadowgraph::bench {
namespace {

constexpr double kMostFlop = 2e9;  // of the oracle, for one check

/// Rows [row, row + 1) of a tensor whose first dimension is rows.
template <class View>
View row_of(View view, int64_t row) {
  if (!view.defined()) return view;
  view.data += row * view.stride[0] * static_cast<int64_t>(size_of(view.dtype));
  view.shape[0] = 1;
  return view;
}

}  // namespace

/// The lists of one judged token, which its call refers to.
struct Problem::OneToken {
  int32_t kv_len = 0;
  int32_t cu_seqlens_q[2] = {0, 1};
  int64_t mask_indptr[2] = {0, 0};
  PagedAttention call;
};

void Problem::narrow(int32_t request, int32_t token, OneToken* one) const {
  const int64_t row = int64_t{request} * shape_.q_len + token;
  one->call = call_;
  PagedAttention& call = one->call;
  call.plan = {};
  one->kv_len = shape_.kv_len_of(request);
  if (shape_.tree_mask) {
    const int64_t keys = one->kv_len;
    const int64_t begin = mask_indptr_[static_cast<size_t>(request)] + token * keys;
    one->mask_indptr[1] = keys;
    call.params.custom_mask.data =
        std::span(mask_).subspan(static_cast<size_t>(begin), static_cast<size_t>(keys));
    call.params.custom_mask.mask_indptr = one->mask_indptr;
  } else {
    one->kv_len -= shape_.q_len - 1 - token;  // later tokens are out of sight
  }
  call.q = row_of(call_.q, row), call.out = row_of(call_.out, row);
  call.lse = NaturalLse(row_of(call_.lse.tensor, row));
  const auto pages = call_.pages.page_table.subspan(static_cast<size_t>(request * max_pages_),
                                                    static_cast<size_t>(max_pages_));
  call.pages = PageTable::dense(pages, max_pages_, {&one->kv_len, 1});
  if (!call.cu_seqlens_q.empty()) call.cu_seqlens_q = one->cu_seqlens_q;
}

Status Problem::judge_request(int32_t request, const ConstTensorView* peer_out,
                              const Arithmetic& arithmetic) const {
  Status status;
  for (const int32_t token : std::set<int32_t>{0, shape_.q_len / 2, shape_.q_len - 1}) {
    OneToken one;
    narrow(request, token, &one);
    Result result{.out = one.call.out, .lse = one.call.lse.tensor};
    if (peer_out != nullptr) {
      result.out = row_of(*peer_out, int64_t{request} * shape_.q_len + token);
      result.lse = {};
    }
    status.add(judge(one.call, result, arithmetic, {.bounded = true}).findings);
  }
  return status;
}

Status Problem::judge_all(const ConstTensorView* peer_out, const Arithmetic& arithmetic) const {
  // The ends first, then the others as long as it lasts.
  std::vector<int32_t> order = {0};
  if (shape_.batch > 1) order.push_back(shape_.batch - 1);
  for (int32_t i = 1; i < shape_.batch - 1; ++i) order.push_back(i);
  Status status;
  double flop = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 1 && flop > kMostFlop) break;
    status.add(judge_request(order[i], peer_out, arithmetic));
    flop += 2.0 * std::min(shape_.q_len, 3) * shape_.kv_len_of(order[i]) * shape_.num_qo_heads *
            (shape_.head_dim_qk + shape_.head_dim_vo);
  }
  return status;
}

Status Problem::check() {
  return judge_all(nullptr, *find_arithmetic(shape_.fast_arith ? "ours_fast" : "ours_portable"));
}

Status Problem::check(const ConstTensorView& out, const Arithmetic& arithmetic) const {
  return judge_all(&out, arithmetic);
}

}  // namespace shadowgraph::bench
