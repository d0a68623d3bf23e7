#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "attn/lse.h"
#include "core/choices.h"
#include "core/float_formats.h"
#include "kernels/isa/units.h"
#include "kernels/small_attention.h"

namespace shadowgraph::isa_test {
namespace {

TEST(Isa, GenericIsAlwaysThereAndFirst) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), "generic");
}

TEST(Isa, TheCurrentOneIsAvailable) {
  EXPECT_EQ(std::count(available_isas().begin(), available_isas().end(), current_isa()), 1);
}

TEST(Isa, EveryAvailableOneCanBeChosen) {
  const std::string before(current_isa());
  for (std::string_view isa : available_isas()) {
    EXPECT_TRUE(set_isa(isa).ok());
    EXPECT_EQ(current_isa(), isa);
    EXPECT_EQ(find_isa("")->name, isa);
  }
  EXPECT_TRUE(set_isa(before).ok());
}

TEST(Isa, AnUnknownNameIsRefusedAndChangesNothing) {
  const std::string before(current_isa());
  for (const char* name : {"", "sse", "AVX2", "avx2 "}) {
    const Status status = set_isa(name);
    ASSERT_EQ(status.findings().size(), 1u) << name;
    EXPECT_EQ(status.findings()[0].id, "input.isa");
    EXPECT_EQ(status.findings()[0].got, name);
    EXPECT_EQ(current_isa(), before);
  }
}

TEST(Isa, ACallThatNamesAnUnknownOneIsRefusedAndWritesNothing) {
  SmallAttention c(CaseKernel::kDecodePaged, "riscv", {.requests = {{1, 3}}});
  c.fill_uniform();
  const Status status = c.run();
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].id, "input.isa");
  EXPECT_EQ(status.findings()[0].got, "riscv");
  for (std::byte b : c.out_memory) ASSERT_EQ(b, std::byte{0xff});
}

TEST(Isa, AnUnknownOneIsReportedBesideOtherFaults) {
  SmallAttention c(CaseKernel::kDecodePaged, "riscv", {.requests = {{1, 3}}});
  c.params.sm_scale = 0;
  EXPECT_EQ(c.run().findings().size(), 2u);
}

TEST(Isa, EveryFp8CodeHasTheValueOfItsFormat) {
  for (uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(std::bit_cast<uint32_t>(kE4M3Values[code]),
              std::bit_cast<uint32_t>(decode_float(code, kE4M3Format)));
    EXPECT_EQ(std::bit_cast<uint32_t>(kE5M2Values[code]),
              std::bit_cast<uint32_t>(decode_float(code, kE5M2Format)));
  }
}

/// Sixteen rows side by side as one row after the other.
template <LseBase Base>
void expect_merged_as_alone(double of_natural, float to_base2) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Rng rng(6);
  for (size_t parts = 1; parts <= 5; ++parts) {
    for (int round = 0; round < 40; ++round) {
      std::vector<float> lse(parts * kPanel), weights(lse.size());
      for (float& x : lse)
        x = rng.below(5) == 0 ? (rng.below(2) ? kInf : -kInf)
                              : std::ldexp(rng.signed_unit(), round % 9);
      for (std::string_view isa : available_isas()) {
        float d[kPanel], merged[kPanel];
        find_isa(isa)->merge({lse.data(), static_cast<int64_t>(parts), to_base2, of_natural,
                              weights.data(), d, merged});
        for (size_t i = 0; i < kPanel; ++i) {
          std::vector<SoftmaxState<Base>> states;
          for (size_t p = 0; p < parts; ++p)
            states.push_back(SoftmaxState<Base>::from_lse(lse[p * kPanel + i]));
          std::vector<float> alone(parts);
          const SoftmaxState<Base> all = merge<Base>(states, alone);
          for (size_t p = 0; p < parts; ++p) ASSERT_EQ(weights[p * kPanel + i], alone[p]) << isa;
          ASSERT_EQ(d[i], all.d) << isa;
          ASSERT_EQ(merged[i], lse_of<Base>(all)) << isa;
        }
      }
    }
  }
}

TEST(Isa, StatesOfRowsAreMergedWithTheBitsOfOneRow) {
  expect_merged_as_alone<LseBase::kNatural>(1, static_cast<float>(kLog2E));
  expect_merged_as_alone<LseBase::kLog2>(kLog2E, 1);
}

/// A row of every length up to two vectors and more.
TEST(Isa, FinishedRowsHaveTheBitsOfTheSoftware) {
  Rng rng(8);
  for (int64_t count = 1; count <= 37; ++count) {
    std::vector<float> o(static_cast<size_t>(round_up(count, kPanel)));
    for (float& x : o) x = rng.below(9) == 0 ? -0.f : 3 * rng.signed_unit();
    const float weight = rng.signed_unit(), d = 1 + rng.signed_unit() / 2, v_scale = 0.3f;
    for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
      std::vector<std::byte> expected(static_cast<size_t>(count) * size_of(t) + 1, std::byte{0x5a});
      for (int64_t i = 0; i < count; ++i)
        store_float(expected.data(), t, i, o[static_cast<size_t>(i)] * weight / d * v_scale + 0.f);
      for (std::string_view isa : available_isas()) {
        std::vector<std::byte> out(expected.size(), std::byte{0x5a});
        find_isa(isa)->finish({o.data(), count, weight, d, v_scale, out.data(), t});
        EXPECT_EQ(out, expected) << isa << ", " << count << " of " << name_of(t);
      }
    }
  }
}

/// o / d + 0 of each instruction set, in f32.
void expect_quotients(const std::vector<float>& o, float d) {
  std::vector<float> expected(o.size()), out(o.size());
  for (size_t i = 0; i < o.size(); ++i) expected[i] = o[i] / d + 0.f;
  for (const std::string_view isa : available_isas()) {
    find_isa(isa)->finish({o.data(), static_cast<int64_t>(o.size()), 1, d, 1,
                           reinterpret_cast<std::byte*>(out.data()), DType::kF32});
    const auto same = [](float a, float b) { return std::isnan(a) ? std::isnan(b) : a == b; };
    const auto [wrong, right] = std::ranges::mismatch(out, expected, same);
    EXPECT_TRUE(wrong == out.end()) << isa << ": " << *wrong << " for " << *right << ", over " << d;
  }
}

/// All mantissas over one whose mantissa is all ones, others at the ends, and drawn ones.
TEST(Isa, AFinishedRowIsDividedAsIeeeDivides) {
  Rng rng(9);
  std::vector<float> divisors = {0x1.fffffep0f, 1, 0x1.000002p0f, 0x1.fffffcp7f, 3};
  divisors.push_back(1 + std::abs(rng.signed_unit()));
  std::vector<float> row(size_t{1} << 15);
  for (const float d : divisors) {
    for (uint32_t first = 0; first < 1u << 23; first += static_cast<uint32_t>(row.size())) {
      for (uint32_t i = 0; i < row.size(); ++i)
        row[i] = std::bit_cast<float>(0x3f800000u | (first + i));
      expect_quotients(row, d);
    }
  }
}

/// Quotients nearer to a tie of rounding than the error of the last step: 2^t x = tie d + rest.
TEST(Isa, AFinishedRowIsDividedAsIeeeDividesNearTies) {
  constexpr uint64_t kOne = 1u << 23, kStep = 34;
  int64_t cases = 0;
  for (uint64_t d = kOne + 1; d < 2 * kOne; d += kStep) {
    uint64_t inverse = d;  // modulo 2^64
    for (int i = 0; i < 5; ++i) inverse *= 2 - d * inverse;
    for (const uint64_t t : {24, 25}) {
      for (int64_t rest = -7; rest <= 7; rest += 2) {
        uint64_t tie = static_cast<uint64_t>(rest) * inverse & ((uint64_t{1} << t) - 1);
        if (tie < 2 * kOne) tie += t == 24 ? 2 * kOne : 0;
        const uint64_t x = (tie * d - static_cast<uint64_t>(rest)) >> t;
        if (tie < 2 * kOne || x < kOne || x >= 2 * kOne) continue;
        ++cases;
        expect_quotients(std::vector<float>(kPanel, static_cast<float>(x)), static_cast<float>(d));
      }
    }
  }
  EXPECT_GT(cases, 300'000);
}

/// Any two numbers: subnormal, infinite, NaN, and where a quotient or a remainder underflows.
TEST(Isa, AFinishedRowIsDividedAsIeeeDividesAtAnyExponent) {
  Rng rng(10);
  const auto any = [&] { return std::bit_cast<float>(static_cast<uint32_t>(rng.next())); };
  std::vector<float> row(64);
  for (int round = 0; round < 20000; ++round) {
    const float d = any();
    for (float& x : row) x = round % 2 == 0 ? any() : std::ldexp(d, static_cast<int>(rng.below(9)));
    // Most often all of a vector: else one number decides how the others are divided.
    if (round % 3 == 0) std::fill(row.begin(), row.end(), any());
    expect_quotients(row, d);
  }
}

/// Parts of these types into one row of type t.
void expect_sum_of_software(Rng& rng, int64_t count, const DType (&types)[3], DType t) {
  std::vector<std::byte> memory[3];
  std::vector<WeightedRow> parts;
  std::vector<float> sums(static_cast<size_t>(count));
  for (size_t p = 0; p < 3; ++p) {
    memory[p].resize(static_cast<size_t>(count) * size_of(types[p]));
    parts.push_back({memory[p].data(), types[p], rng.signed_unit()});
    for (int64_t i = 0; i < count; ++i) {
      store_float(memory[p].data(), types[p], i, 3 * rng.signed_unit());
      sums[static_cast<size_t>(i)] += parts[p].weight * load_float(memory[p].data(), types[p], i);
    }
  }
  const float weight = rng.signed_unit(), d = 1 + rng.signed_unit() / 2;
  const auto bytes = static_cast<size_t>(count) * size_of(t);
  std::vector<std::byte> expected(bytes + 1, std::byte{0x5a});
  for (int64_t i = 0; i < count; ++i)
    store_float(expected.data(), t, i, weight * sums[static_cast<size_t>(i)] / d);
  for (std::string_view isa : available_isas()) {
    std::vector<std::byte> out(bytes + 1, std::byte{0x5a});
    find_isa(isa)->sum({parts.data(), 3, count, weight, d, out.data(), t});
    EXPECT_EQ(out, expected) << isa << ", " << count << " of " << name_of(t);
  }
}

/// Rows of every length up to six vectors and more.
TEST(Isa, SumsOfRowsHaveTheBitsOfTheSoftware) {
  Rng rng(5);
  for (int64_t count = 1; count <= 101; ++count) {
    for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
      expect_sum_of_software(rng, count, {DType::kF32, DType::kF16, DType::kBF16}, t);
      expect_sum_of_software(rng, count, {t, t, t}, t);
    }
  }
}

TEST(Isa, AStreamedSumHasTheSameBits) {
  constexpr int64_t kCount = 96;
  Rng rng(7);
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> part(kCount * size_of(t));
    for (int64_t i = 0; i < kCount; ++i) store_float(part.data(), t, i, rng.signed_unit());
    const WeightedRow parts[] = {{part.data(), t, 0.7f}, {part.data(), t, 0.2f}};
    for (std::string_view isa : available_isas()) {
      alignas(64) std::byte out[2][kCount * 4] = {};
      for (const bool stream : {false, true})
        find_isa(isa)->sum({parts, 2, kCount, 1, 0.9f, out[stream ? 1 : 0], t, stream});
      EXPECT_EQ(std::memcmp(out[0], out[1], sizeof out[0]), 0) << isa << " " << name_of(t);
    }
  }
}

/// All codes of a type as the value of a single key, which is the result.
TEST(Isa, EveryCodeOfEveryTypeIsLoadedAsTheSoftwareDoes) {
  for (const DType t : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2}) {
    const int32_t codes = size_of(t) == 2 ? 1 << 16 : 256, heads = 64, dim = codes / heads;
    for (std::string_view isa : available_isas()) {
      SmallAttention c(CaseKernel::kPrefillRagged, isa,
                       {.requests = {{1, 1}},
                        .qo_heads = heads,
                        .kv_heads = heads,
                        .dim_vo = dim,
                        .kv_dtype = t});
      c.fill_uniform();
      for (int64_t code = 0; code < codes; ++code) {
        std::memcpy(c.v_memory.data() + code * static_cast<int64_t>(size_of(t)), &code, size_of(t));
      }
      ASSERT_EQ(c.run().to_string(), "ok");
      for (int32_t code = 0; code < codes; ++code) {
        const float got = c.out(0, 0, code / dim, code % dim);
        const float expected = decode_float(static_cast<uint32_t>(code), format_of(t));
        ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
            << isa << " " << name_of(t) << " code " << code << " gives " << got;
      }
    }
  }
}

}  // namespace
}  // namespace shadowgraph::isa_test
