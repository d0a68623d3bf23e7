// A launch's arguments are those of a call, as its visit_args lists them
// (attn/visit/visit_attention.h): first its addresses, then, as one scalar, the call without them.
// A GPU body takes the same arguments. Also spans of footprints. Tested by
// tests/launch/launch_args_test.cc.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "launch/operands.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/device/access.h"
#include "shadowgraph/device/kernel.h"
#include "shadowgraph/engine/launches.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

/// What a launch was made of. What visit_args does not list is 0.
template <class Call>
struct CallOf {
  Call call;
  RequestRows rows;
};

/// Puts the addresses that it visits among a launch's arguments, and the bytes of all else where
/// they lie in `from`. The other bytes stay 0: launches are compared byte by byte, and a struct's
/// padding is anything.
class ArgsWriter {
 public:
  ArgsWriter(const void* from, std::byte* to, KernelArgs* args)
      : from_(static_cast<const std::byte*>(from)), to_(to), args_(*args) {}

  template <class T>
  void operator()(const char* /*name*/, T*& address) {
    args_.pointer(address);
  }
  template <class T>
  void operator()(const char* /*name*/, std::span<T>& list) {
    args_.pointer(list.data());
    put(&list, std::span<T>(static_cast<T*>(nullptr), list.size()));
  }
  template <class Byte>
  void operator()(const char* /*name*/, BasicTensorView<Byte>& t) {
    assert(t.rank >= 0 && t.rank <= t.kMaxRank);
    args_.pointer(t.data);
    put(&t.dtype, t.dtype);
    put(&t.rank, t.rank);
    for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i) {
      put(&t.shape[i], t.shape[i]);
      put(&t.stride[i], t.stride[i]);
    }
  }
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    if constexpr (requires { visit_args(*this, member); }) {
      visit_args(*this, member);
    } else {
      static_assert(std::is_arithmetic_v<T> || std::has_unique_object_representations_v<T>);
      put(&member, member);
    }
  }

 private:
  template <class T>
  void put(const void* at, const T& value) {
    std::memcpy(to_ + (static_cast<const std::byte*>(at) - from_), &value, sizeof value);
  }

  const std::byte* from_;
  std::byte* to_;
  KernelArgs& args_;
};

/// Gives a call the addresses of a launch.
class ArgsReader {
 public:
  explicit ArgsReader(const KernelArgs& args) : args_(args) {}

  template <class T>
  void operator()(const char* /*name*/, T*& address) {
    address = static_cast<T*>(args_.get<void*>(next_++));
  }
  template <class T>
  void operator()(const char* name, std::span<T>& list) {
    T* data = nullptr;
    (*this)(name, data);
    list = {data, list.size()};
  }
  template <class Byte>
  void operator()(const char* name, BasicTensorView<Byte>& t) {
    (*this)(name, t.data);
  }
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    if constexpr (requires { visit_args(*this, member); }) visit_args(*this, member);
  }

 private:
  const KernelArgs& args_;
  size_t next_ = 0;
};

/// A launch of so many blocks, of one where there are none.
template <class Call>
KernelLaunch launch_of(const Kernel& kernel, const Call& call, const RequestRows& rows,
                       int64_t blocks) {
  KernelLaunch launch;
  launch.kernel = &kernel;
  launch.grid.x = static_cast<uint32_t>(blocks < 1 ? 1 : blocks);
  CallOf<Call> of{call, rows};
  std::array<std::byte, sizeof of> scalar{};
  ArgsWriter writer(&of, scalar.data(), &launch.args);
  visit_args(writer, of.call);
  writer("rows", of.rows);
  launch.args.add(ArgKind::kScalar, scalar.data(), scalar.size());
  return launch;
}

/// The scalar of a launch with these arguments: the call without its addresses.
template <class Call>
CallOf<Call> scalar_of(const KernelLaunch& launch) {
  size_t arg = 0;
  while (launch.args.kind(arg) == ArgKind::kPointer) ++arg;
  return launch.args.get<CallOf<Call>>(arg);
}

/// The inverse of launch_of: reads no memory of the device. Requires a launch with these arguments.
template <class Call>
CallOf<Call> call_of(const KernelLaunch& launch) {
  auto of = scalar_of<Call>(launch);
  ArgsReader reader(launch.args);
  visit_args(reader, of.call);
  return of;
}

/// Rows of spans become requests.
void name_requests(const RequestRows& rows, Footprint* spans);

/// Kernel::operands of every kernel with these arguments.
template <class Call>
void list_operands(const KernelLaunch& launch, std::vector<Operand>* all) {
  auto of = call_of<Call>(launch);
  OperandLister list(all);
  visit_args(list, of.call);
}

/// A kernel whose arguments are a call: run(call) and note(call, spans) take it on what memory
/// holds when the launch runs.
template <class Call, void (*run)(const Call&), void (*note)(const Call&, Footprint*)>
constexpr Kernel launch_kernel(std::string_view name) {
  return {.name = name,
          .body =
              [](LaunchFrame& f) {
                run(call_of<Call>(f.launch).call);
                return Progress::kDone;
              },
          .footprint =
              [](const LaunchFrame& f, Footprint* spans) {
                const auto of = call_of<Call>(f.launch);
                note(of.call, spans);
                name_requests(of.rows, spans);
              },
          .operands = list_operands<Call>};
}

/// The same of a kernel that is written once, Walk(call, spans).run(): with spans it notes what it
/// reads and writes, without them it does it.
template <class Call, class Walk>
void run_walk(const Call& call) {
  Walk(call, nullptr).run();
}
template <class Call, class Walk>
void note_walk(const Call& call, Footprint* spans) {
  Walk(call, spans).run();
}
template <class Call, class Walk>
constexpr Kernel walked_kernel(std::string_view name) {
  return launch_kernel<Call, run_walk<Call, Walk>, note_walk<Call, Walk>>(name);
}

template <class T>
void add_whole(Footprint* spans, std::span<const T> s, Access access = Access::kRead) {
  if (!s.empty())
    spans->push_back({s.data(), 0, static_cast<int64_t>(s.size()), sizeof(T), access});
}
/// Every element of a view that is written; nothing where it is none.
void add_written(Footprint* spans, const TensorView& t);
/// Fills it with 0xff: what a call that is refused when it runs leaves behind.
void poison(const TensorView& t);

/// Where a place along a stride begins; far outside every memory where it overflows.
int64_t offset_of_place(int64_t place, int64_t stride);
/// The access to so many elements of a place that a view's first axis does not have; nothing where
/// it has it.
void add_missing_place(Footprint* spans, const ConstTensorView& t, int64_t place, int64_t count,
                       Access access, int64_t row);
/// The reads or writes beyond the pool of a page id that it does not have, at K, V and scales.
void add_beyond_pool(Footprint* spans, const KvCache& c, int64_t page, Access access, int32_t row);

}  // namespace shadowgraph
