// What a broken call of linear attention says: everything at once, and nothing is written.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/small_linear.h"

namespace shadowgraph::validate_recurrence_test {
namespace {

struct Fault {
  const char* what;
  void (*breaks)(SmallLinear&);
  std::set<std::string> fields;
};

void expect_refused(const Fault& fault, const LinearShape& shape = {}) {
  SmallLinear x(shape);
  const SmallLinear before(shape);
  fault.breaks(x);
  const Status status = linear_attention(x.call);
  std::set<std::string> fields;
  for (const Finding& f : status.findings()) fields.insert(f.where.field);
  EXPECT_EQ(fields, fault.fields) << fault.what << ": " << status.to_string();
  EXPECT_TRUE(x.out == before.out && x.states == before.states && x.v == before.v) << fault.what;
}

constexpr int32_t kChain[] = {0, 0, 1, 0, 0, 0, 1, 2, 3};

TEST(ValidateRecurrence, ShapesAndTypes) {
  const Fault kFaults[] = {
      {"no v", [](SmallLinear& x) { x.call.v = {}; }, {"v.shape"}},
      {"rank", [](SmallLinear& x) { x.call.k.rank = 2; }, {"k.shape"}},
      {"heads", [](SmallLinear& x) { x.call.q.shape[1] = x.call.k.shape[1] = 3; }, {"num_v_heads"}},
      {"no heads",
       [](SmallLinear& x) { x.call.q.shape[1] = x.call.k.shape[1] = 0; },
       {"num_v_heads"}},
      {"keys too long",
       [](SmallLinear& x) { x.call.q.shape[2] = x.call.k.shape[2] = 0; },
       {"head_dim_k"}},
      {"values too long", [](SmallLinear& x) { x.call.v.shape[2] = 0; }, {"head_dim_v"}},
      {"tokens", [](SmallLinear& x) { x.call.q.shape[0] = 8; }, {"q.shape"}},
      {"tokens of k", [](SmallLinear& x) { x.call.k.shape[0] = 8; }, {"k.shape"}},
      {"decay", [](SmallLinear& x) { x.call.log_decay.dtype = DType::kF16; }, {"log_decay.dtype"}},
      {"decays", [](SmallLinear& x) { x.call.log_decay.shape[1] = 1; }, {"log_decay.shape"}},
      {"scale", [](SmallLinear& x) { x.call.scale = NAN; }, {"scale"}},
      {"two",
       [](SmallLinear& x) { x.call.scale = INFINITY, x.call.beta.shape[1] = 1; },
       {"scale", "beta.shape"}},
      {"state", [](SmallLinear& x) { x.call.states.shape[3] = 15; }, {"states.shape"}},
      {"no state", [](SmallLinear& x) { x.call.states.data = nullptr; }, {"states.data"}},
      {"alias", [](SmallLinear& x) { x.call.out.data = x.v.data(); }, {"out"}},
      {"isa", [](SmallLinear& x) { x.call.options.isa = "abacus"; }, {"isa"}},
  };
  for (const Fault& fault : kFaults) expect_refused(fault);
}

TEST(ValidateRecurrence, TheChunkedFormHasNoDraft) {
  expect_refused({"a tree of chunks",
                  [](SmallLinear& x) {
                    static float steps[3 * 5 * 2 * 256];
                    x.call.form = LinearAttention::Form::kChunked;
                    x.call.draft.states = TensorView(steps, DType::kF32, {3, 5, 2, 16, 16});
                    x.call.draft.parents = kChain;
                  },
                  {"draft.states", "draft.parents"}});
}

TEST(ValidateRecurrence, DecaysOfHeadsTokensAndChannels) {
  for (const int rank : {1, 2, 3}) {
    LinearShape s;
    s.decay_rank = rank;
    SmallLinear good(s);
    EXPECT_EQ(linear_attention(good.call).to_string(), "ok") << rank;
    expect_refused({"decays",
                    [](SmallLinear& x) {
                      x.call.log_decay.shape[static_cast<size_t>(x.call.log_decay.rank) - 1] += 1;
                    },
                    {"log_decay.shape"}},
                   s);
  }
}

TEST(ValidateRecurrence, SkipAndGateHaveTheShapeOfTheirHeads) {
  LinearShape s;
  s.skip = s.z = true;
  expect_refused({"skip", [](SmallLinear& x) { x.call.skip.shape[0] = 1; }, {"skip.shape"}}, s);
  expect_refused({"z", [](SmallLinear& x) { x.call.z.shape[2] = 8; }, {"z.shape"}}, s);
  expect_refused({"z", [](SmallLinear& x) { x.call.z.dtype = DType::kI32; }, {"z.dtype"}}, s);
}

TEST(ValidateRecurrence, RowsAndSlots) {
  const Fault kFaults[] = {
      {"slots", [](SmallLinear& x) { x.slots[1] = 7, x.slots[2] = -2; }, {"state_indices"}},
      {"twice", [](SmallLinear& x) { x.slots[1] = x.slots[0]; }, {"state_indices"}},
      {"offsets", [](SmallLinear& x) { x.cu_seqlens[1] = 5; }, {"cu_seqlens_q"}},
      {"end", [](SmallLinear& x) { x.cu_seqlens[3] = 10; }, {"cu_seqlens_q"}},
      {"flags",
       [](SmallLinear& x) {
         static constexpr uint8_t kFlags[2] = {};
         x.call.rows.has_initial_state = kFlags;
       },
       {"has_initial_state"}},
      {"rows",
       [](SmallLinear& x) { x.call.rows.state_indices = std::span(x.slots).first(2); },
       {"cu_seqlens_q"}},
  };
  for (const Fault& fault : kFaults) expect_refused(fault);
  // Who does not store may share.
  SmallLinear shared{LinearShape{}};
  shared.slots[1] = shared.slots[0];
  shared.call.store = false;
  EXPECT_EQ(linear_attention(shared.call).to_string(), "ok");
}

TEST(ValidateRecurrence, DraftsAndChunks) {
  const Fault kFaults[] = {
      {"no room for a tree",
       [](SmallLinear& x) { x.call.draft.parents = kChain; },
       {"draft.states"}},
      {"a state of another shape",
       [](SmallLinear& x) {
         static float room[9 * 16];
         x.call.draft.states = TensorView(room, DType::kF32, {3, 3, 1, 4, 4});
       },
       {"draft.states.shape"}},
      {"chunks of nothing",
       [](SmallLinear& x) { x.call.chunk_states = x.call.states, x.call.chunk_size = 0; },
       {"chunk_size"}},
      {"too few chunks",
       [](SmallLinear& x) {
         static float room[2 * 2 * 256];
         x.call.chunk_states = TensorView(room, DType::kF32, {2, 2, 16, 16});
       },
       {"chunk_states.shape"}},
      {"chunks of a tree",
       [](SmallLinear& x) {
         static float chunks[3 * 2 * 256], steps[3 * 5 * 2 * 256];
         x.call.chunk_states = TensorView(chunks, DType::kF32, {3, 2, 16, 16});
         x.call.draft.states = TensorView(steps, DType::kF32, {3, 5, 2, 16, 16});
         x.call.draft.parents = kChain;
       },
       {"chunk_states"}},
      {"chunks of rows that are not",
       [](SmallLinear& x) {
         static float room[2 * 256];
         x.slots[0] = 99;
         x.call.chunk_states = TensorView(room, DType::kF32, {1, 2, 16, 16});
       },
       {"state_indices"}},
  };
  for (const Fault& fault : kFaults) expect_refused(fault);
}

}  // namespace
}  // namespace shadowgraph::validate_recurrence_test
