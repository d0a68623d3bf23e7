// What the bench compiles once for each instruction set: the loops of the probes, and the softmax
// of the composed flash. Plain pointers, so that nothing inline crosses from one set of flags to
// another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shadowgraph::bench {

/// Reads [data, data + bytes) in order; bytes is a multiple of 4096. The value only keeps the
/// loads.
struct ReadVariant {
  const char* name;
  bool prefetches;  // `ahead` bytes ahead, any distance, also out of the memory
  uint64_t (*run)(const std::byte* data, int64_t bytes, int64_t ahead);
};

/// Multiplies the floats of [data, data + bytes) by 1 in place, in order; bytes is a multiple of
/// 4096.
struct UpdateVariant {
  const char* name;
  void (*run)(std::byte* data, int64_t bytes);
};

/// Reads `count` blocks of 4 KiB in the given order and prefetches (prefetcht1) `distance` blocks
/// ahead, a few lines at a time or a block at once.
using GatherFn = uint64_t (*)(const std::byte* data, const int32_t* blocks, int64_t count,
                              int distance);

/// Arithmetic on registers alone: `flop` floating-point operations an iteration.
struct FlopVariant {
  const char* name;
  double flop;
  float (*run)(int64_t iterations);
};

/// One row of logits becomes weights: s[i] = 2^(scale s[i] - m) for i < visible, 0 up to `cols`.
/// s is 64-byte aligned; cols is a multiple of 16.
struct SoftmaxRow {
  float* s;
  int64_t visible, cols;
  float scale;
  float m;    // in: the running maximum of scale * s; out: with this row's
  float sum;  // out: of the weights
};

struct Unit {
  const char* isa;
  const ReadVariant* reads;
  int num_reads;
  const UpdateVariant* updates;
  int num_updates;
  GatherFn gather_lines, gather_blocks;
  const FlopVariant* fma;
  int num_fma;
  void (*softmax)(SoftmaxRow&);
};

extern const Unit kGenericUnit, kAvx2Unit, kAvx512Unit;

/// vdpbf16ps, with AVX512_BF16.
extern const FlopVariant kBf16Variants[];
extern const int kNumBf16Variants;
/// tdpbf16ps, with AMX, whose tiles the engine has asked the operating system for.
extern const FlopVariant kAmxVariants[];
extern const int kNumAmxVariants;

}  // namespace shadowgraph::bench
