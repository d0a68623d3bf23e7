// Masks, pair by pair: [queries, keys] of each request, as recorded a byte each, of the twin in
// bytes or packed.
#include <algorithm>

#include "attn/mask.h"
#include "check/canonical.h"
#include "check/traces/field_judge.h"

namespace shadowgraph {

/// Offsets count the bytes of the mask; those of a packed one its keys, and the pairs of a request
/// follow those of the one before.
FieldJudge::Pairs FieldJudge::pairs_of(int64_t row, Part part, int64_t before) const {
  const ForwardBatch& batch = step_.rebuilt.batch;
  const int64_t queries = row < batch.size() ? batch.extent(row).q_len : step_.rebuilt.width;
  if (field_.keys >= 0) return {before, queries, part.size()};
  return {part.begin, queries, part.size() / queries};  // of a verify: some query each
}

int64_t FieldJudge::expected_bit(int64_t row, int64_t pair) const {
  const int64_t begin = value_of(twin(field_.lens), row);
  if (field_.keys < 0) return expected(begin + pair) != 0;
  return expected(begin + pair / 8) >> (pair % 8) & 1;
}

/// A mask that no twin has: pairs of the batch's own queries and keys, without windows.
bool FieldJudge::judge_mask_of_batch() {
  judge_dtype();
  if (!judge_shape()) return left_out_.empty();
  LayerKind kind;
  kind.params.causal = true;
  const CanonicalRows rows = canonical_rows(step_.rebuilt.batch, kind, step_.rebuilt.model);
  Rows wrong;
  PairPlace first;
  int64_t end = 0;
  for (size_t r = 0; r < rows.kv_lens.size(); ++r) {
    const int64_t begin = end, keys = rows.kv_lens[r];
    const int32_t queries = rows.cu_seqlens_q[r + 1] - rows.cu_seqlens_q[r];
    end += queries * keys;
    for (int64_t p = 0; p < std::min(end, recorded_.cols) - begin; ++p) {
      const bool sees = rows.mask.empty()
                            ? attends({queries, rows.kv_lens[r], true}, p / keys, p % keys)
                            : rows.mask[static_cast<size_t>(begin + p)] != 0;
      if (sees == (got(begin + p) != 0)) continue;
      if (wrong.wrong++ == 0) first = {static_cast<int64_t>(r), p, keys, sees};
      break;
    }
  }
  judged("mask.bit", end);
  if (wrong.wrong > 0) report_pair(first, wrong.more());
  return judge_mask_size(end);
}

bool FieldJudge::judge_mask() {
  const int offsets = field_.keys >= 0 ? field_.keys : field_.lens;
  const RecordedField* told = step_.recorded_indptr(offsets, rows_ + 1);
  const int64_t all = told != nullptr ? told->rows() - 1 : rows_;
  const bool uniform = recorded_.shape.empty();
  if (uniform && capture()) {
    fail("mask.size", {}, {}, "a mask, which replays fill", "none: the graph reads none");
    return true;
  }
  Rows rows;
  int64_t first = 0, first_pair = 0, end = 0;
  for (int64_t r = 0; r < all; ++r) {
    const Part part = told != nullptr ? keys_of(*told, r) : part_of(twin(offsets), r);
    if (part.begin < 0 || part.size() < 0 || part.end > INT32_MAX) return true;  // the offsets'
    const Pairs here = pairs_of(r, part, end);
    end = here.begin + here.size();
    // A row of another length than the twin's is a finding of the offsets.
    if (r >= real_rows() || here.keys != pairs_of(r, part_of(twin(offsets), r), 0).keys) continue;
    if (!uniform && end > recorded_.cols) continue;
    judged("mask.bit", here.size());
    for (int64_t p = 0; p < here.size(); ++p) {
      if (expected_bit(r, p) == (got(uniform ? 0 : here.begin + p) != 0)) continue;
      if (rows.wrong++ == 0) first = r, first_pair = p;
      break;
    }
  }
  if (rows.wrong > 0) {
    const int64_t keys = pairs_of(first, part_of(twin(offsets), first), 0).keys;
    report_pair({first, first_pair, keys, expected_bit(first, first_pair) != 0}, rows.more());
  }
  return uniform || judge_mask_size(end);
}

/// A graph's buffer may be longer; what an eager step hands over is what its kernel reads.
bool FieldJudge::judge_mask_size(int64_t pairs) {
  judged("mask.size");
  const int64_t have = recorded_.width();
  if (have < pairs || (have > pairs && !step_.rebuilt.padded)) {
    fail("mask.size", {}, {}, number(pairs) + " pairs of the queries and keys of its lists",
         number(have));
  } else if (pairs > recorded_.cols) {
    return leave_out("left_out.not_stored", "live pairs are not stored");
  }
  return true;
}

void FieldJudge::report_pair(const PairPlace& p, const std::string& more) {
  const std::string at = "query " + number(p.pair / p.keys) + (p.sees ? " sees" : " does not see") +
                         " key " + number(p.pair % p.keys) + " of its list";
  fail("mask.bit", p.row, p.pair, number(p.sees ? 1 : 0) + ": " + at,
       number(p.sees ? 0 : 1) + more);
}

}  // namespace shadowgraph
