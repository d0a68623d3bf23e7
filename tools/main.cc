// The program `shadowgraph`.
#include "program.h"

int main(int argc, char** argv) { return shadowgraph::cli::run_program(argc, argv); }
