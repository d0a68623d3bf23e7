#include "bench/peers.h"

#include "bench/composed_flash.h"
#include "bench/units/best.h"

namespace shadowgraph::bench {

#ifdef SG_BENCH_HAS_OPENBLAS
extern const Peer kOpenBlasPeer;  // peer_openblas.cc
#endif

#ifdef SG_BENCH_X86
void eigen_product(const Product& p);  // peer_eigen.cc

namespace {
constexpr Peer kEigenPeer = {
    "eigen",
    [] { return std::string(&best_unit() == &kAvx512Unit ? "" : "this processor has no AVX-512"); },
    [](const FlashCall& call) { composed_flash(call, eigen_product); }};
}  // namespace
#endif

const Peer* find_peer(std::string_view name) {
#ifdef SG_BENCH_HAS_OPENBLAS
  if (name == kOpenBlasPeer.name) return &kOpenBlasPeer;
#endif
#ifdef SG_BENCH_X86
  if (name == kEigenPeer.name) return &kEigenPeer;
#endif
  return nullptr;
}

}  // namespace shadowgraph::bench
