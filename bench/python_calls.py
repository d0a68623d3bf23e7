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


def flashinfer() -> None:
    """Decodes of two requests of one head: what a drop-in adds to the call below it, its output included; and plans."""
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
    out, arguments = torch.zeros_like(q), {"sm_scale": 1.0, "causal": False, **dict(zip(names, lists))}
    best = lambda call: min(timeit.repeat(call, number=200, repeat=50)) / 200 * 1e6  # noqa: E731
    below = best(lambda: sg.paged_attention(q, kv, out=out, **arguments))
    for name, call in (
        ("decode run", lambda: wrapper.run(q, kv)),
        ("prefill run", lambda: prefill.run(q, kv)),
        ("trtllm decode", lambda: fi.trtllm_batch_decode_with_kv_cache(q, kv, None, table, lens, 7, kv_layout="NHD")),
    ):
        print(f"flashinfer, {name:24} {best(call) - below:6.2f} us over paged_attention")
    for name, call in (
        ("decode plan", lambda: wrapper.plan(*lists, *sizes)),
        ("decode plan of a graph", lambda: graph.plan(*lists, *sizes)),
        ("fast_decode_plan", lambda: fi.fast_decode_plan(graph, *lists, *sizes)),
    ):
        print(f"flashinfer, {name:24} {best(call):6.2f} us")


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
    flashinfer()
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
