#include "fuzz/history/buffer_log.h"

#include <cstring>
#include <utility>

namespace shadowgraph {
namespace {

int64_t integer_at(const std::byte* data, DType t, int64_t i) {
  const std::byte* p = data + static_cast<size_t>(i) * size_of(t);
  int64_t wide = 0;
  int32_t narrow = 0;
  if (t == DType::kI64) {
    std::memcpy(&wide, p, sizeof wide);
    return wide;
  }
  if (t != DType::kI32) return static_cast<int64_t>(*p);
  std::memcpy(&narrow, p, sizeof narrow);
  return narrow;
}

bool is_integer(DType t) { return t == DType::kI32 || t == DType::kI64 || t == DType::kU8; }

std::vector<int64_t> integers(const Buffer& b, const std::byte* data) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < b.numel(); ++i) all.push_back(integer_at(data, b.dtype, i));
  return all;
}

/// fn(buffer, arena) for every integer buffer, children's too.
template <class Fn>
void each_buffer(const Meta& meta, Fn fn) {
  for (const Buffer& b : meta.buffers) {
    if (b.data != nullptr && b.numel() > 0 && is_integer(b.dtype)) fn(b, meta.arena);
  }
  for (const Meta& child : meta.children) each_buffer(child, fn);
}

}  // namespace

void BufferLog::bound(Meta& /*meta*/, bool capturing) { phase_ = capturing ? "capture" : "eager"; }

Status BufferLog::filled(const ForwardBatch& batch, Meta& meta) {
  StepLog step{phase_, batch.mode, meta.limits.rows, {}};
  each_buffer(meta, [&](const Buffer& b, const Arena& arena) {
    BufferStates s{b.name, b.shape, integers(b, b.data), {}, {}};
    const bool per_step = b.lifetime == Lifetime::kPerStep || b.lifetime == Lifetime::kConstant;
    const std::byte* staged = per_step ? arena.staged(b) : nullptr;
    if (staged != nullptr) s.filled = integers(b, staged);
    step.buffers.push_back(std::move(s));
  });
  steps_.push_back(std::move(step));
  return {};
}

void BufferLog::ran(const Meta& meta) {
  size_t i = 0;
  each_buffer(meta, [&](const Buffer& b, const Arena&) {
    if (!steps_.empty() && i < steps_.back().buffers.size())
      steps_.back().buffers[i++].after = integers(b, b.data);
  });
  phase_ = "replay";
}

}  // namespace shadowgraph
