// What real GPU kernels returned, and our engine on the same calls: all within their bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::vectors_test {
namespace {

std::vector<std::string> vector_files() {
  const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
  const auto root = std::filesystem::path(folder ? folder : SHADOWGRAPH_TEST_DATA) / "kernels";
  std::vector<std::string> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(root, missing)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) std::printf("skipped: no kernel vectors in %s\n", root.c_str());
  return files;
}

/// Cases of all files; what no reader knows is named as skipped.
const std::vector<RecordedCase>& all_cases() {
  static const std::vector<RecordedCase> cases = [] {
    std::vector<RecordedCase> all;
    for (const std::string& file : vector_files()) {
      std::vector<SkippedCase> skipped;
      const Status read = read_recorded_cases(file, &all, &skipped);
      EXPECT_TRUE(read.ok()) << read.to_string();
      for (const SkippedCase& s : skipped) {
        std::printf("skipped: %s %s: %s\n", file.c_str(), s.id.c_str(), s.reason.c_str());
      }
    }
    return all;
  }();
  return cases;
}

TEST(Vectors, NothingExceedsItsBound) {
  if (all_cases().empty()) GTEST_SKIP() << "no kernel vectors";
  std::map<DType, double> gpu;
  for (Arith arith : {Arith::kPortable, Arith::kFast}) {
    double ours = 0, ours_lse = 0;
    for (const RecordedCase& vector : all_cases()) {
      const RecordedVerdict v = judge_recorded(vector, {.arith = arith});
      EXPECT_TRUE(v.findings.ok()) << vector.kind << ": " << v.findings.to_string();
      EXPECT_GT(v.rows, 0) << v.id;
      EXPECT_EQ(v.unbounded_rows, 0) << v.id;
      EXPECT_EQ(v.gpu.out.has_value(), !vector.recorded.empty());
      ours = std::max(ours, v.ours.out.value_or(0));
      ours_lse = std::max(ours_lse, v.ours.lse.value_or(0));
      gpu[v.dtype] = std::max(gpu[v.dtype], v.gpu.out.value_or(0));
    }
    std::printf("ours (%s): out %.3f, lse %.3f\n", arith == Arith::kFast ? "fast" : "portable",
                ours, ours_lse);
    EXPECT_GE(ours, 0.05);
  }
  // The bound is near: somebody's result comes to within a factor 20 of it.
  for (DType type : {DType::kF16, DType::kBF16}) {
    ASSERT_TRUE(gpu.contains(type));
    std::printf("gpu %s: %.3f\n", std::string(name_of(type)).c_str(), gpu[type]);
    EXPECT_GE(gpu[type], 0.05);
    EXPECT_LE(gpu[type], 1);
  }
}

TEST(Vectors, KnownWrongVariantIsMeasuredAndNotAFinding) {
  int seen = 0, far_off = 0;
  for (const RecordedCase& vector : all_cases()) {
    const bool has_wrong = std::any_of(vector.recorded.begin(), vector.recorded.end(),
                                       [](const Recorded& r) { return !r.known_wrong.empty(); });
    if (!has_wrong) continue;
    ++seen;
    RecordedCase taken_at_its_word = vector;
    for (Recorded& r : taken_at_its_word.recorded) r.known_wrong.clear();
    if (!judge_recorded(taken_at_its_word).findings.ok()) ++far_off;
    const RecordedVerdict v = judge_recorded(vector);
    EXPECT_EQ(v.known_wrong.size(), 1u);
  }
  if (seen == 0) GTEST_SKIP() << "no known-wrong variants in these vectors";
  EXPECT_GT(far_off, 0);
}

TEST(Vectors, ChangedRecordingIsFound) {
  int tried = 0;
  for (const RecordedCase& vector : all_cases()) {
    const RecordedVerdict before = judge_recorded(vector);
    if (vector.recorded.empty() || before.rows == before.empty_rows || !before.findings.ok()) {
      continue;
    }
    const Recorded& first = vector.recorded[0];
    std::vector<std::byte> changed(static_cast<size_t>(first.out.numel()) *
                                   size_of(first.out.dtype));
    for (int64_t i = 0; i < first.out.numel(); ++i) {
      // The recorded tensors are dense; the largest finite change that every bound must see.
      store_float(changed.data(), first.out.dtype, i,
                  load_float(first.out.data, first.out.dtype, i) + 8);
    }
    RecordedCase wrong = vector;
    wrong.recorded.resize(1);
    wrong.recorded[0].out.data = changed.data();
    const RecordedVerdict v = judge_recorded(wrong);
    EXPECT_FALSE(v.findings.ok()) << vector.kind << " " << vector.id;
    for (const Finding& f : v.findings.findings()) {
      EXPECT_EQ(f.id, "num.recorded");
      EXPECT_EQ(f.case_id, vector.id);
    }
    if (++tried == 20) break;
  }
  if (all_cases().empty()) GTEST_SKIP() << "no kernel vectors";
  EXPECT_GT(tried, 0);
}

TEST(Vectors, UnknownKernelIsAFinding) {
  for (RecordedCase vector : all_cases()) {
    if (vector.recorded.empty()) continue;
    vector.recorded[0].kernel = "no such kernel";
    const RecordedVerdict v = judge_recorded(vector);
    ASSERT_FALSE(v.findings.ok());
    EXPECT_EQ(v.findings.findings()[0].id, "vector.case");
    EXPECT_EQ(v.findings.findings()[0].where.field, "arithmetic");
    return;
  }
  GTEST_SKIP() << "no recorded kernel in these vectors";
}

}  // namespace
}  // namespace shadowgraph::vectors_test
