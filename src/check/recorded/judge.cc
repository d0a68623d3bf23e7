#include "check/recorded/judge.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "check/bounds/declared.h"
#include "check/recorded/case_judge.h"

namespace shadowgraph {

TensorView CaseMemory::of(TensorView t) {
  if (!t.defined()) return t;
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.stride[static_cast<size_t>(i)] = step;
    step *= t.shape[static_cast<size_t>(i)];
  }
  bytes_.emplace_back(static_cast<size_t>(std::max<int64_t>(step, 1)) * size_of(t.dtype),
                      std::byte{0xa5});
  t.data = bytes_.back().data();
  return t;
}

TensorView CaseMemory::copy(TensorView t, const ConstTensorView& from) {
  t = of(t);
  const size_t item = size_of(t.dtype);
  for (int64_t n = 0; n < from.numel(); ++n)
    std::memcpy(t.data + static_cast<size_t>(n) * item,
                from.data + element_offset(from, n) * static_cast<int64_t>(item), item);
  return t;
}

LawId law_of(Whose whose) {
  if (whose == Whose::kOurs) return "num.bound";
  return whose == Whose::kGpu ? LawId("num.recorded") : LawId("num.reference");
}

const char* prefix_of(Whose whose) {
  if (whose == Whose::kOurs) return "ours.";
  return whose == Whose::kGpu ? "gpu." : "ref.";
}

namespace {

/// Is it the kernel that broke the law, and not our call, the reference or the case itself?
bool is_of_kernel(const Finding& f) {
  const bool bits = f.id == "num.bits" && f.where.field.starts_with("gpu.");
  return f.id == "num.recorded" || f.id == "num.write_set" || f.id == "num.exact" || bits;
}

}  // namespace

CaseJudge::CaseJudge(const RecordedCase& c) : c_(c) {
  verdict_.id = c.id;
  verdict_.kind = c.system.empty() ? c.kind : c.system + ' ' + c.kind;
  verdict_.dtype = c.dtype;
}

RecordedVerdict CaseJudge::verdict() {
  const std::span<const Finding> all = verdict_.findings.findings();
  const bool refused = std::ranges::any_of(all, is_of_kernel);
  const bool known = verdict_.gpu.out || verdict_.gpu.lse || refused;
  if (known) verdict_.kernel_accepted = !refused;
  for (Finding& finding : verdict_.findings.findings()) {
    finding.case_id = c_.id;
    if (known && finding.id == "num.reference")
      finding.got += refused ? "; the kernel is not accepted, either"
                             : "; only the reference is wrong: the kernel is accepted";
  }
  return std::move(verdict_);
}

bool CaseJudge::take_refused(Status refused) {
  const bool ok = refused.ok();
  verdict_.findings.add(std::move(refused));
  return ok;
}

ErrorRatios& CaseJudge::ratios(Whose whose) {
  if (whose == Whose::kOurs) return verdict_.ours;
  return whose == Whose::kGpu ? verdict_.gpu : verdict_.reference;
}

void CaseJudge::settle(const ArrayJudge& a, Whose whose) {
  if (a.elements() == 0) return;
  std::optional<double>& ratio = ratios(whose).out;
  ratio = std::max(ratio.value_or(0), a.worst());
  a.add_to(&verdict_.findings);
}

void CaseJudge::settle(const RecurrentJudges& j, Whose whose) {
  for (const ArrayJudge* a : {&j.out, &j.states, &j.draft, &j.chunks}) settle(*a, whose);
}

void CaseJudge::check_untouched(const StateRows& rows, bool stores, const ConstTensorView& states,
                                const std::string& prefix) {
  if (!states.defined()) return;
  std::vector<bool> written(static_cast<size_t>(states.shape[0]), false);
  for (int64_t r = 0; r < rows.rows() && stores; ++r)
    if (const int32_t slot = rows.slot(r); slot >= 0 && rows.tokens(r) > 0)
      written[static_cast<size_t>(slot)] = true;
  for (int64_t slot = 0; slot < states.shape[0]; ++slot) {
    if (written[static_cast<size_t>(slot)]) continue;
    judged("num.write_set");
    const ConstTensorView got = at_place(states, slot), was = at_place(c_.states_before, slot);
    for (int64_t i = 0; i < got.numel(); ++i) {
      const double a = element(got, i), b = element(was, i);
      if (std::memcmp(&a, &b, sizeof a) == 0) continue;
      verdict_.findings.add(make_finding("num.write_set", at(prefix + "states", slot, i),
                                         std::to_string(b), std::to_string(a)));
      break;
    }
  }
}

void CaseJudge::no_such_kernel(const std::string& list, const std::string& kernel) {
  verdict_.findings.add(
      make_finding("num.recorded", at("kernel"), "a kernel of " + list, '"' + kernel + '"'));
}

Status take_unknown_arithmetics(const std::string& file, std::vector<RecordedCase>* cases) {
  Status status;
  std::erase_if(*cases, [&](const RecordedCase& c) {
    if (!std::holds_alternative<AttentionCalls>(c.call)) return false;
    const auto unknown = std::ranges::find_if(
        c.recorded, [](const Recorded& r) { return find_arithmetic(r.kernel) == nullptr; });
    if (unknown == c.recorded.end()) return false;
    Finding finding = no_such_arithmetic("arithmetic", unknown->kernel);
    finding.case_id = file + '#' + c.id;
    status.add(std::move(finding));
    return true;
  });
  return status;
}

RecordedVerdict judge_recorded(const RecordedCase& c, const RecordedOptions& options) {
  return std::visit(
      [&](const auto& call) {
        if constexpr (std::is_same_v<std::decay_t<decltype(call)>, AttentionCalls>)
          return judge_call(call, c, options);
        else
          return judge_call(call, c);
      },
      c.call);
}

}  // namespace shadowgraph
