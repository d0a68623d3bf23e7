// The mutant is chosen by SHADOWGRAPH_MUTANT; at the end the file SHADOWGRAPH_MUTANT_RAN says
// whether its place was run, and whether something else came of it there.
#include <cstdio>
#include <cstdlib>

int sg_mutant = 0;
char sg_ran = 0, sg_acted = 0;

namespace {

[[gnu::constructor(101)]] void choose() {
  if (const char* number = std::getenv("SHADOWGRAPH_MUTANT")) sg_mutant = std::atoi(number);
}

[[gnu::destructor]] void say() {
  const char* path = std::getenv("SHADOWGRAPH_MUTANT_RAN");
  std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "%d %d\n", sg_ran, sg_acted);
  std::fclose(file);
}

}  // namespace
