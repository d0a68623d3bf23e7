#include "graph/capture/buckets.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/laws.h"

namespace shadowgraph {

namespace {

void refuse(std::string field, int64_t expected, const char* unit, int64_t got, Status* status) {
  status->add(make_finding("input.shape", at(std::move(field)), std::to_string(expected) + unit,
                           std::to_string(got)));
}

int64_t row_elements(const Buffer& buffer) { return buffer.rows(0, 1).count; }
size_t row_bytes(const Buffer& buffer) {
  return static_cast<size_t>(row_elements(buffer)) * size_of(buffer.dtype);
}

}  // namespace

std::optional<int32_t> bucket_for(std::span<const int32_t> sizes, int32_t rows) {
  const auto it = std::lower_bound(sizes.begin(), sizes.end(), rows);
  if (rows < 0 || it == sizes.end()) return {};
  return *it;
}

Buckets::Buckets(Stream& stream, TensorAllocator& allocator, BucketSpec spec)
    : spec_(std::move(spec)), allocator_(&allocator), pool_(GraphPool::create(stream.api())) {
  std::ranges::sort(spec_.sizes);
  spec_.sizes.erase(std::unique(spec_.sizes.begin(), spec_.sizes.end()), spec_.sizes.end());
  graphs_.resize(spec_.sizes.size());
}

Status Buckets::check() const {
  Status status;
  if (spec_.sizes.empty() || spec_.sizes.front() < 1) {
    refuse("sizes", 1, " row at least", spec_.sizes.empty() ? 0 : spec_.sizes.front(), &status);
    return status;
  }
  const int64_t rows = spec_.sizes.back();
  const auto check_rows = [&](const Buffer& b) {
    const int64_t has = b.shape.empty() ? 0 : b.shape[0];
    if (has < rows) refuse(b.name, rows, " rows at least", has, &status);
    return has >= rows;
  };
  for (const RowInput& in : spec_.inputs) {
    if (check_rows(in.buffer) && in.padding.size() != row_bytes(in.buffer))
      refuse(in.buffer.name + " padding", static_cast<int64_t>(row_bytes(in.buffer)), " B",
             static_cast<int64_t>(in.padding.size()), &status);
  }
  for (const Buffer& out : spec_.outputs) check_rows(out);
  return status;
}

Status Buckets::record(Stream& stream, TensorAllocator& allocator, BucketSpec spec,
                       std::optional<Buckets>* buckets) {
  Buckets made(stream, allocator, std::move(spec));
  Status status = made.check();
  for (size_t i = made.graphs_.size(); i-- > 0 && status.ok();)
    status = made.record_bucket(stream, made.spec_.sizes[i], &made.graphs_[i]);
  if (status.ok()) *buckets = std::move(made);
  return status;
}

Status Buckets::record_bucket(Stream& stream, int32_t rows, PooledGraph* recorded) {
  Status status = write(stream, 0, rows, {});
  if (!status.ok()) return status;
  for (int run = 0; run < 2; ++run) spec_.step(stream, rows);
  if (spec_.after_warm_up) spec_.after_warm_up(stream);
  stream.synchronize();
  return PooledGraph::record(
      stream, *allocator_, pool_, [&](Stream& s) { spec_.step(s, rows); }, recorded);
}

Status Buckets::write(Stream& stream, int32_t live, int32_t rows,
                      std::span<const std::span<const std::byte>> inputs) {
  stream.api().begin_step();
  Status status;
  for (size_t i = 0; i < spec_.inputs.size(); ++i) {
    const auto& [buffer, padding] = spec_.inputs[i];
    const int64_t row = row_elements(buffer);
    if (live > 0) status.add(spec_.arena.write(buffer, 0, inputs[i].data(), live * row));
    for (int32_t r = live; r < rows; ++r)
      status.add(spec_.arena.write(buffer, r * row, padding.data(), row));
  }
  if (spec_.fill) status.add(spec_.fill(live, rows));
  if (status.ok()) status = spec_.arena.upload(stream.handle());
  return status;
}

Status Buckets::audit(Stream& stream, int32_t rows, const Graph& kept) {
  const PoolScope scope(*allocator_, pool_);
  Graph again;
  Status status = Graph::record(
      stream, [&](Stream& s) { spec_.step(s, rows); }, &again);
  if (status.ok())
    status = same_launches(kept, again, [this](const void* p) { return spec_.arena.place_of(p); });
  return status;
}

Status Buckets::replay(Stream& stream, int32_t live,
                       std::span<const std::span<const std::byte>> inputs) {
  Status status;
  const std::optional<int32_t> rows = bucket_for(spec_.sizes, live);
  if (!rows) {
    refuse("rows", spec_.sizes.back(), " at most", live, &status);
    return status;
  }
  for (size_t i = 0; i < spec_.inputs.size(); ++i) {
    const size_t bytes = static_cast<size_t>(live) * row_bytes(spec_.inputs[i].buffer);
    const size_t got = i < inputs.size() ? inputs[i].size() : 0;
    if (got != bytes)
      refuse(spec_.inputs[i].buffer.name, static_cast<int64_t>(bytes), " B",
             static_cast<int64_t>(got), &status);
  }
  const auto index = std::ranges::lower_bound(spec_.sizes, *rows) - spec_.sizes.begin();
  PooledGraph& graph = graphs_[static_cast<size_t>(index)];
  if (status.ok()) status = write(stream, live, *rows, inputs);
  if (status.ok() && spec_.checked) status = audit(stream, *rows, graph.graph);
  if (!status.ok()) return status;
  graph.exec.replay(stream);
  live_ = live;
  ticket_ = stream.api().output_ticket();
  return stream.take_status();
}

WeakOutput Buckets::output(size_t i) const {
  const Buffer& out = spec_.outputs[i];
  return {out.data, static_cast<size_t>(live_) * row_bytes(out), ticket_};
}

}  // namespace shadowgraph
