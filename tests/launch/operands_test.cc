// A launch's operands are what its call says of memory.
#include "launch/operands.h"

#include <gtest/gtest.h>

#include <vector>

#include "launch/merge_launch.h"
#include "launch/store_launch.h"
#include "launch/tile_launch.h"

namespace shadowgraph::operands_test {
namespace {

const Operand* find(const std::vector<Operand>& all, const std::string& name) {
  for (const Operand& o : all)
    if (o.name() == name) return &o;
  return nullptr;
}

TEST(Operands, SayWhereHowAndWhetherWritten) {
  float memory[64] = {};
  int64_t slots[2] = {};
  StoreKv c;
  c.k = ConstTensorView(memory, DType::kF32, {2, 1, 4}, {8, 4, 1});
  c.v = ConstTensorView(memory + 4, DType::kF32, {2, 1, 4}, {8, 4, 1});
  c.out_cache_loc = slots;
  c.cache.k.data = reinterpret_cast<std::byte*>(memory + 32);
  const std::vector<Operand> all = operands_of(store_launch(c));
  const Operand *k = find(all, "k"), *loc = find(all, "out_cache_loc"),
                *pool = find(all, "cache.k.data");
  ASSERT_TRUE(k != nullptr && loc != nullptr && pool != nullptr);
  EXPECT_EQ(k->form, Operand::Form::kView);
  EXPECT_EQ(k->dtype, DType::kF32);
  EXPECT_EQ(k->view.stride[0], 8);
  EXPECT_FALSE(k->written);
  EXPECT_EQ(loc->form, Operand::Form::kList);
  EXPECT_EQ(loc->dtype, DType::kI64);
  EXPECT_EQ(loc->view.shape[0], 2);
  EXPECT_EQ(pool->form, Operand::Form::kAddress);
  EXPECT_TRUE(pool->written);
  EXPECT_EQ(find(all, "cache.v.data"), nullptr);  // there is none
}

TEST(Operands, OfNestedStructsHaveTheNamesOfBoth) {
  int32_t lists[4] = {};
  TiledAttention c;
  c.plan.o_indptr = lists;
  c.params.sinks = {};
  const std::vector<Operand> all = operands_of(tile_launch(c));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name(), "plan.o_indptr");
}

TEST(Operands, OfCopiesAndFillsAreTheirAddresses) {
  int32_t a = 0, b = 0;
  const std::vector<Operand> copy = operands_of(MemcpyParams{.dst = &a, .src = &b, .width = 4});
  ASSERT_EQ(copy.size(), 2u);
  EXPECT_TRUE(copy[0].written && !copy[1].written);
  EXPECT_EQ(operands_of(MemsetParams{.dst = &a, .width = 4}).size(), 1u);
  EXPECT_TRUE(operands_of(EmptyParams{}).empty());
}

}  // namespace
}  // namespace shadowgraph::operands_test
