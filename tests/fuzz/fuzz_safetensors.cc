// Whatever the bytes: no crash, no sanitizer report; and what is accepted survives being written
// and read again.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "io/kernel_vectors.h"
#include "io/linear_vectors.h"
#include "io/safetensors.h"

using namespace shadowgraph;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

bool same(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.dtype != b.dtype || a.rank != b.rank || a.shape != b.shape || a.stride != b.stride)
    return false;
  return a.numel() == 0 ||
         std::memcmp(a.data, b.data, static_cast<size_t>(a.numel()) * size_of(a.dtype)) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(first, first + size);
  SafetensorsFile file;
  if (!parse_safetensors(bytes, "fuzz", &file).ok()) return 0;

  std::vector<std::byte> written;
  require(serialize_safetensors(file.tensors, file.metadata, &written).ok());
  SafetensorsFile again;
  require(parse_safetensors(std::make_shared<const std::vector<std::byte>>(std::move(written)),
                            "again", &again)
              .ok());
  require(again.metadata == file.metadata && again.tensors.size() == file.tensors.size());
  for (const auto& [name, view] : file.tensors) {
    const auto at = again.tensors.find(name);
    require(at != again.tensors.end() && same(view, at->second));
  }

  std::vector<KernelVector> cases;
  std::vector<SkippedCase> skipped;
  const Status status = parse_kernel_vectors(file, "fuzz", &cases, &skipped);
  require(status.ok() || (cases.empty() && skipped.empty()));

  std::vector<LinearVector> recurrent;
  (void)parse_linear_vectors(file, "fuzz", &recurrent, &skipped);
  require(recurrent.empty() || holds_linear_cases(file));
  return 0;
}
