#include "fuzz/call/guard_pages.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <csignal>
#include <mutex>
#include <vector>

#include "graph/memory/memory.h"

namespace shadowgraph {
namespace {

constexpr size_t kReserved = size_t{1} << (kHasWideMemory ? 38 : 33);  // address space
constexpr size_t kKept = size_t{1} << 20;                              // a larger room is emptied
constexpr int kSizes = 26;                                             // powers of two, of pages
constexpr uint32_t kWrites = 1u << 31, kReads = 1u << 30;

std::byte* reserve(size_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

/// All rooms lie in one range of addresses, so that the handler of a fault knows a closed page by
/// its address alone.
class Estate {
 public:
  static Estate& get() {
    static Estate* const estate = new Estate();  // lives as long as the handler
    return *estate;
  }
  std::byte* take(int size);
  void give_back(std::byte* room, int size);
  size_t page() const { return page_; }

  /// 0, or how the page was touched first, and at which byte.
  std::atomic<uint32_t>& touched(const std::byte* at) const {
    return touched_[static_cast<size_t>(at - base_) / page_];
  }
  std::byte* page_of(const std::byte* at) const {
    return base_ + static_cast<size_t>(at - base_) / page_ * page_;
  }

 private:
  Estate();
  static void on_fault(int number, siginfo_t* info, void* context);
  /// Notes the access and lets it through. False: no page of a room's.
  bool admit(const std::byte* at, uint32_t how) const;

  static inline std::atomic<const Estate*> guarded_ = nullptr;
  static inline struct sigaction previous_[2] = {};  // of SIGSEGV and SIGBUS

  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* base_ = nullptr;
  std::atomic<uint32_t>* touched_ = nullptr;
  std::atomic<size_t> used_ = 0;
  std::mutex mutex_;
  std::vector<std::byte*> free_[kSizes];
};

Estate::Estate() {
  base_ = reserve(kReserved, PROT_NONE);
  if (base_ == nullptr) return;
  void* table = reserve(kReserved / page_ * sizeof *touched_, PROT_READ | PROT_WRITE);
  touched_ = static_cast<std::atomic<uint32_t>*>(table);
  if (touched_ == nullptr) return;
  guarded_ = this;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_[0]);
  sigaction(SIGBUS, &action, &previous_[1]);
}

bool Estate::admit(const std::byte* at, uint32_t how) const {
  if (at < base_ || at >= base_ + used_) return false;
  const auto place = static_cast<uint32_t>(at - page_of(at));
  uint32_t untouched = 0;
  touched(at).compare_exchange_strong(untouched, how | (place + 1));
  return mprotect(page_of(at), page_, PROT_READ | PROT_WRITE) == 0;
}

/// Calls nothing but what a handler may call.
void Estate::on_fault(int number, siginfo_t* info, void* context) {
  uint32_t how = 0;
#if defined(__x86_64__)
  const auto error = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
  how = (error & 2) != 0 ? kWrites : kReads;
#endif
  const Estate* estate = guarded_;
  if (estate != nullptr && estate->admit(static_cast<const std::byte*>(info->si_addr), how)) return;
  const struct sigaction& other = previous_[number == SIGSEGV ? 0 : 1];
  if ((other.sa_flags & SA_SIGINFO) != 0) {
    other.sa_sigaction(number, info, context);
  } else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) {
    other.sa_handler(number);
  } else {
    std::signal(number, SIG_DFL);  // the access comes again, and ends the process
  }
}

std::byte* Estate::take(int size) {
  if (guarded_ == nullptr || size >= kSizes) return nullptr;
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& rooms = free_[size];
  if (!rooms.empty()) {
    std::byte* room = rooms.back();
    rooms.pop_back();
    return room;
  }
  const size_t bytes = page_ << size, first = used_ + page_;
  if (bytes + 2 * page_ > kReserved - used_) return nullptr;
  if (mprotect(base_ + first, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  used_ = first + bytes + page_;
  return base_ + first;
}

void Estate::give_back(std::byte* room, int size) {
  const size_t bytes = page_ << size;
  if (bytes > kKept) madvise(room, bytes, MADV_DONTNEED);
  const std::lock_guard lock(mutex_);
  free_[size].push_back(room);
}

/// The power of two.
int size_of_room(size_t bytes) {
  const size_t pages = (bytes + Estate::get().page() - 1) / Estate::get().page();
  return static_cast<int>(std::bit_width(std::max<size_t>(pages, 1) - 1));
}

}  // namespace

GuardedRoom::GuardedRoom(int64_t at_least) {
  Estate& estate = Estate::get();
  const int size = size_of_room(static_cast<size_t>(at_least));
  std::byte* room = estate.take(size);
  closed_ = room != nullptr;
  const size_t bytes = estate.page() << size;
  if (!closed_) room = reserve(bytes, PROT_READ | PROT_WRITE);
  if (room != nullptr) bytes_ = {room, bytes};
}

GuardedRoom::~GuardedRoom() {
  close();
  if (bytes_.empty()) return;
  if (closed_)
    Estate::get().give_back(bytes_.data(), size_of_room(bytes_.size()));
  else
    munmap(bytes_.data(), bytes_.size());
}

std::optional<GuardedRoom::Trespass> GuardedRoom::trespass() const {
  if (!closed_ || bytes_.empty()) return std::nullopt;
  const Estate& estate = Estate::get();
  for (const std::byte* page : {bytes_.data() - estate.page(), bytes_.data() + bytes_.size()}) {
    const uint32_t how = estate.touched(page);
    if (how == 0) continue;
    const char* what = (how & kWrites) != 0  ? "a write"
                       : (how & kReads) != 0 ? "a read"
                                             : "an access";
    return Trespass{page + (how & ~(kWrites | kReads)) - 1, what};
  }
  return std::nullopt;
}

void GuardedRoom::close() const {
  if (!closed_ || bytes_.empty()) return;
  const Estate& estate = Estate::get();
  for (std::byte* page : {bytes_.data() - estate.page(), bytes_.data() + bytes_.size()}) {
    if (estate.touched(page) == 0) continue;
    mprotect(page, estate.page(), PROT_NONE);
    madvise(page, estate.page(), MADV_DONTNEED);
    estate.touched(page) = 0;
  }
}

}  // namespace shadowgraph
