#include "fuzz/call/recurrent_generate.h"

#include <algorithm>

#include "fuzz/call/call_sizes.h"
#include "fuzz/call/draw_names.h"

namespace shadowgraph {
namespace {

enum class Step : uint8_t { kPrefill, kDecode, kVerify };

std::string_view name_of(Step s) {
  constexpr std::string_view kNames[] = {"prefill", "decode", "verify"};
  return kNames[static_cast<size_t>(s)];
}

DType wide_type(Choices& c, std::string_view factor) {
  return c.of(factor, {DType::kF32, DType::kBF16, DType::kF16});
}

/// Mostly few, often at the edge of a block or a chunk.
int32_t prefill_len(Choices& c) {
  if (c.one_in(8)) return 0;
  if (c.one_in(6)) return c.of({63, 64, 65, 128, 129, 127});
  return c.between(1, c.one_in(4) ? 40 : 9);
}

/// token: products of one. A call with much of one is small otherwise.
void choose_rows(Choices& c, RecurrentCase& x, Step step, CallSizes sizes, int64_t token) {
  const bool large = sizes == CallSizes::kRows;
  constexpr int64_t kMostOfRows = 1 << 20;
  const int64_t room = std::max<int64_t>(2, kMostOfRows / token);
  const int rows = large
                       ? static_cast<int>(std::min<int64_t>(room, c.of({8, 7, 9, 16, 17, 33, 64})))
                   : c.one_in("one_row", 5) ? 1
                                            : c.between(2, c.one_in("many_rows", 4) ? 6 : 3);
  const int most = c.between(1, large ? 2 : 8);  // of a verify step
  const int64_t work = sizes == CallSizes::kTokens ? choose_work(c) / token : 0;
  for (int i = 0; i < rows; ++i) {
    RecurrentCase::Row row;
    row.tokens = step == Step::kDecode   ? 1
                 : step == Step::kVerify ? (c.one_in(6) ? c.between(0, most) : most)
                 : large                 ? c.between(0, 3)
                                         : prefill_len(c);
    if (i == 0 && work > 0)
      row.tokens = large_size(c, Axis::kTokens, 16, std::clamp<int64_t>(work, 1, 1030));
    row.slot = !c.one_in(6);
    row.initial = !c.one_in(step == Step::kPrefill ? 2 : 8);
    x.rows.push_back(row);
  }
  x.pad = c.of("pad", {PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero});
}

/// drafts: states of them, or a tree of them; none of many tokens, each of which has a state.
void choose_drafts(Choices& c, RecurrentCase& x, Step step, CallSizes sizes) {
  if (sizes == CallSizes::kTokens) return;
  x.drafts = step == Step::kVerify ? !c.one_in("no_drafts", 8) : c.one_in("drafts", 12);
  if (!x.drafts) return;
  x.tree = step == Step::kVerify && c.one_in("tree", 2);
  x.of_padding = !c.one_in("no_drafts_of_padding", 3);
  x.draft_dtype = c.one_in("other_draft_dtype", 2) ? wide_type(c, "draft_dtype") : x.state_dtype;
}

/// As the models have it; the last one has anything.
void choose_system(Choices& c, RecurrentCase& x, bool exact) {
  using Rule = LinearAttention::Rule;
  constexpr auto kLightning = 3, kAnything = 4;
  const int system = c.of("system", {0, 1, 2, kLightning, kAnything});
  x.rule = system == 1 || system == 2 ? Rule::kDelta : Rule::kAdd;
  x.decay_rank = system == 2 ? 3 : system == kLightning ? 1 : 2;
  x.beta = system < kLightning;
  x.skip = system == 0, x.z = system == 0 && c.one_in("z", 2);
  x.l2norm = !exact && (system == 1 || system == 2);
  if (system == kLightning) x.order = LinearAttention::StateOrder::kKeyValue;
  if (system == kAnything) {
    x.rule = c.of("rule", {Rule::kAdd, Rule::kDelta});
    x.decay_rank = c.between("decay_rank", 1, 3);
    x.beta = c.one_in("beta", 2), x.skip = c.one_in("skip", 2), x.z = c.one_in("z", 2);
    x.l2norm = !exact && c.one_in("l2norm", 2);  // roots are not exact
    x.order = c.of("state_order", {LinearAttention::StateOrder::kValueKey,
                                   LinearAttention::StateOrder::kKeyValue});
  }
  x.scale = exact ? c.of("scale", {1.F, 0.5F, 2.F}) : c.of("scale", {1.F, 0.25F, 0.088F});
}

void choose_dims(Choices& c, RecurrentCase& x, CallSizes sizes) {
  if (sizes == CallSizes::kWidth) {
    x.head_dim_k = large_size(c, Axis::kChannels, 4, 260);
    x.head_dim_v = c.one_in(2) ? c.of({1, 4, 16}) : large_size(c, Axis::kChannels, 4, 260);
    return;
  }
  x.head_dim_k = c.one_in("wide_k", 24) ? c.of("head_dim_k", {128, 256})
                                        : c.of("head_dim_k", {16, 32, 8, 64, 5, 17, 1, 48});
  x.head_dim_v = c.one_in("wide_v", 24) ? 128 : c.of("head_dim_v", {16, 32, 8, 64, 4, 19, 1, 80});
}

void choose_heads(Choices& c, RecurrentCase& x, CallSizes sizes) {
  if (sizes == CallSizes::kHeads) {
    constexpr int64_t kMostOfState = 1 << 15;
    const int64_t most = kMostOfState / (x.head_dim_k * x.head_dim_v);
    x.num_v_heads = large_size(c, Axis::kHeads, 4, std::clamp<int64_t>(most, 7, 34));
    x.num_k_heads = x.num_v_heads % 2 == 0 && c.one_in(2) ? x.num_v_heads / 2
                    : c.one_in(2)                         ? 1
                                                          : x.num_v_heads;
    return;
  }
  if (sizes == CallSizes::kWidth) {
    x.num_v_heads = c.of({1, 2});
    return;
  }
  x.num_k_heads = c.of("k_heads", {1, 1, 2, 3});
  x.num_v_heads = x.num_k_heads * c.of("v_heads_of_k", {1, 2, 1, 3});
}

void choose_attention(Choices& c, RecurrentCase& x, bool exact) {
  const Step step = c.of("step", {Step::kPrefill, Step::kDecode, Step::kVerify, Step::kPrefill});
  using enum CallSizes;
  const CallSizes sizes = step == Step::kPrefill ? choose_sizes(c, {kTokens, kRows, kHeads, kWidth})
                                                 : choose_sizes(c, {kRows, kHeads, kWidth});
  choose_system(c, x, exact);
  choose_dims(c, x, sizes), choose_heads(c, x, sizes);
  choose_rows(c, x, step, sizes, int64_t{4} * x.num_v_heads * x.head_dim_k * x.head_dim_v);
  using enum DType;
  const DType type = x.dtype = wide_type(c, "dtype");
  x.out_dtype =
      c.of("out_dtype", {type, type, type, type, type, type, type, type, type, kF32, kBF16, kF16});
  x.state_dtype = c.of("state_dtype", {kF32, kF32, kF32, kF32, kF32, kF32, kF32, kBF16, kF16});
  choose_drafts(c, x, step, sizes);
  x.store = step != Step::kVerify || c.one_in("store", 6);
  if (!x.drafts && c.one_in("chunked", 2)) x.form = LinearAttention::Form::kChunked;
  if (step != Step::kPrefill || x.tree || !c.one_in("chunk_states", 3)) return;
  x.chunk_size = c.of("chunk_size", {64, 1, 4, 7, 16, 32});
  x.chunk_grid = c.of("chunk_grid", {ChunkGrid::kRow, ChunkGrid::kTokens});
  x.chunk_dtype = wide_type(c, "chunk_dtype");
}

void choose_conv(Choices& c, RecurrentCase& x, bool exact) {
  const Step step = c.of("step", {Step::kPrefill, Step::kDecode, Step::kVerify});
  using enum CallSizes;
  const CallSizes sizes = step == Step::kPrefill ? choose_sizes(c, {kTokens, kRows, kWidth})
                                                 : choose_sizes(c, {kRows, kWidth});
  x.dim = sizes == kWidth            ? large_size(c, Axis::kChannels, 16, 520)
          : c.one_in("wide_dim", 12) ? c.of("dim", {127, 128, 129, 256})
                                     : c.of("dim", {8, 1, 3, 16, 40});
  choose_rows(c, x, step, sizes, 32 * x.dim);
  x.width = c.of("width", {4, 2, 3, 5, 8, 6, 7});
  x.bias = c.one_in("bias", 2), x.silu = !exact && c.one_in("silu", 2);
  x.dtype = wide_type(c, "dtype");
  choose_drafts(c, x, step, sizes);
  // A tree needs no windows.
  if (step == Step::kVerify && !x.drafts) x.tree = c.one_in("tree", 2);
}

void choose_gate(Choices& c, RecurrentCase& x) {
  using enum CallSizes;
  const CallSizes sizes = choose_sizes(c, {kTokens, kHeads, kWidth});
  const int32_t tokens = c.one_in(8) ? 0 : c.between(1, 40);
  x.rows.push_back({sizes == kTokens ? large_size(c, Axis::kTokens, 16, 260) : tokens, true, true});
  x.gate = c.of("gate",
                {DecayGate::Kind::kSoftplus, DecayGate::Kind::kLowerBound, DecayGate::Kind::kStep});
  const bool step = x.gate == DecayGate::Kind::kStep;
  x.decay_rank = step || c.one_in("decay_of_heads", 2) ? 2 : 3;
  x.num_v_heads =
      sizes == kHeads ? large_size(c, Axis::kHeads, 4, 66) : c.of("v_heads", {2, 1, 3, 8});
  x.head_dim_k = sizes == kWidth ? large_size(c, Axis::kChannels, 4, 260)
                                 : c.of("head_dim_k", {8, 1, 16, 63, 64, 65, 128});
  x.dtype = wide_type(c, "dtype");
  x.dt_bias = c.one_in("dt_bias", 2), x.b = !step && c.one_in("b", 2);
  x.lower_bound = c.of("lower_bound", {-1.F, -5.F, -0.5F});
}

}  // namespace

RecurrentCase generate_recurrent(Choices& c, CaseData data) {
  using Call = RecurrentCase::Call;
  RecurrentCase x;
  x.call = c.of(kCallFactor, {Call::kAttention, Call::kAttention, Call::kConv1d, Call::kAttention,
                              Call::kConv1d, Call::kGate});
  const bool exact = is_exact(data);
  switch (x.call) {
    case Call::kAttention: choose_attention(c, x, exact); break;
    case Call::kConv1d: choose_conv(c, x, exact); break;
    case Call::kGate: choose_gate(c, x);
  }
  return x;
}

}  // namespace shadowgraph
