// Tensors of DLPack: each slip has its finding, and nothing is written.
#include <cstring>
#include <functional>

#include "c_api/decode.h"

namespace shadowgraph::c_api::tensors_test {
namespace {

TEST(CTensors, EachSlipHasItsFindingAndNothingIsWritten) {
  struct Slip {
    Found found;
    std::function<void(Decode&)> make;
  };
  int64_t sizes[5] = {2, -4, 8, 1, 1}, absurd[3] = {int64_t{1} << 40, int64_t{1} << 40, 1};
  const Slip slips[] = {
      {{"input.device q"}, [](Decode& d) { d.q_t.device.device_type = kDLCUDA; }},
      {{"input.device page_table"},
       [](Decode& d) { d.table_t.device.device_type = kDLCUDAManaged; }},
      {{"input.device out"},
       [](Decode& d) {
         const int newer = 17;  // than DLPack 0.6
         std::memcpy(&d.out_t.device.device_type, &newer, sizeof newer);
       }},
      {{"input.dtype out"}, [](Decode& d) { d.out_t.dtype.lanes = 4; }},
      {{"input.dtype k_cache"},
       [](Decode& d) {
         d.k_t.dtype = {kDLComplex, 64, 1};
       }},
      {{"input.dtype v_cache"}, [](Decode& d) { d.v_t.dtype.bits = 128; }},
      {{"input.dtype page_table"},
       [](Decode& d) {
         d.table_t.dtype = {kDLUInt, 32, 1};
       }},
      {{"input.dtype cache_seqlens"},
       [](Decode& d) {
         d.lens_t.dtype = {kDLFloat, 32, 1};
       }},
      {{"input.shape q"}, [](Decode& d) { d.q_t.ndim = 2; }},
      {{"input.shape q"}, [](Decode& d) { d.q_t.ndim = 0; }},
      {{"input.shape lse"}, [](Decode& d) { d.lse_t.ndim = -1; }},
      {{"input.shape k_cache"}, [](Decode& d) { d.k_t.ndim = 7; }},
      {{"input.shape q"}, [&](Decode& d) { d.q_t.shape = sizes; }},
      {{"input.overflow q"}, [&](Decode& d) { d.q_t.shape = absurd; }},
      {{"input.null q"}, [](Decode& d) { d.q_t.shape = nullptr; }},
      {{"input.null out"}, [](Decode& d) { d.out_t.data = nullptr; }},
      {{"input.null v_cache"}, [](Decode& d) { d.cache.v = nullptr; }},
      {{"input.null cache_seqlens"}, [](Decode& d) { d.pages.cache_seqlens = nullptr; }},
      {{"input.null page_table"}, [](Decode& d) { d.pages.page_table = nullptr; }},
      {{"input.align q"}, [](Decode& d) { d.q_t.byte_offset = 2; }},
      {{"input.align cache_seqlens"}, [](Decode& d) { d.lens_t.byte_offset = 1; }},
      {{"input.device k_cache", "input.dtype lse", "input.null q"},
       [](Decode& d) {
         d.k_t.device.device_type = kDLROCM, d.lse_t.dtype.code = 99, d.q_t.data = nullptr;
       }},
  };
  for (const Slip& slip : slips) {
    Decode decode;
    slip.make(decode);
    EXPECT_EQ(decode.refused(), slip.found);
  }
}

TEST(CTensors, MemoryThatCudaPinnedIsTheHosts) {
  Decode decode;
  decode.q_t.device.device_type = kDLCUDAHost;
  EXPECT_EQ(decode.run(), SG_OK);
}

TEST(CTensors, NoStridesMeanCompact) {
  Decode compact, strided;
  strided.q.strides = {32, 8, 1}, strided.out.strides = {32, 8, 1};
  strided.k.strides = {32, 16, 8, 1}, strided.lse.strides = {4, 1}, strided.lens.strides = {1};
  strided.describe();
  EXPECT_EQ(compact.run(), SG_OK);
  EXPECT_EQ(strided.run(), SG_OK);
  EXPECT_EQ(compact.out.values, strided.out.values);
  EXPECT_EQ(compact.lse.values, strided.lse.values);
}

TEST(CTensors, StridesAndOffsetsAreFollowed) {
  Decode plain, moved;
  // Queries stand behind a gap, head by head; an LSE that lies head by head.
  Tensor<float> q({3, 4, 8}, 77);
  for (size_t row = 0; row < 2; ++row)
    for (size_t head = 0; head < 4; ++head)
      for (size_t dim = 0; dim < 8; ++dim)
        q.values[32 + head * 16 + row * 8 + dim] = plain.q.values[row * 32 + head * 8 + dim];
  moved.q = q;
  moved.q.shape = {2, 4, 8}, moved.q.strides = {8, 16, 1};
  moved.lse.strides = {1, 2};
  moved.describe();
  moved.q_t.byte_offset = 32 * sizeof(float);
  EXPECT_EQ(plain.run(), SG_OK);
  EXPECT_EQ(moved.run(), SG_OK);
  EXPECT_EQ(plain.out.values, moved.out.values);
  for (size_t row = 0; row < 2; ++row)
    for (size_t head = 0; head < 4; ++head)
      EXPECT_EQ(plain.lse.values[row * 4 + head], moved.lse.values[head * 2 + row]);
}

TEST(CTensors, AnAxisOfOneElementMayHaveAnyStride) {
  Decode decode;
  int64_t strides[1] = {12345};
  Tensor<int32_t> table({1, 2}, {3, 1}), lens({1}, 3);
  decode.table = table, decode.lens = lens, decode.q.shape[0] = decode.out.shape[0] = 1;
  decode.lse.shape[0] = 1;
  decode.table.strides = {99, 1};
  decode.describe();
  decode.lens_t.strides = strides;
  EXPECT_EQ(decode.run(), SG_OK);
}

TEST(CTensors, ListsLieInOnePiece) {
  Decode decode;
  decode.lens.values = {3, 0, 2, 0}, decode.lens.strides = {2};
  decode.describe();
  EXPECT_EQ(decode.refused(), Found{"input.stride cache_seqlens"});
}

TEST(CTensors, TensorsWithoutElementsNeedNoMemory) {
  Decode decode;
  for (DLTensor* t : {&decode.q_t, &decode.out_t, &decode.lse_t, &decode.table_t, &decode.lens_t})
    t->shape[0] = 0, t->data = nullptr;
  EXPECT_EQ(decode.run(), SG_OK);
}

}  // namespace
}  // namespace shadowgraph::c_api::tensors_test
