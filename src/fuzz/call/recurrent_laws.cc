#include "fuzz/call/recurrent_laws.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "check/bounds/recurrent_compare.h"
#include "core/laws.h"
#include "fuzz/call/gate_laws.h"
#include "fuzz/call/row_ladder.h"

namespace shadowgraph {
namespace {

using SceneCall = RecurrentScene::Call;

void compare(const SceneCall& truth, const RecurrentLeft& left, bool exact,
             const RecurrentPlaces& places, RecurrentJudges* judges) {
  if (const auto* conv = std::get_if<CausalConv1d>(&truth)) {
    const ConvArithmetic ours;
    compare_conv(*conv, exact ? nullptr : &ours, conv->x.dtype, left, places, judges);
    return;
  }
  const auto& call = std::get<LinearAttention>(truth);
  const GateTruth none;
  const bool chunked = call.form == LinearAttention::Form::kChunked;
  const char* const ours = !chunked                   ? "ours"
                           : call.log_decay.rank == 3 ? "ours_chunked_channels"
                                                      : "ours_chunked";
  LinearBounds bounds(call, *find_recurrent_arithmetic(ours), none, {});
  compare_recurrence(call, none, exact ? nullptr : &bounds, left, places, judges);
}

RecurrentLeft left_of(const SceneCall& call) {
  if (const auto* conv = std::get_if<CausalConv1d>(&call))
    return {conv->out, conv->states, conv->draft.states, {}};
  const auto& c = std::get<LinearAttention>(call);
  return {c.out, c.states, c.draft.states, c.chunk_states};
}

const StateRows& rows_of(const SceneCall& call) {
  return *std::visit([](const auto& c) { return &c.rows; }, call);
}

/// Would the outputs of that row be right if the call were this one?
bool explains(const SceneCall& other, const ConstTensorView& out, int64_t row) {
  RecurrentJudges j("num.exact", "");
  compare(other, {out, {}, {}, {}}, true, {{}, {}, false, row}, &j);
  return j.out.elements() > 0 && j.out.worst() == 0;
}

/// What exact data says of a row whose outputs are wrong: the slot that it started from, or the
/// tree that it did not follow; or nothing.
std::string name_source(const SceneCall& truth, const ConstTensorView& out, int64_t row) {
  const StateRows& rows = rows_of(truth);
  std::vector<int32_t> slots(rows.state_indices.begin(), rows.state_indices.end());
  std::vector<uint8_t> flags(slots.size(), 1);
  const auto with = [&](int32_t slot, bool starts, bool tree) {
    SceneCall other = truth;
    auto list = slots;
    list[static_cast<size_t>(row)] = slot;
    flags[static_cast<size_t>(row)] = starts ? 1 : 0;
    bool found = false;
    std::visit(
        [&](auto& c) {
          c.rows.state_indices = list, c.rows.has_initial_state = flags;
          if (!tree) c.draft.parents = {};
          found = explains(other, out, row);
        },
        other);
    return found;
  };
  constexpr int64_t kTried = 512;  // the last slots: of a far pool all that there are
  const int64_t pool = std::visit([](const auto& c) { return c.states.shape[0]; }, truth);
  const int32_t own = rows.slot(row);
  const bool starts = rows.starts_from_slot(row);
  if (own >= 0 && with(own, starts, false)) return ", as of a chain of drafts instead of the tree";
  if (starts && with(own, false, true)) return ", as if it started from zero";
  for (auto slot = static_cast<int32_t>(std::max<int64_t>(0, pool - kTried)); slot < pool; ++slot) {
    if (!with(slot, true, true)) continue;
    std::string s = ", as if it started from slot " + std::to_string(slot);
    if (slot == own) return s + ", its own, which is not its state";
    const auto owner = std::ranges::find(slots, slot);
    return owner == slots.end() ? s : s + " of row " + std::to_string(owner - slots.begin());
  }
  return "";
}

/// Rows of padding whose outputs are zeros.
Status check_zeros(const SceneCall& call) {
  ArrayJudge zeros("num.exact", "out of padding");
  const StateRows& rows = rows_of(call);
  const ConstTensorView out = left_of(call).out;
  const int64_t of_token = out.shape[0] == 0 ? 0 : out.numel() / out.shape[0];
  for (int64_t r = 0; r < rows.rows() && rows.pad == PadRow::kZeroOut; ++r) {
    for (int64_t t = rows.begin(r); t < rows.begin(r + 1) && rows.slot(r) < 0; ++t)
      for (int64_t i = 0; i < of_token; ++i) zeros.take(t, i, element(out, t * of_token + i), 0, 0);
  }
  Status status;
  zeros.add_to(&status);
  return status;
}

/// Tokens that are taken together, at multiples of which a row may be cut.
int32_t together(const RecurrentCase& x) {
  const bool chunked =
      x.call == RecurrentCase::Call::kAttention && x.form == LinearAttention::Form::kChunked;
  return !chunked ? 1 : x.decay_rank == 3 ? 16 : 32;
}

/// Can a row be cut, and go on from what the pool keeps?
bool can_cut(const RecurrentCase& x, const RecurrentCase::Row& row) {
  if (x.tree || !row.slot || row.tokens <= together(x)) return false;
  return x.call == RecurrentCase::Call::kConv1d || (x.store && x.state_dtype == DType::kF32);
}

struct StateFamily {
  using Arrangement = RecurrentArrangement;
  using Scene = RecurrentScene;
  using Results = RecurrentResults;
  static constexpr auto make_data = make_recurrent_data;
  static constexpr auto judge = judge_recurrent;
  static constexpr auto vary = vary_recurrent;
};

}  // namespace

RecurrentArrangement vary_recurrent(const Case& x, const RunOptions& options, Rng& rng) {
  RecurrentArrangement a = RecurrentArrangement::of(x);
  const auto& l = std::get<RecurrentCase>(x.call);
  const auto step = [&](const RowPiece& row) {
    return can_cut(l, l.rows[static_cast<size_t>(row.row)]) ? together(l) : 0;
  };
  vary_rows(step, rng, &a);
  a.far = false;
  a.options = vary_options(options, rng);
  return a;
}

Status judge_recurrent(const Case& x, const RecurrentScene& scene) {
  const bool exact = is_exact(x.data);
  RecurrentJudges judges(exact ? LawId("num.exact") : LawId("num.bound"), "");
  const SceneCall truth = scene.truth();
  const RecurrentLeft left = left_of(scene.call());
  compare(truth, left, exact, {}, &judges);
  Status status = check_zeros(scene.call());
  judges.add_to(&status);
  if (!exact || judges.out.worst() == 0) return status;
  for (Finding& f : status.findings()) {
    if (f.where.field != "out" || !f.where.row) continue;
    const StateRows& rows = rows_of(truth);
    const auto end = std::upper_bound(rows.cu_seqlens_q.begin(), rows.cu_seqlens_q.end(),
                                      static_cast<int32_t>(*f.where.row));
    const int64_t row = end - rows.cu_seqlens_q.begin() - 1;
    f.where.field += " (row " + std::to_string(row) + ")";
    f.got += name_source(truth, left.out, row);
  }
  return status;
}

Status judge_taken(const StateCall& call, const StateCall& truth) {
  RecurrentJudges judges("num.bound", "");
  compare(truth, left_of(call), false, {}, &judges);
  Status status = check_zeros(call);
  judges.add_to(&status);
  return status;
}

Status compare_bits(const RecurrentResults& a, const RecurrentResults& b, const std::string& how) {
  Status status = compare_rows("out", a.out, b.out, how);
  status.add(compare_rows("states", a.states, b.states, how));
  status.add(compare_rows("draft.states", a.draft, b.draft, how));
  status.add(compare_rows("chunk_states", a.chunks, b.chunks, how, true));
  return status;
}

Status check_recurrent_case(const Case& x, const RunOptions& options) {
  if (std::get<RecurrentCase>(x.call).call == RecurrentCase::Call::kGate)
    return check_gate_case(x, options);
  return check_rows<StateFamily>(x, options);
}

}  // namespace shadowgraph
