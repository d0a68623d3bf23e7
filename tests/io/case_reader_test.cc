#include "io/recorded/case_reader.h"

#include <gtest/gtest.h>

namespace shadowgraph::case_reader_test {
namespace {

/// One case with a tensor "t" of six i32, [2, 3], and one number of metadata.
class CaseReaderShapes : public ::testing::Test {
 protected:
  CaseReaderShapes() {
    file_.tensors["case000/t"] = {values_, DType::kI32, {2, 3}};
    file_.tensors["case000/other"] = {values_, DType::kI32, {2}};
    metadata_.value = JsonValue::Object{{"heads", JsonValue{uint64_t{3}}}};
  }
  CaseReader reader() const { return {file_, name_, id_, metadata_}; }
  /// The view's shape; empty: a finding.
  std::vector<int64_t> read(CaseReader& reader, const char* shape) {
    const ConstTensorView view = reader.tensor("t", {DType::kI32}, shape);
    return {view.shape.begin(), view.shape.begin() + view.rank};
  }

  const int32_t values_[6] = {};
  const std::string name_ = "test", id_ = "case000";
  SafetensorsFile file_;
  JsonValue metadata_;
};
using Shape = std::vector<int64_t>;

TEST_F(CaseReaderShapes, ANumberIsThatSize) {
  CaseReader good = reader(), bad = reader();
  EXPECT_EQ(read(good, "2 3"), (Shape{2, 3}));
  EXPECT_EQ(read(bad, "2 4"), Shape());
  EXPECT_EQ(bad.take_status().findings()[0].expected, "i32 [2, 4]");
}

TEST_F(CaseReaderShapes, ANameIsTheSizeThatMetadataGaveIt) {
  CaseReader good = reader(), bad = reader();
  EXPECT_EQ(good.integer("heads", 1, 9), 3);
  EXPECT_EQ(read(good, "? heads"), (Shape{2, 3}));
  bad.bind("heads", 4);
  EXPECT_EQ(read(bad, "? heads"), Shape());
  EXPECT_EQ(bad.take_status().findings()[0].expected, "i32 [any, 4]");
}

TEST_F(CaseReaderShapes, ANameWithoutASizeTakesTheFirstTensors) {
  CaseReader r = reader();
  EXPECT_EQ(read(r, "rows columns"), (Shape{2, 3}));
  EXPECT_EQ(r.size("rows"), 2);
  EXPECT_EQ(r.i32("other", "rows").size(), 2U);
  EXPECT_TRUE(r.i32("other", "columns").empty());
  EXPECT_EQ(r.take_status().findings()[0].where.field, "other");
}

TEST_F(CaseReaderShapes, AxesInParenthesesAreOneOfTheView) {
  CaseReader r = reader();
  EXPECT_EQ(read(r, "(rows columns)"), (Shape{6}));
  EXPECT_EQ(r.size("columns"), 3);
}

TEST_F(CaseReaderShapes, AxesInBracketsAreOneOfTheFile) {
  CaseReader good = reader(), bad = reader();
  EXPECT_EQ(read(good, "rows [1 3]"), (Shape{2, 1, 3}));
  EXPECT_EQ(read(bad, "rows [2 3]"), Shape());
  EXPECT_EQ(bad.take_status().findings()[0].expected, "i32 [any, 6]");
}

TEST_F(CaseReaderShapes, ATensorOfAnotherTypeTellsNoSize) {
  CaseReader r = reader();
  EXPECT_FALSE(r.tensor("t", {DType::kF32}, "rows columns").defined());
  EXPECT_EQ(r.size("rows"), -1);
}

}  // namespace
}  // namespace shadowgraph::case_reader_test
