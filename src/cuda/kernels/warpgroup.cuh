// Hopper's own instructions (sm_90a) that fast bodies are made of: products of a warpgroup's 64
// rows with matrices in shared memory, barriers at which copies arrive, registers that go from one
// warpgroup to another. Elsewhere they compile to nothing: find out with has_warpgroups().
#pragma once

#include "cuda/kernels/tensor_core.cuh"

namespace shadowgraph::cuda {

constexpr int kOfWarpgroup = 128;  // threads
constexpr int kSwizzledRow = 128;  // bytes

/// Byte of a 16-byte column in a matrix of so many rows: columns of 64 16-bit elements, one after
/// the other, each a row of 128 bytes; the eight 16-byte pieces of a row change places, so that
/// eight rows lie in eight banks. This is the 128-byte swizzle of shared memory whose base is a
/// multiple of 1024 bytes.
__device__ inline int swizzled(int rows, int row, int column) {
  return column / 8 * rows * kSwizzledRow + row * kSwizzledRow + ((column ^ row) & 7) * 16;
}

/// A matrix so many bytes further on.
__device__ inline uint64_t moved(uint64_t matrix, int bytes) {
  return matrix + static_cast<uint64_t>(bytes / 16);
}

#ifdef __CUDACC__

/// Has this GPU these instructions, and were bodies compiled for them?
inline bool has_warpgroups() {
#ifdef SHADOWGRAPH_SM90A
  static const bool has = [] {
    int major = 0, minor = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess &&
           major == 9 && minor == 0;
  }();
  return has;
#else
  return false;
#endif
}

/// PTX ISA, wgmma: matrix descriptor. leading: bytes from 64 columns to the next, where rows are
/// what is summed over; stride: from eight rows to the next.
__device__ inline uint64_t matrix_at(const void* p, uint32_t leading, uint32_t stride) {
  return uint64_t{(shared_address(p) & 0x3ffff) >> 4} | uint64_t{leading >> 4} << 16 |
         uint64_t{stride >> 4} << 32 | uint64_t{1} << 62;
}

#define SG_OF_C(i) "+f"(c[i].at[0]), "+f"(c[i].at[1]), "+f"(c[i].at[2]), "+f"(c[i].at[3])
#define SG_OF_C8 \
  SG_OF_C(0), SG_OF_C(1), SG_OF_C(2), SG_OF_C(3), SG_OF_C(4), SG_OF_C(5), SG_OF_C(6), SG_OF_C(7)
#define SG_OF_C16                                                                       \
  SG_OF_C8, SG_OF_C(8), SG_OF_C(9), SG_OF_C(10), SG_OF_C(11), SG_OF_C(12), SG_OF_C(13), \
      SG_OF_C(14), SG_OF_C(15)
#define SG_C_OF_32                                                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31}"
#define SG_C_OF_64                                                                               \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
// Two products: one of rows and columns in shared memory (the sum starts anew where `added` is 0),
// one of rows in registers and columns whose rows are summed over; the last argument is the
// registers of c.
#define SG_SHARED_PRODUCT(type, ...)                                                  \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, "                                        \
      "0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " SG_C_OF_64 \
      ", %64, %65, p, 1, 1, 0, 0;\n}\n"                                               \
      : __VA_ARGS__                                                                   \
      : "l"(a_matrix), "l"(b_matrix), "r"(added))
#define SG_REGISTER_PRODUCT(type, n, c_list, a, b, ...)                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " c_list ", " a \
               ", " b ", 1, 1, 1, 1;\n"                                                         \
               : __VA_ARGS__                                                                    \
               : "r"(a_rows.pair[0]), "r"(a_rows.pair[1]), "r"(a_rows.pair[2]),                 \
                 "r"(a_rows.pair[3]), "l"(b_matrix))
#define SG_PRODUCT_OF_TYPE(product, ...) \
  if constexpr (T == DType::kBF16) {     \
    product("bf16", __VA_ARGS__);        \
  } else {                               \
    product("f16", __VA_ARGS__);         \
  }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SG_HOPPER(...) __VA_ARGS__
#else
#define SG_HOPPER(...)
#endif

/// c = a b^T, or c + a b^T: 64 rows of a, 128 of b, 16 columns of each.
template <DType T>
__device__ inline void multiply_shared(FragmentC (&c)[16], uint64_t a_matrix, uint64_t b_matrix,
                                       int added) {
  SG_HOPPER(SG_PRODUCT_OF_TYPE(SG_SHARED_PRODUCT, SG_OF_C16))
}
/// c + a b: 16 columns of a, of which each warp of the group has its 16 rows; 16 rows of b.
template <DType T>
__device__ inline void multiply_rows(FragmentC (&c)[16], const FragmentA& a_rows,
                                     uint64_t b_matrix) {
  SG_HOPPER(SG_PRODUCT_OF_TYPE(SG_REGISTER_PRODUCT, "128", SG_C_OF_64, "{%64,%65,%66,%67}", "%68",
                               SG_OF_C16))
}
template <DType T>
__device__ inline void multiply_rows(FragmentC (&c)[8], const FragmentA& a_rows, uint64_t b_matrix){
    SG_HOPPER(SG_PRODUCT_OF_TYPE(SG_REGISTER_PRODUCT, "64", SG_C_OF_32, "{%32,%33,%34,%35}", "%36",
                                 SG_OF_C8))}

/// Registers that a product reads or writes are as they should be.
__device__ inline void begin_products() {
  SG_HOPPER(asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");)
}
__device__ inline void end_products() {
  SG_HOPPER(asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");)
}
/// Until no more than Newest groups of products are under way.
template <int Newest>
__device__ inline void wait_for_products() {
  SG_HOPPER(asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Newest) : "memory");)
}
/// Keeps the compiler from moving what it does with c across.
template <int N>
__device__ inline void pin(FragmentC (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[i].at[e])::"memory");
  }
}

/// What this thread wrote or saw written to shared memory is there for products, too.
__device__ inline void show_to_products() {
  SG_HOPPER(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");)
}

/// In shared memory: so many arrivals end a phase; phases have parities 0, 1, 0, ...
using Barrier = uint64_t;
__device__ inline void begin_barrier(Barrier* b, uint32_t arrivals) {
  SG_HOPPER(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(b)),
                         "r"(arrivals)
                         : "memory");)
}
__device__ inline void arrive(Barrier* b) {
  SG_HOPPER(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(b))
                         : "memory");)
}
/// This thread arrives once all its copies so far are there.
__device__ inline void arrive_with_copies(Barrier* b) {
  SG_HOPPER(
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(shared_address(b))
                   : "memory");)
}
/// Until the phase of that parity is over; before the first one, that of parity 1 is.
__device__ inline void wait_for(Barrier* b, uint32_t parity) {
  SG_HOPPER(
      asm volatile(
          "{\n.reg .pred done;\nagain:\n"
          "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}\n" ::"r"(
              shared_address(b)),
          "r"(parity)
          : "memory");)
}

/// Registers of this warpgroup's threads from now on.
template <int N>
__device__ inline void give_registers_up() {
  SG_HOPPER(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));)
}
template <int N>
__device__ inline void take_registers() {
  SG_HOPPER(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));)
}

#else  // compiled for a CPU, by a test

inline bool has_warpgroups() { return true; }
inline uint64_t matrix_at(const void* p, uint32_t leading, uint32_t stride) {
  return lanes::matrix_at(p, leading, stride);
}
template <DType T>
float value_of(uint16_t bits) {
  return load(&bits, T, 0);
}
template <DType T, int N>
void multiply_shared(FragmentC (&c)[N], uint64_t a, uint64_t b, int added) {
  lanes::multiply_shared(c[0].at, 8 * N, a, b, added != 0, value_of<T>);
}
template <DType T, int N>
void multiply_rows(FragmentC (&c)[N], const FragmentA& a, uint64_t b) {
  lanes::multiply_rows(c[0].at, 8 * N, a.pair, b, value_of<T>);
}
inline void begin_products() {}
inline void end_products() {}
/// Then one lane may say for all that what was read is free.
template <int Newest>
void wait_for_products() {
  __syncwarp();
}
template <int N>
void pin(FragmentC (&)[N]) {}
inline void show_to_products() {}
using lanes::arrive;
using lanes::Barrier;
using lanes::begin_barrier;
using lanes::wait_for;
inline void arrive_with_copies(Barrier* b) { arrive(b); }
template <int N>
void give_registers_up() {}
template <int N>
void take_registers() {}

#endif

}  // namespace shadowgraph::cuda
