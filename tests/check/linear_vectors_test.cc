// Recorded recurrent kernels, and what the judge must notice in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "check/bounds/linear_bound.h"
#include "check/recorded/judge.h"
#include "core/float_formats.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::linear_vectors_test {
namespace {

namespace fs = std::filesystem;

/// linear/*.safetensors of the folder that SHADOWGRAPH_VECTORS names; by default the curated ones.
std::vector<RecordedCase> recorded_cases() {
  const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
  const fs::path root = fs::path(folder == nullptr ? SHADOWGRAPH_TEST_DATA : folder) / "linear";
  std::vector<RecordedCase> cases;
  if (!fs::is_directory(root)) return cases;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    std::vector<SkippedCase> skipped;
    EXPECT_EQ(read_recorded_cases(file.string(), &cases, &skipped).to_string(), "ok") << file;
  }
  return cases;
}

bool has_law(const Status& status, const std::string& law) {
  return std::ranges::any_of(status.findings(), [&](const Finding& f) { return f.id == law; });
}

TEST(LinearVectors, EveryRecordedCaseIsWithinItsBound) {
  const std::vector<RecordedCase> cases = recorded_cases();
  if (cases.empty()) GTEST_SKIP() << "no linear/*.safetensors in the folder of SHADOWGRAPH_VECTORS";
  std::map<std::string, int> judged;
  for (const RecordedCase& v : cases) {
    const RecordedVerdict verdict = judge_recorded(v);
    EXPECT_EQ(verdict.findings.to_string(), "ok") << v.id << ' ' << v.system << ' ' << v.kind;
    EXPECT_GT(verdict.rows, 0) << v.id << ' ' << v.system << ' ' << v.kind;
    // Whoever departs is said to, and by how much.
    EXPECT_EQ(!v.gpu().known_wrong.empty(), !verdict.known_wrong.empty()) << v.id;
    ++judged[v.system];
  }
  for (const auto& [system, n] : judged) std::printf("%s: %d cases\n", system.c_str(), n);
}

/// A copy of a view's elements, of which one is changed.
struct Changed {
  Changed(const ConstTensorView& t, int64_t at, double by)
      : bytes(static_cast<size_t>(t.numel()) * size_of(t.dtype)) {
    view = TensorView(bytes.data(), t.dtype, {});
    view.rank = t.rank, view.shape = t.shape;
    int64_t step = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      view.stride[static_cast<size_t>(i)] = step;
      step *= t.shape[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < t.numel(); ++i)
      store_float(bytes.data(), t.dtype, i, static_cast<float>(element(t, i) + (i == at ? by : 0)));
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

/// The element of the largest magnitude.
int64_t largest(const ConstTensorView& t) {
  int64_t at = 0;
  for (int64_t i = 0; i < t.numel(); ++i)
    if (std::abs(element(t, i)) > std::abs(element(t, at))) at = i;
  return at;
}

bool is_judged(const RecordedCase& v) {
  const RecurrentArithmetic* a = find_recurrent_arithmetic(v.gpu().kernel);
  const auto* recurrence = std::get_if<Recurrence>(&v.call);
  return v.gpu().known_wrong.empty() && v.gpu().out.defined() && v.out_valid.empty() &&
         (recurrence == nullptr || a != nullptr);
}

TEST(LinearVectors, ANumberThatIsOffIsNoticed) {
  int tried = 0;
  for (RecordedCase v : recorded_cases()) {
    if (!is_judged(v)) continue;
    ++tried;
    const ConstTensorView out = v.gpu().out;
    const int64_t at = largest(out);
    // Products of rounded factors are bounded wide, behind a few chunks of the delta rule most of
    // all, and so are weights of 4 bits.
    const RecurrentArithmetic* a = find_recurrent_arithmetic(v.gpu().kernel);
    const bool wide = (a != nullptr && a->chunk != 0) || v.dtype == DType::kE4M3;
    const double part = wide ? 40 : 0.05;
    const Changed changed(out, at, element(out, at) * part);
    v.gpu().out = changed.view;
    EXPECT_TRUE(has_law(judge_recorded(v).findings, "num.recorded"))
        << v.id << ' ' << v.system << ' ' << v.kind;
  }
  EXPECT_GT(tried, 10);
}

TEST(LinearVectors, AReferenceThatIsAThousandthOffIsNoticed) {
  int tried = 0;
  for (RecordedCase v : recorded_cases()) {
    if (!v.reference.out.defined() || !v.out_valid.empty()) continue;
    ++tried;
    const ConstTensorView out = v.reference.out;
    if (out.dtype != DType::kF32) continue;
    const int64_t at = largest(out);
    const Changed changed(out, at, element(out, at) / 1000);
    v.reference.out = changed.view;
    EXPECT_TRUE(has_law(judge_recorded(v).findings, "num.reference"))
        << v.id << ' ' << v.system << ' ' << v.kind;
  }
  EXPECT_GT(tried, 10);
}

/// A slot that nobody owns in this step, a bit of which changed.
TEST(LinearVectors, ASlotThatNobodyWritesKeepsItsBits) {
  int tried = 0;
  for (RecordedCase v : recorded_cases()) {
    const auto* recurrence = std::get_if<Recurrence>(&v.call);
    const ConstTensorView states = v.gpu().states;
    if (recurrence == nullptr || !states.defined()) continue;
    const auto slots = recurrence->call.rows.state_indices;
    const int64_t of_slot = states.numel() / states.shape[0];
    for (int64_t slot = 0; slot < states.shape[0]; ++slot) {
      const bool written = recurrence->call.store && std::ranges::find(slots, slot) != slots.end();
      if (written) continue;
      ++tried;
      const int64_t at = slot * of_slot + of_slot - 1;
      const Changed changed(states, at, element(states, at) + 1);
      RecordedCase broken = v;
      broken.gpu().states = changed.view;
      EXPECT_TRUE(has_law(judge_recorded(broken).findings, "num.write_set"))
          << v.id << ' ' << v.system << ' ' << v.kind;
      break;
    }
  }
  EXPECT_GT(tried, 10);
}

TEST(LinearVectors, AKernelThatNobodyListsIsSaid) {
  for (RecordedCase v : recorded_cases()) {
    if (!std::holds_alternative<Recurrence>(v.call)) continue;
    v.gpu().kernel = "tomorrow's";
    EXPECT_TRUE(has_law(judge_recorded(v).findings, "num.recorded"));
    return;
  }
}

}  // namespace
}  // namespace shadowgraph::linear_vectors_test
