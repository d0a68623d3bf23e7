"""A small engine whose classes have the names of SGLang's: a pool, a scheduler, a backend, a graph of decodes.

PLANTS names the slips that it can have; each breaks a law.
"""

import sys
import types

import torch

PLANTS = {
    "no_table_copy": "table.slot",
    "prefix_lens": "len.kv_extent",
    "slots_for_pages": "table.unit",
    "old_padding_slots": "slot.write",
    "page_twice": "pool.shared",
}
BUCKET, PAGE, PAGES, WIDTH = 4, 2, 16, 8
Mode = types.SimpleNamespace  # of a forward mode only the name is read


class AttentionBackend:
    def init_forward_metadata(self, forward_batch):
        raise NotImplementedError

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        raise NotImplementedError

    def init_forward_metadata_capture_cuda_graph(self, *args):
        raise NotImplementedError  # older versions have these two

    def init_forward_metadata_replay_cuda_graph(self, *args):
        raise NotImplementedError


class PagedBackend(AttentionBackend):
    page_size = PAGE

    def __init__(self, plant, pool):
        self.plant, self.req_to_token = plant, pool.req_to_token
        self.buffers = types.SimpleNamespace(
            page_table=torch.zeros(BUCKET, WIDTH // PAGE, dtype=torch.int32),
            cache_seqlens_int32=torch.zeros(BUCKET, dtype=torch.int32),
        )

    def build(self, b):
        slots = b.req_to_token_pool.req_to_token[b.req_pool_indices]
        table = slots[:, ::PAGE] if self.plant == "slots_for_pages" else slots[:, ::PAGE] // PAGE
        lens = b.seq_lens - int(self.plant == "prefix_lens")
        return types.SimpleNamespace(page_table=table.int(), cache_seqlens_int32=lens.int())

    def init_forward_metadata(self, forward_batch):
        self.forward_metadata = self.build(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        fresh, rows = self.build(forward_batch), len(forward_batch.seq_lens) - forward_batch.num_padding
        self.buffers.cache_seqlens_int32.zero_()[:rows] = fresh.cache_seqlens_int32[:rows]
        if self.plant != "no_table_copy" or in_capture:
            self.buffers.page_table.zero_()[:rows] = fresh.page_table[:rows]
        self.forward_metadata = self.buffers

    def init_forward_metadata_replay_cuda_graph(self, bs, req_pool_indices, seq_lens, forward_mode, spec_info):
        pool = types.SimpleNamespace(req_to_token=self.req_to_token)
        padding = sum(row == 0 and n == 1 for row, n in zip(req_pool_indices.tolist(), seq_lens.tolist()))
        self.init_forward_metadata_out_graph(
            types.SimpleNamespace(
                req_to_token_pool=pool, req_pool_indices=req_pool_indices, seq_lens=seq_lens, num_padding=padding
            )
        )


class Engine:
    """Each request has a prompt of 3 tokens; a step decodes one token of each."""

    def __init__(self, plant=None, older=False):
        self.plant, self.older = plant, older
        self.pool = types.SimpleNamespace(req_to_token=torch.zeros(BUCKET, WIDTH, dtype=torch.int32))
        self.backend = PagedBackend(plant, self.pool)
        self.out_cache_loc = torch.full((BUCKET,), -1, dtype=torch.int64)
        self.lens, self.free = [], list(range(1, PAGES))

    def add(self):
        row = len(self.lens)
        for i in range(0, WIDTH, PAGE):
            page = self.free[0] if self.plant == "page_twice" else self.free.pop(0)
            self.pool.req_to_token[row, i : i + PAGE] = torch.arange(page * PAGE, page * PAGE + PAGE)
        self.lens.append(3)

    def step(self, graph=False):
        self.lens = [n + 1 for n in self.lens]
        rows = len(self.lens)
        slots = torch.tensor([self.pool.req_to_token[i, n - 1] for i, n in enumerate(self.lens)])
        if self.plant != "old_padding_slots":
            self.out_cache_loc.fill_(-1)
        self.out_cache_loc[:rows] = slots
        padding = BUCKET - rows if graph else 0
        batch = types.SimpleNamespace(
            forward_mode=Mode(name="DECODE"),
            req_to_token_pool=self.pool,
            req_pool_indices=torch.tensor([*range(rows), *[0] * padding]),
            seq_lens=torch.tensor([*self.lens, *[1] * padding]),
            out_cache_loc=self.out_cache_loc if graph else slots,
            num_padding=padding,
        )
        if graph and self.older:
            args = batch.req_pool_indices, batch.seq_lens, batch.forward_mode, None
            self.backend.init_forward_metadata_replay_cuda_graph(BUCKET, *args)
        elif graph:
            self.backend.init_forward_metadata_out_graph(batch)
        else:
            self.backend.init_forward_metadata(batch)

    def serve(self):
        self.add(), self.add(), self.add()
        self.step(graph=True)
        self.step(graph=True)
        self.lens.pop(0)  # the first request is done: the others move up, and the last row is padding from here on
        self.pool.req_to_token.copy_(self.pool.req_to_token.roll(-1, 0))
        self.step(graph=True)
        self.step()


def imported(monkeypatch):
    """Puts the classes where SGLang has them."""
    name = "sglang.srt.layers.attention.base_attn_backend"
    module = types.ModuleType(name)
    module.AttentionBackend = AttentionBackend
    for part in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:part])
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)
