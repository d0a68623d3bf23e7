#include "graph/memory/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace shadowgraph {
namespace {

constexpr size_t kMapFrom = size_t{1} << 20;  // below, calloc is cheaper

}  // namespace

bool ZeroPages::reset(size_t bytes) {
  if (bytes_ >= kMapFrom) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr, bytes_ = 0;
  if (bytes == 0) return true;
  void* p = nullptr;
  if (bytes >= kMapFrom) {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    if (p == MAP_FAILED) p = nullptr;
    if (p != nullptr && bytes >= kSparseFrom) madvise(p, bytes, MADV_NOHUGEPAGE);
  } else {
    p = std::calloc(bytes, 1);
  }
  if (p == nullptr) return false;
  data_ = static_cast<std::byte*>(p), bytes_ = bytes;
  return true;
}

void ZeroPages::clear() {
  if (bytes_ >= kMapFrom) {
    madvise(data_, bytes_, MADV_DONTNEED);  // private and anonymous: zero again
  } else if (bytes_ > 0) {
    std::memset(data_, 0, bytes_);
  }
}

bool Shadow::reset(size_t bytes, size_t granule_bytes) {
  bytes_ = bytes, granule_bytes_ = granule_bytes, owned = false, written_.clear();
  shift_ = std::has_single_bit(granule_bytes) ? std::countr_zero(granule_bytes) : -1;
  size_ = index_end(bytes);
  if (pages_.reset(cost())) return true;
  size_ = 0;
  return false;
}

void Shadow::drop() {
  pages_.reset(0);
  size_ = 0, written_.clear();
}

void Shadow::clear() {
  pages_.clear();
  owned = false, written_.clear();
}

void Shadow::mark_written(Granules g, uint32_t by) {
  if (g.first == g.last) return;
  std::memset(state() + g.first, static_cast<int>(GranuleState::kInit), g.last - g.first);
  std::fill(writer() + g.first, writer() + g.last, by);
  const size_t last = (g.last - 1) / kPart;
  if (last >= written_.size()) written_.resize(last + 1);
  for (size_t part = g.first / kPart; part <= last; ++part) written_[part] = true;
}

std::vector<Shadow::Granules> Shadow::written() const {
  std::vector<Granules> parts;
  for (size_t part = 0; part < written_.size(); ++part)
    if (written_[part]) parts.push_back({part * kPart, std::min(size_, (part + 1) * kPart)});
  return parts;
}

Shadow::Granules Shadow::whole(size_t begin, size_t end) const {
  const size_t first = index_end(begin);
  const size_t last = end == bytes_ ? size_ : index(end);
  return {first, std::max(first, last)};
}

uint32_t OwnerSets::intern(std::vector<OwnerId> sorted) {
  const auto [it, is_new] = numbers_.try_emplace(sorted, static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(std::move(sorted));
  return it->second;
}

uint32_t OwnerSets::only(OwnerId owner) { return owner == 0 ? 0 : intern({owner}); }

uint32_t OwnerSets::with(uint32_t set, OwnerId owner) {
  if (owner == 0 || contains(set, owner)) return set;
  std::vector<OwnerId> members = sets_[set];
  members.insert(std::ranges::upper_bound(members, owner), owner);
  return intern(std::move(members));
}

bool OwnerSets::contains(uint32_t set, OwnerId owner) const {
  return std::ranges::binary_search(sets_[set], owner);
}

uint32_t Origins::add(const Origin& origin) {
  const Origin& last = origins_.back();
  const bool same = origins_.size() > 1 && last.serial == origin.serial &&
                    last.launch == origin.launch && last.node == origin.node &&
                    last.step == origin.step && last.layer == origin.layer &&
                    last.what == origin.what;
  if (!same) origins_.push_back(origin);
  return static_cast<uint32_t>(origins_.size() - 1);
}

void Origins::sweep(std::span<const Shadow* const> shadows) {
  std::vector<Origin> kept{{}};
  std::vector<uint32_t> renamed(origins_.size());  // 0: not kept so far
  size_t seen = 0;
  for (const Shadow* shadow : shadows) {
    uint32_t* writer = shadow->writer();
    for (const auto& [first, last] : shadow->written()) {
      seen += last - first;
      for (size_t i = first; i < last;) {
        const uint32_t old = writer[i];
        const size_t run = first_unlike(writer, i, last, old);
        if (old != 0 && renamed[old] == 0) {
          renamed[old] = static_cast<uint32_t>(kept.size());
          kept.push_back(origins_[old]);
        }
        std::fill(writer + i, writer + run, renamed[old]);
        i = run;
      }
    }
  }
  origins_ = std::move(kept);
  // Few granules are looked at per origin that was added, however large the shadows are.
  constexpr size_t kSeenPerOrigin = 16;
  sweep_at_ = std::max({kFirstSweep, 2 * origins_.size(), seen / kSeenPerOrigin});
}

}  // namespace shadowgraph
