#include "cuda/gpu_on_cpu.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/lanes.h"

namespace shadowgraph {
namespace {

constexpr size_t kStackBytes = size_t{1} << 16;
constexpr int kWarp = 32;

enum class Waits : uint8_t { kNot, kForWarp, kForBlock, kForBarrier, kDone };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  lanes::Place place;
  int lane = 0, warp = 0;
  uint32_t rank = 0;  // of its block
  uint32_t exchanges = 0, votes = 0;
  Waits waits = Waits::kNot;
  const lanes::Barrier* barrier = nullptr;  // that it waits for, while its phase is so
  uint32_t parity = 0;
  int of_cluster = -1;  // the phase's parity when it arrived there, until it has waited
};

/// The values of an exchange and of the one after it, which a lane may reach before another has
/// read the first.
struct Warp {
  uint32_t given[2][kWarp] = {}, live[2] = {};
};

/// One cluster of blocks at a time, of one thread of the CPU.
class Cluster {
 public:
  void run(const cuda::CudaKernel& kernel, const cuda::Geometry& g, void* const* args) {
    kernel_ = &kernel, args_ = args, blocks_ = g.cluster;
    shared_.assign(blocks_, std::vector<Piece>(g.shared_bytes / 16 + 1));
    threads_ = size_t{g.block.x} * g.block.y * g.block.z;
    while (fibers_.size() < threads_ * blocks_) fibers_.push_back(std::make_unique<Fiber>());
    for (unsigned z = 0; z < g.grid.z; ++z) {
      for (unsigned y = 0; y < g.grid.y; ++y) {
        for (unsigned x = 0; x < g.grid.x; x += g.cluster) run_at(g, {x, y, z});
      }
    }
  }

  const Fiber& fiber() const { return *current_; }
  std::byte* shared() { return shared_of(current_->rank); }
  std::byte* shared_of(uint32_t rank) { return shared_[rank].data()->bytes; }
  uint32_t blocks() const { return blocks_; }
  lanes::Given exchange(uint32_t mine) {
    Warp& warp = warps_[static_cast<size_t>(current_->warp)];
    const uint32_t turn = current_->exchanges++ % 2;
    warp.given[turn][current_->lane] = mine;
    wait(Waits::kForWarp);
    return {warp.given[turn], warp.live[turn]};
  }
  /// Does any thread of the block say so? Three places in turn: while one is read the next is
  /// cleared.
  bool vote(bool mine) {
    const uint32_t turn = current_->votes++ % 3;
    auto& votes = votes_[current_->rank];
    votes[turn] = votes[turn] || mine;
    wait(Waits::kForBlock);
    votes[(turn + 1) % 3] = false;
    return votes[turn];
  }
  /// A barrier of the block of the fiber that runs.
  lanes::Barrier& named(int name) { return named_[current_->rank][static_cast<size_t>(name)]; }
  void wait_for(const lanes::Barrier* b, uint32_t parity) {
    if ((b->phase & 1) != parity) return;
    current_->barrier = b, current_->parity = parity;
    wait(Waits::kForBarrier);
  }
  void arrive() {
    if (current_->of_cluster >= 0) fail("a lane of a GPU body arrives twice, and does not wait");
    current_->of_cluster = static_cast<int>(whole_.phase & 1);
    lanes::arrive(&whole_);
  }
  void wait_for_all() {
    if (current_->of_cluster < 0) fail("a lane of a GPU body waits, and has not arrived");
    wait_for(&whole_, static_cast<uint32_t>(std::exchange(current_->of_cluster, -1)));
  }
  void wait(Waits what) {
    Fiber* const mine = current_;
    mine->waits = what;
    swapcontext(&mine->context, &main_);
  }

 private:
  struct alignas(16) Piece {
    std::byte bytes[16];
  };

  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::abort();
  }
  static Cluster*& of_entry() {
    static thread_local Cluster* cluster = nullptr;
    return cluster;
  }
  static void enter() {
    Cluster& mine = *of_entry();
    mine.kernel_->call(mine.kernel_->function, mine.args_);
    mine.current_->waits = Waits::kDone;
  }

  void run_at(const cuda::Geometry& g, uint3 first) {
    const size_t all = threads_ * blocks_;
    votes_ = {};
    named_ = {};
    lanes::begin_barrier(&whole_, static_cast<uint32_t>(all));
    warps_.assign((all + kWarp - 1) / kWarp, {});
    for (size_t i = 0; i < all; ++i) begin(i, g, first);
    run_all();
  }
  void begin(size_t i, const cuda::Geometry& g, uint3 first) {
    Fiber& f = *fibers_[i];
    f.rank = static_cast<uint32_t>(i / threads_);
    const auto at = static_cast<unsigned>(i % threads_);
    f.place.thread = {at % g.block.x, at / g.block.x % g.block.y, at / g.block.x / g.block.y};
    f.place.block = {first.x + f.rank, first.y, first.z};
    f.place.block_dim = g.block, f.place.grid_dim = g.grid;
    f.lane = static_cast<int>(i % kWarp), f.warp = static_cast<int>(i / kWarp);
    f.exchanges = f.votes = 0;
    f.of_cluster = -1;
    f.waits = Waits::kNot;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = &main_;
    makecontext(&f.context, enter, 0);
  }

  void run_all() {
    of_entry() = this;
    for (;;) {
      bool ran = false;
      for (size_t i = 0; i < all(); ++i) {
        if (fibers_[i]->waits != Waits::kNot) continue;
        current_ = fibers_[i].get();
        swapcontext(&main_, &current_->context);
        ran = true;
      }
      if (release()) continue;
      if (!ran) break;
    }
    for (size_t i = 0; i < all(); ++i) {
      if (fibers_[i]->waits != Waits::kDone) fail("a lane of a GPU body waits for ever");
      if (fibers_[i]->of_cluster >= 0) fail("a lane of a GPU body arrives, and does not wait");
    }
  }

  size_t all() const { return threads_ * blocks_; }
  /// Lets go of who waits for those that are there.
  bool release() {
    bool released = false;
    for (size_t i = 0; i < all(); ++i) {
      Fiber& f = *fibers_[i];
      if (f.waits != Waits::kForBarrier || (f.barrier->phase & 1) == f.parity) continue;
      f.waits = Waits::kNot, released = true;
    }
    for (size_t w = 0; w < warps_.size(); ++w) released = release_warp(w) || released;
    for (size_t b = 0; b < blocks_ && !released; ++b)
      released = set_free(b * threads_, (b + 1) * threads_, Waits::kForBlock) || released;
    return released;
  }
  bool release_warp(size_t w) {
    const size_t first = w * kWarp, end = std::min(first + kWarp, all());
    uint32_t live = 0, turn = 0;
    for (size_t i = first; i < end; ++i) {
      if (fibers_[i]->waits == Waits::kDone) continue;
      live |= 1u << (i - first);
      turn = (fibers_[i]->exchanges + 1) % 2;
    }
    warps_[w].live[turn] = live;
    return set_free(first, end, Waits::kForWarp);
  }
  bool set_free(size_t first, size_t end, Waits what) {
    bool some = false;
    for (size_t i = first; i < end; ++i) {
      if (fibers_[i]->waits == Waits::kDone) continue;
      if (fibers_[i]->waits != what) return false;
      some = true;
    }
    for (size_t i = first; some && i < end; ++i) {
      if (fibers_[i]->waits == what) fibers_[i]->waits = Waits::kNot;
    }
    return some;
  }

  const cuda::CudaKernel* kernel_ = nullptr;
  void* const* args_ = nullptr;
  size_t threads_ = 0, blocks_ = 1;  // of a block, of the cluster
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::vector<Piece>> shared_;  // by block
  std::array<std::array<bool, 3>, 16> votes_ = {};
  std::array<std::array<lanes::Barrier, 16>, 16> named_ = {};
  lanes::Barrier whole_ = {};  // the cluster's
  ucontext_t main_ = {};
  Fiber* current_ = nullptr;
};

Cluster& cluster() {
  static thread_local Cluster cluster;
  return cluster;
}

/// Every lane's value of a word.
std::array<uint32_t, kWarp> of_all_lanes(uint32_t mine) {
  std::array<uint32_t, kWarp> all;
  std::copy_n(cluster().exchange(mine).value, kWarp, all.begin());
  return all;
}

/// Rows of the four matrices, by lane.
std::array<const uint16_t*, kWarp> rows_of_lanes(const void* row) {
  const auto bits = reinterpret_cast<uint64_t>(row);
  const auto low = of_all_lanes(static_cast<uint32_t>(bits));
  const auto high = of_all_lanes(static_cast<uint32_t>(bits >> 32));
  std::array<const uint16_t*, kWarp> rows;
  for (size_t i = 0; i < kWarp; ++i)
    rows[i] = reinterpret_cast<const uint16_t*>(uint64_t{high[i]} << 32 | low[i]);
  return rows;
}

uint32_t pair_of(uint32_t low, uint32_t high) { return low | high << 16; }

struct Counts {
  std::mutex mutex;
  std::atomic<bool> fast = false;
  std::atomic<int> preference = 0;  // of fast bodies, at most
  std::atomic<unsigned> room = 132;
  int64_t fast_runs = 0;
  std::map<std::string_view, int64_t> runs;
  std::map<const Kernel*, std::unique_ptr<Kernel>> kernels;
};
Counts& counts() {
  static Counts counts;
  return counts;
}

Progress body(LaunchFrame& f) {
  (void)run_gpu_body(f.launch);
  return Progress::kDone;
}

}  // namespace

namespace cuda {

unsigned most_shared_bytes() { return 227 << 10; }
int64_t most_clusters(const void*, const Geometry& geometry) {
  return counts().room / geometry.cluster;
}

}  // namespace cuda

namespace lanes {

const Place& here() { return cluster().fiber().place; }
int lane() { return cluster().fiber().lane; }
Given exchange(uint32_t mine) { return cluster().exchange(mine); }
void wait_for_block() { cluster().wait(Waits::kForBlock); }
std::byte* shared_memory() { return cluster().shared(); }
uint32_t cluster_rank() { return cluster().fiber().rank; }
uint32_t cluster_size() { return cluster().blocks(); }
void arrive_at_cluster() { cluster().arrive(); }
void wait_for_cluster() { cluster().wait_for_all(); }
void* of_rank(void* p, uint32_t rank) {
  return cluster().shared_of(rank) + (static_cast<std::byte*>(p) - cluster().shared());
}

void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto rows = rows_of_lanes(row);
  const auto at = static_cast<size_t>(lane());
  for (size_t i = 0; i < 4; ++i) {
    const uint16_t* mine = rows[8 * i + at / 4] + 2 * (at % 4);
    out[i] = pair_of(mine[0], mine[1]);
  }
}
void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  const auto rows = rows_of_lanes(row);
  const auto at = static_cast<size_t>(lane());
  for (size_t i = 0; i < 4; ++i) {
    const size_t first = 8 * i + 2 * (at % 4);
    out[i] = pair_of(rows[first][at / 4], rows[first + 1][at / 4]);
  }
}

namespace {

struct Matrix {
  uint32_t start, leading, stride;
  explicit Matrix(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1) std::abort();  // another swizzle
  }
  /// An element of a row of summed columns, eight rows a stride.
  uint16_t of_row(int row, int k) const {
    return at(start + static_cast<uint32_t>(row / 8) * stride +
              static_cast<uint32_t>(row % 8 * 128 + 2 * k));
  }
  /// An element of summed rows: 64 columns a leading, eight rows a stride.
  uint16_t of_column(int column, int k) const {
    return at(start + static_cast<uint32_t>(column / 64) * leading +
              static_cast<uint32_t>(k / 8) * stride +
              static_cast<uint32_t>(k % 8 * 128 + column % 64 * 2));
  }

 private:
  static uint16_t at(uint32_t byte) {
    uint16_t bits;
    std::memcpy(&bits, cluster().shared() + (byte ^ ((byte >> 7 & 7) << 4)), sizeof bits);
    return bits;
  }
};

/// Every element of c that this lane has: row of the warp's 16, column.
template <class Add>
void add_to_fragments(float* c, int n, const Add& add) {
  for (int i = 0; i < n / 8; ++i) {
    for (int e = 0; e < 4; ++e)
      add(c[4 * i + e], lane() / 4 + e / 2 * 8, 8 * i + 2 * (lane() % 4) + e % 2);
  }
}

}  // namespace

uint64_t matrix_at(const void* p, uint32_t leading, uint32_t stride) {
  const auto at = static_cast<uint64_t>(static_cast<const std::byte*>(p) - cluster().shared());
  return at >> 4 | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 | uint64_t{1} << 62;
}
void multiply_shared(float* c, int n, uint64_t a, uint64_t b, bool added,
                     float (*value)(uint16_t)) {
  const Matrix rows(a), columns(b);
  const int first = cluster().fiber().warp % 4 * 16;
  add_to_fragments(c, n, [&](float& sum, int row, int column) {
    if (!added) sum = 0;
    for (int k = 0; k < 16; ++k)
      sum += value(rows.of_row(first + row, k)) * value(columns.of_row(column, k));
  });
}
void multiply_rows(float* c, int n, const uint32_t (&a)[4], uint64_t b, float (*value)(uint16_t)) {
  std::array<uint32_t, kWarp> of_a[4];
  for (size_t i = 0; i < 4; ++i) of_a[i] = of_all_lanes(a[i]);
  const Matrix rows(b);
  add_to_fragments(c, n, [&](float& sum, int row, int column) {
    for (int k = 0; k < 16; ++k) {
      const uint32_t pair = of_a[row / 8 + k / 8 * 2][static_cast<size_t>(row % 8 * 4 + k % 8 / 2)];
      sum += value(static_cast<uint16_t>(k % 2 == 0 ? pair : pair >> 16)) *
             value(rows.of_column(column, k));
    }
  });
}

void begin_barrier(Barrier* b, uint32_t arrivals) { *b = {static_cast<uint16_t>(arrivals), 0, 0}; }
void arrive(Barrier* b) {
  if (++b->arrived < b->arrivals) return;
  b->arrived = 0;
  ++b->phase;
}
void wait_for(Barrier* b, uint32_t parity) { cluster().wait_for(b, parity); }
void arrive_named(int name, int threads) {
  Barrier& b = cluster().named(name);
  b.arrivals = static_cast<uint16_t>(threads);
  arrive(&b);
}
void sync_named(int name, int threads) {
  const uint32_t parity = cluster().named(name).phase & 1;
  arrive_named(name, threads);
  wait_for(&cluster().named(name), parity);
}

void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              float (*value)(uint16_t)) {
  std::array<uint32_t, kWarp> of_a[4], of_b[2];
  for (size_t i = 0; i < 4; ++i) of_a[i] = of_all_lanes(a[i]);
  for (size_t i = 0; i < 2; ++i) of_b[i] = of_all_lanes(b[i]);
  const auto half = [&](uint32_t pair, int which) {
    return value(static_cast<uint16_t>(which == 0 ? pair : pair >> 16));
  };
  const int at = lane();
  for (int e = 0; e < 4; ++e) {
    const int row = at / 4 + e / 2 * 8, column = 2 * (at % 4) + e % 2;
    for (int k = 0; k < 16; ++k) {
      const auto of_row = static_cast<size_t>(row % 8 * 4 + k % 8 / 2);
      const auto of_column = static_cast<size_t>(column * 4 + k % 8 / 2);
      c[e] += half(of_a[row / 8 + k / 8 * 2][of_row], k % 2) * half(of_b[k / 8][of_column], k % 2);
    }
  }
}

}  // namespace lanes

bool run_gpu_body(const KernelLaunch& launch) {
  const cuda::CudaKernel* kernel = cuda::choose_kernel(launch, counts().fast, counts().preference);
  if (kernel == nullptr || !kernel->takes(launch.args)) return false;
  const std::vector<void*> args = cuda::addresses_of(launch.args);
  cluster().run(*kernel, kernel->geometry_of(launch), args.data());
  const std::scoped_lock lock(counts().mutex);
  ++counts().runs[kernel->name];
  counts().fast_runs += kernel->fits != nullptr ? 1 : 0;
  return true;
}

int64_t fast_gpu_bodies_run() {
  const std::scoped_lock lock(counts().mutex);
  return counts().fast_runs;
}
void set_gpu_room(int clusters) { counts().room = static_cast<unsigned>(clusters); }
void use_fast_gpu_bodies(bool fast, int preference) {
  counts().fast = fast;
  counts().preference = preference;
}

int64_t gpu_bodies_run(std::string_view name) {
  const std::scoped_lock lock(counts().mutex);
  return counts().runs[name];
}

bool vote_of_block(bool mine) { return cluster().vote(mine); }

DeviceError GpuOnCpu::launch_kernel(const KernelLaunch& launch, StreamHandle s) {
  if (!has_gpu_body(*launch.kernel)) return SimDevice::launch_kernel(launch, s);
  KernelLaunch mine = launch;
  {
    const std::scoped_lock lock(counts().mutex);
    std::unique_ptr<Kernel>& kernel = counts().kernels[launch.kernel];
    if (kernel == nullptr) {
      kernel = std::make_unique<Kernel>(*launch.kernel);
      kernel->body = body;
      // As on a GPU: what lies behind a part of the call's memory may be another's.
      kernel->footprint = nullptr;
    }
    mine.kernel = kernel.get();
  }
  return SimDevice::launch_kernel(mine, s);
}

}  // namespace shadowgraph

int __syncthreads_or(int x) {
  // Through the votes of the warps, one after the other: any thread's says it for all.
  return shadowgraph::vote_of_block(x != 0) ? 1 : 0;
}
