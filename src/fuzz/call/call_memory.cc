#include "fuzz/call/call_memory.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <optional>

#include "core/laws.h"

namespace shadowgraph {
namespace {

bool contains(const BufferRanges& ranges, int64_t byte) {
  return std::ranges::any_of(ranges,
                             [&](const BufferRange& r) { return r.begin <= byte && byte < r.end; });
}

/// The first byte that only one of them has.
int64_t first_apart(const BufferRanges& a, const BufferRanges& b) {
  const auto [x, y] = std::ranges::mismatch(a, b);
  if (x == a.end()) return y->begin;
  if (y == b.end()) return x->begin;
  return x->begin == y->begin ? std::min(x->end, y->end) : std::min(x->begin, y->begin);
}

/// The index of the element that has this byte; nothing between elements and outside of them.
std::optional<std::vector<int64_t>> element_at(const TensorView& t, const std::byte* byte) {
  std::vector<size_t> axes(static_cast<size_t>(t.rank));
  std::iota(axes.begin(), axes.end(), size_t{0});
  std::ranges::stable_sort(axes, std::greater(), [&](size_t axis) { return t.stride[axis]; });
  std::vector<int64_t> index(axes.size());
  if (byte < t.data || t.numel() == 0) return {};
  int64_t rest = (byte - t.data) / static_cast<int64_t>(size_of(t.dtype));
  for (const size_t axis : axes) {
    if (t.stride[axis] > 0) index[axis] = std::min(rest / t.stride[axis], t.shape[axis] - 1);
    rest -= index[axis] * t.stride[axis];
  }
  return rest == 0 ? std::optional(index) : std::nullopt;
}

/// By its element, in one of the views; else by its number from `data`.
Where place_of(const std::string& field, std::span<const TensorView> views, const std::byte* data,
               int64_t byte) {
  for (const TensorView& t : views)
    if (const auto index = element_at(t, data + byte)) return at(field, *index);
  return at(field + " byte", byte);
}

/// For these types the poison of an element is no number.
bool is_float(DType t) {
  return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16 || is_fp8(t);
}

}  // namespace

TensorView CallMemory::add(const char* field, DType dtype, std::span<const int64_t> shape, Rng& rng,
                           AxisOrder order) {
  Tensor& t = tensors_.emplace_back();
  t.field = field, t.types = {dtype};
  t.laid = {make_gapped(t.memory, dtype, shape, rng, style_.dense ? AxisOrder::kDense : order,
                        style_.poison)};
  return t.laid[0];
}

TensorView CallMemory::add_far(const char* field, DType dtype, std::span<const int64_t> shape,
                               int64_t first) {
  TensorView t(nullptr, dtype, {});
  t.rank = static_cast<int>(shape.size());
  int64_t elements = 1;
  for (size_t axis = shape.size(); axis-- > 0; elements *= shape[axis])
    t.shape[axis] = shape[axis], t.stride[axis] = elements;
  const auto bytes = [&](int64_t count) {
    return count * t.stride[0] * static_cast<int64_t>(size_of(dtype));
  };
  Tensor& far = tensors_.emplace_back();
  far.field = field, far.types = {dtype};
  far.memory = GuardedBuffer::far(bytes(first), bytes(t.shape[0]), style_.poison);
  t.data = far.memory.data();
  far.laid = {t};
  return t;
}

std::vector<TensorView> CallMemory::add_records(const char* field, size_t shared,
                                                const std::vector<RecordField>& fields, Rng& rng) {
  constexpr int64_t kAligned = 8;  // the record, to any type
  const auto up = [](int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; };
  Tensor& t = tensors_.emplace_back();
  t.field = field;
  std::vector<TensorView> views;
  std::vector<int64_t> begins;
  int64_t record = 0;
  for (const RecordField& f : fields) {
    const auto size = static_cast<int64_t>(size_of(f.dtype));
    t.types.push_back(f.dtype);
    TensorView& view = views.emplace_back(nullptr, f.dtype, std::initializer_list<int64_t>{});
    view.rank = static_cast<int>(f.shape.size());
    int64_t elements = 1;
    for (size_t axis = f.shape.size(); axis-- > 0;) {
      view.shape[axis] = f.shape[axis], view.stride[axis] = elements;
      if (axis >= shared) elements *= f.shape[axis];
    }
    begins.push_back(up(record, size) + size * rng.below(3));
    record = begins.back() + elements * size;
  }
  int64_t bytes = up(record, kAligned) + kAligned * rng.below(2);
  for (size_t axis = shared; axis-- > 0;) {
    for (TensorView& v : views) v.stride[axis] = bytes / static_cast<int64_t>(size_of(v.dtype));
    bytes *= fields[0].shape[axis];
  }
  bytes = 0;
  for (size_t i = 0; i < views.size(); ++i)
    bytes = std::max(bytes, begins[i] + elements_between(views[i]) *
                                            static_cast<int64_t>(size_of(views[i].dtype)));
  const uint32_t off = rng.below(8);
  t.memory = off < 4 ? GuardedBuffer(bytes, kAligned * off)
                     : GuardedBuffer(bytes, up(bytes, kAligned) - bytes + kAligned * (off - 4),
                                     kPoison, Side::kBack);
  for (size_t i = 0; i < views.size(); ++i) views[i].data = t.memory.data() + begins[i];
  return t.laid = views;
}

void CallMemory::remember() {
  for (Tensor& t : tensors_) t.before = t.memory, t.memory.room().close();
}

void CallMemory::poison() {
  for (Tensor& t : tensors_) t.memory.poison();
}

void CallMemory::restore() {
  for (Tensor& t : tensors_) t.memory = t.before;
}

ConstTensorView CallMemory::before(const ConstTensorView& t) const {
  for (const Tensor& mine : tensors_) {
    if (!mine.holds(t.data)) continue;
    ConstTensorView was = t;
    was.data = mine.before.data() + (t.data - mine.memory.data());
    return was;
  }
  assert(false);
  return {};
}

BufferRange CallMemory::Tensor::range_of(const AccessSpan& s) const {
  const int64_t at = static_cast<const std::byte*>(s.buffer) - memory.data();
  const int64_t first = at + s.first * s.element_bytes;
  return {first, first + s.count * s.element_bytes};
}

BufferRanges CallMemory::Tensor::ranges_of(const Footprint& spans, Access access) const {
  BufferRanges ranges;
  for (const AccessSpan& s : spans)
    if (s.access == access && holds(s.buffer)) ranges.push_back(range_of(s));
  return merged(std::move(ranges));
}

BufferRanges CallMemory::Tensor::ranges_of(std::span<const ConstTensorView> views) const {
  BufferRanges ranges;
  for (const ConstTensorView& v : views) {
    if (!holds(v.data) || v.numel() == 0) continue;
    for_each_run(v, [&](const std::byte* at, size_t bytes) {
      const int64_t first = at - memory.data();
      ranges.push_back({first, first + static_cast<int64_t>(bytes)});
    });
  }
  return merged(std::move(ranges));
}

bool CallMemory::Tensor::holds_floats(const AccessSpan& s) const {
  return std::ranges::any_of(types, [&](DType type) {
    return is_float(type) && static_cast<int64_t>(size_of(type)) == s.element_bytes;
  });
}

bool CallMemory::Tensor::is_poison(const AccessSpan& s, int64_t* byte) const {
  const BufferRange r = range_of(s);
  for (int64_t i = r.begin; i < r.end; i += s.element_bytes) {
    const std::byte* at = before.data() + i;
    if (*at != kPoison || at[s.element_bytes - 1] != kPoison) continue;
    *byte = i;
    if (std::all_of(at, at + s.element_bytes, [](std::byte b) { return b == kPoison; }))
      return true;
  }
  return false;
}

bool CallMemory::holds(const void* address) const {
  return std::ranges::any_of(tensors_, [&](const Tensor& t) { return t.holds(address); });
}

Status check_guards(const char* field, const GuardedBuffer& memory) {
  Status status;
  judged("mem.red_zone");
  const auto hit = memory.room().trespass();
  if (!hit) return status;
  const int64_t byte = hit->at - memory.data();
  const std::string beside = byte < 0
                                 ? std::to_string(-byte) + " before its first"
                                 : std::to_string(byte - memory.size() + 1) + " behind its last";
  status.add(make_finding("mem.red_zone", at(std::string(field) + " byte", byte),
                          "no access beside its " + std::to_string(memory.size()) + " bytes",
                          std::string(hit->what) + ", " + beside));
  return status;
}

template <class RangesOf>
Status CallMemory::check_changes(const RangesOf& may_change) const {
  Status status;
  for (const Tensor& t : tensors_) status.add(check_guards(t.field, t.memory));
  judged("num.write_set", std::ssize(tensors_));
  const auto fail = [&](const Where& where) {
    status.add(make_finding("num.write_set", where,
                            "as before the call: it belongs to no row that is written", "other"));
  };
  for (const Tensor& t : tensors_) {
    if (const auto byte = t.memory.first_difference(t.before, may_change(t)))
      fail(place_of(t.field, t.laid, t.memory.data(), *byte));
  }
  return status;
}

Status CallMemory::check_written(std::span<const ConstTensorView> written) const {
  return check_changes([&](const Tensor& t) { return t.ranges_of(written); });
}

Status CallMemory::check_changed(const Footprint& spans) const {
  return check_changes([&](const Tensor& t) { return t.ranges_of(spans, Access::kWrite); });
}

bool CallMemory::reads_poison(const Footprint& spans) const {
  for (const Tensor& t : tensors_) {
    const bool packed = std::ranges::find(t.types, DType::kU8) != t.types.end();
    for (const AccessSpan& s : spans) {
      int64_t byte = 0;
      if (s.count <= 0 || s.access != Access::kRead || !t.holds(s.buffer)) continue;
      if ((packed || t.holds_floats(s)) && t.is_poison(s, &byte)) return true;
    }
  }
  return false;
}

bool CallMemory::backs(const Footprint& spans) const {
  for (const Tensor& t : tensors_) {
    for (const AccessSpan& s : spans) {
      if (s.count <= 0 || !t.holds(s.buffer)) continue;
      const BufferRange r = t.range_of(s);
      if (r.begin < 0 || r.end > t.memory.size()) return false;
    }
  }
  return true;
}

Status CallMemory::check_writes(const Tensor& t, const Footprint& spans,
                                std::span<const ConstTensorView> written) const {
  Status status;
  judged("num.write_set");
  const BufferRanges wanted = t.ranges_of(written), said = t.ranges_of(spans, Access::kWrite);
  if (wanted == said) return status;
  const int64_t byte = first_apart(wanted, said);
  const auto name = [](bool writes) { return writes ? "a write" : "no write"; };
  status.add(
      make_finding("num.write_set",
                   place_of("footprint of " + std::string(t.field), t.laid, t.memory.data(), byte),
                   name(contains(wanted, byte)), name(contains(said, byte))));
  return status;
}

Status CallMemory::check_footprint(const Footprint& spans, std::span<const ConstTensorView> written,
                                   const IsIdle& is_idle) const {
  Status status;
  for (const Tensor& t : tensors_) {
    status.add(check_writes(t, spans, written));
    const auto fail = [&](LawId law, int64_t byte, const char* expected, const char* got) {
      status.add(make_finding(
          law, place_of("footprint of " + std::string(t.field), t.laid, t.memory.data(), byte),
          expected, got));
    };
    int64_t byte = 0;
    for (const AccessSpan& s : spans) {
      if (s.count <= 0 || !t.holds(s.buffer)) continue;
      judged("mem.out_of_bounds");
      const BufferRange r = t.range_of(s);
      if (r.begin < 0 || r.end > t.memory.size()) {
        fail("mem.out_of_bounds", r.begin < 0 ? r.begin : r.end - 1, "a byte of the tensor",
             "one beside it");
        break;
      }
      if (s.access != Access::kRead || !t.holds_floats(s) || is_idle(s.row)) continue;
      judged("mem.uninit_read");
      if (!t.is_poison(s, &byte)) continue;
      fail("mem.uninit_read", byte, "a read of what was laid down", "a read of poison");
      break;
    }
  }
  return status;
}

void CallMemory::poison_unread(const Footprint& spans) {
  for (Tensor& t : tensors_) t.memory.poison_except(t.ranges_of(spans, Access::kRead));
}

}  // namespace shadowgraph
