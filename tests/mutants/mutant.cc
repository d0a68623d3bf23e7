// The mutant is chosen by SHADOWGRAPH_MUTANT. At the end the file SHADOWGRAPH_MUTANT_RAN says
// whether its place was run, and whether something else came of it there; with -1 it says which
// mutants' places were run.
#include "mutant.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

int sg_mutant = 0;
char sg_ran = 0, sg_acted = 0;

namespace {

constexpr int kMost = 1 << 14;
std::atomic<bool> noted[kMost];

[[gnu::constructor(101)]] void choose() {
  if (const char* number = std::getenv("SHADOWGRAPH_MUTANT")) sg_mutant = std::atoi(number);
}

[[gnu::destructor]] void say() {
  const char* path = std::getenv("SHADOWGRAPH_MUTANT_RAN");
  std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) return;
  if (sg_mutant >= 0) std::fprintf(file, "%d %d", sg_ran, sg_acted);
  for (int mutant = 0; sg_mutant < 0 && mutant < kMost; ++mutant)
    if (noted[mutant]) std::fprintf(file, "%d ", mutant);
  std::fclose(file);
}

}  // namespace

void sg_note(int mutant) {
  if (mutant < kMost) noted[mutant].store(true, std::memory_order_relaxed);
}
