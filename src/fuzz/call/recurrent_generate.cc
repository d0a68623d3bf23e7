#include "fuzz/call/recurrent_generate.h"

namespace shadowgraph {
namespace {

enum class Step : uint8_t { kPrefill, kDecode, kVerify };

DType wide_type(Choices& c) { return c.of({DType::kF32, DType::kBF16, DType::kF16}); }

/// Mostly few, often at the edge of a block or a chunk.
int32_t prefill_len(Choices& c) {
  if (c.one_in(8)) return 0;
  if (c.one_in(6)) return c.of({63, 64, 65, 128, 129, 127});
  return c.between(1, c.one_in(4) ? 40 : 9);
}

void choose_rows(Choices& c, RecurrentCase& x, Step step) {
  const int rows = c.one_in(5) ? 1 : c.between(2, c.one_in(4) ? 6 : 3);
  const int most = c.between(1, 8);  // of a verify step
  for (int i = 0; i < rows; ++i) {
    RecurrentCase::Row row;
    row.tokens = step == Step::kDecode   ? 1
                 : step == Step::kVerify ? (c.one_in(6) ? c.between(0, most) : most)
                                         : prefill_len(c);
    row.slot = !c.one_in(6);
    row.initial = !c.one_in(step == Step::kPrefill ? 2 : 8);
    x.rows.push_back(row);
  }
  x.pad = c.of({PadRow::kSkip, PadRow::kZeroOut, PadRow::kFromZero});
}

/// drafts: states of them, or a tree of them.
void choose_drafts(Choices& c, RecurrentCase& x, Step step) {
  x.drafts = step == Step::kVerify ? !c.one_in(8) : c.one_in(12);
  if (!x.drafts) return;
  x.tree = step == Step::kVerify && c.one_in(2);
  x.of_padding = !c.one_in(3);
  x.draft_dtype = c.one_in(2) ? wide_type(c) : x.state_dtype;
}

/// As the models have it; the last one has anything.
void choose_system(Choices& c, RecurrentCase& x, bool exact) {
  using Rule = LinearAttention::Rule;
  constexpr auto kLightning = 3, kAnything = 4;
  const int system = c.of({0, 1, 2, kLightning, kAnything});
  x.rule = system == 1 || system == 2 ? Rule::kDelta : Rule::kAdd;
  x.decay_rank = system == 2 ? 3 : system == kLightning ? 1 : 2;
  x.beta = system < kLightning;
  x.skip = system == 0, x.z = system == 0 && c.one_in(2);
  x.l2norm = system == 1 || system == 2;
  if (system == kLightning) x.order = LinearAttention::StateOrder::kKeyValue;
  if (system == kAnything) {
    x.rule = c.of({Rule::kAdd, Rule::kDelta});
    x.decay_rank = c.between(1, 3);
    x.beta = c.one_in(2), x.skip = c.one_in(2), x.z = c.one_in(2), x.l2norm = c.one_in(2);
    x.order =
        c.of({LinearAttention::StateOrder::kValueKey, LinearAttention::StateOrder::kKeyValue});
  }
  if (exact) x.l2norm = false;  // roots are not exact
  x.scale = exact ? c.of({1.F, 0.5F, 2.F}) : c.of({1.F, 0.25F, 0.088F});
}

void choose_sizes(Choices& c, RecurrentCase& x) {
  x.num_k_heads = c.of({1, 1, 2, 3});
  x.num_v_heads = x.num_k_heads * c.of({1, 2, 1, 3});
  x.head_dim_k = c.one_in(24) ? c.of({128, 256}) : c.of({16, 32, 8, 64, 5, 17, 1, 48});
  x.head_dim_v = c.one_in(24) ? 128 : c.of({16, 32, 8, 64, 4, 19, 1, 80});
}

void choose_attention(Choices& c, RecurrentCase& x, bool exact) {
  const Step step = c.of({Step::kPrefill, Step::kDecode, Step::kVerify, Step::kPrefill});
  choose_rows(c, x, step);
  choose_system(c, x, exact);
  choose_sizes(c, x);
  x.dtype = wide_type(c);
  x.out_dtype = c.one_in(4) ? wide_type(c) : x.dtype;
  x.state_dtype = c.one_in(3) ? wide_type(c) : DType::kF32;
  choose_drafts(c, x, step);
  x.store = step != Step::kVerify || c.one_in(6);
  if (!x.drafts && c.one_in(2)) x.form = LinearAttention::Form::kChunked;
  if (step != Step::kPrefill || x.tree || !c.one_in(3)) return;
  x.chunk_size = c.of({64, 1, 4, 7, 16, 32});
  x.chunk_grid = c.of({ChunkGrid::kRow, ChunkGrid::kTokens});
  x.chunk_dtype = wide_type(c);
}

void choose_conv(Choices& c, RecurrentCase& x, bool exact) {
  const Step step = c.of({Step::kPrefill, Step::kDecode, Step::kVerify});
  choose_rows(c, x, step);
  x.dim = c.one_in(12) ? c.of({127, 128, 129, 256}) : c.of({8, 1, 3, 16, 40});
  x.width = c.of({4, 2, 3, 5, 8, 6, 7});
  x.bias = c.one_in(2), x.silu = !exact && c.one_in(2);
  x.dtype = wide_type(c);
  choose_drafts(c, x, step);
  // A tree needs no windows.
  if (step == Step::kVerify && !x.drafts) x.tree = c.one_in(2);
}

void choose_gate(Choices& c, RecurrentCase& x) {
  x.rows.push_back({c.one_in(8) ? 0 : c.between(1, 40), true, true});
  x.gate = c.of({DecayGate::Kind::kSoftplus, DecayGate::Kind::kLowerBound, DecayGate::Kind::kStep});
  const bool step = x.gate == DecayGate::Kind::kStep;
  x.decay_rank = step || c.one_in(2) ? 2 : 3;
  x.num_v_heads = c.of({2, 1, 3, 8});
  x.head_dim_k = c.of({8, 1, 16, 63, 64, 65, 128});
  x.dtype = wide_type(c);
  x.dt_bias = c.one_in(2), x.b = !step && c.one_in(2);
  x.lower_bound = c.of({-1.F, -5.F, -0.5F});
}

}  // namespace

RecurrentCase generate_recurrent(Choices& c, CaseData data) {
  using Call = RecurrentCase::Call;
  RecurrentCase x;
  x.call = c.of({Call::kAttention, Call::kAttention, Call::kConv1d, Call::kAttention, Call::kConv1d,
                 Call::kGate});
  const bool exact = is_exact(data);
  switch (x.call) {
    case Call::kAttention: choose_attention(c, x, exact); break;
    case Call::kConv1d: choose_conv(c, x, exact); break;
    case Call::kGate: choose_gate(c, x);
  }
  return x;
}

}  // namespace shadowgraph
