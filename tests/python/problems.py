"""A small problem that every argument of attention changes: two requests, pages of 2, four heads over two."""

import ast
import pathlib

import numpy

ROOT = pathlib.Path(__file__).parents[2]
HEADS, KV_HEADS, DIM, PAGE = 4, 2, 8, 2
KV_LENS, Q_LENS = [5, 4], [3, 2]
TABLE = [[1, 3, 5], [2, 4, 0]]


def values(*shape, seed=1):
    return numpy.random.default_rng(seed).standard_normal(shape, dtype=numpy.float32)


def paged(**changed):
    """Arguments of paged_attention."""
    keys, new = [0, *numpy.cumsum(KV_LENS)], [0, *numpy.cumsum(Q_LENS)]
    base = {
        "q": values(new[-1], HEADS, DIM),
        "cache": (values(6, PAGE, KV_HEADS, DIM, seed=2), values(6, PAGE, KV_HEADS, DIM, seed=3)),
        "page_table": numpy.array(TABLE, numpy.int32),
        "cache_seqlens": numpy.array(KV_LENS, numpy.int32),
        "cu_seqlens_q": numpy.array(new, numpy.int32),
        "sm_scale": DIM**-0.5,
        "num_threads": 1,
    }
    assert keys[-1] == sum(KV_LENS)
    return base | changed


def ragged(**changed):
    """The same keys, packed: arguments of ragged_attention."""
    call = paged()
    slots = [[TABLE[r][i // PAGE] * PAGE + i % PAGE for i in range(n)] for r, n in enumerate(KV_LENS)]
    k, v = (c.reshape(-1, KV_HEADS, DIM)[sum(slots, [])] for c in call["cache"])
    cu_seqlens_k = numpy.array([0, *numpy.cumsum(KV_LENS)], numpy.int32)
    given = {"k": k, "v": v, "cu_seqlens_k": cu_seqlens_k}
    return {n: call[n] for n in ("q", "cu_seqlens_q", "sm_scale", "num_threads")} | given | changed


def documented(function):
    """Names of the arguments that _core.pyi documents, those of _Layer included."""
    tree = ast.parse((ROOT / "python/shadowgraph/_core.pyi").read_text())
    found = {n.name: n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    arguments = found[function].args
    names = [a.arg for a in arguments.args + arguments.kwonlyargs]
    return names + ([a.target.id for a in found["_Layer"].body if isinstance(a, ast.AnnAssign)] if arguments.kwarg else [])
