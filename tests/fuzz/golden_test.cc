// The twin never moves: portable arithmetic has the same bits on every machine, compiler, build
// (with OpenMP or without) and instruction set. The digest was computed once; it changes only when
// a kernel's arithmetic, or what is generated, is changed on purpose, and then the change says so.
#include <gtest/gtest.h>

#include "fuzz/arrange.h"
#include "fuzz/fuzz.h"

namespace shadowgraph {
namespace {

constexpr uint64_t kDigest = 0xc3637c9090cabb4e;  // of cases 0..149 of seed 1

/// FNV-1a.
uint64_t mix(uint64_t h, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

uint64_t digest(std::string_view isa) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint64_t number = 0; number < 150; ++number) {
    const Case x = fuzz_case(1, number);
    if (!is_attention(x.kernel)) continue;
    const LogicalData data = make_data(x);
    Arrangement how = Arrangement::of(x);
    how.options.isa = isa;
    how.options.num_threads = 0;
    ArrangedCall call(x, data, how);
    EXPECT_TRUE(call.run().ok()) << number << " " << x.to_string();
    RowResults results(x);
    call.collect(&results);
    h = mix(h, results.out.data(), results.out.size());
    h = mix(h, results.lse.data(), results.lse.size() * sizeof(float));
  }
  return h;
}

TEST(GoldenBits, SameOnEveryInstructionSetAndBuild) {
  for (std::string_view isa : available_isas()) {
    EXPECT_EQ(digest(isa), kDigest) << isa << std::hex << " 0x" << digest(isa);
  }
}

}  // namespace
}  // namespace shadowgraph
