// Shadowgraph: the CPU twin of GPU attention backends. Start here.
//
//   attention.h    attention_with_kvcache, attention_varlen, merge_state(s), store_kv
//   params.h       AttentionParams: heads, scale, causal, window, soft cap, sinks, custom mask
//   kv_cache.h     KvCache (NHD, HND, stacked, MLA latent) and PageTable (dense or CSR)
//   batch.h        ForwardBatch: what a scheduler knows about one step
//   lse.h          LSE with its base in the type
//   status.h       Status and Finding: every fault of an input at once
//   tensor_view.h  TensorView, dtype.h DType
#pragma once

#include "shadowgraph/attention.h"
#include "shadowgraph/batch.h"
#include "shadowgraph/kv_cache.h"
#include "shadowgraph/lse.h"
#include "shadowgraph/params.h"
#include "shadowgraph/status.h"
#include "shadowgraph/tensor_view.h"
#include "shadowgraph/version.h"
