// The software conversions: exhaustive over all codes of every format, and over every midpoint.
#include "shadowgraph/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/float_formats.h"

namespace shadowgraph::dtype_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Format {
  const char* name;
  DType dtype;
  FloatFormat format;
  uint32_t codes;           // sign included
  float smallest, largest;  // positive subnormal; finite
  uint32_t one;
};
void PrintTo(const Format& f, std::ostream* os) { *os << f.name; }

class Formats : public ::testing::TestWithParam<Format> {
 protected:
  const Format f = GetParam();
  uint32_t sign_bit() const { return f.codes / 2; }
  float decode(uint32_t code) const { return decode_float(code, f.format); }
  uint32_t encode(float value) const { return encode_float(value, f.format); }
  /// Codes of 0 and the positive finite numbers, which rise with the code.
  uint32_t finite_codes() const {
    uint32_t n = 0;
    while (std::isfinite(decode(n))) ++n;
    return n;
  }
};

TEST_P(Formats, EveryCodeRoundTrips) {
  for (uint32_t code = 0; code < f.codes; ++code) {
    const float value = decode(code);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode(encode(value)))) << code;
      EXPECT_EQ(encode(value) & sign_bit(), code & sign_bit()) << code;
    } else if (std::isinf(value)) {
      EXPECT_EQ(encode(value), code);
    } else {
      ASSERT_EQ(encode(value), code);
      ASSERT_EQ(std::signbit(value), (code & sign_bit()) != 0);
    }
  }
}

TEST_P(Formats, KnownCodesHaveTheirValues) {
  EXPECT_EQ(decode(0), 0.f);
  EXPECT_EQ(decode(f.one), 1.f);
  EXPECT_EQ(decode(1), f.smallest);
  EXPECT_EQ(decode(finite_codes() - 1), f.largest);
  EXPECT_EQ(decode(sign_bit() | f.one), -1.f);
}

TEST_P(Formats, ValuesRiseWithTheCode) {
  for (uint32_t code = 1, end = finite_codes(); code < end; ++code)
    ASSERT_GT(decode(code), decode(code - 1));
}

TEST_P(Formats, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
  for (uint32_t low = 0, last = finite_codes() - 1; low < last; ++low) {
    const double a = decode(low), b = decode(low + 1);
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2) << "a midpoint is a float";
    for (const uint32_t sign : {0u, sign_bit()}) {
      const float s = sign ? -1.f : 1.f;
      ASSERT_EQ(encode(s * middle), sign | (low % 2 == 0 ? low : low + 1)) << low;
      ASSERT_EQ(encode(s * std::nextafter(middle, 0.f)), sign | low) << low;
      ASSERT_EQ(encode(s * std::nextafter(middle, kInf)), sign | (low + 1)) << low;
    }
  }
}

TEST_P(Formats, OverflowIsInfinityOrNaN) {
  const uint32_t last = finite_codes() - 1;
  // The first number that would not be finite: half a step beyond the largest rounds there (its
  // code is even).
  const double step = static_cast<double>(f.largest) - decode(last - 1);
  const double tie = f.largest + step / 2;
  const auto too_far = tie > std::numeric_limits<float>::max() ? kInf : static_cast<float>(tie);
  const bool even = last % 2 == 0;
  for (const float s : {1.f, -1.f}) {
    const uint32_t sign = s < 0 ? sign_bit() : 0;
    EXPECT_EQ(encode(s * std::nextafter(too_far, 0.f)), sign | last);
    const float beyond = decode(encode(s * (even ? std::nextafter(too_far, kInf) : too_far)));
    if (f.format.finite_only) {
      EXPECT_TRUE(std::isnan(beyond));
      EXPECT_TRUE(std::isnan(decode(encode(s * kInf))));
    } else {
      EXPECT_EQ(beyond, s * kInf);
      EXPECT_EQ(decode(encode(s * kInf)), s * kInf);
    }
  }
}

TEST_P(Formats, StoresOfFp8SaturateAndOthersDoNot) {
  std::byte memory[8];
  for (const float s : {1.f, -1.f}) {
    for (const float value : {f.largest, f.largest * 1.5f, 3e38f, kInf}) {
      store_float(memory, f.dtype, 1, s * value);
      const float expected = is_fp8(f.dtype) ? s * f.largest : decode(encode(s * value));
      EXPECT_EQ(load_float(memory, f.dtype, 1), expected);
    }
    store_float(memory, f.dtype, 1, s * std::numeric_limits<float>::quiet_NaN());
    EXPECT_TRUE(std::isnan(load_float(memory, f.dtype, 1)));
  }
}

TEST_P(Formats, LoadsAndStoresFindTheirElement) {
  std::vector<std::byte> memory(16, std::byte{0});
  std::byte* odd = memory.data() + 1;
  store_float(odd, f.dtype, 3, 1.f);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(load_float(odd, f.dtype, i), i == 3 ? 1.f : 0.f);
  EXPECT_EQ(memory[0], std::byte{0});
}

// The values are the formats' definitions: IEEE 754 binary16, bfloat16, and OCP OFP8 table 1.
INSTANTIATE_TEST_SUITE_P(
    All, Formats,
    ::testing::Values(Format{"f16", DType::kF16, kF16Format, 1 << 16, 0x1p-24f, 65504.f, 0x3c00},
                      Format{"bf16", DType::kBF16, kBF16Format, 1 << 16, 0x1p-133f, 0x1.fep127f,
                             0x3f80},
                      Format{"e4m3", DType::kE4M3, kE4M3Format, 256, 0x1p-9f, 448.f, 0x38},
                      Format{"e5m2", DType::kE5M2, kE5M2Format, 256, 0x1p-16f, 57344.f, 0x3c}),
    [](const auto& format) { return format.param.name; });

TEST(Fp8, EncodeIsTheNearestOfAScanOverAllCodes) {
  for (const FloatFormat format : {kE4M3Format, kE5M2Format}) {
    const float largest = format.finite_only ? 448.f : 57344.f;
    for (float value = -largest; value <= largest; value += largest / 4099) {
      double best = HUGE_VAL;
      for (uint32_t code = 0; code < 256; ++code) {
        const float candidate = decode_float(code, format);
        if (std::isfinite(candidate))
          best = std::min(best, std::abs(static_cast<double>(candidate) - value));
      }
      const double got = decode_float(encode_float(value, format), format);
      ASSERT_EQ(std::abs(got - value), best) << value;
    }
  }
}

TEST(E4M3, HasOneNaNASignAndNoInfinity) {
  int nans = 0;
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = decode_float(code, kE4M3Format);
    EXPECT_FALSE(std::isinf(value));
    if (std::isnan(value)) ++nans;
  }
  EXPECT_EQ(nans, 2);
  EXPECT_TRUE(std::isnan(decode_float(0x7f, kE4M3Format)));
  EXPECT_TRUE(std::isnan(decode_float(0xff, kE4M3Format)));
}

TEST(I8, EveryCodeComesBack) {
  for (int code = -128; code < 128; ++code) {
    const auto byte = static_cast<std::byte>(code);
    EXPECT_EQ(load_float(&byte, DType::kI8, 0), static_cast<float>(code));
    EXPECT_EQ(encode_i8(static_cast<float>(code)), std::max(code, -127));
  }
}

TEST(I8, RoundsToNearestEvenAndSaturates) {
  for (int code = -127; code < 127; ++code) {
    const float tie = static_cast<float>(code) + 0.5f;
    EXPECT_EQ(encode_i8(tie), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(encode_i8(std::nextafter(tie, -1e9f)), code);
    EXPECT_EQ(encode_i8(std::nextafter(tie, 1e9f)), code + 1);
  }
  for (const float large : {127.5f, 128.f, 1e30f, HUGE_VALF}) {
    EXPECT_EQ(encode_i8(large), 127);
    EXPECT_EQ(encode_i8(-large), -127);
  }
  EXPECT_EQ(encode_i8(std::nanf("")), 0);
  EXPECT_EQ(encode_i8(0x1p-149f), 0);
}

TEST(DType, NamesComeBack) {
  const std::map<DType, std::pair<const char*, size_t>> all = {
      {DType::kF32, {"f32", 4}},   {DType::kF16, {"f16", 2}},   {DType::kBF16, {"bf16", 2}},
      {DType::kE4M3, {"e4m3", 1}}, {DType::kE5M2, {"e5m2", 1}}, {DType::kI8, {"i8", 1}},
      {DType::kF64, {"f64", 8}},   {DType::kI32, {"i32", 4}},   {DType::kI64, {"i64", 8}},
      {DType::kU8, {"u8", 1}},     {DType::kBool, {"bool", 1}}};
  for (const auto& [type, facts] : all) {
    EXPECT_EQ(name_of(type), facts.first);
    EXPECT_EQ(dtype_from_name(facts.first), type);
    EXPECT_EQ(size_of(type), facts.second);
  }
  for (const char* name : {"", "f8", "F32", "f32 ", "?"})
    EXPECT_EQ(dtype_from_name(name), std::nullopt) << name;
}

TEST(DType, ClassesAreWhatAttentionTakes) {
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_TRUE(is_float16_or_32(t) && is_attention_dtype(t) && is_cache_dtype(t));
  for (const DType t : {DType::kE4M3, DType::kE5M2})
    EXPECT_TRUE(is_fp8(t) && is_cache_dtype(t) && !is_float16_or_32(t));
  for (const DType t : {DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kBool})
    EXPECT_FALSE(is_attention_dtype(t) || is_cache_dtype(t));
  EXPECT_TRUE(is_cache_dtype(DType::kI8) && !is_attention_dtype(DType::kI8));
}

TEST(DType, F32AndF64AreLoadedAsTheyAre) {
  const double wide[] = {1.5, 1 / 3.0};
  const float narrow[] = {1.5f, 1 / 3.f};
  EXPECT_EQ(load_float(reinterpret_cast<const std::byte*>(wide), DType::kF64, 1),
            static_cast<float>(1 / 3.0));
  EXPECT_EQ(load_float(reinterpret_cast<const std::byte*>(narrow), DType::kF32, 1), 1 / 3.f);
}

}  // namespace
}  // namespace shadowgraph::dtype_test
