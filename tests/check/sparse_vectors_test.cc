// Recorded attention over chosen keys, and packed latents: slips in the call, in what was recorded
// and in the reference, each seen by the law that is for it.
#include <gtest/gtest.h>

#include <set>

#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/curated_linear.h"
#include "kernels/small_sparse.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph::sparse_vectors_test {
namespace {

using Laws = std::set<std::string>;

Laws laws(const RecordedVerdict& verdict) {
  Laws ids;
  for (const Finding& f : verdict.findings.findings()) ids.insert(f.id);
  return ids;
}

RecordedCase linear(const std::string& kind) {
  RecordedCase v = parse(linear_case_of_kind(kind).file).cases.at(0);
  const RecordedVerdict verdict = judge_recorded(v);
  EXPECT_EQ(verdict.findings.to_string(), "ok") << kind;
  EXPECT_GT(verdict.rows, 0) << kind;
  return v;
}

SparseAttention& call_of(RecordedCase& v) {
  return std::get<SparseAttention>(v.attention().calls.at(0));
}

constexpr const char* kAttention[] = {"dsa sparse_mla_fp8", "dsv4 sparse_decode_extra",
                                      "dsv4 unified_decode", "dsv4 unified_decode_fused",
                                      "dsv4 unified_prefill"};

/// A copy of a tensor that a case keeps.
template <class T>
T* copied(ConstTensorView* view, std::vector<std::shared_ptr<const void>>* storage) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(
      view->data, view->data + view->numel() * static_cast<int64_t>(size_of(view->dtype)));
  storage->push_back(bytes);
  view->data = bytes->data();
  return reinterpret_cast<T*>(bytes->data());
}
template <class T>
T* copied(ConstTensorView* view, RecordedCase* v) {
  return copied<T>(view, &v->storage);
}

TEST(SparseVectors, ACallWithOtherKeysIsFound) {
  for (const char* kind : kAttention) {
    RecordedCase v = linear(kind);
    ChosenKeys& keys = call_of(v).keys;
    std::vector<int32_t> indices(keys.indices.begin(), keys.indices.end());
    const auto seen = std::find_if(indices.begin(), indices.end(), [](int i) { return i >= 0; });
    const auto none = std::find(indices.begin(), indices.end(), -1);
    keys.indices = indices;
    const int32_t slot = *seen;
    *seen = -1;
    EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.recorded", "num.reference"})) << kind;
    *seen = slot;
    if (none - indices.begin() > keys.width || none == indices.end()) continue;
    int32_t other = 0;
    while (std::find(indices.begin(), indices.end(), other) != indices.end()) ++other;
    if (other >= keys.pool.slots() || !keys.lengths.empty()) continue;
    *none = other;
    EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.recorded", "num.reference"})) << kind;
  }
}

TEST(SparseVectors, ACallWithoutSinkExtraKeysOrScaleIsFound) {
  for (const char* kind : kAttention) {
    RecordedCase v = linear(kind);
    RecordedCase other = v;
    call_of(other).sm_scale *= 1.2F;
    EXPECT_TRUE(laws(judge_recorded(other)).contains("num.recorded")) << kind;
    if (!call_of(v).sinks.empty()) {
      other = v;
      call_of(other).sinks = {};
      EXPECT_TRUE(laws(judge_recorded(other)).contains("num.recorded")) << kind;
    }
    if (!call_of(v).extra.defined()) continue;
    other = v;
    call_of(other).extra = {};
    EXPECT_TRUE(laws(judge_recorded(other)).contains("num.recorded")) << kind;
  }
}

TEST(SparseVectors, AnLseThatLeavesTheSinkOutIsFound) {
  RecordedCase v = linear("dsv4 sparse_decode_extra");
  v.gpu().lse_sink = v.reference.lse_sink = LseSink::kExcluded;
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.recorded", "num.reference"}));
}

TEST(SparseVectors, ATokenThatSeesNoKeyHasNoResult) {
  RecordedCase v = linear("dsv4 unified_decode_fused");
  const auto& indptr = call_of(v).keys.indptr;
  int64_t empty = 0;
  while (indptr[static_cast<size_t>(empty)] != indptr[static_cast<size_t>(empty) + 1]) ++empty;
  copied<uint16_t>(&v.gpu().out, &v);
  const int64_t size = v.gpu().out.stride[0];
  store_float(const_cast<std::byte*>(v.gpu().out.data), DType::kBF16, empty * size, 0x1p-20F);
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.recorded"}));
}

TEST(SparseVectors, AKernelThatNobodyListsIsSaid) {
  RecordedCase v = linear("dsa sparse_mla_fp8");
  v.gpu().kernel = "tomorrow's";
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"vector.case"}));
}

TEST(SparseVectors, ARefusedCallIsAFinding) {
  RecordedCase v = linear("dsv4 unified_decode");
  std::vector<int32_t> twice(call_of(v).keys.indices.begin(), call_of(v).keys.indices.end());
  twice[1] = twice[0];
  call_of(v).keys.indices = twice;
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"list.duplicate"}));
}

/// Bits of a byte of the recorded pool.
void flip(RecordedCase* v, int64_t at) { copied<uint8_t>(&v->gpu().states, v)[at] ^= 0x41; }

TEST(SparseVectors, PackedBytesThatAreOffAreFound) {
  for (const char* kind : {"dsa kv_quant", "dsv4 kv_pack"}) {
    const RecordedCase v = linear(kind);
    const auto& pack = std::get<PackLatents>(v.call);
    const int64_t slot = pack.out_cache_loc[1], latent = pack.pool.latent_at(slot);
    const bool dsa = pack.pool.layout == LatentLayout::kDsa;
    const int64_t scale = dsa ? latent + kDsaCodes + 2 : pack.pool.scales_at(slot);
    const int64_t rope = dsa ? latent + kDsaBytes - 1 : latent + kV4Bytes - 1;
    for (const int64_t at : {latent + 7, scale, rope}) {
      RecordedCase other = v;
      flip(&other, at);
      EXPECT_TRUE(laws(judge_recorded(other)).contains("num.recorded")) << kind << ' ' << at;
    }
  }
}

TEST(SparseVectors, PartsThatWereStoredOtherwiseAreFound) {
  const RecordedCase v = linear("dsv4 kv_pack");
  for (ConstTensorView Recorded::*part : {&Recorded::codes, &Recorded::scales, &Recorded::rope}) {
    RecordedCase other = v;
    copied<uint8_t>(&(other.gpu().*part), &other)[3] ^= 0x10;
    EXPECT_EQ(laws(judge_recorded(other)), (Laws{"num.recorded"}));
  }
}

TEST(SparseVectors, WhatPackedLatentsStandForIsHeldAgainstThem) {
  RecordedCase quant = linear("dsa kv_quant");
  copied<uint16_t>(&quant.gpu().out, &quant)[700] ^= 1;
  EXPECT_EQ(laws(judge_recorded(quant)), (Laws{"num.recorded"}));
  quant = linear("dsa kv_quant");
  copied<double>(&quant.reference.scales, &quant)[3] *= 1.0000001;
  EXPECT_EQ(laws(judge_recorded(quant)), (Laws{"num.reference"}));
  RecordedCase pack = linear("dsv4 kv_pack");
  copied<float>(&pack.reference.out, &pack)[600] *= 1.001F;
  EXPECT_EQ(laws(judge_recorded(pack)), (Laws{"num.reference"}));
  pack = linear("dsv4 kv_pack");
  copied<uint8_t>(&pack.reference.scales, &pack)[5] += 1;
  EXPECT_EQ(laws(judge_recorded(pack)), (Laws{"num.reference"}));
}

// ---- FlashMLA

/// A decode over packed latents as FlashMLA's is recorded, of our own results.
class DecodeFile {
 public:
  DecodeFile() : x_(shape()) {
    EXPECT_EQ(x_.run(), "ok");
    const int64_t tokens = x_.s.tokens, heads = x_.s.heads;
    add("q", x_.q, DType::kBF16, {tokens, 1, heads, 576});
    add("kv_cache_fp8", x_.first.bytes, DType::kU8, {30, 3, 1, kDsaBytes});
    add("indices", bytes_of(x_.keys_list.indices), DType::kI32, {tokens, 1, x_.s.width});
    add("attn_sink", bytes_of(x_.sinks), DType::kF32, {heads});
    add("num_splits", bytes_of(std::vector<int32_t>{0, 1, 2, 3}), DType::kI32, {tokens + 1});
    add("out", x_.out, DType::kBF16, {tokens, 1, heads, 512});
    add("lse", bytes_of(x_.lse), DType::kF32, {tokens, heads, 1});
    add_references(tokens, heads);
    file.metadata["case000"] = R"json({"kind":"sparse_decode_fp8","dtype":"bf16",
      "num_qo_heads":5, "num_kv_heads":1,"head_dim_qk":576,"head_dim_v":512,"page_size":3,
      "batch":3,"q_len":1, "topk":75,"sm_scale":0.05,"attn_sink":true,"lse_base":"e",
      "splits_per_request":[1,1,1],"lse_layout":"(B,Hq,s_q)"})json";
  }
  RecordedCase read() const {
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.to_string(), "ok");
    return p.cases.at(0);
  }
  template <class T>
  T* at(const std::string& name) {
    return reinterpret_cast<T*>(memory_.at(name).data());
  }
  SafetensorsFile file;

 private:
  static SparseShape shape() {
    SparseShape s = dsa_shape();
    s.lengths = false, s.sinks = true;
    return s;
  }
  template <class T>
  static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto* first = reinterpret_cast<const std::byte*>(values.data());
    return {first, first + values.size() * sizeof(T)};
  }
  void add(const std::string& name, std::vector<std::byte> bytes, DType type,
           std::initializer_list<int64_t> dims) {
    memory_[name] = std::move(bytes);
    file.tensors["case000/" + name] = ConstTensorView(memory_.at(name).data(), type, dims);
  }
  void add_references(int64_t tokens, int64_t heads) {
    std::vector<float> out(static_cast<size_t>(tokens * heads * 512));
    std::vector<double> lse(static_cast<size_t>(tokens * heads));
    for_each_row(x_.call, SparseKeys::kSeen, [&](const OracleRow& row) {
      const auto at = static_cast<size_t>(row.row * heads + row.head);
      for (size_t i = 0; i < 512; ++i)
        out[at * 512 + i] = static_cast<float>(row.out[static_cast<Eigen::Index>(i)]);
      lse[at] = row.lse;
    });
    add("out_ref", bytes_of(out), DType::kF32, {tokens, 1, heads, 512});
    add("lse_ref", bytes_of(lse), DType::kF64, {tokens, heads, 1});
    std::vector<std::byte> latents(static_cast<size_t>(x_.s.slots) * 576 * 2);
    for (int64_t slot = 0; slot < x_.s.slots; ++slot) {
      const std::vector<double> latent = latent_of(x_.call.keys.pool, slot);
      for (int64_t i = 0; i < 576; ++i)
        store_float(latents.data(), DType::kBF16, slot * 576 + i,
                    static_cast<float>(latent[static_cast<size_t>(i)]));
    }
    add("kv_dequantized", latents, DType::kBF16, {x_.s.slots, 576});
  }

  SmallSparse x_;
  std::map<std::string, std::vector<std::byte>> memory_;
};

TEST(SparseVectors, ADecodeOverPackedLatentsIsReadAndJudged) {
  DecodeFile decode;
  const RecordedVerdict verdict = judge_recorded(decode.read());
  EXPECT_EQ(verdict.findings.to_string(), "ok");
  EXPECT_EQ(verdict.rows, 15);
  EXPECT_EQ(verdict.empty_rows, 5);
  EXPECT_TRUE(verdict.ours.out && verdict.gpu.lse && verdict.reference.out);
}

TEST(SparseVectors, SlipsInADecodeOverPackedLatentsAreFound) {
  const auto expect = [](const Laws& expected, const auto& slip) {
    DecodeFile decode;
    slip(decode);
    EXPECT_EQ(laws(judge_recorded(decode.read())), expected);
  };
  const Laws both = {"num.recorded", "num.reference"};
  expect(both, [](DecodeFile& d) { d.at<float>("attn_sink")[2] += 1; });
  expect({"num.recorded"}, [](DecodeFile& d) { d.at<float>("lse")[1] += 0.1F; });
  expect({"num.recorded"}, [](DecodeFile& d) { d.at<uint16_t>("out")[100] ^= 0x4000; });
  expect({"num.reference"}, [](DecodeFile& d) { d.at<float>("out_ref")[100] *= 1.001F; });
  expect({"num.reference"}, [](DecodeFile& d) { d.at<uint16_t>("kv_dequantized")[9] ^= 1; });
  expect({"list.duplicate"}, [](DecodeFile& d) {
    auto* list = d.at<int32_t>("indices");
    list[0] = list[1] = 5;
    std::replace(list + 2, list + 75, 5, -1);
  });
}

RecordedCase prefill() {
  RecordedCase v = parse(case_of_kind("sparse_prefill").second).cases.at(0);
  EXPECT_EQ(judge_recorded(v).findings.to_string(), "ok");
  return v;
}

TEST(SparseVectors, SlipsInASparsePrefillAreFound) {
  const RecordedCase whole = prefill();
  const Laws both = {"num.recorded", "num.reference"};
  RecordedCase v = whole;
  call_of(v).sinks = {};
  EXPECT_EQ(laws(judge_recorded(v)), both);
  v = whole;
  std::vector<int32_t> lengths(call_of(v).keys.lengths.begin(), call_of(v).keys.lengths.end());
  lengths[0] -= 8;
  call_of(v).keys.lengths = lengths;
  EXPECT_EQ(laws(judge_recorded(v)), both);
  v = whole;
  v.attention().calls[0] = whole.attention().calls[0];
  call_of(v).keys.pool.data.stride[0] = 0;  // every slot is the first
  EXPECT_EQ(laws(judge_recorded(v)), both);
}

TEST(SparseVectors, ALargestLogitThatIsOffIsFound) {
  RecordedCase v = prefill();
  copied<float>(&v.recorded[0].max_logits, &v.storage)[4] *= 1.001F;
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.recorded"}));
  v = prefill();
  copied<double>(&v.reference.max_logits, &v.storage)[4] += 1e-4;
  EXPECT_EQ(laws(judge_recorded(v)), (Laws{"num.reference"}));
}

}  // namespace
}  // namespace shadowgraph::sparse_vectors_test
