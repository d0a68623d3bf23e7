#include "oracle/sparse_oracle.h"

#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "oracle/oracle_rows.h"

namespace shadowgraph {
namespace {

/// To 24 bits, then to bf16: what a code times its scale is.
double packed_value(double code, double scale) {
  const auto product = static_cast<float>(code * scale);
  return decode_float(encode_float(product, kBF16Format), kBF16Format);
}

double code_at(const std::byte* data, int64_t i) {
  return decode_float(std::to_integer<uint32_t>(data[i]), kE4M3Format);
}

std::vector<double> dsa_latent(const std::byte* data) {
  std::vector<double> x;
  for (int64_t i = 0; i < kDsaCodes; ++i)
    x.push_back(
        packed_value(code_at(data, i), load_float(data + kDsaCodes, DType::kF32, i / kDsaGroup)));
  const std::byte* rope = data + kDsaBytes - 2 * kRopeDim;
  for (int64_t i = 0; i < kRopeDim; ++i) x.push_back(load_float(rope, DType::kBF16, i));
  return x;
}

std::vector<double> v4_latent(const std::byte* data, const std::byte* scales) {
  std::vector<double> x;
  for (int64_t i = 0; i < kV4Codes; ++i) {
    const int byte = std::to_integer<int>(scales[i / kV4Group]);
    const double scale =
        byte == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, byte - 127);
    x.push_back(packed_value(code_at(data, i), scale));
  }
  for (int64_t i = 0; i < kRopeDim; ++i) x.push_back(load_float(data + kV4Codes, DType::kBF16, i));
  return x;
}

/// The latents that a token sees.
struct Latents {
  RowMatrix rows;             // [keys or entries, head_dim]
  std::vector<int32_t> keys;  // those that it sees
};

Latents latents_of(const SparseAttention& call, SparseKeys count, int64_t token) {
  std::vector<std::vector<double>> rows;
  Latents latents;
  for (const ChosenKeys* list : {&call.keys, &call.extra}) {
    if (!list->defined()) continue;
    for (const int32_t slot : list->of(token)) {
      if (slot >= 0) latents.keys.push_back(static_cast<int32_t>(rows.size()));
      if (slot >= 0) rows.push_back(latent_of(list->pool, slot));
      if (slot < 0 && count == SparseKeys::kListed) rows.emplace_back(call.q.shape[2], 0.0);
    }
  }
  latents.rows.resize(static_cast<Eigen::Index>(rows.size()), call.q.shape[2]);
  for (size_t i = 0; i < rows.size(); ++i)
    latents.rows.row(static_cast<Eigen::Index>(i)) =
        Eigen::Map<const Eigen::RowVectorXd>(rows[i].data(), latents.rows.cols());
  return latents;
}

}  // namespace

std::vector<double> latent_of(const LatentPool& pool, int64_t slot) {
  const std::byte* data =
      pool.data.data + pool.latent_at(slot) * static_cast<int64_t>(size_of(pool.data.dtype));
  if (pool.layout == LatentLayout::kDsa) return dsa_latent(data);
  if (pool.layout == LatentLayout::kV4)
    return v4_latent(data, pool.data.data + pool.scales_at(slot));
  std::vector<double> x;
  for (int64_t i = 0; i < pool.head_dim(); ++i) x.push_back(load_float(data, pool.data.dtype, i));
  return x;
}

void for_each_row(const SparseAttention& call, SparseKeys count, const VisitRow& visit) {
  OracleRow row;
  row.scale = double{call.sm_scale};
  Eigen::VectorXd query(call.q.shape[2]);
  for (row.row = 0; row.row < call.q.shape[0]; ++row.row) {
    const Latents latents = latents_of(call, count, row.row);
    const RowMatrix &k = latents.rows, abs_k = k.cwiseAbs();
    const RowMatrix v = k.leftCols(call.head_dim_v);
    const Eigen::ArrayXd key_scales = Eigen::ArrayXd::Ones(k.rows());
    row.keys = latents.keys;
    row.values = &v;
    resize_logits(row);
    row.key_max = largest_of(abs_k);
    row.value_max = largest_of(v);
    for (row.head = 0; row.head < call.q.shape[1]; ++row.head) {
      for (Eigen::Index i = 0; i < query.size(); ++i)
        query[i] = load_float(call.q.at(row.row, row.head), call.q.dtype, i);
      row.query_max = query.cwiseAbs().maxCoeff();
      row.terms = terms_of(query);
      row.sink = call.sinks.empty() ? -std::numeric_limits<double>::infinity()
                                    : double{call.sinks[static_cast<size_t>(row.head)]};
      if (!row.empty()) set_logits(k, abs_k, key_scales, query, {nullptr, 0, row.keys.size()}, row);
      finish(row);
      visit(row);
    }
  }
}

}  // namespace shadowgraph
