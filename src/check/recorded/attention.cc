// Judging recorded attention: paged, packed, merged, over chosen keys; one call or several.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "attn/tensor_rows.h"
#include "check/bounds/declared.h"
#include "check/mistakes/call_scene.h"
#include "check/mistakes/diagnose.h"
#include "check/recorded/case_judge.h"
#include "check/recorded/other_arithmetic.h"
#include "check/recorded/planned.h"
#include "check/recorded/same_rows.h"
#include "check/recorded/two_part_step.h"
#include "core/float_formats.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

void raise(std::optional<double>& largest, double value) {
  if (!largest || !(value <= *largest)) largest = value;  // NaN counts as the largest
}

/// Shape of a call's out.
struct OutShape {
  int64_t rows, heads, dim;
};
OutShape out_shape(const PagedAttention& c) {
  return {c.q.shape[0], c.params.num_qo_heads, c.params.head_dim_vo};
}
OutShape out_shape(const RaggedAttention& c) {
  return {c.q.shape[0], c.params.num_qo_heads, c.params.head_dim_vo};
}
OutShape out_shape(const SparseAttention& c) { return {c.q.shape[0], c.q.shape[1], c.head_dim_v}; }
OutShape out_shape(const MergeStates<LseBase::kLog2>& c) {
  return {c.v.shape[0], c.v.shape[2], c.v.shape[3]};
}

DType input_type(const PagedAttention& c) { return c.q.dtype; }
DType input_type(const RaggedAttention& c) { return c.q.dtype; }
DType input_type(const SparseAttention& c) { return c.q.dtype; }
DType input_type(const MergeStates<LseBase::kLog2>& c) { return c.v.dtype; }

Status run(const PagedAttention& c) { return attention_with_kvcache(c); }
Status run(const RaggedAttention& c) { return attention_varlen(c); }
Status run(const SparseAttention& c) { return sparse_attention(c); }
Status run(const MergeStates<LseBase::kLog2>& c) { return merge_states(c); }

Status same_bits(const char* field, const TensorView& there, const TensorView& here) {
  Status status;
  judged("num.bits", here.numel());
  for (int64_t i = 0; i < here.numel(); ++i) {
    if (same_element(there, i, here, i)) continue;
    status.add(make_finding("num.bits", at(field, index_of(here, i)), "the CPU's bits",
                            "others of the device"));
    break;
  }
  return status;
}

/// There, and here beside it; dense results. Calls that no launch makes run here alone.
template <class Call>
Status run_there(const Call& call, DeviceCalls* device) {
  constexpr bool kHasLaunch =
      std::is_same_v<Call, PagedAttention> || std::is_same_v<Call, RaggedAttention>;
  if constexpr (kHasLaunch) {
    if (device != nullptr) {
      Status status = device->run(call);
      if (!status.ok()) return status;
      std::vector<std::byte> out(static_cast<size_t>(call.out.numel()) * size_of(call.out.dtype));
      std::vector<float> lse(static_cast<size_t>(call.lse.tensor.numel()));
      Call here = call;
      here.out.data = out.data();
      here.lse.tensor.data = reinterpret_cast<std::byte*>(lse.data());
      status = run(here);
      if (status.ok()) status.add(same_bits("out", call.out, here.out));
      if (status.ok()) status.add(same_bits("lse", call.lse.tensor, here.lse.tensor));
      return status;
    }
  }
  return run(call);
}

// A two-part prefill: what the fault computes, in one pass.
constexpr size_t kFaultyCall = 4;

LseBase base_of(const NaturalLse&) { return LseBase::kNatural; }
LseBase base_of(const Log2Lse&) { return LseBase::kLog2; }

class AttentionJudge : public CaseJudge {
 public:
  AttentionJudge(const AttentionCalls& given, const RecordedCase& c, const RecordedOptions& options)
      : CaseJudge(c), given_(given), calls_(given.calls), options_(options) {
    // Cases are judged side by side, each on one thread.
    for (AnyCall& any : calls_) std::visit([](auto& call) { call.options.num_threads = 1; }, any);
  }

  RecordedVerdict judge_all() {
    if (options_.tap) {
      judge_step();
      return verdict();
    }
    std::vector<bool> accepted;
    if (given_.appended) append(*given_.appended);
    for (size_t i = 0; i < calls_.size(); ++i) {
      accepted.push_back(
          std::visit([&](const auto& call) { return judge_ours(call, i); }, calls_[i]));
    }
    // The oracle, too, needs calls that the engine accepts.
    for (const Recorded& recorded : c_.recorded) {
      if (recorded.call < accepted.size() && accepted[recorded.call]) judge_recorded(recorded);
    }
    if (!accepted.empty() && accepted[0]) judge_reference();
    if (c_.same_rows && accepted[0]) verdict_.findings.add(judge_same_rows(c_));
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (accepted[i] && is_planned(i)) judge_planned(i);
    }
    if (is_two_part_prefill(c_) && accepted[0]) judge_step();
    return verdict();
  }

 private:
  /// FlashInfer's plan and run made it.
  bool is_planned(size_t call) const {
    if (!can_be_planned(calls_[call])) return false;
    return std::ranges::any_of(c_.recorded, [&](const Recorded& r) {
      return r.call == call && r.kernel.starts_with("flashinfer_") &&
             r.kernel != "flashinfer_mla" && r.known_wrong.empty();
    });
  }

  void judge_planned(size_t index) {
    PlannedResult planned;
    Status refused = run_planned(calls_[index], {}, &planned);
    if (!take_refused(std::move(refused))) return;
    const bool merges = std::holds_alternative<MergeStates<LseBase::kLog2>>(calls_[index]);
    judge_twin(index, {planned.out, planned.lse.tensor, LseBase::kLog2, LseSink::kIncluded},
               merges ? "ours_portable" : "ours_merged", std::move(planned.parts));
  }

  /// The two parts as the backend's step. A planted fault makes of them what it is known to.
  void judge_step() {
    StepResult step;
    const std::unique_ptr<Tap> tap = options_.tap ? options_.tap() : nullptr;
    Status refused = run_as_step(c_, tap.get(), &step);
    if (tap != nullptr) verdict_.acted = tap->acted() > 0;
    if (!take_refused(std::move(refused))) return;
    judge_twin(options_.tap ? kFaultyCall : 0,
               {step.out, step.lse.tensor, LseBase::kNatural, LseSink::kIncluded}, "ours_merged",
               std::move(step.parts));
  }

  void judge_twin(size_t call, const Result& result, const char* arithmetic,
                  std::vector<int32_t> parts) {
    JudgeOptions how;
    how.prefix = "twin." + field_prefix(call);
    how.parts = std::move(parts);
    Judgement j = shadowgraph::judge(calls_[call], result, *find_arithmetic(arithmetic), how);
    explain(call, result, *find_arithmetic(arithmetic), how, &j);
    raise(verdict_.twin.out, j.error_over_bound);
    raise(verdict_.twin.lse, j.lse_error_over_bound);
    if (options_.tap) verdict_.rows += j.rows;
    take(std::move(j), how.prefix + "planned");
  }

  /// Our store into a copy of the cache must leave the bytes that were recorded; paged calls then
  /// read the copy.
  void append(const AppendedKeys& appended) {
    StoreKv store = appended.store;
    store.options.num_threads = 1;
    copy_plane(store.cache, &store.cache.k, &k_copy_);
    copy_plane(store.cache, &store.cache.v, &v_copy_);
    Status refused = store_kv(store);
    for (Finding& finding : refused.findings()) finding.where.field.insert(0, "append.");
    if (take_refused(std::move(refused))) {
      expect_bytes("append.k_cache", k_copy_, appended.k_after);
      expect_bytes("append.v_cache", v_copy_, appended.v_after);
    }
    for (AnyCall& call : calls_) {
      if (auto* paged = std::get_if<PagedAttention>(&call)) paged->cache = store.cache;
    }
  }

  static void copy_plane(const KvCache& cache, KvPlane* plane, std::vector<std::byte>* copy) {
    const int64_t elements = cache.num_pages * plane->page_stride;
    copy->assign(plane->data, plane->data + elements * static_cast<int64_t>(size_of(plane->dtype)));
    plane->data = copy->data();
  }

  void expect_bytes(const char* field, std::span<const std::byte> ours,
                    const ConstTensorView& recorded) {
    const int64_t item = static_cast<int64_t>(size_of(recorded.dtype));
    int64_t first = -1, differing = 0;
    for (int64_t i = 0; i < recorded.numel(); ++i) {
      if (std::memcmp(ours.data() + i * item, recorded.data + i * item, item) == 0) continue;
      if (first < 0) first = i;
      ++differing;
    }
    judged("num.exact", recorded.numel());
    if (differing == 0) return;
    verdict_.findings.add(make_finding("num.exact", at(field, index_of(recorded, first)),
                                       "the recorded bits",
                                       "others (" + std::to_string(differing) + " of " +
                                           std::to_string(recorded.numel()) + " elements)"));
  }

  std::string field_prefix(size_t call) const {
    if (calls_.size() == 1) return "";
    return "call" + std::to_string(call) + ".";
  }

  template <class Call>
  bool judge_ours(Call call, size_t index) {
    const OutShape shape = out_shape(call);
    const DType type = out_type(call, index);
    const auto pairs = static_cast<size_t>(std::max<int64_t>(0, shape.rows * shape.heads));
    std::vector<std::byte> out(pairs * static_cast<size_t>(shape.dim) * size_of(type));
    std::vector<float> lse(pairs);
    call.out = TensorView(out.data(), type, {shape.rows, shape.heads, shape.dim});
    call.lse.tensor = TensorView(lse.data(), DType::kF32, {shape.rows, shape.heads});
    call.options.arith = options_.arith;
    Status refused = run_there(call, options_.device);
    if (!refused.ok()) {
      for (Finding& finding : refused.findings())
        finding.where.field.insert(0, field_prefix(index));
      return take_refused(std::move(refused));
    }
    JudgeOptions options;
    options.prefix = field_prefix(index);
    const Arithmetic& ours = our_arithmetic(call);
    const Result result{call.out, call.lse.tensor, base_of(call.lse), call.options.lse_sink};
    Judgement j = shadowgraph::judge(calls_[index], result, ours, options);
    explain(index, result, ours, options, &j);
    verdict_.rows += j.rows;
    verdict_.empty_rows += j.empty_rows;
    raise(verdict_.ours.out, j.error_over_bound);
    raise(verdict_.ours.lse, j.lse_error_over_bound);
    take(std::move(j), options.prefix + "ours");
    return true;
  }

  /// As recorded; else as the inputs.
  template <class Call>
  DType out_type(const Call& call, size_t index) const {
    for (const Recorded& r : c_.recorded)
      if (r.call == index && r.out.defined()) return r.out.dtype;
    return input_type(call);
  }

  const Arithmetic& our_arithmetic(const SparseAttention&) const {
    return *find_arithmetic("ours_sparse");
  }
  template <class Call>
  const Arithmetic& our_arithmetic(const Call&) const {
    return *find_arithmetic(options_.arith == Arith::kFast ? "ours_fast" : "ours_portable");
  }

  void judge_recorded(const Recorded& recorded) {
    const Arithmetic* named = find_arithmetic(recorded.kernel);
    if (named == nullptr)
      return verdict_.findings.add(no_such_arithmetic("arithmetic", recorded.kernel));
    const Arithmetic arithmetic = with_declared(*named, recorded.declared);
    JudgeOptions options{"num.recorded", "num.recorded", true, recorded.name + "."};
    options.empty_mark = recorded.empty_mark;
    const Result result{recorded.out,      recorded.lse,        recorded.lse_base,
                        recorded.lse_sink, recorded.max_logits, recorded.axes};
    Judgement j = shadowgraph::judge(calls_[recorded.call], result, arithmetic, options);
    explain(recorded.call, result, arithmetic, options, &j);
    if (options_.diagnose) suggest_arithmetic(calls_[recorded.call], recorded, result, options, &j);
    if (!recorded.known_wrong.empty()) {
      char ratio[32];
      std::snprintf(ratio, sizeof ratio, "%.3g", j.error_over_bound);
      verdict_.known_wrong.push_back(recorded.name + ": error " + ratio + " times its bound (" +
                                     recorded.known_wrong + ")" + as_if(j.findings));
      return;
    }
    if (recorded.out.defined()) raise(verdict_.gpu.out, j.error_over_bound);
    if (recorded.lse.defined()) raise(verdict_.gpu.lse, j.lse_error_over_bound);
    verdict_.marked_rows += j.marked_rows;
    take(std::move(j), recorded.name);
  }

  /// Merges have no mistakes of their own: those of the calls that make their states are known.
  void explain(size_t index, const Result& result, const Arithmetic& arithmetic,
               const JudgeOptions& how, Judgement* j) const {
    if (!options_.diagnose || j->findings.ok()) return;
    const DiagnoseOptions of_rows{.exact = how.exact, .parts = how.parts};
    const auto add = [&](const auto& call) {
      const CallScene scene(call);
      for (Finding& f : j->findings.findings())
        f.diagnosis = diagnose(scene.scene(), result, arithmetic, of_rows);
    };
    if (const auto* paged = std::get_if<PagedAttention>(&calls_[index])) add(*paged);
    if (const auto* ragged = std::get_if<RaggedAttention>(&calls_[index])) add(*ragged);
  }

  /// ": as if window.ignored: ..."
  static std::string as_if(const Status& wrong) {
    for (const Finding& f : wrong.findings())
      if (!f.diagnosis.empty()) return ": as if " + f.diagnosis[0].to_string();
    return "";
  }

  /// Packed latents as they are read: copies, of no bound.
  void judge_latents() {
    const auto* sparse = std::get_if<SparseAttention>(&calls_[0]);
    const ConstTensorView& ref = given_.latents_ref;
    if (sparse == nullptr || !ref.defined()) return;
    ArrayJudge judge = array(Whose::kReference, "latents");
    for (int64_t slot = 0; slot < ref.shape[0]; ++slot) {
      const std::vector<double> right = latent_of(sparse->keys.pool, slot);
      for (int64_t i = 0; i < ref.shape[1]; ++i)
        judge.take(slot, i, load_float(ref.at(slot), ref.dtype, i), right[static_cast<size_t>(i)],
                   0);
    }
    judge.add_to(&verdict_.findings);
  }

  void judge_reference() {
    judge_latents();
    const Recorded& ref = c_.reference;
    if (!ref.out.defined() && !ref.lse.defined()) return;
    JudgeOptions options{"num.reference", "num.reference", true, "ref."};
    const Result result{ref.out, ref.lse, ref.lse_base, ref.lse_sink, ref.max_logits, ref.axes};
    Judgement j = shadowgraph::judge(calls_[0], result, *find_arithmetic("float64"), options);
    if (ref.out.defined()) raise(verdict_.reference.out, j.error_over_bound);
    if (ref.lse.defined()) raise(verdict_.reference.lse, j.lse_error_over_bound);
    take(std::move(j), "reference");
  }

  void take(Judgement judgement, const std::string& who) {
    verdict_.unbounded_rows += judgement.unbounded_rows;
    verdict_.findings.add(std::move(judgement.findings));
    for (std::string& note : judgement.notes) {
      verdict_.notes.push_back(std::move(note.insert(0, who + ": ")));
    }
  }

  const AttentionCalls& given_;
  std::vector<AnyCall> calls_;              // given_'s, on our own cache where keys are appended
  std::vector<std::byte> k_copy_, v_copy_;  // that cache
  const RecordedOptions& options_;
};

}  // namespace

bool is_planted(const RecordedCase& c) { return is_two_part_prefill(c); }

RecordedVerdict judge_call(const AttentionCalls& calls, const RecordedCase& c,
                           const RecordedOptions& options) {
  return AttentionJudge(calls, c, options).judge_all();
}

}  // namespace shadowgraph
