#include "launch/compress_launch.h"

#include <algorithm>

#include "attn/validate/validate_compress.h"
#include "kernels/sparse/compress.h"
#include "launch/checked_launch.h"

namespace shadowgraph {
namespace {

struct CompressLaunch : CheckedLaunch<Compress> {
  static Status run(const Compress& c) { return compress(c); }
  static std::array<TensorView, 1> outputs(const Compress& c) { return {c.out}; }
  static Footprint footprint(const Compress& c) { return compress_footprint(c); }
  static Footprint refused(const Compress& c) {
    Footprint spans;
    for (const auto& list : {c.cu_seqlens_q, c.seq_lens, c.indices, c.extra})
      add_whole(&spans, list);
    const size_t tokens = std::min({c.seq_lens.size(), c.indices.size(), c.extra.size()});
    for (size_t t = 0; t < tokens; ++t) {
      const auto token = static_cast<int64_t>(t);
      if (c.drops(token)) continue;
      add_missing_place(&spans, c.state, c.indices[t], c.state.shape[2], Access::kWrite, -1);
      if (c.seq_len(token) > 0 && c.reads_extra(token))
        add_missing_place(&spans, c.state, c.extra[t], c.state.shape[2], Access::kRead, -1);
    }
    return spans;
  }
};

struct NormLaunch : CheckedLaunch<NormRope> {
  static Status run(const NormRope& c) { return norm_rope(c); }
  static std::array<TensorView, 1> outputs(const NormRope& c) { return {c.out}; }
  static Footprint footprint(const NormRope& c) { return norm_rope_footprint(c); }
  static Footprint refused(const NormRope& /*call*/) { return {}; }
};

}  // namespace

constinit const Kernel kCompress = checked_kernel<CompressLaunch>("compress");
constinit const Kernel kNormRope = checked_kernel<NormLaunch>("norm_rope");

KernelLaunch compress_launch(Compress call, const RequestRows& rows) {
  call.first_page = std::max(call.first_page, 1);
  return launch_of(kCompress, call, rows, call.rows());
}

KernelLaunch norm_rope_launch(const NormRope& call, const RequestRows& rows) {
  return launch_of(kNormRope, call, rows, call.x.shape[0]);
}

}  // namespace shadowgraph
