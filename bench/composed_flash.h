// Flash attention composed of a library's matrix products, blocked as PyTorch 2 does on CPUs:
// blocks of 64 queries (256 from 768 on) by 512 keys, in parallel over heads and query blocks, each
// product on one thread, the softmax between them fused and vectorised. Not our kernel's way: K and
// V are read once for every query head.
#pragma once

#include "bench/peers.h"

namespace shadowgraph::bench {

/// c [m, n] = a [m, k] b + beta c, row-major; b is [k, n], or [n, k] with b_transposed; beta is 0
/// or 1.
struct Product {
  bool b_transposed;
  int m, n, k;
  const float* a;
  int lda;
  const float* b;
  int ldb;
  float beta;
  float* c;
  int ldc;
};

using Multiply = void (*)(const Product&);

void composed_flash(const FlashCall& call, Multiply multiply);

}  // namespace shadowgraph::bench
