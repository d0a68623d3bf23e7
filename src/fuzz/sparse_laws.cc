#include <algorithm>
#include <cstring>
#include <numeric>

#include "check/compare.h"
#include "core/float_formats.h"
#include "core/laws.h"
#include "fuzz/sparse_scene.h"

namespace shadowgraph {
namespace {

/// The keys of weight 1 in a token's row, of both lists, and what their weights sum to.
struct Chosen {
  std::vector<const float*> keys;
  int64_t denominator = 0;
};

Chosen chosen_of(const SparseCase& x, const SparseData& data, int64_t token) {
  Chosen seen, hot;
  for (int list = 0; list < 2; ++list) {
    const auto l = static_cast<size_t>(list);
    const int64_t end = SparseData::first_key(x, list, token + 1);
    for (int64_t key = SparseData::first_key(x, list, token); key < end; ++key) {
      const float* latent = &data.latents[l][static_cast<size_t>(key * x.head_dim)];
      seen.keys.push_back(latent);
      if (data.hot[l][static_cast<size_t>(key)] != 0) hot.keys.push_back(latent);
    }
  }
  Chosen& all = hot.keys.empty() ? seen : hot;
  all.denominator = std::ssize(all.keys) + (x.sinks && hot.keys.empty() ? 1 : 0);
  return all;
}

/// The mean, rounded to f32 and then to the output's type, as every kernel must.
Status check_exact(const SparseCase& x, const SparseData& data, const SparseAttention& call) {
  Status status;
  for (int64_t token = 0; token < x.tokens(); ++token) {
    const Chosen chosen = chosen_of(x, data, token);
    for (int64_t i = 0; i < x.head_dim_v; ++i) {
      float sum = 0;  // integers of less than 24 bits
      for (const float* latent : chosen.keys) sum += latent[i];
      const float mean = chosen.keys.empty() ? 0 : sum / static_cast<float>(chosen.denominator);
      std::byte expected[4] = {};
      store_float(expected, x.out_dtype, 0, mean);
      for (int64_t head = 0; head < x.heads; ++head) {
        const std::byte* got = call.out.at(token, head, i);
        if (std::memcmp(got, expected, size_of(x.out_dtype)) == 0) continue;
        status.add(make_finding("num.exact", at("out", token, head * x.head_dim_v + i),
                                std::to_string(load_float(expected, x.out_dtype, 0)) +
                                    ", the mean of " + std::to_string(chosen.keys.size()) +
                                    " keys whose weights sum to " +
                                    std::to_string(chosen.denominator),
                                std::to_string(load_float(got, x.out_dtype, 0))));
        return status;
      }
    }
  }
  return status;
}

SparseArrangement as_generated(const SparseCase& x, const RunOptions& options) {
  SparseArrangement how;
  how.seed = x.seed;
  how.page_size = {4, 2};
  how.tokens.resize(static_cast<size_t>(x.tokens()));
  std::iota(how.tokens.begin(), how.tokens.end(), int64_t{0});
  how.options.num_threads = 1;
  how.options.isa = options.isa;
  return how;
}

SparseArrangement vary(const SparseCase& x, const RunOptions& options, Rng& rng) {
  SparseArrangement how = as_generated(x, options);
  how.seed = rng.next();
  for (bool& ragged : how.ragged) ragged = rng.below(2) == 0;
  for (int32_t& size : how.page_size) size = 1 + static_cast<int32_t>(rng.below(17));
  how.holes = rng.below(3) != 0;
  how.with_lse = rng.below(8) != 0;
  shuffle(how.tokens, rng);
  if (rng.below(3) == 0) how.tokens.resize(1);
  how.options = vary_options(options, rng);
  return how;
}

Status compare_bits(const SparseScene& a, const SparseScene& b, const SparseArrangement& how) {
  Status status;
  const TensorView &out = a.call().out, &other = b.call().out;
  const auto bytes = static_cast<size_t>(out.shape[2]) * size_of(out.dtype);
  for (int64_t place = 0; place < std::ssize(how.tokens); ++place) {
    const int64_t token = how.tokens[static_cast<size_t>(place)];
    for (int64_t head = 0; head < out.shape[1]; ++head) {
      const bool same_out = std::memcmp(out.at(token, head), other.at(place, head), bytes) == 0;
      const bool same_lse =
          !how.with_lse || std::memcmp(a.call().lse.tensor.at(token, head),
                                       b.call().lse.tensor.at(place, head), sizeof(float)) == 0;
      if (same_out && same_lse) continue;
      std::string got = "other bits at place " + std::to_string(place) + ", " +
                        std::to_string(how.options.num_threads) + " threads";
      if (!how.options.isa.empty()) got += ", " + std::string(how.options.isa);
      if (how.holes) got += ", -1 between keys";
      status.add(make_finding("num.bits", at(same_out ? "lse" : "out", token, head),
                              "the bits of the case as generated", got));
      return status;
    }
  }
  return status;
}

/// An entry that is no slot: refused, and nothing is written.
Status check_refused(const SparseCase& x, const SparseData& data, const SparseArrangement& how,
                     Rng& rng) {
  Status status;
  SparseScene scene(x, data, how);
  std::vector<int32_t> broken;
  const Status refused = scene.run([&](SparseAttention& call) {
    broken.assign(call.keys.indices.begin(), call.keys.indices.end());
    int64_t token = 0;
    while (token < call.q.shape[0] && call.keys.count(token) == 0) ++token;
    if (token == call.q.shape[0]) {
      call.sm_scale = 0;
    } else {
      const auto at_entry =
          call.keys.begin(token) + rng.below(static_cast<uint32_t>(call.keys.count(token)));
      broken[static_cast<size_t>(at_entry)] =
          rng.below(2) == 0 ? -2 : static_cast<int32_t>(call.keys.pool.slots());
      call.keys.indices = broken;
    }
  });
  if (refused.ok() || !scene.untouched())
    status.add(make_finding("num.write_set", at("out"), "a refusal, and nothing written",
                            refused.ok() ? "not refused" : "writes"));
  return status;
}

}  // namespace

Status check_sparse_case(const SparseCase& x, const RunOptions& options, const SparseSlip& slip) {
  const SparseData data(x);
  const SparseArrangement how = as_generated(x, options);
  SparseScene scene(x, data, how);
  Status status = scene.run(slip);
  if (!status.ok()) return status;
  const SparseAttention& call = scene.call();
  const Result result{call.out, call.lse.tensor, LseBase::kNatural, x.lse_sink};
  status.add(
      judge(AnyCall(call), result, *find_arithmetic("ours_sparse"), {.bounded = true}).findings);
  if (is_exact(x.data)) status.add(check_exact(x, data, call));

  Rng rng = Rng::stream(x.seed, 1);
  const SparseArrangement other = vary(x, options, rng);
  SparseScene again(x, data, other);
  const Status ran = again.run();
  status.add(ran);
  if (ran.ok()) status.add(compare_bits(scene, again, other));
  if (rng.below(8) == 0) status.add(check_refused(x, data, other, rng));
  return status;
}

}  // namespace shadowgraph
