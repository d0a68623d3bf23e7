"""Paged problems of drop-ins, and how their results are judged."""

import numpy
import oracle
import torch

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 32, 4
LENS = [7, 0, 4, 9]  # keys of requests; 0 has no page
SCALE = DIM**-0.5
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def drawn(*shape, dtype=F32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Pool:
    """Pages out of order, behind and between which lies NaN."""

    def __init__(self, lens=LENS, kv_layout="NHD", dtype=F32, head_dim_vo=DIM, kv_heads=KV_HEADS, dim=DIM):
        pages = [-(-n // PAGE) for n in lens]
        self.lens, self.indptr = lens, torch.tensor([0, *numpy.cumsum(pages)], dtype=torch.int32)
        order = torch.randperm(sum(pages) + 2, generator=torch.Generator().manual_seed(5))[: sum(pages)]
        self.indices = order.int()
        self.last = torch.tensor([(n - 1) % PAGE + 1 if n else 0 for n in lens], dtype=torch.int32)
        self.keys = [drawn(n, kv_heads, dim, dtype=dtype, seed=10 + i) for i, n in enumerate(lens)]
        self.values = [drawn(n, kv_heads, head_dim_vo, dtype=dtype, seed=20 + i) for i, n in enumerate(lens)]
        self.k, self.v = (
            torch.full((sum(pages) + 2, PAGE, kv_heads, width), float("nan"), dtype=dtype) for width in (dim, head_dim_vo)
        )
        self.table = torch.full((len(lens), max(pages)), 2147480000, dtype=torch.int32)
        for row, n in enumerate(lens):
            for i in range(n):
                page = order[self.indptr[row] + i // PAGE]
                self.table[row, i // PAGE] = page
                self.k[page, i % PAGE], self.v[page, i % PAGE] = self.keys[row][i], self.values[row][i]
        self.kv = (self.k, self.v)
        if kv_layout == "HND":
            self.kv = tuple(x.transpose(1, 2).contiguous() for x in self.kv)
        self.seq_lens = torch.tensor(lens, dtype=torch.int32)

    @property
    def lists(self):
        return self.indptr, self.indices, self.last


def clean(pool, masks, q, result, **more):
    """The result is within the bound, and the same with one number off is not."""
    out, lse = result if isinstance(result, tuple) else (result, None)
    members = {"base2": True, "sm_scale": SCALE} | more
    rows = oracle.rows_of(pool.keys, masks), oracle.rows_of(pool.values, masks)
    assert oracle.findings(q, *rows, out, lse, **members) == []
    off = torch.as_tensor(out).clone()
    off[-1, -1, -1] *= 1.0625
    assert oracle.findings(q, *rows, off, lse, **members)


def every(q_lens, lens, **mask):
    return [oracle.seen(q_len, n, **mask) for q_len, n in zip(q_lens, lens)]


Q_LENS = [3, 2, 4, 1]


def qo_indptr(q_lens=Q_LENS):
    return torch.tensor([0, *numpy.cumsum(q_lens)], dtype=torch.int32)
