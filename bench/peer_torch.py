#!/usr/bin/env python3
"""PyTorch's CPU scaled_dot_product_attention on the shapes of the bench, as a peer in a process of its own.

Usage: peer_torch.py [--threads N] [--rounds N] [--cold-mib N]. Prints one JSON object: torch and its version, threads, and
for each shape the median milliseconds. Its K and V are dense, one tensor a request batch, [batch, kv_heads, keys,
head_dim]: no page table to follow, and group heads through enable_gqa where this torch has it (else K and V are
repeated beforehand, which is not timed). Decode rotates over caches of --cold-mib together: as the bench does, 8 times
the L3.
"""

import argparse
import json
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

# id of bench/rows.inc: dtype, batch, query tokens, keys, query heads, KV heads
SHAPES = {
    "decode_f32_b1_4k": (torch.float32, 1, 1, 4096, 32, 8),
    "decode_f32_b8_4k": (torch.float32, 8, 1, 4096, 32, 8),
    "decode_bf16_b8_4k": (torch.bfloat16, 8, 1, 4096, 32, 8),
    "decode_bf16_b1_16k": (torch.bfloat16, 1, 1, 16384, 32, 8),
    "decode_bf16_g8_b8_4k": (torch.bfloat16, 8, 1, 4096, 64, 8),
    "decode_bf16_g1_b8_4k": (torch.bfloat16, 8, 1, 4096, 32, 32),
    "prefill_f32_512": (torch.float32, 1, 512, 512, 32, 8),
    "prefill_f32_2048": (torch.float32, 1, 2048, 2048, 32, 8),
    "prefill_bf16_fast_512": (torch.bfloat16, 1, 512, 512, 32, 8),
    "prefill_bf16_fast_2048": (torch.bfloat16, 1, 2048, 2048, 32, 8),
}
HEAD_DIM = 128


def knows_groups():
    one = torch.zeros(1, 2, 1, 8)
    try:
        sdpa(one, one[:, :1], one[:, :1], enable_gqa=True)
    except TypeError:
        return False
    return True


def median_ms(shape, rounds, cold_bytes, groups):
    dtype, batch, tokens, keys, heads, kv_heads = shape
    cache_bytes = 2 * batch * kv_heads * keys * HEAD_DIM * dtype.itemsize
    repeat = 1 if groups else heads // kv_heads
    caches = [[torch.randn(batch, kv_heads, keys, HEAD_DIM).to(dtype).repeat_interleave(repeat, 1) for _ in range(2)]
              for _ in range(1 if tokens > 1 else max(1, -(-cold_bytes // cache_bytes)))]
    q = torch.randn(batch, heads, tokens, HEAD_DIM).to(dtype)
    gqa = {"enable_gqa": True} if groups and heads != kv_heads else {}
    times = []
    for i in range(rounds + 2):
        k, v = caches[i % len(caches)]
        start = time.perf_counter()
        sdpa(q, k, v, is_causal=tokens > 1, **gqa)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[2:])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--cold-mib", type=int, default=256)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    groups = knows_groups()
    with torch.inference_mode():
        ms = {name: median_ms(shape, args.rounds, args.cold_mib << 20, groups) for name, shape in SHAPES.items()}
    print(json.dumps({"peer": f"torch {torch.__version__}", "threads": args.threads, "ms": ms}, indent=1))


if __name__ == "__main__":
    main()
