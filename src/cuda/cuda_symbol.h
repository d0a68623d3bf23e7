// The symbol of 16 bytes that cudaMemcpyToSymbol and its like are made on: symbols are nvcc's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace shadowgraph::cuda {

cudaError_t copy_to_symbol(const void* src, size_t bytes);
cudaError_t get_symbol_address(void** p);
/// Found once; nullptr where that failed.
void* symbol_address();

}  // namespace shadowgraph::cuda
