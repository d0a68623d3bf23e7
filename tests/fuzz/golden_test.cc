// The twin never moves: portable arithmetic has the same bits on every machine, compiler, build
// (with OpenMP or without) and instruction set. The digest was computed once; it changes only when
// a kernel's arithmetic, or what is generated, is changed on purpose, and then the change says so.
#include <gtest/gtest.h>

#include "core/fnv.h"
#include "fuzz/call/attention_scene.h"
#include "fuzz/fuzz.h"

namespace shadowgraph::golden_test {
namespace {

constexpr uint64_t kDigest = 0x9bb83775206e525a;  // of cases 0..149 of seed 1
constexpr uint64_t kCases = 0xfa8a2d485bbd4930;   // of the texts of cases 0..2999 of seed 1

uint64_t mix(uint64_t h, const void* data, size_t size) {
  return fnv1a({static_cast<const char*>(data), size}, h);
}

uint64_t digest(std::string_view isa) {
  uint64_t h = kFnvStart;
  for (uint64_t number = 0; number < 150; ++number) {
    const Case x = fuzz_case(1, number);
    if (x.as<AttentionCase>() == nullptr) continue;
    const AttentionData data = make_attention_data(x);
    AttentionArrangement how = AttentionArrangement::of(x);
    how.options.isa = isa;
    how.options.num_threads = 0;
    AttentionScene scene(x, data, how);
    scene.lay(0);
    EXPECT_TRUE(scene.run().ok()) << number << " " << x.to_string();
    RowResults results(x);
    scene.collect(&results);
    for (const RowBytes* rows : {&results.out, &results.beside})
      for (const auto& row : *rows) h = mix(h, row.data(), row.size());
  }
  return h;
}

TEST(GoldenBits, SameOnEveryInstructionSetAndBuild) {
  for (std::string_view isa : available_isas()) {
    EXPECT_EQ(digest(isa), kDigest) << isa << std::hex << " 0x" << digest(isa);
  }
}

/// Draws in an order that C++ leaves open (of arguments, say) make other cases with another
/// compiler.
TEST(GoldenCases, AreDrawnAlikeByEveryCompiler) {
  uint64_t h = kFnvStart;
  for (uint64_t number = 0; number < 3000; ++number) {
    const std::string text = fuzz_case(1, number).to_string();
    h = mix(h, text.data(), text.size());
  }
  EXPECT_EQ(h, kCases) << std::hex << "0x" << h;
}

}  // namespace
}  // namespace shadowgraph::golden_test
