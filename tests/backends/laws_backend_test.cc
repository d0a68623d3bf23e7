// The backend of roles: what each of its buffers says of one batch.
#include <gtest/gtest.h>

#include "backends/paged/laws.h"
#include "backends/paged_world.h"

namespace shadowgraph::laws_backend_test {
namespace {

const Laws kLaws;

TEST(LawsBackend, LengthsOffsetsAndEndsSayTheSame) {
  PagedWorld w;
  const PagedBatch extend(ForwardMode::kExtend, {{8, 3}, {0, 5}}, 4);
  const Meta meta = w.exact(kLaws, extend.view(), model_of(4, 2, 96));
  EXPECT_EQ(held(meta[Laws::kKvLens]), (Ints{11, 5}));
  EXPECT_EQ(held(meta[Laws::kPrefixLens]), (Ints{8, 0}));
  EXPECT_EQ(held(meta[Laws::kQueryLens]), (Ints{3, 5}));
  EXPECT_EQ(held(meta[Laws::kCuSeqlensQ]), (Ints{0, 3, 8}));
  EXPECT_EQ(held(meta[Laws::kQueryEnds]), (Ints{3, 8}));
  EXPECT_EQ(held(meta[Laws::kCuSeqlensK]), (Ints{0, 11, 16}));
  EXPECT_EQ(held(meta[Laws::kKeyEnds]), (Ints{11, 16}));
}

TEST(LawsBackend, ListsHoldTheSlotsOfTheTable) {
  PagedWorld w;
  const PagedBatch decode(ForwardMode::kDecode, {{26, 1}, {3, 1}}, 4);
  const Meta meta = w.exact(kLaws, decode.view(), model_of(4, 2, 96));
  EXPECT_EQ(held(meta[Laws::kKvIndptr]), (Ints{0, 27, 31}));
  EXPECT_EQ(held(meta[Laws::kKvLastPageLen]), (Ints{1, 1}));
  Ints slots = slots_of(decode, 0, 27);
  for (const int32_t slot : slots_of(decode, 1, 4)) slots.push_back(slot);
  Ints listed = held(meta[Laws::kKvIndices]);
  listed.resize(slots.size());
  EXPECT_EQ(listed, slots);
  EXPECT_EQ(slots_of(meta, Laws::kPageTable, 0, 27), slots_of(decode, 0, 27));
}

TEST(LawsBackend, PaddingHasTheFillOfTheGraph) {
  PagedWorld w;
  const PagedBatch one(ForwardMode::kDecode, {{8, 1}}, 4);
  ModelConfig model = model_of(4, 2, 96);
  model.seq_len_fill = 0;
  const Meta bucket = w.bind(kLaws, Limits::bucket(ForwardMode::kDecode, 3, 1, model));
  Meta meta = bucket;
  w.fill(kLaws, one.view(), meta);
  EXPECT_EQ(held(meta[Laws::kKvLens]), (Ints{9, 0, 0}));
  EXPECT_EQ(held(meta[Laws::kKvIndptr]), (Ints{0, 9, 9, 9}));
}

}  // namespace
}  // namespace shadowgraph::laws_backend_test
