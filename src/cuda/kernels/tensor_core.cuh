// The instructions that fast bodies are made of: asynchronous copies, matrices from shared memory,
// products of 16 x 8 x 16, and blocks that read each other's shared memory. sm_80; clusters sm_90.
#pragma once

#include "cuda/kernels/values.cuh"

namespace shadowgraph::cuda {

/// A product's operands: 16-bit pairs, as mma.m16n8k16 wants them. Lane l has of A the rows l / 4
/// and l / 4 + 8 at columns 2 (l % 4) and 8 more, of B (k by n) rows 2 (l % 4) and 8 more of column
/// l / 4.
struct FragmentA {
  uint32_t pair[4];
};
struct FragmentB {
  uint32_t pair[2];
};
/// 16 x 8: rows l / 4 (first two) and l / 4 + 8, columns 2 (l % 4) and the one after it.
struct FragmentC {
  float at[4];
};

#ifdef __CUDACC__

template <DType T>
__device__ inline void multiply(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  if constexpr (T == DType::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]),
          "r"(b.pair[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]),
          "r"(b.pair[1]));
  }
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
/// Four 8 x 8 matrices of 16-bit elements; row: this lane's row of matrix lane / 8, 16 bytes.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row)));
}

/// 16 bytes; zeros where there is nothing to read.
__device__ inline void copy_16_bytes(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(there ? 16 : 0));
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;\n" ::); }
/// Will be read soon: 128 bytes.
__device__ inline void warm(const void* p) { asm volatile("prefetch.global.L2 [%0];\n" ::"l"(p)); }
/// Until no more than Newest groups of this thread's copies are on their way.
template <int Newest>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Newest));
}

/// Named barriers of the block, 1 to 15: all `threads` of those that come.
__device__ inline void sync_named(int name, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}
__device__ inline void arrive_named(int name, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}

/// 2^x, within 2^-22; subnormals are 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

#if __CUDA_ARCH__ >= 900
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
__device__ inline uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;\n" : "=r"(size));
  return size;
}
/// A thread that has arrived waits before it arrives again: then all have, and what each wrote
/// before is there. Lanes may come one by one: what is before it diverges.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}
/// To where another block of the cluster has what this one has at p.
template <class T>
__device__ inline void store_to_rank(T* p, T value, uint32_t rank) {
  static_assert(sizeof(T) == 4);
  uint32_t at, bits;
  memcpy(&bits, &value, sizeof bits);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n"
               : "=r"(at)
               : "r"(shared_address(p)), "r"(rank));
  asm volatile("st.shared::cluster.u32 [%0], %1;\n" ::"r"(at), "r"(bits) : "memory");
}
#else
__device__ inline uint32_t cluster_rank() { return 0; }
__device__ inline uint32_t cluster_size() { return 1; }
__device__ inline void arrive_at_cluster() {}
__device__ inline void wait_for_cluster() { __syncthreads(); }
template <class T>
__device__ inline void store_to_rank(T* p, T value, uint32_t) {
  *p = value;
}
#endif

#else  // compiled for a CPU, by a test

template <DType T>
void multiply(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  lanes::multiply(c.at, a.pair, b.pair, [](uint16_t bits) { return load(&bits, T, 0); });
}
using lanes::arrive_at_cluster;
using lanes::arrive_named;
using lanes::cluster_rank;
using lanes::cluster_size;
using lanes::copy_16_bytes;
using lanes::load_matrices;
using lanes::load_matrices_transposed;
using lanes::store_to_rank;
using lanes::sync_named;
using lanes::wait_for_cluster;
inline float fast_exp2(float x) { return exp2f(x); }
inline void warm(const void*) {}
inline void end_copies() {}
template <int Newest>
void wait_for_copies() {}

#endif

/// Bytes of a tile's row and 16-byte column: columns change places, so that the eight rows that are
/// read together lie in eight banks.
template <int D>
__device__ int place(int row, int column) {
  return row * D * 2 + (column ^ (row & 7)) * 16;
}

/// Two floats as a pair, the first in the low half.
template <DType T>
__device__ inline uint32_t pair_of(float low, float high) {
  if constexpr (T == DType::kBF16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, 4);
    return bits;
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, 4);
    return bits;
  }
}

}  // namespace shadowgraph::cuda
