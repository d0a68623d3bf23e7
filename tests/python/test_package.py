"""The wheel: what it holds, what importing it costs, and how it lives with threads and forks."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy
import pytest
from problems import ROOT

import shadowgraph as sg
from shadowgraph import _core

PROBLEM = """
import numpy, os, warnings, shadowgraph as sg
call = {"q": numpy.ones((4, 8, 64), numpy.float32), "cache": (numpy.ones((500, 16, 8, 64), numpy.float32),) * 2,
        "page_table": numpy.arange(500, dtype=numpy.int32).reshape(4, 125), "cache_seqlens": [2000] * 4, "sm_scale": 1.0}
tasks = lambda: len(os.listdir("/proc/self/task"))
"""


def python(code, *options):
    """The output of a fresh Python."""
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_neither_the_extension_nor_torch_nor_numpy():
    code = "import shadowgraph, sys; print({'torch', 'numpy', 'shadowgraph._core'} & set(sys.modules)); "
    assert python(code) == "set()\n"
    assert python(code + "shadowgraph.Batch.from_slots('decode', [[1]]); print({'torch', 'numpy'} & set(sys.modules))") == "set()\nset()\n"


def test_every_name_is_there():
    assert all(getattr(sg, name) is not None for name in sg.__all__)
    assert set(sg.__all__) <= set(dir(sg))
    with pytest.raises(AttributeError, match="no attribute 'batches'"):
        sg.batches


def test_the_extension_has_what_its_signatures_say():
    documented = set(re.findall(r"^def (\w+)", (ROOT / "python/shadowgraph/_core.pyi").read_text(), re.MULTILINE))
    assert documented == {name for name in dir(_core) if not name.startswith("_")}


def test_the_wheel_needs_nothing_and_fits_every_python():
    wheel = importlib.metadata.distribution("shadowgraph")
    assert wheel.requires is None
    assert "Tag: cp310-abi3-" in wheel.read_text("WHEEL")
    header = (ROOT / "include/shadowgraph/version.h").read_text()
    assert wheel.version == sg.__version__ == re.search(r'VERSION "(.+)"', header)[1]
    files = {pathlib.PurePath(f).name for f in wheel.files}
    assert {"_core.abi3.so", "_core.pyi", "py.typed"} <= files
    (packed,) = (ROOT / "build/dist").glob("*.whl")
    assert packed.stat().st_size < 8 * 2**20


def test_the_program_is_in_it():
    program = [sys.executable, "-m", "shadowgraph"]
    assert subprocess.run([*program, "explain", "table.slot"], capture_output=True).returncode == 0
    wrong = subprocess.run([*program, "no-such-verb"], capture_output=True)
    assert wrong.returncode == 2 and wrong.stderr
    traces = subprocess.run([*program, "check", ROOT / "tests/data/traces"], capture_output=True, text=True)
    assert traces.returncode == 1 and "len.kv_extent" in traces.stdout
    assert sg.__version__ in subprocess.run([pathlib.Path(sys.executable).with_name("shadowgraph"), "--version"], capture_output=True, text=True).stdout


def grown(work):
    """Bytes that the resident memory grows by, at most, while `work` runs."""
    def resident():
        return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024

    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident()
    work()
    return resident() - before


def test_a_cache_of_a_gigabyte_is_not_copied():
    cache = numpy.zeros((2**28 // (16 * 64), 16, 1, 64), numpy.float32)  # no page of it is touched yet
    q, table = numpy.ones((1, 1, 64), numpy.float32), numpy.array([[7]], numpy.int32)
    call = {"page_table": table, "cache_seqlens": numpy.array([16], numpy.int32), "sm_scale": 1.0, "num_threads": 1}
    sg.paged_attention(q, (cache[:1], cache[:1]), page_table=[[0]], cache_seqlens=[16], sm_scale=1.0, num_threads=1)
    assert grown(lambda: sg.paged_attention(q, (cache, cache), **call)) < 2**20
    assert grown(lambda: sg.paged_attention(q, (cache[: 2**14].copy(),) * 2, **call)) > 2**24


def test_others_run_while_a_call_computes():
    q = numpy.ones((3000, 8, 64), numpy.float32)
    spans = []

    def compute():
        begin = time.perf_counter()
        sg.ragged_attention(q, q, q, [0, 3000], [0, 3000], sm_scale=1.0, num_threads=1)
        spans.append(time.perf_counter() - begin)

    thread = threading.Thread(target=compute)
    turns = [time.perf_counter()]
    thread.start()
    while not spans:
        turns.append(time.perf_counter())
    turns.append(time.perf_counter())
    thread.join()
    longest = max(b - a for a, b in zip(turns, turns[1:]))
    assert longest < spans[0] / 2  # who waits for the GIL waits for the whole call


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one CPU a call starts no second thread: there is nothing to count")
def test_threads_are_the_calls_own_or_what_was_set_or_torchs():
    def more(before, call):
        return int(python(f"{PROBLEM}{before}; had = tasks(); sg.paged_attention(**call, {call}); print(tasks() - had)"))

    assert more("pass", "num_threads=1") == 0
    assert more("pass", "num_threads=2") == 1
    assert more("sg.set_num_threads(2)", "") == 1
    assert more("sg.set_num_threads(1)", "num_threads=2") == 1
    assert more("import torch; torch.set_num_threads(1)", "") == 0
    assert more("import torch; torch.set_num_threads(2)", "") == 1


def test_a_forked_child_computes_with_one_thread_and_says_so_once():
    code = PROBLEM + """
want = sg.paged_attention(**call, num_threads=2)
if os.fork() == 0:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same = all(numpy.array_equal(sg.paged_attention(**call, num_threads=n), want) for n in (4, 0))
        sg.set_num_threads(4)
        sg.merge_states(numpy.ones((1, 2, 1, 8), numpy.float32), numpy.ones((1, 2, 1), numpy.float32))
    print(same, tasks(), [str(w.message)[:36] for w in seen], flush=True)
    os._exit(0)
os.wait()
"""
    assert python(code, "-W", "ignore::DeprecationWarning") == "True 1 ['shadowgraph computes with one thread']\n"
