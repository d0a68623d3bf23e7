#!/usr/bin/env python3
"""Measures the time and memory that Python adds to a call. Usage: python_calls.py [CALLS], with the wheel and torch installed.

A call has eight tensors and one request without keys, so that nearly all its time is Python's side.
"""

import os
import pathlib
import re
import subprocess
import sys
import timeit


def resident() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])


def imports() -> None:
    for names in ("shadowgraph", "shadowgraph._core"):
        code = f"import time; t = time.perf_counter(); import {names}; print(time.perf_counter() - t)"
        best = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(5))
        print(f"import {names:20} {best * 1e3:8.2f} ms")


def problem(library):
    """A decode of one request without keys, and its outputs: eight tensors."""
    make = {"torch": lambda a: __import__("torch").from_numpy(a), "numpy": lambda a: a}[library]
    import numpy

    cache = make(numpy.zeros((1, 1, 1, 8), numpy.float32))
    call = {"q": numpy.zeros((1, 1, 8), numpy.float32), "page_table": numpy.zeros((1, 1), numpy.int32)}
    call |= {"cache_seqlens": numpy.zeros(1, numpy.int32), "cu_seqlens_q": numpy.array([0, 1], numpy.int32)}
    call |= {"out": numpy.zeros((1, 1, 8), numpy.float32), "lse": numpy.zeros((1, 1), numpy.float32)}
    return {name: make(a) for name, a in call.items()} | {"cache": (cache, cache), "sm_scale": 1.0, "num_threads": 1}


def guard() -> None:
    """A replay with six tensors, by whether 32 layers share one object, or own objects that share tensors."""
    import types

    import shadowgraph as sg
    import torch

    names = ("page_table", "cache_seqlens", "cu_seqlens_q", "cu_seqlens_k", "slot_mapping", "positions")
    tensors = {name: torch.zeros(64, dtype=torch.int32) for name in names}
    one = types.SimpleNamespace(**tensors)
    nests = {"one object": {i: one for i in range(32)}, "own objects": {i: types.SimpleNamespace(**tensors) for i in range(32)}}
    for what, nest in nests.items():
        watch = sg.Guard()
        watch.captured(64, nest)
        best = min(timeit.repeat(lambda: watch.replaying(64, nest), number=2000, repeat=5)) / 2000
        print(f"Guard.replaying, 6 tensors, 32 layers with {what:12} {best * 1e6:6.2f} us")


def microseconds(*functions) -> list[float]:
    """The best of each, measured in turn: a machine that others use is slow for all of them alike."""
    rounds = [[timeit.timeit(f, number=300) / 300 * 1e6 for f in functions] for _ in range(40)]
    return [min(times) for times in zip(*rounds)]


def drop_ins() -> None:
    """Calls of one query and one key through drop-ins, and what they add to the engine's call."""
    import shadowgraph as sg
    import torch
    from shadowgraph import flash_attn, flash_attn_3, sgl_kernel, vllm

    zeros, int32 = torch.zeros, lambda *values: torch.tensor(values, dtype=torch.int32)
    q, cache, offsets, table, lens = zeros(1, 1, 8), (zeros(2, 2, 1, 8), zeros(2, 2, 1, 8)), int32(0, 1), int32([0]), int32(1)
    packed, latent = (q, q, q, offsets, offsets, 1, 1), zeros(2, 2, 1, 24)
    given = {"q": q, "cache": cache, "page_table": table, "cache_seqlens": lens, "cu_seqlens_q": offsets, "out": zeros(1, 1, 8)}
    engine = lambda: sg.paged_attention(**given, sm_scale=1.0, causal=True)  # noqa: E731
    pages = {"cache_seqlens": lens, "page_table": table, "causal": True}
    calls = {
        "flash_attn.flash_attn_func": lambda: flash_attn.flash_attn_func(q[None], q[None], q[None], causal=True),
        "flash_attn.flash_attn_varlen_func": lambda: flash_attn.flash_attn_varlen_func(*packed, causal=True),
        "flash_attn_3.flash_attn_with_kvcache": lambda: flash_attn_3.flash_attn_with_kvcache(q[None], *cache, **pages),
        "sgl_kernel.flash_attn_with_kvcache": lambda: sgl_kernel.flash_attn.flash_attn_with_kvcache(
            q, *cache, **pages, cu_seqlens_q=offsets, max_seqlen_q=1, return_softmax_lse=True),
        "sgl_kernel.flash_mla_with_kvcache": lambda: sgl_kernel.flash_mla_with_kvcache(latent[:1, :1], latent, table, lens, 16, None),
        "vllm.flash_attn_varlen_func": lambda: vllm.flash_attn.flash_attn_varlen_func(
            q, *cache, 1, offsets, 1, seqused_k=lens, block_table=table, causal=True, out=given["out"]),
    }
    for name, call in calls.items():
        alone, whole = microseconds(engine, call)
        print(f"{name:38} +{whole - alone:6.2f} us over paged_attention's {alone:.2f}")


def judge() -> None:
    """A decode of 64 requests of 4096 tokens: check, and a recorder's step, which judges and writes."""
    import tempfile

    import numpy
    import shadowgraph as sg

    for page in (64, 1):
        keys = numpy.arange(page, page + 64 * 4096, dtype=numpy.int32).reshape(64, 4096)
        lens = numpy.full(64, 4096, numpy.int32)
        batch = sg.Batch.from_table("decode", keys, list(range(64)), lens, page_size=page)
        arrays = {"kv_lens": lens, "page_table": keys[:, ::page] // page, "slots": keys[:, -1]}
        with tempfile.TemporaryDirectory() as folder, sg.record(os.path.join(folder, "steps.jsonl")) as rec:
            for what, call in (("check", sg.check), ("rec.step", rec.step)):
                assert call(batch, **arrays).ok
                best = min(timeit.repeat(lambda: call(batch, **arrays), number=1, repeat=15))
                print(f"{what:8} 64 requests of 4096 tokens, page size {page:2} {best * 1e3:8.2f} ms")


def flashinfer() -> None:
    """Decodes of two requests of one head: what a drop-in adds to the engine's call, its output included; and plans."""
    import shadowgraph as sg
    import shadowgraph.flashinfer as fi
    import torch

    ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    kv, q, lists = (torch.zeros(8, 4, 1, 8),) * 2, torch.zeros(2, 1, 8), (ints(0, 1, 3), ints(0, 1, 2), ints(2, 3))
    names, sizes = ("kv_indptr", "kv_indices", "last_page_len"), (1, 1, 8, 4)
    wrapper = fi.BatchDecodeWithPagedKVCacheWrapper(None)
    graph = fi.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, *(torch.zeros_like(x) for x in lists))
    prefill, table, lens = fi.BatchPrefillWithPagedKVCacheWrapper(None), ints(0, 1, 1, 2).view(2, 2), ints(2, 7)
    wrapper.plan(*lists, *sizes)
    prefill.plan(ints(0, 1, 2), *lists, *sizes)
    arguments = {"out": torch.zeros_like(q), "sm_scale": 1.0, "causal": False, **dict(zip(names, lists))}
    engine = lambda: sg.paged_attention(q, kv, **arguments)  # noqa: E731
    trtllm = lambda: fi.trtllm_batch_decode_with_kv_cache(q, kv, None, table, lens, 7, kv_layout="NHD")  # noqa: E731
    for name, call in (("decode run", lambda: wrapper.run(q, kv)), ("prefill run", lambda: prefill.run(q, kv)), ("trtllm decode", trtllm)):
        alone, whole = microseconds(engine, call)
        print(f"flashinfer, {name:26} +{whole - alone:6.2f} us over paged_attention's {alone:.2f}")
    for name, call in (
        ("decode plan", lambda: wrapper.plan(*lists, *sizes)),
        ("decode plan of a graph", lambda: graph.plan(*lists, *sizes)),
        ("fast_decode_plan", lambda: fi.fast_decode_plan(graph, *lists, *sizes)),
    ):
        print(f"flashinfer, {name:26}  {microseconds(call)[0]:6.2f} us")


def turn(attend, given, refusal, count: int) -> None:
    for _ in range(count):
        try:
            attend(**given)
        except refusal:
            pass


def main(calls: int) -> int:
    imports()
    import shadowgraph as sg

    guard()
    drop_ins()
    flashinfer()
    judge()
    flat = True
    for library in ("numpy", "torch"):
        call = problem(library)
        attend = sg.paged_attention
        allocating = {n: a for n, a in call.items() if n not in ("out", "lse")}
        for name, given in (("out and lse given", call), ("allocated", allocating | {"lse": True})):
            best = min(timeit.repeat(lambda: attend(**given), number=10000, repeat=5)) / 10000
            print(f"paged_attention, {library}, {name:18} {best * 1e6:6.2f} us")
        tensors = [a for a in call.values() if not isinstance(a, (float, int))]
        for what, count in (("calls", calls), ("refusals", calls // 20)):
            given = allocating | {"cu_seqlens_q": [0, 1]} | ({} if what == "calls" else {"page_table": call["cache_seqlens"]})
            turn(attend, given, sg.ShadowgraphError, 100)
            before, counts = resident(), [sys.getrefcount(t) for t in tensors]
            turn(attend, given, sg.ShadowgraphError, count)
            grown, same = resident() - before, counts == [sys.getrefcount(t) for t in tensors]
            print(f"{count:8} {what:9} {library}: memory +{grown} KiB, references {'as before' if same else 'LEAKED'}")
            flat = flat and same and grown < 1024
    return 0 if flat else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
