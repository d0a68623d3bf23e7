#include "kernels/sparse/compress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "attn/validate/validate_compress.h"
#include "core/float_formats.h"
#include "core/parallel.h"
#include "core/plain_exp.h"
#include "kernels/checked_call.h"
#include "kernels/recurrent/state_spans.h"

namespace shadowgraph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kPooledChannels = 32;  // edge: channels; that are pooled together
constexpr int64_t kMostWindow = 128;     // edge: tokens
using PooledChannels = std::array<double, kPooledChannels>;

/// One pooled token at a block of channels: where its kv, its score and its ape begin.
struct Member {
  const std::byte *kv = nullptr, *score = nullptr, *ape = nullptr;
};

/// Members in order, the oldest first.
class Pool {
 public:
  Pool(DType type, int64_t count) : type_(type), count_(count) { most_.fill(-kInfinity); }

  void add(const Member& member) {
    PooledChannels& x = scores_[size_];
    for (int64_t c = 0; c < count_; ++c) {
      x[at(c)] = static_cast<double>(load_float(member.score, type_, c)) +
                 load_float(member.ape, DType::kF32, c);
      most_[at(c)] = std::max(most_[at(c)], x[at(c)]);
    }
    members_[size_++] = member;
  }

  /// Each channel's weighted mean: weights of the largest score are 1. A score of -inf counts for
  /// nothing, whatever its kv.
  void finish(double* out) const {
    PooledChannels weights{}, sum{};
    for (size_t i = 0; i < size_; ++i) {
      PooledChannels kv;
      for (int64_t c = 0; c < count_; ++c) kv[at(c)] = load_float(members_[i].kv, type_, c);
      for (int64_t c = 0; c < count_; ++c) {
        const double x = scores_[i][at(c)], w = plain_exp(x - most_[at(c)]);
        weights[at(c)] += x == -kInfinity ? 0 : w;
        sum[at(c)] += x == -kInfinity ? 0 : w * kv[at(c)];
      }
    }
    for (int64_t c = 0; c < count_; ++c)
      out[c] = weights[at(c)] == 0 ? 0 : sum[at(c)] / weights[at(c)];
  }

 private:
  static size_t at(int64_t c) { return static_cast<size_t>(c); }

  DType type_;
  int64_t count_;
  size_t size_ = 0;
  PooledChannels most_;
  std::array<Member, kMostWindow> members_;
  std::array<PooledChannels, kMostWindow> scores_;
};

int64_t blocks_of(int64_t dim) { return (dim + kPooledChannels - 1) / kPooledChannels; }

/// Element `channel` of a row that begins there.
const std::byte* element_at(const std::byte* row, DType type, int64_t channel) {
  return row + channel * static_cast<int64_t>(size_of(type));
}

/// half 0: kv_a and score_a, or the only ones.
Member member_of(const CompressShape& shape, const std::byte* row, DType type, int64_t dim,
                 int64_t half, int64_t channel, const std::byte* ape) {
  return {element_at(row, type, half * dim + channel),
          element_at(row, type, (shape.halves() + half) * dim + channel), ape};
}

/// One request's tokens at a block of channels, which its state has in as many places as a row has
/// kinds.
class RequestRun {
 public:
  RequestRun(const Compress& call, int64_t first, int64_t count)
      : call_(call), dim_(call.out.shape[1]), first_(first), count_(count) {}

  void token(int64_t t) const {
    if (call_.drops(t)) return;
    const int64_t slot = (call_.seq_len(t) - 1) % call_.shape.ratio;
    const int32_t page = call_.indices[static_cast<size_t>(t)];
    std::byte* to = call_.state.at(page, slot);
    for (int64_t kind = 0; kind < call_.shape.channels(); ++kind) {
      for (int64_t c = kind * dim_ + first_; c < kind * dim_ + first_ + count_; ++c)
        store_float(to, DType::kF32, c, load_float(call_.kv_score.at(t), call_.kv_score.dtype, c));
    }
    if (!call_.emits(t)) return;
    Pool pool(DType::kF32, count_);
    if (call_.reads_extra(t)) add_page(&pool, call_.extra[static_cast<size_t>(t)], 0, 0);
    const int64_t newer = call_.shape.halves() - 1;
    add_page(&pool, page, newer, newer * call_.shape.ratio);
    PooledChannels pooled;
    pool.finish(pooled.data());
    for (int64_t c = 0; c < count_; ++c)
      store_float(call_.out.at(t), call_.out.dtype, first_ + c,
                  static_cast<float>(pooled[static_cast<size_t>(c)]));
  }

 private:
  void add_page(Pool* pool, int64_t page, int64_t half, int64_t first_ape) const {
    for (int64_t i = 0; i < call_.shape.ratio; ++i)
      pool->add(member_of(call_.shape, call_.state.at(page, i), DType::kF32, dim_, half, first_,
                          call_.ape.at(first_ape + i, first_)));
  }

  const Compress& call_;
  const int64_t dim_, first_, count_;
};

void run_item(const Compress& call, int64_t item) {
  const int64_t dim = call.out.shape[1], blocks = blocks_of(dim);
  const int64_t first = item % blocks * kPooledChannels;
  const auto row = static_cast<size_t>(item / blocks);
  const RequestRun run(call, first, std::min(kPooledChannels, dim - first));
  for (int64_t t = call.cu_seqlens_q[row]; t < call.cu_seqlens_q[row + 1]; ++t) run.token(t);
}

/// Norm and rotation of x [dim], to the row of out.
void write_norm_rope(double* x, int64_t row, const ConstTensorView& weight, double eps,
                     const ConstTensorView& freqs, const TensorView& out) {
  const int64_t dim = out.shape[1], rope = freqs.shape[1];
  double squares = 0;
  for (int64_t c = 0; c < dim; ++c) squares += x[c] * x[c];
  const double root = std::sqrt(squares / static_cast<double>(dim) + eps);
  for (int64_t c = 0; c < dim; ++c) x[c] = x[c] / root * load_float(weight.at(c), DType::kF32, 0);
  for (int64_t i = 0; i + 1 < rope; i += 2) {
    const double cos = load_float(freqs.at(row, i), DType::kF32, 0);
    const double sin = load_float(freqs.at(row, i + 1), DType::kF32, 0);
    double *a = x + dim - rope + i, *b = a + 1;
    const double turned = *a * cos - *b * sin;
    *b = *a * sin + *b * cos;
    *a = turned;
  }
  for (int64_t c = 0; c < dim; ++c)
    store_float(out.at(row), out.dtype, c, static_cast<float>(x[c]));
}

/// fn(row, x): x [dim] is the thread's.
template <class Fn>
void for_each_row(int64_t rows, int64_t dim, int wanted, const Fn& fn) {
  const int threads = team_size(wanted, rows);
  std::vector<double> memory(static_cast<size_t>(threads) * static_cast<size_t>(dim));
  parallel_for(rows, threads, [&](int64_t row, int thread) {
    fn(row, memory.data() + static_cast<size_t>(thread) * static_cast<size_t>(dim));
  });
}

void pool_block(const PoolNormRope& call, int64_t block, double* x) {
  const CompressShape& shape = call.shape;
  const int64_t dim = call.out.shape[1];
  for (int64_t first = 0; first < dim; first += kPooledChannels) {
    Pool pool(call.kv_score.dtype, std::min(kPooledChannels, dim - first));
    for (int64_t i = 0; i < shape.window(); ++i) {
      const int64_t half = i / shape.ratio;
      pool.add(member_of(shape, call.kv_score.at(block, i), call.kv_score.dtype, dim, half, first,
                         call.ape.at(i % shape.ratio, half * dim + first)));
    }
    pool.finish(x + first);
  }
}

void add_norm(Footprint* spans, int64_t row, const ConstTensorView& freqs, const TensorView& out) {
  add_line(spans, freqs, row, Access::kRead);
  add_line(spans, out, row, Access::kWrite);
}

}  // namespace

void compress_kernel(const Compress& call) {
  const int64_t items = call.rows() * blocks_of(call.out.shape[1]);
  // One reference: a std::function takes memory for more than two.
  parallel_for(items, team_size(call.options.num_threads, items),
               [&call](int64_t item, int) { run_item(call, item); });
}

void pool_norm_rope_kernel(const PoolNormRope& call) {
  for_each_row(call.out.shape[0], call.out.shape[1], call.options.num_threads,
               [&](int64_t block, double* x) {
                 pool_block(call, block, x);
                 write_norm_rope(x, block, call.weight, call.eps, call.freqs, call.out);
               });
}

void norm_rope_kernel(const NormRope& call) {
  for_each_row(call.out.shape[0], call.out.shape[1], call.options.num_threads,
               [&](int64_t row, double* x) {
                 for (int64_t c = 0; c < call.out.shape[1]; ++c)
                   x[c] = load_float(call.x.at(row), call.x.dtype, c);
                 write_norm_rope(x, row, call.weight, call.eps, call.freqs, call.out);
               });
}

namespace {

/// One request's spans: what it has written itself it does not read of before.
class RequestSpans {
 public:
  RequestSpans(const Compress& call, int64_t row, Footprint* spans)
      : call_(call), row_(static_cast<int32_t>(row)), spans_(spans) {}

  void token(int64_t t) {
    if (call_.drops(t)) return;
    const int64_t slot = (call_.seq_len(t) - 1) % call_.shape.ratio;
    const int32_t page = call_.indices[static_cast<size_t>(t)];
    line(call_.kv_score, call_.kv_score.offset(t), call_.kv_score.shape[1], Access::kRead);
    const int64_t place = call_.state.offset(page, slot);
    line(call_.state, place, call_.state.shape[2], Access::kWrite);
    written_.insert(place);
    if (!call_.emits(t)) return;
    if (call_.reads_extra(t)) read_page(call_.extra[static_cast<size_t>(t)], 0);
    read_page(page, call_.shape.halves() - 1);
    line(call_.out, call_.out.offset(t), call_.out.shape[1], Access::kWrite);
  }

 private:
  void line(const ConstTensorView& v, int64_t first, int64_t count, Access access) {
    append(spans_, {v.data, first, count, element_bytes(v.dtype), access, row_});
  }
  /// Reads kv and score of that half of each row.
  void read_page(int64_t page, int64_t half) {
    const int64_t dim = call_.out.shape[1];
    for (int64_t i = 0; i < call_.shape.ratio; ++i) {
      const int64_t place = call_.state.offset(page, i);
      if (written_.contains(place)) continue;
      for (const int64_t kind : {half, call_.shape.halves() + half})
        line(call_.state, place + kind * dim, dim, Access::kRead);
    }
  }

  const Compress& call_;
  const int32_t row_;
  Footprint* spans_;
  std::set<int64_t> written_;
};

}  // namespace

Footprint compress_footprint(const Compress& call) {
  Footprint spans;
  for (const auto& list : {call.cu_seqlens_q, call.seq_lens, call.indices, call.extra})
    add_list(&spans, list);
  add_plane(&spans, call.ape, 0, Access::kRead, -1);
  for (int64_t row = 0; row < call.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    RequestSpans of_row(call, row, &spans);
    for (int64_t t = call.cu_seqlens_q[i]; t < call.cu_seqlens_q[i + 1]; ++t) of_row.token(t);
  }
  return spans;
}

Footprint pool_norm_rope_footprint(const PoolNormRope& call) {
  Footprint spans;
  add_plane(&spans, call.ape, 0, Access::kRead, -1);
  add_plane(&spans, call.weight, 0, Access::kRead, -1);
  for (int64_t block = 0; block < call.out.shape[0]; ++block) {
    add_plane(&spans, call.kv_score, call.kv_score.offset(block), Access::kRead, block);
    add_norm(&spans, block, call.freqs, call.out);
  }
  return spans;
}

Footprint norm_rope_footprint(const NormRope& call) {
  Footprint spans;
  add_plane(&spans, call.weight, 0, Access::kRead, -1);
  for (int64_t row = 0; row < call.out.shape[0]; ++row) {
    add_line(&spans, call.x, row, Access::kRead);
    add_norm(&spans, row, call.freqs, call.out);
  }
  return spans;
}

Status compress(const Compress& call) noexcept {
  return checked(call, [&] { compress_kernel(call); });
}
Status pool_norm_rope(const PoolNormRope& call) noexcept {
  return checked(call, [&] { pool_norm_rope_kernel(call); });
}
Status norm_rope(const NormRope& call) noexcept {
  return checked(call, [&] { norm_rope_kernel(call); });
}

}  // namespace shadowgraph
