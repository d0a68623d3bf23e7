// Lists of slots: where a row's begin, what padding has, what is behind the last.
#include "backends/fill/csr_rows.h"

#include <gtest/gtest.h>

#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::csr_rows_test {
namespace {

constexpr CsrIds kIds{.indptr = 0, .indices = 1};

template <class T>
class Csr {
  SimDevice device_;
  Arena arena_;

 public:
  Csr(int64_t rows, int64_t capacity) : arena_(device_, 1 << 16) {
    Binder b(*find_backend("triton"), arena_, {}, 2);
    bind_csr(b, kIds, "kv", rows, capacity, sizeof(T) == 8 ? DType::kI64 : DType::kI32);
    EXPECT_TRUE(b.bind(&meta).ok());
  }
  std::vector<T> upload() {
    Stream stream(device_);
    EXPECT_TRUE(arena_.upload(stream.handle()).ok());
    stream.synchronize();
    const auto* data = reinterpret_cast<const T*>(meta[1].data);
    return {data, data + meta[1].numel()};
  }
  std::vector<int32_t> indptr() const {
    const auto* data = reinterpret_cast<const int32_t*>(meta[0].data);
    return {data, data + meta[0].numel()};
  }
  Meta meta;
};

const int32_t kSlots[] = {7, 3, 9, 5};

TEST(CsrRows, ARowHasTheSlotsOfItsTokensBehindTheLastRows) {
  Csr<int64_t> csr(3, 8);
  Filler filler(csr.meta);
  CsrRows<int64_t> rows(filler, kIds);
  const int64_t branch[] = {40, 41};
  rows.add({.extent = {}, .slots = kSlots}, {1, 4});
  rows.add({.extent = {}, .slots = kSlots}, {0, 4}, branch, {});
  rows.add({}, {0, 1});
  rows.close();
  ASSERT_TRUE(filler.take_status().ok());
  const std::vector<int64_t> all = csr.upload();
  EXPECT_EQ(csr.indptr(), (std::vector<int32_t>{0, 3, 7, 8}));
  EXPECT_EQ(all, (std::vector<int64_t>{3, 9, 5, 7, 3, 40, 41, 0}));
}

TEST(CsrRows, ARangeMayBeginInsideTheBranch) {
  Csr<int64_t> csr(1, 1);
  Filler filler(csr.meta);
  CsrRows<int64_t> rows(filler, kIds);
  const int64_t branch[] = {40, 41};
  rows.add({.extent = {}, .slots = kSlots}, {3, 4}, branch, {});
  rows.close();
  ASSERT_TRUE(filler.take_status().ok());
  EXPECT_EQ(csr.upload(), (std::vector<int64_t>{41}));
}

TEST(CsrRows, AMapTranslatesEverySlot) {
  Csr<int32_t> csr(1, 3);
  Filler filler(csr.meta);
  CsrRows rows(filler, kIds);
  const int64_t map[] = {0, 10, 20, 30, 40, 50, 60, 70};
  const int64_t branch[] = {2};
  rows.add({.extent = {}, .slots = kSlots}, {0, 3}, branch, map);
  rows.close();
  ASSERT_TRUE(filler.take_status().ok());
  EXPECT_EQ(csr.upload(), (std::vector<int32_t>{70, 30, 20}));
}

TEST(CsrRows, MoreThanTheListHoldsIsRefused) {
  Csr<int32_t> csr(1, 2);
  Filler filler(csr.meta);
  CsrRows rows(filler, kIds);
  rows.add({.extent = {}, .slots = kSlots}, {0, 3});
  EXPECT_FALSE(filler.take_status().ok());
}

}  // namespace
}  // namespace shadowgraph::csr_rows_test
