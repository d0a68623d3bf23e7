# Sanitizers and the libFuzzer instrumentation cover everything that is built here, tests included.
set(SHADOWGRAPH_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")
set_property(CACHE SHADOWGRAPH_SANITIZE PROPERTY STRINGS "" address thread)

if(SHADOWGRAPH_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(SHADOWGRAPH_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(SHADOWGRAPH_SANITIZE)
  message(FATAL_ERROR "SHADOWGRAPH_SANITIZE is ${SHADOWGRAPH_SANITIZE}; address, thread or empty")
endif()

if(SHADOWGRAPH_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SHADOWGRAPH_BUILD_FUZZ needs clang: libFuzzer comes with it")
  endif()
  list(APPEND sanitize -fsanitize=fuzzer-no-link)
endif()

if(sanitize)
  add_compile_options(${sanitize} -fno-omit-frame-pointer)
  add_link_options(${sanitize})
endif()
