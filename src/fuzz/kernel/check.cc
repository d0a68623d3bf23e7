// Property tests of somebody's own kernel: calls of the fuzzer's one generator, laid out and judged
// as its own are.
#include <algorithm>
#include <exception>
#include <fstream>

#include "core/laws.h"
#include "fuzz/call/attention_laws.h"
#include "fuzz/call/generate.h"
#include "fuzz/kernel/support.h"
#include "testing/tries.h"

namespace shadowgraph::testing {
namespace {

bool has_empty_row(const AttentionCase& x, const AttentionData& data) {
  for (size_t i = 0; i < x.requests.size(); ++i) {
    const RequestExtent& r = x.requests[i];
    if (r.q_len == 0) return true;
    for (int64_t q = 0; q < r.q_len; ++q) {
      for (int64_t head = 0; head < x.num_qo_heads; ++head) {
        int64_t key = 0;
        while (key < r.kv_len && !sees(x, data, i, head, q, key)) ++key;
        if (key == r.kv_len) return true;
      }
    }
  }
  return false;
}

/// Says which query and head an element of out or lse is of.
void name_row(const AttentionCase& x, Finding* f) {
  const bool out = f->where.field == "out";
  if ((!out && f->where.field != "lse") || !f->where.row || !f->where.col) return;
  if (x.terms.padded_rows) return;  // rows of nobody count, too
  int64_t query = *f->where.row;
  if (query >= x.tokens()) return;  // behind all requests
  size_t request = 0;
  while (query >= x.requests[request].q_len) query -= x.requests[request++].q_len;
  f->where.field += " (request " + std::to_string(request) + ", query " + std::to_string(query) +
                    ", head " + std::to_string(*f->where.col) + ")";
}

/// Draws that are no part of a call.
struct Surroundings {
  bool huge;    // unseen memory holds huge numbers, else NaN
  bool far;     // pages are 2^32 elements away
  bool no_lse;  // the call asks for no LSE
  bool nan;     // of random data: one number that is seen is NaN
};

class KernelCalls {
 public:
  KernelCalls(const KernelOptions& options, const Kernel& kernel)
      : options_(options),
        kernel_(kernel),
        tries_(options, "call", [this](Choices& choices) { return call(choices); }) {}

  int64_t calls() const { return calls_; }

  /// Up to the first that fails.
  Status run() {
    Status status = validate(options_, kernel_);
    if (!status.ok()) return status;
    const KernelSupport& s = options_.support;
    numbers_ = {arithmetic_of(s), s.lse_base, s.empty_row};
    values_ = declared_values(s);
    drawn_.assign(values_.size(), false);
    if (std::optional<Status> given = tries_.given()) return *std::move(given);
    for (const bool exact : {true, false}) {
      exact_ = exact;
      for (int64_t i = 0; i < options_.calls && status.ok(); ++i) {
        Choices choices(Rng::stream(options_.seed, static_cast<uint64_t>(i)));
        status = tries_.attempt(choices);
      }
    }
    return status.ok() ? nothing() : status;
  }

 private:
  /// Choices that make no call find nothing.
  Outcome call(Choices& choices) {
    const KernelSupport& s = options_.support;
    const Surroundings around = {choices.one_in(2), choices.one_in(8), choices.one_in(8),
                                 choices.one_in(4)};
    const std::optional<shadowgraph::Case> drawn = generate_declared(choices, s);
    if (!drawn || !is_asked_for(drawn->data)) return {};
    const AttentionArrangement how = arrange(*drawn, around);
    const auto& x = std::get<AttentionCase>(drawn->call);
    AttentionData data = make_attention_data(*drawn);
    KernelNumbers numbers = numbers_;
    numbers.sees_nan = sees_nan(*drawn, around, &data);
    if (!s.empty_rows && has_empty_row(x, data)) return {};
    AttentionScene scene(*drawn, data, how);
    scene.lay(0);
    ++calls_;
    for (size_t i = 0; i < values_.size(); ++i) drawn_[i] = drawn_[i] || values_[i].is_drawn(x);
    Outcome outcome{{}, drawn->to_string()};
    if (how.far) outcome.what += ", far pages";
    if (around.huge) outcome.what += ", unseen memory is huge";
    if (numbers.sees_nan) outcome.what += ", a NaN is seen";
    if (!options_.journal.empty())
      std::ofstream(options_.journal) << Tries::repeat(choices) << " (" << outcome.what << ")\n";
    outcome.findings = ran(scene);
    if (outcome.findings.ok()) {
      outcome.findings = judgement(*drawn, scene, numbers);
      // A NaN that is seen explains itself.
      if (!tries_.shrinking() && !numbers.sees_nan)
        name_mistakes(scene, numbers, &outcome.findings);
    }
    for (Finding& f : outcome.findings.findings()) name_row(x, &f);
    return outcome;
  }

  bool is_asked_for(CaseData data) const { return !exact_ || *exact_ == is_exact(data); }

  AttentionArrangement arrange(const shadowgraph::Case& c, const Surroundings& around) const {
    const KernelSupport& s = options_.support;
    AttentionArrangement how = AttentionArrangement::of(c);
    how.memory = {
        .dense = !s.strided, .poison = around.huge ? kHugePoison : kPoison, .outputs = kUnwritten};
    how.rows_behind = std::max<int64_t>(64, c.tokens());
    how.whole_tables = true;
    how.with_lse = s.lse && !around.no_lse;
    how.far = around.far && s.far_pages && can_be_far(c);
    return how;
  }

  bool sees_nan(const shadowgraph::Case& c, const Surroundings& around, AttentionData* data) const {
    const auto& x = std::get<AttentionCase>(c.call);
    Rng rng = Rng::stream(c.seed, 1);
    return c.data == CaseData::kRandom && around.nan && x.kv_dtype != DType::kI8 &&
           plant_nan(x, rng, data);
  }

  Status ran(const AttentionScene& scene) const {
    Status status;
    const auto thrown = [&](const char* what) {
      status.add(make_finding("test.exception", at("kernel"), "a result", what));
    };
    try {
      if (const auto* paged = std::get_if<PagedAttention>(&scene.call())) kernel_.paged(*paged);
      if (const auto* ragged = std::get_if<RaggedAttention>(&scene.call())) kernel_.ragged(*ragged);
    } catch (const std::exception& e) {
      thrown(e.what());
    } catch (...) {
      thrown("an exception");
    }
    return status;
  }

  Status judgement(const shadowgraph::Case& x, const AttentionScene& scene,
                   const KernelNumbers& numbers) const {
    JudgeOptions how;
    how.any_for_nan = numbers.sees_nan && !options_.support.propagates_nan;
    how.empty_mark = options_.support.empty_row;
    const KernelNumbers ours;
    how.recorded = how.empty_mark.nan_out || how.empty_mark.lse != ours.empty_row.lse;
    Status status = scene.check_written();
    status.add(judge_attention(x, scene, numbers, how));
    return status;
  }

  Status nothing() const {
    Status status;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!drawn_[i])
        status.add(make_finding("test.nothing", at("support." + std::string(values_[i].field)),
                                "a call with " + values_[i].value, "none"));
    }
    return status;
  }

  const KernelOptions& options_;
  const Kernel& kernel_;
  Tries tries_;
  KernelNumbers numbers_;
  std::vector<DeclaredValue> values_;
  std::vector<bool> drawn_;
  std::optional<bool> exact_;  // runs only calls of such data
  int64_t calls_ = 0;
};

}  // namespace

Status check(const KernelOptions& options, const Kernel& kernel, int64_t* calls) {
  KernelCalls all(options, kernel);
  Status status = all.run();
  if (calls != nullptr) *calls = all.calls();
  return status;
}

}  // namespace shadowgraph::testing
