// The mutations of a call that follow from its members by their types (call_members.h, and
// visit_args for numbers): a new member of either list is mutated, too. Tested by
// tests/fuzz/call_grid_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fuzz/call/call_memory.h"
#include "fuzz/mutate/mutation.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph {

/// Sizes of a call's axes, by the letters that call_members.h has for them.
class AxisSizes {
 public:
  template <class Byte>
  void read(const char* /*name*/, const BasicTensorView<Byte>& t, const char* shape) {
    for (size_t axis = 0; axis < static_cast<size_t>(t.rank); ++axis)
      if (shape[axis] != '.') sizes_.emplace(shape[axis], t.shape[axis]);
  }
  void written(const char* name, const TensorView& t, const char* shape) { read(name, t, shape); }
  template <class... Other>
  void plane(Other&&...) {}
  template <class... Other>
  void list(Other&&...) {}
  template <class... Other>
  void offsets(Other&&...) {}
  template <class T>
  void ids(const char*, T&, int64_t, LawId, bool) {}
  template <class T>
  void lengths(const char*, T&) {}
  template <class T>
  void lengths(const char*, T&, int64_t, LawId) {}
  template <class T>
  void offsets(const char*, T&, LawId) {}
  template <class... Other>
  void scale(Other&&...) {}
  template <class... Other>
  void options(Other&&...) {}

  /// Empty: some axis is not known.
  std::vector<int64_t> of(std::string_view shape) const {
    std::vector<int64_t> sizes;
    for (const char letter : shape) {
      const auto size = sizes_.find(letter);
      if (size == sizes_.end()) return {};
      sizes.push_back(size->second);
    }
    return sizes;
  }

 private:
  std::map<char, int64_t> sizes_;
};

/// Is there an enumerator of that value?
template <auto Value>
constexpr bool is_enumerator() {
  constexpr std::string_view kName = __PRETTY_FUNCTION__;
  constexpr char kFirst = kName[kName.rfind("Value = ") + 8];
  return kFirst != '(' && (kFirst < '0' || kFirst > '9') && kFirst != '-';
}
template <class Enum>
std::vector<Enum> enumerators() {
  std::vector<Enum> all;
  const auto add = [&]<size_t... I>(std::index_sequence<I...>) {
    ((is_enumerator<static_cast<Enum>(I)>() ? all.push_back(static_cast<Enum>(I)) : void()), ...);
  };
  add(std::make_index_sequence<16>());
  return all;
}

/// Elements as numbers, rounded to the type of `to`.
void copy_elements(const ConstTensorView& from, const TensorView& to);
void fill_elements(const TensorView& t, double with);
/// The same elements in other memory of *arena, of another type or in the beginning of larger axes.
template <class Byte>
void lay_again(CallMemory* arena, BasicTensorView<Byte>* t, DType type,
               const std::array<int64_t, 5>& shape) {
  Rng rng(1);
  TensorView all = arena->add("mutated", type, std::span(shape).first(static_cast<size_t>(t->rank)),
                              rng, AxisOrder::kDense);
  TensorView to = all;
  to.shape = t->shape;
  copy_elements(*t, to);
  *t = all;
}
class MemberMutations {
 public:
  /// The call visits sizes() first, and lives as long as what take() gives.
  explicit MemberMutations(CallMemory* arena) : arena_(arena) {}
  AxisSizes& sizes() { return sizes_; }

  template <class Byte>
  void read(const char* name, BasicTensorView<Byte>& t, const char* shape) {
    tensor(name, t, shape, false);
  }
  void written(const char* name, TensorView& t, const char* shape) { tensor(name, t, shape, true); }
  void plane(const char* /*name*/, KvPlane& /*numbers are visit_args'*/) {}
  template <class T>
  void list(const char* name, std::span<T>& l) {
    using Element = std::remove_const_t<T>;
    if (l.empty()) {
      add(name, "given", kPresenceMutation, [this, &l] { put(&l, std::vector<Element>(1)); });
      return;
    }
    add(name, "absent", kPresenceMutation, [&l] { l = {}; });
    add(name, "one short", kSizeMutation, [&l] { l = l.first(l.size() - 1); });
    add(name, "one longer", kSizeMutation, [this, &l] {
      std::vector<Element> longer(l.begin(), l.end());
      longer.push_back(longer.back());
      put(&l, longer);
    });
    for (const size_t i : std::set<size_t>{0, l.size() / 2, l.size() - 1}) {
      for (const Element value : others(Element{l[i]}))
        add(name, "with " + std::to_string(value) + " at " + std::to_string(i), kElementMutation,
            [this, &l, i, value] {
              std::vector<Element> changed(l.begin(), l.end());
              changed[i] = value;
              put(&l, changed);
            });
    }
  }
  void offsets(const char* name, std::span<const int32_t>& l) { list(name, l); }
  void offsets(const char* name, std::span<const int32_t>& l, LawId) { list(name, l); }
  template <class T>
  void ids(const char* name, std::span<const T>& l, int64_t, LawId, bool) {
    list(name, l);
  }
  void lengths(const char* name, std::span<const int32_t>& l) { list(name, l); }
  void lengths(const char* name, std::span<const int32_t>& l, int64_t, LawId) { list(name, l); }
  void scale(const char* /*name*/, float& /*visit_args' */) {}
  void options(CallOptions& o) {
    // Scratch of exactly its size may be too small for another way to compute, and a plan is one
    // way's.
    const Expect expect = o.scratch.empty() ? Expect::kTaken : Expect::kEither;
    for (const Arith arith : enumerators<Arith>())
      add(
          "options.arith", "another", kOptionMutation, [&o, arith] { o.arith = arith; },
          Expect::kEither);
    for (const LseSink sink : enumerators<LseSink>())
      add(
          "options.lse_sink", "another", kOptionMutation, [&o, sink] { o.lse_sink = sink; },
          Expect::kTaken);
    for (const int threads : {0, 2, 3})
      add(
          "options.num_threads", std::to_string(threads), kOptionMutation,
          [&o, threads] { o.num_threads = threads; }, expect);
  }

  /// visit_args calls it so: numbers, and of structs those of their members.
  template <class T>
  void operator()(const char* name, T& member) {
    if constexpr (std::same_as<T, CallOptions>) {
      return;  // see options()
    } else if constexpr (std::is_enum_v<T>) {
      for (const T value : enumerators<T>())
        if (value != member) set(name, member, value, static_cast<int>(value));
    } else if constexpr (std::same_as<T, bool>) {
      set(name, member, !member, member ? 0 : 1);
    } else if constexpr (std::is_arithmetic_v<T>) {
      for (const T value : others(member)) set(name, member, value, value);
    } else if constexpr (requires { visit_args(*this, member); }) {
      const std::string before = std::exchange(path_, path_ + name + ".");
      visit_args(*this, member);
      path_ = before;
    }
  }

  void add(const std::string& member, const std::string& how, const MutationKind& kind,
           std::function<void()> apply, Expect expect = Expect::kEither,
           std::optional<LawId> law = {}) {
    mutations_.push_back({member + " " + how, &kind, member, expect, law, std::move(apply)});
  }
  /// Another list in memory of the mutated call's own.
  template <class T>
  void put(std::span<T>* l, const std::vector<std::remove_const_t<T>>& values) {
    Rng rng(1);
    *l = arena_->add_list("mutated", values, rng);
  }
  std::vector<Mutation> take() { return std::move(mutations_); }

 private:
  template <class T>
  static std::vector<T> others(T value) {
    std::vector<T> all;
    if constexpr (std::is_floating_point_v<T>) {
      all = {0, -value, 2 * value, std::numeric_limits<T>::infinity(),
             std::numeric_limits<T>::quiet_NaN()};
    } else {
      constexpr T kMost = std::numeric_limits<T>::max(), kLeast = std::numeric_limits<T>::min();
      all = {0, static_cast<T>(-1), static_cast<T>(value / 2), kMost, kLeast};
      if (value > kLeast) all.push_back(static_cast<T>(value - 1));
      if (value < kMost) all.push_back(static_cast<T>(value + 1));
      std::ranges::sort(all);
      all.erase(std::unique(all.begin(), all.end()), all.end());
    }
    std::erase(all, value);
    return all;
  }
  template <class T, class Said>
  void set(const char* name, T& member, T value, Said said) {
    add(path_ + name, "= " + std::to_string(said), kNumberMutation,
        [&member, value] { member = value; });
  }

  template <class Byte>
  void tensor(const char* name, BasicTensorView<Byte>& t, const char* shape, bool written) {
    if (!t.defined()) return give(name, t, shape, written);
    // Results that a caller may do without
    const bool optional = written && std::string_view(name) == "lse";
    add(
        name, "absent", kPresenceMutation, [&t] { t = {}; },
        optional ? Expect::kTaken : Expect::kEither);
    add(name, "without its last axis", kShapeMutation, [&t] { --t.rank; });
    if (t.rank < BasicTensorView<Byte>::kMaxRank)
      add(name, "with one more axis", kShapeMutation, [&t] {
        const auto last = static_cast<size_t>(t.rank++);
        t.shape[last] = t.stride[last] = 1;
      });
    for (size_t axis = 0; axis < static_cast<size_t>(t.rank); ++axis) axes(name, t, shape, axis);
    for (const DType type : enumerators<DType>()) {
      if (type == t.dtype) continue;
      add(name, "of " + std::string(name_of(type)), kTypeMutation,
          [this, &t, type] { lay_again(arena_, &t, type, t.shape); });
    }
    if (t.numel() > 0) strides(name, t, written);
    if (t.numel() > 0 && !written && (t.dtype == DType::kI32 || t.dtype == DType::kI64))
      for (const int32_t value : {-2, -1, 0, 1, std::numeric_limits<int32_t>::max()})
        add(name, "of " + std::to_string(value) + " alone", kElementMutation, [this, &t, value] {
          lay_again(arena_, &t, t.dtype, t.shape);
          fill_elements(writable(t), value);
        });
  }
  /// A letter's axis is as long as other members say: breakages() has it one short.
  template <class Byte>
  void axes(const char* name, BasicTensorView<Byte>& t, const char* shape, size_t axis) {
    const std::string with = "with axis " + std::to_string(axis);
    if (shape[axis] == '.' && t.shape[axis] > 0)
      add(name, with + " one short", kShapeMutation, [&t, axis] { --t.shape[axis]; });
    add(name, with + " one longer", kShapeMutation, [this, &t, axis] {
      std::array<int64_t, 5> longer = t.shape;
      ++longer[axis];
      lay_again(arena_, &t, t.dtype, longer);
    });
    add(
        name, with + " below 0", kShapeMutation, [&t, axis] { t.shape[axis] = -1; },
        Expect::kRefused);
  }
  template <class Byte>
  void strides(const char* name, BasicTensorView<Byte>& t, bool written) {
    if (t.rank > 1) {
      const auto apart = [this, &t] {
        std::array<int64_t, 5> wide = t.shape;
        wide[1] += 3;
        const int64_t size = t.shape[1];
        lay_again(arena_, &t, t.dtype, wide);
        t.shape[1] = size;
      };
      add(name, "with rows apart", kStrideMutation, apart, Expect::kTaken);
    }
    add(name, "with elements apart", kStrideMutation, [this, &t] {
      const auto last = static_cast<size_t>(t.rank - 1);
      std::array<int64_t, 5> wide = t.shape;
      wide[last] *= 2;
      const BasicTensorView<Byte> from = t;
      lay_again(arena_, &t, t.dtype, wide);
      t.shape[last] = from.shape[last], t.stride[last] = 2;
      copy_elements(from, writable(t));
    });
    if (t.rank > 1 && t.shape[0] > 1)
      add(name, "backwards", kStrideMutation, [this, &t] {
        const BasicTensorView<Byte> from = t;
        lay_again(arena_, &t, t.dtype, t.shape);
        t.data += (t.shape[0] - 1) * t.stride[0] * static_cast<int64_t>(size_of(t.dtype));
        t.stride[0] = -t.stride[0];
        copy_elements(from, writable(t));
      });
    if (!written && t.rank > 1)
      add(name, "with all rows at one address",
          is_cache_dtype(t.dtype) ? kStrideMutation : kListStrideMutation,
          [&t] { t.stride[0] = 0; });
  }
  template <class Byte>
  static TensorView writable(const BasicTensorView<Byte>& t) {
    TensorView w;
    w.data = const_cast<std::byte*>(t.data), w.dtype = t.dtype, w.rank = t.rank;
    w.shape = t.shape, w.stride = t.stride;
    return w;
  }
  /// A member that the call does without, of the shape that its other members give it.
  template <class Byte>
  void give(const char* name, BasicTensorView<Byte>& t, const char* shape, bool written) {
    const std::vector<int64_t> sizes = sizes_.of(shape);
    if (sizes.empty()) return;
    const bool optional = std::string_view(name) == "lse";
    add(
        name, "given", kPresenceMutation,
        [this, &t, sizes, written] {
          Rng rng(1);
          const TensorView given = arena_->add("mutated", DType::kF32, sizes, rng);
          if (!written) fill_elements(given, -0.5);
          t = given;
        },
        optional ? Expect::kTaken : Expect::kEither);
  }

  CallMemory* arena_;
  AxisSizes sizes_;
  std::string path_;
  std::vector<Mutation> mutations_;
};

}  // namespace shadowgraph
