// What judging a recurrent case needs, whatever its call: memory, comparisons, one verdict. Used by
// the judges of linear_vectors.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/linear_compare.h"
#include "check/linear_vectors.h"

namespace shadowgraph {

/// Memory for views that have none.
class LinearMemory {
 public:
  TensorView of(TensorView t) {
    if (!t.defined()) return t;
    // Dense, whatever the strides of what was recorded.
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

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

inline void copy_elements(const ConstTensorView& from, const TensorView& to) {
  const size_t item = size_of(to.dtype);
  for (int64_t n = 0; n < from.numel(); ++n)
    std::memcpy(to.data + static_cast<size_t>(n) * item,
                from.data + element_offset(from, n) * static_cast<int64_t>(item), item);
}

class LinearCaseJudge {
 public:
  explicit LinearCaseJudge(const LinearVector& vector) : vector_(vector) {
    verdict_.id = vector.id;
    verdict_.kind = vector.system + ' ' + vector.kind;
    verdict_.dtype = vector.dtype;
  }
  VectorVerdict verdict() {
    for (Finding& finding : verdict_.findings.findings()) finding.case_id = vector_.id;
    return std::move(verdict_);
  }

 protected:
  bool take_refused(Status refused) {
    const bool ok = refused.ok();
    verdict_.findings.add(std::move(refused));
    return ok;
  }

  void settle(const LinearJudges& j, std::optional<double>* ratio) {
    for (const ArrayJudge* a : {&j.out, &j.states, &j.draft, &j.chunks}) settle(*a, ratio);
  }
  void settle(const ArrayJudge& a, std::optional<double>* ratio) {
    if (a.elements() == 0) return;
    *ratio = std::max(ratio->value_or(0), a.worst());
    a.add_to(&verdict_.findings);
  }

  void same_bits(const ConstTensorView& got, const ConstTensorView& was, int64_t row,
                 const std::string& field) {
    for (int64_t i = 0; i < got.numel(); ++i) {
      const double a = element(got, i), b = element(was, i);
      if (std::memcmp(&a, &b, sizeof a) == 0) continue;
      verdict_.findings.add(
          make_finding("num.write_set", at(field, row, i), std::to_string(b), std::to_string(a)));
      return;
    }
  }

  const LinearVector& vector_;
  LinearMemory memory_;
  VectorVerdict verdict_;
};

/// Of a case that is no recurrence: a convolution, gates, a norm, tables.
VectorVerdict judge_linear_tables(const LinearVector& vector);
/// Of the indexer, and of the compressor.
VectorVerdict judge_indexer(const LinearVector& vector);
VectorVerdict judge_compress(const LinearVector& vector);
/// Of attention over chosen keys, and of packed latents.
VectorVerdict judge_linear_sparse(const LinearVector& vector);
/// Of a DualChunkCase.
VectorVerdict judge_dual_chunk(const LinearVector& vector);

}  // namespace shadowgraph
