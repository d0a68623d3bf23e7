#include "attn/cases/sparse_case.h"

#include "attn/cases/case_names.h"
#include "shadowgraph/dtype.h"

namespace shadowgraph {
namespace {

using Call = SparseCase::Call;

std::string dtype_word(DType t) { return std::string(name_of(t)); }

/// "5 2+3 4d": first+count, extra behind a comma, d dropped.
std::string rows_of(const SparseCase& x) {
  std::string s;
  for (const SparseCase::Row& r : x.rows) {
    s += s.empty() ? "" : "|";
    if (r.first > 0) s += std::to_string(r.first) + '+';
    s += std::to_string(r.count);
    if (x.has_extra) s += "," + std::to_string(r.extra);
    if (!r.slot) s += 'd';
  }
  return s;
}

std::string attention(const SparseCase& x) {
  std::string s = " heads=" + std::to_string(x.heads) + " dims=" + std::to_string(x.head_dim) +
                  "/" + std::to_string(x.head_dim_v) + " " + dtype_word(x.dtype) + "/" +
                  dtype_word(x.out_dtype) + " keys=" + std::string(word(kLatentNames, x.layout));
  if (x.has_extra) s += " extra=" + std::string(word(kLatentNames, x.extra_layout));
  const bool rows =
      x.layout == LatentLayout::kRows || (x.has_extra && x.extra_layout == LatentLayout::kRows);
  if (rows) s += " rows of " + dtype_word(x.rows_dtype);
  if (x.sinks) s += x.lse_sink == LseSink::kIncluded ? " sinks(in lse)" : " sinks";
  return s;
}

std::string pack(const SparseCase& x) {
  std::string s = " " + std::string(word(kLatentNames, x.layout)) + " " + dtype_word(x.dtype) +
                  (x.padding_page ? " padding_page" : "");
  if (x.layout != LatentLayout::kRows) return s;
  return s + " dim=" + std::to_string(x.head_dim) + " rows of " + dtype_word(x.rows_dtype);
}

std::string blocks(const SparseCase& x) {
  std::string s;
  if (x.call != Call::kNormRope) s += " ratio=" + std::to_string(x.ratio);
  s += " dim=" + std::to_string(x.head_dim);
  if (x.call != Call::kCompress) s += " rope=" + std::to_string(x.rope_dim);
  s += " " + dtype_word(x.dtype) + "/" + dtype_word(x.out_dtype);
  return s + (x.ring ? " ring" : "") + (x.padding_page ? " padding_page" : "");
}

std::string indexer(const SparseCase& x) {
  switch (x.call) {
    case Call::kActQuant:
      return " dim=" + std::to_string(x.head_dim) + " " + dtype_word(x.dtype) +
             (x.ue8m0 ? " ue8m0" : "");
    case Call::kStoreKeys: return x.padding_page ? " padding_page" : "";
    case Call::kLogits:
      return " heads=" + std::to_string(x.heads) + " requests=" + std::to_string(x.requests);
    case Call::kTransform:
      return " topk=" + std::to_string(x.topk) + (x.by_table ? " table" : " offsets") +
             " requests=" + std::to_string(x.requests);
    case Call::kSelect:
    case Call::kCompact: return " topk=" + std::to_string(x.topk);
    default: return "";
  }
}

}  // namespace

int64_t SparseCase::tokens() const {
  if (call != Call::kCompress) return std::ssize(rows);
  int64_t n = 0;
  for (const Row& r : rows) n += r.count;
  return n;
}

std::string SparseCase::to_string(std::string_view data) const {
  std::string s = std::string(word(kSparseCallNames, call)) + " " + std::string(data) +
                  " rows=" + rows_of(*this);
  if (call == Call::kAttention) return s + attention(*this);
  if (call == Call::kPack) return s + pack(*this);
  return s + (call >= Call::kCompress ? blocks(*this) : indexer(*this));
}

}  // namespace shadowgraph
