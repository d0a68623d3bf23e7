// A small paged call over random values, and plans for it.
#pragma once

#include <cstring>
#include <vector>

#include "core/choices.h"
#include "kernels/dense/work_list.h"
#include "kernels/small_attention.h"

namespace shadowgraph {

using Plan = std::vector<int32_t>;

class PlannedAttention {
 public:
  PlannedAttention(CaseKernel kernel, SmallShape shape) : call(kernel, "", std::move(shape)) {
    Rng rng(5);
    const auto random = [&rng](auto...) { return 2 * rng.signed_unit(); };
    call.fill_q(random), call.fill_k(random), call.fill_v(random);
    call.params.causal = true;
  }

  /// Made for so many threads, as long as it must be.
  Plan plan(int threads) {
    prepare(threads);
    Plan ints(static_cast<size_t>(attention_plan_size(call.paged)), -1);
    const Status status = plan_attention(call.paged, ints);
    EXPECT_EQ(status.to_string(), "ok");
    return ints;
  }
  static std::vector<Piece> pieces(const Plan& plan) {
    std::vector<Piece> all;
    const size_t count = static_cast<size_t>(plan[kPieces]);
    for (const int32_t* at = plan.data() + kPlanHeader; all.size() < count; at += 4)
      all.push_back({at[0], at[1], at[2], at[3]});
    return all;
  }
  /// As plan, with other pieces, for the most threads.
  static Plan with(const Plan& plan, const std::vector<Piece>& pieces) {
    Plan other(plan.begin(), plan.begin() + kPlanHeader);
    other[kThreads] = 512;
    other[kPieces] = static_cast<int32_t>(pieces.size());
    for (const Piece& p : pieces)
      other.insert(other.end(), {p.request, p.q_begin, p.split_begin, p.split_end});
    return other;
  }

  /// The call with that plan (empty: none), into poisoned outputs.
  Status run(const Plan& plan, int threads) {
    prepare(threads);
    call.paged.plan = plan;
    Status status = call.run();
    call.paged.plan = {};
    return status;
  }
  /// out, then lse.
  std::vector<std::byte> results() const {
    std::vector<std::byte> bytes = call.out_memory;
    bytes.insert(bytes.end(), call.lse_memory.begin(), call.lse_memory.end());
    return bytes;
  }
  std::vector<std::byte> expected() {
    EXPECT_EQ(run({}, 1).to_string(), "ok");
    return results();
  }
  bool untouched() const {
    const auto poison = [](std::byte b) { return b == std::byte{0xff}; };
    const std::vector<std::byte> bytes = results();
    return std::all_of(bytes.begin(), bytes.end(), poison);
  }

  SmallAttention call;

 private:
  void prepare(int threads) {
    call.options.num_threads = threads;
    call.paged.params = call.params;
    call.paged.options = call.options;
  }
};

}  // namespace shadowgraph
