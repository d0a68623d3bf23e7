#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "check/bounds/rounding.h"
#include "io/curated_linear.h"
#include "io/naive_linear.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::linear_vectors_test {
namespace {

/// linear/*.safetensors of the folder that SHADOWGRAPH_VECTORS names; by default the curated ones.
std::vector<std::string> linear_files() {
  const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
  const auto linear = std::filesystem::path(folder ? folder : SHADOWGRAPH_TEST_DATA) / "linear";
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(linear, error))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// Every case of linear_files() that was read, with the file's name before its id.
std::vector<RecordedCase> all_cases() {
  std::vector<RecordedCase> all;
  for (const std::string& path : linear_files()) {
    std::vector<RecordedCase> cases;
    std::vector<SkippedCase> skipped;
    EXPECT_EQ(read_recorded_cases(path, &cases, &skipped).to_string(), "ok") << path;
    for (RecordedCase& v : cases) {
      v.id = path + '#' + v.id + ' ' + v.system + ' ' + v.kind;
      all.push_back(std::move(v));
    }
  }
  return all;
}

const StateRows* rows_of(const RecordedCase& v) {
  if (const auto* recurrence = std::get_if<Recurrence>(&v.call)) return &recurrence->call.rows;
  const auto* conv = std::get_if<ConvCase>(&v.call);
  return conv == nullptr ? nullptr : &conv->call.rows;
}

TEST(LinearVectors, EveryCaseIsReadOrSkippedWithItsSystem) {
  const std::vector<std::string> files = linear_files();
  if (files.empty()) GTEST_SKIP() << "no linear/*.safetensors in the folder of SHADOWGRAPH_VECTORS";
  std::map<std::string, int> read, left_out;
  for (const std::string& path : files) {
    SafetensorsFile file;
    ASSERT_EQ(read_safetensors(path, &file).to_string(), "ok") << path;
    EXPECT_TRUE(names_systems(file)) << path;
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.to_string(), "ok") << path;
    EXPECT_EQ(p.cases.size() + p.skipped.size(), file.metadata.size()) << path;
    for (const RecordedCase& v : p.cases) ++read[v.system];
    for (const SkippedCase& s : p.skipped) ++left_out[s.kind.substr(0, s.kind.find(' '))];
  }
  for (const auto& [system, count] : read) std::printf("%s: %d read\n", system.c_str(), count);
  for (const auto& [system, count] : left_out)
    std::printf("%s: %d skipped\n", system.c_str(), count);
  for (const char* name : {"gdn", "kda", "conv", "mamba2", "lightning", "dsa", "dsv4"})
    EXPECT_GT(read[name], 4) << name;
  EXPECT_GE(read["dualchunk"], 3);
}

TEST(LinearVectors, AFileOfOtherVectorsHoldsNoLinearCases) {
  for (const char* name : kCuratedFiles) EXPECT_FALSE(names_systems(curated(name))) << name;
  EXPECT_FALSE(names_systems({}));
  SafetensorsFile file;
  file.metadata["case000"] = R"({"system":"gdn")";
  EXPECT_FALSE(names_systems(file));
  file.metadata["case000"] = R"({"system":"dsv4"})";
  EXPECT_TRUE(names_systems(file));
}

// ---- what was read, by the formulas

/// Holds where both are; tokens and rows that are not valid are left out.
void expect_near(const std::vector<double>& got, const ConstTensorView& want,
                 const std::vector<uint8_t>& valid, const std::string& what) {
  if (!want.defined()) return;
  ASSERT_EQ(std::ssize(got), want.numel()) << what;
  double largest = 0, worst = 0;
  const size_t per = valid.empty() ? 1 : got.size() / valid.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (!valid.empty() && valid[i / per] == 0) continue;
    const double right = element(want, static_cast<int64_t>(i));
    largest = std::max(largest, std::abs(right));
    worst = std::max(worst, std::abs(got[i] - right));
  }
  // A reference is stored in f32 at least.
  EXPECT_LE(worst, largest * 0x1p-23) << what;
}

/// What the reference was computed with: decays and weights before they were rounded.
RecordedCase unrounded(RecordedCase v) {
  LinearAttention& call = std::get<Recurrence>(v.call).call;
  if (v.reference.log_decay.defined() && call.log_decay.defined()) {
    call.log_decay = v.reference.log_decay;
    if (v.reference.beta.defined()) call.beta = v.reference.beta;
  }
  return v;
}

/// Nothing is said about a row that is skipped.
std::vector<uint8_t> valid_rows(const StateRows& rows) {
  std::vector<uint8_t> valid;
  for (const int32_t slot : rows.state_indices)
    valid.push_back(slot >= 0 || rows.pad != PadRow::kSkip);
  return valid;
}

TEST(LinearVectors, TheCallGivesTheReference) {
  int recurrences = 0, convolutions = 0;
  for (const RecordedCase& v : all_cases()) {
    const StateRows* rows = rows_of(v);
    if (rows == nullptr) continue;
    const bool recurrence = std::holds_alternative<Recurrence>(v.call);
    (recurrence ? recurrences : convolutions) += 1;
    const RecordedCase with = recurrence ? unrounded(v) : v;
    const NaiveResult r = recurrence ? NaiveRecurrence(with).run() : naive_conv(with);
    const std::vector<uint8_t> valid = valid_rows(*rows);
    expect_near(r.out, v.reference.out, v.out_valid, v.id + " out");
    expect_near(r.states, v.reference.states, valid, v.id + " states");
    expect_near(r.draft, v.reference.draft_states, valid, v.id + " draft");
    expect_near(r.chunks, v.reference.chunk_states, {}, v.id + " chunks");
  }
  EXPECT_GT(recurrences, 20);
  EXPECT_GT(convolutions, 5);
}

TEST(LinearVectors, TheGateGivesItsReference) {
  int gates = 0;
  for (const RecordedCase& v : all_cases()) {
    const auto* recurrence = std::get_if<Recurrence>(&v.call);
    const auto* alone = std::get_if<DecayGate>(&v.call);
    const DecayGate* gate =
        recurrence != nullptr ? (recurrence->gate ? &*recurrence->gate : nullptr) : alone;
    if (gate == nullptr || !v.reference.log_decay.defined()) continue;
    ++gates;
    const LinearAttention none;
    const NaiveDecay decay{none, gate};
    std::vector<double> log_decay, beta;
    const int64_t channels = gate->x.rank == 3 ? gate->x.shape[2] : 1;
    for (int64_t t = 0; t < gate->x.shape[0]; ++t)
      for (int64_t h = 0; h < gate->x.shape[1]; ++h) {
        for (int64_t c = 0; c < channels; ++c) log_decay.push_back(decay.log_decay(t, h, c));
        beta.push_back(decay.beta(t, h));
      }
    expect_near(log_decay, v.reference.log_decay, {}, v.id + " log_decay");
    if (gate->b.defined()) expect_near(beta, v.reference.beta, {}, v.id + " beta");
  }
  EXPECT_GT(gates, 3);
}

TEST(LinearVectors, RecordedChunksAreThoseOfTheCallThatBeginAChunkOfTheBatch) {
  int cases = 0;
  for (const RecordedCase& v : all_cases()) {
    if (v.system != "mamba2" || !v.gpu().chunk_states.defined()) continue;
    ++cases;
    const auto& call = std::get<Recurrence>(v.call).call;
    const std::vector<double> chunks = NaiveRecurrence(v).run().chunks;
    const int64_t size = call.chunk_states.numel() / call.chunk_states.shape[0];
    ASSERT_EQ(std::ssize(chunks), call.chunk_states.numel()) << v.id;
    std::vector<double> chosen;
    for (const int32_t chunk : std::get<Recurrence>(v.call).recorded_chunks)
      chosen.insert(chosen.end(), chunks.begin() + chunk * size,
                    chunks.begin() + (chunk + 1) * size);
    ASSERT_EQ(std::ssize(chosen), v.gpu().chunk_states.numel()) << v.id;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      largest = std::max(largest, std::abs(chosen[i]));
      worst = std::max(
          worst, std::abs(chosen[i] - element(v.gpu().chunk_states, static_cast<int64_t>(i))));
    }
    EXPECT_LT(worst, largest / 64) << v.id;  // bf16 products; another chunk is all wrong
  }
  EXPECT_GT(cases, 0);
}

/// How far two computations of a score in double may lie apart, the other one rounded to `stored`.
/// Dots are exact: products of e4m3 are multiples of 2^-18 below 2^18, so that 128 of them take 43
/// bits. Behind each are a product with the weight, additions, and a product with the scale.
double score_error(double score, double magnitudes, int64_t heads, DType stored) {
  const double error = 2 * gamma_of(static_cast<double>(heads) + 2, 0x1p-53) * magnitudes;
  const Rounding r = rounding_to(stored);
  return error + r.u * (std::abs(score) + error) + r.half_subnormal;
}

/// A naive computation of each: what a reader made of a case is right if this gives the reference.
TEST(LinearVectors, TheScoresOfIndexKeysAreTheReference) {
  int cases = 0;
  for (const RecordedCase& v : all_cases()) {
    const auto* c = std::get_if<IndexerLogitsCase>(&v.call);
    if (c == nullptr) continue;
    ++cases;
    const int64_t heads = c->call.q.shape[1];
    for (int64_t t = 0; t < c->call.tokens(); ++t)
      for (int64_t s = 0; s < c->call.last(t); ++s) {
        const auto* page =
            reinterpret_cast<const std::byte*>(c->call.pages.at(reinterpret_cast<const int32_t*>(
                c->call.page_table.data)[t * c->call.page_table.shape[1] + s / 64]));
        const double scale = load_float(page + 64 * 128, DType::kF32, s % 64);
        double sum = 0, magnitudes = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (int64_t i = 0; i < 128; ++i)
            dot += at(c->call.q, t, h, i) * load_float(page, DType::kE4M3, s % 64 * 128 + i);
          const double addend = at(c->call.weights, t, h) * std::max(dot, 0.0);
          sum += addend, magnitudes += std::abs(addend * scale);
        }
        sum *= scale;
        const double error = score_error(sum, magnitudes, heads, c->reference.dtype);
        EXPECT_LE(std::abs(at(c->reference, t, s) - sum), error) << v.id;
      }
  }
  EXPECT_GT(cases, 1);
}

TEST(LinearVectors, RowsThatEndABlockAreTheValidOnes) {
  int cases = 0;
  for (const RecordedCase& v : all_cases()) {
    const auto* call = std::get_if<Compress>(&v.call);
    if (call == nullptr) continue;
    ++cases;
    EXPECT_EQ(call->rows(), std::ssize(v.out_valid)) << v.id;
    for (size_t t = 0; t < v.out_valid.size(); ++t)
      EXPECT_EQ(v.out_valid[t] != 0, call->seq_lens[t] % call->shape.ratio == 0) << v.id;
  }
  EXPECT_GT(cases, 2);
}

// ---- shapes

void expect_like(const ConstTensorView& got, const ConstTensorView& call, const std::string& what) {
  if (!got.defined()) return;
  EXPECT_EQ(got.rank, call.rank) << what;
  EXPECT_EQ(got.shape, call.shape) << what;
}

TEST(LinearVectors, WhatACallWritesHasTheShapeOfTheRecordedAndNoMemory) {
  for (const RecordedCase& v : all_cases()) {
    const auto check = [&](const auto& call) {
      for (const TensorView& t : {call.out, call.states, call.draft.states})
        EXPECT_EQ(t.data, nullptr) << v.id;
      EXPECT_TRUE(call.out.defined() && call.states.defined()) << v.id;
      expect_like(v.gpu().out, call.out, v.id);
      expect_like(v.reference.out, call.out, v.id);
      expect_like(v.gpu().states, call.states, v.id);
      expect_like(v.states_before, call.states, v.id);
      EXPECT_EQ(call.states.dtype, v.gpu().states.dtype) << v.id;
      expect_like(v.gpu().draft_states, call.draft.states, v.id);
      EXPECT_EQ(call.rows.cu_seqlens_q.size(), call.rows.state_indices.size() + 1) << v.id;
      EXPECT_EQ(call.rows.cu_seqlens_q.back(), call.out.shape[0]) << v.id;
      EXPECT_FALSE(v.gpu().kernel.empty()) << v.id;
    };
    if (const auto* recurrence = std::get_if<Recurrence>(&v.call)) check(recurrence->call);
    if (const auto* conv = std::get_if<ConvCase>(&v.call)) check(conv->call);
  }
}

TEST(LinearVectors, AVerifyStepStoresNothingAndADecodeStepKeepsNoDraft) {
  int verify = 0;
  for (const RecordedCase& v : all_cases()) {
    const auto* recurrence = std::get_if<Recurrence>(&v.call);
    if (recurrence == nullptr) continue;
    const bool is_verify = v.kind.find("verify") != std::string::npos;
    verify += is_verify;
    EXPECT_EQ(recurrence->call.store, !is_verify) << v.id;
    EXPECT_EQ(recurrence->call.draft.states.defined(), is_verify) << v.id;
    EXPECT_EQ(v.reference.states.defined(), !is_verify) << v.id;
    EXPECT_EQ(recurrence->call.draft.parents.empty(), !v.kind.ends_with("tree")) << v.id;
    EXPECT_NE(recurrence->gate.has_value(), recurrence->call.log_decay.defined()) << v.id;
  }
  EXPECT_GT(verify, 3);
}

TEST(LinearVectors, PadsAreWhatTheCaseSaysOfThem) {
  std::map<std::string, PadRow> pads;
  for (const char* name : kLinearFiles) {
    for (const RecordedCase& v : parse(curated_linear(name)).cases) {
      const StateRows* rows = rows_of(v);
      if (rows == nullptr) continue;
      const bool padded = std::ranges::count(rows->state_indices, -1) > 0;
      EXPECT_EQ(v.out_valid.empty(), !padded || rows->pad != PadRow::kSkip) << v.kind;
      if (padded) pads[v.system + ' ' + v.kind] = rows->pad;
    }
  }
  EXPECT_EQ(pads, (std::map<std::string, PadRow>{{"gdn decode_pad", PadRow::kFromZero},
                                                 {"gdn verify_chain", PadRow::kFromZero},
                                                 {"kda decode_pad", PadRow::kZeroOut},
                                                 {"conv conv_prefill_pad", PadRow::kSkip},
                                                 {"conv conv_update_multi", PadRow::kSkip},
                                                 {"conv conv_update_pad", PadRow::kSkip},
                                                 {"lightning minimax_decode_pad", PadRow::kSkip},
                                                 {"lightning seg_prefill_pad", PadRow::kSkip},
                                                 {"mamba2 update_pad", PadRow::kFromZero}}));
}

TEST(LinearVectors, OutOfAPadIsAsTheCallSays) {
  for (const RecordedCase& v : all_cases()) {
    const StateRows* rows = rows_of(v);
    if (rows == nullptr || rows->pad != PadRow::kZeroOut) continue;
    for (int64_t r = 0; r < rows->rows(); ++r) {
      if (rows->state_indices[static_cast<size_t>(r)] >= 0) continue;
      const ConstTensorView& out = v.gpu().out;
      const int64_t size = out.numel() / out.shape[0];
      const int64_t token = rows->cu_seqlens_q[static_cast<size_t>(r)];
      for (int64_t i = 0; i < size; ++i) EXPECT_EQ(element(out, token * size + i), 0) << v.id;
    }
  }
}

TEST(LinearVectors, OnlyCasesThatAreKnownToDepartDo) {
  std::map<std::string, int> departing;
  for (const char* name : kLinearFiles) {
    for (const RecordedCase& v : parse(curated_linear(name)).cases) {
      if (!v.gpu().known_wrong.empty()) ++departing[v.kind];
    }
  }
  EXPECT_EQ(departing,
            (std::map<std::string, int>{
                {"minimax_prefill", 1}, {"prefill_seed_era", 1}, {"seg_prefill_all_len1", 1}}));
}

TEST(LinearVectors, RowsOfOneTokenDoNotDepart) {
  auto [id, kind, file] = linear_case_of_kind("kda prefill_seed_era");
  const RecordedCase whole = parse(file).cases.at(0);
  EXPECT_FALSE(whole.gpu().known_wrong.empty());
  for (const RecordedCase& v : all_cases()) {
    if (v.kind != whole.kind) continue;
    const auto& offsets = rows_of(v)->cu_seqlens_q;
    EXPECT_EQ(v.gpu().known_wrong.empty(), offsets.back() == std::ssize(offsets) - 1) << v.id;
  }
}

TEST(LinearVectors, APackedRowIsQueriesThenKeysThenValues) {
  const auto [id, kind, file] = linear_case_of_kind("kda decode_pad");
  const RecordedCase v = parse(file).cases.at(0);
  const auto& call = std::get<Recurrence>(v.call).call;
  const ConstTensorView& mixed = file.tensors.at(id + "/mixed_qkv");
  for (int64_t t = 0; t < mixed.shape[0]; ++t) {
    int64_t column = 0;
    for (const ConstTensorView& part : {call.q, call.k, call.v})
      for (int64_t h = 0; h < part.shape[1]; ++h)
        for (int64_t d = 0; d < part.shape[2]; ++d)
          EXPECT_EQ(part.at(t, h, d) - call.q.at(t, 0, 0), column++ * 2);
    EXPECT_EQ(column, mixed.shape[1]);
  }
}

TEST(LinearVectors, TheTreeOfChildrenAndSiblingsIsTheOneOfTheParents) {
  const auto [id, kind, file] = linear_case_of_kind("conv conv_update_tree");
  const RecordedCase v = parse(file).cases.at(0);
  const auto& parents = std::get<ConvCase>(v.call).call.draft.parents;
  const int64_t steps = file.tensors.at(id + "/next_token").shape[1];
  const auto& tree = std::get<ConvCase>(v.call).tree;
  ASSERT_EQ(tree.first_child.size(), parents.size());
  ASSERT_EQ(tree.next_sibling.size(), parents.size());
  EXPECT_TRUE(std::ranges::equal(tree.parents, parents));
  for (int64_t i = 0; i < std::ssize(parents); ++i) {
    const int64_t row = i / steps * steps;
    for (int32_t child = tree.first_child[static_cast<size_t>(i)]; child >= 0;
         child = tree.next_sibling[static_cast<size_t>(row + child)])
      EXPECT_EQ(parents[static_cast<size_t>(row + child)], i - row);
  }
}

TEST(LinearVectors, TheCasesMemoryOutlivesItsFile) {
  std::vector<RecordedCase> cases;
  for (const char* name : kLinearFiles) {
    Parsed p = parse(curated_linear(name));
    std::move(p.cases.begin(), p.cases.end(), std::back_inserter(cases));
  }
  double sum = 0;
  for (const RecordedCase& v : cases) {
    EXPECT_FALSE(v.storage.empty());
    for (int64_t i = 0; v.gpu().out.defined() && i < v.gpu().out.numel(); ++i)
      sum += element(v.gpu().out, i);
  }
  EXPECT_TRUE(std::isfinite(sum));
}

}  // namespace
}  // namespace shadowgraph::linear_vectors_test
