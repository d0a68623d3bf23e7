// The memory that a launch names, listed from its call's visit_args: each address with all that the
// call says of it. So whoever judges launches knows no kernel. Tested by
// tests/launch/operands_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shadowgraph/device/device_api.h"
#include "shadowgraph/tensor_view.h"

namespace shadowgraph {

struct Operand {
  std::array<const char*, 4> path = {};  // the call's names: "params", "custom_mask", "data"
  ConstTensorView view;
  // kAddress: nothing is said but where it begins (rank 0). kList: elements one after the other
  enum class Form : uint8_t { kAddress, kList, kView } form = Form::kAddress;
  std::optional<DType> dtype = {};  // none: the call does not say it
  bool written = false;             // its type lets the kernel write there

  std::string name() const {
    std::string text;
    for (const char* part : path)
      if (part != nullptr) text += (text.empty() ? "" : ".") + std::string(part);
    return text;
  }
  bool operator==(const Operand& o) const {
    return name() == o.name() && view.data == o.view.data && form == o.form && dtype == o.dtype &&
           view.rank == o.view.rank && view.shape == o.view.shape && view.stride == o.view.stride;
  }
};

template <class T>
constexpr std::optional<DType> dtype_of_elements() {
  using Element = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Element, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<Element, int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<Element, uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<Element, float>) return DType::kF32;
  return {};
}

/// Collects the operands of a call that it visits; what has no element or no memory is none.
class OperandLister {
 public:
  explicit OperandLister(std::vector<Operand>* all) : all_(*all) {}

  template <class T>
  void operator()(const char* name, T*& address) {
    if (address == nullptr) return;
    Operand& o = add(name, address, Operand::Form::kAddress, !std::is_const_v<T>);
    o.dtype = dtype_of_elements<T>();
  }
  template <class T>
  void operator()(const char* name, std::span<T>& list) {
    if (list.empty() || list.data() == nullptr) return;
    Operand& o = add(name, list.data(), Operand::Form::kList, !std::is_const_v<T>);
    o.dtype = dtype_of_elements<T>();
    o.view.rank = 1, o.view.shape[0] = static_cast<int64_t>(list.size()), o.view.stride[0] = 1;
  }
  template <class Byte>
  void operator()(const char* name, BasicTensorView<Byte>& t) {
    if (t.data == nullptr || !t.defined() || t.numel() == 0) return;
    Operand& o = add(name, t.data, Operand::Form::kView, !std::is_const_v<Byte>);
    o.view = t, o.dtype = t.dtype;
  }
  template <class T>
  void operator()(const char* name, T& member) {
    if constexpr (requires { visit_args(*this, member); }) {
      assert(depth_ + 1 < path_.size());
      path_[depth_++] = name;
      visit_args(*this, member);
      --depth_;
    }
  }

 private:
  Operand& add(const char* name, const void* data, Operand::Form form, bool written) {
    Operand& o = all_.emplace_back();
    path_[depth_] = name;
    std::copy_n(path_.begin(), depth_ + 1, o.path.begin());
    o.form = form, o.written = written;
    o.view.data = static_cast<const std::byte*>(data);
    return o;
  }

  std::vector<Operand>& all_;
  std::array<const char*, 4> path_ = {};
  size_t depth_ = 0;
};

/// Those of a kernel that lists them, of a copy, or of a fill; any other node has none.
std::vector<Operand> operands_of(const NodeParams& node);

}  // namespace shadowgraph
