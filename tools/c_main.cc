// The program, for callers of C.
#include "program.h"
#include "shadowgraph.h"

extern "C" int32_t sg_main(int32_t argc, const char* const* argv) {
  return argv == nullptr || argc < 1 ? SG_USAGE : shadowgraph::cli::run_program(argc, argv);
}
