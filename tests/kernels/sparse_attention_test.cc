// Attention over chosen keys: against the oracle, on data whose result is exact, and bit for bit
// whatever stands beside a token.
#include "kernels/sparse/sparse_attention.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "check/bounds/compare.h"
#include "kernels/small_sparse.h"

namespace shadowgraph::sparse_attention_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<SparseShape> shapes() {
  std::vector<SparseShape> all;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool ragged : {false, true}) {
      SparseShape s;
      s.dtype = s.rows = s.out = type, s.ragged = ragged, s.lengths = !ragged;
      s.sinks = type != DType::kF16, s.extra = type == DType::kBF16;
      s.counted = ragged ? LseSink::kIncluded : LseSink::kExcluded;
      all.push_back(s);
      s.dim = 37, s.dim_v = 21, s.heads = 1, s.width = 64;
      all.push_back(s);
    }
  }
  SparseShape fp8;
  fp8.dtype = fp8.rows = DType::kE4M3, fp8.heads = 20;
  all.push_back(fp8);
  all.push_back(dsa_shape());
  all.push_back(v4_shape());
  SparseShape mixed = v4_shape();  // the rows of this forward beside packed ones
  mixed.extra_layout = LatentLayout::kRows, mixed.rows = DType::kBF16;
  all.push_back(mixed);
  return all;
}

std::string name_of(const SparseShape& s) {
  return std::string(shadowgraph::name_of(s.dtype)) + " dim " + std::to_string(s.dim) + " layout " +
         std::to_string(static_cast<int>(s.layout)) + (s.ragged ? " ragged" : "");
}

Judgement judged(const SmallSparse& truth, const SmallSparse& x, bool exact = false) {
  JudgeOptions how;
  how.exact = exact;
  return judge(AnyCall(truth.call),
               {x.call.out, x.call.lse.tensor, LseBase::kNatural, truth.s.counted},
               *find_arithmetic("ours_sparse"), how);
}

TEST(SparseAttention, IsWithinItsBoundOfTheOracle) {
  for (const SparseShape& s : shapes()) {
    for (const uint64_t seed : {1, 2}) {
      SmallSparse x(s, seed);
      ASSERT_EQ(x.run(), "ok") << name_of(s);
      const Judgement j = judged(x, x);
      EXPECT_EQ(j.findings.to_string(), "ok") << name_of(s);
      EXPECT_EQ(j.unbounded_rows, 0) << name_of(s);
      EXPECT_EQ(j.empty_rows, s.heads) << name_of(s);
      EXPECT_GT(j.error_over_bound, 0) << name_of(s);
    }
  }
}

/// The bound must be worth something: a key too many or too few, another slot, no sink, another
/// scale.
TEST(SparseAttention, TheBoundSeesKnownSlips) {
  for (const SparseShape& s : shapes()) {
    SmallSparse truth(s);
    const auto of_slip = [&](const char* what, const auto& slip) {
      SmallSparse x(s);
      slip(x);
      ASSERT_EQ(x.run(), "ok") << what;
      EXPECT_FALSE(judged(truth, x).findings.ok()) << name_of(s) << ": " << what;
    };
    const auto place = [&](const SmallSparse& x, bool seen) {
      const std::vector<int32_t>& list = x.keys_list.indices;
      return static_cast<size_t>(
          std::find_if(list.begin(), list.end(), [&](int i) { return (i >= 0) == seen; }) -
          list.begin());
    };
    const auto unused = [&](const SmallSparse& x) {
      const auto own = x.call.keys.of(0);
      int32_t slot = 0;
      while (std::find(own.begin(), own.end(), slot) != own.end()) ++slot;
      return slot;
    };
    of_slip("a key too few", [&](SmallSparse& x) { x.keys_list.indices[place(x, true)] = -1; });
    of_slip("-1 as a key",
            [&](SmallSparse& x) { x.keys_list.indices[place(x, false)] = unused(x); });
    of_slip("another slot",
            [&](SmallSparse& x) { x.keys_list.indices[place(x, true)] = unused(x); });
    of_slip("another scale", [](SmallSparse& x) { x.call.sm_scale *= 1.1F; });
    if (s.sinks) of_slip("no sink", [](SmallSparse& x) { x.call.sinks = {}; });
    if (s.extra) of_slip("no extra keys", [](SmallSparse& x) { x.call.extra = {}; });
    if (s.layout == LatentLayout::kDsa)
      of_slip("another group's scale", [](SmallSparse& x) {
        for (int64_t slot = 0; slot < x.s.slots; ++slot)
          store_float(x.first.bytes.data() + slot * kDsaBytes + kDsaCodes, DType::kF32, 1, 0.02F);
      });
    if (s.sinks && s.counted == LseSink::kIncluded)
      of_slip("the sink left out of the LSE",
              [](SmallSparse& x) { x.call.options.lse_sink = LseSink::kExcluded; });
  }
}

/// One key's logit is far above all others: the result is its value, bit for bit, and names it.
TEST(SparseAttention, TheKeyThatIsSelectedIsTheResult) {
  SparseShape s;
  s.dim = 64, s.dim_v = 32, s.slots = 30, s.width = 20, s.heads = 20, s.tokens = 4;
  SmallSparse x(s);
  auto* rows = reinterpret_cast<float*>(x.first.bytes.data());
  auto* q = reinterpret_cast<float*>(x.q.data());
  for (int64_t slot = 0; slot < s.slots; ++slot)
    for (int64_t i = 0; i < s.dim; ++i)
      rows[slot * s.dim + i] = i < s.dim_v ? static_cast<float>(slot + 1) : i - s.dim_v == slot;
  for (int64_t t = 0; t < s.tokens; ++t) {
    std::vector<int32_t> seen;
    for (const int32_t slot : x.call.keys.of(t))
      if (slot >= 0) seen.push_back(slot);
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.dim; ++i)
        q[(t * s.heads + h) * s.dim + i] =
            !seen.empty() && i - s.dim_v == seen[static_cast<size_t>(h) % seen.size()] ? 8192 : 0;
  }
  ASSERT_EQ(x.run(), "ok");
  EXPECT_EQ(judged(x, x, true).findings.to_string(), "ok");
  SmallSparse other(s);
  other.first.bytes = x.first.bytes, other.q = x.q;
  other.call.q.data = other.q.data(), other.call.keys.pool.data.data = other.first.bytes.data();
  auto& list = other.keys_list.indices;
  std::replace(list.begin(), list.begin() + s.width,
               *std::find_if(list.begin(), list.end(), [](int i) { return i >= 0; }), -1);
  ASSERT_EQ(other.run(), "ok");
  EXPECT_FALSE(judged(x, other, true).findings.ok());
}

TEST(SparseAttention, ATokenWithoutKeysIsEmpty) {
  for (const LseSink counted : {LseSink::kExcluded, LseSink::kIncluded}) {
    SparseShape s = v4_shape();
    s.counted = counted;
    SmallSparse x(s);
    ASSERT_EQ(x.run(), "ok");
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.dim_v; ++i) ASSERT_EQ(load_float(x.call.out.at(1, h), s.out, i), 0);
      const float lse = x.lse[static_cast<size_t>(s.heads + h)];
      if (counted == LseSink::kExcluded) {
        EXPECT_EQ(lse, -kInfinity);
      } else {
        EXPECT_EQ(lse, x.sinks[static_cast<size_t>(h)]);
      }
    }
  }
}

/// Bits of one token, alone or among others.
std::vector<std::byte> bits_of(const SmallSparse& x, int64_t token) {
  const size_t size = static_cast<size_t>(x.s.heads * x.s.dim_v) * size_of(x.s.out);
  const auto at = static_cast<size_t>(token);
  std::vector<std::byte> bits(x.out.begin() + static_cast<int64_t>(at * size),
                              x.out.begin() + static_cast<int64_t>((at + 1) * size));
  const auto* lse = reinterpret_cast<const std::byte*>(&x.lse[at * static_cast<size_t>(x.s.heads)]);
  bits.insert(bits.end(), lse, lse + x.s.heads * 4);
  return bits;
}

TEST(SparseAttention, HasTheSameBitsOnEveryInstructionSetAndTeam) {
  for (SparseShape s : shapes()) {
    s.heads = s.heads == 5 ? 67 : s.heads;
    SmallSparse x(s);
    ASSERT_EQ(x.run(), "ok");
    for (const std::string_view isa : available_isas()) {
      for (const int threads : {1, 3}) {
        SmallSparse y(s);
        y.call.options.isa = isa, y.call.options.num_threads = threads;
        ASSERT_EQ(y.run(), "ok");
        for (int64_t t = 0; t < s.tokens; ++t)
          EXPECT_EQ(bits_of(x, t), bits_of(y, t)) << name_of(s) << ' ' << isa;
      }
    }
  }
}

/// The same latents elsewhere, named without -1, token by token.
TEST(SparseAttention, ATokensBitsAreOfItsOwnKeysAlone) {
  for (const SparseShape& s : shapes()) {
    SmallSparse x(s);
    ASSERT_EQ(x.run(), "ok");
    for (int64_t t = 0; t < s.tokens; ++t) {
      SmallSparse y(s);
      std::vector<int32_t> own[2];
      ChosenKeys* lists[] = {&y.call.keys, &y.call.extra};
      for (int l = 0; l < 2; ++l) {
        if (!lists[l]->defined()) continue;
        for (const int32_t slot : lists[l]->of(t))
          if (slot >= 0) own[l].push_back(slot);
        lists[l]->indices = own[l], lists[l]->width = std::ssize(own[l]);
        lists[l]->indptr = lists[l]->lengths = {};
      }
      y.call.q.data += t * s.heads * s.dim * static_cast<int64_t>(size_of(s.dtype));
      y.call.q.shape[0] = y.call.out.shape[0] = y.call.lse.tensor.shape[0] = 1;
      ASSERT_EQ(y.run(), "ok");
      EXPECT_EQ(bits_of(x, t), bits_of(y, 0)) << name_of(s) << ' ' << t;
    }
  }
}

/// What is not in the footprint has no influence; what is written is what it says.
TEST(SparseAttention, ReadsAndWritesWhatItsFootprintSays) {
  for (const SparseShape& s : shapes()) {
    SmallSparse x(s), y(s);
    ASSERT_EQ(x.run(), "ok");
    const Footprint spans = sparse_attention_footprint(y.call);
    const auto bytes_of = [&](const void* buffer, Access access) {
      std::set<int64_t> all;
      for (const AccessSpan& span : spans)
        for (int64_t i = 0;
             span.buffer == buffer && span.access == access && i < span.count * span.element_bytes;
             ++i)
          all.insert(span.first * span.element_bytes + i);
      return all;
    };
    for (std::vector<std::byte>* buffer : {&y.first.bytes, &y.second.bytes, &y.q}) {
      const std::set<int64_t> read = bytes_of(buffer->data(), Access::kRead);
      for (size_t i = 0; i < buffer->size(); ++i)
        if (!read.contains(static_cast<int64_t>(i))) (*buffer)[i] = std::byte{0xff};
    }
    ASSERT_EQ(y.run(), "ok");
    EXPECT_EQ(x.out, y.out) << name_of(s);
    EXPECT_EQ(x.lse, y.lse) << name_of(s);
    EXPECT_EQ(bytes_of(y.out.data(), Access::kWrite).size(), y.out.size());
    EXPECT_EQ(bytes_of(y.lse.data(), Access::kWrite).size(), y.lse.size() * 4);
    const std::set<int64_t> listed = bytes_of(y.keys_list.indices.data(), Access::kRead);
    size_t entries = 0;
    for (int64_t t = 0; t < s.tokens; ++t) entries += y.call.keys.of(t).size();
    EXPECT_EQ(listed.size(), entries * 4);
  }
}

TEST(SparseAttention, TheEighthScaleIsNotRead) {
  SmallSparse x(v4_shape());
  const LatentPool& pool = x.call.keys.pool;
  for (const AccessSpan& span : sparse_attention_footprint(x.call)) {
    for (int64_t slot = 0; slot < pool.slots() && span.buffer == pool.data.data; ++slot) {
      const int64_t eighth = pool.scales_at(slot) + kV4Scales - 1;
      EXPECT_FALSE(span.first <= eighth && eighth < span.first + span.count) << slot;
    }
  }
}

TEST(SparseAttention, ARefusedCallWritesNothing) {
  SmallSparse x(dsa_shape());
  x.keys_list.indices[0] = 1000;
  const std::vector<std::byte> before = x.out;
  EXPECT_NE(x.run().find("list.slot"), std::string::npos);
  EXPECT_EQ(x.out, before);
}

}  // namespace
}  // namespace shadowgraph::sparse_attention_test
