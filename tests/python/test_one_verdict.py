"""check, a recorder and the program say the same of a step: of right arrays with padding, and of each slip in them."""

import json
import random
import subprocess
import sys

import pytest

import shadowgraph as sg
from shadowgraph import Batch, _core

MODES = ["extend", "decode", "mixed", "target_verify", "draft_extend", "draft_extend_v2", "draft_decode"]
OPTIONS = [{"modes": MODES, "num_draft_tokens": 4, "num_steps": 3, "topk": topk} for topk in (1, 2)]


def right(batch, padding):
    """What a right builder makes of a batch, with rows of padding that have no keys and no queries."""
    size = batch.page_size
    pages = [[slot // size for slot in row[::size]] for row in batch.keys] + [[] for _ in range(padding)]
    width = max(map(len, pages), default=1) or 1
    lens, news = batch.kv_lens + [0] * padding, batch.q_lens + [0] * padding
    sums = lambda counts: [sum(counts[:i]) for i in range(len(counts) + 1)]  # noqa: E731
    return {
        "kv_lens": lens,
        "q_lens": news,
        "cu_seqlens_q": sums(news),
        "cu_seqlens_k": sums(lens),
        "page_table": [row + [0] * (width - len(row)) for row in pages],
        "kv_indptr": sums([len(row) for row in pages]),
        "kv_indices": [page for row in pages for page in row],
        "last_page_len": [(n - 1) % size + 1 if n else 0 for n in lens],
        "slots": batch.stored + [-1] * padding,
        "max_seqlen_q": max(news, default=0),
    }


def slip(arrays, rng):
    """One number is off, or one array is cut."""
    name = rng.choice([name for name, array in arrays.items() if array not in ([], 0)])
    array = arrays[name]
    if name == "max_seqlen_q":
        return {name: array - 1}
    if rng.random() < 0.3:
        return {name: array[:-1]}
    i = rng.randrange(len(array))
    row = array[i] if isinstance(array[i], list) else array
    j = rng.randrange(len(row)) if row is not array else i
    wrong = [*row[:j], row[j] + rng.choice([-1, 1, 40]), *row[j + 1 :]]
    return {name: wrong if row is array else [*array[:i], wrong, *array[i + 1 :]]}


def findings(report):
    return sorted((f.id, f.field.removeprefix("input.").removeprefix("batch."), f.index, f.got, f.expected) for f in report)


def judged(batch, arrays):
    try:
        return sg.check(batch, **arrays).findings
    except sg.ShadowgraphError as refused:
        return refused.findings


def draw(options, count):
    for seed in range(count):
        rng = random.Random(seed)
        for handle in _core.history_draw(json.dumps(options), rng.randrange)[-1:]:
            yield rng, Batch._of(handle)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_all_ways_give_one_verdict(options, tmp_path):
    told, modes, wrong = {}, set(), 0
    with sg.record(tmp_path / "steps.jsonl") as rec:
        for rng, batch in draw(options, 300):
            arrays = right(batch, rng.randrange(3))
            for name, change in (("right", {}), ("slip", slip(arrays, rng))):
                for phase in ("eager", "replay"):
                    id = f"{rec._seen} {name}"
                    report = rec.step(batch, phase, id=id, **arrays | change)
                    if id in rec.skipped:
                        continue
                    told[id] = findings(report.findings)
                    assert name == "slip" or not told[id], (batch, arrays, report)
                    wrong += name == "slip" and not report.ok
                    modes.add(batch.mode)
                    if phase == "eager" or "max_seqlen_q" not in change:
                        assert findings(judged(batch, arrays | change)) == told[id], (batch, arrays, change, report)
    assert wrong > len(told) / 4 and {"extend", "decode", "target_verify"} <= modes
    command = [sys.executable, "-m", "shadowgraph", "check", str(tmp_path / "steps.jsonl"), "--format", "json", "--max-findings", "9999"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    by_file = {id: [] for id in told}
    for f in report["findings"]:
        where = f["where"]
        index = [n for n in (where.get("row"), where.get("col")) if n is not None]
        by_file[f["case"]].append((f["id"], where["field"].removeprefix("input."), str(index) if index else "", f["got"], f["expected"]))
    assert {id: sorted(found) for id, found in by_file.items()} == told


TWO = {"keys": [[8, 9, 10], [4]], "page_size": 2, "pool_pages": 8}
PADDED = {"kv_lens": [3, 1, 1], "page_table": [[4, 5], [2, 0], [0, 0]], "slots": [10, 4, -1]}


@pytest.mark.parametrize("phase", ["eager", "replay"])
@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        (PADDED | {"cu_seqlens_q": [0, 1, 2, 3]}, []),
        (PADDED | {"cu_seqlens_q": [0, 1, 2, 2]}, []),
        (PADDED | {"cu_seqlens_q": [0, 1, 2, 9]}, ["len.total cu_seqlens_q[3]"]),
        (PADDED | {"page_table": [[4, 5], [2, 0]]}, ["trace.shape page_table"]),
        (PADDED | {"page_table": [[4, 5], [2, 0], *[[0, 0]] * 6]}, []),  # a buffer of the largest batch
        (PADDED | {"kv_indptr": [0, 2, 3], "kv_indices": [4, 5, 2]}, ["trace.shape kv_indptr"]),
        ({"cu_seqlens_q": [0, 1, 2], "kv_lens": [3, 1, 1], "page_table": [[4, 5], [2, 0]]}, []),
        ({"cu_seqlens_q": [0, 1, 2, 2], "kv_lens": [3, 1], "page_table": PADDED["page_table"]}, ["trace.shape kv_lens"]),
        ({"kv_lens": [3, 1, 0], "slots": [10, 4]}, []),  # kernels store as many tokens as they have slots for
    ],
    ids=str,
)
def test_padding_is_that_of_the_rows_that_the_kernel_runs(arrays, found, phase, tmp_path):
    batch = Batch.from_slots("decode", **TWO)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        report = rec.step(batch, phase, **arrays)
    assert rec.steps == 1 and [f"{f.id} {f.field}{f.index}" for f in report.findings] == found
    assert findings(judged(batch, arrays)) == findings(report.findings)
    command = [sys.executable, "-m", "shadowgraph", "check", str(tmp_path / "steps.jsonl"), "--format", "json"]
    written = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert [f["id"] for f in written["findings"]] == [f.id for f in report.findings]


OPTIONS_OF_BOTH = [
    ({"pad_kv_lens": (0, 1)}, ["len.padding"]),
    ({"pad_kv_lens": (0, 4)}, []),
    ({"pad_kv_lens": (0, 4), "engine": "sglang"}, ["slot.write"]),
    ({"pad_kv_lens": (0, 4), "max_context_len": 2}, ["len.bound"]),
    ({"pad_kv_lens": (0, 4), "window_left": 1}, []),
    ({"pad_kv_lens": (0, 4), "units": {"page_table": 1}}, ["table.capacity", "table.capacity", "table.unit"]),
]


@pytest.mark.parametrize(("options", "found"), OPTIONS_OF_BOTH, ids=str)
def test_options_are_those_of_check(options, found, tmp_path):
    batch, arrays = Batch.from_slots("decode", **TWO), PADDED | {"kv_lens": [3, 1, 4]}
    with sg.record(tmp_path / "steps.jsonl") as rec:
        report = rec.step(batch, **arrays, **options)
    assert sorted(f.id for f in report.findings) == found and rec.steps == 1, rec.summary()
    assert sorted(f.id for f in sg.check(batch, **arrays, **options).findings) == found


def test_what_is_refused_is_not_written(tmp_path):
    batch = Batch.from_slots("decode", **TWO)
    with sg.record(tmp_path / "steps.jsonl", every=2) as rec:
        assert rec.step(batch, kv_lens=[3, 1]).ok
        assert str(rec.step(batch, kv_lens=[3, 1])) == "not judged: only one of every 2 steps is recorded"
        misspelt = rec.step(batch, kv_len=[3, 1], page_table=[[4, 5], [2, 0]])
        rec.step(batch)
        nothing = rec.step(batch, id="empty")
        rec.step(batch, kv_lens=[3, 1], pad_kv_lens=1)  # type: ignore[arg-type]
        assert not rec.step(batch, kv_lens=[3, 1], pad_kv_lens=1).ok  # type: ignore[arg-type]
    assert not misspelt.ok and "kv_len; did you mean kv_lens?" in misspelt.findings[0].text
    assert not nothing.ok and [f.id for f in nothing.findings] == ["skip.no_field"]
    assert rec.steps == 1 and {"step2", "empty"} <= set(rec.skipped)
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 1
