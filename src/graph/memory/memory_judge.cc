// What is wrong with an access, before it happens.
#include <algorithm>

#include "core/laws.h"
#include "graph/memory/memory.h"
#include "graph/memory/shadow_blocks.h"

namespace shadowgraph {
namespace {

std::string_view verb_of(Access access) {
  switch (access) {
    case Access::kRead: return "read";
    case Access::kTouch: return "touched";
    case Access::kWrite: return "written";
  }
  return "";
}

std::string name_of_layer(int32_t layer) {
  return layer < 0 ? "the step" : "layer " + std::to_string(layer);
}

/// What a span's buffer stands for now.
struct Target {
  const void* buffer = nullptr;
  BakedPointer baked;
  int pointer = -1;        // which of the baked pointers; -1: none
  Block* block = nullptr;  // of the baked pointer, or what now has its address
  enum class Fate : uint8_t { kValid, kNowhere, kFreed, kStale } fate = Fate::kValid;
};

/// Judges the spans of one launch, and keeps one finding per law and block.
class Judge {
 public:
  Judge(MemoryState& memory, const DeviceMemory& baker, const Origin& by,
        std::span<const BakedPointer> pointers, int32_t layer)
      : memory_(memory), baker_(baker), by_(by), pointers_(pointers), layer_(layer) {
    targets_.reserve(pointers.size() + 4);
  }

  void judge(const AccessSpan& span);
  bool all_mapped() const { return all_mapped_; }
  void report(Status* findings);

 private:
  struct Found {
    const Block* block;
    int64_t more = 0;
    Finding finding;
  };

  const Target& target_of(const void* buffer);
  Target resolve(const void* buffer) const;
  void not_valid(const AccessSpan& span, const Target& target);
  void outside(const AccessSpan& span, const Target& target, Blocks::Extent bytes);
  bool wrong_owner(const AccessSpan& span, const Target& target, size_t first, size_t last);
  void contents(const AccessSpan& span, const Target& target, size_t first, size_t last);
  bool stale(const Block& block, const Origin& writer) const;
  void find(LawId law, const AccessSpan& span, const Target& target, Where where,
            std::string expected, std::string got);
  /// At a granule of the block: also who wrote it last.
  void find_at(LawId law, const AccessSpan& span, const Target& target, size_t granule,
               std::string expected, std::string got);

  MemoryState& memory_;
  const DeviceMemory& baker_;
  const Origin& by_;
  std::span<const BakedPointer> pointers_;
  const int32_t layer_;  // whose work the launch is
  std::vector<Target> targets_;
  size_t last_target_ = 0;
  std::vector<Found> found_;
  // Spans: of a row with an owner; that read; of these, from what each step or replay writes
  int64_t owned_ = 0, read_ = 0, renewed_ = 0;
  bool all_mapped_ = true;
};

const Target& Judge::target_of(const void* buffer) {
  if (last_target_ < targets_.size() && targets_[last_target_].buffer == buffer)
    return targets_[last_target_];
  for (last_target_ = 0; last_target_ < targets_.size(); ++last_target_) {
    if (targets_[last_target_].buffer == buffer) return targets_[last_target_];
  }
  targets_.push_back(resolve(buffer));
  return targets_.back();
}

Target Judge::resolve(const void* buffer) const {
  Target t;
  t.buffer = buffer;
  for (size_t i = 0; i < pointers_.size() && t.pointer < 0; ++i) {
    if (pointers_[i].address == buffer) t.pointer = static_cast<int>(i), t.baked = pointers_[i];
  }
  if (t.baked.block == 0) t.baked = baker_.bake(buffer);
  if (t.baked.block == 0) {
    t.fate = Target::Fate::kNowhere;
    return t;
  }
  Block& baked = memory_.blocks[t.baked.block];
  const size_t place = baked.offset + t.baked.offset;
  Block* now = memory_.blocks.block_at(place);
  const bool same = baked.live && baked.generation == t.baked.generation;
  if (same && baked.begun) {
    // A buffer may have been declared there since.
    t.block = now != nullptr && now->parent == &baked ? now : &baked;
    if (!t.block->live) t.fate = Target::Fate::kFreed;
    return t;
  }
  const bool taken = !same && now != nullptr && now->usable() && place < now->end();
  t.block = taken ? now : &baked;
  t.fate = taken ? Target::Fate::kStale : Target::Fate::kFreed;
  return t;
}

void Judge::find(LawId law, const AccessSpan& span, const Target& target, Where where,
                 std::string expected, std::string got) {
  for (Found& f : found_) {
    if (f.block == target.block && f.finding.id == law.law().id) {
      ++f.more;
      return;
    }
  }
  where.phase = by_.phase == Phase::kReplay ? "replay" : "eager";
  got += ", " + std::string(verb_of(span.access)) + " by " + by_.to_string() + " (";
  if (target.pointer >= 0) got += "pointer " + std::to_string(target.pointer) + ", ";
  got += std::to_string(span.count) + " elements from " + std::to_string(span.first);
  if (span.row >= 0) got += ", row " + std::to_string(span.row);
  got += ")";
  found_.push_back(
      {target.block, 0, make_finding(law, std::move(where), std::move(expected), std::move(got))});
}

void Judge::find_at(LawId law, const AccessSpan& span, const Target& target, size_t granule,
                    std::string expected, std::string got) {
  const Block& b = *target.block;
  const size_t offset = granule * b.shadow.granule_bytes();
  const std::string writer = memory_.writer_of(b, offset);
  got += writer.empty() ? "; never written" : "; last written by " + writer;
  find(law, span, target, where_in(b, static_cast<int64_t>(offset)), std::move(expected),
       std::move(got));
}

void Judge::report(Status* findings) {
  judged("mem.wrong_region", owned_);
  judged("mem.uninit_read", read_);
  judged("mem.stale_input", renewed_);
  for (Found& f : found_) {
    if (f.more > 0) f.finding.got += "; and " + std::to_string(f.more) + " more such accesses";
    findings->add(std::move(f.finding));
  }
}

void Judge::not_valid(const AccessSpan& span, const Target& target) {
  if (target.fate == Target::Fate::kNowhere) {
    find("mem.out_of_bounds", span, target, at("no allocation"), "an address inside an allocation",
         "outside every allocation");
    return;
  }
  const Block& b = *target.block;
  const int64_t offset = static_cast<int64_t>(target.baked.offset);
  if (target.fate == Target::Fate::kFreed) {
    std::string got = b.live ? "not allocated now" : "freed";
    if (b.changed_by.serial != 0) got += ", since " + b.changed_by.to_string();
    const auto inside = static_cast<size_t>(offset);
    const std::string writer = inside < b.bytes ? memory_.writer_of(b, inside) : "";
    got += writer.empty() ? "; never written" : "; last written by " + writer;
    // Inside a graph the order of its nodes decides what lives.
    const bool by_order =
        b.allocation.kind == AllocKind::kGraph && b.live && by_.phase == Phase::kReplay;
    const LawId law = by_order ? LawId("mem.unordered_access") : LawId("mem.use_after_free");
    find(law, span, target, where_in(b, offset), "live", std::move(got));
    return;
  }
  const Block& was = memory_.blocks[target.baked.block];
  const bool known = &was != &b || b.generation == target.baked.generation + 1;
  const std::string before = &was != &b ? label_of(was) : b.former_name;
  find("mem.stale_generation", span, target, at(known && !before.empty() ? before : label_of(was)),
       "what it was when it was recorded, generation " + std::to_string(target.baked.generation),
       "freed, and its address is " + label_of(b) + " now, generation " +
           std::to_string(b.generation));
}

void Judge::outside(const AccessSpan& span, const Target& target, Blocks::Extent bytes) {
  const Block& b = *target.block;
  const bool behind = bytes.end > b.end();
  // The first byte that is not the block's, counted away from it.
  const size_t begin = behind ? std::max(bytes.begin, b.end()) : bytes.begin;
  const size_t end = behind ? bytes.end : std::min(bytes.end, b.offset);
  const int64_t from_block =
      behind ? static_cast<int64_t>(begin - b.offset) : -static_cast<int64_t>(b.offset - end) - 1;
  const std::string expected = "inside " + label_of(b) + ", " + std::to_string(b.bytes) + " B in " +
                               std::to_string(b.shadow.index_end(b.bytes)) + " granules";
  const Where where = where_in(b, from_block);
  if (const Block* hit = memory_.blocks.first_usable(begin, end)) {
    const size_t first = std::max(begin, hit->offset);
    const Where in_hit = where_in(*hit, static_cast<int64_t>(first - hit->offset));
    std::string got = "lands in " + in_hit.field;
    if (in_hit.row) got += '[' + std::to_string(*in_hit.row) + ']';
    find("mem.out_of_bounds", span, target, where, expected, std::move(got));
    return;
  }
  const size_t zone = memory_.blocks.red_zone();
  const bool near = begin + zone >= b.offset && end <= b.offset + extent_of(b.bytes, zone);
  if (near) {
    find("mem.red_zone", span, target, where, expected,
         behind ? "red zone behind it" : "red zone before it");
  } else {
    find("mem.out_of_bounds", span, target, where, expected, "no allocation");
  }
}

bool Judge::wrong_owner(const AccessSpan& span, const Target& target, size_t first, size_t last) {
  const Shadow& shadow = target.block->shadow;
  const auto row = static_cast<size_t>(span.row);
  if (!shadow.owned || span.row < 0 || row >= memory_.row_owners.size()) return false;
  const OwnerId owner = memory_.row_owners[row];
  if (owner == 0) return false;
  ++owned_;
  for (size_t i = first; i < last;) {
    const uint32_t set = shadow.owner()[i];
    if (set != 0 && !memory_.owner_sets.contains(set, owner)) {
      std::string got = "that of request";
      for (const OwnerId o : memory_.owner_sets.members(set)) got += ' ' + std::to_string(o);
      find_at("mem.wrong_region", span, target, i,
              "request " + std::to_string(owner) + "'s (row " + std::to_string(row) + ")",
              std::move(got));
      return true;
    }
    i = first_unlike(shadow.owner(), i, last, set);
  }
  return false;
}

/// Is the value stale, in a buffer that every step or every replay writes anew?
bool Judge::stale(const Block& block, const Origin& writer) const {
  if (block.lifetime == Lifetime::kPerStep) return writer.step != by_.step;
  return by_.launch != 0 ? writer.launch != by_.launch : writer.step != by_.step;
}

void Judge::contents(const AccessSpan& span, const Target& target, size_t first, size_t last) {
  const Block& b = *target.block;
  ++read_;
  const uint8_t* state = b.shadow.state();
  constexpr auto kInit = static_cast<uint8_t>(GranuleState::kInit);
  const size_t wrong = first_unlike(state, first, last, kInit);
  if (wrong < last && state[wrong] == static_cast<uint8_t>(GranuleState::kUninit)) {
    find_at("mem.uninit_read", span, target, wrong, "initialised", "uninitialised");
    return;
  }
  if (wrong < last) {
    find_at("mem.stale_input", span, target, wrong, "written for this step", "retired");
    return;
  }
  if (b.lifetime != Lifetime::kPerStep && b.lifetime != Lifetime::kScratch) return;
  ++renewed_;
  const uint32_t* writer = b.shadow.writer();
  for (size_t i = first; i < last; i = first_unlike(writer, i, last, writer[i])) {
    const Origin& origin = memory_.origins[writer[i]];
    if (!stale(b, origin)) {
      if (b.lifetime != Lifetime::kScratch || origin.layer < 0 || origin.layer == layer_) continue;
      find_at("mem.stale_input", span, target, i, "written for " + name_of_layer(layer_),
              "left by " + name_of_layer(origin.layer));
      return;
    }
    const bool scratch = b.lifetime == Lifetime::kScratch && by_.launch != 0;
    find_at("mem.stale_input", span, target, i,
            scratch ? "written in this launch" : "written in this step", "older");
    return;
  }
}

void Judge::judge(const AccessSpan& span) {
  if (span.count == 0 || span.element_bytes == 0) return;
  const auto bytes = memory_.blocks.extent_of_span(span);
  const Target& target = target_of(span.buffer);
  if (!bytes) {
    all_mapped_ = false;
    const Where where = target.block != nullptr ? at(label_of(*target.block)) : at("no allocation");
    find("mem.out_of_bounds", span, target, where, "inside the device's memory",
         "an illegal address");
    return;
  }
  if (target.fate != Target::Fate::kValid) return not_valid(span, target);
  const Block& b = *target.block;
  if (!b.parts.empty()) {
    // Between declared buffers.
    find("mem.red_zone", span, target, where_in(b, static_cast<int64_t>(bytes->begin - b.offset)),
         "inside a declared buffer", "between the buffers of " + label_of(b));
    return;
  }
  if (bytes->begin < b.offset || bytes->end > b.end()) return outside(span, target, *bytes);
  if (span.access == Access::kTouch || b.shadow.size() == 0) return;
  const size_t first = b.shadow.index(bytes->begin - b.offset);
  const size_t last = b.shadow.index_end(bytes->end - b.offset);
  if (wrong_owner(span, target, first, last)) return;
  if (span.access == Access::kRead && !b.host_writes()) contents(span, target, first, last);
}

}  // namespace

bool DeviceMemory::judge(const Origin& by, std::span<const BakedPointer> pointers,
                         const Footprint& spans, Status* findings) {
  if (!checked()) {
    return std::ranges::all_of(spans, [&](const AccessSpan& span) {
      return span.count == 0 || impl_->blocks.extent_of_span(span).has_value();
    });
  }
  Judge judge(*impl_, *this, by, pointers, impl_->layer_of(spans));
  for (const AccessSpan& span : spans) judge.judge(span);
  for (const LawId law : {LawId("mem.out_of_bounds"), LawId("mem.red_zone"),
                          LawId("mem.use_after_free"), LawId("mem.stale_generation")})
    judged(law, std::ssize(spans));
  judge.report(findings);
  return judge.all_mapped();
}

void DeviceMemory::judge_output(const void* p, size_t bytes, uint64_t ticket, Status* findings) {
  const auto offset = impl_->blocks.offset_of(p);
  if (!checked() || !offset) return;
  judged("mem.clobbered_output");
  const size_t end = *offset + std::min(bytes, impl_->blocks.capacity() - *offset);
  impl_->blocks.for_each_shadow(*offset, end, [&](Block& b, size_t from, size_t to) {
    const uint32_t* writer = b.shadow.writer();
    const size_t last = b.shadow.index_end(to - b.offset);
    for (size_t i = b.shadow.index(from - b.offset); i < last;
         i = first_unlike(writer, i, last, writer[i])) {
      const Origin& origin = impl_->origins[writer[i]];
      if (origin.serial <= ticket) continue;
      const size_t at_byte = i * b.shadow.granule_bytes();
      findings->add(make_finding("mem.clobbered_output", where_in(b, static_cast<int64_t>(at_byte)),
                                 "written by operation " + std::to_string(ticket) + " or earlier",
                                 "written by " + origin.to_string()));
      return;
    }
  });
}

}  // namespace shadowgraph
