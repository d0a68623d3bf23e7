// Launches as data: a kernel, its shape, and its arguments by value. A graph keeps exactly the
// launch that a stream was given, and a replay runs it again. Facts: docs/graphs.md "What is
// baked".
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shadowgraph/device/access.h"

namespace shadowgraph {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
  uint64_t volume() const { return uint64_t{x} * y * z; }
};

enum class ArgKind : uint8_t {
  kPointer,      // a device address; a device with a shadow knows which buffer it points into
  kScalar,       // bytes by value
  kConditional,  // a ConditionalHandle
};

/// The arguments in order. Their bytes are copied when they are added.
class KernelArgs {
 public:
  KernelArgs& pointer(const void* p) { return add(ArgKind::kPointer, &p, sizeof p); }
  template <class T>
  KernelArgs& scalar(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add(ArgKind::kScalar, &value, sizeof value);
  }
  KernelArgs& conditional(uint64_t handle) {
    return add(ArgKind::kConditional, &handle, sizeof handle);
  }
  KernelArgs& add(ArgKind kind, const void* data, size_t size) {
    const size_t offset = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(offset + size);
    std::memcpy(bytes_.data() + offset, data, size);
    args_.push_back({kind, static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    return *this;
  }

  size_t size() const { return args_.size(); }
  ArgKind kind(size_t i) const { return args_[i].kind; }
  std::span<const std::byte> bytes(size_t i) const {
    return {bytes_.data() + args_[i].offset, args_[i].size};
  }
  template <class T>
  T get(size_t i) const {
    assert(args_[i].size == sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + args_[i].offset, sizeof value);
    return value;
  }

  bool operator==(const KernelArgs&) const = default;

 private:
  struct Arg {
    ArgKind kind;
    uint32_t offset, size;
    bool operator==(const Arg&) const = default;
  };

  std::vector<Arg> args_;
  std::vector<std::byte> bytes_;
};

struct KernelLaunch;
struct Operand;

/// kWaiting: the body must be called again later; other work runs in between.
enum class Progress : uint8_t { kDone, kWaiting };

/// One run of a launch on the CPU, as its body sees it.
struct LaunchFrame {
  const KernelLaunch& launch;
  /// How often the body was called before in this run; `state` lives as long as the run.
  uint32_t calls = 0;
  int64_t state = 0;
  /// Nothing else on the device can run, so a body that waits for other work would wait for ever (a
  /// spinning body runs out of its clocks).
  bool stalled = false;
  /// Sets a conditional handle (cudaGraphSetConditional). Never null; without effect where no such
  /// handle exists.
  void (*set_conditional)(LaunchFrame& frame, uint64_t handle,
                          uint32_t value) = [](LaunchFrame&, uint64_t, uint32_t) {};
  void* context = nullptr;  // the device's own

  template <class T>
  T* pointer(size_t i) const;
  template <class T>
  T scalar(size_t i) const;
};

/// A kernel: its name, the CPU body that a simulated device runs, and what the body reads and
/// writes. Another executor finds its own body by the name. A Kernel must live for ever.
struct Kernel {
  std::string_view name;
  Progress (*body)(LaunchFrame& frame) = nullptr;
  /// Computed before the body runs, from what the buffers hold at that time; must not walk beyond
  /// what it has checked. Null: the kernel declares nothing and is not checked.
  void (*footprint)(const LaunchFrame& frame, Footprint* spans) = nullptr;
  /// Index of the scalar that names the launch in a dump ("kernel:fill:7"); -1: none.
  int label_arg = -1;
  /// This kernel replaces a real one and computes something wrong on purpose. So no other
  /// executor's body of the same name may run in its place.
  bool stands_in = false;
  /// The memory that a launch names, argument by argument (launch/operands.h). Null: it does not
  /// say.
  void (*operands)(const KernelLaunch& launch, std::vector<Operand>* all) = nullptr;
};

/// cudaLaunchKernel's arguments.
struct KernelLaunch {
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  uint32_t shared_bytes = 0;
  KernelArgs args;
  /// cudaLaunchAttributeProgrammaticStreamSerialization.
  bool programmatic = false;

  bool operator==(const KernelLaunch&) const = default;
};

template <class T>
T* LaunchFrame::pointer(size_t i) const {
  return static_cast<T*>(launch.args.get<void*>(i));
}
template <class T>
T LaunchFrame::scalar(size_t i) const {
  return launch.args.get<T>(i);
}

}  // namespace shadowgraph
