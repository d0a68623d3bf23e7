#include "shadowgraph/device/arena.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "core/laws.h"
#include "graph/memory/memory.h"
#include "graph/memory/shadow.h"
#include "graph/sim/device_status.h"

namespace shadowgraph {
namespace {

struct Bound {
  Buffer buffer;
  Bound* storage = nullptr;       // of a slice; it has the members below
  size_t end = 0;                 // of its place in the arena, red zone included
  std::byte* staging = nullptr;   // pinned; null until something may be written
  bool copied = false;            // of staging: an upload has read it since the host wrote it
  std::vector<Elements> written;  // since the last upload
  std::vector<Elements> filled;   // since the fill began
};

/// None if the shape is not one that memory can have.
std::optional<size_t> bytes_of(const BufferSpec& spec) {
  if (spec.shape.size() > TensorView::kMaxRank) return {};
  int64_t row = 1, numel = 1, bytes = 0;
  for (size_t i = spec.shape.size(); i-- > 0;) {
    row = numel;
    if (spec.shape[i] < 0 || __builtin_mul_overflow(numel, spec.shape[i], &numel)) return {};
  }
  if (spec.row_stride != 0 && numel > 0) {
    if (spec.row_stride < row || spec.granule <= 0 || spec.row_stride % spec.granule != 0 ||
        __builtin_mul_overflow(spec.shape[0] - 1, spec.row_stride, &numel) ||
        __builtin_add_overflow(numel, row, &numel))
      return {};
  }
  if (spec.granule <= 0 || numel % spec.granule != 0) return {};
  if (__builtin_mul_overflow(numel, static_cast<int64_t>(size_of(spec.dtype)), &bytes)) return {};
  return static_cast<size_t>(bytes);
}

Status check_range(const Buffer& buffer, Elements range) {
  Status status;
  const int64_t numel = buffer.numel();
  if (range.first < 0 || range.count < 0 || range.first > numel ||
      range.count > numel - range.first) {
    const std::string count = std::to_string(range.count);
    status.add(make_finding(
        "input.shape", at(buffer.name, range.first),
        "inside " + std::to_string(numel) + " elements",
        range.count < 0 ? "a count of " + count : "the first of " + count + " elements"));
  }
  return status;
}

/// Most fills write front to back: what continues the last range joins it.
void add_range(std::vector<Elements>* ranges, Elements range) {
  if (!ranges->empty()) {
    Elements& last = ranges->back();
    if (range.first >= last.first && range.first <= last.first + last.count) {
      last.count = std::max(last.count, range.first + range.count - last.first);
      return;
    }
  }
  ranges->push_back(range);
}

/// Takes a range out of the others.
void take_range(std::vector<Elements>* ranges, Elements out) {
  const int64_t end = out.first + out.count;
  for (size_t i = ranges->size(); i-- > 0;) {
    Elements& r = (*ranges)[i];
    const int64_t r_end = r.first + r.count;
    if (out.count == 0 || r_end <= out.first || r.first >= end) continue;
    const Elements behind{end, std::max<int64_t>(0, r_end - end)};
    r.count = std::max<int64_t>(0, out.first - r.first);
    if (r.count == 0)
      r = behind;
    else if (behind.count > 0)
      ranges->push_back(behind);
  }
  std::erase_if(*ranges, [](const Elements& r) { return r.count == 0; });
}

}  // namespace

namespace {

int64_t row_of(const BufferSpec& spec) {
  int64_t row = 1;
  for (size_t i = 1; i < spec.shape.size(); ++i) row *= spec.shape[i];
  return row;
}

}  // namespace

int64_t Buffer::numel() const { return shape.empty() ? 1 : rows(0, shape[0]).count; }

Elements Buffer::rows(int64_t first, int64_t count) const {
  assert(!shape.empty());
  const int64_t row = row_of(*this), stride = row_stride == 0 ? row : row_stride;
  return {first * stride, count == 0 ? 0 : (count - 1) * stride + row};
}

TensorView Buffer::view() const {
  TensorView v;
  v.data = data, v.dtype = dtype, v.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i])
    v.shape[i] = shape[i], v.stride[i] = step;
  if (row_stride != 0) v.stride[0] = row_stride;
  return v;
}

struct Arena::State {
  State(DeviceApi& device, size_t bytes) : api(device), capacity(bytes) {
    void* p = nullptr;
    ready.add(device_status("cudaMalloc", api.malloc(capacity, &p)));
    base = static_cast<std::byte*>(p);
    ready.add(device_status("cudaEventCreateWithFlags",
                            api.event_create_with_flags(kEventDisableTiming, &uploaded)));
  }
  ~State() {
    end_all("");
    for (const auto& [bytes, staging] : spare) api.free_host(staging);
    if (uploaded) api.event_destroy(uploaded);
    if (base != nullptr) api.free(base);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Status plan(std::span<const BufferSpec> specs, const std::string& prefix,
              std::vector<Bound>* planned) const;
  Status stage(Bound* bound);
  /// Keeps a buffer's staging for the next one: to free it the host would wait for all work.
  void put_back(const Bound& b) {
    if (b.staging != nullptr) spare.emplace(staging_bytes(b.buffer), b.staging);
  }
  /// One of few sizes.
  static size_t staging_bytes(const Buffer& b) {
    return std::bit_ceil(std::max(b.bytes(), size_t{256}));
  }
  /// The copies of the last upload have read their staging.
  Status wait_for_upload();
  void end_all(std::string_view prefix);
  size_t used() const {
    size_t end = 0;
    for (const auto& [name, b] : bound) end = std::max(end, b.end);
    return end;
  }
  /// The bound buffer that this is the value of, or nullptr.
  const Bound* find(const Buffer& buffer) const {
    const Bound* b = buffer.place < places.size() ? places[buffer.place] : nullptr;
    return b != nullptr && b->buffer.data == buffer.data && b->buffer.name == buffer.name ? b
                                                                                          : nullptr;
  }
  /// The owner of its staging: a slice's storage, else itself. nullptr: it is not bound.
  Bound* storage_of(const Buffer& buffer) const {
    const Bound* b = find(buffer);
    if (b == nullptr) return nullptr;
    return b->storage != nullptr ? b->storage : places[buffer.place];
  }
  Bound* keep(Bound b);
  /// In range, of a buffer that is bound.
  Status check(const Buffer& buffer, Elements range);
  /// fn: called with the range's address and bytes. A template, for a fill allocates nothing.
  template <class Fn>
  Status annotate(const Buffer& buffer, Elements range, const Fn& fn);

  DeviceApi& api;
  size_t capacity;
  std::byte* base = nullptr;
  EventHandle uploaded;
  bool uploading = false;  // the event may be ahead of the host
  Status ready;            // why nothing can be bound
  std::map<std::string, Bound, std::less<>> bound;
  std::multimap<size_t, std::byte*> spare;  // staging of buffers that have ended, by its bytes
  std::vector<Bound*> places;               // by Buffer::place; null: free
  std::map<std::string, Bound*, std::less<>> shared;  // storage by the names of its slices
};

namespace {

/// Why the spec cannot be a slice.
std::string unlike(const BufferSpec& spec, size_t bytes, const Buffer& storage) {
  if (spec.dtype != storage.dtype) return "another dtype";
  if (spec.lifetime != storage.lifetime) return "another lifetime";
  if (spec.granule != storage.granule) return "another granule";
  return bytes > storage.bytes() ? std::to_string(bytes) + " B" : "";
}

}  // namespace

Status Arena::State::plan(std::span<const BufferSpec> specs, const std::string& prefix,
                          std::vector<Bound>* planned) const {
  if (!ready.ok()) return ready;
  Status status;
  size_t end = used();
  for (const BufferSpec& spec : specs) {
    const std::string name = prefix + spec.name;
    const auto same = [&](const Bound& b) { return b.buffer.name == name; };
    if (bound.contains(name) || std::ranges::any_of(*planned, same))
      status.add(make_finding("input.shape", at(name), "a name of its own", "bound already"));
    const std::optional<size_t> bytes = bytes_of(spec);
    if (!bytes) {
      status.add(make_finding("input.shape", at(name),
                              "a shape of at most 5 sizes in whole granules", "another"));
      continue;
    }
    if (const auto slice = shared.find(name); slice != shared.end()) {
      const Buffer& storage = slice->second->buffer;
      if (std::string got = unlike(spec, *bytes, storage); !got.empty()) {
        status.add(make_finding(
            "input.shape", at(name),
            "a slice of " + storage.name + ", " + std::to_string(storage.bytes()) + " B",
            std::move(got)));
        continue;
      }
      Bound& b = planned->emplace_back();
      static_cast<BufferSpec&>(b.buffer) = spec;
      b.buffer.name = name;
      b.buffer.data = storage.data;
      b.storage = slice->second;
      continue;
    }
    if (*bytes > capacity || extent_of(*bytes, kRedZone) > capacity - end) {
      status.add(make_finding("input.memory", at(name),
                              std::to_string(capacity - end) + " B of the arena at most",
                              std::to_string(*bytes) + " B and a red zone"));
      continue;
    }
    Bound& b = planned->emplace_back();
    static_cast<BufferSpec&>(b.buffer) = spec;
    b.buffer.name = name;
    b.buffer.data = base + end;
    b.end = end += extent_of(*bytes, kRedZone);
  }
  return status;
}

Status Arena::State::stage(Bound* b) {
  if (b->staging != nullptr || b->buffer.bytes() == 0) return {};
  const size_t bytes = staging_bytes(b->buffer);
  void* p = nullptr;
  DeviceError error = DeviceError::kSuccess;
  if (const auto kept = spare.find(bytes); kept != spare.end()) {
    p = kept->second;
    spare.erase(kept);
    api.host_writes(p, bytes);
    std::memset(p, kPoison, bytes);
  } else {
    error = api.malloc_host(bytes, &p);
  }
  const size_t rows = b->buffer.shape.empty() ? 1 : static_cast<size_t>(b->buffer.shape[0]) + 1;
  b->written.reserve(rows), b->filled.reserve(rows);
  b->staging = static_cast<std::byte*>(p);
  if (p != nullptr) api.name_buffer(p, "staging of " + b->buffer.name);
  return device_status("cudaMallocHost", error);
}

Bound* Arena::State::keep(Bound b) {
  const auto free = std::ranges::find(places, nullptr);
  b.buffer.place = static_cast<uint32_t>(free - places.begin());
  if (free == places.end()) places.push_back(nullptr);
  std::string name = b.buffer.name;
  Bound* kept = &bound.emplace(std::move(name), std::move(b)).first->second;
  return places[kept->buffer.place] = kept;
}

Status Arena::State::wait_for_upload() {
  if (!uploading) return {};
  Status status = device_status("cudaEventSynchronize", api.event_synchronize(uploaded));
  uploading = !status.ok();
  return status;
}

void Arena::State::end_all(std::string_view prefix) {
  (void)wait_for_upload();  // an error here is the device's own, and comes again
  const auto ends = [&](const Bound* b) {
    return b != nullptr && b->buffer.name.starts_with(prefix);
  };
  std::erase_if(shared, [&](const auto& slice) { return ends(slice.second); });
  std::erase_if(bound, [&](const auto& entry) {
    const Bound& b = entry.second;
    if (b.storage == nullptr || (!ends(&b) && !ends(b.storage))) return false;
    places[b.buffer.place] = nullptr;
    return true;
  });
  for (auto it = bound.lower_bound(prefix); it != bound.end() && it->first.starts_with(prefix);) {
    api.undeclare_buffer(it->second.buffer.data);
    put_back(it->second);
    places[it->second.buffer.place] = nullptr;
    it = bound.erase(it);
  }
}

Status Arena::State::check(const Buffer& buffer, Elements range) {
  if (find(buffer) != nullptr) return check_range(buffer, range);
  Status status;
  status.add(make_finding("input.shape", at(buffer.name), "a buffer of this arena", "not bound"));
  return status;
}

template <class Fn>
Status Arena::State::annotate(const Buffer& buffer, Elements range, const Fn& fn) {
  Status status = check(buffer, range);
  const size_t size = size_of(buffer.dtype);
  if (status.ok())
    fn(buffer.data + static_cast<size_t>(range.first) * size,
       static_cast<size_t>(range.count) * size);
  return status;
}

Arena::Arena(DeviceApi& api, size_t capacity) : state_(std::make_shared<State>(api, capacity)) {}

Arena::Arena(std::shared_ptr<State> state, std::string prefix)
    : state_(std::move(state)), prefix_(std::move(prefix)) {}

Arena Arena::scope(std::string_view name) const {
  return {state_, prefix_ + std::string(name) + "/"};
}

Status Arena::bind(std::span<const BufferSpec> specs, std::vector<Buffer>* buffers) {
  std::vector<Bound> planned;
  Status status = state_->plan(specs, prefix_, &planned);
  for (Bound& b : planned) {
    const Lifetime lifetime = b.buffer.lifetime;
    if (status.ok() && (lifetime == Lifetime::kConstant || lifetime == Lifetime::kPerStep))
      status.add(state_->stage(b.storage != nullptr ? b.storage : &b));
  }
  if (!status.ok()) {
    for (const Bound& b : planned) state_->put_back(b);
    return status;
  }
  buffers->clear();
  for (Bound& b : planned) {
    const size_t granule = static_cast<size_t>(b.buffer.granule) * size_of(b.buffer.dtype);
    if (b.storage == nullptr)
      state_->api.declare_buffer(
          {b.buffer.data, b.buffer.bytes(), granule, b.buffer.lifetime, b.buffer.name});
    buffers->push_back(state_->keep(std::move(b))->buffer);
  }
  return status;
}

Status Arena::share(std::string_view name, const Buffer& storage) {
  Status status = state_->check(storage, {});
  if (status.ok()) state_->shared[prefix_ + std::string(name)] = state_->storage_of(storage);
  return status;
}

void Arena::unbind() { state_->end_all(prefix_); }

const Buffer* Arena::find(std::string_view name) const {
  const auto it = state_->bound.find(prefix_ + std::string(name));
  return it != state_->bound.end() ? &it->second.buffer : nullptr;
}

std::string Arena::place_of(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  if (state_ != nullptr) {
    for (const auto& [name, b] : state_->bound) {
      if (p < b.buffer.data || p >= b.buffer.data + std::max<size_t>(b.buffer.bytes(), 1)) continue;
      const auto offset = p - b.buffer.data;
      return offset == 0 ? name : name + " + " + std::to_string(offset) + " B";
    }
  }
  return "no bound buffer";
}

const Buffer* Arena::storage_of(const Buffer& buffer) const {
  const Bound* b = state_->storage_of(buffer);
  return b != nullptr ? &b->buffer : nullptr;
}

size_t Arena::used() const { return state_->used(); }

DeviceApi& Arena::device() const { return state_->api; }

Status Arena::write(const Buffer& buffer, int64_t first, const void* values, int64_t count) {
  std::byte* p = nullptr;
  Status status = stage_bytes(buffer, {first, count}, &p);
  if (status.ok() && count > 0)
    std::memcpy(p, values, static_cast<size_t>(count) * size_of(buffer.dtype));
  return status;
}

Status Arena::stage_bytes(const Buffer& buffer, Elements range, std::byte** p) {
  Status status = state_->check(buffer, range);
  if (!status.ok() || range.count == 0) return status;
  Bound* b = state_->storage_of(buffer);
  status.add(state_->stage(b));
  status.add(state_->wait_for_upload());
  if (!status.ok()) return status;
  if (std::exchange(b->copied, false)) state_->api.host_writes(b->staging, b->buffer.bytes());
  *p = b->staging + static_cast<size_t>(range.first) * size_of(buffer.dtype);
  add_range(&b->written, range);
  add_range(&b->filled, range);
  return status;
}

const std::byte* Arena::staged(const Buffer& buffer) const {
  const Bound* b = state_->storage_of(buffer);
  return b != nullptr ? b->staging : nullptr;
}

void Arena::begin_fill(const Buffer& buffer) {
  if (Bound* b = state_->storage_of(buffer)) b->written.clear(), b->filled.clear();
}

void Arena::discard(const Buffer& buffer) {
  if (Bound* b = state_->storage_of(buffer)) b->written.clear();
}

std::span<const Elements> Arena::filled(const Buffer& buffer) const {
  const Bound* b = state_->storage_of(buffer);
  return b != nullptr ? std::span<const Elements>(b->filled) : std::span<const Elements>();
}

Status Arena::upload(StreamHandle stream) {
  Status status;
  bool any = false;
  for (auto& [name, b] : state_->bound) {
    const size_t size = size_of(b.buffer.dtype);
    for (const Elements& range : b.written) {
      const size_t offset = static_cast<size_t>(range.first) * size;
      MemcpyParams copy;
      copy.dst = b.buffer.data + offset;
      copy.src = b.staging + offset;
      copy.width = static_cast<size_t>(range.count) * size;
      copy.kind = MemcpyKind::kHostToDevice;
      status.add(device_status("cudaMemcpyAsync", state_->api.memcpy_async(copy, stream)));
      any = b.copied = true;
    }
    b.written.clear();  // and keeps its memory: a fill allocates nothing
  }
  if (!any) return status;
  status.add(device_status("cudaEventRecord", state_->api.event_record(state_->uploaded, stream)));
  state_->uploading = true;
  return status;
}

Status Arena::retire(const Buffer& buffer, Elements range) {
  return state_->annotate(buffer, range, [&](const void* p, size_t n) {
    take_range(&state_->storage_of(buffer)->filled, range);
    state_->api.retire(p, n);
  });
}

Status Arena::set_owner(const Buffer& buffer, Elements range, OwnerId owner) {
  return state_->annotate(buffer, range,
                          [&](const void* p, size_t n) { state_->api.set_owner(p, n, owner); });
}

Status Arena::add_owner(const Buffer& buffer, Elements range, OwnerId owner) {
  return state_->annotate(buffer, range,
                          [&](const void* p, size_t n) { state_->api.add_owner(p, n, owner); });
}

void Arena::begin_step() { state_->api.begin_step(); }

}  // namespace shadowgraph
