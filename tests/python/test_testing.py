"""The property test of a builder without pytest: every small batch, then histories; the smallest failure is told."""

import re

import numpy
import pytest

import shadowgraph as sg
from shadowgraph import testing


def build(batch):
    width = max(-(-n // batch.page_size) for n in batch.kv_lens)
    rows = [[slots[i] // batch.page_size for i in range(0, len(slots), batch.page_size)] for slots in batch.keys]
    return {"kv_lens": batch.kv_lens, "page_table": [row + [0] * (width - len(row)) for row in rows], "slots": batch.stored}


def failure(builder, *modes, **options):
    with pytest.raises(sg.ShadowgraphError) as caught:
        testing.check(builder, *modes, **options)
    return caught.value


def test_a_right_builder_sees_every_small_batch_and_histories():
    # Decodes of one or two requests over pages of 2, of 0 to 5 tokens, in three orders of pages
    assert testing.check(build, "decode", [2], histories=0) == 3 * (6 + 6**2)
    assert testing.check(build, "decode", [2], histories=20, steps=5) > 3 * (6 + 6**2)


def test_a_slip_shrinks_to_the_smallest_batch():
    error = failure(lambda batch: build(batch) | {"kv_lens": batch.prefix_lens}, "extend", [4])
    assert error.findings[0].id == "len.kv_extent"
    assert "step 0 Batch('extend', page_size=4, prefix_lens=[0], q_lens=[1], keys=[[4]], pool_pages=" in str(error)


class Stale:
    """A slip: the table is copied only where the number of requests changes."""

    def __init__(self):
        self.table = numpy.zeros((0, 64), numpy.int32)

    def __call__(self, batch):
        rows = build(batch)["page_table"]
        if len(self.table) != len(rows):
            self.table = numpy.array([row + [0] * (64 - len(row)) for row in rows], numpy.int32)
        return {"kv_lens": batch.kv_lens, "page_table": self.table}


def test_a_stale_buffer_shrinks_to_two_steps_that_its_choices_repeat(monkeypatch):
    error = failure(Stale, "decode", [1])
    assert len(re.findall(r"step \d Batch\(", str(error))) == 2
    choices = re.search(r"SHADOWGRAPH_CHOICES=([0-9.]+)", str(error))[1]
    assert str(failure(Stale, "decode", [1], choices=choices)) == str(error)
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", choices)
    assert str(failure(Stale, "decode", [1])) == str(error)
    assert testing.check(build, "decode", [1]) == 2


class Narrow:
    """A slip: one element more than there are rows is set to 0."""

    def __init__(self):
        self.lens = sg.shadowed(2, "int32", "lens")
        self.wide = numpy.lib.stride_tricks.as_strided(self.lens, (3,))

    def __call__(self, batch):
        self.wide[: batch.rows] = batch.kv_lens
        self.wide[batch.rows] = 0
        return {"kv_lens": self.lens[: batch.rows]}


def test_a_write_around_an_array_is_found():
    error = failure(Narrow, "decode", [1], max_requests=2)
    assert error.findings[0].text.endswith("lens is a write of element 2, expected no write outside its 2 elements")
    assert "q_lens=[1, 1]" in str(error)


def test_what_is_not_written_shows():
    def half(batch):
        lens = sg.shadowed(4)
        lens[:1] = batch.kv_lens[:1]
        return {"kv_lens": lens[: batch.rows]}

    assert "kv_lens[1] is -2139062144" in str(failure(half, "decode", [1]))


def test_an_exception_of_the_builder_is_its_cause():
    def raises(batch):
        return {"kv_lens": [1 // (2 - batch.rows)]} if batch.rows > 1 else build(batch)

    error = failure(raises, "decode", [1])
    assert error.findings[0].id == "trace.exception" and isinstance(error.__cause__, ZeroDivisionError)
    assert "builder is ZeroDivisionError: integer division or modulo by zero" in str(error) and "q_lens=[1, 1]" in str(error)


def test_what_is_no_finding_ends_the_test_at_once():
    calls = []

    def stops(batch):
        calls.append(batch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        testing.check(stops)
    assert len(calls) == 1
    with pytest.raises(sg.ShadowgraphError, match="test.options"):
        testing.check(lambda batch: {"kv_len": [1]})
    for nothing in ({}, {"engine": "sglang"}, {"kv_lens": None}):
        with pytest.raises(sg.ShadowgraphError, match="skip.no_field: "):
            testing.check(lambda batch: nothing)
    with pytest.raises(TypeError, match="the builder returns None, expected arrays by role"):
        testing.check(lambda batch: None)
    with pytest.raises(TypeError, match="a Fills cannot be called; a builder is called with a batch"):
        testing.check(type("Fills", (), {"build": build}))
    with pytest.raises(sg.ShadowgraphError, match="test.nothing: modes is none, expected a step of draft_decode"):
        testing.check(build, "draft_decode", histories=1, small_requests=0, steps=1, num_steps=2, num_draft_tokens=3)
    with pytest.raises(TypeError, match="no option of a scheduler: max_request"):
        testing.check(build, max_request=3)


def test_what_a_mode_needs_of_the_scheduler_is_said():
    needed = {"target_verify": "num_steps is 0, expected at least 1", "draft_decode": "num_steps is 1, expected at least 2"}
    for mode, why in needed.items():
        with pytest.raises(sg.ShadowgraphError, match=f"test.options: {why} for steps of {mode}"):
            testing.check(build, mode, num_draft_tokens=3, num_steps=int(mode == "draft_decode"))
    with pytest.raises(sg.ShadowgraphError, match="dllm_block is 0, expected at least 1 for steps of dllm_extend"):
        testing.check(build, ["decode", "dllm_extend"])
