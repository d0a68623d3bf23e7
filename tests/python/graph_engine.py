"""A small engine that decodes in a graph, with FlashInfer's wrapper over CPU tensors; engine.py has one of SGLang's kind.

PLANTS names the slips that it can have, and what finds each: a law, or the output.
"""

import torch

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer

PLANTS = {
    "no_plan": "mem.stale_input",
    "stale_indptr": "len.q_extent",
    "last_page_len": "len.kv_extent",
    "order_of_rows": "table.slot",
    "slots_for_pages": "table.unit",
    "slot_before": "slot.write",
    "old_padding_slots": "slot.write",
    "position": "step.positions",
    "page_twice": "pool.shared",
    "buffer_rebound": "graph.address_changed",
    "buffer_of_another_dtype": "graph.topology_changed",
    "window": "output",
    "new_token_unseen": "output",
}
BUCKET, PAGE, PAGES, DIM = 4, 2, 48, 4


class Request:
    def __init__(self, prompt):
        self.tokens, self.pages, self.prompt = [0.0] * prompt, [], prompt


class Engine:
    """Page 0 is padding's. A token is a number; its key is the number plus its position, its value the key doubled."""

    def __init__(self, plant=None, watch=lambda engine, what: None):
        self.plant, self.watch, self.requests, self.free = plant, watch, [], list(range(1, PAGES // PAGE))
        self.k, self.v = (torch.zeros(PAGES, PAGE, 1, DIM) for _ in "kv")
        lists = {"kv_indptr": BUCKET + 1, "kv_indices": BUCKET * PAGES, "last_page_len": BUCKET}
        self.buffers = {name: torch.zeros(size, dtype=torch.int32) for name, size in (lists | {"out_cache_loc": BUCKET}).items()}
        self.buffers["positions"], self.tokens = torch.zeros(BUCKET, dtype=torch.int64), torch.zeros(BUCKET)
        self.wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *(self.buffers[name] for name in lists))
        self.plan([], [])
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.forward()
        self.watch(self, "captured")

    def forward(self):
        x = (self.tokens + self.buffers["positions"]).view(-1, 1, 1).expand(-1, 1, DIM)
        for pool, new in ((self.k, x), (self.v, 2 * x)):
            pool.view(-1, 1, DIM)[self.buffers["out_cache_loc"].long()] = new
        return self.wrapper.run(x.contiguous(), (self.k, self.v))

    def add(self, prompt):
        self.requests.append(Request(prompt))
        self.grow(self.requests[-1])
        for i, token in enumerate(self.requests[-1].tokens):
            page, place = self.requests[-1].pages[i // PAGE], i % PAGE
            self.k[page, place], self.v[page, place] = token + i, 2 * (token + i)

    def grow(self, request):
        while len(request.pages) * PAGE < len(request.tokens):
            request.pages.append(self.free[0] if self.plant == "page_twice" else self.free.pop(0))

    def plan(self, pages, lens):
        padding = BUCKET - len(pages)
        rows, lens = [*pages, *[[0]] * padding], [*lens, *[1] * padding]
        indptr = torch.tensor([0, *[len(row) for row in rows]]).cumsum(0).int()
        old = self.buffers["kv_indptr"].clone()
        last = torch.tensor([(n - 1) % PAGE + 1 for n in lens]).int()
        if self.plant == "last_page_len" and pages:
            last[: len(pages)] = PAGE
        order = rows[::-1] if self.plant == "order_of_rows" and pages else rows
        ids = torch.tensor([page * (PAGE if self.plant == "slots_for_pages" else 1) for row in order for page in row]).int()
        window = 1 if self.plant == "window" else -1
        self.wrapper.plan(indptr, ids, last, 1, 1, DIM, PAGE, window_left=window, q_data_type="float32")
        if self.plant == "stale_indptr" and pages:
            self.buffers["kv_indptr"].copy_(old)

    def step(self):
        """Decodes a token of each request; returns the outputs, and what they should be."""
        for i, request in enumerate(self.requests):
            request.tokens.append(float(i + 1))
            self.grow(request)
        rows, lens = len(self.requests), [len(r.tokens) for r in self.requests]
        if self.plant != "no_plan":
            self.plan([r.pages for r in self.requests], lens)
        slots, buffers = [r.pages[(n - 1) // PAGE] * PAGE + (n - 1) % PAGE for r, n in zip(self.requests, lens)], self.buffers
        if self.plant != "old_padding_slots":
            buffers["out_cache_loc"].zero_()
        back = int(self.plant == "slot_before")
        buffers["out_cache_loc"][:rows] = torch.tensor([s - back for s in slots])
        buffers["positions"].zero_()[:rows] = torch.tensor(lens) - int(self.plant != "position")
        self.tokens.zero_()[:rows] = torch.tensor([r.tokens[-1] for r in self.requests])
        if self.plant == "buffer_rebound":
            buffers["positions"] = buffers["positions"].clone()
        if self.plant == "buffer_of_another_dtype":
            buffers["out_cache_loc"] = buffers["out_cache_loc"].long()
        self.watch(self, "replaying")
        if self.plant == "new_token_unseen":
            self.tokens.zero_()
        self.graph.replay()
        return self.out[:rows, 0].clone(), torch.stack([self.expected(r) for r in self.requests])

    def batch(self):
        pages, lens = [r.pages for r in self.requests], [len(r.tokens) for r in self.requests]
        return sg.Batch.from_pages("decode", pages, lens, page_size=PAGE, pool_pages=PAGES)

    @staticmethod
    def expected(request):
        """The output of the last token, of keys that lie one behind the other."""
        keys = (torch.tensor(request.tokens) + torch.arange(len(request.tokens))).view(-1, 1, 1, 1).expand(-1, 1, 1, DIM).contiguous()
        page_table = torch.arange(len(keys), dtype=torch.int32).view(1, -1)
        out = sg.paged_attention(keys[-1], (keys, 2 * keys), page_table=page_table, cache_seqlens=[len(keys)], sm_scale=DIM**-0.5)
        return out[0, 0]

    def serve(self):
        """(outputs, expected) of steps of requests that come and go."""
        for prompt in (3, 1, 4):
            self.add(prompt)
        yield self.step()
        yield self.step()
        self.free.extend(self.requests.pop(0).pages)  # the others move up, and the last row is padding's
        yield self.step()
        self.add(2)
        yield self.step()
