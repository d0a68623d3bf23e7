// Each law of metadata sees the slip that it is for, before any other law does.
#include "check/laws/metadata_laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "backends/lists/aiter.h"
#include "backends/lists/flashinfer.h"
#include "backends/lists/flashinfer_mla.h"
#include "backends/lists/triton.h"
#include "backends/paged/ascend.h"
#include "backends/paged/cutedsl_mla.h"
#include "backends/paged/dual_chunk.h"
#include "backends/paged/flash_attention.h"
#include "backends/paged/flash_mla.h"
#include "backends/paged/trtllm_mha.h"
#include "backends/recurrent/mamba2.h"
#include "backends/sparse/deepseek_v4.h"
#include "backends/sparse/deepseek_v4_hip.h"
#include "backends/sparse/dsa.h"
#include "check/broken_models.h"

namespace shadowgraph::metadata_laws_test {
namespace {

using Dc = DualChunkAttention;
using Fa = FlashAttention;
using Fi = FlashInfer;
using Mha = TrtllmMha;
using Mla = TrtllmMla;
using Rb = RecurrentBackend;
using Tr = Triton;

const ModelConfig kSwa = with(kWindow, [](ModelConfig& m) { m.swa_pool = true; });
const ModelConfig kLocal = with(kModel, [](ModelConfig& m) {
  m.attention_chunk = 4;
  m.layers[0].local = true;
});
const ModelConfig kGathered = with(kWide, [](ModelConfig& m) { m.in_graph_tables = true; });
const ModelConfig kRanks = with(kLatent, [](ModelConfig& m) { m.dcp_size = 2; });
const ModelConfig kRagged = with(kWindow, [](ModelConfig& m) { m.ragged_prefill = true; });
const ModelConfig kFewParts = with(kModel, [](ModelConfig& m) {
  m.max_context_len = 64;
  m.split.num_sms = 3;
});
const ModelConfig kDualChunk = with(kModel, [](ModelConfig& m) {
  m.layers[0].dual_chunk = true;
  m.dual_chunk = {.chunk_size = 5, .local_size = 1, .original_max_position = 4};
});

const ModelConfig kGdn = model_of(1, {recurrent_layer(RecurrentFamily::kGdn)});
const ModelConfig kMamba2 = model_of(1, {recurrent_layer(RecurrentFamily::kMamba2)});
const ModelConfig kLightning = model_of(1, {recurrent_layer(RecurrentFamily::kLightning)});
const ModelConfig kTracked = with(model_of(1, {recurrent_layer(RecurrentFamily::kKda)}),
                                  [](ModelConfig& m) { m.track_states = true; });
const StepShape kStateDecode{.prefix_lens = {5, 8}, .states = true};
const StepShape kPrompts{.mode = ForwardMode::kExtend,
                         .prefix_lens = {5, 0},
                         .q_lens = {5, 6},
                         .states = true,
                         .track = true};

using Dsa = DeepSeekSparse;
const ModelConfig kSparse = model_of(64, {small_sparse_layer(4)}, {1, 2, 3});
const ModelConfig kSparseRagged = model_of(64, {small_sparse_layer(4, true)});
const StepShape kChain{.mode = ForwardMode::kTargetVerify, .prefix_lens = {5, 4}};
using V4 = DeepseekV4;
using Hip = DeepseekV4Hip;
const ModelConfig kV4 = model_of(4, {small_v4_layer(4), small_v4_layer(2)});
const ModelConfig kV4Hip = model_of(4, {small_v4_layer(0, 4), small_v4_layer(4, 4)});
constexpr int c4(V4::GroupBufferId id) { return static_cast<int>(V4::of(V4Group::kC4, id)); }
constexpr int c128(V4::GroupBufferId id) { return static_cast<int>(V4::of(V4Group::kC128, id)); }

const Slip kSlips[] = {
    // Offsets
    {"len.indptr_first", "ListsBeginBehindTheFirst", "flashinfer_mla",
     model_of(2, {latent_layer()}), kDecode, 0,
     [](const Planting& p) { p.put(FlashInferMla::kKvIndptr, 0, 1); }},
    {"len.indptr_monotone", "OffsetsFall", "flashattention", kModel, kExtend, 0,
     [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 1, 9); }},
    {"len.total", "OffsetsEndBehindTheTokens", "trtllm_mha", kWide, kExtend, 0,
     [](const Planting& p) { p.put(Mha::kCuSeqlensQ, 2, 6); }},
    {"len.total", "TheLastEndLeavesOutARequest", "ascend", kModel, kExtend, 0,
     [](const Planting& p) { p.put(Ascend::kActualSeqLengths, 1, 2); }},
    {"len.total", "TheLastEndIsBehindTheTokens", "ascend", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Ascend::kActualSeqLengths, 3, 5); }},
    {"len.indptr_monotone", "AnEndIsBeforeTheLastOne", "ascend", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Ascend::kActualSeqLengths, 2, 1); }},
    {"len.q_extent", "OneRequestHasTheQueriesOfTwo", "flashattention", kModel, kExtend, 0,
     [](const Planting& p) { p.put(Fa::kCuSeqlensQ, 1, 3); }},
    {"len.q_extent", "QueriesAreNotSaidAlike", "trtllm_mla", kLatent, kDecode, 4,
     [](const Planting& p) { p.put(Mla::kSeqLensQ, 1, 2); }},
    {"len.q_extent", "EndsOfQueriesAreThoseOfACapture", "ascend", kModel, kExtend, 0,
     [](const Planting& p) { p.put(Ascend::kActualSeqLengths, 0, 1); }},
    // Lengths
    {"trace.shape", "LengthsOfFewerRows", "trtllm_mha", kWide, kDecode, 0,
     [](const Planting& p) { p.meta().buffers[Mha::kKvLens].shape = {3}; }},
    {"len.kv_extent", "LengthsLeaveOutTheNewToken", "trtllm_mha", kWide, kDecode, 4,
     [](const Planting& p) { p.put(Mha::kKvLens, 1, 8); }},
    {"len.kv_extent", "OffsetsOfKeysAreThePrefixes", "trtllm_mha", kWide, kDecode, 0,
     [](const Planting& p) { p.put(Mha::kCuSeqlensK, 1, 5); }},
    {"len.kv_extent",
     "TheWidthIsTakenForTheQueries",
     "trtllm_mla",
     model_of(64, {latent_layer()}, {1, 2, 3}),
     {.mode = ForwardMode::kDraftExtendV2, .prefix_lens = {5, 4}, .q_lens = {3, 3}},
     4,
     [](const Planting& p) { p.put(Mla::kSeqLensK, 0, 7); }},
    {"len.kv_extent", "LengthsOfAllRanks", "cutedsl_mla", kRanks, kDecode, 0,
     [](const Planting& p) { p.put(CuteDslMla::kKvLens, 1, 9); }},
    {"len.kv_extent", "AllRanksAreThisOne", "cutedsl_mla", kRanks, kDecode, 0,
     [](const Planting& p) { p.put(CuteDslMla::kGlobalSeqLensK, 1, 5); }},
    {"len.kv_extent", "ACascadeLacksAPage", "flashattention", kTree, kDraft, 0,
     [](const Planting& p) { p.put(Fa::kCacheSeqlens, 0, 2); }},
    {"len.kv_extent", "ATokenOfATreeSeesOneLess", "flashattention", kTree, kVerify, 0,
     [](const Planting& p) { p.put(Fa::kExpandSeqlens, 2, 1); }},
    {"len.kv_extent", "AListOfAWindowIsAKeyShort", "triton", kWindow, kDecode, 0,
     [](const Planting& p) { p.put(Tr::kWindowKvIndptr, 2, 5); }},
    {"len.padding", "PaddingHasNoKey", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fa::kCacheSeqlens, 3, 0); }},
    {"len.padding", "PaddingHasMoreKeysThanATable", "trtllm_mha", kWide, kDecode, 4,
     [](const Planting& p) { p.put(Mha::kKvLens, 2, 1000); }},
    {"len.copy", "OffsetsOfPaddingAreOthers", "trtllm_mha", kWide, kDecode, 4,
     [](const Planting& p) { p.put(Mha::kKvLens, 3, 2); }},
    {"len.chunk_parts", "TheChunkBeforeIsInNoPart", "dual_chunk", kDualChunk, kDecode, 4,
     [](const Planting& p) { p.put(Dc::kSeqLensSucc, 0, 0); }},
    {"len.chunk_parts", "TheChunkBeforeIsInTwoParts", "dual_chunk", kDualChunk, kDecode, 0,
     [](const Planting& p) { p.put(Dc::kSeqLensInter, 1, 8); }},
    {"len.chunk_parts", "AChunkEndsBeforeItsLastToken", "dual_chunk", kDualChunk, kExtend, 0,
     [](const Planting& p) { p.put(Dc::kSeqLensIntra, 1, 3); }},
    {"len.chunk_factor", "AFactorIsThatOfAShortPrompt", "dual_chunk", kDualChunk, kExtend, 0,
     [](const Planting& p) { p.put(Dc::kScalingFactor, 0, 1.0F); }},
    {"len.q_extent", "OffsetsAreSumsOfArange", "dual_chunk", kDualChunk, kDecode, 0,
     [](const Planting& p) { p.put(Dc::kQueryStartLoc, 1, 0); }},
    {"len.padding", "PaddingHasMoreKeysThanItsChunks", "dual_chunk", kDualChunk, kDecode, 4,
     [](const Planting& p) { p.put(Dc::kSeqLensIntra, 3, 1000); }},
    {"len.bound", "TheLongestChunkIsTooShort", "dual_chunk", kDualChunk, kDecode, 0,
     [](const Planting& p) { p.meta().scalars[Dc::kMaxSucc] = 3; }},
    {"table.slot", "AChunkBeforeBeginsAPageLate", "dual_chunk", kDualChunk, kDecode, 0,
     [](const Planting& p) { p.put(Dc::kBlockTablesSucc, 0, p.get(Dc::kBlockTablesSucc, 1)); }},
    {"len.last_page", "LastPagesHoldTheRequest", "flashinfer", kModel, kDecode, 0,
     [](const Planting& p) { p.put(Fi::kLastPageLen, 1, 9); }},
    // Tables and lists
    {"table.capacity", "ALengthIsBehindItsRow", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fa::kCacheSeqlens, 0, 1000); }},
    {"table.page_id", "APageIsNone", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fa::kPageTable, p.width(Fa::kPageTable), -1); }},
    {"table.unit", "ATableHasSlots", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) {
       for (int64_t c = 0; c < 3; ++c) p.put(Fa::kPageTable, c, 2 * p.get(Fa::kPageTable, c));
     }},
    {"table.unit", "AListHasPages", "triton", kModel, kDecode, 0,
     [](const Planting& p) {
       for (int64_t i = 0; i < 6; ++i)
         p.put<int64_t>(Tr::kKvIndices, i, p.get<int64_t>(Tr::kKvIndices, i) / 2);
     }},
    {"table.slot", "TwoPagesAreExchanged", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) {
       const int32_t first = p.get(Fa::kPageTable, 0);
       p.put(Fa::kPageTable, 0, p.get(Fa::kPageTable, 1));
       p.put(Fa::kPageTable, 1, first);
     }},
    {"table.slot", "APageOfANeighbour", "trtllm_mha", kWide, kDecode, 0,
     [](const Planting& p) {
       p.put(Mha::kPageTable, 0, p.get(Mha::kPageTable, p.width(Mha::kPageTable)));
     }},
    {"table.slot", "TheWindowsPoolIsNotTranslated", "trtllm_mha",
     with(kSwa, [](ModelConfig& m) { m.page_size = 16; }), kDecode, 0,
     [](const Planting& p) { p.put(Mha::kSwaPageTable, 0, p.get(Mha::kPageTable, 0)); }},
    {"table.slot", "ABranchHasItsNeighboursDraft", "flashinfer", kTree, kDraft, 0,
     [](const Planting& p) {
       p.put(Fi::list(0, Fi::kKvIndices), 5, p.get(Fi::list(0, Fi::kKvIndices), 11));
     }},
    {"table.slot", "ATokenOfATreeSeesItsSibling", "flashattention", kTree, kVerify, 0,
     [](const Planting& p) { p.put(Fa::kTreeTable, 4, p.get(Fa::kTreeTable, 4) + 1); }},
    {"table.slot", "AMergedRowHasAnotherDraft", "flashattention", kWindowTree, kVerify, 0,
     [](const Planting& p) { p.put(Fa::kMergedTable, 5, p.get(Fa::kMergedTable, 5) + 1); }},
    {"table.slot", "AMergedRowBeginsWithAnothersKey", "flashattention", kWindowTree, kVerify, 0,
     [](const Planting& p) { p.put(Fa::kMergedTable, 0, 12); }},
    {"table.slot", "APrefixBeginsWithItsDraftsPage", "flashattention",
     model_of(2, {small_layer(2)}, {2, 2, 3}), kDraft, 0,
     [](const Planting& p) { p.put(Fa::kMergedTable, 0, p.get(Fa::kMergedTable, 2)); }},
    {"table.slot", "AChunkBeginsAPageLate", "flashattention", kLocal, kDecode, 0,
     [](const Planting& p) { p.put(Fa::kLocalTable, 0, p.get(Fa::kLocalTable, 0) - 1); }},
    {"table.slot", "PaddingReadsARequestsPage", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) {
       p.put(Fa::kPageTable, 3 * p.width(Fa::kPageTable), p.get(Fa::kPageTable, 0));
     }},
    {"table.slot", "PaddingReadsARequestsSlot", "flashinfer", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fi::list(0, Fi::kKvIndices), 15, 2); }},
    {"table.pool_row", "ARowOfThePoolIsABatchs", "trtllm_mha", kGathered, kDecode, 4,
     [](const Planting& p) { p.put(Mha::kPoolRows, 0, 0); }},
    // Slots
    {"slot.write", "TheFirstTokenIsStoredElsewhere", "flashattention", kModel, kExtend, 0,
     [](const Planting& p) { p.put<int64_t>(Fa::kOutCacheLoc, 0, 1); }},
    {"slot.write", "TheWindowsPoolHasTheSlotsOfThePool", "triton", kSwa, kDecode, 0,
     [](const Planting& p) {
       p.put<int64_t>(Tr::kSwaOutCacheLoc, 1, p.get<int64_t>(Tr::kOutCacheLoc, 1));
     }},
    {"slot.write", "PaddingStoresInALiveSlot", "ascend", kModel, kDecode, 4,
     [](const Planting& p) { p.put<int64_t>(Ascend::kOutCacheLoc, 3, 1); }},
    {"slot.duplicate", "TwoTokensShareASlot", "flashinfer", kModel, kExtend, 0,
     [](const Planting& p) {
       p.put<int64_t>(Fi::kOutCacheLoc, 0, p.get<int64_t>(Fi::kOutCacheLoc, 1));
     }},
    // Scalars
    {"len.bound", "TheLongestQueryIsTheOffsetsEnd", "flashattention", kModel, kExtend, 0,
     [](const Planting& p) { p.meta().scalars[Fa::kMaxSeqLenQ] = 5; }},
    {"len.bound", "TheLongestQueryIsTheFirst", "triton", kModel, kExtend, 0,
     [](const Planting& p) { p.meta().scalars[Tr::kMaxExtendLen] = 2; }},
    {"len.bound", "TheLongestQueryIsAnotherBatchs", "trtllm_mha", kWide, kExtend, 0,
     [](const Planting& p) { p.meta().scalars[Mha::kMaxSeqLenQ] = ++p.meta().limits.max_q_len; }},
    {"len.bound", "TheLongestQueryIsAllQueries", "aiter", kModel, kExtend, 0,
     [](const Planting& p) { p.meta().scalars[Aiter::kMaxQLen] = 5; }},
    {"len.bound", "TheLongestKeysAreThePrefix", "trtllm_mha", kWide, kDecode, 0,
     [](const Planting& p) { p.meta().scalars[Mha::kMaxSeqLenK] = 8; }},
    {"len.bound", "AllQueriesAreThoseOfARow", "trtllm_mla", kLatent, kDecode, 0,
     [](const Planting& p) { p.meta().scalars[Mla::kSumSeqLensQ] = 1; }},
    {"len.baked_q",
     "AGraphIsCapturedWithOneQuery",
     "flashattention",
     model_of(2, {small_layer()}, {1, 2, 3}),
     {.mode = ForwardMode::kTargetVerify, .prefix_lens = {5, 4}},
     4,
     [](const Planting& p) { p.meta().limits.max_q_len = 1; }},
    // Masks
    {"mask.window", "APlanIsMadeWithoutTheWindow", "flashinfer", kWindow, kExtend, 0,
     [](const Planting& p) { p.meta().scalars[Fi::kWindowLeft] = -1; }},
    {"mask.window", "ATokenStandsAtItsPlace", "triton", kWindowTree, kVerify, 0,
     [](const Planting& p) { p.put(Tr::kDepths, 2, p.get(Tr::kDepths, 2) + 1); }},
    {"mask.size", "AMaskEndsAByteLate", "flashinfer", kTree, kVerify, 0,
     [](const Planting& p) { p.put(Fi::list(0, Fi::kMaskIndptr), 1, 4); }},
    {"mask.bit", "ATokenSeesItsChild", "triton", kTree, kVerify, 0,
     [](const Planting& p) { p.put<uint8_t>(Tr::kCustomMask, 6, 1); }},
    {"mask.bit", "AQueryOfAPackedMaskSeesNothing", "flashinfer", kTree, kVerify, 0,
     [](const Planting& p) { p.put<uint8_t>(Fi::list(0, Fi::kMask), 0, 0); }},
    {"mask.bit", "ThePrefixHasNoWindow", "flashinfer", kRagged, kExtend, 0,
     [](const Planting& p) { p.put<uint8_t>(Fi::list(0, Fi::kMask), 0, 15); }},
    {"mask.bit", "ThereAreBitsBehindTheLast", "flashinfer", kRagged, kExtend, 0,
     [](const Planting& p) {
       const uint8_t last = p.get<uint8_t>(Fi::list(0, Fi::kMask), 0);
       p.put<uint8_t>(Fi::list(0, Fi::kMask), 0, static_cast<uint8_t>(last | 0x80));
     }},
    // Plans
    {"plan.split", "ChunksAreOfTheStepBefore", "flashinfer", kSmallChunks, kDecode, 4,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kKvChunkSize), 0, 4); }},
    {"plan.split", "AWholeRowIsSaidToBeCut", "flashinfer", kOneChunk, kDecode, 4,
     [](const Planting& p) {
       p.meta().scalars[static_cast<size_t>(Fi::split_kv(0, Fi::Part::kPaged))] = 1;
     }},
    {"plan.split", "ARowIsCutByTheOldLengths", "triton", kModel, kDecode, 0,
     [](const Planting& p) { p.put(Tr::kNumKvSplits, 1, p.get(Tr::kNumKvSplits, 1) - 1); }},
    {"plan.capacity", "AGridIsTooSmall", "flashinfer", kSmallChunks, kDecode, 4,
     [](const Planting& p) {
       const int items = Fi::plan(0, Fi::Part::kPaged, Fi::kRequestIndices);
       p.meta().buffers[static_cast<size_t>(items)].shape = {3};
     }},
    {"plan.work", "ARequestIsPlannedTwice", "flashinfer", kSmallChunks, kDecode, 4,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kRequestIndices), 0, 1); }},
    {"plan.work", "AChunkIsLeftOut", "flashinfer", kSmallChunks, kExtend, 0,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kKvTileIndices), 1, 0); }},
    {"plan.work", "ATileOfQueriesIsNone", "flashinfer", kSmallChunks, kExtend, 0,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kQoTileIndices), 0, 1); }},
    {"plan.work", "PartialResultsLieElsewhere", "flashinfer", kSmallChunks, kDecode, 4,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kOIndptr), 1, 1); }},
    {"plan.work", "AMergeLeavesOutAChunk", "flashinfer", kSmallChunks, kExtend, 0,
     [](const Planting& p) { p.put(Fi::plan(0, Fi::Part::kPaged, Fi::kMergeIndptr), 1, 1); }},
    {"plan.tail", "AGridRunsMoreThanItsWork", "flashinfer", kModel, kDecode, 4,
     [](const Planting& p) {
       p.put<uint8_t>(Fi::plan(0, Fi::Part::kPaged, Fi::kBlockValidMask), 4, 1);
     }},
    // States
    {"state.slots", "ASlotIsFoundByTheRowOfTheBatch", "gdn", kGdn, kStateDecode, 4,
     [](const Planting& p) { p.put(Rb::kStateIndices, 1, 1); }},
    {"state.slots", "PaddingIsSlotZero", "mamba2", kMamba2, kStateDecode, 4,
     [](const Planting& p) { p.put(Rb::kStateIndices, 3, 0); }},
    {"state.slots", "PaddingIsNoSlotWhereItIsWritten", "ascend_gdn", kGdn, kStateDecode, 4,
     [](const Planting& p) { p.put(Rb::kStateIndices, 2, -1); }},
    {"state.initial", "AFreshRequestStartsFromItsSlot", "lightning", kLightning, kPrompts, 0,
     [](const Planting& p) { p.put<uint8_t>(Rb::kInitialStates, 1, 1); }},
    {"state.chunks", "ChunksAreCountedInEachRequest", "mamba2", kMamba2, kPrompts, 0,
     [](const Planting& p) { p.put(Mamba2::kChunkOffsets, 2, 0); }},
    {"state.chunks", "AChunkIsAnother", "mamba2", kMamba2, kPrompts, 0,
     [](const Planting& p) { p.put(Mamba2::kChunkIndices, 1, 0); }},
    {"state.chunks", "ARunIsLeftOut", "mamba2", kMamba2, kPrompts, 0,
     [](const Planting& p) { p.put(Mamba2::kChunkCount, 0, 3); }},
    {"state.chunks", "ATokenIsTheRequestsBefore", "mamba2", kMamba2, kPrompts, 0,
     [](const Planting& p) { p.put(Mamba2::kSeqIdx, 5, 0); }},
    {"state.track", "ASnapshotGoesIntoALiveSlot", "kda", kTracked, kPrompts, 0,
     [](const Planting& p) { p.put(Rb::kTrackSlots, 0, 2); }},
    // Sparse layers
    {"sparse.seen", "ADraftSeesTheNextOne", "dsa", kSparse, kChain, 0,
     [](const Planting& p) { p.put(Dsa::kExpanded, 1, 8); }},
    {"sparse.seen", "ScoresOfOneKeyTooFew", "dsa", kSparse, kDecode, 4,
     [](const Planting& p) { p.put(Dsa::kContextLens, 0, 5); }},
    {"sparse.counts", "MoreAreChosenThanThereAre", "dsa", kSparse, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kDsaCacheSeqlens, 2, 5); }},
    {"sparse.counts", "OffsetsOfAChoiceSumWhatIsSeen", "dsa", kSparse, kDecode, 0,
     [](const Planting& p) { p.put(Dsa::kDsaCuSeqlensK, 1, 6); }},
    {"sparse.counts", "TokensAreCountedByTwos", "dsa", kSparse, kDecode, 4,
     [](const Planting& p) { p.put(Dsa::kDsaCuSeqlensQ, 2, 4); }},
    {"sparse.table", "ADraftsRowIsTheNextRequests", "dsa", kSparse, kChain, 4,
     [](const Planting& p) {
       const int64_t width = p.width(Dsa::kPageTable1);
       p.put(Dsa::kPageTable1, 2 * width, p.get(Dsa::kPageTable1, 3 * width));
     }},
    {"sparse.table", "PagesAreSlots", "dsa", kSparse, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kRealPageTable, 0, 64); }},
    {"sparse.keys", "KeysBeginWithTheRequestBefore", "dsa", kSparse, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kKs, 2, 0); }},
    {"sparse.keys", "KeysEndWithTheRequests", "dsa", kSparse, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kKe, 0, 7); }},
    {"sparse.keys", "ATokenIsAnotherRequests", "dsa", kSparse, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kTokenToBatch, 2, 0); }},
    {"sparse.keys", "OffsetsCountNewTokens", "dsa", kSparseRagged, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kTopkOffset, 2, 2); }},
    {"sparse.keys", "GatheredKeysAreOthers", "dsa", kSparseRagged, kExtend, 0,
     [](const Planting& p) { p.put(Dsa::kFlatSlots, 3, p.get(Dsa::kFlatSlots, 4)); }},
    {"len.padding", "PaddingSeesMoreThanATableHas", "dsa", kSparse, kDecode, 4,
     [](const Planting& p) { p.put(Dsa::kExpanded, 3, 1000); }},
    // Latents. Tokens 6 and 9 of a decode
    {"latent.window", "ATokenHasTheLengthOfAnother", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kSeqLens, 0, 9); }},
    {"latent.window", "APositionIsTheLength", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kPositions, 1, 9); }},
    {"latent.window", "AWindowBeginsWithItsOldest", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kWindow, 0, p.get(V4::kWindow, 3)); }},
    {"latent.window", "AWindowHasOneMore", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kWindow, 4, 2); }},
    {"latent.window", "AWindowIsOneShort", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kWindowLens, 0, 3); }},
    {"latent.window", "AListHasNotWholeColumns", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) {
       p.meta().buffers[V4::kWindow].shape = {4, 63};
     }},
    {"latent.window", "ARingIsReadOldestFirst", "deepseek_v4_hip", kV4Hip, kDecode, 4,
     [](const Planting& p) {
       const int list = static_cast<int>(Hip::list(0));
       p.put(list, 0, p.get(list, 3));
     }},
    {"latent.window", "ARowOfThePrefillIsAnother", "deepseek_v4_hip", kV4Hip, kExtend, 0,
     [](const Planting& p) { p.put(static_cast<int>(Hip::own(Hip::kOwnList)), 1, 0); }},
    {"sparse.table", "ATokensPageIsTheNextRequests", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kPageTable, 1, 1); }},
    {"latent.blocks", "ABlockThatIsNotWholeIsCounted", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(c4(V4::kLensRaw), 0, 2); }},
    {"latent.blocks", "NoBlockIsALengthOfZero", "deepseek_v4", kV4,
     StepShape{.prefix_lens = {1, 8}}, 4,
     [](const Planting& p) { p.put(c4(V4::kLensClamp1), 0, 0); }},
    {"latent.blocks", "NoBlockIsSlotZero", "deepseek_v4", kV4, StepShape{.prefix_lens = {1, 8}}, 4,
     [](const Planting& p) { p.put(c128(V4::kBlocks), 0, 0); }},
    {"latent.blocks", "ABlockIsAnotherPages", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(c128(V4::kBlocks), 2, p.get(c128(V4::kBlocks), 0)); }},
    {"latent.blocks", "ABlockOfAUnifiedPoolIsARings", "deepseek_v4_hip", kV4Hip, kDecode, 4,
     [](const Planting& p) { p.put(static_cast<int>(Hip::list(1)), 4, 5); }},
    {"latent.block_end", "ABlockEndsByThePosition", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put<int64_t>(c4(V4::kOutLoc), 1, 3); }},
    {"latent.block_end", "PaddingEndsABlock", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put<int64_t>(c128(V4::kOutLoc), 3, 9); }},
    {"latent.state", "AStateIsTheNextRequests", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(c4(V4::kStatePages), 0, p.get(c4(V4::kStatePages), 1)); }},
    {"latent.state", "TheBlockBeforeIsTheBlockItself", "deepseek_v4", kV4,
     StepShape{.prefix_lens = {7, 8}}, 4,
     [](const Planting& p) { p.put(c4(V4::kExtraPages), 0, p.get(c4(V4::kStatePages), 0)); }},
    {"slot.write", "PaddingStoresWhereARequestDoes", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) {
       p.put<int64_t>(V4::kWindowOutLoc, 3, p.get<int64_t>(V4::kWindowOutLoc, 0));
     }},
    {"len.padding", "PaddingSeesNothing", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kWindowLens, 3, 0); }},
    {"len.padding", "PaddingStandsElsewhere", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kPositions, 3, 5); }},
    {"latent.window", "PaddingIsARequests", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(V4::kPoolRows, 3, 1); }},
    {"latent.window", "PaddingSeesARequestsToken", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) {
       const auto columns = p.meta().buffers[V4::kWindow].shape[1];
       p.put(V4::kWindow, 3 * columns, p.get(V4::kWindow, 0));
     }},
    {"latent.blocks", "PaddingSeesABlock", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) { p.put(c128(V4::kBlocks), 3 * kV4ListColumns, 0); }},
    {"sparse.table", "PaddingHasARequestsPage", "deepseek_v4", kV4, kDecode, 4,
     [](const Planting& p) {
       const auto columns = p.meta().buffers[V4::kPageTable].shape[1];
       p.put(V4::kPageTable, 3 * columns, 1);
     }},
    {"plan.work", "APartBeginsBehindAKey", "flashmla", kLatent, kDecode, 4,
     [](const Planting& p) { p.put(FlashMla::kTileMetadata, kMlaPartInts + kBeginRow, 0); }},
    {"plan.work", "SplitsOfARowAreCountedTwice", "flashmla", kLatent, kDecode, 4,
     [](const Planting& p) { p.put(FlashMla::kNumSplits, 2, 3); }},
    {"plan.split", "TheMachineIsSharedByMoreHeadsThanThereAre", "flashmla", kLatent, kDecode, 4,
     [](const Planting& p) { p.meta().buffers[FlashMla::kTileMetadata].shape[0] /= 2; }},
    {"plan.split", "OnePartHasTheWorkOfTwo", "flashmla", kLatent, kDecode, 4,
     [](const Planting& p) {
       const int32_t len = p.get(FlashMla::kSeqLensK, 1);
       p.put(FlashMla::kTileMetadata, kEndRow, 1);
       p.put(FlashMla::kTileMetadata, kEndKey, len);
       p.put(FlashMla::kTileMetadata, kMlaPartInts + kBeginRow, 4);
     }},
    {"plan.counter", "TheCounterIsWhereAReplayLeftIt", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fa::kSchedulerMetadata, 0, 4); }},
    {"plan.split", "ARowHasTheSplitsOfAnotherMachine", "flashattention", kModel, kDecode, 4,
     [](const Planting& p) { p.put(Fa::kSchedulerMetadata, 2, 2); }},
    {"plan.split", "ARowHasTheSplitsOfABatchWithoutPadding", "flashattention", kFewParts,
     StepShape{.prefix_lens = {39, 8}}, 4,
     [](const Planting& p) { p.put(Fa::kSchedulerMetadata, 1, 2); }},
};

class EverySlip : public ::testing::TestWithParam<Slip> {};

TEST_P(EverySlip, IsSeenByItsLawFirst) {
  const Status status = judge_planted(GetParam());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, GetParam().law) << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(MetadataLaws, EverySlip, ::testing::ValuesIn(kSlips),
                         [](const auto& slip) { return std::string(slip.param.what); });

TEST(MetadataLaws, EveryLawHasASlip) {
  std::set<std::string_view> planted = {"batch.capacity", "mask.items"};  // below
  planted.insert("state.parents");                                        // recurrent_world_test.cc
  planted.insert("sparse.choice");                                        // sparse_world_test.cc
  planted.insert("mem.not_uploaded");                                     // below
  for (const Slip& slip : kSlips) planted.insert(slip.law);
  for (const MetadataLaw& one : all_metadata_laws())
    EXPECT_TRUE(planted.contains(one.law.law().id)) << one.law.law().id;
}

TEST(MetadataLaws, LinesOfOneFunctionAreTogether) {
  std::set<void (*)(const MetaFacts&, LawReport&)> done;
  const auto lines = all_metadata_laws();
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool again = i > 0 && lines[i - 1].judge == lines[i].judge;
    EXPECT_TRUE(again || done.insert(lines[i].judge).second) << i;
  }
}

TEST(MetadataLaws, MetadataOfFewerRequestsThanTheBatchHas) {
  const Step two = make_step({.page_size = 2, .prefix_lens = {5, 8}}, width_of(kModel));
  const Step one = make_step({.page_size = 2, .prefix_lens = {5}}, width_of(kModel));
  MetadataCase metadata(*find_backend("flashattention"), Limits::exact(one.batch(), kModel));
  ASSERT_EQ(metadata.run(one.batch()).to_string(), "ok");
  const Status status = metadata.judge(two.batch());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "batch.capacity");
}

TEST(MetadataLaws, ItemsThatShowEachOther) {
  Step step =
      make_step({.mode = ForwardMode::kExtend, .page_size = 2, .prefix_lens = {3}, .q_lens = {6}},
                width_of(kModel));
  step.item_delimiters = {1, 4}, step.item_indptr = {0, 2};
  const ForwardBatch batch = step.batch();
  MetadataCase metadata(*find_backend("flashinfer"), Limits::exact(batch, kModel));
  ASSERT_EQ(metadata.run(batch).to_string(), "ok");
  const Planting p{metadata, batch};
  p.put(Fi::kTokenPosInItems, 3, 3);  // the second delimiter's
  const Status status = metadata.judge(batch);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].id, "mask.items") << status.to_string();
}

TEST(MetadataLaws, AFillThatDoesNotReachTheDeviceIsSeenWhereverItStays) {
  const Step step = make_step({.page_size = 64, .prefix_lens = {5, 8}}, width_of(kLatent));
  const ForwardBatch batch = step.batch();
  for (const int kept : {-1, int{FlashMla::kTileMetadata}, int{FlashMla::kOutCacheLoc}}) {
    SimDevice device;
    Stream stream(device);
    const Arena arena(device, MetadataCase::kArenaBytes);
    const Backend& backend = *find_backend("flashmla");
    Meta meta;
    ASSERT_TRUE(backend.bind(arena, Limits::exact(batch, kLatent), &meta).ok());
    ASSERT_TRUE(backend.fill(batch, meta).ok());
    if (kept >= 0) meta.arena.discard(meta[static_cast<size_t>(kept)]);
    ASSERT_TRUE(meta.arena.upload(stream.handle()).ok());
    stream.synchronize();
    const Status status = judge_metadata(backend, batch, kLatent, meta, true);
    ASSERT_EQ(status.ok(), kept < 0) << status.to_string();
    if (kept < 0) continue;
    EXPECT_EQ(status.findings()[0].id, "mem.not_uploaded");
    EXPECT_EQ(status.findings()[0].where.field, meta[static_cast<size_t>(kept)].name);
  }
}

TEST(MetadataLaws, OfOneFieldTheFirstAndHowManyMore) {
  const Slip slip{"", "", "trtllm_mha", kWide, kDecode, 4, [](const Planting& p) {
                    for (const int64_t row : {0, 1}) p.put(Mha::kKvLens, row, 1);
                  }};
  const Status status = judge_planted(slip);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].to_string(),
            "len.kv_extent: kv_lens[0] is 1 (and 1 more), expected 6");
}

}  // namespace
}  // namespace shadowgraph::metadata_laws_test
