// OpenBLAS is loaded when a row asks for it and not linked: it starts a thread a core as soon as it
// is there, which no other verb of the program should pay for.
#include <cblas.h>
#include <dlfcn.h>

#include <cstdlib>

#include "bench/composed_flash.h"

namespace shadowgraph::bench {
namespace {

struct OpenBlas {
  std::string missing;
  decltype(&cblas_sgemm) sgemm = nullptr;

  OpenBlas() {
    // Our threads call it: it needs none of its own. It looks once, when it is loaded.
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void* library = nullptr;
    // Where it was when this was built, or where the system has it.
    for (const char* name : {SG_BENCH_OPENBLAS, "libopenblas.so.0"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
      missing = "OpenBLAS cannot be loaded";
      return;
    }
    sgemm = reinterpret_cast<decltype(sgemm)>(dlsym(library, "cblas_sgemm"));
    if (sgemm == nullptr) missing = "OpenBLAS has no cblas_sgemm";
  }
};

const OpenBlas& openblas() {
  static const OpenBlas library;
  return library;
}

void multiply(const Product& p) {
  openblas().sgemm(CblasRowMajor, CblasNoTrans, p.b_transposed ? CblasTrans : CblasNoTrans, p.m,
                   p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
}

}  // namespace

extern const Peer kOpenBlasPeer;
const Peer kOpenBlasPeer = {"openblas", [] { return openblas().missing; },
                            [](const FlashCall& call) { composed_flash(call, multiply); }};

}  // namespace shadowgraph::bench
