# The CUDA target: src/cuda as shadowgraph_cuda, where SHADOWGRAPH_CUDA is on. Compiles wherever nvcc is found; no GPU is
# needed for that.
set(SHADOWGRAPH_CUDA_ARCHITECTURES 80;90a CACHE STRING "What the CUDA target is compiled for")
set(CMAKE_CUDA_ARCHITECTURES ${SHADOWGRAPH_CUDA_ARCHITECTURES})
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cc ${PROJECT_SOURCE_DIR}/src/cuda/kernels/*.cu)
# An object library: kernels are found by objects that nothing names, which an archive would leave out.
add_library(shadowgraph_cuda OBJECT ${cuda_sources})
target_include_directories(shadowgraph_cuda PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(shadowgraph_cuda PUBLIC shadowgraph::shadowgraph CUDA::cudart_static)
set_target_properties(shadowgraph_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_features(shadowgraph_cuda PUBLIC cxx_std_20)
target_compile_definitions(shadowgraph_cuda PUBLIC SHADOWGRAPH_CUDA)
if("90a" IN_LIST SHADOWGRAPH_CUDA_ARCHITECTURES)
  target_compile_definitions(shadowgraph_cuda PRIVATE SHADOWGRAPH_SM90A)
endif()
target_compile_options(
  shadowgraph_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow>
                           # CMake before 3.26 knows no standards of CUDA 13.
                           $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>
                           # Contraction is off, as everywhere: where a fused multiply-add is wanted the code says fma.
                           # 554: a conversion of a view to its own type, which its requires-clause rules out.
                           "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-diag-suppress=554>"
                           "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${SHADOWGRAPH_WERROR}>>:-Werror;all-warnings>")

# What the GPU's bodies reach: bench/gpu.
if(TARGET shadowgraph_check)
  add_executable(gpu_bench bench/gpu/gpu_bench.cc)
  target_include_directories(gpu_bench PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(gpu_bench PRIVATE shadowgraph_cuda shadowgraph_check)
  set_target_properties(gpu_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
endif()
