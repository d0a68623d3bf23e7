// Broken calls of every kind: each is refused by the kernels under the law that it breaks and
// changes nothing; a call that is accepted, refused under another law, or writes is seen.
#include "fuzz/call/refusals.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fuzz/call/attention_laws.h"
#include "fuzz/call/gate_laws.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/call/sparse_laws.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::refusals_test {
namespace {

using Counts = std::map<std::string, int>;

/// Every way to break the scene's call, one after the other.
template <class Scene>
void break_all(const Scene& scene, const std::string& name, Counts* laws) {
  for (size_t i = 0;; ++i) {
    typename Scene::Call call = scene.call();
    Spoils spoils;
    const std::vector<Breakage> ways = breakages(&call, &spoils);
    if (i == ways.size()) return;
    ways[i].apply();
    ASSERT_EQ(check_breakage(scene, ways[i], call).to_string(), "ok")
        << ways[i].name << ": " << name;
    ++(*laws)[ways[i].law.law().id.data()];
  }
}

template <class Scene, class Data, class Arrangement>
void break_case(const Case& x, const Data& data, Arrangement how, Counts* laws) {
  for (const uint64_t seed : {1, 2}) {
    how.seed = seed;
    Scene scene(x, data, how);
    scene.lay(0);
    break_all(scene, x.to_string(), laws);
  }
}

void break_every_way(const Case& x, Counts* laws) {
  Rng rng(x.seed);
  if (x.as<AttentionCase>() != nullptr) {
    AttentionArrangement how = vary_attention(x, RunOptions(), rng);
    how.planned = how.workspace = true;
    break_case<AttentionScene>(x, make_attention_data(x), how, laws);
  } else if (x.as<MergeCase>() != nullptr) {
    break_case<MergeScene>(x, make_merge_data(x), vary_merge(x, RunOptions(), rng), laws);
  } else if (x.as<SparseCase>() != nullptr) {
    break_case<SparseScene>(x, make_sparse_data(x), vary_sparse(x, RunOptions(), rng), laws);
  } else if (x.as<RecurrentCase>()->call == RecurrentCase::Call::kGate) {
    break_case<GateScene>(x, make_gate_data(x), GateArrangement::of(x), laws);
  } else {
    break_case<RecurrentScene>(x, make_recurrent_data(x), vary_recurrent(x, RunOptions(), rng),
                               laws);
  }
}

TEST(Refusals, EachBreakageIsRefusedByTheKernels) {
  std::map<CaseKernel, Counts> seen;
  for (uint64_t number = 0; number < 400; ++number) {
    const Case x = fuzz_case(606, number);
    break_every_way(x, &seen[x.kernel()]);
    if (HasFatalFailure()) return;
  }
  for (const auto& [kernel, laws] : seen) {
    for (const char* law : {"input.null", "input.dtype", "input.shape", "input.alias", "input.isa"})
      EXPECT_TRUE(laws.contains(law)) << static_cast<int>(kernel) << " " << law;
  }
  const auto has = [&](CaseKernel kernel, std::initializer_list<const char*> laws) {
    for (const char* law : laws)
      EXPECT_GT(seen[kernel][law], 0) << static_cast<int>(kernel) << " " << law;
  };
  has(CaseKernel::kPrefillPaged,
      {"len.indptr_first", "len.indptr_monotone", "len.total", "len.capacity", "len.negative",
       "len.last_page", "table.page_id", "input.plan", "param.window", "param.soft_cap",
       "param.heads", "param.head_dim", "param.scale", "param.sinks", "mask.size", "len.batch"});
  has(CaseKernel::kDecodePaged, {"table.page_id", "len.negative", "mask.size", "param.sinks"});
  has(CaseKernel::kPrefillRagged, {"len.indptr_first", "len.indptr_monotone", "len.total"});
  has(CaseKernel::kLinear, {"slot.range", "slot.duplicate", "len.indptr_monotone", "len.total",
                            "len.batch", "len.capacity", "mask.tree", "param.scale"});
  has(CaseKernel::kSparse,
      {"list.slot", "list.duplicate", "len.capacity", "len.negative", "len.total", "param.head_dim",
       "param.sinks", "slot.range", "slot.duplicate", "table.page_id", "len.indptr_monotone",
       "table.pool_row", "table.capacity", "len.overflow", "len.q_extent", "len.batch",
       "param.scale"});
}

TEST(Refusals, SeeACallThatIsAcceptedAndWrites) {
  const Case x = {CaseData::kRandom, 3, MergeCase{.rows = 3, .states = 4, .heads = 2}};
  const MergeData data = make_merge_data(x);
  MergeScene scene(x, data, MergeArrangement::of(x));
  scene.lay(0);
  const Breakage harmless{"nothing", "input.shape", [] {}};
  const Status status = check_breakage(scene, harmless, scene.call());
  ASSERT_EQ(status.findings().size(), 3u);  // accepted; wrote out and lse
  EXPECT_EQ(status.findings()[0].id, "input.shape");
  EXPECT_EQ(status.findings()[1].id, "num.write_set");
}

TEST(Refusals, SeeARefusalUnderAnotherLawAndOneThatWrites) {
  AttentionCase attention;
  attention.requests = {{4, 1, 5}};
  const Case x = {CaseData::kRandom, 3, attention};
  const AttentionData data = make_attention_data(x);
  AttentionScene scene(x, data, AttentionArrangement::of(x));
  scene.lay(0);
  auto call = std::get<PagedAttention>(scene.call());
  call.params.sm_scale = 0;
  const Breakage misnamed{"a scale of 0", "param.window", [] {}};
  EXPECT_EQ(check_breakage(scene, misnamed, call).findings()[0].id, "param.window");
  const Breakage named{"a scale of 0", "param.scale", [] {}};
  EXPECT_EQ(check_breakage(scene, named, call).to_string(), "ok");
  *call.out.data ^= std::byte{1};  // as a kernel that writes before it looks
  EXPECT_EQ(check_breakage(scene, named, call).findings()[0].id, "num.write_set");
}

}  // namespace
}  // namespace shadowgraph::refusals_test
