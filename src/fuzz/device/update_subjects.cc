#include "fuzz/device/update_subjects.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fuzz/device/node_fields.h"

namespace shadowgraph {
namespace {

using enum DeviceError;

/// target[0..7] := the launch and the source's value, times a number of the kernel's own.
template <uint32_t own>
Progress show(LaunchFrame& f) {
  auto* to = f.pointer<uint32_t>(0);
  const KernelLaunch& l = f.launch;
  const uint32_t seen[] = {*f.pointer<const uint32_t>(1) * own,
                           f.scalar<uint32_t>(2),
                           l.grid.x * 64 + l.grid.y * 8 + l.grid.z,
                           l.block.x * 64 + l.block.y * 8 + l.block.z,
                           l.shared_bytes,
                           static_cast<uint32_t>(l.programmatic),
                           static_cast<uint32_t>(l.args.size()),
                           own};
  std::copy(std::begin(seen), std::end(seen), to);
  return Progress::kDone;
}
void show_footprint(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<const uint32_t>(1), 0, 1, sizeof(uint32_t), Access::kRead});
  spans->push_back({f.pointer<uint32_t>(0), 0, 8, sizeof(uint32_t), Access::kWrite});
}
constexpr Kernel kShow{.name = "show", .body = show<3>, .footprint = show_footprint};
constexpr Kernel kShowOther{.name = "show_other", .body = show<5>, .footprint = show_footprint};

/// Ends a loop.
Progress clear(LaunchFrame& f) {
  f.set_conditional(f, f.launch.args.get<uint64_t>(0), 0);
  return Progress::kDone;
}
void clear_footprint(const LaunchFrame& /*f*/, Footprint* /*spans*/) {}
constexpr Kernel kClear{.name = "clear", .body = clear, .footprint = clear_footprint};

constexpr uint32_t kHostBegin = 5000;  // what pageable memory has at first

void add_one(void* log) { *static_cast<int32_t*>(log) += 1; }
void add_ten(void* log) { *static_cast<int32_t*>(log) += 10; }

NodeHandle add_node(UpdateRig& rig, GraphHandle g, const std::vector<NodeHandle>& after,
                    NodeParams& params, DeviceError* error) {
  NodeHandle node;
  const DeviceError now = rig.device->graph_add_node(g, after, params, &node);
  if (*error == kSuccess) *error = now;
  return node;
}

/// Makes one of the changes that each field may have: other values of its type. It changes nothing
/// that equals what is there.
class Changer {
 public:
  Changer(UpdateRig& rig, FieldChange* change) : rig_(rig), change_(*change) {}

  /// For the addresses that a field of this node may have instead.
  std::vector<std::pair<void*, const char*>> addresses;
  std::vector<std::pair<GraphHandle, const char*>> graphs;

  template <class T>
  void operator()(const char* name, T& field) {
    for (auto& [value, text] : values(field)) {
      if (value == field || change_.count++ != change_.number) continue;
      change_.text = std::string(name) + " = " + text;
      field = value;
      return;
    }
  }

 private:
  template <class T>
  using Values = std::vector<std::pair<T, std::string>>;

  template <class T>
  static Values<T> numbers(std::initializer_list<T> all) {
    Values<T> values;
    for (const T n : all) values.emplace_back(n, std::to_string(n));
    return values;
  }
  static Values<uint32_t> values(uint32_t) { return numbers<uint32_t>({0, 1, 2, 3, 4, 1U << 20}); }
  static Values<size_t> values(size_t) {
    return numbers<size_t>({0, 1, 2, 4, 8, 16, 24, size_t{1} << 50});
  }
  static Values<bool> values(bool was) { return {{!was, was ? "no" : "yes"}}; }
  Values<void*> values(void*) const { return Values<void*>(addresses.begin(), addresses.end()); }
  Values<const void*> values(const void*) const {
    return Values<const void*>(addresses.begin(), addresses.end());
  }
  static Values<MemcpyKind> values(MemcpyKind) {
    Values<MemcpyKind> all;
    for (const int kind : {0, 1, 2, 3, 4, 7})
      all.emplace_back(static_cast<MemcpyKind>(kind), std::to_string(kind));
    return all;
  }
  static Values<ConditionalType> values(ConditionalType) {
    return {{ConditionalType::kIf, "if"},
            {ConditionalType::kWhile, "while"},
            {ConditionalType::kSwitch, "switch"}};
  }
  static Values<const Kernel*> values(const Kernel*) {
    return {{&kShowOther, "another"}, {nullptr, "none"}};
  }
  static Values<HostFn> values(HostFn) { return {{add_ten, "another"}, {nullptr, "none"}}; }
  Values<EventHandle> values(EventHandle) const {
    return {{rig_.events[1], "another"}, {EventHandle{}, "none"}};
  }
  Values<GraphHandle> values(GraphHandle) const {
    return Values<GraphHandle>(graphs.begin(), graphs.end());
  }
  static Values<ConditionalHandle> values(ConditionalHandle) {
    return {{ConditionalHandle{}, "none"}};
  }
  /// Each argument by its kind, and one more.
  Values<KernelArgs> values(const KernelArgs& was) const {
    Values<KernelArgs> all;
    const auto with = [&](size_t i, ArgKind kind, const void* data, const std::string& text) {
      KernelArgs args;
      for (size_t j = 0; j < was.size(); ++j) {
        if (j == i) args.add(kind, data, was.bytes(j).size());
        if (j != i) args.add(was.kind(j), was.bytes(j).data(), was.bytes(j).size());
      }
      all.emplace_back(std::move(args), "[" + std::to_string(i) + "] " + text);
    };
    for (size_t i = 0; i < was.size(); ++i) {
      if (was.kind(i) == ArgKind::kPointer) {
        for (const auto& [p, text] : addresses) with(i, ArgKind::kPointer, &p, text);
      } else {
        std::vector<std::byte> bytes(was.bytes(i).begin(), was.bytes(i).end());
        bytes[0] ^= std::byte{1};
        with(i, was.kind(i), bytes.data(), "another number");
      }
    }
    KernelArgs longer = was;
    longer.scalar(uint32_t{9});
    all.emplace_back(std::move(longer), "one more");
    return all;
  }

  UpdateRig& rig_;
  FieldChange& change_;
};

std::vector<std::pair<void*, const char*>> places(UpdateRig& rig) {
  return {{rig.a + 4, "A + 4"},       {rig.b, "B"},      {rig.b + 4, "B + 4"},
          {rig.pinned, "the host's"}, {nullptr, "null"}, {rig.host.data(), "pageable"}};
}

BuiltNode add(UpdateRig& rig, GraphHandle g, const std::vector<NodeHandle>& after,
              NodeParams params, FieldChange* change) {
  if (change != nullptr) {
    Changer changer(rig, change);
    changer.addresses = places(rig);
    visit_node_fields(changer, params);
  }
  BuiltNode built{.params = params};
  built.node = add_node(rig, g, after, built.params, &built.error);
  return built;
}
/// The kinds that need nothing around them: fn(rig) is their node.
template <NodeParams (*fn)(UpdateRig&)>
BuiltNode add_alone(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                    FieldChange* change) {
  return add(rig, g, after, fn(rig), change);
}

NodeParams a_kernel(UpdateRig& rig) { return shown_launch(rig.a, rig.b, 7); }
template <MemcpyKind kind>
NodeParams a_copy(UpdateRig& rig) {
  const bool from_host = kind == MemcpyKind::kHostToDevice || kind == MemcpyKind::kHostToHost;
  const bool to_host = kind == MemcpyKind::kDeviceToHost || kind == MemcpyKind::kHostToHost;
  // One row has no use for a pitch; with it there may be more.
  return MemcpyParams{
      to_host ? rig.pinned + 32 : rig.a, from_host ? rig.pinned : rig.b, 16, 1, 16, 16, kind};
}
NodeParams a_copy_of_rows(UpdateRig& rig) {
  return MemcpyParams{rig.a, rig.b, 8, 2, 16, 16, MemcpyKind::kDeviceToDevice};
}
NodeParams a_set(UpdateRig& rig) { return MemsetParams{rig.a, 3, 4, 4, 1, 16}; }
NodeParams a_set_of_bytes(UpdateRig& rig) { return MemsetParams{rig.a, 3, 1, 4, 1, 16}; }
NodeParams a_set_of_rows(UpdateRig& rig) { return MemsetParams{rig.a, 3, 2, 2, 2, 8}; }
NodeParams a_record(UpdateRig& rig) { return EventRecordParams{rig.events[0]}; }
NodeParams an_empty(UpdateRig& /*rig*/) { return EmptyParams{}; }

BuiltNode add_host(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                   FieldChange* change) {
  NodeParams params = HostParams{add_one, &rig.logs[0]};
  if (change != nullptr) {
    Changer changer(rig, change);
    changer.addresses = {{&rig.logs[1], "the other log"}};
    visit_node_fields(changer, params);
  }
  BuiltNode built{.params = params};
  built.node = add_node(rig, g, after, built.params, &built.error);
  return built;
}

/// Behind it a kernel reads what the side stream wrote before the first event, not the second.
BuiltNode add_wait(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                   FieldChange* change) {
  BuiltNode built = add(rig, g, after, EventWaitParams{rig.events[0]}, change);
  NodeParams reader = shown_launch(rig.a, rig.seen, 1);
  if (built.error == kSuccess) add_node(rig, g, {built.node}, reader, &built.error);
  return built;
}

BuiltNode add_allocation(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                         FieldChange* change) {
  BuiltNode built = add(rig, g, after, MemAllocParams{64, nullptr}, change);
  if (built.error != kSuccess) return built;
  auto* address = static_cast<uint32_t*>(std::get<MemAllocParams>(built.params).address);
  NodeParams writes = shown_launch(address, rig.b, 2);
  NodeParams shows = shown_launch(rig.a, address, 3), ends = MemFreeParams{address};
  NodeHandle last = add_node(rig, g, {built.node}, writes, &built.error);
  last = add_node(rig, g, {last}, shows, &built.error);
  add_node(rig, g, {last}, ends, &built.error);
  return built;
}

/// One of two allocations is freed: the next launch is refused either way, and what the device
/// holds then tells which.
BuiltNode add_free(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                   FieldChange* change) {
  NodeParams one = MemAllocParams{64, nullptr}, other = MemAllocParams{size_t{4} << 20, nullptr};
  DeviceError error = kSuccess;
  const NodeHandle first = add_node(rig, g, after, one, &error);
  const NodeHandle second = add_node(rig, g, {first}, other, &error);
  NodeParams params = MemFreeParams{std::get<MemAllocParams>(one).address};
  if (change != nullptr) {
    Changer changer(rig, change);
    changer.addresses = {{std::get<MemAllocParams>(other).address, "the other's"},
                         {rig.a, "no graph's"},
                         {nullptr, "null"}};
    visit_node_fields(changer, params);
  }
  BuiltNode built{.error = error, .params = params};
  built.node = add_node(rig, g, {second}, built.params, &built.error);
  return built;
}

BuiltNode add_child(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                    FieldChange* change) {
  const auto inner = [&](NodeParams params, bool longer) {
    GraphHandle graph;
    DeviceError error = rig.device->graph_create(&graph);
    NodeParams more = shown_launch(rig.a + 16, rig.b, 9);
    const NodeHandle node = add_node(rig, graph, {}, params, &error);
    if (longer) add_node(rig, graph, {node}, more, &error);
    return graph;
  };
  NodeParams params = ChildGraphParams{inner(shown_launch(rig.a, rig.b, 7), false)};
  if (change != nullptr) {
    Changer changer(rig, change);
    changer.graphs = {{inner(shown_launch(rig.a, rig.b, 8), false), "another scalar"},
                      {inner(shown_launch(rig.a, rig.b, 7), true), "one node more"},
                      {inner(a_set(rig), false), "another type"},
                      {GraphHandle{}, "none"}};
    visit_node_fields(changer, params);
  }
  BuiltNode built{.params = params};
  built.node = add_node(rig, g, after, built.params, &built.error);
  return built;
}

BuiltNode add_conditional(UpdateRig& rig, GraphHandle g, std::vector<NodeHandle> after,
                          FieldChange* change) {
  BuiltNode built;
  ConditionalParams params;
  std::optional<Changer> changer;
  if (change != nullptr) changer.emplace(rig, change)("handle.default_value", built.handle_default);
  built.error = rig.device->graph_conditional_handle_create(g, built.handle_default,
                                                            kCondAssignDefault, &params.handle);
  const ConditionalHandle handle = params.handle;
  built.params = params;
  if (changer) visit_node_fields(*changer, built.params);
  if (built.error == kSuccess) built.node = add_node(rig, g, after, built.params, &built.error);
  if (built.error != kSuccess) return built;
  for (const GraphHandle body : std::get<ConditionalParams>(built.params).bodies) {
    NodeParams shows = shown_launch(rig.a, rig.b, 7);
    KernelLaunch ends;
    ends.kernel = &kClear;
    ends.args.conditional(handle.value);
    NodeParams last = ends;
    const NodeHandle node = add_node(rig, body, {}, shows, &built.error);
    add_node(rig, body, {node}, last, &built.error);
  }
  return built;
}

constexpr UpdateSubject kSubjects[] = {
    {"kernel", true, add_alone<a_kernel>},
    {"memcpy h2h", true, add_alone<a_copy<MemcpyKind::kHostToHost>>},
    {"memcpy h2d", true, add_alone<a_copy<MemcpyKind::kHostToDevice>>},
    {"memcpy d2h", true, add_alone<a_copy<MemcpyKind::kDeviceToHost>>},
    {"memcpy d2d", true, add_alone<a_copy<MemcpyKind::kDeviceToDevice>>},
    {"memcpy default", true, add_alone<a_copy<MemcpyKind::kDefault>>},
    {"memcpy rows", true, add_alone<a_copy_of_rows>},
    {"memset", true, add_alone<a_set>},
    {"memset bytes", true, add_alone<a_set_of_bytes>},
    {"memset rows", true, add_alone<a_set_of_rows>},
    {"host", true, add_host},
    {"graph", true, add_child},
    {"empty", true, add_alone<an_empty>},
    {"event_record", true, add_alone<a_record>},
    {"wait_event", true, add_wait, /*races=*/true},
    {"mem_alloc", false, add_allocation},
    {"mem_free", false, add_free},
    {"conditional", false, add_conditional}};

}  // namespace

std::span<const UpdateSubject> update_subjects() { return kSubjects; }

NodeParams shown_launch(uint32_t* target, const uint32_t* source, uint32_t value) {
  KernelLaunch l;
  l.kernel = &kShow;
  l.grid.x = 2, l.block.x = 32, l.shared_bytes = 64;
  l.args.pointer(target).pointer(source).scalar(value);
  return l;
}

UpdateRig::UpdateRig(std::unique_ptr<SimDevice> of) : device(std::move(of)) {
  for (uint32_t** p : {&a, &b, &seen}) {
    void* memory = nullptr;
    device->malloc(sizeof(Words), &memory);
    *p = static_cast<uint32_t*>(memory);
  }
  void* memory = nullptr;
  device->malloc_host(sizeof(Words), &memory);
  pinned = static_cast<uint32_t*>(memory);
  for (EventHandle& e : events) device->event_create_with_flags(kEventDefault, &e);
  for (StreamHandle* s : {&stream, &side}) device->stream_create_with_flags(kStreamNonBlocking, s);
}

void UpdateRig::reset() {
  Words words;
  for (uint32_t i = 0; i < kWords; ++i) {
    words[i] = pinned[i] = 100 + i;
    host[i] = kHostBegin + i;
  }
  for (uint32_t* p : {a, b, seen}) {
    device->memcpy({.dst = p, .src = words.data(), .width = sizeof words});
    for (uint32_t& w : words) w += 1000;
  }
  device->device_synchronize();
}

std::string UpdateRig::describe() {
  std::string text = std::string(name_of(device->device_synchronize()));
  const auto add = [&](const char* name, const Words& words, uint32_t first) {
    for (uint32_t i = 0; i < kWords; ++i)
      if (words[i] != first + i)
        text +=
            std::string("; ") + name + '[' + std::to_string(i) + "] " + std::to_string(words[i]);
  };
  uint32_t first = 100;
  for (const auto& [name, p] : {std::pair("A", a), std::pair("B", b), std::pair("X", seen)}) {
    Words words;
    for (uint32_t i = 0; i < kWords; ++i) words[i] = first + i;
    device->memcpy({.dst = words.data(), .src = p, .width = sizeof words});
    add(name, words, first);
    first += 1000;
  }
  Words words;
  std::copy(pinned, pinned + kWords, words.begin());
  add("pinned", words, 100);
  add("host", host, kHostBegin);
  for (const int32_t log : logs) text += "; log " + std::to_string(log);
  for (const EventHandle e : events) {
    float ms = 0;
    text += "; event " + std::string(name_of(device->event_elapsed_time(e, e, &ms)));
  }
  uint64_t bytes = 0;
  device->device_graph_mem_used(&bytes);
  text += "; graph memory " + std::to_string(bytes);
  Status found = device->take_findings();
  for (const Finding& f : found.findings()) text += "; " + f.id;
  return text;
}

std::string UpdateRig::launch(ExecHandle exec) {
  reset();
  std::string text;
  for (int times = 0; times < 2; ++times) {
    NodeParams writes = shown_launch(seen, seen + 32, 5);  // nobody else's memory
    device->launch_kernel(std::get<KernelLaunch>(writes), side);
    device->event_record(events[0], side);  // the second event is nobody's but the graph's
    const DeviceError launched = device->graph_launch(exec, stream);
    text += std::string(name_of(launched)) + ", " + describe() + "\n";
  }
  return text;
}

}  // namespace shadowgraph
