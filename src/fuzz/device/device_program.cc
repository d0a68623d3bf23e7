#include "fuzz/device/device_program.h"

#include <string_view>

namespace shadowgraph {

namespace {

constexpr std::string_view kVerbs[] = {
    "kernel",       "record", "wait", "begin",      "end",         "memset",      "malloc",
    "malloc_async", "memcpy", "sync", "event_sync", "event_query", "device_sync", "exchange_mode"};
constexpr std::string_view kModes[] = {"global", "thread_local", "relaxed"};

constexpr bool has_stream(DeviceVerb v) {
  return v <= DeviceVerb::kMemset || v == DeviceVerb::kMallocAsync ||
         v == DeviceVerb::kStreamSynchronize;
}
constexpr bool has_event(DeviceVerb v) {
  return v == DeviceVerb::kRecord || v == DeviceVerb::kWait || v == DeviceVerb::kEventSynchronize ||
         v == DeviceVerb::kEventQuery;
}
constexpr bool has_mode(DeviceVerb v) {
  return v == DeviceVerb::kBegin || v == DeviceVerb::kExchangeMode;
}

std::vector<DeviceCall> make_small_scope() {
  using enum DeviceVerb;
  std::vector<DeviceCall> calls;
  for (const uint8_t s : std::initializer_list<uint8_t>{0, 1}) {
    for (const DeviceVerb v : {kKernel, kRecord, kWait, kEnd, kMemset, kMallocAsync})
      calls.push_back({.verb = v, .stream = s});
    for (const CaptureMode m :
         {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed})
      calls.push_back({.verb = kBegin, .stream = s, .mode = m});
  }
  calls.push_back({.verb = kMalloc});
  return calls;
}

/// May the call come next? The first stream that is named is stream 0.
constexpr bool may_follow(const DeviceCall& call, bool stream_named) {
  return stream_named || !has_stream(call.verb) || call.stream == 0;
}

}  // namespace

std::string DeviceProgram::to_string() const {
  std::string text = blocking ? "b:" : "n:";
  for (const DeviceCall& c : calls) {
    text += ' ';
    text += kVerbs[static_cast<size_t>(c.verb)];
    if (has_stream(c.verb)) text += " s" + std::to_string(c.stream);
    if (has_event(c.verb)) text += " e" + std::to_string(c.event);
    if (has_mode(c.verb)) text += ' ' + std::string(kModes[static_cast<size_t>(c.mode)]);
    if (c.thread_b) text += " (B)";
    text += ';';
  }
  return text;
}

void DeviceCoverage::add(const DeviceCoverage& other) {
  for (const auto& [code, n] : other.codes) codes[code] += n;
  for (const auto& [step, n] : other.transitions) transitions[step] += n;
}

namespace {

/// What captures are made of comes more often than what breaks them.
DeviceVerb choose_verb(Choices& choices) {
  using enum DeviceVerb;
  return choices.of({kKernel,
                     kKernel,
                     kKernel,
                     kBegin,
                     kBegin,
                     kBegin,
                     kRecord,
                     kRecord,
                     kRecord,
                     kWait,
                     kWait,
                     kWait,
                     kEnd,
                     kEnd,
                     kMemset,
                     kMalloc,
                     kMallocAsync,
                     kCopyLegacy,
                     kStreamSynchronize,
                     kEventSynchronize,
                     kEventQuery,
                     kDeviceSynchronize,
                     kExchangeMode});
}

}  // namespace

DeviceProgram generate_device_program(Choices& choices) {
  DeviceProgram program;
  program.blocking = choices.below(2) == 1;
  const uint32_t streams = 1 + choices.below(3), events = 1 + choices.below(3);
  const uint32_t threads = 1 + choices.below(2);
  const uint32_t calls = 1 + choices.below(12);
  for (uint32_t i = 0; i < calls; ++i) {
    DeviceCall c;
    c.verb = choose_verb(choices);
    if (has_stream(c.verb)) c.stream = static_cast<uint8_t>(choices.below(streams));
    if (has_event(c.verb)) c.event = static_cast<uint8_t>(choices.below(events));
    if (has_mode(c.verb)) c.mode = static_cast<CaptureMode>(choices.below(3));
    c.thread_b = threads == 2 && choices.one_in(4);
    program.calls.push_back(c);
  }
  return program;
}

std::span<const DeviceCall> small_scope() {
  static const std::vector<DeviceCall> calls = make_small_scope();
  return calls;
}

SmallPrograms::SmallPrograms(int max_calls) : sizes_{{1, 1}} {
  for (int left = 1; left <= max_calls; ++left) {
    std::array<uint64_t, 2> sizes = {1, 1};
    for (const bool named : {false, true})
      for (const DeviceCall& call : small_scope())
        if (may_follow(call, named)) sizes[named] += sizes_.back()[named || has_stream(call.verb)];
    sizes_.push_back(sizes);
  }
}

DeviceProgram SmallPrograms::operator[](uint64_t number) const {
  DeviceProgram program;
  size_t left = sizes_.size() - 1;
  bool named = false;
  // The empty program has no number.
  for (uint64_t at = number + 1; at > 0;) {
    --at, --left;
    for (const DeviceCall& call : small_scope()) {
      if (!may_follow(call, named)) continue;
      const bool now_named = named || has_stream(call.verb);
      const uint64_t size = sizes_[left][now_named];
      if (at < size) {
        program.calls.push_back(call);
        named = now_named;
        break;
      }
      at -= size;
    }
  }
  return program;
}

}  // namespace shadowgraph
