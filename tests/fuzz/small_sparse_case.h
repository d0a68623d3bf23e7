// A small Case of each call of the sparse family, and its scene with a slip in it.
#pragma once

#include <gtest/gtest.h>

#include "fuzz/call/sparse_judge.h"

namespace shadowgraph {

inline constexpr size_t kSparseCalls = std::variant_size_v<SparseCall>;

/// Four rows, of which the second stores nothing.
inline Case small_sparse_case(SparseCase::Call call, CaseData data) {
  using Call = SparseCase::Call;
  Case x;
  x.data = data;
  x.seed = 11;
  auto& s = x.call.emplace<SparseCase>();
  s.call = call;
  s.rows = {{0, 5, 3, true}, {2, 4, 0, false}, {5, 6, 2, true}, {0, 7, 4, true}};
  s.heads = 2;
  s.head_dim = call == Call::kActQuant ? 256 : 16;
  s.head_dim_v = 12;
  s.has_extra = s.sinks = true;
  s.requests = 2, s.topk = call == Call::kSelect ? 5 : 8;
  s.rope_dim = 6;
  return x;
}

inline SparseCase& sparse(Case& x) { return std::get<SparseCase>(x.call); }

/// A scene whose call is laid.
struct RanSparse {
  explicit RanSparse(const Case& c) : RanSparse(c, SparseArrangement::of(c)) {}
  RanSparse(const Case& c, const SparseArrangement& how)
      : x(c), data(make_sparse_data(x)), scene(x, data, how) {
    scene.lay(0);
  }
  template <class Call>
  const Call& call() const {
    return std::get<Call>(scene.call());
  }
  /// What is found where the call, with a slip in it, runs instead.
  template <class Call, class Slip>
  Status with(const Slip& slip) {
    Call call = std::get<Call>(scene.call());
    slip(call);
    EXPECT_EQ(execute(call).to_string(), "ok");
    Status status = judge_sparse(x, scene);
    status.add(scene.check_writes(footprint_of(scene.call())));
    return status;
  }
  Status as_it_is() {
    Status status = scene.run();
    status.add(judge_sparse(x, scene));
    return status;
  }

  Case x;
  SparseData data;
  SparseScene scene;
};

}  // namespace shadowgraph
