"""Each slip of an engine that decodes in a graph is found by the guard and by the recorder, or in its output."""

import graph_engine
import pytest
import torch

import shadowgraph as sg
import shadowgraph.torch


@pytest.mark.parametrize("plant", [None, *graph_engine.PLANTS])
def test_a_slip_is_found_and_a_right_engine_is_silent(plant, tmp_path):
    guard, guarded = sg.Guard(), []

    def watch(engine, what):
        if what == "captured":
            guard.captured("decode", engine.buffers)
            return
        guarded.extend(guard.replaying("decode", engine.buffers, engine.batch()).findings)
        names = {"out_cache_loc": "slots"}
        rec.step(engine.batch(), "replay", **{names.get(name, name): value for name, value in engine.buffers.items()})

    with shadowgraph.torch.cpu_graphs(), sg.record(tmp_path / "steps.jsonl") as rec:
        steps = list(graph_engine.Engine(plant, watch).serve())
    by_guard, by_recorder = {f.id for f in guarded}, {f.id for f in rec.report.findings}
    wrong = sum(not torch.equal(out, expected) for out, expected in steps)
    assert rec.steps == 4 and guard.skipped == {}, rec.summary()
    law = graph_engine.PLANTS.get(plant)
    if law is None:
        assert (by_guard, by_recorder, wrong) == (set(), set(), 0)
    elif law == "output":
        assert (by_guard, by_recorder) == (set(), set()) and wrong > 0
    else:
        assert law in by_guard
        assert law in by_recorder or law.startswith(("graph.", "mem.")), rec.report
