// Judges recorded results of the indexer: keys, scores and choices.
#include "attn/index_page.h"
#include "check/indexer_bound.h"
#include "check/linear_judge.h"
#include "check/rounding.h"
#include "check/sparse_compare.h"

namespace shadowgraph {
namespace {

class IndexerJudge : public LinearCaseJudge {
 public:
  using LinearCaseJudge::LinearCaseJudge;

  void judge() {
    std::visit([this](const auto& c) { judge_case(c); }, std::get<IndexerCase>(vector_.call));
  }

 private:
  // ---- activations

  void judge_case(const ActQuantCase& c) {
    ActQuant call = c.call;
    call.y = memory_.of(call.y), call.scale = memory_.of(call.scale);
    if (!take_refused(act_quant(call))) return;
    verdict_.rows += call.x.shape[0];
    // An f32 product with a rounded constant; the recorded quotient is one of approximate division,
    // within two ulp.
    judge_blocks(c.call, call.y, call.scale, 0x1p-24, "num.bound", "ours.", &verdict_.ours.out);
    judge_blocks(c.call, c.y, c.scale, 0x1p-22, "num.recorded", "gpu.", &verdict_.gpu.out);
    ArrayJudge reference("num.reference", "ref.scale");
    for (int64_t i = 0; i < c.scale_ref.numel(); ++i) {
      const double amax = largest_of_block(c.call, i), right = block_scale(amax, c.call.ue8m0);
      // A reference's floor may not have been rounded to f32.
      const double error = right * (amax < kLeastAmax ? 0x1p-24 : 0x1p-52);
      take_block(&reference, c.scale_ref, i, right, with_rounding(right, error, c.scale_ref.dtype));
    }
    settle(reference, &verdict_.reference.out);
  }

  static void take_block(ArrayJudge* j, const ConstTensorView& t, int64_t block, double right,
                         double bound) {
    j->take(block / t.shape[1], block % t.shape[1], element(t, block), right, bound);
  }

  void judge_blocks(const ActQuant& call, const ConstTensorView& y, const ConstTensorView& scale,
                    double quotient, LawId law, const std::string& who,
                    std::optional<double>* ratio) {
    ArrayJudge scales(law, who + "scale"), values(law, who + "y");
    compare_blocks(call, y, scale, quotient, &scales, &values);
    settle(scales, ratio), settle(values, ratio);
  }

  // ---- pages

  void judge_case(const IndexKeysCase& c) {
    StoreIndexKeys store = c.store;
    store.pages = memory_.of(store.pages);
    copy_elements(c.before, store.pages);
    GatherIndexKeys gather = c.gather;
    gather.k = memory_.of(gather.k), gather.k_scale = memory_.of(gather.k_scale);
    if (!take_refused(store_index_keys(store)) || !take_refused(gather_index_keys(gather))) return;
    verdict_.rows += std::ssize(store.out_cache_loc);
    // What is right is made byte by byte, by the layout.
    std::vector<std::byte> right(c.before.data, c.before.data + c.before.numel());
    for (int64_t t = 0; t < std::ssize(store.out_cache_loc); ++t) {
      const int64_t slot = store.out_cache_loc[static_cast<size_t>(t)];
      std::byte* page = right.data() + slot / kIndexPageTokens * kIndexPageBytes;
      const int64_t in_page = slot % kIndexPageTokens;
      std::memcpy(page + in_page * kIndexDim, store.k.at(t), kIndexDim);
      std::memcpy(page + kIndexPageTokens * kIndexDim + in_page * 4, store.k_scale.at(t), 4);
    }
    same_pages(store.pages, right, "num.bound", "ours.pages", &verdict_.ours.out);
    same_pages(c.after, right, "num.recorded", "gpu.pages", &verdict_.gpu.out);
    same_pages(c.reference, right, "num.reference", "ref.pages", &verdict_.reference.out);
    same_keys(c, gather.k, gather.k_scale, "num.bound", "ours.", &verdict_.ours.out);
    same_keys(c, c.k, c.k_scale, "num.recorded", "gpu.", &verdict_.gpu.out);
  }

  void same_pages(const ConstTensorView& got, const std::vector<std::byte>& right, LawId law,
                  const std::string& field, std::optional<double>* ratio) {
    ArrayJudge j(law, field);
    for (int64_t i = 0; i < std::ssize(right); ++i)
      j.take(i / kIndexPageBytes, i % kIndexPageBytes, std::to_integer<int>(got.data[i]),
             std::to_integer<int>(right[static_cast<size_t>(i)]), 0);
    settle(j, ratio);
  }

  /// What is gathered is what the pages hold.
  void same_keys(const IndexKeysCase& c, const ConstTensorView& k, const ConstTensorView& k_scale,
                 LawId law, const std::string& who, std::optional<double>* ratio) {
    ArrayJudge keys(law, who + "k"), scales(law, who + "k_scale");
    const auto& cu = c.gather.cu_seqlens_k;
    for (int64_t row = 0; row + 1 < std::ssize(cu); ++row)
      for (int64_t key = cu[static_cast<size_t>(row)]; key < cu[static_cast<size_t>(row) + 1];
           ++key) {
        const int64_t s = key - cu[static_cast<size_t>(row)];
        const std::byte* page =
            c.after.at(load_i32(c.gather.page_table, row, s / kIndexPageTokens));
        const std::byte* from = page + s % kIndexPageTokens * kIndexDim;
        for (int64_t i = 0; i < kIndexDim; ++i)
          keys.take(key, i, std::to_integer<int>(*k.at(key, i)), std::to_integer<int>(from[i]), 0);
        const std::byte* scale = page + kIndexPageTokens * kIndexDim + s % kIndexPageTokens * 4;
        for (int64_t i = 0; i < 4; ++i)
          scales.take(key, i, std::to_integer<int>(k_scale.at(key)[i]),
                      std::to_integer<int>(scale[i]), 0);
      }
    settle(keys, ratio), settle(scales, ratio);
  }

  // ---- scores

  void judge_case(const IndexerLogitsCase& c) {
    IndexerLogits call = c.call;
    call.logits = memory_.of(call.logits);
    if (!take_refused(indexer_logits(call))) return;
    verdict_.rows += call.tokens();
    const IndexerArithmetic* recorded = find_indexer_arithmetic(vector_.kernel);
    if (recorded == nullptr)
      verdict_.findings.add(make_finding("num.recorded", at("kernel"),
                                         "a line of indexer_arithmetics.inc", vector_.kernel));
    ArrayJudge ours("num.bound", "ours.logits"), gpu("num.recorded", "gpu.logits");
    ArrayJudge reference("num.reference", "ref.logits"), unseen("num.bound", "ours.logits");
    const int64_t heads = call.q.shape[1], width = call.logits.shape[1];
    for (int64_t t = 0; t < call.tokens(); ++t) {
      std::vector<double> right, of_reference;
      for (int64_t s = 0; s < width; ++s) {
        const int64_t flat = t * width + s;
        if (s < call.first(t) || s >= call.last(t)) {
          unseen.take(t, s, element(call.logits, flat), -std::numeric_limits<double>::infinity(),
                      0);
          continue;
        }
        const IndexScore score = index_score(c.call, t, s);
        const auto within = [&](const IndexerArithmetic& a, DType type) {
          return with_rounding(score.score, score_bound(score, heads, a), type);
        };
        right.push_back(score.score);
        of_reference.push_back(within({}, c.reference.dtype));
        ours.take(t, s, element(call.logits, flat), score.score, within({}, DType::kF32));
        if (recorded != nullptr)
          gpu.take(t, s, element(c.logits, flat), score.score, within(*recorded, DType::kF32));
        reference.take(t, s, element(c.reference, flat), score.score, of_reference.back());
      }
      judge_choice(c, t, right, of_reference);
    }
    settle(ours, &verdict_.ours.out), settle(unseen, &verdict_.ours.out);
    settle(gpu, &verdict_.gpu.out), settle(reference, &verdict_.reference.out);
    choose_ours(c, call);
  }

  /// The reference's choice is the oracle's, but where two scores are nearer than its bound tells.
  void judge_choice(const IndexerLogitsCase& c, int64_t token, const std::vector<double>& right,
                    const std::vector<double>& bound) {
    std::vector<int32_t> given;
    for (int64_t j = 0; j < c.topk_ref.shape[1]; ++j)
      given.push_back(load_i32(c.topk_ref, token, j));
    take_choice("num.reference", "ref.topk", token, given, right, bound);
  }

  /// Nothing that is left out may be larger than something that is chosen, by more than both may be
  /// wrong.
  void take_choice(LawId law, const char* field, int64_t token, const std::vector<int32_t>& given,
                   const std::vector<double>& right, const std::vector<double>& bound) {
    std::vector<bool> chosen(right.size(), false);
    int64_t kept = 0;
    int32_t before = -1;
    bool sound = true, ended = false;
    for (const int32_t s : given) {
      ended |= s < 0;
      if (ended) {
        sound &= s == -1;
        continue;
      }
      sound &= s > before && s < std::ssize(right);
      if (!sound) break;
      chosen[static_cast<size_t>(s)] = true, before = s, ++kept;
    }
    const int64_t wanted = std::min(std::ssize(given), std::ssize(right));
    if (!sound || kept != wanted) {
      verdict_.findings.add(make_finding(law, at(field, token),
                                         std::to_string(wanted) + " positions, ascending, then -1",
                                         std::to_string(kept) + " in their order"));
      return;
    }
    size_t least = 0, most = 0;  // of what is chosen, by what it may be at most; of the rest
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (size_t s = 0; s < right.size(); ++s) {
      if (chosen[s] && right[s] + bound[s] < low) low = right[s] + bound[s], least = s;
      if (!chosen[s] && right[s] - bound[s] > high) high = right[s] - bound[s], most = s;
    }
    if (high > low)
      verdict_.findings.add(make_finding(law, at(field, token, static_cast<int64_t>(most)),
                                         "chosen before position " + std::to_string(least),
                                         "left out"));
  }

  /// Compares our choice from our own scores; exactly, because these are known bit for bit.
  void choose_ours(const IndexerLogitsCase& c, const IndexerLogits& call) {
    const int64_t topk = c.topk_ref.shape[1], width = call.logits.shape[1];
    SelectIndices select;
    select.logits = call.logits, select.ks = call.ks, select.ke = call.ke;
    TensorView indices;
    indices.dtype = DType::kI32, indices.rank = 2;
    indices.shape = {call.tokens(), topk};
    select.indices = memory_.of(indices);
    if (!take_refused(select_indices(select))) return;
    ArrayJudge j("num.exact", "ours.topk");
    for (int64_t t = 0; t < call.tokens(); ++t) {
      std::vector<double> scores;
      for (int64_t s = call.first(t); s < call.last(t); ++s)
        scores.push_back(element(call.logits, t * width + s));
      std::vector<int32_t> right = largest_places(scores, topk);
      right.resize(static_cast<size_t>(topk), -1);
      for (int64_t i = 0; i < topk; ++i)
        j.take(t, i, load_i32(select.indices, t, i), right[static_cast<size_t>(i)], 0);
    }
    settle(j, &verdict_.ours.out);
  }

  // ---- lists

  void judge_case(const TopkTransformCase& c) {
    TransformIndices transform = c.transform;
    transform.out = memory_.of(transform.out);
    if (!take_refused(transform_indices(transform))) return;
    verdict_.rows += transform.out.shape[0];
    const int64_t topk = transform.out.shape[1];
    ArrayJudge ours("num.exact", "ours.out"), gpu("num.recorded", "gpu.out");
    ArrayJudge reference("num.reference", "ref.out");
    for (int64_t t = 0; t < transform.out.shape[0]; ++t)
      for (int64_t i = 0; i < topk; ++i) {
        const int32_t index = load_i32(c.transform.indices, t, i);
        const int32_t right =
            index < 0 ? -1 : load_i32(c.transform.page_table_1, c.transform.row(t), index);
        ours.take(t, i, load_i32(transform.out, t, i), right, 0);
        gpu.take(t, i, load_i32(c.out, t, i), right, 0);
        reference.take(t, i, load_i32(c.out_ref, t, i), right, 0);
      }
    settle(ours, &verdict_.ours.out), settle(gpu, &verdict_.gpu.out);
    settle(reference, &verdict_.reference.out);
    judge_compact(c);
  }

  void judge_compact(const TopkTransformCase& c) {
    // The guard cells are as the recorded ones were before: what no call writes.
    std::vector<int32_t> ours(c.kv_indices.size(), -7), right;
    CompactIndices compact = c.compact;
    compact.kv_indices = ours;
    if (!take_refused(compact_indices(compact))) return;
    for (int64_t t = 0; t < compact.indices.shape[0]; ++t)
      for (int64_t i = 0; i < compact.indices.shape[1]; ++i)
        if (const int32_t index = load_i32(compact.indices, t, i); index >= 0)
          right.push_back(index);
    right.resize(ours.size(), -7);
    const auto same = [&](LawId law, const char* field, std::span<const int32_t> got,
                          std::optional<double>* ratio) {
      ArrayJudge j(law, field);
      for (size_t i = 0; i < right.size(); ++i)
        j.take(static_cast<int64_t>(i), 0, got[i], right[i], 0);
      settle(j, ratio);
    };
    same("num.exact", "ours.kv_indices", ours, &verdict_.ours.out);
    same("num.recorded", "gpu.kv_indices", c.kv_indices, &verdict_.gpu.out);
    same("num.reference", "ref.kv_indices", c.kv_indices_ref, &verdict_.reference.out);
  }
};

}  // namespace

VectorVerdict judge_indexer(const LinearVector& vector) {
  IndexerJudge judge(vector);
  judge.judge();
  return judge.verdict();
}

}  // namespace shadowgraph
