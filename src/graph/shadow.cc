#include "graph/shadow.h"

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
  bytes_ = bytes, granule_bytes_ = granule_bytes, owned = false;
  shift_ = std::has_single_bit(granule_bytes) ? std::countr_zero(granule_bytes) : -1;
  size_ = index_end(bytes);
  if (pages_.reset(cost())) return true;
  size_ = 0;
  return false;
}

void Shadow::drop() {
  pages_.reset(0);
  size_ = 0;
}

void Shadow::clear() {
  pages_.clear();
  owned = false;
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
                    last.step == origin.step && last.what == origin.what;
  if (!same) origins_.push_back(origin);
  return static_cast<uint32_t>(origins_.size() - 1);
}

}  // namespace shadowgraph
