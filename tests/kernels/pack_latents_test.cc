// Latents into packed slots: scales and codes by their definition, other slots left alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "check/bounds/rounding.h"
#include "core/float_formats.h"
#include "kernels/sparse/sparse_attention.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph::pack_latents_test {
namespace {

constexpr auto kByte = std::byte{0xa5};

/// Tokens of x into slots of a pool that is full of marks.
struct SmallPack {
  SmallPack(LatentLayout layout, std::vector<int64_t> loc, int32_t page_size = 1)
      : slots(std::move(loc)) {
    const bool dsa = layout == LatentLayout::kDsa;
    dim = dsa ? 576 : 512;
    x.resize(slots.size() * static_cast<size_t>(dim));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i / 64 % 9) - 4);
    const int64_t rows = dsa ? 8 : 12 / page_size;
    const int64_t width = dsa ? kDsaBytes : v4_page_bytes(page_size);
    bytes.assign(static_cast<size_t>(rows * width), kByte);
    call.latents = ConstTensorView(x.data(), DType::kF32, {std::ssize(slots), dim});
    call.out_cache_loc = slots;
    call.pool = {TensorView(bytes.data(), DType::kU8, {rows, width}), layout, page_size};
  }
  float& at(int64_t token, int64_t i) { return x[static_cast<size_t>(token * dim + i)]; }
  std::string run() { return pack_latents(call).to_string(); }
  float code(int64_t token, int64_t i) const { return load_float(latent(token), DType::kE4M3, i); }
  const std::byte* latent(int64_t token) const {
    return bytes.data() + call.pool.latent_at(slots[static_cast<size_t>(token)]);
  }
  float dsa_scale(int64_t token, int64_t g) const {
    return load_float(latent(token) + kDsaCodes, DType::kF32, g);
  }
  int v4_byte(int64_t token, int64_t g) const {
    const int64_t at = call.pool.scales_at(slots[static_cast<size_t>(token)]) + g;
    return std::to_integer<int>(bytes[static_cast<size_t>(at)]);
  }

  int64_t dim = 0;
  std::vector<float> x;
  std::vector<int64_t> slots;
  std::vector<std::byte> bytes;
  PackLatents call;
};

/// Nothing that a code may stand for is nearer.
void expect_nearest(double x, double got) {
  const double clamped = std::clamp(x, -448.0, 448.0);
  for (int code = 0; code < 256; ++code) {
    const double other = decode_float(static_cast<uint32_t>(code), kE4M3Format);
    if (std::isnan(other)) continue;
    ASSERT_LE(std::abs(got - clamped), std::abs(other - clamped)) << x;
  }
}

TEST(PackLatents, DsasCodesAreTheNearestOfTheirScale) {
  SmallPack p(LatentLayout::kDsa, {5, 0, 3});
  ASSERT_EQ(p.run(), "ok");
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t g = 0; g < 4; ++g) {
      float amax = 0;
      for (int64_t i = g * 128; i < (g + 1) * 128; ++i) amax = std::max(amax, std::abs(p.at(t, i)));
      EXPECT_EQ(p.dsa_scale(t, g), amax * static_cast<float>(1.0 / 448));
      for (int64_t i = g * 128; i < (g + 1) * 128; ++i)
        expect_nearest(p.at(t, i) / p.dsa_scale(t, g), p.code(t, i));
    }
    const std::vector<double> latent = latent_of(p.call.pool, p.slots[static_cast<size_t>(t)]);
    for (int64_t i = 512; i < 576; ++i)
      EXPECT_LE(std::abs(latent[static_cast<size_t>(i)] - p.at(t, i)),
                std::abs(p.at(t, i)) * rounding_to(DType::kBF16).u);
  }
}

TEST(PackLatents, DeepSeekV4sScaleIsTheLeastPowerThatHoldsTheGroup) {
  for (const int32_t page_size : {1, 2, 4}) {
    SmallPack p(LatentLayout::kV4, {7, 2, 11, 0}, page_size);
    p.at(0, 3) = 448;  // exactly 2^0
    p.at(0, 64) = std::nextafter(448.F, 1e9F);
    p.at(1, 100) = -896;
    ASSERT_EQ(p.run(), "ok");
    EXPECT_EQ(p.v4_byte(0, 0), 127);
    EXPECT_EQ(p.v4_byte(0, 1), 128);
    EXPECT_EQ(p.v4_byte(1, 1), 128);
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t g = 0; g < 7; ++g) {
        double amax = 0;
        for (int64_t i = g * 64; i < (g + 1) * 64; ++i)
          amax = std::max(amax, std::abs(double{p.at(t, i)}));
        const double scale = std::ldexp(1, p.v4_byte(t, g) - 127);
        EXPECT_LE(amax, 448 * scale);
        EXPECT_GT(amax, 224 * scale);
        for (int64_t i = g * 64; i < (g + 1) * 64; ++i)
          expect_nearest(p.at(t, i) / scale, p.code(t, i));
      }
      EXPECT_EQ(p.v4_byte(t, 7), 0);
    }
  }
}

TEST(PackLatents, WhatCodesCanSayComesBackExactly) {
  for (const LatentLayout layout : {LatentLayout::kDsa, LatentLayout::kV4}) {
    SmallPack p(layout, {1});
    for (int64_t i = 0; i < p.dim; ++i)
      p.at(0, i) = i % 64 == 0 ? 448.F : static_cast<float>(i % 17 - 8);
    ASSERT_EQ(p.run(), "ok");
    const std::vector<double> latent = latent_of(p.call.pool, 1);
    for (int64_t i = 0; i < p.dim; ++i) EXPECT_EQ(latent[static_cast<size_t>(i)], p.at(0, i)) << i;
  }
}

TEST(PackLatents, GroupsOfZerosAndOfNoNumbers) {
  SmallPack dsa(LatentLayout::kDsa, {1}), v4(LatentLayout::kV4, {1});
  for (SmallPack* p : {&dsa, &v4}) {
    for (int64_t i = 0; i < 128; ++i) p->at(0, i) = 0;
    p->at(0, 130) = std::numeric_limits<float>::infinity();
    p->at(0, 300) = std::numeric_limits<float>::quiet_NaN();
    ASSERT_EQ(p->run(), "ok");
    for (int64_t i = 0; i < 128; ++i) EXPECT_EQ(p->code(0, i), 0);
    const std::vector<double> latent = latent_of(p->call.pool, 1);
    for (const size_t i : {130U, 131U, 300U}) EXPECT_TRUE(std::isnan(latent[i])) << i;
  }
  EXPECT_EQ(dsa.dsa_scale(0, 0), 0);
  EXPECT_EQ(v4.v4_byte(0, 0), 92);  // of 1e-8
  EXPECT_EQ(v4.v4_byte(0, 2), 255);
}

TEST(PackLatents, WritesWhatItsFootprintSaysAndNothingElse) {
  for (const LatentLayout layout : {LatentLayout::kDsa, LatentLayout::kV4}) {
    SmallPack p(layout, {7, -1, 2}, layout == LatentLayout::kV4 ? 4 : 1);
    std::set<size_t> written;
    for (const AccessSpan& s : pack_latents_footprint(p.call)) {
      if (s.buffer != p.bytes.data()) continue;
      EXPECT_EQ(s.access, Access::kWrite);
      for (int64_t i = 0; i < s.count; ++i) written.insert(static_cast<size_t>(s.first + i));
    }
    EXPECT_EQ(written.size(), 2U * (layout == LatentLayout::kDsa ? 656 : 584));
    ASSERT_EQ(p.run(), "ok");
    for (size_t i = 0; i < p.bytes.size(); ++i)
      ASSERT_TRUE(written.contains(i) || p.bytes[i] == kByte) << i;
  }
}

TEST(PackLatents, ASlotOfThePaddingPageDropsItsToken) {
  for (const LatentLayout layout : {LatentLayout::kDsa, LatentLayout::kV4}) {
    SmallPack p(layout, {0, 5, 0, 3}, layout == LatentLayout::kV4 ? 4 : 1);
    EXPECT_NE(p.run(), "ok");  // slot 0 twice
    p.call.first_slot = 4;
    EXPECT_EQ(p.run(), "ok");
    for (const int64_t token : {0, 3})
      EXPECT_EQ(*p.latent(token), kByte) << static_cast<int>(layout);
    EXPECT_NE(*p.latent(1), kByte);
    for (const AccessSpan& span : pack_latents_footprint(p.call))
      EXPECT_TRUE(span.row == 1 || span.buffer == p.call.out_cache_loc.data());
  }
}

TEST(PackLatents, RowsAreRounded) {
  std::vector<float> x = {1, 1.00390625F, -3.5F, 1e9F};
  std::vector<std::byte> rows(3 * 2 * 2, kByte);
  const std::vector<int64_t> slots = {2, 0};
  PackLatents call;
  call.latents = ConstTensorView(x.data(), DType::kF32, {2, 2});
  call.out_cache_loc = slots;
  call.pool = {TensorView(rows.data(), DType::kBF16, {3, 2}), LatentLayout::kRows, 1};
  ASSERT_EQ(pack_latents(call).to_string(), "ok");
  const auto at = [&](int64_t i) { return load_float(rows.data(), DType::kBF16, i); };
  EXPECT_EQ(at(4), 1);
  EXPECT_EQ(at(5), 1);  // a tie, to even
  EXPECT_EQ(at(0), -3.5F);
  EXPECT_EQ(rows[4], kByte);
}

TEST(PackLatents, ARefusedCallWritesNothing) {
  SmallPack p(LatentLayout::kV4, {3, 3}, 2);
  EXPECT_NE(p.run().find("slot.duplicate"), std::string::npos);
  for (const std::byte b : p.bytes) ASSERT_EQ(b, kByte);
}

}  // namespace
}  // namespace shadowgraph::pack_latents_test
