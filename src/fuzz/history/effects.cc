#include "fuzz/history/effects.h"

#include <algorithm>
#include <cstring>
#include <functional>
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
  // An order that no launch notices is no difference.
  std::sort(all_.begin() + static_cast<std::ptrdiff_t>(step_), all_.end(),
            [](const Effect& a, const Effect& b) {
              return std::tuple(a.call(), a.read) < std::tuple(b.call(), b.read);
            });
  all_.push_back({{}, false, 0, digest.sum()});
  step_ = all_.size();
}

std::string Effects::first_difference(const Effects& other) const {
  const auto behind = [](auto first, auto end) {
    return std::find_if(first, end, [&](const Effect& e) { return e.call() != first->call(); });
  };
  auto mine = all_.begin(), others = other.all_.begin();
  // A step's launches of one call, in whatever order they ran.
  while (mine != all_.end() && others != other.all_.end() && mine->call() == others->call()) {
    const auto end = behind(mine, all_.end()), others_end = behind(others, other.all_.end());
    const bool free = std::any_of(mine, end, std::mem_fn(&Effect::stands_in)) ||
                      std::any_of(others, others_end, std::mem_fn(&Effect::stands_in));
    const auto same_read = [](const Effect& a, const Effect& b) { return a.read == b.read; };
    if (free ? end - mine != others_end - others
             : !std::equal(mine, end, others, others_end, same_read))
      break;
    mine = end, others = others_end;
  }
  if (mine == all_.end() && others == other.all_.end()) return "";
  const std::string_view kernel = mine != all_.end() ? mine->kernel : others->kernel;
  return kernel.empty() ? "an output is another" : std::string(kernel) + " reads something else";
}

}  // namespace shadowgraph
