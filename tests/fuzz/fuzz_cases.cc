// Whatever the bytes of a case file: refused with findings, or it runs and is written back the
// same.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzz/file/history_file.h"

using namespace shadowgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/tmp/shadowgraph_fuzz_case_" + std::to_string(::getpid());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return 0;
  const bool written = std::fwrite(data, 1, size, file) == size;
  std::fclose(file);
  HistoryCase x;
  const bool accepted = written && read_case(path, &x).ok();
  if (accepted) {
    (void)run_case(x, nullptr);  // steps may be wrong, and are then found to be
    std::FILE* again = std::fopen(path.c_str(), "wb");
    const std::string text = to_json(x);
    std::fwrite(text.data(), 1, text.size(), again);
    std::fclose(again);
    HistoryCase same;
    if (!read_case(path, &same).ok() || to_json(same) != text) std::abort();
  }
  std::remove(path.c_str());
  return 0;
}
