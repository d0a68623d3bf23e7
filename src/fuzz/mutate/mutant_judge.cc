#include "fuzz/mutate/mutant_judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "attn/validate/validate.h"
#include "attn/validate/validate_compress.h"
#include "attn/validate/validate_indexer.h"
#include "attn/validate/validate_recurrent.h"
#include "attn/validate/validate_sparse.h"
#include "check/bounds/compare.h"
#include "check/bounds/linear_bound.h"
#include "check/bounds/recurrent_compare.h"
#include "core/float_formats.h"
#include "fuzz/call/gapped.h"
#include "fuzz/call/gate_laws.h"
#include "fuzz/call/recurrent_laws.h"
#include "fuzz/call/sparse_laws.h"

namespace shadowgraph {
namespace {

/// A copy of a view's elements.
struct Copied {
  std::vector<std::byte> bytes;
  TensorView view;

  explicit Copied(const ConstTensorView& t) {
    if (!t.defined()) return;
    bytes = gather(t);
    view.data = bytes.data(), view.dtype = t.dtype, view.rank = t.rank, view.shape = t.shape;
    int64_t stride = 1;
    for (auto axis = static_cast<size_t>(t.rank); axis-- > 0; stride *= t.shape[axis])
      view.stride[axis] = stride;
  }
};

// ---- dense attention

Result result_of(const TensorView& out, const TensorView& lse, const CallOptions& options) {
  return {out, lse, LseBase::kNatural, options.lse_sink};
}

template <class Call>
Status judge_whole(const Call& call) {
  const bool fast = call.options.arith == Arith::kFast;
  return judge(AnyCall(call), result_of(call.out, call.lse.tensor, call.options),
               *find_arithmetic(fast ? "ours_fast" : "ours_portable"), {.any_for_nan = true})
      .findings;
}

/// The first rows of each request are those of the call of all rows: what is there of them stands
/// in for these, and the whole is judged.
template <class Call>
Status judge_first_rows(const Call& call) {
  Copied out(call.out), lse(call.lse.tensor);
  Call whole = call;
  whole.max_seqlen_q = 0, whole.out = out.view, whole.options.scratch = {};
  if constexpr (requires { whole.plan; }) whole.plan = {};
  if (lse.view.defined()) whole.lse = NaturalLse(lse.view);
  Status status = execute(AttentionCall(whole));
  if (!status.ok()) return status;
  const auto take = [&](const TensorView& to, const TensorView& from, int64_t row) {
    if (to.defined() && from.defined())
      scatter(gather(at_place(ConstTensorView(from), row)), at_place(to, row));
  };
  const auto rows = call.cu_seqlens_q;
  const std::span<const int32_t> used = call.params.terms.seqused_q;
  for (size_t r = 0; r + 1 < rows.size(); ++r) {
    const int32_t there = used.empty() ? rows[r + 1] - rows[r] : used[r];
    for (int64_t row = rows[r]; row < rows[r] + std::min(there, call.max_seqlen_q); ++row)
      take(whole.out, call.out, row), take(whole.lse.tensor, call.lse.tensor, row);
  }
  for (int64_t row = 0; rows.empty() && row < call.out.shape[0]; ++row)
    take(whole.out, call.out, row), take(whole.lse.tensor, call.lse.tensor, row);
  return judge_whole(whole);
}

// ---- merges

/// Two states as an array of states, in f32.
template <LseBase Base>
struct AsStates {
  std::vector<float> v, s;
  MergeStates<Base> call;

  explicit AsStates(const MergeState<Base>& c) {
    const int64_t rows = c.v_a.shape[0], heads = c.v_a.shape[1], dim = c.v_a.shape[2];
    for (int64_t row = 0; row < rows; ++row) {
      for (const auto& [values, sums] : {std::pair(c.v_a, c.s_a), {c.v_b, c.s_b}}) {
        for (int64_t i = 0; i < heads * dim; ++i)
          v.push_back(static_cast<float>(element(values, row * heads * dim + i)));
        for (int64_t h = 0; h < heads; ++h)
          s.push_back(static_cast<float>(element(sums, row * heads + h)));
      }
    }
    call.v = {v.data(), DType::kF32, {rows, 2, heads, dim}};
    call.s = {s.data(), DType::kF32, {rows, 2, heads}};
    call.out = c.out, call.lse = c.lse;
  }
};

template <LseBase Base>
Status judge_merged(const MergeStates<Base>& c) {
  return judge(c, Result{c.out, c.lse.tensor, Base}, *find_arithmetic("ours_portable"),
               {.any_for_nan = true})
      .findings;
}
template <LseBase Base>
Status judge_merged(const MergeState<Base>& c) {
  return judge_merged(AsStates<Base>(c).call);
}

// ---- caches

/// The bits that a token's head has in a plane, and its scale.
struct StoredHead {
  std::vector<std::byte> bytes;
  float scale = 0;

  static StoredHead of(const KvPlane& p, int64_t page, int64_t token, int64_t head) {
    StoredHead stored;
    const size_t size = size_of(p.dtype);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      const std::byte* at = p.data + p.offset(page, token, head, d) * static_cast<int64_t>(size);
      stored.bytes.insert(stored.bytes.end(), at, at + size);
    }
    if (p.scales != nullptr) stored.scale = p.scales[p.scale_offset(page, token, head)];
    return stored;
  }
  /// StoreKv's comment says it; plane_scale: k_scale or v_scale.
  static StoredHead of(const std::vector<float>& values, DType type, float plane_scale) {
    StoredHead stored;
    stored.bytes.resize(values.size() * size_of(type));
    float largest = 0;
    bool finite = true;
    for (const float value : values) {
      const float x = value / plane_scale;
      largest = std::max(largest, std::abs(x)), finite = finite && std::isfinite(x);
    }
    if (type == DType::kI8)
      stored.scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 0; i < values.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      if (type != DType::kI8) {
        store_float(stored.bytes.data(), type, place, values[i] / plane_scale);
      } else if (stored.scale > 0) {
        stored.bytes[i] = static_cast<std::byte>(encode_i8(values[i] / plane_scale / stored.scale));
      }
    }
    return stored;
  }
  bool is(const StoredHead& other) const {
    const bool same_scale = scale == other.scale || (std::isnan(scale) && std::isnan(other.scale));
    return bytes == other.bytes && same_scale;
  }
};

void compare_heads(const char* field, int64_t row, int64_t head, const StoredHead& got,
                   const StoredHead& right, Status* status) {
  judged("num.exact");
  if (got.is(right) || !status->ok()) return;
  status->add(
      make_finding("num.exact", at(field, row, head), "the bits of what is stored", "others"));
}

Status judge_cache(const StoreKv& c) {
  Status status;
  const KvCache& cache = c.cache;
  const auto compare = [&](const char* field, const KvPlane& p, const ConstTensorView& from,
                           float scale, int64_t t) {
    const int64_t slot = c.out_cache_loc[static_cast<size_t>(t)];
    for (int64_t head = 0; head < cache.num_kv_heads; ++head) {
      std::vector<float> values;
      for (int64_t d = 0; d < p.head_dim; ++d)
        values.push_back(load_float(from.at(t, head, d), from.dtype, 0));
      compare_heads(field, t, head,
                    StoredHead::of(p, slot / cache.page_size, slot % cache.page_size, head),
                    StoredHead::of(values, p.dtype, scale), &status);
    }
  };
  for (int64_t t = 0; t < std::ssize(c.out_cache_loc); ++t) {
    if (c.drops(c.out_cache_loc[static_cast<size_t>(t)])) continue;
    compare("k_cache", cache.k, c.k, cache.k_scale, t);
    if (!c.is_latent()) compare("v_cache", cache.v, c.v, cache.v_scale, t);
  }
  return status;
}

Status judge_cache(const CopyKv& c) {
  Status status;
  const int64_t pages = c.whole_pool ? c.source.num_pages : std::ssize(c.source_pages);
  for (int64_t i = 0; i < pages; ++i) {
    const auto place = static_cast<size_t>(i);
    const int64_t from = c.whole_pool ? i : c.source_pages[place];
    const int64_t to = c.whole_pool ? i : c.target_pages[place];
    for (int64_t token = 0; token < c.source.page_size; ++token) {
      for (int64_t head = 0; head < c.source.num_kv_heads; ++head) {
        compare_heads("target k_cache", to, head, StoredHead::of(c.target.k, to, token, head),
                      StoredHead::of(c.source.k, from, token, head), &status);
        compare_heads("target v_cache", to, head, StoredHead::of(c.target.v, to, token, head),
                      StoredHead::of(c.source.v, from, token, head), &status);
      }
    }
  }
  return status;
}

}  // namespace

/// fn(tensor) of each that a call reads and overwrites.
template <class AnyCall, class Fn>
void for_each_overwritten(AnyCall& call, const Fn& fn) {
  std::visit(
      [&](auto& c) {
        if constexpr (requires { c.states; }) fn(c.states);
        if constexpr (requires { c.state; }) fn(c.state);
      },
      call);
}

template <class AnyCall>
CallBefore<AnyCall>::CallBefore(const AnyCall& call) : call_(call) {
  for_each_overwritten(call_, [this](TensorView& t) { keep(&t); });
}

template <class AnyCall>
Footprint CallBefore<AnyCall>::copied(const AnyCall& call) {
  Footprint spans;
  for_each_overwritten(call, [&](const TensorView& t) {
    if (t.defined())
      spans.push_back({t.data, 0, elements_between(t), static_cast<uint32_t>(size_of(t.dtype)),
                       Access::kRead, -1});
  });
  return spans;
}

template <class AnyCall>
void CallBefore<AnyCall>::keep(TensorView* t) {
  if (!t->defined()) return;
  Copied copy(*t);
  bytes_.push_back(std::move(copy.bytes));
  *t = copy.view;
  t->data = bytes_.back().data();
}

template class CallBefore<AttentionCall>;
template class CallBefore<MergeCall>;
template class CallBefore<StateCall>;
template class CallBefore<GateCall>;
template class CallBefore<SparseCall>;
template class CallBefore<CacheCall>;

Status judge_mutant(const AttentionCall& call, const AttentionCall&) {
  return std::visit(
      [](const auto& c) { return c.max_seqlen_q > 0 ? judge_first_rows(c) : judge_whole(c); },
      call);
}
Status judge_mutant(const MergeCall& call, const MergeCall&) {
  return std::visit([](const auto& c) { return judge_merged(c); }, call);
}
Status judge_mutant(const StateCall& call, const StateCall& before) {
  return judge_taken(call, before);
}
Status judge_mutant(const GateCall& call, const GateCall&) {
  return judge_taken(std::get<DecayGate>(call), false);
}
Status judge_mutant(const SparseCall& call, const SparseCall& before) {
  return judge_taken(call, before);
}
Status judge_mutant(const CacheCall& call, const CacheCall&) {
  return std::visit([](const auto& c) { return judge_cache(c); }, call);
}

namespace {
constexpr auto kValidate = [](const auto& c) { return validate(c); };
}  // namespace

Status validate_any(const AttentionCall& call) { return std::visit(kValidate, call); }
Status validate_any(const MergeCall& call) { return std::visit(kValidate, call); }
Status validate_any(const StateCall& call) { return std::visit(kValidate, call); }
Status validate_any(const GateCall& call) { return std::visit(kValidate, call); }
Status validate_any(const SparseCall& call) { return std::visit(kValidate, call); }
Status validate_any(const CacheCall& call) { return std::visit(kValidate, call); }

}  // namespace shadowgraph
