// Every law that the calls over recurrent states can break is raised by an input that breaks it,
// faults are reported all at once, and each fault starts from a call that is accepted.
#include "attn/validate/validate_recurrent.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "attn/finding_ids.h"

namespace shadowgraph::validate_recurrent_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Memory of a tensor, far from all other: a view that reaches too far meets nothing.
class Memory {
 public:
  TensorView view(DType type, std::initializer_list<int64_t> shape) {
    return {bytes_.data() + kApart, type, shape};
  }

 private:
  static constexpr size_t kApart = 4096;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kApart);
};

/// Rows of 2, 0, 1 and 3 tokens, the third without a slot; windows of all.
struct ConvCall {
  Memory x, weight, bias, states, windows, out;
  std::vector<int32_t> cu = {0, 2, 2, 3, 6}, slots = {4, 1, -1, 0}, places = {2, 2, 1, 0};
  std::vector<int32_t> parents = {-9, 0, 77, 0, 0, 1};
  std::vector<uint8_t> has = {1, 1, 0, 0};
  CausalConv1d call;

  ConvCall() {
    const DType type = DType::kBF16;
    call.x = x.view(type, {6, 3});
    call.weight = weight.view(DType::kF32, {3, 4});
    call.bias = bias.view(type, {3});
    call.rows = {cu, slots, has, PadRow::kSkip};
    call.states = states.view(type, {5, 3, 3});
    call.draft.states = windows.view(type, {4, 3, 3, 3});
    call.draft.indices = places, call.draft.parents = parents;
    call.out = out.view(type, {6, 3});
  }
  ConvCall(const ConvCall&) = delete;
  ConvCall& operator=(const ConvCall&) = delete;
};

void expect_conv(const Ids& expected, const std::function<void(ConvCall&)>& change) {
  ConvCall c;
  EXPECT_EQ(ids(validate(c.call)), Ids{});
  change(c);
  EXPECT_EQ(ids(validate(c.call)), expected);
}

TEST(ValidateConv, ShapesAndTypes) {
  expect_conv({"input.shape x.shape"}, [](ConvCall& c) { c.call.x.rank = 1; });
  expect_conv({"input.dtype x.dtype"}, [](ConvCall& c) { c.call.x.dtype = DType::kE4M3; });
  expect_conv({"input.dtype weight.dtype"}, [](ConvCall& c) { c.call.weight.dtype = DType::kI32; });
  expect_conv({"input.shape weight.shape"}, [](ConvCall& c) { c.call.weight.shape[0] = 2; });
  expect_conv({"input.dtype bias.dtype"}, [](ConvCall& c) { c.call.bias.dtype = DType::kF64; });
  expect_conv({"input.shape bias.shape"}, [](ConvCall& c) { c.call.bias.shape[0] = 4; });
  expect_conv({"input.dtype states.dtype"}, [](ConvCall& c) { c.call.states.dtype = DType::kF16; });
  expect_conv({"input.shape states.shape"}, [](ConvCall& c) { c.call.states.shape[2] = 4; });
  expect_conv({"input.shape states.shape"}, [](ConvCall& c) { c.call.states.shape[1] = 2; });
  expect_conv({"input.dtype draft.states.dtype"},
              [](ConvCall& c) { c.call.draft.states.dtype = DType::kF16; });
  expect_conv({"input.shape draft.states.shape"},
              [](ConvCall& c) { c.call.draft.states.shape[3] = 2; });
  expect_conv({"input.dtype out.dtype"}, [](ConvCall& c) { c.call.out.dtype = DType::kF16; });
  expect_conv({"input.shape out.shape"}, [](ConvCall& c) { c.call.out.shape[0] = 5; });
}

TEST(ValidateConv, TheWidthIsFrom2To8) {
  for (const int64_t width : {2, 8}) {
    expect_conv({}, [&](ConvCall& c) {
      c.call.weight = c.weight.view(DType::kF32, {3, width});
      c.call.states = c.states.view(DType::kBF16, {5, 3, width - 1});
      c.call.draft.states = c.windows.view(DType::kBF16, {4, 3, 3, width - 1});
    });
  }
  for (const int64_t width : {0, 1, 9}) {
    expect_conv({"input.shape weight.shape"}, [&](ConvCall& c) {
      c.call.weight = c.weight.view(DType::kF32, {3, width});
      c.call.states = c.states.view(DType::kBF16, {5, 3, 2});
      c.call.draft.states = c.windows.view(DType::kBF16, {4, 3, 3, 2});
    });
  }
}

TEST(ValidateConv, StridesAreFreeWhereNothingOverlaps) {
  expect_conv({}, [](ConvCall& c) {
    c.call.states.stride = {9, 1, 3}, c.call.draft.states.stride = {27, 9, 1, 3};
    c.call.x.stride = {0, -1}, c.call.out.stride = {1, 6};
  });
  expect_conv({"input.stride states.stride"}, [](ConvCall& c) { c.call.states.stride[0] = 3; });
  expect_conv({"input.stride draft.states.stride"},
              [](ConvCall& c) { c.call.draft.states.stride[1] = 0; });
  expect_conv({"input.stride out.stride"}, [](ConvCall& c) { c.call.out.stride[0] = 2; });
}

TEST(ValidateConv, MemoryIsGivenAndApart) {
  expect_conv({"input.null x.data"}, [](ConvCall& c) { c.call.x.data = nullptr; });
  expect_conv({"input.null states.data"}, [](ConvCall& c) { c.call.states.data = nullptr; });
  expect_conv({"input.overflow out"}, [](ConvCall& c) { c.call.out.stride[0] = int64_t{1} << 62; });
  expect_conv({"input.alias out"}, [](ConvCall& c) { c.call.out.data = c.x.view({}, {1}).data; });
  expect_conv({"input.alias states"},
              [](ConvCall& c) { c.call.states.data = c.weight.view({}, {1}).data; });
  expect_conv({"input.alias draft.states"},
              [](ConvCall& c) { c.call.draft.states.data = c.call.states.data; });
}

TEST(ValidateConv, Rows) {
  expect_conv({"len.batch cu_seqlens_q"},
              [](ConvCall& c) { c.call.rows.cu_seqlens_q = std::span(c.cu).first(4); });
  expect_conv({"len.indptr_first cu_seqlens_q"}, [](ConvCall& c) { c.cu[0] = 1; });
  expect_conv({"len.indptr_monotone cu_seqlens_q"}, [](ConvCall& c) { c.cu[2] = 4; });
  expect_conv({"len.total cu_seqlens_q"}, [](ConvCall& c) { c.cu[4] = 5; });
  expect_conv({"len.batch has_initial_state"},
              [](ConvCall& c) { c.call.rows.has_initial_state = std::span(c.has).first(3); });
  expect_conv({}, [](ConvCall& c) { c.call.rows.has_initial_state = {}; });
  expect_conv({"slot.range state_indices"}, [](ConvCall& c) { c.slots[0] = 5; });
  expect_conv({"slot.range state_indices"}, [](ConvCall& c) { c.slots[2] = -2; });
  expect_conv({"slot.duplicate state_indices"}, [](ConvCall& c) { c.slots[3] = 4; });
  expect_conv({}, [](ConvCall& c) { c.slots[1] = 4; });  // it has no tokens
  expect_conv({}, [](ConvCall& c) { c.slots[0] = -1; });
}

TEST(ValidateConv, ListsOfRowsHaveMemory) {
  const auto none = []<class T>(std::span<const T>& list) {
    list = {static_cast<const T*>(nullptr), list.size()};
  };
  expect_conv(
      {"input.null cu_seqlens_q", "input.null state_indices", "input.null has_initial_state"},
      [&](ConvCall& c) {
        none(c.call.rows.cu_seqlens_q);
        none(c.call.rows.state_indices);
        none(c.call.rows.has_initial_state);
      });
  expect_conv({"input.null cu_seqlens_q"}, [&](ConvCall& c) { none(c.call.rows.cu_seqlens_q); });
}

TEST(ValidateConv, Drafts) {
  expect_conv({"len.batch draft.indices"},
              [](ConvCall& c) { c.call.draft.indices = std::span(c.places).first(3); });
  expect_conv({"len.batch draft.parents"},
              [](ConvCall& c) { c.call.draft.parents = std::span(c.parents).first(5); });
  expect_conv({"slot.range draft.indices"}, [](ConvCall& c) { c.places[3] = 4; });
  expect_conv({"slot.range draft.indices"}, [](ConvCall& c) { c.places[0] = -1; });
  expect_conv({"slot.duplicate draft.indices"}, [](ConvCall& c) { c.places[3] = 2; });
  expect_conv({"len.capacity draft.states"}, [](ConvCall& c) { c.call.draft.states.shape[1] = 2; });
  expect_conv({"mask.tree draft.parents"}, [](ConvCall& c) { c.parents[5] = 2; });
  expect_conv({"mask.tree draft.parents"}, [](ConvCall& c) { c.parents[1] = -1; });
  // A tree of which no window is kept.
  expect_conv({}, [](ConvCall& c) { c.call.draft.states = {}; });
  expect_conv({"mask.tree draft.parents"}, [](ConvCall& c) {
    c.call.draft.states = {};
    c.parents[4] = 1;
  });
}

TEST(ValidateConv, EverythingAtOnce) {
  expect_conv({"input.dtype x.dtype", "input.shape weight.shape", "input.dtype bias.dtype",
               "input.null states.data", "input.dtype out.dtype"},
              [](ConvCall& c) {
                c.call.x.dtype = c.call.bias.dtype = c.call.out.dtype = DType::kI8;
                c.call.weight.shape[1] = 9;
                c.call.states.data = nullptr;
              });
  expect_conv({"input.dtype x.dtype", "slot.range state_indices"}, [](ConvCall& c) {
    c.call.x.dtype = DType::kI8;
    c.slots[0] = 9;
  });
  expect_conv({"input.null bias.data", "input.stride out.stride", "slot.range state_indices",
               "slot.duplicate state_indices"},
              [](ConvCall& c) {
                c.call.bias.data = nullptr, c.call.out.stride[0] = 0;
                c.slots = {0, 9, -1, 0};
              });
}

TEST(ValidateConv, NothingAtAllIsAccepted) {
  expect_conv({}, [](ConvCall& c) {
    c.cu = {0, 0, 0, 0, 0}, c.parents.clear();
    c.call.draft.parents = {};
    c.call.x = c.call.out = TensorView(nullptr, DType::kBF16, {0, 3});
  });
  expect_conv({}, [](ConvCall& c) {
    c.slots.assign(4, -1);
    c.call.states = TensorView(nullptr, DType::kBF16, {0, 3, 3});
  });
}

/// Two tokens, three heads; with channels, four of each.
struct GateCall {
  Memory x, a_log, dt_bias, b, log_decay, beta;
  DecayGate gate;

  GateCall(DecayGate::Kind kind, bool channels) {
    gate.kind = kind;
    gate.a_log = a_log.view(DType::kF32, {3});
    gate.lower_bound = -5;
    if (channels) {
      gate.x = x.view(DType::kBF16, {2, 3, 4});
      gate.dt_bias = dt_bias.view(DType::kF32, {3, 4});
      gate.log_decay = log_decay.view(DType::kF32, {2, 3, 4});
    } else {
      gate.x = x.view(DType::kBF16, {2, 3});
      gate.dt_bias = dt_bias.view(DType::kF32, {3});
      gate.log_decay = log_decay.view(DType::kF32, {2, 3});
    }
    if (kind != DecayGate::Kind::kStep) gate.b = b.view(DType::kF16, {2, 3});
    gate.beta = beta.view(DType::kF32, {2, 3});
  }
};
using Kind = DecayGate::Kind;

void expect_gate(Kind kind, bool channels, const Ids& expected,
                 const std::function<void(GateCall&)>& change) {
  GateCall c(kind, channels);
  EXPECT_EQ(ids(validate(c.gate)), Ids{});
  change(c);
  EXPECT_EQ(ids(validate(c.gate)), expected);
}

TEST(ValidateGate, ShapesAndTypes) {
  for (const bool channels : {false, true}) {
    const auto expect = [&](const Ids& expected, const std::function<void(GateCall&)>& change) {
      expect_gate(Kind::kSoftplus, channels, expected, change);
    };
    expect({"input.dtype x.dtype"}, [](GateCall& c) { c.gate.x.dtype = DType::kI8; });
    expect({"input.shape a_log.shape"}, [](GateCall& c) { c.gate.a_log.shape[0] = 2; });
    expect({"input.dtype a_log.dtype"}, [](GateCall& c) { c.gate.a_log.dtype = DType::kBF16; });
    expect({"input.shape dt_bias.shape"}, [](GateCall& c) { c.gate.dt_bias.shape[0] = 4; });
    expect({"input.dtype dt_bias.dtype"}, [](GateCall& c) { c.gate.dt_bias.dtype = DType::kF16; });
    expect({"input.shape log_decay.shape"}, [](GateCall& c) { c.gate.log_decay.shape[1] = 2; });
    expect({"input.dtype log_decay.dtype"},
           [](GateCall& c) { c.gate.log_decay.dtype = DType::kBF16; });
    expect({"input.shape b.shape"}, [](GateCall& c) { c.gate.b.shape[0] = 1; });
    expect({"input.dtype beta.dtype"}, [](GateCall& c) { c.gate.beta.dtype = DType::kF16; });
    expect({"input.null log_decay.data"}, [](GateCall& c) { c.gate.log_decay.data = nullptr; });
    expect({"input.stride log_decay.stride"}, [](GateCall& c) { c.gate.log_decay.stride[0] = 0; });
    expect({"input.alias beta"}, [](GateCall& c) { c.gate.beta.data = c.gate.log_decay.data; });
    expect({}, [](GateCall& c) { c.gate.dt_bias = {}; });
  }
  expect_gate(Kind::kSoftplus, false, {"input.shape x.shape", "input.shape log_decay.shape"},
              [](GateCall& c) { c.gate.x.rank = 1, c.gate.log_decay.rank = 1; });
}

TEST(ValidateGate, ChannelsLieSideBySide) {
  const auto expect = [&](const Ids& expected, const std::function<void(GateCall&)>& change) {
    expect_gate(Kind::kSoftplus, true, expected, change);
  };
  expect({"input.stride x.stride"}, [](GateCall& c) { c.gate.x.stride = {1, 2, 6}; });
  expect({"input.stride dt_bias.stride"}, [](GateCall& c) { c.gate.dt_bias.stride = {1, 3}; });
  expect({"input.stride log_decay.stride"}, [](GateCall& c) {
    c.gate.log_decay.stride = {1, 2, 6};
  });
  expect({"input.shape dt_bias.shape"}, [](GateCall& c) { c.gate.dt_bias.shape[1] = 3; });
  expect({"input.shape log_decay.shape"}, [](GateCall& c) { c.gate.log_decay.shape[2] = 3; });
  // Heads and tokens need not.
  expect({}, [](GateCall& c) { c.gate.x.stride = {4, 8, 1}, c.gate.log_decay.stride = {4, 8, 1}; });
  expect_gate(Kind::kSoftplus, false, {}, [](GateCall& c) {
    c.gate.x.stride = {1, 2}, c.gate.log_decay.stride = {1, 2}, c.gate.beta.stride = {1, 2};
    c.gate.b.stride = {0, 5}, c.gate.a_log.stride = {2}, c.gate.dt_bias.stride = {3};
  });
}

TEST(ValidateGate, BetaIsGivenWhereThereIsOne) {
  for (const Kind kind : {Kind::kSoftplus, Kind::kLowerBound}) {
    expect_gate(kind, true, {}, [](GateCall& c) { c.gate.b = {}, c.gate.beta = {}; });
    expect_gate(kind, true, {"input.shape beta"}, [](GateCall& c) { c.gate.b = {}; });
    expect_gate(kind, true, {"input.shape beta.shape"}, [](GateCall& c) { c.gate.beta = {}; });
  }
  expect_gate(Kind::kStep, false, {"input.shape beta.shape"},
              [](GateCall& c) { c.gate.beta = {}; });
  expect_gate(Kind::kStep, false, {"input.shape b"}, [](GateCall& c) {
    c.gate.b = c.b.view(DType::kF16, {2, 3});
  });
}

TEST(ValidateGate, AStepHasNoChannels) {
  expect_gate(Kind::kStep, false, {"input.shape x.shape"}, [](GateCall& c) {
    c.gate.x = c.x.view(DType::kBF16, {2, 3, 4});
  });
}

TEST(ValidateGate, ALowerBoundIsBelowZero) {
  for (const float bound : {0.F, 1.F, kNaN, -kInf}) {
    expect_gate(Kind::kLowerBound, true, {"param.scale lower_bound"},
                [&](GateCall& c) { c.gate.lower_bound = bound; });
    expect_gate(Kind::kSoftplus, true, {}, [&](GateCall& c) { c.gate.lower_bound = bound; });
  }
}

TEST(ValidateSlopes, TheLayerIsOneOfTheModels) {
  std::vector<float> out(4, kNaN);
  EXPECT_EQ(ids(lightning_slopes(-1, 3, out)), (Ids{"input.shape layer"}));
  EXPECT_EQ(ids(lightning_slopes(3, 3, out)), (Ids{"input.shape layer"}));
  EXPECT_EQ(ids(lightning_slopes(0, 0, out)), (Ids{"input.shape num_layers"}));
  EXPECT_EQ(ids(lightning_slopes(2, 0, {static_cast<float*>(nullptr), 2})),
            (Ids{"input.shape num_layers", "input.null out"}));
  EXPECT_EQ(ids(lightning_slopes(2, 3, {})), Ids{});
  for (const float f : out) EXPECT_FALSE(f == f);
}

}  // namespace
}  // namespace shadowgraph::validate_recurrent_test
