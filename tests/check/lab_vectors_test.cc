// Vectors made here: whatever was recorded of a call, it is judged, and what is wrong is named.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "check/mistake_lab.h"
#include "check/mistakes/call_scene.h"
#include "check/recorded/judge.h"
#include "oracle/oracle.h"

namespace shadowgraph::lab_vectors_test {
namespace {

/// A call over the lab's requests, and what a kernel returned.
struct LabVector {
  MistakeLab lab;
  std::vector<int32_t> table, lens, cu_seqlens_k;
  std::vector<float> k, v;  // of a ragged call
  std::vector<uint8_t> mask;
  std::vector<int64_t> mask_indptr;
  std::vector<float> out_ref;
  std::vector<double> lse_ref;

  PagedAttention paged() {
    table.clear(), lens.clear();
    for (const auto& row : lab.keys) {
      table.insert(table.end(), row.begin(), row.end());
      table.resize(lens.size() * 18 + 18, 0);
      lens.push_back(static_cast<int32_t>(row.size()));
    }
    PagedAttention c;
    c.q = ConstTensorView(lab.q.data(), DType::kF32, {9, kLabHeads, kDim});
    c.cache = lab.cache();
    c.pages = PageTable::dense(table, 18, lens);
    c.cu_seqlens_q = lab.cu_seqlens_q;
    c.params = lab.params;
    return c;
  }

  /// The same keys, one request after the other.
  RaggedAttention ragged() {
    k.clear(), v.clear(), cu_seqlens_k = {0};
    for (const auto& row : lab.keys) {
      for (const int32_t slot : row) {
        const auto from = static_cast<size_t>(slot) * kKvHeads * kDim;
        for (size_t i = 0; i < kKvHeads * kDim; ++i)
          k.push_back(lab.k[from + i]), v.push_back(lab.v[from + i]);
      }
      cu_seqlens_k.push_back(cu_seqlens_k.back() + static_cast<int32_t>(row.size()));
    }
    RaggedAttention c;
    const int64_t tokens = cu_seqlens_k.back();
    c.q = ConstTensorView(lab.q.data(), DType::kF32, {9, kLabHeads, kDim});
    c.k = ConstTensorView(k.data(), DType::kF32, {tokens, kKvHeads, kDim});
    c.v = ConstTensorView(v.data(), DType::kF32, {tokens, kKvHeads, kDim});
    c.cu_seqlens_q = lab.cu_seqlens_q, c.cu_seqlens_k = cu_seqlens_k;
    c.k_scale = lab.k_scale, c.v_scale = lab.v_scale;
    c.params = lab.params;
    return c;
  }

  /// Queries see every third key less; of pairs in bytes, or in bits.
  CustomMask set_mask(CustomMask::Kind kind) {
    mask.clear(), mask_indptr = {0}, lab.masks.clear();
    for (size_t r = 0; r < lab.keys.size(); ++r) {
      const int32_t q_len = lab.cu_seqlens_q[r + 1] - lab.cu_seqlens_q[r];
      std::vector<uint8_t>& bits = lab.masks.emplace_back();
      for (size_t i = 0; i < static_cast<size_t>(q_len) * lab.keys[r].size(); ++i)
        bits.push_back(i % 3 != 1);
      if (kind == CustomMask::Kind::kBool) {
        mask.insert(mask.end(), bits.begin(), bits.end());
      } else {
        const size_t first = mask.size();
        mask.resize(first + (bits.size() + 7) / 8);
        for (size_t i = 0; i < bits.size(); ++i)
          mask[first + i / 8] |= static_cast<uint8_t>(bits[i] << (i % 8));
      }
      mask_indptr.push_back(std::ssize(mask));
    }
    lab.params.causal = false;
    return {kind, mask, mask_indptr};
  }

  /// What the lab has computed, as recorded of a call.
  Recorded recorded(size_t call = 0) const {
    Recorded r;
    r.name = "gpu", r.kernel = "ours_portable", r.call = call;
    r.out = ConstTensorView(lab.out.data(), DType::kF32, {9, kLabHeads, kDim});
    r.lse = ConstTensorView(lab.lse.data(), DType::kF32, {9, kLabHeads});
    return r;
  }
  RecordedCase vector(AnyCall call) const {
    RecordedCase made;
    made.id = "lab", made.kind = "extend";
    made.attention().calls = {call};
    made.recorded = {recorded()};
    return made;
  }
  void add_reference(RecordedCase* to, const PagedAttention& call) {
    out_ref.resize(9 * kLabHeads * kDim), lse_ref.resize(9 * kLabHeads);
    for_each_row(call, [&](const OracleRow& row) {
      const auto at = static_cast<size_t>(row.row * kLabHeads + row.head);
      for (Eigen::Index i = 0; i < row.out.size(); ++i)
        out_ref[at * kDim + static_cast<size_t>(i)] = static_cast<float>(row.out[i]);
      lse_ref[at] = row.lse;
    });
    to->reference.out = ConstTensorView(out_ref.data(), DType::kF32, {9, kLabHeads, kDim});
    to->reference.lse = ConstTensorView(lse_ref.data(), DType::kF64, {9, kLabHeads});
  }
};

/// The mistake that every finding names.
std::string named(const RecordedVerdict& v) {
  std::string all;
  for (const Finding& f : v.findings.findings()) {
    const std::string one = f.diagnosis.empty() ? "nothing" : f.diagnosis[0].mistake;
    if (all.empty()) all = one;
    if (all != one) all += " and " + one;
  }
  return all;
}

const RecordedOptions kDiagnose{.diagnose = true};

TEST(LabVectors, WhatIsRightIsNoFinding) {
  LabVector lab;
  lab.lab.run();
  for (const AnyCall& call : {AnyCall(lab.paged()), AnyCall(lab.ragged())}) {
    const RecordedVerdict v = judge_recorded(lab.vector(call), kDiagnose);
    EXPECT_EQ(v.findings.to_string(), "ok");
    EXPECT_EQ(v.rows, 9 * kLabHeads);
  }
}

TEST(LabVectors, AWrongWindowIsNamedWhateverOfItIsRecorded) {
  LabVector lab;
  lab.lab.run();
  lab.lab.params.window_left = 5;
  for (const AnyCall& call : {AnyCall(lab.paged()), AnyCall(lab.ragged())}) {
    for (const bool out : {true, false}) {
      for (const bool lse : {true, false}) {
        if (!out && !lse) continue;
        RecordedCase vector = lab.vector(call);
        if (!out) vector.recorded[0].out = {};
        if (!lse) vector.recorded[0].lse = {};
        const RecordedVerdict v = judge_recorded(vector, kDiagnose);
        EXPECT_EQ(v.findings.findings().size(), size_t{out} + lse);
        EXPECT_EQ(named(v), "window.ignored") << out << lse;
        EXPECT_EQ(v.gpu.out.has_value(), out);
        EXPECT_EQ(v.gpu.lse.has_value(), lse);
        EXPECT_EQ(named(judge_recorded(vector)), "nothing") << "nobody asked";
      }
    }
  }
}

TEST(LabVectors, AnIgnoredMaskIsNamed) {
  for (const auto kind : {CustomMask::Kind::kBool, CustomMask::Kind::kPacked}) {
    LabVector lab;
    lab.lab.params.causal = false;
    lab.lab.run();
    const CustomMask mask = lab.set_mask(kind);
    PagedAttention paged = lab.paged();
    RaggedAttention ragged = lab.ragged();
    paged.params.custom_mask = ragged.params.custom_mask = mask;
    EXPECT_EQ(CallScene(paged).scene().rows.masks, lab.lab.masks);
    EXPECT_EQ(CallScene(ragged).scene().rows.masks, lab.lab.masks);
    for (const AnyCall& call : {AnyCall(paged), AnyCall(ragged)}) {
      EXPECT_EQ(named(judge_recorded(lab.vector(call), kDiagnose)), "mask.ignored");
    }
    lab.lab.run();
    EXPECT_EQ(judge_recorded(lab.vector(paged), kDiagnose).findings.to_string(), "ok");
  }
}

TEST(LabVectors, ADecodeNeedsNoOffsets) {
  LabVector lab;
  lab.lab.cu_seqlens_q = {0, 1, 2, 3};
  lab.lab.run();
  PagedAttention call = lab.paged();
  call.cu_seqlens_q = {};
  call.q.shape[0] = 3;
  RecordedCase vector = lab.vector(call);
  vector.recorded[0].out.shape[0] = vector.recorded[0].lse.shape[0] = 3;
  EXPECT_EQ(judge_recorded(vector).findings.to_string(), "ok");
  std::get<PagedAttention>(vector.attention().calls[0]).params.window_left = 4;
  EXPECT_EQ(named(judge_recorded(vector, kDiagnose)), "window.ignored");
}

TEST(LabVectors, AKnownWrongResultIsCalledByItsMistake) {
  LabVector lab;
  lab.lab.run();
  lab.lab.params.window_left = 5;
  RecordedCase vector = lab.vector(lab.paged());
  vector.recorded[0].known_wrong = "engine#1";
  RecordedVerdict v = judge_recorded(vector, kDiagnose);
  EXPECT_EQ(v.findings.to_string(), "ok");
  ASSERT_EQ(v.known_wrong.size(), 1u);
  EXPECT_NE(v.known_wrong[0].find("times its bound (engine#1): as if window.ignored: "),
            std::string::npos)
      << v.known_wrong[0];
  v = judge_recorded(vector);
  ASSERT_EQ(v.known_wrong.size(), 1u);
  EXPECT_TRUE(v.known_wrong[0].ends_with("times its bound (engine#1)")) << v.known_wrong[0];
}

TEST(LabVectors, AReferenceIsJudgedByWhatItHas) {
  LabVector lab;
  lab.lab.run();
  RecordedCase vector = lab.vector(lab.paged());
  for (const bool out : {true, false}) {
    for (const bool lse : {true, false}) {
      lab.add_reference(&vector, std::get<PagedAttention>(vector.attention().calls[0]));
      if (!out) vector.reference.out = {};
      if (!lse) vector.reference.lse = {};
      RecordedVerdict v = judge_recorded(vector);
      EXPECT_EQ(v.findings.to_string(), "ok");
      EXPECT_EQ(v.reference.out.has_value(), out);
      EXPECT_EQ(v.reference.lse.has_value(), lse);
      lab.out_ref[0] += 1, lab.lse_ref[0] += 1;
      v = judge_recorded(vector);
      EXPECT_EQ(v.findings.findings().size(), size_t{out} + lse);
      for (const Finding& f : v.findings.findings()) EXPECT_EQ(f.id, "num.reference");
    }
  }
}

TEST(LabVectors, ACallThatIsRefusedIsNamedAndNotJudged) {
  LabVector lab;
  lab.lab.run();
  RecordedCase vector = lab.vector(lab.paged());
  PagedAttention bad = lab.paged();
  bad.params.num_kv_heads = 3;
  vector.attention().calls.emplace_back(bad);
  vector.recorded = {lab.recorded(1), lab.recorded(7)};
  RecordedVerdict v = judge_recorded(vector);
  ASSERT_FALSE(v.findings.ok());
  for (const Finding& f : v.findings.findings()) {
    EXPECT_TRUE(f.where.field.starts_with("call1.")) << f.to_string();
    EXPECT_FALSE(f.id.starts_with("num.")) << f.to_string();
  }
  EXPECT_EQ(v.rows, 9 * kLabHeads) << "the other call's";
  vector = lab.vector(bad);
  lab.add_reference(&vector, lab.paged());
  lab.out_ref[0] += 1;
  v = judge_recorded(vector);
  for (const Finding& f : v.findings.findings())
    EXPECT_FALSE(f.id.starts_with("num.")) << f.to_string();
  EXPECT_EQ(v.rows, 0);
  vector.attention().calls.clear();
  EXPECT_EQ(judge_recorded(vector).findings.to_string(), "ok") << "there is nothing to judge";
}

TEST(LabVectors, OnlyPagesThatAreSlotsAreATwoPartPrefill) {
  LabVector lab;
  RecordedCase vector = lab.vector(lab.paged());
  EXPECT_FALSE(is_planted(vector)) << "of another kind";
  vector.kind = "swa_merge";
  EXPECT_TRUE(is_planted(vector));
  const KvCache cache = lab.lab.cache();
  const auto changed = [&](const std::function<void(KvCache&)>& change) {
    KvCache c = cache;
    change(c);
    std::get<PagedAttention>(vector.attention().calls[0]).cache = c;
    return is_planted(vector);
  };
  EXPECT_FALSE(changed([](KvCache& c) { c.k.head_stride *= 2; }));
  EXPECT_FALSE(changed([](KvCache& c) { c.v.head_stride *= 2; }));
  EXPECT_FALSE(changed([](KvCache& c) {
    c.num_kv_heads = 1;  // every second head
  }));
  EXPECT_FALSE(changed([](KvCache& c) { c.page_size = 2, c.num_pages /= 2; }));
}

}  // namespace
}  // namespace shadowgraph::lab_vectors_test
