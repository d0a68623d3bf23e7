#include "fuzz/call/sparse_judge.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "attn/index_page.h"
#include "check/bounds/compare.h"
#include "check/bounds/compress_bound.h"
#include "check/bounds/indexer_bound.h"
#include "check/bounds/linear_bound.h"
#include "check/bounds/rounding.h"
#include "check/bounds/sparse_compare.h"
#include "core/laws.h"
#include "fuzz/call/sparse_exact.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// A number of the oracle's as it must stand in a type, where it is known bit for bit: rounded to
/// f32, then to the type, as every kernel does.
double as_stored(double x, DType t) {
  std::byte bytes[4] = {};
  store_float(bytes, t, 0, static_cast<float>(x));
  return load_float(bytes, t, 0);
}

/// Judges each kind of call. In `truth`, memory that a call stores into is as it was before the
/// call.
class Judge {
 public:
  /// exact: the Case, if its data is.
  Judge(const Case* exact, const SparseCall& call, const SparseCall& truth,
        const JudgeOptions& attention)
      : exact_(exact),
        law_(exact != nullptr ? LawId("num.exact") : LawId("num.bound")),
        call_(call),
        truth_(truth),
        attention_(attention) {}
  Status run() {
    std::visit([this](const auto& call) { judge_call(call); }, call_);
    return std::move(status_);
  }

 private:
  template <class Call>
  Call truth() const {
    return std::get<Call>(truth_);
  }
  /// A row of a block of channels against the oracle's; bound: before the last rounding.
  void take_row(ArrayJudge* j, const ConstTensorView& out, int64_t row, const Eigen::ArrayXd& right,
                const Eigen::ArrayXd& bound) const {
    for (int64_t c = 0; c < right.size(); ++c) {
      const double got = element(out, row * right.size() + c);
      if (exact_ != nullptr) {
        j->take(row, c, got, as_stored(right[c], out.dtype), 0);
      } else {
        j->take(row, c, got, right[c], with_rounding(right[c], bound[c], out.dtype));
      }
    }
  }

  void judge_call(const SparseAttention& call) {
    const Result result{call.out, call.lse.tensor, LseBase::kNatural, call.options.lse_sink};
    status_.add(judge(AnyCall(call), result, *find_arithmetic("ours_sparse"), attention_).findings);
    if (exact_ != nullptr) status_.add(check_exact_attention(*exact_, call));
  }

  void judge_call(const PackLatents& call) {
    LatentJudges j(law_, "pool.");
    compare_latents(call, call.pool, 0, &j);
    j.add_to(&status_);
    ArrayJudge values(law_, "pool");
    for (int64_t t = 0; t < std::ssize(call.out_cache_loc); ++t) {
      const int64_t slot = call.out_cache_loc[static_cast<size_t>(t)];
      if (call.drops(slot) || call.pool.layout != LatentLayout::kV4) continue;
      values.take(t, kV4Scales - 1, latent_scale(call.pool, slot, kV4Scales - 1), 0, 0);
    }
    for (int64_t t = 0; t < std::ssize(call.out_cache_loc) && exact_ != nullptr; ++t) {
      const int64_t slot = call.out_cache_loc[static_cast<size_t>(t)];
      if (call.drops(slot)) continue;
      const std::vector<double> latent = latent_of(call.pool, slot);
      for (int64_t i = 0; i < std::ssize(latent); ++i)
        values.take(t, i, latent[static_cast<size_t>(i)],
                    element(call.latents, t * std::ssize(latent) + i), 0);
    }
    values.add_to(&status_);
  }

  void judge_call(const ActQuant& call) {
    ArrayJudge scale(law_, "scale"), y(law_, "y");
    compare_blocks(call, call.y, call.scale, 0x1p-24, &scale, &y);
    // Quantising integers times 2^k, the largest of them 448 of these, loses nothing.
    for (int64_t i = 0; i < call.x.numel() && exact_ != nullptr; ++i)
      y.take(i / call.x.shape[1], i % call.x.shape[1],
             element(call.y, i) * element(call.scale, i / kIndexDim), element(call.x, i), 0);
    scale.add_to(&status_), y.add_to(&status_);
  }

  // ---- keys of the indexer: copies

  void same_key(const std::byte* key, const std::byte* scale, const std::byte* right,
                const std::byte* right_scale, int64_t row, const char* field) {
    const bool same = std::memcmp(key, right, kIndexDim) == 0 &&
                      std::memcmp(scale, right_scale, sizeof(float)) == 0;
    if (!same) status_.add(make_finding("num.exact", at(field, row), "a copy", "other bytes"));
  }
  void judge_call(const StoreIndexKeys& call) {
    for (int64_t t = 0; t < std::ssize(call.out_cache_loc) && status_.ok(); ++t) {
      const int64_t slot = call.out_cache_loc[static_cast<size_t>(t)];
      if (call.drops(slot)) continue;
      const std::byte* page = call.pages.at(slot / 64);
      same_key(page + slot % 64 * 128, page + 8192 + slot % 64 * 4, call.k.at(t),
               call.k_scale.at(t), t, "pages");
    }
  }
  void judge_call(const GatherIndexKeys& call) {
    for (size_t r = 0; r + 1 < call.cu_seqlens_k.size() && status_.ok(); ++r) {
      for (int64_t key = call.cu_seqlens_k[r]; key < call.cu_seqlens_k[r + 1]; ++key) {
        const int64_t s = key - call.cu_seqlens_k[r];
        const std::byte* page =
            call.pages.at(load_i32(call.page_table, static_cast<int64_t>(r), s / 64));
        same_key(call.k.at(key), call.k_scale.at(key), page + s % 64 * 128,
                 page + 8192 + s % 64 * 4, key, "k");
      }
    }
  }

  // ---- scores and choices

  void judge_call(const IndexerLogits& call) {
    ArrayJudge seen(law_, "logits"), unseen("num.exact", "logits");
    const int64_t width = call.logits.shape[1];
    for (int64_t t = 0; t < call.tokens(); ++t) {
      for (int64_t s = 0; s < width; ++s) {
        const double got = element(call.logits, t * width + s);
        if (s < call.first(t) || s >= call.last(t)) {
          unseen.take(t, s, got, -kInfinity, 0);
          continue;
        }
        const IndexScore score = index_score(call, t, s);
        const double bound = score_bound(score, call.q.shape[1], {});
        seen.take(t, s, got, score.score,
                  exact_ != nullptr ? 0 : with_rounding(score.score, bound, DType::kF32));
      }
    }
    seen.add_to(&status_), unseen.add_to(&status_);
  }

  void judge_call(const SelectIndices& call) {
    ArrayJudge j("num.exact", "indices");
    const int64_t width = call.logits.shape[1], topk = call.indices.shape[1];
    for (int64_t t = 0; t < call.logits.shape[0]; ++t) {
      const auto i = static_cast<size_t>(t);
      std::vector<double> scores;
      for (int64_t s = call.ks.empty() ? 0 : call.ks[i]; s < call.ke[i]; ++s)
        scores.push_back(element(call.logits, t * width + s));
      std::vector<int32_t> right = largest_places(scores, topk);
      right.resize(static_cast<size_t>(topk), -1);
      for (int64_t k = 0; k < topk; ++k)
        j.take(t, k, load_i32(call.indices, t, k), right[static_cast<size_t>(k)], 0);
    }
    j.add_to(&status_);
  }

  void judge_call(const TransformIndices& call) {
    ArrayJudge j("num.exact", "out");
    for (int64_t t = 0; t < call.out.shape[0]; ++t) {
      for (int64_t k = 0; k < call.out.shape[1]; ++k) {
        const int32_t index = load_i32(call.indices, t, k);
        int32_t right = -1;
        if (index >= 0 && call.page_table_1.defined()) {
          right = load_i32(call.page_table_1, call.row(t), index);
        } else if (index >= 0) {
          right = index + call.offsets[static_cast<size_t>(t)];
        }
        j.take(t, k, load_i32(call.out, t, k), right, 0);
      }
    }
    j.add_to(&status_);
  }

  void judge_call(const CompactIndices& call) {
    ArrayJudge j("num.exact", "kv_indices");
    int64_t place = 0;
    for (int64_t t = 0; t < call.indices.shape[0]; ++t) {
      for (int64_t k = 0; k < call.indices.shape[1]; ++k) {
        const int32_t index = load_i32(call.indices, t, k);
        if (index >= 0) j.take(place, 0, call.kv_indices[static_cast<size_t>(place)], index, 0);
        place += index >= 0 ? 1 : 0;
      }
    }
    j.add_to(&status_);
  }

  // ---- the compressor

  void judge_call(const Compress& call) {
    ArrayJudge out(law_, "out"), state("num.exact", "state");
    const std::vector<float> right =
        compress_truth(truth<Compress>(), [&](int64_t token, const PoolTruth& pool) {
          take_row(&out, call.out, token, pool.pooled, pool_bound(pool, {}));
        });
    const int64_t of_row = call.state.shape[2];
    for (int64_t i = 0; i < std::ssize(right); ++i)
      state.take(i / of_row, i % of_row, element(call.state, i), right[static_cast<size_t>(i)], 0);
    out.add_to(&status_), state.add_to(&status_);
  }

  template <class Norm>
  void take_norm(ArrayJudge* j, const Norm& call, int64_t row, const Eigen::ArrayXd& x,
                 const Eigen::ArrayXd& before) {
    const NormTruth norm = norm_truth(x, call.weight, call.eps, call.freqs, row);
    take_row(j, call.out, row, norm.out,
             norm_bound(norm, before, call.weight, call.freqs, row, {}));
  }
  void judge_call(const PoolNormRope& call) {
    ArrayJudge out(law_, "out");
    for (int64_t block = 0; block < call.out.shape[0]; ++block) {
      const PoolTruth pool = pool_truth(call, block);
      take_norm(&out, call, block, pool.pooled, pool_bound(pool, {}));
    }
    out.add_to(&status_);
  }
  void judge_call(const NormRope& call) {
    ArrayJudge out(law_, "out");
    const int64_t dim = call.out.shape[1];
    for (int64_t row = 0; row < call.out.shape[0]; ++row) {
      Eigen::ArrayXd x(dim);
      for (int64_t c = 0; c < dim; ++c) x[c] = element(call.x, row * dim + c);
      take_norm(&out, call, row, x, Eigen::ArrayXd::Zero(dim));
    }
    out.add_to(&status_);
  }

  const Case* const exact_;
  const LawId law_;
  const SparseCall& call_;
  const SparseCall truth_;
  const JudgeOptions attention_;
  Status status_;
};

}  // namespace

Status judge_sparse(const Case& x, const SparseScene& scene) {
  return Judge(is_exact(x.data) ? &x : nullptr, scene.call(), scene.truth(), {.bounded = true})
      .run();
}

Status judge_taken(const SparseCall& call, const SparseCall& truth) {
  return Judge(nullptr, call, truth, {.any_for_nan = true}).run();
}

}  // namespace shadowgraph
