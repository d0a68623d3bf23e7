// What else is said of metadata that is broken: every law speaks of its own part, and nothing is
// read behind an array, whatever offsets and lengths say.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_mla.h"
#include "backends/lists/triton.h"
#include "backends/paged/ascend.h"
#include "backends/paged/flash_attention.h"
#include "backends/paged/flash_mla.h"
#include "backends/paged/trtllm_mha.h"
#include "check/broken_models.h"

namespace shadowgraph::broken_metadata_test {
namespace {

using Fa = FlashAttention;
using Fi = FlashInfer;
using Mha = TrtllmMha;
using Tr = Triton;
using Found = std::vector<std::string>;

const ModelConfig kChunks = with(kModel, [](ModelConfig& m) {
  m.prefix_chunk_tokens = 4;
  m.layers[0].mla = true;
});
const ModelConfig kFixedSplits = with(kModel, [](ModelConfig& m) { m.split.fixed_size = 4; });
const ModelConfig kUnusedPool = with(kModel, [](ModelConfig& m) { m.swa_pool = true; });
const ModelConfig kCrossFirst = with(kModel, [](ModelConfig& m) {
  m.max_encoder_len = 4;
  m.layers = {small_layer(), small_layer()};
  m.layers[0].cross = true, m.layers[0].params.causal = false;
});
const ModelConfig kRagged = with(kWindow, [](ModelConfig& m) { m.ragged_prefill = true; });

const StepShape kEncoded{.prefix_lens = {5, 8}, .encoder_lens = {4, 2}};

/// A slip, and all that is found of it.
struct Broken {
  Slip slip;
  Found found;
};

inline void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.slip.what; }

constexpr int kItems = Fi::plan(0, Fi::Part::kPaged, Fi::kRequestIndices);
void shorten(const Planting& p, int buffer, std::vector<int64_t> shape) {
  p.meta().buffers[static_cast<size_t>(buffer)].shape = std::move(shape);
}

const Broken kBroken[] =
    {
        // Lists that lead nowhere
        {{"", "OffsetsOfARowBeginBehindIt", "flashattention", kModel, kExtend, 0,
          [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 0, 1); }},
         {"len.indptr_first: cu_seqlens_q[0] is 1, expected 0",
          "len.q_extent: cu_seqlens_q[0] is 1, expected 2"}},
        {{"", "OffsetsOfTheLastRowEndBeforeIt", "flashattention", kModel, kExtend, 0,
          [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 2, 3); }},
         {"len.q_extent: cu_seqlens_q[1] is 1, expected 3"}},
        {{"", "APlanHasFewerOffsetsOfQueriesThanRows", "flashinfer", kModel, kExtend, 0,
          [](const Planting& p) { shorten(p, Fi::kQoIndptr, {2}); }},
         {"trace.shape: qo_indptr is 1, expected rows of requests"}},
        {{"", "AWindowsListHasFewerOffsetsThanRows", "flashinfer", kWindow, kExtend, 0,
          [](const Planting& p) { shorten(p, Fi::list(0, Fi::kKvIndptr), {2}); }},
         {"plan.tail: wrapper0_paged_block_valid_mask[1] is 1, expected 0"}},
        {{"", "OffsetsAreOfOtherRowsThanRequests", "flashattention", kModel, kDecode, 4,
          [](const Planting& p) { shorten(p, Fa::kCuSeqlensQ, {4}); }},
         {"trace.shape: cu_seqlens_q is 3, expected rows of requests"}},
        {{"", "PaddingHasQueriesThatAGraphHasNot", "flashattention", kModel, kDecode, 4,
          [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 4, 99); }},
         {"len.total: cu_seqlens_q[4] is 99, expected <= 4",
          "len.padding: cu_seqlens_q[3] is 96, expected 0 to 4"}},
        {{"", "PaddingHasLessThanNoQuery", "flashattention", kModel, kDecode, 4,
          [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 4, 1); }},
         {"len.indptr_monotone: cu_seqlens_q[4] is 1, expected >= 3",
          "len.padding: cu_seqlens_q[3] is -2, expected 0 to 4"}},
        {{"", "ATableHasFewerLengthsThanRows", "flashattention", kModel, kDecode, 0,
          [](const Planting& p) { shorten(p, Fa::kCacheSeqlens, {1}); }},
         {"table.capacity: page_table[1] is -1, expected 0 to 10 keys"}},
        {{"", "ALengthIsNone", "flashattention", kModel, kDecode, 0,
          [](const Planting& p) { p.put(Fa::kCacheSeqlens, 1, -3); }},
         {"table.capacity: page_table[1] is -3, expected 0 to 10 keys"}},
        {{"", "ATableHasFewerRowsThanLengths", "flashattention", kModel, kDecode, 0,
          [](const Planting& p) {
            shorten(p, Fa::kPageTable, {1, p.width(Fa::kPageTable)});
          }},
         {"table.capacity: page_table[1] is 9, expected 0 to 10 keys"}},
        {{"", "AListEndsBehindItsSlots", "flashinfer", kModel, kDecode, 0,
          [](const Planting& p) { p.put(Fi::list(0, Fi::kKvIndptr), 2, 99); }},
         {"len.total: wrapper0_kv_indptr[2] is 99, expected <= 17",
          "table.capacity: wrapper0_kv_indices[1] is 99, expected <= 17 slots"}},
        {{"", "AListBeginsBeforeItsSlots", "flashinfer", kModel, kDecode, 0,
          [](const Planting& p) { p.put(Fi::list(0, Fi::kKvIndptr), 0, -1); }},
         {"len.indptr_first: wrapper0_kv_indptr[0] is -1, expected 0"}},
        {{"", "AListEndsBeforeItBegins", "flashinfer", kModel, kDecode, 0,
          [](const Planting& p) { p.put(Fi::list(0, Fi::kKvIndptr), 1, 17); }},
         {"len.indptr_monotone: wrapper0_kv_indptr[2] is 15, expected >= 17",
          "len.kv_extent: wrapper0_kv_indptr[0] is 17 for query 0, expected 6 keys"}},
        {{"", "QueriesEndBeforeTheyBegin", "flashinfer", kModel, kExtend, 0,
          [](const Planting& p) { p.put(Fi::kQoIndptr, 1, 6); }},
         {"len.indptr_monotone: qo_indptr[2] is 5, expected >= 6",
          "len.q_extent: qo_indptr[0] is 6 (and 1 more), expected 2",
          "len.kv_extent: wrapper0_kv_indptr[0] is 7 for query 2, expected 6 keys"}},
        {{"", "AListHasFewerOffsetsThanRows", "flashinfer_mla", model_of(2, {latent_layer()}),
          kDecode, 0, [](const Planting& p) { shorten(p, FlashInferMla::kKvIndptr, {2}); }},
         {"trace.shape: kv_indptr is 1, expected rows of requests"}},
        {{"", "AListHasNoSlots", "flashinfer", kModel, kDecode, 0,
          [](const Planting& p) { shorten(p, Fi::list(0, Fi::kKvIndices), {0}); }},
         {"len.total: wrapper0_kv_indptr[2] is 15, expected <= 0"}},
        {{"", "PaddingEndsBehindItsSlots", "flashinfer", kModel, kDecode, 4,
          [](const Planting& p) {
            const int64_t slots =
                p.meta()[static_cast<size_t>(Fi::list(0, Fi::kKvIndices))].shape[0];
            p.put(Fi::list(0, Fi::kKvIndptr), 3, static_cast<int32_t>(slots));
            p.put(Fi::list(0, Fi::kKvIndptr), 4, static_cast<int32_t>(slots + 1));
          }},
         {"len.total: wrapper0_kv_indptr[4] is 65, expected <= 64",
          "len.padding: wrapper0_kv_indptr[2] is 49, expected 1 to 16",
          "table.capacity: wrapper0_kv_indices[3] is 65, expected <= 64"}},
        {{"", "PaddingBeginsBeforeItsSlots", "flashinfer", kModel, kDecode, 4,
          [](const Planting& p) {
            p.put(Fi::list(0, Fi::kKvIndptr), 2, -2);
            p.put(Fi::list(0, Fi::kKvIndptr), 3, -1);
            p.put(Fi::list(0, Fi::kKvIndptr), 4, 0);
          }},
         {"len.indptr_monotone: wrapper0_kv_indptr[2] is -2, expected >= 6"}},
        {{"", "AChunkBeginsWithAnothersKey", "flashattention", kChunks, kExtend, 0,
          [](const Planting& p) { p.put<int64_t>(Fa::kChunkSlots, 1, 12); }},
         {"table.slot: chunk_slots[0, 1] is 12: a slot of no request, expected slot 3 of token 1"}},
        // Numbers that are right when they are cut to 32 bits
        {{"", "AnIdOfAPageWraps", "flashattention", kModel, kDecode, 0,
          [](const Planting& p) {
            p.put(Fa::kPageTable, 0, p.get(Fa::kPageTable, 0) + INT32_MIN);
          }},
         {"table.page_id: page_table[0, 0] is -2147483647, expected page 1, slot 2 of token 0"}},
        {{"", "AnIdOfALargePageWraps", "trtllm_mha", kWide, kDecode, 0,
          [](const Planting& p) {
            p.put(Mha::kPageTable, 0, p.get(Mha::kPageTable, 0) + (1 << 28));
          }},
         {"table.slot: page_table[0, 0] is 268435457: a slot of no request, expected page 1, slot "
          "16 of token "
          "0"}},
        {{"", "ASlotWraps", "triton", kModel, kDecode, 0,
          [](const Planting& p) {
            p.put<int64_t>(Tr::kKvIndices, 2,
                           p.get<int64_t>(Tr::kKvIndices, 2) + (int64_t{1} << 32));
          }},
         {"table.slot: kv_indices[0, 2] is 4294967300: a slot of no request, expected slot 4 of "
          "token 2"}},
        {{"", "ASlotIsNone", "triton", kModel, kDecode, 0,
          [](const Planting& p) { p.put<int64_t>(Tr::kKvIndices, 2, -1); }},
         {"table.page_id: kv_indices[0, 2] is -1, expected slot 4 of token 2"}},
        {{"", "APageOfOneTokenIsNone", "flashattention", model_of(1, {small_layer()}), kDecode, 0,
          [](const Planting& p) { p.put(Fa::kPageTable, 1, -1); }},
         {"table.page_id: page_table[0, 1] is -1, expected slot 2 of token 1"}},
        // Which keys a query sees
        {{"", "ATokenOfATreeSeesOneMore", "flashattention", kTree, kVerify, 0,
          [](const Planting& p) { p.put(Fa::kExpandSeqlens, 0, 2); }},
         {"len.kv_extent: expand_seqlens[0] is 7 for query 0, expected 6 keys"}},
        {{"", "ATokenOfAWindowSeesMoreThanTheRowHas", "flashattention", kWindowTree, kVerify, 0,
          [](const Planting& p) { p.put(Fa::kMergedSeqlens, 0, 20); }},
         {"table.capacity: merged_table[0] is 20, expected 0 to 8 keys"}},
        {{"", "ATokenOfAWindowSeesNothing", "flashattention", kWindowTree, kVerify, 0,
          [](const Planting& p) { p.put(Fa::kMergedSeqlens, 0, 0); }},
         {"len.kv_extent: merged_seqlens[0] is 0 for query 0, expected 3 to 8 keys"}},
        {{"", "ATokenOfAWindowSeesABranchBefore", "flashattention", kWindowTree, kVerify, 0,
          [](const Planting& p) {
            for (int64_t c = 0; c < 8; ++c) p.put(Fa::kMergedTable, c, 40);
            p.put(Fa::kMergedSeqlens, 0, 8);
          }},
         {"table.slot: merged_table[0, 5] is 40: a slot of no request, expected slot 4 of token "
          "3"}},
        {{"", "APrefixBeforeATreeBeginsWithAnothersPage", "flashattention", kTree, kVerify, 0,
          [](const Planting& p) {
            p.put(Fa::kPageTable, 0, p.get(Fa::kPageTable, p.width(Fa::kPageTable)));
          }},
         {"table.slot: page_table[0, 0] is 17: token 0 of row 1 (and 2 more), expected page 1, "
          "slot 2 of token 0"}},
        {{"", "APrefixBeforeATreeHasSlots", "flashattention", kTree, kVerify, 0,
          [](const Planting& p) {
            for (int64_t c = 0; c < 3; ++c) p.put(Fa::kPageTable, c, 2 * p.get(Fa::kPageTable, c));
          }},
         {"table.unit: page_table[0, 0] is 2, the slot (and 2 more), expected page 1, slot 2 of "
          "token 0"}},
        {{"", "QueriesOfATreeShareARowWithoutKeys", "flashattention", kTree, kVerify, 0,
          [](const Planting& p) {
            p.put(Fa::kCacheSeqlens, 0, 0);
            p.put(Fa::kExpandCuSeqlensQ, 1, 3), p.put(Fa::kExpandCuSeqlensQ, 2, 3);
          }},
         {"len.q_extent: expand_cu_seqlens_q[0] is 3 (and 2 more), expected 1",
          "len.kv_extent: expand_seqlens[0] is 1 for query 0, expected 8 keys"}},
        {{"", "ASlotOfAListIsOfTheSameRow", "flashinfer", kModel, kDecode, 0,
          [](const Planting& p) {
            p.put(Fi::list(0, Fi::kKvIndices), 0, p.get(Fi::list(0, Fi::kKvIndices), 1));
          }},
         {"table.slot: wrapper0_kv_indices[0, 0] is 3: token 1 of this row, expected slot 2 of "
          "token 0"}},
        // Slots to store in
        {{"", "AStepHasMoreTokensThanSlots", "flashattention", kModel, kExtend, 0,
          [](const Planting& p) { shorten(p, Fa::kOutCacheLoc, {1}); }},
         {"batch.capacity: out_cache_loc is 1, expected >= 5 tokens"}},
        {{"", "PaddingStoresBeforeThePool", "ascend", kModel, kDecode, 4,
          [](const Planting& p) { p.put<int64_t>(Ascend::kOutCacheLoc, 3, -1); }},
         {"slot.write: out_cache_loc[3] is -1, expected 0 for padding"}},
        {{"", "TheWindowsPoolServesNoLayer", "flashattention", kUnusedPool, kDecode, 0,
          [](const Planting& p) {
            p.put<int64_t>(Fa::kSwaOutCacheLoc, 0, p.get<int64_t>(Fa::kOutCacheLoc, 0));
          }},
         {"slot.write: swa_out_cache_loc[0] is 7, expected 29"}},
        {{"", "TheFirstLayersKeysAreAnEncoders", "flashattention", kCrossFirst, kEncoded, 0,
          [](const Planting& p) { p.put<int64_t>(Fa::kOutCacheLoc, 0, 1); }},
         {"slot.write: out_cache_loc[0] is 1, expected 11"}},
        // Scalars
        {{"", "APlanHasASmallerWindow", "flashinfer", kWindow, kDecode, 0,
          [](const Planting& p) { p.meta().scalars[Fi::kWindowLeft] = 1; }},
         {"mask.window: window_left is 1, expected -1, or 2"}},
        {{"", "AMaskBeginsBeforeItsBytes", "triton", kTree, kVerify, 0,
          [](const Planting& p) {
            for (const int64_t i : {0, 1})
              p.put<int64_t>(Tr::kMaskIndptr, i, p.get<int64_t>(Tr::kMaskIndptr, i) - 1);
          }},
         {"len.indptr_first: mask_indptr[0] is -1, expected 0",
          "mask.size: mask_indptr[2] is 45, expected 44"}},
        {{"", "AMaskEndsBehindItsBytes", "triton", kTree, kVerify, 0,
          [](const Planting& p) {
            for (const int64_t i : {1, 2})
              p.put<int64_t>(Tr::kMaskIndptr, i, p.get<int64_t>(Tr::kMaskIndptr, i) + 99);
          }},
         {"len.total: mask_indptr[2] is 144, expected <= 48",
          "mask.size: mask_indptr[1] is 123, expected 24"}},
        {{"", "AMaskIsOfMoreKeysThanThePrefixHas", "flashinfer", kRagged, kExtend, 0,
          [](const Planting& p) {
            p.put(Fi::list(0, Fi::kKvIndptr), 2, 7);
            p.put(Fi::list(0, Fi::kMaskIndptr), 2, 3);
          }},
         {"len.kv_extent: wrapper0_kv_indptr[1] is 8 for query 2, expected 5 to 6 keys"}},
        {{"", "AMaskedListHasNoOffsets", "flashinfer", kRagged, kExtend, 0,
          [](const Planting& p) { shorten(p, Fi::list(0, Fi::kKvIndptr), {1}); }},
         {"mask.size: wrapper0_mask_indptr[1] is 1 (and 1 more), expected 0",
          "plan.tail: wrapper0_paged_block_valid_mask[0] is 1 (and 1 more), expected 0"}},
        // Triton's numbers, and schedules
        {{"", "ARowHasMoreSplitsThanResults", "triton", kFixedSplits, kDecode, 0,
          [](const Planting& p) {
            shorten(p, Tr::kAttnLse, {2, 2, 1});
          }},
         {"plan.split: num_kv_splits[0] is 2 (and 1 more), expected 1"}},
        {{"", "TheLastPartHasNoWork", "flashmla", kLatent, kDecode, 4,
          [](const Planting& p) {
            p.put(FlashMla::kTileMetadata, 3 * kMlaPartInts + kBeginRow, 4);
          }},
         {"plan.work: tile_metadata[131] is row 3 has more, expected all keys"}},
        {{"", "APartEndsBeforeItBegins", "flashmla", kLatent, kDecode, 4,
          [](const Planting& p) { p.put(FlashMla::kTileMetadata, 1 * kMlaPartInts + kEndRow, 0); }},
         {"plan.work: tile_metadata[2] is key 0 of row 2, expected from key 0 of row 1"}},
        {{"", "APartBeginsAKeyLate", "flashmla", kLatent, kDecode, 4,
          [](const Planting&
                 p) { p.put(FlashMla::kTileMetadata, 1 * kMlaPartInts + kBeginKey, 1); }},
         {"plan.work: tile_metadata[1] is key 1 of row 1, expected from key 0 of row 1"}},
        {{"", "APartBeginsWithASecondSplit", "flashmla", kLatent, kDecode, 4,
          [](const Planting& p) {
            p.put(FlashMla::kTileMetadata, 1 * kMlaPartInts + kBeginSplit, 1);
          }},
         {"plan.work: tile_metadata[1] is 1, expected 0 splits before"}},
        {{"", "APartEndsBehindTheRows", "flashmla", kLatent, kDecode, 4,
          [](const Planting& p) { p.put(FlashMla::kTileMetadata, 3 * kMlaPartInts + kEndRow, 4); }},
         {"plan.work: tile_metadata[3] is key 1 of row 4, expected keys of the rows"}},
        {{"", "APartEndsBehindItsRow", "flashmla", kLatent, kDecode, 4,
          [](const Planting&
                 p) { p.put(FlashMla::kTileMetadata, 1 * kMlaPartInts + kEndKey, 99); }},
         {"plan.work: tile_metadata[1] is key 99 of row 1, expected keys of the rows"}},
        {{"", "PaddingIsCut", "flashattention", kModel, kDecode, 4,
          [](const Planting& p) {
            for (const int64_t row : {2, 3}) p.put(Fa::kSchedulerMetadata, 1 + row, 8);
          }},
         {"plan.split: scheduler_metadata[3] is 8 (and 1 more), expected 1"}},
        // FlashInfer's plans
        {{"", "ACutRowIsSaidToBeWhole", "flashinfer", kSmallChunks, kDecode, 4,
          [](const Planting& p) {
            p.meta().scalars[static_cast<size_t>(Fi::split_kv(0, Fi::Part::kPaged))] = 0;
          }},
         {"plan.split: split_kv is 0, expected 1",
          "plan.work: wrapper0_paged_request_indices[1] is row 0, tile 0, chunk 1: there is none "
          "(and 1 more), expected each row's tiles and chunks once",
          "plan.tail: wrapper0_paged_block_valid_mask[4] is 1 (and 5 more), expected 0",
          "plan.work: wrapper0_paged_o_indptr[1] is 3 (and 3 more), expected 1"}},
        {{"", "ChunksHaveNoKey", "flashinfer", kSmallChunks, kDecode, 4,
          [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kKvChunkSize), 0, 0); }},
         {"plan.split: wrapper0_paged_kv_chunk_size[0] is 0, expected 2"}},
        {{"", "AnItemIsOfNoRow", "flashinfer", kSmallChunks, kExtend, 0,
          [](const Planting& p) { p.put(kItems, 0, -1); }},
         {"plan.work: wrapper0_paged_request_indices[0] is row -1, tile 0, chunk 0: there is none, "
          "expected each row's tiles and chunks once"}},
        {{"", "AnItemIsOfALaterRow", "flashinfer", kSmallChunks, kExtend, 0,
          [](const Planting& p) { p.put(kItems, 0, 2); }},
         {"plan.work: wrapper0_paged_request_indices[0] is row 2, tile 0, chunk 0: there is none, "
          "expected each row's tiles and chunks once"}},
        {{"", "AnItemIsOfNoTile", "flashinfer", kSmallChunks, kExtend, 0,
          [](const Planting&
                 p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kQoTileIndices), 0, -1); }},
         {"plan.work: wrapper0_paged_request_indices[0] is row 0, tile -1, chunk 0: there is none, "
          "expected each row's tiles and chunks once"}},
        {{"", "AnItemIsOfNoChunk", "flashinfer", kSmallChunks, kExtend, 0,
          [](const Planting&
                 p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kKvTileIndices), 0, -1); }},
         {"plan.work: wrapper0_paged_request_indices[0] is row 0, tile 0, chunk -1: there is none, "
          "expected each row's tiles and chunks once"}},
        {{"", "AnItemIsOfALaterChunk", "flashinfer", kSmallChunks, kExtend, 0,
          [](const Planting& p) {
            p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kKvTileIndices), 0, 9);
          }},
         {"plan.work: wrapper0_paged_request_indices[0] is row 0, tile 0, chunk 9: there is none, "
          "expected each row's tiles and chunks once"}},
        {{"", "PartialResultsLackRoom", "flashinfer", kSmallChunks, kDecode, 4,
          [](const Planting& p) {
            shorten(p, Fi::kPartialLse, {1, 2});
          }},
         {"plan.split: partial_lse is 10, expected <= 1 partial results"}},
};

class EveryBroken : public ::testing::TestWithParam<Broken> {};

TEST_P(EveryBroken, GivesItsFindingsAndNoOther) {
  const Status status = judge_planted(GetParam().slip);
  Found found;
  for (const Finding& f : status.findings()) found.push_back(f.to_string());
  EXPECT_EQ(found, GetParam().found);
}

INSTANTIATE_TEST_SUITE_P(MetadataLaws, EveryBroken, ::testing::ValuesIn(kBroken),
                         [](const auto& broken) { return std::string(broken.param.slip.what); });

/// Arrays that end too early: what is said of a row without one is nothing, and nothing is read.
TEST(MetadataLaws, NothingIsReadBehindAnArray) {
  const Slip kShort[] = {
      {"", "a table's lengths", "flashattention", kModel, kDecode, 0,
       [](const Planting& p) { shorten(p, Fa::kCacheSeqlens, {0}); }},
      {"", "a list's offsets", "flashinfer", kModel, kDecode, 0,
       [](const Planting& p) { shorten(p, Fi::list(0, Fi::kKvIndptr), {0}); }},
      {"", "a chunk's offsets", "flashattention", kChunks, kExtend, 0,
       [](const Planting& p) {
         shorten(p, Fa::kChunkCuSeqlensK, {1, 2});
       }},
      {"", "a mask's offsets", "triton", kTree, kVerify, 0,
       [](const Planting& p) { shorten(p, Tr::kMaskIndptr, {0}); }},
      {"", "depths of a tree", "triton", kWindowTree, kVerify, 0,
       [](const Planting& p) { shorten(p, Tr::kDepths, {3}); }},
      {"", "a schedule's parts", "flashmla", kLatent, kDecode, 4,
       [](const Planting& p) {
         shorten(p, FlashMla::kTileMetadata, {0, kMlaPartInts});
       }},
      {"", "a schedule's lengths", "flashmla", kLatent, kDecode, 4,
       [](const Planting& p) { shorten(p, FlashMla::kSeqLensK, {0}); }},
      {"", "a schedule's splits", "flashmla", kLatent, kDecode, 4,
       [](const Planting& p) { shorten(p, FlashMla::kNumSplits, {4}); }},
      {"", "splits of rows", "flashattention", kModel, kDecode, 4,
       [](const Planting& p) { shorten(p, Fa::kSchedulerMetadata, {4}); }},
      {"", "a plan's chunk", "flashinfer", kSmallChunks, kDecode, 4,
       [](const Planting& p) { shorten(p, Fi::plan(0, Fi::Part::kPaged, Fi::kKvChunkSize), {0}); }},
  };
  for (const Slip& slip : kShort) EXPECT_EQ(judge_planted(slip).to_string(), "ok") << slip.what;
}

TEST(MetadataLaws, AWorkspaceThatAStepLeavesCountedIsSeen) {
  const Step step = make_step({.page_size = 16, .prefix_lens = {5, 8}}, width_of(kWide));
  const ForwardBatch batch = step.batch();
  const Backend& backend = *find_backend("trtllm_mha");
  SimDevice device;
  Stream stream(device);
  const Arena arena(device, MetadataCase::kArenaBytes);
  Meta meta;
  ASSERT_TRUE(backend.bind(arena, Limits::exact(batch, kWide), &meta).ok());
  ASSERT_TRUE(backend.fill(batch, meta).ok());
  for (const int32_t left : {0, 1}) {
    const int32_t values[] = {left};
    ASSERT_TRUE(
        meta.arena.write(meta[Mha::kRowCounters], 1, std::span<const int32_t>(values)).ok());
    ASSERT_TRUE(meta.arena.upload(stream.handle()).ok());
    stream.synchronize();
    EXPECT_EQ(judge_metadata(backend, batch, kWide, meta, true).to_string(),
              left == 0 ? "ok" : "plan.counter: row_counters[1] is 1, expected 0");
  }
}

TEST(MetadataLaws, MetadataThatCannotBeFilledIsNotJudged) {
  const Step two = make_step({.page_size = 2, .prefix_lens = {5, 8}}, width_of(kModel));
  const Step one = make_step({.page_size = 2, .prefix_lens = {5}}, width_of(kModel));
  MetadataCase metadata(*find_backend("flashattention"), Limits::exact(one.batch(), kModel));
  const Status status = metadata.run(two.batch());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), metadata.fill(two.batch()).to_string());
}

/// Where a page has been given back, any slot of page 0 stands in its place, and no other.
TEST(MetadataLaws, AnEvictedPageIsPageZero) {
  const ModelConfig model = with(kWindow, [](ModelConfig& m) { m.swa_pool = true; });
  Step step = make_step({.page_size = 2, .prefix_lens = {7, 4}, .swa = true}, width_of(model));
  const int32_t* row = step.batch().req_to_token.row(step.req_pool_indices[0]).data();
  for (const int32_t c : {0, 1}) step.full_to_swa[static_cast<size_t>(row[c])] = 0;
  const ForwardBatch batch = step.batch();
  MetadataCase metadata(*find_backend("flashattention"), Limits::exact(batch, model));
  ASSERT_EQ(metadata.run(batch).to_string(), "ok");
  const Planting p{metadata, batch};
  for (const auto& [page, found] :
       {std::pair(5, "table.slot: swa_page_table[0, 0] is 5"), std::pair(-1,
                                                                         "table.page_id: "
                                                                         "swa_page_table[0, 0] "
                                                                         "is -1")}) {
    p.put(Fa::kSwaPageTable, 0, page);
    const Status status = metadata.judge(batch);
    ASSERT_FALSE(status.ok()) << page;
    EXPECT_TRUE(status.to_string().starts_with(found)) << status.to_string();
  }
}

/// What a row of a prefill's plan takes, by the rule of FlashInfer's kernels.
TEST(MetadataLaws, TilesAreAsLargeAsTheHeadsAllow) {
  struct Tile {
    int32_t qk, vo, q_len;
    int64_t tile;
  };
  for (const Tile& t : {Tile{64, 64, 12, 128}, Tile{192, 128, 12, 128}, Tile{256, 256, 12, 64},
                        Tile{64, 64, 2, 64}, Tile{64, 64, 1, 16}, Tile{512, 64, 12, 16},
                        Tile{512, 512, 12, 32}, Tile{512, 512, 2, 16}}) {
    ModelConfig model = kOneChunk;
    AttentionParams& params = model.layers[0].params;
    params.num_qo_heads = 16, params.head_dim_qk = t.qk, params.head_dim_vo = t.vo;
    int64_t items = 0;
    const Slip slip{"",
                    "",
                    "flashinfer",
                    model,
                    {.mode = ForwardMode::kExtend, .prefix_lens = {3}, .q_lens = {t.q_len}},
                    0,
                    [&](const Planting& p) { items = p.meta()[kItems].shape[0]; }};
    EXPECT_EQ(judge_planted(slip).to_string(), "ok");
    EXPECT_EQ(items, (t.q_len * 16 + t.tile - 1) / t.tile) << t.qk << ' ' << t.vo << ' ' << t.q_len;
  }
}

/// Metadata of a row of 9 keys, in three items of which the first is shown to all.
struct Items {
  Step step;
  ForwardBatch batch;
  MetadataCase metadata;
  Items()
      : step(make_items()),
        batch(step.batch()),
        metadata(*find_backend("flashinfer"), Limits::exact(batch, kModel)) {
    EXPECT_EQ(metadata.run(batch).to_string(), "ok");
  }
  static Step make_items() {
    Step s =
        make_step({.mode = ForwardMode::kExtend, .page_size = 2, .prefix_lens = {3}, .q_lens = {6}},
                  width_of(kModel));
    s.item_delimiters = {1, 4}, s.item_indptr = {0, 2};
    return s;
  }
};

TEST(MetadataLaws, AnItemShowsItsOwnTokensAndThoseBeforeTheFirst) {
  struct Place {
    int buffer;
    int64_t i;
    int32_t value;
    const char* found;
  };
  for (const Place& place :
       {Place{Fi::kTokenPosInItems, 3, 3,
              "token_pos_in_items_ptr[0, 3] is it does, expected query 4 does not see key 6"},
        Place{Fi::kTokenPosInItems, 2, 1,
              "token_pos_in_items_ptr[0, 2] is it does not, expected query 3 sees key 5"},
        Place{Fi::kItemPrefixLens, 0, 9,
              "token_pos_in_items_ptr[0, 0] is it does, expected query 1 does not see key 4"},
        Place{Fi::kMaxItemLens, 0, 1,
              "token_pos_in_items_ptr[0, 2] is it does not, expected query 3 sees key 5"}}) {
    Items items;
    const Planting p{items.metadata, items.batch};
    p.put(place.buffer, place.i, place.value);
    EXPECT_EQ(items.metadata.judge(items.batch).to_string(),
              "mask.items: " + std::string(place.found));
  }
}

TEST(MetadataLaws, EveryTokenBehindTheFirstDelimiterHasAPlace) {
  Items items;
  const Planting p{items.metadata, items.batch};
  shorten(p, Fi::kTokenPosInItems, {1, 3});
  EXPECT_EQ(items.metadata.judge(items.batch).to_string(),
            "table.capacity: token_pos_in_items_ptr[0] is 4, expected <= 3 tokens");
}

}  // namespace
}  // namespace shadowgraph::broken_metadata_test
