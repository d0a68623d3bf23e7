#include "check/graph_storage.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace shadowgraph {
namespace {

constexpr const char* kPlan = "plan";  // the scope of what is bound only to see its sizes

bool is_of(const GraphStorage& row, const Meta& meta, std::string_view buffer) {
  const auto modes = row.modes;
  return (modes.empty() || std::ranges::find(modes, meta.limits.mode) != modes.end()) &&
         (row.buffers.empty() || std::ranges::any_of(row.buffers, [&](std::string_view ending) {
            return buffer.ends_with(ending);
          }));
}

/// The scope of the storage that a graph's buffer is a slice of.
std::string storage_of(const Meta& meta, const Buffer& b) {
  const Limits& limits = meta.limits;
  const bool constant = b.lifetime == Lifetime::kConstant;
  const BackendInfo& info = meta.backend->info();
  const auto row = std::ranges::find_if(
      info.graph_storage, [&](const GraphStorage& s) { return is_of(s, meta, b.name); });
  const bool found = row != info.graph_storage.end();
  const std::string own =
      std::string(name_of(limits.mode)) + "_" + std::to_string(limits.max_q_len);
  std::string scope = own;
  if (found && !constant && !row->modes.empty())
    scope = std::string(info.name) + std::to_string(row - info.graph_storage.begin());
  if (limits.step > 0) scope += "_step" + std::to_string(limits.step);
  if (found && row->by_rows) scope += "_rows" + std::to_string(limits.rows);
  return scope;
}

/// A buffer of a graph, and the storage that it is a slice of.
struct Slice {
  std::string storage;  // its scope
  BufferSpec spec;      // by its name in both scopes
};

void collect(const Meta& meta, size_t prefix, std::vector<Slice>* slices) {
  for (const Buffer& b : meta.buffers) {
    if (b.data == nullptr) continue;
    Slice& slice = slices->emplace_back(Slice{storage_of(meta, b), b});
    slice.spec.name = b.name.substr(prefix);
  }
  for (const Meta& child : meta.children) collect(child, prefix, slices);
}

int64_t numel(const BufferSpec& spec) {
  int64_t n = 1;
  for (const int64_t size : spec.shape) n *= size;
  return n;
}

bool alike(const BufferSpec& a, const BufferSpec& b) {
  return a.dtype == b.dtype && a.lifetime == b.lifetime && a.granule == b.granule;
}

/// Specs of one name that are alike, the largest of each kind.
class Largest {
 public:
  void add(const Slice& slice) {
    std::vector<BufferSpec>& kinds = specs_[slice.storage + "/" + slice.spec.name];
    const auto same =
        std::ranges::find_if(kinds, [&](const BufferSpec& s) { return alike(s, slice.spec); });
    if (same == kinds.end()) {
      kinds.push_back(slice.spec);
    } else if (numel(slice.spec) > numel(*same)) {
      *same = slice.spec;
    }
  }
  bool empty() const { return specs_.empty(); }
  const BufferSpec& of(const Slice& slice) const {
    const std::vector<BufferSpec>& kinds = specs_.at(slice.storage + "/" + slice.spec.name);
    return *std::ranges::find_if(kinds, [&](const BufferSpec& s) { return alike(s, slice.spec); });
  }

 private:
  std::map<std::string, std::vector<BufferSpec>> specs_;
};

/// The storage, bound where it is not yet. One that is too small, or unlike, stays as it is: graphs
/// have its address. Another stands beside it.
Status find_storage(const Arena& arena, const Slice& slice, const BufferSpec& largest,
                    Buffer* storage) {
  for (int n = 0;; ++n) {
    Arena scope = arena.scope(slice.storage + (n > 0 ? "_" + std::to_string(n) : ""));
    if (const Buffer* b = scope.find(slice.spec.name)) {
      if (!alike(*b, largest) || b->numel() < numel(largest)) continue;
      *storage = *b;
      return {};
    }
    std::vector<Buffer> bound;
    Status status = scope.bind({&largest, 1}, &bound);
    if (status.ok()) *storage = std::move(bound[0]);
    return status;
  }
}

}  // namespace

Status share_storage(const Arena& arena, std::span<const PlannedGraph> graphs,
                     std::span<const PlannedGraph> others, const BindFn& bind) {
  Largest largest;
  const auto slices_of = [&](const PlannedGraph& graph) {
    Arena plan = arena.scope(kPlan);
    const std::string prefix = std::string(kPlan) + "/";
    std::vector<Slice> slices;
    Meta meta;
    // A graph that is refused is not captured either.
    if (bind(plan, graph.limits, &meta).ok()) collect(meta, prefix.size(), &slices);
    plan.unbind();
    for (const Slice& slice : slices) largest.add(slice);
    return slices;
  };
  std::vector<std::vector<Slice>> all;
  for (const PlannedGraph& graph : graphs) all.push_back(slices_of(graph));
  if (largest.empty()) return {};
  for (const PlannedGraph& graph : others) slices_of(graph);
  Status status;
  for (size_t i = 0; i < graphs.size(); ++i) {
    Arena scope = arena.scope(graphs[i].scope);
    for (const Slice& slice : all[i]) {
      Buffer storage;
      Status found = find_storage(arena, slice, largest.of(slice), &storage);
      if (found.ok()) found = scope.share(slice.spec.name, storage);
      status.add(std::move(found));
    }
  }
  return status;
}

}  // namespace shadowgraph
