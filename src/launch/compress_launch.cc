#include "launch/compress_launch.h"

#include <algorithm>

#include "attn/validate_compress.h"
#include "kernels/compress.h"
#include "launch/checked_launch.h"

namespace shadowgraph {

namespace {

// ---- compress

enum CompressArg : uint8_t {
  kKvScore,
  kApe,
  kCuSeqlens,
  kSeqLens,
  kIndices,
  kExtra,
  kState,
  kOut,
  kCompressScalars
};

struct CompressScalars {
  RowsScalars kv_score, ape, state, out;
  int64_t num_offsets, num_lens, num_indices, num_extra;
  RequestRows rows;
  int32_t ratio, first_page, num_threads, unused;
};
static_assert(sizeof(CompressScalars) == 4 * sizeof(RowsScalars) + 4 * 8 + 6 * 4);

/// One row of a page that the state does not have.
void add_missing_page(Footprint* spans, const TensorView& state, int64_t page, Access access) {
  if (page >= 0 && page < state.shape[0]) return;
  int64_t first = 0;
  if (__builtin_mul_overflow(page, state.stride[0], &first)) first = INT64_MAX;
  spans->push_back({state.data, first, state.shape[2], 4, access});
}

struct Compression {
  static auto of(const KernelLaunch& launch) { return compress_call(launch); }
  static Status run(const Compress& c) { return compress(c); }
  static void lose(const Compress& c) { poison(c.out); }
  static Footprint footprint(const Compress& c) { return compress_footprint(c); }
  static Footprint refused(const Compress& c) {
    Footprint spans;
    for (const auto& list : {c.cu_seqlens_q, c.seq_lens, c.indices, c.extra})
      add_whole(&spans, list);
    add_written(&spans, c.out);
    const size_t tokens = std::min({c.seq_lens.size(), c.indices.size(), c.extra.size()});
    for (size_t t = 0; t < tokens; ++t) {
      const auto token = static_cast<int64_t>(t);
      if (c.drops(token)) continue;
      add_missing_page(&spans, c.state, c.indices[t], Access::kWrite);
      if (c.seq_len(token) > 0 && c.reads_extra(token))
        add_missing_page(&spans, c.state, c.extra[t], Access::kRead);
    }
    return spans;
  }
};

// ---- norm and rotation

enum NormArg : uint8_t { kX, kWeight, kFreqs, kNormed, kNormScalars };

struct NormScalars {
  RowsScalars x, weight, freqs, out;  // the weight as one row
  RequestRows rows;
  float eps;
  int32_t num_threads;
};
static_assert(sizeof(NormScalars) == 4 * sizeof(RowsScalars) + 4 * 4);

struct Norm {
  static auto of(const KernelLaunch& launch) { return norm_rope_call(launch); }
  static Status run(const NormRope& c) { return norm_rope(c); }
  static void lose(const NormRope& c) { poison(c.out); }
  static Footprint footprint(const NormRope& c) { return norm_rope_footprint(c); }
  static Footprint refused(const NormRope& c) {
    Footprint spans;
    add_written(&spans, c.out);
    return spans;
  }
};

}  // namespace

constinit const Kernel kCompress = checked_kernel<Compression>("compress");
constinit const Kernel kNormRope = checked_kernel<Norm>("norm_rope");

CallOf<Compress> compress_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<CompressScalars>(kCompressScalars);
  Compress c;
  c.shape.ratio = s.ratio;
  c.kv_score = view_of(f.pointer<void>(kKvScore), s.kv_score);
  c.ape = view_of(f.pointer<void>(kApe), s.ape);
  c.cu_seqlens_q = array_of<int32_t>(f, kCuSeqlens, s.num_offsets);
  c.seq_lens = array_of<int32_t>(f, kSeqLens, s.num_lens);
  c.indices = array_of<int32_t>(f, kIndices, s.num_indices);
  c.extra = array_of<int32_t>(f, kExtra, s.num_extra);
  c.state = view_of(f.pointer<void>(kState), s.state);
  c.out = view_of(f.pointer<void>(kOut), s.out);
  c.options.num_threads = s.num_threads;
  c.first_page = s.first_page;
  return {c, s.rows};
}

KernelLaunch compress_launch(const Compress& c, const RequestRows& rows) {
  CompressScalars s{};
  s.kv_score = scalars_of(c.kv_score);
  s.ape = scalars_of(c.ape);
  s.state = scalars_of(c.state);
  s.out = scalars_of(c.out);
  s.num_offsets = static_cast<int64_t>(c.cu_seqlens_q.size());
  s.num_lens = static_cast<int64_t>(c.seq_lens.size());
  s.num_indices = static_cast<int64_t>(c.indices.size());
  s.num_extra = static_cast<int64_t>(c.extra.size());
  s.rows = rows;
  s.ratio = c.shape.ratio;
  s.first_page = std::max(c.first_page, 1);
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kCompress, c.rows());
  launch.args.pointer(c.kv_score.data).pointer(c.ape.data);
  for (const auto& list : {c.cu_seqlens_q, c.seq_lens, c.indices, c.extra})
    launch.args.pointer(list.data());
  launch.args.pointer(c.state.data).pointer(c.out.data).scalar(s);
  return launch;
}

CallOf<NormRope> norm_rope_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<NormScalars>(kNormScalars);
  NormRope c;
  c.x = view_of(f.pointer<void>(kX), s.x);
  c.weight = ConstTensorView(f.pointer<void>(kWeight), s.weight.dtype, {s.weight.shape[1]});
  c.freqs = view_of(f.pointer<void>(kFreqs), s.freqs);
  c.out = view_of(f.pointer<void>(kNormed), s.out);
  c.eps = s.eps;
  c.options.num_threads = s.num_threads;
  return {c, s.rows};
}

KernelLaunch norm_rope_launch(const NormRope& c, const RequestRows& rows) {
  NormScalars s{};
  s.x = scalars_of(c.x);
  s.weight = scalars_of(ConstTensorView(c.weight.data, c.weight.dtype, {1, c.weight.shape[0]}));
  s.freqs = scalars_of(c.freqs);
  s.out = scalars_of(c.out);
  s.rows = rows;
  s.eps = c.eps;
  s.num_threads = c.options.num_threads;
  KernelLaunch launch = launch_of(kNormRope, c.x.shape[0]);
  launch.args.pointer(c.x.data).pointer(c.weight.data).pointer(c.freqs.data).pointer(c.out.data);
  launch.args.scalar(s);
  return launch;
}

}  // namespace shadowgraph
