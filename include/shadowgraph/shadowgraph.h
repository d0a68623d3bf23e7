// Shadowgraph: the CPU twin of GPU attention backends. Start here.
//
//   status.h       Status and Finding: every fault of an input at once
//   tensor_view.h  TensorView, dtype.h DType
//   huge_memory.h  HugeMemory: 2 MiB pages for a cache
//
// attention/: calls over a KV cache
//
//   attention.h    attention_with_kvcache, attention_varlen, merge_state(s), store_kv, copy_kv
//   params.h       AttentionParams: heads, scale, causal, window, soft cap, sinks, custom mask
//   kv_cache.h     KvCache (NHD, HND, stacked, MLA latent, panels) and PageTable (dense or CSR)
//   lse.h          LSE with its base in the type
//   conventions.h  windows by radius or count, slots or pages, offsets or ends: a type for each
//
// layers/: calls of other layers, and what a layer is
//
//   recurrent.h    linear_attention (Mamba2, GDN, KDA, Lightning), causal_conv1d, decay_gate
//   sparse.h       sparse_attention (chosen keys: DSA, DeepSeek-V4), pack_latents
//   indexer.h      DeepSeek sparse attention: index keys, their scores, the choice of keys
//   compress.h     DeepSeek-V4's compressor: blocks of tokens pooled into one
//   layer_kind.h   LayerKind: dense attention, recurrent_layer.h, sparse_layer.h, v4_layer.h
//
// engine/: one step of an engine
//
//   batch.h        ForwardBatch: what a scheduler knows about one step; forward_mode.h its modes
//   backend.h      Backend: bind, fill, forward; Meta; limits.h Limits, ModelConfig
//   buffer_info.h  what a backend's buffers mean, for the checker; launches.h what forward launches
//
// device/: recording and replay, on a device that sees what a GPU hides
//
//   graph.h        Stream, Graph, GraphExec: launch, record, replay; same_launches
//   kernel.h       Kernel, KernelLaunch: a launch as data, access.h its footprint
//   arena.h        Arena: named device buffers with lifetimes, annotations.h owners and steps
//   sim_device.h   SimDevice, the device on the CPU; device_api.h DeviceApi, CUDA's calls
//
// For tests, not included here: testing.h, property tests of your own metadata builder or kernel;
// judge.h, judges one step's arrays; fuzz_backend.h, histories of a backend of your own. For C and
// whatever calls C: shadowgraph.h, one folder up.
#pragma once

#include "shadowgraph/attention/attention.h"
#include "shadowgraph/attention/conventions.h"
#include "shadowgraph/attention/kv_cache.h"
#include "shadowgraph/attention/lse.h"
#include "shadowgraph/attention/params.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/graph.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/batch.h"
#include "shadowgraph/engine/buffer_info.h"
#include "shadowgraph/engine/forward_mode.h"
#include "shadowgraph/engine/launches.h"
#include "shadowgraph/engine/limits.h"
#include "shadowgraph/huge_memory.h"
#include "shadowgraph/layers/compress.h"
#include "shadowgraph/layers/indexer.h"
#include "shadowgraph/layers/layer_kind.h"
#include "shadowgraph/layers/recurrent.h"
#include "shadowgraph/layers/sparse.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"
#include "shadowgraph/version.h"
