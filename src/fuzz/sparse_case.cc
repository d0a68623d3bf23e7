#include "fuzz/sparse_case.h"

#include "attn/case_names.h"

namespace shadowgraph {
namespace {

std::string text_of(const std::vector<int32_t>& list) {
  std::string s = "[";
  for (const int32_t n : list) s += (s.size() > 1 ? ", " : "") + std::to_string(n);
  return s + "]";
}

/// None, one, few, a tile's end, or many.
int32_t choose_keys(Choices& c) {
  switch (c.below(5)) {
    case 0: return c.between(0, 3);
    case 1: return 0;
    case 2: return c.between(60, 68);
    case 3: return c.between(4, 40);
    default: return c.between(100, 200);
  }
}

void choose_dims(Choices& c, SparseCase& x) {
  if (x.layout == LatentLayout::kDsa) {
    x.head_dim = 576, x.head_dim_v = 512;
  } else if (x.layout == LatentLayout::kV4) {
    x.head_dim = x.head_dim_v = 512;
  } else {
    x.head_dim = c.of({16, 32, 17, 576, 5, 80});
    x.head_dim_v = c.one_in(2) ? c.between(1, x.head_dim) : x.head_dim;
  }
  if (x.layout == LatentLayout::kRows || !c.one_in(2)) return;
  x.head_dim_v = c.between(1, x.head_dim);
}

}  // namespace

std::string SparseCase::to_string() const {
  std::string s = "sparse_attention " + std::string(word(kCaseDataNames, data)) + " seed " +
                  std::to_string(seed) + " heads " + std::to_string(heads) + " dims " +
                  std::to_string(head_dim) + '/' + std::to_string(head_dim_v) + " q " +
                  std::string(name_of(q_dtype)) + " out " + std::string(name_of(out_dtype)) +
                  " keys " + std::string(word(kLatentNames, layout)) + text_of(seen);
  if (has_extra)
    s += std::string(" extra ") + std::string(word(kLatentNames, extra_layout)) +
         text_of(seen_extra);
  if (layout == LatentLayout::kRows || (has_extra && extra_layout == LatentLayout::kRows))
    s += " rows " + std::string(name_of(rows_dtype));
  if (sinks) s += lse_sink == LseSink::kIncluded ? " sinks(in lse)" : " sinks";
  return s;
}

SparseCase generate_sparse(Choices& c) {
  SparseCase x;
  x.seed = c.below(1u << 30);
  x.data = c.of({CaseData::kUniform, CaseData::kSelector, CaseData::kRandom, CaseData::kPeaked});
  x.layout = c.of({LatentLayout::kRows, LatentLayout::kDsa, LatentLayout::kV4});
  choose_dims(c, x);
  x.heads = c.of({1, 2, 16, 3, 17, 67});
  const bool wide = x.layout == LatentLayout::kRows || !c.one_in(2);
  const DType type = c.of({DType::kF32, DType::kBF16, DType::kF16});
  x.q_dtype = wide ? type : DType::kBF16;
  x.rows_dtype = c.one_in(2) ? x.q_dtype : c.of({DType::kF32, DType::kBF16, DType::kF16});
  x.out_dtype = c.one_in(2) ? DType::kF32 : x.q_dtype;
  x.has_extra = c.one_in(2);
  x.extra_layout = c.one_in(2) ? LatentLayout::kRows : x.layout;
  x.sinks = c.one_in(2);
  x.lse_sink = c.of({LseSink::kExcluded, LseSink::kIncluded});
  const int tokens = c.between(1, 4);
  for (int t = 0; t < tokens; ++t) {
    x.seen.push_back(choose_keys(c));
    if (x.has_extra) x.seen_extra.push_back(choose_keys(c));
  }
  return x;
}

}  // namespace shadowgraph
