// Conformance programs: one function each over DeviceApi, and the record of what it saw. The same
// programs run on every device; tests/data/cuda_graph/README.md describes the records.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shadowgraph/device/device_api.h"

namespace shadowgraph {

/// "n.relaxed.sub": which streams, which capture mode, which branch.
struct Variant {
  bool blocking = false;
  CaptureMode mode = CaptureMode::kGlobal;
  std::string sub;
  std::string to_string() const;
  static std::optional<Variant> parse(std::string_view text);
};

std::string_view name_of(CaptureMode mode);      // "global", "thread_local", "relaxed"
std::string_view name_of(CaptureStatus status);  // "none", "active", "invalidated"

struct RecordedStep {
  std::string call;
  bool thread_b = false;
  std::optional<int32_t> ret;  // none: the call did not return
  std::string out;             // EndCapture: "graph=valid", "null", "untouched"
};

struct GraphDump {
  std::string label;
  bool null = false;
  std::vector<std::string> order;                  // "kernel:fill:7", "memcpy", ...
  std::vector<std::pair<int32_t, int32_t>> edges;  // by ordinal, sorted
  std::vector<std::array<int32_t, 4>> edge_data;   // edge, from_port, to_port, type; non-zero
};

using Fact = std::variant<bool, int64_t, std::string>;

/// One run of one program.
struct Record {
  std::string id, variant;
  std::vector<RecordedStep> steps;
  std::vector<std::string> capture_status;  // "s=active@3"
  std::vector<GraphDump> graphs;
  std::map<std::string, std::vector<int32_t>> buffers;
  std::map<std::string, int32_t> buffer_errors;  // the final read failed
  std::map<std::string, Fact> facts;
  int32_t host_calls = 0;
  bool complete = true;
};

/// What a program runs in: the device, the variant, and short names of CUDA's calls. Every
/// recorded call goes through step() or a method that does. One at a time in a process: the
/// callbacks' counter is shared.
class Run {
 public:
  Run(DeviceApi& api, std::string id, Variant variant);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  DeviceApi& api() { return api_; }
  const Variant& variant() const { return variant_; }
  const std::string& sub() const { return variant_.sub; }
  bool sub_is(std::string_view s) const { return variant_.sub == s; }
  CaptureMode mode = CaptureMode::kGlobal;  // of every begin(); starts as the variant's
  Record take();

  // Declarations: not recorded.
  StreamHandle st();     // a stream of the variant's kind
  StreamHandle st_nb();  // non-blocking
  EventHandle ev();
  int32_t* dev(int64_t n, int32_t fill = 0, std::string_view name = {});
  int32_t* pinned(int64_t n, int32_t fill = 0);
  /// malloc memory that copies may name, and its end (host_lifetime); freed with the run in any
  /// case.
  int32_t* host(int64_t n, int32_t fill = 0);
  void end_host(int32_t* p);
  void put(int32_t* p, std::span<const int32_t> values);
  void put(int32_t* p, std::initializer_list<int32_t> values);

  // Recorded calls.
  DeviceError step(std::string_view call, DeviceError ret);
  DeviceError begin(StreamHandle s);
  GraphHandle end(StreamHandle s);
  DeviceError launch(const Kernel& kernel, Dim3 grid, Dim3 block, StreamHandle s, KernelArgs args);
  /// k::fill and k::add of one warp.
  DeviceError fill(StreamHandle s, int32_t* p, int32_t v, int32_t n = 4);
  DeviceError add(StreamHandle s, int32_t* p, int32_t v, int32_t n = 4);
  ExecHandle inst(GraphHandle g);
  DeviceError run(ExecHandle e, StreamHandle s);
  DeviceError sync(StreamHandle s);
  DeviceError rec(EventHandle e, StreamHandle s);
  DeviceError wait(StreamHandle s, EventHandle e);
  DeviceError cpy(void* dst, const void* src, size_t bytes, MemcpyKind kind, StreamHandle s);
  void* malloc(size_t bytes);  // null if it failed
  int32_t* malloc_async(size_t bytes, StreamHandle s);
  DeviceError free_async(void* p, StreamHandle s);
  /// update_result, error_node, error_from_node as facts; the n-th update of a run adds n.
  DeviceError update(ExecHandle x, GraphHandle g);
  GraphHandle graph_create();
  NodeHandle add_kernel(GraphHandle g, std::span<const NodeHandle> after, const KernelLaunch& k);
  NodeHandle add_kernel(GraphHandle g, std::initializer_list<NodeHandle> after,
                        const KernelLaunch& k);
  /// Any node; the call is named by its type ("cudaGraphAddMemsetNode"). params is completed.
  DeviceError add_node(GraphHandle g, std::initializer_list<NodeHandle> after, NodeParams& params,
                       NodeHandle* node);
  /// cudaGraphAddNode of a conditional; empty if it failed.
  std::vector<GraphHandle> add_conditional(GraphHandle g, std::initializer_list<NodeHandle> after,
                                           ConditionalHandle h, ConditionalType type, uint32_t size,
                                           NodeHandle* node = nullptr);
  ConditionalHandle conditional_handle(GraphHandle g, uint32_t default_value, uint32_t flags);
  uint64_t capture_id(StreamHandle s);

  /// A second thread, joined at once; its steps are recorded as B's.
  void on_b(const std::function<void()>& body);

  // Observations: not steps.
  void probe(std::string_view name, StreamHandle s);  // ?s
  void dump(std::string_view label, GraphHandle g);
  void read(std::string_view name, const int32_t* p, int64_t n);  // device or host memory
  void fact(std::string_view name, Fact value);
  /// The host polls memory that the device writes until the condition holds; false: it never did.
  bool poll(const std::function<bool()>& condition,
            std::chrono::milliseconds limit = std::chrono::seconds(2));
  bool poll(const int32_t* p, int32_t value);
  int32_t ordinal(GraphHandle g, NodeHandle node);  // -1: not in it
  std::vector<NodeHandle> nodes_of(GraphHandle g);
  /// Unrecorded read of device memory, like cudaMemcpy.
  std::vector<int32_t> peek(const int32_t* p, int64_t n);

  static int32_t host_calls();  // of the counting callbacks, in this run
  static void count_host_call();

 private:
  DeviceApi& api_;
  Variant variant_;
  Record record_;
  bool in_b_ = false;
  int updates_ = 0;
  struct HostMemory {
    std::vector<int32_t> values;
    bool ended = false;
  };
  std::vector<HostMemory> host_memory_;
};

/// What host functions of programs do; host_count counts its calls.
void host_count(void*);
struct HostSee {  // seen[n++] = val
  int32_t val = 0, n = 0;
  int32_t seen[64] = {};
};
void host_see(void* see);
struct HostInc {  // *dst = *src + 100
  const int32_t* src = nullptr;
  int32_t* dst = nullptr;
};
void host_inc(void* inc);

enum class Verdict : uint8_t { kExact, kSet, kUndefined };

/// Where CUDA leaves an answer open: the values that one step's return or one fact may take.
struct Open {
  std::string_view subs;    // the variants it holds for, separated by spaces; empty: all
  std::string_view what;    // "fact update_result" or "ret cudaGraphExecUpdate"
  std::string_view values;  // separated by spaces
};

struct Program {
  std::string_view id, title;
  Verdict verdict = Verdict::kExact;
  /// Streams and modes that it runs with: "N" non-blocking and global; "D" blocking, too; "A" both
  /// in all modes; "B3", "N3" one of them in all modes; "A:relaxed" in this mode; joined by "+".
  std::string_view variants;
  std::string_view subs;  // separated by spaces; empty: none
  void (*body)(Run&) = nullptr;
  /// Laws that the simulated device finds violated, separated by spaces; "sub=law" holds for one
  /// sub or kind ("b=", "n=") only; "-": none.
  std::string_view diagnosis = "";
  std::span<const Open> open = {};
};

/// All of them: rules G.., open questions Q.., calls during a capture M:...
std::span<const Program> programs();
const Program* find_program(std::string_view id);
std::vector<Variant> variants_of(const Program& program);

}  // namespace shadowgraph
