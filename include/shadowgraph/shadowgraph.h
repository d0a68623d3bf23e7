// Shadowgraph: the CPU twin of GPU attention backends. Start here.
//
//   attention.h    attention_with_kvcache, attention_varlen, merge_state(s), store_kv, copy_kv
//   params.h       AttentionParams: heads, scale, causal, window, soft cap, sinks, custom mask
//   kv_cache.h     KvCache (NHD, HND, stacked, MLA latent, panels) and PageTable (dense or CSR)
//   huge_memory.h  HugeMemory: 2 MiB pages for a cache
//   linear.h       linear_attention (Mamba2, GDN, KDA, Lightning), causal_conv1d, decay_gate
//   indexer.h      DeepSeek sparse attention: index keys, their scores, the choice of keys
//   compress.h     DeepSeek-V4's compressor: blocks of tokens pooled into one
//   sparse.h       sparse_attention (chosen keys: DSA, DeepSeek-V4), pack_latents
//   batch.h        ForwardBatch: what a scheduler knows about one step; forward_mode.h its modes
//   backend.h      Backend: bind, fill, forward; Limits, Meta
//   layer_kind.h   LayerKind: dense attention, or recurrent_layer.h, or sparse_layer.h
//   lse.h          LSE with its base in the type
//   conventions.h  windows by radius or count, slots or pages, offsets or ends: a type for each
//   status.h       Status and Finding: every fault of an input at once
//   tensor_view.h  TensorView, dtype.h DType
//
// Recording and replay, on a device that sees what a GPU hides:
//
//   graph.h        Stream, Graph, GraphExec: launch, record, replay; same_launches
//   kernel.h       Kernel, KernelLaunch: a launch as data, access.h its footprint
//   arena.h        Arena: named device buffers with lifetimes, annotations.h owners and steps
//   sim_device.h   SimDevice, the device on the CPU; device_api.h DeviceApi, CUDA's calls
//
// For tests, not included here: testing.h, property tests of your own metadata builder.
#pragma once

#include "shadowgraph/arena.h"
#include "shadowgraph/attention.h"
#include "shadowgraph/backend.h"
#include "shadowgraph/batch.h"
#include "shadowgraph/compress.h"
#include "shadowgraph/conventions.h"
#include "shadowgraph/forward_mode.h"
#include "shadowgraph/graph.h"
#include "shadowgraph/huge_memory.h"
#include "shadowgraph/indexer.h"
#include "shadowgraph/kv_cache.h"
#include "shadowgraph/layer_kind.h"
#include "shadowgraph/linear.h"
#include "shadowgraph/lse.h"
#include "shadowgraph/params.h"
#include "shadowgraph/sim_device.h"
#include "shadowgraph/sparse.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"
#include "shadowgraph/version.h"
