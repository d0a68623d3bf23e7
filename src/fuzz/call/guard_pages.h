// Rooms of memory between closed pages: an access there is noted, and goes on. Tested by
// tests/fuzz/guard_pages_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace shadowgraph {

/// Whole pages, with a closed page before them and one behind. Pages are used again: a room holds
/// what another one left. Where the system has no address space left a room has no closed pages.
class GuardedRoom {
 public:
  GuardedRoom() = default;  // no bytes
  explicit GuardedRoom(int64_t at_least);
  ~GuardedRoom();
  GuardedRoom(GuardedRoom&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), closed_(other.closed_) {}
  GuardedRoom& operator=(GuardedRoom&& other) noexcept {
    std::swap(bytes_, other.bytes_), std::swap(closed_, other.closed_);
    return *this;
  }

  std::span<std::byte> bytes() const { return bytes_; }
  struct Trespass {
    const std::byte* at;
    const char* what;  // "a read", "a write"; "an access" where the processor does not say which
  };
  /// The first access of a closed page since close(), by any thread.
  std::optional<Trespass> trespass() const;
  /// Closes the pages that an access has opened.
  void close() const;

 private:
  std::span<std::byte> bytes_;
  bool closed_ = false;  // its neighbours are closed pages
};

}  // namespace shadowgraph
