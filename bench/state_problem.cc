#include "bench/state_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/problem.h"
#include "check/bounds/linear_bound.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "core/laws.h"

namespace shadowgraph::bench {
namespace {

constexpr float kStrongestDecay = 0.2F;

std::vector<float> randoms(int64_t n, float low, float high, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  Rng rng(seed);
  for (float& one : x) one = low + (high - low) * (0.5F + 0.5F * rng.signed_unit());
  return x;
}

/// One entry of an axis: the view begins there and holds it alone.
template <class View>
View only(View t, int axis, int64_t at) {
  if (!t.defined() || axis >= t.rank) return t;
  t.data += t.stride[static_cast<size_t>(axis)] * at * static_cast<int64_t>(size_of(t.dtype));
  t.shape[static_cast<size_t>(axis)] = 1;
  return t;
}
template <class View>
View part(View t, int64_t begin, int64_t count) {
  if (!t.defined()) return t;
  t.data += t.stride[0] * begin * static_cast<int64_t>(size_of(t.dtype));
  t.shape[0] = count;
  return t;
}

std::string_view arithmetic_of(const LinearAttention& call) {
  if (call.form == LinearAttention::Form::kRecurrent) return "ours";
  return call.log_decay.rank == 3 ? "ours_chunked_channels" : "ours_chunked";
}

}  // namespace

StateProblem::StateProblem(const Shape& shape, uint64_t seed, int threads, double cold_bytes)
    : shape_(shape) {
  if (shape_.threads == 0) shape_.threads = threads;
  call_.options.num_threads = shape_.threads;
  call_.options.isa = shape_.isa;
  make_inputs(seed);
  const StateDims d = dims_of(shape_.recurrent);
  if (!shape_.hot && shape_.is_decode())
    num_sets_ = std::max<int64_t>(1, std::llround(std::ceil(cold_bytes / kv_bytes_of(shape_))));
  const int64_t slots = num_sets_ * shape_.batch;
  const bool by_value = shape_.recurrent != Recurrent::kLightning;
  if (!by_value) call_.order = LinearAttention::StateOrder::kKeyValue;
  states_ = random_memory(slots * d.num_v_heads * d.head_dim_k * d.head_dim_v, DType::kF32,
                          seed + 7, shape_.threads);
  call_.states = TensorView(states_.data(), DType::kF32,
                            {slots, d.num_v_heads, by_value ? d.head_dim_v : d.head_dim_k,
                             by_value ? d.head_dim_k : d.head_dim_v});
  slots_.resize(static_cast<size_t>(slots));
  std::iota(slots_.begin(), slots_.end(), 0);
  Rng rng(seed);
  shuffle(slots_, rng);
  for (int32_t i = 0; i <= shape_.batch; ++i) cu_seqlens_q_.push_back(i * shape_.q_len);
  call_.rows.cu_seqlens_q = cu_seqlens_q_;
  if (!shape_.is_decode()) call_.form = LinearAttention::Form::kChunked;
}

void StateProblem::make_inputs(uint64_t seed) {
  const StateDims d = dims_of(shape_.recurrent);
  const int64_t tokens = int64_t{shape_.batch} * shape_.q_len;
  const auto tensor = [&](HugeMemory& owner, uint64_t s, int64_t heads, int64_t dim) {
    owner = random_memory(tokens * heads * dim, shape_.dtype, s, shape_.threads);
    return TensorView(owner.data(), shape_.dtype, {tokens, heads, dim});
  };
  call_.q = tensor(q_, seed, d.num_k_heads, d.head_dim_k);
  call_.k = tensor(k_, seed + 1, d.num_k_heads, d.head_dim_k);
  call_.v = tensor(v_, seed + 2, d.num_v_heads, d.head_dim_v);
  call_.out = tensor(out_, seed + 3, d.num_v_heads, d.head_dim_v);
  const bool heads_alone = shape_.recurrent == Recurrent::kLightning;
  const bool channels = shape_.recurrent == Recurrent::kKda;
  const int64_t decays = d.num_v_heads * (heads_alone ? 1 : tokens) * (channels ? d.head_dim_k : 1);
  log_decay_ = randoms(decays, -kStrongestDecay, 0, seed + 4);
  const float* g = log_decay_.data();
  call_.log_decay = heads_alone ? ConstTensorView(g, DType::kF32, {d.num_v_heads})
                    : channels
                        ? ConstTensorView(g, DType::kF32, {tokens, d.num_v_heads, d.head_dim_k})
                        : ConstTensorView(g, DType::kF32, {tokens, d.num_v_heads});
  if (!heads_alone) {
    beta_ = randoms(tokens * d.num_v_heads, 0, 1, seed + 5);
    call_.beta = ConstTensorView(beta_.data(), DType::kF32, {tokens, d.num_v_heads});
  }
  if (shape_.recurrent == Recurrent::kMamba2) {
    skip_ = randoms(d.num_v_heads, -1, 1, seed + 6);
    call_.skip = ConstTensorView(skip_.data(), DType::kF32, {d.num_v_heads});
  } else {
    call_.scale = 1 / std::sqrt(static_cast<float>(d.head_dim_k));
  }
  call_.l2norm = d.delta;
  if (d.delta) call_.rule = LinearAttention::Rule::kDelta;
}

Status StateProblem::run() {
  const auto batch = static_cast<size_t>(shape_.batch);
  call_.rows.state_indices = std::span(slots_).subspan(static_cast<size_t>(next_) * batch, batch);
  next_ = (next_ + 1) % num_sets_;
  return linear_attention(call_);
}

/// The last call at one head of one request, with the state before it.
struct StateProblem::OneHead {
  OneHead(const LinearAttention& all, int64_t row, int64_t head) : call(all) {
    const int64_t begin = all.rows.begin(row), tokens = all.rows.tokens(row);
    const int64_t k_head = head / (all.v.shape[1] / all.k.shape[1]);
    for (auto* t : {&call.q, &call.k}) *t = only(part(*t, begin, tokens), 1, k_head);
    call.v = only(part(call.v, begin, tokens), 1, head);
    call.out = only(part(call.out, begin, tokens), 1, head);
    call.beta = only(part(call.beta, begin, tokens), 1, head);
    if (all.log_decay.rank == 1) {
      call.log_decay = only(all.log_decay, 0, head);
    } else {
      call.log_decay = only(part(all.log_decay, begin, tokens), 1, head);
    }
    call.skip = only(call.skip, 0, head);
    call.states = only(only(all.states, 0, all.rows.slot(row)), 1, head);
    const int64_t size = call.states.shape[2] * call.states.shape[3];
    const auto* state = reinterpret_cast<const float*>(call.states.data);
    before.assign(state, state + size);
    cu_seqlens_q[1] = static_cast<int32_t>(tokens);
    call.rows.cu_seqlens_q = cu_seqlens_q, call.rows.state_indices = slot;
  }
  OneHead(const OneHead&) = delete;
  OneHead& operator=(const OneHead&) = delete;

  /// How many bounds the worst number is away, of out and of the state.
  double worst() {
    LinearAttention truth = call;
    truth.states.data = reinterpret_cast<std::byte*>(before.data());
    const GateTruth gates;
    LinearBounds bounds(truth, *find_recurrent_arithmetic(arithmetic_of(call)), gates, {});
    double most = 0;
    const auto judge = [&most](double got, double right, double allowed) {
      const double off = got == right ? 0 : std::abs(got - right) / allowed;
      if (!(off <= most) && !std::isnan(most)) most = off;  // a NaN stays
    };
    for_each_step(truth, gates, [&](const LinearStep& step) {
      const StepBound& bound = bounds.of(step);
      const bool last = step.in_row + 1 == cu_seqlens_q[1];
      for (int64_t v = 0; v < step.v.size(); ++v) {
        judge(load_float(call.out.at(step.token, 0, v), call.out.dtype, 0), step.out[v],
              with_rounding(step.out[v], bound.out[v], call.out.dtype));
        for (int64_t k = 0; last && k < step.k.size(); ++k) {
          const bool by_value = call.order == LinearAttention::StateOrder::kValueKey;
          const double right = (*step.after)(v, k);
          judge(
              load_float(call.states.at(0, 0, by_value ? v : k, by_value ? k : v), DType::kF32, 0),
              right, with_rounding(right, bound.state[v], DType::kF32));
        }
      }
    });
    return most;
  }

  LinearAttention call;
  std::vector<float> before;
  int32_t cu_seqlens_q[2] = {0, 0}, slot[1] = {0};
};

Status StateProblem::check(void (*spoil)(const LinearAttention&)) {
  OneHead first(call_, 0, 0), last(call_, shape_.batch - 1, call_.v.shape[1] - 1);
  Status status = linear_attention(call_);
  if (!status.ok()) return status;
  if (spoil != nullptr) spoil(call_);
  for (OneHead* one : {&first, &last}) {
    const double worst = one->worst();
    if (worst <= 1) continue;
    status.add(make_finding("num.bound", at("out"), "within the derived bound of the oracle",
                            fmt::format("{:.3g} times it", worst)));
  }
  return status;
}

}  // namespace shadowgraph::bench
