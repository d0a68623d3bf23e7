/* A library exports this to stand in the table of `bench --peers`: one shared
 * library with these two functions, given as --peer-library FILE. Plain C, so that a peer needs
 * nothing of this project but this header. */
#ifndef SHADOWGRAPH_BENCH_PEER_H
#define SHADOWGRAPH_BENCH_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sg_peer_dtype { SG_PEER_F32 = 0, SG_PEER_F16 = 1, SG_PEER_BF16 = 2 };

/* [requests, tokens, heads, head_dim]; strides in elements, the last one 1. */
typedef struct sg_peer_tensor {
  void* data;
  int64_t sizes[4];
  int64_t strides[4];
} sg_peer_tensor;

/* Attention of dense tensors, all of one type. The last query of a request sees all of its keys,
 * and each query before it one less. A group of heads / kv_heads query heads shares a KV head. */
typedef struct sg_peer_call {
  int32_t dtype;   /* sg_peer_dtype of q, k, v and out */
  int32_t threads; /* that the peer may use */
  float sm_scale;  /* of q . k */
  sg_peer_tensor q, k, v, out;
} sg_peer_call;

/* The peer's name and version, "abacus 1.2". */
const char* sg_peer_name(void);
/* Writes out. 0: done; anything else: the peer has no kernel for such a call. Called again and
 * again from one thread, with other memory of the same shape. */
int sg_peer_attention(const sg_peer_call* call);

#ifdef __cplusplus
}
#endif

#endif
