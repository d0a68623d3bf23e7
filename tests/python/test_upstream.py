"""All drop-ins share launches, refusals and outputs."""

import numpy
import pytest
import torch
from problems import paged

import shadowgraph as sg
from shadowgraph import _core, _upstream


def test_a_launch_is_called_unless_a_launcher_keeps_it():
    call = paged(out=numpy.zeros((5, 4, 8), numpy.float32))
    kept = []
    token = sg.launcher.set(kept.append)
    try:
        _upstream.launch(_core.paged_attention, {}, **call)
    finally:
        sg.launcher.reset(token)
    assert not call["out"].any()
    kept[0]()
    assert numpy.array_equal(call["out"], sg.paged_attention(**call | {"out": None}))
    _upstream.launch(_core.paged_attention, {}, **call | {"sm_scale": lambda: 2.0})
    assert numpy.array_equal(call["out"], sg.paged_attention(**call | {"out": None, "sm_scale": 2.0}))


def test_findings_and_errors_have_upstreams_names():
    call = paged(page_table=numpy.full((2, 3), 99, numpy.int32), out=numpy.full((5, 4, 8), 7, numpy.float32))
    with pytest.raises(sg.ShadowgraphError, match=r"table.page_id: block_table\[0, 0\] is 99") as caught:
        _upstream.launch(_core.paged_attention, {"page_table": "block_table"}, **call)
    assert {f.field for f in caught.value.findings} == {"block_table"} and (call["out"] == 7).all()
    with pytest.raises(TypeError, match="query is a <class 'str'>"):
        _upstream.launch(_core.paged_attention, {"q": "query"}, **call | {"q": "q"})


def test_an_option_is_refused_by_name_if_it_is_asked_for():
    _upstream.refuse("call", a=None, b=0, c=0.0, d=False, e="NONE")
    for value in (1, 0.5, True, "ROPE_LLAMA", torch.zeros(2), numpy.zeros(1), ()):
        with pytest.raises(NotImplementedError, match=r"^call\(b=…\)$"):
            _upstream.refuse("call", a=None, b=value)


def test_outputs_are_of_the_library_and_type_that_is_asked_for():
    like = torch.zeros(1).half()
    assert _upstream.empty(like, (2, 3)).dtype == torch.float16
    for dtype in (torch.bfloat16, "bfloat16"):
        assert _upstream.empty(like, (2,), dtype).dtype == torch.bfloat16
    assert _upstream.empty(like.numpy(), (2, 3), "float32").dtype == numpy.float32
    assert _upstream.empty(like.numpy(), (2,), torch.bfloat16).dtype == numpy.uint16


def test_arguments_are_made_as_the_engine_takes_them():
    ints = torch.ones(3, dtype=torch.int32)
    assert _upstream.integers(ints) is ints and _upstream.integers(None) is None
    assert _upstream.integers(ints.long())().dtype == numpy.int32
    assert _upstream.window(None) == _upstream.window((-1, None)) == {"window_left": -1, "window_right": -1}
    assert _upstream.window((3, 0)) == {"window_left": 3, "window_right": 0}
    assert _upstream.scale(None, 64) == 0.125 and _upstream.scale(torch.tensor(2.0), 64)() == 2.0
    assert _upstream.offsets([2, 0, 3]).tolist() == [0, 2, 2, 5] and _upstream.uniform_offsets(2, 3).tolist() == [0, 3, 6]


def test_masks_are_packed_request_by_request():
    bits, starts = _upstream.pack_bits([1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1], [9, 2])
    assert bits.tolist() == [0b11111101, 1, 0b10] and starts.tolist() == [0, 2, 3]


def test_findings_of_drop_ins_are_whole():
    error = _upstream.wrongs([("len.bound", "max_q", "at least 2", "1"), ("table.page_id", "page_table", "0 <= id < 4", "9", 1, 2)])
    first, second = error.findings
    assert first.title and first.mend and (first.row, first.col) == (None, None)
    assert second.text == "table.page_id: page_table[1, 2] is 9, expected 0 <= id < 4" and (second.row, second.col) == (1, 2)
    assert not any(line.isspace() for line in str(error).splitlines())
    assert "table.page_id" in error.report.to("json")
