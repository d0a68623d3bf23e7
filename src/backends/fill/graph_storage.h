// Allocations that the graphs of a backend share (BackendInfo::graph_storage). Tested by
// tests/check/graph_storage_test.cc.
#pragma once

#include <string_view>

#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

inline constexpr ForwardMode kGraphsOfDecodes[] = {ForwardMode::kDecode, ForwardMode::kIdle,
                                                   ForwardMode::kDraftDecode};
inline constexpr ForwardMode kGraphModes[] = {
    ForwardMode::kDecode,       ForwardMode::kIdle,        ForwardMode::kDraftDecode,
    ForwardMode::kTargetVerify, ForwardMode::kDraftExtend, ForwardMode::kDraftExtendV2,
    ForwardMode::kDllmExtend};

// A dictionary of buffers for each mode, in which a decode's and a draft's are one.
inline constexpr std::string_view kDictionaryName =
    "decode_cuda_graph_metadata: decodes and drafts";
inline constexpr std::string_view kOfTheDictionary[] = {"cache_seqlens", "swa_page_table"};
inline constexpr std::string_view kBesideDictionaries[] = {
    "swa_out_cache_loc", "local_seqlens", "local_cu_seqlens_q", "local_table",
    "encoder_seqlens",   "encoder_table", "scheduler_metadata"};
inline constexpr std::string_view kOfTheWorkspace[] = {"row_counters"};
inline constexpr GraphStorage kWorkspace = {kGraphModes, kOfTheWorkspace, false,
                                            "one workspace, zeroed when it is allocated"};
inline constexpr GraphStorage kDictionaries[] = {
    {kGraphsOfDecodes, kOfTheDictionary, false, kDictionaryName},
    {kGraphModes, kBesideDictionaries, false, "outside of the dictionaries of modes"}};
inline constexpr std::string_view kOfTrtllmsDictionary[] = {"kv_lens", "swa_page_table"};
inline constexpr std::string_view kBesideOfTrtllm[] = {"swa_out_cache_loc"};
inline constexpr GraphStorage kDictionariesOfTrtllm[] = {
    {kGraphsOfDecodes, kOfTrtllmsDictionary, false, kDictionaryName},
    {kGraphModes, kBesideOfTrtllm, false, "outside of the dictionaries of modes"},
    kWorkspace};

inline constexpr GraphStorage kOneForAllModes[] = {
    {kGraphModes, {}, false, "init_cuda_graph_state: one buffer of each name"}};

inline constexpr std::string_view kOnlyTheTable[] = {"page_table"};
inline constexpr GraphStorage kOneTable[] = {
    {kGraphModes, kOnlyTheTable, false, "one table of pages for all modes"}};
inline constexpr GraphStorage kOneTableOfTrtllm[] = {kOneTable[0], kWorkspace};

// A wrapper of FlashInfer is made for each bucket, with its plan.
inline constexpr std::string_view kOfAllWrappers[] = {"kv_indptr", "kv_indices", "qo_indptr",
                                                      "_mask", "swa_out_cache_loc"};
inline constexpr std::string_view kOfAPlan[] = {
    "_request_indices", "_qo_tile_indices", "_kv_tile_indices", "_o_indptr",
    "_merge_indptr",    "_kv_chunk_size",   "_block_valid_mask"};
inline constexpr GraphStorage kWrappers[] = {
    {kGraphModes, kOfAllWrappers, false, "lists, offsets and mask: slices for all wrappers"},
    {{}, kOfAPlan, true, "a wrapper's plan, in its own workspace"}};

inline constexpr GraphStorage kOneForEachBucket[] = {
    {{}, {}, true, "each bucket has tensors of its own, which replays copy into"}};

inline constexpr GraphStorage kStateLists[] = {
    {kGraphModes, {}, true, "state_indices_list: a tensor for each number of rows"}};

}  // namespace shadowgraph
