#include "fuzz/history/bound_buffers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/parallel.h"
#include "faults/buffers.h"
#include "fuzz/fuzz.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kSeed = 1, kHistories = 30;

using Key = std::pair<std::string, const Backend*>;
using Buffers = std::map<Key, BoundBuffer>;

/// Notes buffers, and the launches that are given one; changes nothing.
class Notes final : public Tap {
 public:
  explicit Notes(Buffers* all) : all_(*all) {}

  void bound(Meta& meta, bool /*capturing*/) override { note(meta); }
  void launches(std::vector<TappedLaunch>& launches, const Meta& meta,
                bool /*capturing*/) override {
    note(meta);
    for (const TappedLaunch& one : launches) {
      const KernelArgs& args = one.launch.args;
      for (size_t i = 0; i < args.size(); ++i)
        if (args.kind(i) == ArgKind::kPointer)
          give(meta, args.get<const std::byte*>(i), one.launch.kernel->name);
    }
  }

 private:
  BoundBuffer& of(const Meta& m, const Buffer& b) {
    return all_[{std::string(own_name(b)), m.backend}];
  }
  void note(const Meta& meta) {
    for_metas(meta, [&](const Meta& m) {
      for (size_t i = 0; i < m.buffers.size(); ++i) {
        if (!m.has(i)) continue;
        BoundBuffer& one = of(m, m[i]);
        one.name = own_name(m[i]), one.backend = m.backend;
        one.lifetimes.insert(m[i].lifetime);
        one.modes.insert(m.limits.mode);
        if (one.rows.empty())
          for (const BufferInfo& row : m.backend->info().buffers)
            if (row.buffer == static_cast<int>(i) && !is_scalar(row.role) &&
                row.shape != FieldShape::kScalar)
              one.rows.push_back(&row);
      }
    });
  }
  void give(const Meta& meta, const std::byte* p, std::string_view kernel) {
    for_metas(meta, [&](const Meta& m) {
      for (const Buffer& b : m.buffers)
        if (b.data != nullptr && p >= b.data && p < b.data + b.bytes())
          of(m, b).kernels.insert(kernel);
    });
  }

  Buffers& all_;
};

}  // namespace

std::vector<BoundBuffer> bound_buffers(std::span<const Backend* const> backends) {
  std::vector<Buffers> of_backends(backends.size());
  parallel_for(std::ssize(backends), default_threads(), [&](int64_t i, int) {
    const auto b = static_cast<size_t>(i);
    if (backends[b]->info().buffers.empty()) return;  // its parts have them
    for (uint64_t number = 0; number < kHistories; ++number) {
      Choices choices = history_choices(kSeed, number, backends.subspan(b, 1));
      History h = generate_history(choices, backends.subspan(b, 1));
      if (h.sizes != HistorySizes::kSmall) continue;                    // the same buffers, longer
      h.runner.wide_pools = h.runner.device.proves_footprints = false;  // slow, no buffers
      run_history(h, choices, [&] { return std::make_unique<Notes>(&of_backends[b]); });
    }
  });
  std::vector<BoundBuffer> all;
  for (Buffers& buffers : of_backends)
    for (auto& [key, buffer] : buffers) all.push_back(std::move(buffer));
  std::ranges::stable_sort(all, {}, &BoundBuffer::name);
  return all;
}

}  // namespace shadowgraph
