#include "report/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "core/split.h"
#include "io/file.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kMostShards = 1'000'000;

/// A number as it is written.
std::optional<uint64_t> read_number(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  if (std::to_string(number) != text) return {};
  return number;
}

void fail(const std::string& path, std::string field, std::string expected, std::string got,
          Status* status) {
  status->add(
      file_finding("io.shard", path, std::move(field), std::move(expected), std::move(got)));
}

std::string range_text(uint64_t first, uint64_t last) { return fmt::format("{}-{}", first, last); }

}  // namespace

std::string ShardSet::to_string() const {
  return fmt::format("{}/{}", fmt::join(parts, ","), count);
}

std::string RangeSet::to_string() const {
  std::string s;
  for (const auto& [first, last] : ranges) s += (s.empty() ? "" : ",") + range_text(first, last);
  return s;
}

std::optional<ShardSet> parse_shards(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  ShardSet set;
  set.count = read_number(text.substr(std::min(slash + 1, text.size()))).value_or(0);
  for (const std::string_view part : split(text.substr(0, slash), ","))
    set.parts.push_back(read_number(part).value_or(0));
  const bool ascending =
      std::ranges::adjacent_find(set.parts, std::greater_equal<uint64_t>()) == set.parts.end();
  const bool inside = set.count > 0 && set.count <= kMostShards && !set.parts.empty() &&
                      set.parts.front() > 0 && set.parts.back() <= set.count;
  if (!ascending || !inside || set.to_string() != text) return {};
  return set;
}

std::optional<RangeSet> parse_ranges(std::string_view text) {
  RangeSet set;
  for (const std::string_view range : split(text, ",")) {
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = read_number(range.substr(0, dash));
    const auto last = read_number(range.substr(std::min(dash + 1, range.size())));
    if (!first || !last || *first > *last) return {};
    if (!set.ranges.empty()) {
      // One that begins right behind another is a part of it.
      const uint64_t before = set.ranges.back().second;
      if (*first <= before || *first - before == 1) return {};
    }
    set.ranges.emplace_back(*first, *last);
  }
  if (set.ranges.empty() || set.to_string() != text) return {};
  return set;
}

void Parts::add(const std::string& path, const Report& r, Status* status) {
  if (!ranges_.empty() || (count_ == 0 && !r.range.empty())) {
    if (!r.shard.empty()) return fail(path, "shard", "a range alone", r.shard, status);
    return add_ranges(path, r.range, status);
  }
  if (!r.range.empty()) return fail(path, "range", "a shard alone", r.range, status);
  add_shards(path, r.shard, status);
}

void Parts::add_shards(const std::string& path, const std::string& text, Status* status) {
  const auto set = parse_shards(text);
  if (!set)
    return fail(path, "shard", "a shard, 2/4", text.empty() ? "the whole run" : text, status);
  if (count_ == 0) count_ = set->count;
  if (set->count != count_)
    return fail(path, "shard", fmt::format("one of {} shards", count_), text, status);
  for (const uint64_t part : set->parts) {
    const auto [owner, is_new] = shards_.emplace(part, path);
    if (!is_new)
      fail(path, "shard", fmt::format("shard {} once", part), "again, after " + owner->second,
           status);
  }
}

void Parts::add_ranges(const std::string& path, const std::string& text, Status* status) {
  const auto set = parse_ranges(text);
  if (!set)
    return fail(path, "range", "a range, 512-767", text.empty() ? "the whole run" : text, status);
  for (const auto& [first, last] : set->ranges) {
    const auto behind = ranges_.upper_bound(last);
    if (behind != ranges_.begin() && std::prev(behind)->second.last >= first) {
      const auto& [other, range] = *std::prev(behind);
      fail(path, "range",
           "cases apart from " + range_text(other, range.last) + ", which " + range.path + " has",
           range_text(first, last), status);
    } else {
      ranges_[first] = {last, path};
    }
  }
}

void Parts::check_complete(const std::string& path, Status* status) const {
  std::vector<std::string> missing;
  for (uint64_t part = 1; part <= count_; ++part) {
    if (!shards_.contains(part)) missing.push_back(std::to_string(part));
  }
  if (!missing.empty())
    fail(path, "shard", fmt::format("all {} shards", count_),
         fmt::format("without {}", fmt::join(missing, ", ")), status);
  const RangeSet set = joined_ranges();
  std::vector<std::string> holes;
  for (size_t i = 1; i < set.ranges.size(); ++i)
    holes.push_back(range_text(set.ranges[i - 1].second + 1, set.ranges[i].first - 1));
  if (!holes.empty())
    fail(path, "range",
         "all cases of " + range_text(set.ranges.front().first, set.ranges.back().second),
         fmt::format("without {}", fmt::join(holes, ", ")), status);
}

std::string Parts::shard() const {
  if (shards_.size() == count_) return "";
  ShardSet set{{}, count_};
  for (const auto& [part, path] : shards_) set.parts.push_back(part);
  return set.to_string();
}

RangeSet Parts::joined_ranges() const {
  RangeSet set;
  for (const auto& [first, range] : ranges_) {
    if (!set.ranges.empty() && set.ranges.back().second + 1 == first)
      set.ranges.back().second = range.last;
    else
      set.ranges.emplace_back(first, range.last);
  }
  return set;
}

}  // namespace shadowgraph
