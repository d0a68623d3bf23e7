// Two threads count, ten times over: "racy" both on one variable, "correct" each on its own, and
// the sum is taken between the rounds, which only OpenMP's fork and join make safe.
#include <omp.h>

#include <cstdio>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  const bool racy = argc > 1 && std::string_view(argv[1]) == "racy";
  std::vector<int> counts(64);
  int sum = 0;
  for (int round = 0; round < 10; ++round) {
#pragma omp parallel num_threads(2)
    {
      const int mine = racy ? 0 : omp_get_thread_num() * 32;
      for (int i = 0; i < 1000; ++i) ++counts[static_cast<size_t>(mine)];
    }
    sum += counts[0] + counts[32];
    counts[0] = counts[32] = 0;
  }
  std::printf("counted %d\n", sum);
  return 0;
}
