#include "fuzz/mutate/legal_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/choices.h"
#include "fuzz/call/attention_laws.h"
#include "fuzz/call/call_pairs.h"
#include "fuzz/call/gate_laws.h"
#include "fuzz/call/generate.h"
#include "fuzz/call/merge_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/call/sparse_laws.h"
#include "fuzz/mutate/mutant.h"
#include "fuzz/mutate/mutant_judge.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kSeed = 45;
constexpr size_t kCallsOfKind = 10;

// ---- what a mutated call does

/// Scene: it is laid. One mutation of its call.
template <class Scene>
class MutantRun {
 public:
  using Call = typename Scene::Call;

  MutantRun(Scene* scene, size_t i, const AnswerTap& tap)
      : scene_(*scene), mutant_(scene->call()), mutation_(mutant_.apply(i)), tap_(tap) {}

  MutatedCall run() {
    const CallVerdict verdict = judge();
    const bool ok = status_.ok();
    return {mutation_, ok ? verdict : CallVerdict::kWrong, std::move(status_)};
  }

 private:
  CallVerdict judge() {
    const Call& call = mutant_.call;
    std::optional<CallBefore<Call>> before;
    if (validate_any(call).ok()) {
      spans_ = footprint_of(without_plan(call));
      for (const Footprint& spans : {spans_, CallBefore<Call>::copied(call)})
        if (!scene_.backs(spans) || !mutant_.memory.backs(spans)) return unbacked();
      before.emplace(call);
    }
    Status said = execute(call);
    const bool ran = said.ok();
    if (tap_) tap_(mutation_, &said);
    if (!said.ok()) return refused(said);
    const CallVerdict verdict = taken(before ? before->call() : call, ran);
    scene_.restore();
    return verdict;
  }
  /// A plan is checked when the call runs.
  static Call without_plan(Call call) {
    std::visit(
        [](auto& c) {
          if constexpr (requires { c.plan; }) c.plan = {};
        },
        call);
    return call;
  }
  /// Numbers may say that a tensor is larger than it is, which nobody can see; what lists name lies
  /// in the tensors that are said to be there.
  CallVerdict unbacked() {
    judged("mem.out_of_bounds");
    const bool of_numbers = mutation_.kind == &kNumberMutation || mutation_.kind == &kShapeMutation;
    if (!of_numbers)
      status_.add(make_finding("mem.out_of_bounds", at(mutation_.member), "memory of the call",
                               "a place beside it"));
    return CallVerdict::kUnbacked;
  }
  CallVerdict refused(const Status& said) {
    if (mutation_.law) judged(*mutation_.law);
    status_.add(scene_.check_untouched());
    status_.add(mutant_.memory.check_written({}));
    std::vector<Finding> found(said.findings().begin(), said.findings().end());
    if (mutation_.kind == &kNumberMutation) {
      // A tensor that is said to be larger than it is may reach into another's memory.
      std::erase_if(found, [](const Finding& f) { return f.id == "input.alias"; });
      if (found.empty()) return CallVerdict::kUnbacked;
    }
    if (mutation_.expect == Expect::kTaken) {
      fail(said, "taken: the call says the same in another way");
    } else if (mutation_.law) {
      if (std::ranges::none_of(found, [&](const Finding& f) { return is_about(f, mutation_); }))
        status_.add(make_finding(*mutation_.law, at(mutation_.name),
                                 "refused under " + std::string(mutation_.law->law().id),
                                 said.to_string()));
    } else if (!std::ranges::all_of(found,
                                    [&](const Finding& f) { return is_about(f, mutation_); })) {
      fail(said, "refused by a law that is about what was changed");
    }
    return CallVerdict::kRefused;
  }
  /// Under the law that refused it.
  void fail(const Status& said, const char* expected) {
    Finding f =
        said.findings().empty() ? make_finding("input.memory", {}, "", "") : said.findings()[0];
    f.where = at(mutation_.name), f.expected = expected, f.got = said.to_string();
    status_.add(std::move(f));
  }
  CallVerdict taken(const Call& before, bool ran) {
    if (mutation_.expect == Expect::kRefused) {
      const LawId law = mutation_.law.value_or(LawId("input.shape"));
      status_.add(make_finding(law, at(mutation_.name),
                               "refused under " + std::string(law.law().id), "taken"));
    } else if (!ran) {
      status_.add(
          make_finding("num.write_set", at(mutation_.name), "what the call leaves", "nothing"));
    }
    if (!status_.ok()) return CallVerdict::kWrong;
    status_.add(scene_.check_changed(spans_));
    status_.add(mutant_.memory.check_changed(spans_));
    // Attention's judge knows which rows see such a number.
    const bool knows = std::is_same_v<Call, AttentionCall>;
    const bool poison = scene_.reads_poison(spans_) || mutant_.memory.reads_poison(spans_);
    if (poison && !knows) return CallVerdict::kReadsPoison;
    status_.add(judge_mutant(mutant_.call, before));
    return CallVerdict::kRight;
  }

  Scene& scene_;
  Mutant<Call> mutant_;
  const Mutation& mutation_;
  const AnswerTap& tap_;
  Footprint spans_;
  Status status_;
};

// ---- legal calls

template <class AnyScene>
class LaidLegalCall : public LegalCall {
 public:
  size_t num_mutations() const override {
    return Mutant<typename AnyScene::Call>(scene_->call()).mutations().size();
  }
  MutatedCall run(size_t i, const AnswerTap& tap) override {
    return MutantRun<AnyScene>(&*scene_, i, tap).run();
  }

 protected:
  std::optional<AnyScene> scene_;
};

/// Data: what make(x) gives. arrange: may change how the case says that it lies.
template <class Scene, class Arrangement, class Data>
class LegalCase : public LaidLegalCall<Scene> {
 public:
  LegalCase(Case x, Data (*make)(const Case&), void (*arrange)(const Case&, Arrangement*, Rng&))
      : x_(std::move(x)), data_(make(x_)) {
    Arrangement how = Arrangement::of(x_);
    Rng rng(x_.seed);
    if (arrange != nullptr) arrange(x_, &how, rng);
    this->scene_.emplace(x_, data_, how);
    this->scene_->lay(0);
  }
  std::string name() const override { return name_of_call_kind(call_kind_of(x_)); }
  std::string to_string() const override { return x_.to_string(); }

 private:
  const Case x_;
  const Data data_;
};

class LegalCacheCall : public LaidLegalCall<CacheScene> {
 public:
  explicit LegalCacheCall(const CacheCase& x) : x_(x) {
    scene_.emplace(x);
    scene_->lay();
  }
  std::string name() const override { return x_.copies ? "copy_kv" : "store_kv"; }
  std::string to_string() const override { return x_.to_string(); }

 private:
  const CacheCase x_;
};

void arrange_attention(const Case&, AttentionArrangement* how, Rng& rng) {
  how->with_lse = rng.below(4) != 0;
  how->planned = !how->ragged && rng.below(3) == 0;
  how->workspace = rng.below(3) == 0;
}
void arrange_merge(const Case& x, MergeArrangement* how, Rng& rng) {
  how->with_lse = rng.below(4) != 0;
  how->pair = std::get<MergeCase>(x.call).states == 2;
}
void arrange_sparse(const Case&, SparseArrangement* how, Rng& rng) {
  for (bool& ragged : how->ragged) ragged = rng.below(2) == 0;
  how->holes = rng.below(2) == 0, how->with_lse = rng.below(4) != 0;
  how->paged = rng.below(2) == 0, how->row_list = rng.below(2) == 0;
}

/// Few keys: a mutation is no other for more of them.
void make_small(AttentionCase* x) {
  constexpr int32_t kMostKeys = 40, kMostQueries = 6;
  for (RequestExtent& r : x->requests) {
    r.kv_len = std::min(r.kv_len, kMostKeys), r.q_len = std::min(r.q_len, kMostQueries);
    r.prefix_len = std::max(0, r.kv_len - r.q_len);
  }
  x->nan = false;  // a changed call may show it to other rows
}

/// Is a call of it judged in a moment?
bool is_small(const Case& x) {
  constexpr int64_t kMostSteps = 1 << 18, kMostTokens = 24;
  if (x.data == CaseData::kHuge) return false;  // its results are known for its own numbers alone
  if (const auto* a = x.as<AttentionCase>()) {
    int64_t pairs = 0;
    for (const RequestExtent& r : a->requests) pairs += int64_t{r.q_len} * r.kv_len;
    return a->tokens() > 0 && pairs > 0 &&
           pairs * a->num_qo_heads * (a->head_dim_qk + a->head_dim_vo) <= kMostSteps;
  }
  if (const auto* r = x.as<RecurrentCase>())
    return r->tokens() > 0 && r->tokens() <= kMostTokens &&
           r->tokens() * r->num_v_heads * r->head_dim_k * r->head_dim_v <= kMostSteps;
  return x.tokens() > 0 && x.tokens() <= kMostTokens;
}

}  // namespace

std::vector<LegalCallId> legal_calls() {
  std::vector<LegalCallId> calls;
  std::map<size_t, size_t> of_kind;
  // Enough: a call of the rarest kind is one in some hundred
  for (uint64_t number = 0; number < 4000; ++number) {
    Choices choices{Rng::stream(kSeed, number)};
    Case x = generate(choices);
    x.far = false;  // whole pools are compared
    if (auto* attention = std::get_if<AttentionCase>(&x.call)) make_small(attention);
    const size_t kind = call_kind_of(x);
    if (of_kind[kind] == kCallsOfKind || !is_small(x)) continue;
    ++of_kind[kind];
    calls.emplace_back(std::move(x));
  }
  std::stable_sort(calls.begin(), calls.end(), [](const LegalCallId& a, const LegalCallId& b) {
    return call_kind_of(std::get<Case>(a)) < call_kind_of(std::get<Case>(b));
  });
  Rng rng(kSeed);
  for (const bool copies : {false, true}) {
    for (size_t i = 0; i < kCallsOfKind; ++i) calls.emplace_back(CacheCase::drawn(copies, rng));
  }
  return calls;
}

std::unique_ptr<LegalCall> make_legal_call(const LegalCallId& id) {
  if (const auto* cache = std::get_if<CacheCase>(&id))
    return std::make_unique<LegalCacheCall>(*cache);
  const Case& x = std::get<Case>(id);
  const auto make = [&]<class Scene, class How, class Data>(
                        Data (*data)(const Case&), void (*arrange)(const Case&, How*, Rng&)) {
    return std::unique_ptr<LegalCall>(
        std::make_unique<LegalCase<Scene, How, Data>>(x, data, arrange));
  };
  if (x.as<AttentionCase>() != nullptr)
    return make.template operator()<AttentionScene>(make_attention_data, arrange_attention);
  if (x.as<MergeCase>() != nullptr)
    return make.template operator()<MergeScene>(make_merge_data, arrange_merge);
  if (x.as<SparseCase>() != nullptr)
    return make.template operator()<SparseScene>(make_sparse_data, arrange_sparse);
  if (x.as<RecurrentCase>()->call == RecurrentCase::Call::kGate)
    return make.template operator()<GateScene, GateArrangement>(make_gate_data, nullptr);
  return make.template operator()<RecurrentScene, RecurrentArrangement>(make_recurrent_data,
                                                                        nullptr);
}

}  // namespace shadowgraph
