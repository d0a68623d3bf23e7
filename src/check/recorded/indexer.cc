// Judging the recorded indexer: activations, pages of index keys, scores and choices, lists.
#include "attn/index_page.h"
#include "check/bounds/indexer_bound.h"
#include "check/bounds/rounding.h"
#include "check/bounds/sparse_compare.h"
#include "check/recorded/case_judge.h"

namespace shadowgraph {
namespace {

/// Quantised activations, and pages of keys.
class IndexKeysJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const ActQuantCase& c) {
    ActQuant call = c.call;
    call.y = memory_.of(call.y), call.scale = memory_.of(call.scale);
    if (!take_refused(act_quant(call))) return;
    verdict_.rows += call.x.shape[0];
    // An f32 product with a rounded constant; the recorded quotient is one of approximate division,
    // within two ulp.
    judge_blocks(c.call, call.y, call.scale, 0x1p-24, Whose::kOurs);
    judge_blocks(c.call, c.y, c.scale, 0x1p-22, Whose::kGpu);
    ArrayJudge reference = array(Whose::kReference, "scale");
    for (int64_t i = 0; i < c.scale_ref.numel(); ++i) {
      const double amax = largest_of_block(c.call, i), right = block_scale(amax, c.call.ue8m0);
      // A reference's floor may not have been rounded to f32.
      const double error = right * (amax < kLeastAmax ? 0x1p-24 : 0x1p-52);
      const int64_t blocks = c.scale_ref.shape[1];
      reference.take(i / blocks, i % blocks, element(c.scale_ref, i), right,
                     with_rounding(right, error, c.scale_ref.dtype));
    }
    settle(reference, Whose::kReference);
  }

  void judge(const IndexKeysCase& c) {
    StoreIndexKeys store = c.store;
    store.pages = memory_.copy(store.pages, c.before);
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
    same_pages(store.pages, right, Whose::kOurs);
    same_pages(c.after, right, Whose::kGpu);
    same_pages(c.reference, right, Whose::kReference);
    same_keys(c, gather.k, gather.k_scale, Whose::kOurs);
    same_keys(c, c.k, c.k_scale, Whose::kGpu);
  }

 private:
  void judge_blocks(const ActQuant& call, const ConstTensorView& y, const ConstTensorView& scale,
                    double quotient, Whose whose) {
    ArrayJudge scales = array(whose, "scale"), values = array(whose, "y");
    compare_blocks(call, y, scale, quotient, &scales, &values);
    settle(scales, whose), settle(values, whose);
  }

  void same_pages(const ConstTensorView& got, std::span<const std::byte> right, Whose whose) {
    same(
        array(whose, "pages"), whose, std::ssize(right), kIndexPageBytes,
        [&](int64_t i) { return std::to_integer<int>(got.data[i]); },
        [&](int64_t i) { return std::to_integer<int>(right[static_cast<size_t>(i)]); });
  }

  /// What is gathered is what the pages hold.
  void same_keys(const IndexKeysCase& c, const ConstTensorView& k, const ConstTensorView& k_scale,
                 Whose whose) {
    ArrayJudge keys = array(whose, "k"), scales = array(whose, "k_scale");
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
    settle(keys, whose), settle(scales, whose);
  }
};

/// Scores, and the choice among them.
class IndexScoresJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const IndexerLogitsCase& c) {
    IndexerLogits call = c.call;
    call.logits = memory_.of(call.logits);
    if (!take_refused(indexer_logits(call))) return;
    verdict_.rows += call.tokens();
    const IndexerArithmetic* recorded = find_indexer_arithmetic(c_.gpu().kernel);
    if (recorded == nullptr) no_such_kernel("indexer_arithmetics.inc", c_.gpu().kernel);
    EachJudge j = each("logits");
    ArrayJudge unseen = array(Whose::kOurs, "logits");
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
        j.ours.take(t, s, element(call.logits, flat), score.score, within({}, DType::kF32));
        if (recorded != nullptr)
          j.gpu.take(t, s, element(c.logits, flat), score.score, within(*recorded, DType::kF32));
        j.reference.take(t, s, element(c.reference, flat), score.score, of_reference.back());
      }
      judge_choice(c, t, right, of_reference);
    }
    settle(j), settle(unseen, Whose::kOurs);
    choose_ours(c, call);
  }

 private:
  /// The reference's choice is the oracle's, except where two scores are nearer than its bound
  /// tells: nothing that is left out may be larger than something that is chosen, by more than both
  /// may be wrong.
  void judge_choice(const IndexerLogitsCase& c, int64_t token, const std::vector<double>& right,
                    const std::vector<double>& bound) {
    std::vector<int32_t> given;
    for (int64_t j = 0; j < c.topk_ref.shape[1]; ++j)
      given.push_back(load_i32(c.topk_ref, token, j));
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
    judged("num.reference");
    if (!sound || kept != wanted) {
      verdict_.findings.add(make_finding("num.reference", at("ref.topk", token),
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
      verdict_.findings.add(
          make_finding("num.reference", at("ref.topk", token, static_cast<int64_t>(most)),
                       "chosen before position " + std::to_string(least), "left out"));
  }

  /// Our choice among our own scores; exactly, as these are known bit for bit.
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
    settle(j, Whose::kOurs);
  }
};

/// Element i of a view [rows, width], or of a list.
auto of_view(const ConstTensorView& t) {
  return [t](int64_t i) { return load_i32(t, i / t.shape[1], i % t.shape[1]); };
}
auto of_list(std::span<const int32_t> list) {
  return [list](int64_t i) { return list[static_cast<size_t>(i)]; };
}

class ListsJudge : public CaseJudge {
 public:
  using CaseJudge::CaseJudge;

  void judge(const TopkTransformCase& c) {
    TransformIndices transform = c.transform;
    transform.out = memory_.of(transform.out);
    if (!take_refused(transform_indices(transform))) return;
    verdict_.rows += transform.out.shape[0];
    const int64_t topk = transform.out.shape[1];
    const auto right = [&](int64_t i) {
      const int64_t t = i / topk;
      const int32_t index = load_i32(c.transform.indices, t, i % topk);
      return index < 0 ? -1 : load_i32(c.transform.page_table_1, c.transform.row(t), index);
    };
    same_lists("out", transform.out.numel(), topk, of_view(transform.out), of_view(c.out),
               of_view(c.out_ref), right);
    judge_compact(c);
  }

 private:
  template <class Got, class Right>
  void same_lists(const std::string& field, int64_t count, int64_t width, const Got& ours,
                  const Got& gpu, const Got& reference, const Right& right) {
    same(ArrayJudge("num.exact", "ours." + field), Whose::kOurs, count, width, ours, right);
    same(array(Whose::kGpu, field), Whose::kGpu, count, width, gpu, right);
    same(array(Whose::kReference, field), Whose::kReference, count, width, reference, right);
  }

  void judge_compact(const TopkTransformCase& c) {
    // The guard cells are as the recorded ones were before: what no call writes.
    std::vector<int32_t> ours(c.kv_indices.size(), -7), right;
    CompactIndices compact = c.compact;
    compact.kv_indices = ours;
    if (!take_refused(compact_indices(compact))) return;
    for (int64_t i = 0; i < compact.indices.numel(); ++i)
      if (const int32_t index = of_view(compact.indices)(i); index >= 0) right.push_back(index);
    right.resize(ours.size(), -7);
    same_lists("kv_indices", std::ssize(right), 1, of_list(ours), of_list(c.kv_indices),
               of_list(c.kv_indices_ref), of_list(right));
  }
};

}  // namespace

RecordedVerdict judge_call(const ActQuantCase& call, const RecordedCase& c) {
  return judged<IndexKeysJudge>(call, c);
}
RecordedVerdict judge_call(const IndexKeysCase& call, const RecordedCase& c) {
  return judged<IndexKeysJudge>(call, c);
}
RecordedVerdict judge_call(const IndexerLogitsCase& call, const RecordedCase& c) {
  return judged<IndexScoresJudge>(call, c);
}
RecordedVerdict judge_call(const TopkTransformCase& call, const RecordedCase& c) {
  return judged<ListsJudge>(call, c);
}

}  // namespace shadowgraph
