// The ways to break a call that follow from the shapes of its members (call_members.h). Tested by
// tests/fuzz/refusals_test.cc.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/call/refusals.h"
#include "shadowgraph/attention/kv_cache.h"

namespace shadowgraph {

/// Visits a call's members.
class MemberBreakages {
 public:
  explicit MemberBreakages(Spoils* spoils) : spoils_(spoils) {}

  template <class Byte>
  void read(const char* name, BasicTensorView<Byte>& t, const char* shape) {
    if (!t.defined()) return;
    break_view(name, t.data, t.dtype, t.numel() > 0);
    for (size_t axis = 0; axis < static_cast<size_t>(t.rank); ++axis) {
      if (shape[axis] == '.' || t.shape[axis] == 0) continue;
      add(std::string(name) + " with axis " + std::to_string(axis) + " one short", "input.shape",
          [&t, axis] { --t.shape[axis]; });
    }
    if (const int axis = long_axis(t); axis >= 0)
      add(std::string(name) + " with rows out of reach", "input.overflow",
          [&t, axis] { t.stride[static_cast<size_t>(axis)] = int64_t{1} << 60; });
  }
  void written(const char* name, TensorView& t, const char* shape) {
    read(name, t, shape);
    if (!t.defined() || t.numel() == 0) return;
    written_.push_back({name, &t});
    if (const int axis = long_axis(t); axis >= 0)
      add(std::string(name) + " with all rows at one address", "input.stride",
          [&t, axis] { t.stride[static_cast<size_t>(axis)] = 0; });
  }
  void plane(const char* name, KvPlane& p) {
    break_view(name, p.data, p.dtype, true);
    if (p.scales != nullptr)
      add(std::string(name) + ".scales without memory", "input.null", [&p] { p.scales = nullptr; });
  }
  template <class T>
  void list(const char* name, std::span<T>& l) {
    if (!l.empty())
      add(std::string(name) + " without memory", "input.null", [&l] {
        l = {static_cast<T*>(nullptr), l.size()};
      });
  }
  void offsets(const char* name, std::span<const int32_t>& l) {
    list(name, l);
    if (l.empty()) return;
    set(name, "that begins with 1", "len.indptr_first", &l, 0, 1);
    const auto falls = std::ranges::find_if(l, [](int32_t offset) { return offset != 0; });
    if (falls != l.end() && falls + 1 != l.end())
      set(name, "that falls", "len.indptr_monotone", &l, static_cast<size_t>(falls + 1 - l.begin()),
          *falls - 1);
  }
  void offsets(const char* name, std::span<const int32_t>& l, LawId end) {
    offsets(name, l);
    if (l.size() > 1)
      set(name, "that ends behind what it counts", end, &l, l.size() - 1, l.back() + 1);
  }
  template <class T>
  void ids(const char* name, std::span<const T>& l, int64_t limit, LawId law, bool below) {
    list(name, l);
    for (size_t i = l.size(); i-- > 0;) {
      if (l[i] < 0) continue;  // none
      set(name, "with an id behind the last", law, &l, i, static_cast<T>(limit));
      if (below) set(name, "with id -2", law, &l, i, T{-2});
      return;
    }
  }
  void lengths(const char* name, std::span<const int32_t>& l) {
    list(name, l);
    if (!l.empty()) set(name, "below 0", "len.negative", &l, 0, -1);
  }
  void lengths(const char* name, std::span<const int32_t>& l, int64_t most, LawId law) {
    lengths(name, l);
    if (!l.empty())
      set(name, "beyond the room", law, &l, l.size() - 1, static_cast<int32_t>(most) + 1);
  }
  void scale(const char* name, float& number) {
    add(std::string(name) + " that is no number", "param.scale",
        [&number] { number = std::numeric_limits<float>::quiet_NaN(); });
  }
  void options(CallOptions& options) {
    add("an instruction set that there is not", "input.isa", [&options] { options.isa = "riscv"; });
  }

  /// Finds writes over other memory.
  std::vector<Breakage> take() {
    for (const Written& w : written_) {
      for (const auto& [name, data] : memory_) {
        if (data == w.view->data) continue;
        add(w.name + (" over " + name), "input.alias",
            [&view = *w.view, data = data] { view.data = const_cast<std::byte*>(data); });
      }
    }
    return std::move(ways_);
  }
  void add(std::string name, LawId law, std::function<void()> apply) {
    ways_.push_back({std::move(name), law, std::move(apply)});
  }

 private:
  struct Written {
    const char* name;
    TensorView* view;
  };

  /// The first axis of several elements in a view of some; -1: none.
  template <class Byte>
  static int long_axis(const BasicTensorView<Byte>& t) {
    if (t.numel() == 0) return -1;
    for (int axis = 0; axis + 1 < t.rank; ++axis)
      if (t.shape[static_cast<size_t>(axis)] > 1) return axis;
    return -1;
  }

  template <class T>
  void set(const char* name, const char* how, LawId law, std::span<const T>* l, size_t i, T value) {
    add(name + (" " + std::string(how)), law,
        [spoils = spoils_, l, i, value] { spoils->set(l, i, value); });
  }
  template <class Byte>
  void break_view(const char* name, Byte*& data, DType& type, bool has_elements) {
    add(std::string(name) + " of 64 bits", "input.dtype", [&type] { type = DType::kI64; });
    if (!has_elements) return;
    add(std::string(name) + " without memory", "input.null", [&data] { data = nullptr; });
    memory_.emplace_back(name, data);
  }

  Spoils* spoils_;
  std::vector<Breakage> ways_;
  std::vector<Written> written_;
  std::vector<std::pair<std::string, const std::byte*>> memory_;
};

}  // namespace shadowgraph
