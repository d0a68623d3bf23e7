// Whatever the choices: a history of any backend is clean, and no crash.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fuzz/history/history.h"

using namespace shadowgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint32_t> recorded(data, data + size);
  Choices choices{std::span<const uint32_t>(recorded)};
  const History history = generate_history(choices, all_backends());
  const HistoryResult result = run_history(history, choices, {});
  if (result.findings.ok()) return 0;
  std::fprintf(stderr, "%s\n%s\nshadowgraph fuzz --choices %s\n", history.to_string().c_str(),
               result.findings.to_string().c_str(), to_text(choices.made()).c_str());
  std::abort();
}
