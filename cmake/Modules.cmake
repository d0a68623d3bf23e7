# sg_options(target): how all of our own code is compiled. Nothing of it reaches a consumer.
# Contraction is off: where a fused multiply-add is wanted the code says fma, so that bits are the code's, not the
# compiler's.
# GCC 12's flow-based warnings see copies and indices, in inlined code of its own library and behind a switch over
# dtypes, that cannot happen (GCC bug 105651 is one); ASan looks for the real ones.
function(sg_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                           -ffp-contract=off "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds>"
                                           $<$<BOOL:${SHADOWGRAPH_WERROR}>:-Werror>)
endfunction()

# sg_module(name deps...): the static library shadowgraph_<name> from src/<name>/*.cc and one folder below.
function(sg_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  add_library(shadowgraph_${name} STATIC ${sources})
  target_include_directories(shadowgraph_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(shadowgraph_${name} PUBLIC shadowgraph::shadowgraph ${ARGN})
  sg_options(shadowgraph_${name})
endfunction()
