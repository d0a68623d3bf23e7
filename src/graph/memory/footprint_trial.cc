#include "graph/memory/footprint_trial.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/laws.h"
#include "graph/memory/byte_range.h"

namespace shadowgraph {
namespace {

constexpr size_t kWhole = size_t{1} << 16;  // a larger buffer is looked at around its spans alone
constexpr std::byte kNan{0xff};             // of every float type

/// The first byte that is unlike, or nothing.
std::optional<size_t> first_unlike(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return {};
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

FootprintTrial::FootprintTrial(const DeviceMemory& memory, std::span<const BakedPointer> pointers,
                               const Footprint& spans)
    : memory_(memory) {
  for (const BakedPointer& p : pointers) add_regions(p, spans);
  std::ranges::sort(regions_, {}, [](const Region& r) { return r.bytes.data(); });
  size_t bytes = 0;
  std::byte* end = nullptr;
  for (Region& r : regions_) {
    // The bytes of several regions are the first one's.
    const auto known = std::min<std::ptrdiff_t>(std::ssize(r.bytes),
                                                std::max<std::ptrdiff_t>(0, end - r.bytes.data()));
    r.bytes = r.bytes.subspan(static_cast<size_t>(known));
    end = std::max(end, r.bytes.data() + r.bytes.size());
    r.first = std::exchange(bytes, bytes + r.bytes.size());
  }
  std::erase_if(regions_, [](const Region& r) { return r.bytes.empty(); });
  said_.resize(bytes);
  for (const AccessSpan& s : spans) note(s);
  before_ = taken();
}

void FootprintTrial::add_regions(const BakedPointer& pointer, const Footprint& spans) {
  const DeviceMemory::Surroundings place = memory_.surroundings_of(pointer.address);
  if (place.buffer.empty()) return;
  if (place.buffer.size() <= kWhole) {
    regions_.push_back({pointer.address, place.all, place.buffer});
    return;
  }
  const auto begin = reinterpret_cast<uintptr_t>(place.all.data());
  const ByteRange all{begin, begin + place.all.size()};
  for (const AccessSpan& s : spans) {
    if (s.count <= 0 || s.buffer != pointer.address) continue;
    const ByteRange span = byte_range(s);
    const size_t first = std::max(span.begin - kRedZone, all.begin) - begin;
    const size_t last = std::min(span.end + kRedZone, all.end) - begin;
    const std::span<std::byte> window = place.all.subspan(first, last - first);
    regions_.push_back({pointer.address, window, window});
  }
}

void FootprintTrial::note(const AccessSpan& span) {
  if (span.count <= 0) return;
  const ByteRange bytes = byte_range(span);
  const auto said = span.access == Access::kWrite  ? kWritten
                    : span.access == Access::kRead ? kRead
                                                   : kTouched;
  const auto end_of = [](const Region& r) {
    return reinterpret_cast<uintptr_t>(r.bytes.data()) + r.bytes.size();
  };
  for (auto it = std::ranges::upper_bound(regions_, bytes.begin, {}, end_of); it != regions_.end();
       ++it) {
    const Region& r = *it;
    const auto begin = reinterpret_cast<uintptr_t>(r.bytes.data());
    if (begin >= bytes.end) break;
    const size_t first = std::max(bytes.begin, begin) - begin + r.first;
    const size_t end = std::min(bytes.end - begin, r.bytes.size()) + r.first;
    for (size_t i = first; i < end; ++i) said_[i] |= said;
  }
}

FootprintTrial::Image FootprintTrial::taken() const {
  Image image(said_.size());
  for (const Region& r : regions_)
    std::memcpy(image.data() + r.first, r.bytes.data(), r.bytes.size());
  return image;
}

void FootprintTrial::put(const Image& image) const {
  for (const Region& r : regions_)
    std::memcpy(r.bytes.data(), image.data() + r.first, r.bytes.size());
}

/// Values of the same buffer are of its kind: a wrong index stays an index. Whatever is written
/// first is anything.
FootprintTrial::Image FootprintTrial::scrambled(bool nan) const {
  Image other = before_;
  for (const Region& r : regions_) {
    const int64_t n = std::ssize(r.ring), unit = n % 8 == 0 && n > 8 ? 8 : 4;
    const int64_t shift = n <= unit ? 0 : unit * (n / unit / 3 + 1);
    const int64_t skipped = r.bytes.data() - r.ring.data();  // of the ring
    const int64_t ring = static_cast<int64_t>(r.first) - skipped;
    int64_t from = ((skipped + shift) % n + n) % n;
    for (size_t i = r.first; i < r.first + r.bytes.size();
         ++i, from = from + 1 == n ? 0 : from + 1) {
      if ((said_[i] & kRead) != 0) continue;
      other[i] =
          (said_[i] & kWritten) != 0 ? ~before_[i] : before_[static_cast<size_t>(ring + from)];
      if (nan && (said_[i] & kTouched) != 0) other[i] = kNan;
    }
  }
  return other;
}

FootprintTrial::Image FootprintTrial::with_writes(Image otherwise, const Image& written) const {
  for (size_t i = 0; i < said_.size(); ++i)
    if ((said_[i] & kWritten) != 0) otherwise[i] = written[i];
  return otherwise;
}

Status FootprintTrial::judge(const Origin& by, const std::function<bool()>& run) {
  Status status;
  judged("mem.footprint");
  after_ = taken();
  if (const auto i = first_unlike(with_writes(before_, after_), after_)) {
    status.add(finding(by, *i, "as before: the footprint does not write it", "other bytes"));
    return status;
  }
  const Image other = scrambled(by.serial % 2 == 0);
  put(other);
  const bool ended = run();
  const Image got = taken();
  if (const auto i = ended ? first_unlike(with_writes(other, after_), got) : std::nullopt) {
    if ((said_[*i] & kWritten) == 0) {
      status.add(finding(by, *i, "as before: the footprint does not write it", "other bytes"));
    } else if ((said_[*i] & kRead) == 0 && got[*i] == other[*i] && after_[*i] == before_[*i]) {
      status.add(finding(by, *i, "written: the footprint says so", "as before"));
    } else if (gives_other(before_, {}, run)) {
      status.add(finding(by, *i, "the bits of the first run: it has the same memory",
                         "other bits in a second run"));
    } else {
      const size_t read = culprit(other, run).first;
      const bool touched = (said_[read] & kTouched) != 0;
      const Where result = where(*i);
      status.add(finding(by, read,
                         touched ? "no influence: the footprint touches it and does not read it"
                                 : "no influence: the footprint does not read it",
                         "another value there changes " + result.field +
                             (result.row ? '[' + std::to_string(*result.row) + ']' : "")));
    }
  }
  put(after_);
  return status;
}

bool FootprintTrial::gives_other(const Image& other, std::span<const Range> parts,
                                 const std::function<bool()>& run) const {
  Image image = before_;
  for (const auto& [begin, end] : parts)
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(begin), end - begin,
                image.begin() + static_cast<std::ptrdiff_t>(begin));
  put(image);
  return run() && with_writes(image, after_) != taken();
}

FootprintTrial::Range FootprintTrial::culprit(const Image& other,
                                              const std::function<bool()>& run) const {
  std::vector<Range> parts;
  for (size_t i = 0; i < said_.size(); ++i) {
    if (other[i] == before_[i]) continue;
    if (!parts.empty() && parts.back().second == i)
      ++parts.back().second;
    else
      parts.emplace_back(i, i + 1);
  }
  constexpr size_t kElement = 4;
  while (parts.size() > 1 || parts[0].second - parts[0].first > kElement) {
    std::vector<Range> halves[2];
    if (parts.size() > 1) {
      const auto middle = parts.begin() + std::ssize(parts) / 2;
      halves[0].assign(parts.begin(), middle), halves[1].assign(middle, parts.end());
    } else {
      const auto [begin, end] = parts[0];
      const size_t middle = begin + (end - begin + kElement) / (2 * kElement) * kElement;
      halves[0] = {{begin, middle}}, halves[1] = {{middle, end}};
    }
    const auto guilty = std::ranges::find_if(
        halves, [&](const std::vector<Range>& half) { return gives_other(other, half, run); });
    if (guilty == std::end(halves)) break;  // they do it together
    parts = std::move(*guilty);
  }
  return parts[0];
}

Where FootprintTrial::where(size_t byte) const {
  const auto r = std::prev(std::ranges::upper_bound(regions_, byte, {}, &Region::first));
  return memory_.where_of(r->pointer, r->bytes.data() + (byte - r->first));
}

Finding FootprintTrial::finding(const Origin& by, size_t byte, std::string expected,
                                std::string got) const {
  Where place = where(byte);
  place.phase = by.phase == Phase::kReplay ? "replay" : "eager";
  return make_finding("mem.footprint", std::move(place), std::move(expected),
                      std::move(got) + ", " + by.to_string());
}

}  // namespace shadowgraph
