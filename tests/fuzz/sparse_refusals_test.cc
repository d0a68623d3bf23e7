// Broken calls over chosen keys: each breakage is refused by the kernels, and a call that is
// accepted or writes is seen.
#include "fuzz/sparse_refusals.h"

#include <set>

#include "fuzz/small_sparse_case.h"

namespace shadowgraph {
namespace {

TEST(SparseRefusals, EachBreakageIsRefusedByTheKernels) {
  std::set<std::string> applied;
  for (size_t call = 0; call < kSparseCalls; ++call) {
    for (uint64_t seed = 1; seed < 7; ++seed) {
      const bool other = seed % 2 == 0;
      Case x = small_sparse_case(static_cast<SparseCase::Call>(call), CaseData::kRandom);
      x.sparse.by_table = other;
      SparseArrangement how = SparseArrangement::of(x);
      how.seed = seed;
      how.ragged[0] = how.paged = other;
      const RanSparse run(x, how);
      for (const Breakage<SparseCall>& b : sparse_breakages()) {
        bool did = false;
        EXPECT_EQ(check_breakage(run.scene, b, &did).to_string(), "ok")
            << b.name << ": " << x.to_string();
        if (did) applied.insert(b.name);
      }
    }
  }
  for (const Breakage<SparseCall>& b : sparse_breakages())
    EXPECT_TRUE(applied.contains(b.name)) << b.name;
}

TEST(SparseRefusals, SeesACallThatIsAcceptedOrWrites) {
  const RanSparse run(small_sparse_case(SparseCase::Call::kPack, CaseData::kRandom));
  bool did = false;
  const Breakage<SparseCall> harmless{"nothing", "slot.range",
                                      [](SparseCall*, Spoils*) { return true; }};
  const Status status = check_breakage(run.scene, harmless, &did);
  ASSERT_EQ(status.findings().size(), 2U);  // accepted; wrote the pool
  EXPECT_EQ(status.findings()[0].id, "slot.range");
  EXPECT_EQ(status.findings()[1].id, "num.write_set");
}

}  // namespace
}  // namespace shadowgraph
