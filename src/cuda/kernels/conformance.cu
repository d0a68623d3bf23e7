// GPU bodies of the conformance programs' kernels (conformance/kernels.h).
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_symbol.h"

namespace shadowgraph::cuda {
namespace {

struct S4 {
  int v[4];
};

__device__ int thread_index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__device__ void wait_clocks(long long clocks) {
  for (const long long start = clock64(); clock64() - start < clocks;) {
  }
}

__global__ void fill(int* p, int v, int n) {
  if (thread_index() < n) p[thread_index()] = v;
}
__global__ void add(int* p, int v, int n) {
  if (thread_index() < n) p[thread_index()] += v;
}
__global__ void mul(int* y, const int* x, int m, int n) {
  if (thread_index() < n) y[thread_index()] = m * x[thread_index()];
}
__global__ void copy(int* d, const int* s, int n) {
  if (thread_index() < n) d[thread_index()] = s[thread_index()];
}
__global__ void len(int* d, const int* length, int v) {
  if (thread_index() < min(*length, 32)) d[thread_index()] = v;
}
__global__ void struct4(int* p, S4 s) {
  if (thread_index() < 4) p[thread_index()] = s.v[thread_index()];
}
__global__ void count(int* c, int go) {
  if (go == 0) return;
  if (threadIdx.x == 0) atomicAdd(&c[0], 1);
  atomicAdd(&c[1], 1);
}
__global__ void append(int* log, int v) {
  if (thread_index() == 0) log[1 + atomicAdd(&log[0], 1)] = v;
}
__global__ void spin(int* p, int v, long long clocks) {
  wait_clocks(clocks);
  *p = v;
}
__global__ void spinflag(volatile int* flag, int* p, int v, long long clocks) {
  const long long start = clock64();
  while (*flag == 0 && clock64() - start < clocks) {
  }
  *p = *flag != 0 ? v : -1;
}
__global__ void rmw(volatile int* p, int inc, long long clocks) {
  const int x = *p;
  wait_clocks(clocks);
  *p = x + inc;
}
__global__ void sys(volatile int* p, int v) {
  *p = v;
  __threadfence_system();
}
__global__ void ptr(void** out, void* p) { *out = p; }
__global__ void wild(int* p, long long offset) { p[offset] = 1; }
__global__ void cold(int* p, int v) { *p = v; }
__global__ void cold2(int* p, int v) { *p = v + 1; }
__global__ void whilestep(int* p, cudaGraphConditionalHandle handle) {
  *p -= 1;
  cudaGraphSetConditional(handle, *p > 0 ? 1 : 0);
}
__global__ void setcond(cudaGraphConditionalHandle handle, const int* v) {
  cudaGraphSetConditional(handle, static_cast<unsigned>(*v));
}

const CudaKernels kKernels{
    cuda_kernel("fill", fill),
    cuda_kernel("add", add),
    cuda_kernel("mul", mul),
    cuda_kernel("copy", copy),
    cuda_kernel("len", len),
    cuda_kernel("struct", struct4),
    cuda_kernel("count", count),
    cuda_kernel("append", append),
    cuda_kernel("spin", spin),
    cuda_kernel("spinflag", spinflag),
    cuda_kernel("rmw", rmw),
    cuda_kernel("sys", sys),
    cuda_kernel("ptr", ptr),
    cuda_kernel("wild", wild),
    cuda_kernel("cold", cold),
    cuda_kernel("cold2", cold2),
    cuda_kernel("whilestep", whilestep),
    cuda_kernel("setcond", setcond),
};

__device__ int symbol[4];

}  // namespace

cudaError_t copy_to_symbol(const void* src, size_t bytes) {
  return cudaMemcpyToSymbol(symbol, src, bytes);
}
cudaError_t get_symbol_address(void** p) { return cudaGetSymbolAddress(p, symbol); }

void* symbol_address() {
  static void* const found = [] {
    void* p = nullptr;
    return cudaGetSymbolAddress(&p, symbol) == cudaSuccess ? p : nullptr;
  }();
  return found;
}

}  // namespace shadowgraph::cuda
