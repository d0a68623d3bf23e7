// Eigen's products, compiled for AVX-512. Its namespace has another name here: the oracle's Eigen
// is compiled for every processor, and the linker must not take one for the other.
#define Eigen EigenForAvx512
#include <Eigen/Core>

#include "bench/composed_flash.h"

namespace shadowgraph::bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;

}  // namespace

void eigen_product(const Product& p) {
  const Input a(p.a, p.m, p.k, Eigen::OuterStride<>(p.lda));
  Eigen::Map<Matrix, 0, Eigen::OuterStride<>> c(p.c, p.m, p.n, Eigen::OuterStride<>(p.ldc));
  if (p.beta == 0) c.setZero();
  if (p.b_transposed) {
    c.noalias() += a * Input(p.b, p.n, p.k, Eigen::OuterStride<>(p.ldb)).transpose();
  } else {
    c.noalias() += a * Input(p.b, p.k, p.n, Eigen::OuterStride<>(p.ldb));
  }
}

}  // namespace shadowgraph::bench
