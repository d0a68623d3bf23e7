// Launches of the compressor: the bits of the calls, eager and replayed, on what memory holds then;
// and what a shadow sees of pages that are not there, or hold nothing yet.
#include "launch/compress_launch.h"

#include "launch/launch_world.h"

namespace shadowgraph::compress_launch_test {
namespace {

/// A request that ends its second block, one that begins, a padded row.
class World : public LaunchWorld {
 public:
  static constexpr int64_t kPages = 6, kDim = 8, kRow = 4 * kDim, kPage = 4 * kRow;

  World() {
    kv_score = bind("kv_score", DType::kBF16, {3, kRow}, kRow);
    ape = bind("ape", DType::kF32, {8, kDim});
    cu = bind_values("cu_seqlens_q", DType::kI32, Ints{0, 1, 2, 3});
    lens = bind_values("seq_lens", DType::kI32, Ints{8, 1, 1});
    indices = bind_values("state_pages", DType::kI32, Ints{2, 5, 0});
    extra = bind_values("extra_pages", DType::kI32, Ints{3, 0, 0});
    state = bind("state", DType::kF32, {kPages, 4, kRow}, kRow);
    out = bind("compressed", DType::kF32, {3, kDim}, kDim);
    weight = bind("rms_weight", DType::kF32, {kDim});
    freqs = bind("freqs", DType::kF32, {3, 4});
    normed = bind("normed", DType::kBF16, {3, kDim}, kDim);
    for (const Buffer& b : {kv_score, ape, weight, freqs}) randomise(b);
    // The older block whole, of the newer one all but the token that comes now.
    write_bytes(state, 3 * kPage, random(DType::kF32, kPage), kPage);
    write_bytes(state, 2 * kPage, random(DType::kF32, kPage - kRow), kPage - kRow);
  }
  Compress call() const {
    Compress c;
    c.kv_score = kv_score.view(), c.ape = ape.view();
    c.cu_seqlens_q = elements<int32_t>(cu), c.seq_lens = elements<int32_t>(lens);
    c.indices = elements<int32_t>(indices), c.extra = elements<int32_t>(extra);
    c.state = state.view(), c.out = out.view();
    return c;
  }
  NormRope norm() const {
    NormRope c;
    c.x = out.view(), c.weight = weight.view(), c.freqs = freqs.view(), c.out = normed.view();
    return c;
  }

  Buffer kv_score, ape, cu, lens, indices, extra, state, out, weight, freqs, normed;
};

TEST(CompressLaunch, BlocksAndStatesAreTheBitsOfTheCall) {
  World w;
  const Bytes before = w.bytes(w.state);
  // A twin of the state by itself.
  Bytes state = before, out(w.out.bytes(), std::byte{0x55});
  Compress call = w.call();
  call.first_page = 1;
  call.state.data = state.data(), call.out.data = out.data();
  ASSERT_EQ(compress(call).to_string(), "ok");
  EXPECT_NE(state, before);
  EXPECT_NE(out[0], std::byte{0x55});
  w.run_both(
      compress_launch(w.call()), [&] { w.clear(w.out); },
      [&] {
        EXPECT_EQ(w.bytes(w.state), state);
        EXPECT_EQ(w.bytes(w.out), out);
        EXPECT_EQ(w.found(), "ok");
      });
}

TEST(CompressLaunch, APageBeyondTheStateIsFoundAndNothingIsStored) {
  World w;
  GraphExec exec = w.record(compress_launch(w.call()));
  for (const Buffer& list : {w.indices, w.extra}) {
    w.write(list, 0, Ints{static_cast<int32_t>(World::kPages)});
    const Bytes before = w.bytes(w.state);
    exec.replay(w.stream());
    EXPECT_EQ(w.bytes(w.state), before);
    EXPECT_TRUE(is_poison(w.bytes(w.out)));
    const std::string found = w.found();
    EXPECT_NE(found.find("mem."), std::string::npos) << found;
    EXPECT_NE(found.find("state["), std::string::npos) << found;
    w.write(list, 0, Ints{list.data == w.indices.data ? 2 : 3});
  }
  w.write(w.extra, 0, Ints{-2});  // before it
  exec.replay(w.stream());
  EXPECT_NE(w.found().find("mem."), std::string::npos);
  w.write(w.extra, 0, Ints{3});
  exec.replay(w.stream());
  EXPECT_EQ(w.found(), "ok");
}

/// A block that nobody has written is pooled: the wrong page of the block before, or a length that
/// runs ahead.
TEST(CompressLaunch, ABlockThatWasNeverWrittenIsFound) {
  World w;
  GraphExec exec = w.record(compress_launch(w.call()));
  w.write(w.extra, 0, Ints{4});
  exec.replay(w.stream());
  EXPECT_NE(w.found().find("mem.uninit_read"), std::string::npos);
  w.write(w.extra, 0, Ints{3});
  w.write(w.lens, 1, Ints{4});  // of a request with one token: its page has no other
  exec.replay(w.stream());
  EXPECT_NE(w.found().find("mem.uninit_read"), std::string::npos);
}

TEST(CompressLaunch, SpansBelongToTheirRequests) {
  World w;
  w.stream().synchronize();
  Footprint spans;
  const KernelLaunch launch = compress_launch(w.call(), {.a_request = 1, .first = 4});
  kCompress.footprint(LaunchFrame{launch}, &spans);
  for (const AccessSpan& span : spans) {
    if (span.buffer != w.state.data) continue;
    EXPECT_EQ(span.row, span.first / World::kPage == 5 ? 5 : 4);
  }
}

TEST(CompressLaunch, NormsAreTheBitsOfTheCall) {
  World w;
  w.randomise(w.out);
  Bytes out(w.normed.bytes(), std::byte{0});
  NormRope call = w.norm();
  call.out.data = out.data();
  ASSERT_EQ(norm_rope(call).to_string(), "ok");
  w.run_both(
      norm_rope_launch(w.norm()), [&] { w.clear(w.normed); },
      [&] {
        EXPECT_EQ(w.bytes(w.normed), out);
        EXPECT_EQ(w.found(), "ok");
      });
}

}  // namespace
}  // namespace shadowgraph::compress_launch_test
