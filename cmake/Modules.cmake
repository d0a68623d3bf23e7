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

# sg_unity(target size [EXCEPT FOLDER...]): compiles a target's sources in groups of so many, module by module: most of
# what one of our files costs is parsing the standard library's headers. Names in unnamed namespaces are therefore unique
# within a module, except in the folders that stay as they are. Sources with options of their own (instruction sets) stay,
# too. A test may use any name: its namespace has the name of its file.
function(sg_unity target size)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "EXCEPT")
  if(NOT SHADOWGRAPH_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    if(folder IN_LIST arg_EXCEPT)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    string(REGEX REPLACE "^src/([^/]+).*" "\\1" folder ${folder})
    string(REPLACE / _ folder ${folder})
    math(EXPR part "0${count_${folder}} / ${size}")
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A group is one file to the compiler: a name in an unnamed namespace is no longer its main file's, and hides another's.
  target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# sg_cold(target): what is not timed is compiled for a short build. It comes after CMAKE_CXX_FLAGS_RELEASE and wins.
# GCC 12 at -O1 does not see that an empty optional is not read.
function(sg_cold target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-O1> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endfunction()

# sg_shareable(target): may stand in a shared object. Nobody replaces a function of ours there (GCC must be told, clang
# takes it for granted), so calls are as direct and as often inlined as in a program.
function(sg_shareable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
endfunction()

# sg_module(name deps...): the static library shadowgraph_<name> from src/<name>/*.cc and one folder below.
function(sg_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  add_library(shadowgraph_${name} STATIC ${sources})
  target_include_directories(shadowgraph_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(shadowgraph_${name} PUBLIC shadowgraph::shadowgraph ${ARGN})
  sg_options(shadowgraph_${name})
  sg_shareable(shadowgraph_${name})
  sg_unity(shadowgraph_${name} 12)
endfunction()
