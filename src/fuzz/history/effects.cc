#include "fuzz/history/effects.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace shadowgraph {
namespace {

class Digest {
 public:
  void add(uint64_t word) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
    sum_ = (sum_ ^ word) * kOdd;
    sum_ ^= sum_ >> 29;
  }
  void add(const std::byte* bytes, size_t size) {
    add(size);
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, std::min(sizeof word, size - i));
      add(word);
    }
  }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

void add_arguments(const KernelLaunch& launch, Digest* digest) {
  for (const Dim3& d : {launch.grid, launch.block})
    for (const uint32_t size : {d.x, d.y, d.z}) digest->add(size);
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const std::span<const std::byte> bytes = launch.args.bytes(i);
    if (launch.args.kind(i) == ArgKind::kPointer) {
      digest->add(launch.args.get<void*>(i) != nullptr);
    } else {
      digest->add(bytes.data(), bytes.size());
    }
  }
}

void add_rows(const ConstTensorView& t, Digest* digest) {
  if (!t.defined()) return;
  const size_t row = static_cast<size_t>(t.rank > 1 ? t.stride[0] : 1) * size_of(t.dtype);
  digest->add(t.data, static_cast<size_t>(t.shape[0]) * row);
}

}  // namespace

void Effects::watch(RunnerOptions* options) {
  options->device.watch = [this](const KernelLaunch& launch, const Footprint& accessed) {
    add(launch, accessed);
  };
  options->outputs = [this](std::span<const LayerIo> layers) { add(layers); };
}

void Effects::add(const KernelLaunch& launch, const Footprint& accessed) {
  Digest arguments, read;
  add_arguments(launch, &arguments);
  for (const AccessSpan& span : accessed) {
    if (span.access != Access::kRead || span.buffer == nullptr || span.count <= 0) continue;
    read.add(static_cast<uint64_t>(span.first));
    const auto* first = static_cast<const std::byte*>(span.buffer) +
                        span.first * static_cast<int64_t>(span.element_bytes);
    read.add(first, static_cast<size_t>(span.count) * span.element_bytes);
  }
  all_.push_back({launch.kernel->name, launch.kernel->stands_in, arguments.sum(), read.sum()});
}

void Effects::add(std::span<const LayerIo> layers) {
  Digest digest;
  for (const LayerIo& io : layers) {
    add_rows(io.out, &digest);
    add_rows(io.lse.tensor, &digest);
  }
  all_.push_back({{}, false, 0, digest.sum()});
}

bool Effects::Effect::operator==(const Effect& other) const {
  return kernel == other.kernel && arguments == other.arguments &&
         (stands_in || other.stands_in || read == other.read);
}

std::string Effects::first_difference(const Effects& other) const {
  const auto [mine, others] = std::ranges::mismatch(all_, other.all_);
  if (mine == all_.end() && others == other.all_.end()) return "";
  const std::string_view kernel = mine != all_.end() ? mine->kernel : others->kernel;
  return kernel.empty() ? "an output is another" : std::string(kernel) + " reads something else";
}

}  // namespace shadowgraph
