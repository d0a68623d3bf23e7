// LaidCall: a call that is laid in guarded memory, and what it may have done to that. Tested by
// tests/fuzz/*_laws_test.cc.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "core/laws.h"
#include "fuzz/call/call_members.h"
#include "fuzz/call/call_memory.h"
#include "fuzz/call/kernel_calls.h"
#include "fuzz/call/row_pieces.h"

namespace shadowgraph {

/// Visits the members of a call and moves each list that is not guarded.
struct ListGuard {
  std::function<bool(const void*)> guards;
  CallMemory& memory;
  Rng& rng;

  template <class T>
  void list(const char* name, std::span<T>& list) {
    if (!list.empty() && !guards(list.data())) list = memory.add_list(name, list, rng);
  }
  template <class T, class... Rest>
  void offsets(const char* name, std::span<T>& of, Rest&&...) {
    list(name, of);
  }
  template <class T, class... Rest>
  void ids(const char* name, std::span<T>& of, Rest&&...) {
    list(name, of);
  }
  template <class T, class... Rest>
  void lengths(const char* name, std::span<T>& of, Rest&&...) {
    list(name, of);
  }
  // A scene adds tensors to its memory itself.
  template <class... Any>
  void read(Any&&...) {}
  template <class... Any>
  void written(Any&&...) {}
  template <class... Any>
  void plane(Any&&...) {}
  template <class... Any>
  void scale(Any&&...) {}
  template <class... Any>
  void options(Any&&...) {}
};

/// execute(call) and footprint_of(call) say what a call does. Who derives from this lays it.
template <class AnyCall>
class LaidCall {
 public:
  using Call = AnyCall;

  const Call& call() const { return call_; }
  /// Runs what was laid. Findings: what the engine refused, and what check_writes() finds.
  Status run() {
    Status status = execute_laid();
    if (status.ok()) status = check_writes(footprint_of(call_));
    return status;
  }
  /// Writes elsewhere than in the places of its rows, or of the footprint; what the footprint says
  /// of memory that is not the call's, or that nobody laid down; writes beside the workspace.
  Status check_writes(const Footprint& spans) const {
    Status status;
    const auto is_idle = [&](int32_t row) {
      return row >= 0 && pieces_[static_cast<size_t>(row)].row == RowPiece::kNobody;
    };
    status.add(check_written());
    for (const CallMemory* m : {&memory_, &stored_memory_})
      status.add(m->check_footprint(spans, written_, is_idle));
    status.add(check_guards("scratch", workspace_));
    if (const auto byte = workspace_.first_beside())
      status.add(make_finding("mem.red_zone", at("scratch byte", *byte),
                              "no write beside the " + std::to_string(workspace_.size()) +
                                  " bytes that the call is said to need",
                              "a write"));
    return status;
  }
  /// Writes elsewhere than in the places of its rows.
  Status check_written() const {
    Status status = memory_.check_written(written_);
    status.add(stored_memory_.check_written(written_));
    return status;
  }
  /// After a call that was refused: num.write_set if anything changed.
  Status check_untouched() const {
    Status status = memory_.check_written({});
    status.add(stored_memory_.check_written({}));
    return status;
  }
  /// May a call with that footprint run? It leaves none of the tensors.
  bool backs(const Footprint& spans) const {
    return memory_.backs(spans) && stored_memory_.backs(spans);
  }
  bool reads_poison(const Footprint& spans) const {
    return memory_.reads_poison(spans) || stored_memory_.reads_poison(spans);
  }
  /// After a call with that footprint, of this memory.
  Status check_changed(const Footprint& spans) const {
    Status status = memory_.check_changed(spans);
    status.add(stored_memory_.check_changed(spans));
    return status;
  }
  /// Everything becomes what it was before the call.
  void restore() { memory_.restore(), stored_memory_.restore(); }

  /// Does the address belong to memory that is guarded?
  bool guards(const void* address) const {
    return memory_.holds(address) || stored_memory_.holds(address);
  }

 protected:
  LaidCall() = default;
  virtual ~LaidCall() = default;
  virtual Status execute_laid() const { return execute(call_); }
  /// Lists that were laid elsewhere move to memory of exactly their size. A scene calls this when
  /// its call has all members.
  void guard_lists(Rng& rng) {
    ListGuard guard{[this](const void* p) { return guards(p); }, memory_, rng};
    std::visit([&](auto& call) { visit_members(guard, call); }, call_);
  }

  CallMemory stored_memory_, memory_;  // what later calls find, too; the call's own
  GuardedBuffer workspace_;            // of exactly the size that the call is said to need
  Call call_;
  std::vector<RowPiece> pieces_;          // rows of the call
  std::vector<ConstTensorView> written_;  // the places of its rows
};

}  // namespace shadowgraph
