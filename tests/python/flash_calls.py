"""Arguments of calls around flash-attention, as torch's tensors."""

import torch
from problems import values

HEADS, KV_HEADS, DIM = 4, 2, 8


def drawn(*shape, seed=1):
    return torch.from_numpy(values(*shape, seed=seed))


def int32(values):
    return torch.tensor(values, dtype=torch.int32)


TABLE = int32([[1, 3], [0, 5]])


def cached(**changed):
    """Arguments of flash_attn_with_kvcache: two requests of a query each, pages of 2."""
    base = {"q": drawn(2, 1, HEADS, DIM), "k_cache": drawn(6, 2, KV_HEADS, DIM, seed=2), "v_cache": drawn(6, 2, KV_HEADS, DIM, seed=3)}
    return base | {"cache_seqlens": int32([3, 4])} | changed
