// Whatever the bytes of a call's file: refused with findings, or it runs and is written back the
// same.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzz/file/call_file.h"

using namespace shadowgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/tmp/shadowgraph_fuzz_call_" + std::to_string(::getpid());
  const auto write = [&](const void* bytes, size_t count) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return false;
    const bool written = std::fwrite(bytes, 1, count, file) == count;
    std::fclose(file);
    return written;
  };
  CallCase x;
  if (write(data, size) && read_call(path, &x).ok()) {
    (void)check_case(x.x, RunOptions());  // a call may be one that is refused
    const std::string text = to_json(x);
    CallCase same;
    if (!write(text.data(), text.size()) || !read_call(path, &same).ok() || to_json(same) != text)
      std::abort();
  }
  std::remove(path.c_str());
  return 0;
}
