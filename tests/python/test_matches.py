"""assert_matches: results against the float64 oracle, by the bound of the kernel's arithmetic; what its error says."""

import numpy
import pytest
import torch
from problems import documented, paged, ragged

import shadowgraph as sg
from shadowgraph import _core


def call(**changed):
    """A paged call as a Call."""
    given = paged(**changed)
    pages = given.pop("page_table"), given.pop("cache_seqlens")
    return sg.paged(given.pop("q"), given.pop("cache"), pages, **given)


def refused(out, lse, reference, **more):
    with pytest.raises(sg.ShadowgraphError) as caught:
        sg.assert_matches(out, lse, reference, **more)
    return caught.value


def test_the_twins_own_results_match():
    for reference in (call(), call(causal=True, window_left=1, lse_base2=True), sg.ragged(**ragged(causal=True))):
        out, lse = reference.run(lse=True)
        sg.assert_matches(out, lse, reference, arithmetic="ours_portable")
        sg.assert_matches(out, None, reference)


def test_pages_may_be_lists_and_the_scale_is_the_usual_one():
    given = paged()
    lists = ([0, 3, 5], [1, 3, 5, 2, 4], [1, 2])
    a = sg.paged(given["q"], given["cache"], lists, cu_seqlens_q=given["cu_seqlens_q"])
    assert (a.run() == call().run()).all() and a.arguments["sm_scale"] == given["sm_scale"]
    with pytest.raises(TypeError, match="pages is no tuple"):
        sg.paged(given["q"], given["cache"], [1, 2])


def test_the_error_names_the_element_its_request_both_values_the_bound_and_the_mistake():
    right = call(causal=True, window_left=2)
    out, lse = call(causal=True, window_left=1).run(lse=True)
    error = refused(out, lse, right)
    first = error.findings[0]
    assert first.id == "num.bound" and first.field == "out" and len(first.index.split(",")) == 3
    row, request = first.row, int(first.got.rpartition(" ")[2])
    assert request == (0 if row < 3 else 1) and f"of query {row - 3 * request} of request {request}" in str(error)
    assert "+-" in first.expected and "times the bound" in first.got
    assert first.diagnosis[0].startswith("window.shorter") and "as if window.shorter: The window is too short" in str(error)


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda out, lse: (out, lse / numpy.log(2)), "lse.base"),
        (lambda out, lse: (out * 2, lse), "scale.output"),
    ],
    ids=["base", "scaled"],
)
def test_a_known_mistake_is_named(wrong, mistake):
    out, lse = wrong(*call().run(lse=True))
    assert any(mistake in line for line in refused(out, lse.astype("f"), call()).findings[0].diagnosis)


def test_a_bound_is_that_of_the_arithmetic():
    q, cache = (paged()[name] for name in ("q", "cache"))
    half = call(q=torch.from_numpy(q).half(), cache=tuple(torch.from_numpy(c).half() for c in cache))
    exact = call(q=half.arguments["q"].float(), cache=tuple(c.float() for c in half.arguments["cache"]))
    out = exact.run()
    sg.assert_matches(out, None, half, arithmetic="plain_f32")
    out = out + 2**-13 * out.abs()  # as weights are that are rounded to f16
    sg.assert_matches(out, None, half, arithmetic="fa3")
    refused(out, None, half, arithmetic="plain_f32")


def test_a_bound_that_tensor_cores_keep_is_said():
    q, *cache = (torch.from_numpy(part).half() for part in (paged()["q"], *paged()["cache"]))
    half = call(q=q, cache=tuple(cache))
    exact = call(q=q.float(), cache=tuple(c.float() for c in cache)).run()
    hint = '\n  arithmetic="tensor_cores" accepts these results'
    assert hint in str(refused(exact + 2**-13 * exact.abs(), None, half))
    with pytest.raises(sg.ShadowgraphError, match=hint):
        sg.opcheck(lambda **given: (exact + 2**-13 * exact.abs()).half(), [half], checks=["bound"])
    assert hint not in str(refused(exact * 2, None, half)) + str(refused(exact * 2, None, half, arithmetic="fa3"))


def test_what_is_no_call_is_refused_where_it_is_described():
    given, (out, lse) = paged(), call().run(lse=True)
    with pytest.raises(TypeError, match="reference is a ndarray, expected a call that paged or ragged describes"):
        sg.assert_matches(out, lse, out)
    with pytest.raises(TypeError, match="no argument is called softmax_scale"):
        sg.paged(**given, softmax_scale=0.5)
    with pytest.raises(TypeError, match="no argument is called page_table"):
        sg.ragged(**ragged(), page_table=None)
    for cache in (given["cache"][0], given["cache"][:1], list(given["cache"])):
        with pytest.raises(TypeError, match="cache is no tuple"):
            sg.paged(**given | {"cache": cache})


def test_what_cannot_be_judged_is_refused_by_name():
    out, lse = call().run(lse=True)
    assert "out.shape is [4, 4, 8], expected [5, 4, 8]" in str(refused(out[:4], lse, call()))
    with pytest.raises(ValueError, match=r"arithmetic is fa33; did you mean fa3\?, expected one of "):
        sg.assert_matches(out, lse, call(), arithmetic="fa33")
    assert [f.id for f in refused(out, lse, call(page_table=numpy.full((2, 3), 9, numpy.int32))).findings][0] == "table.page_id"


def test_a_call_shows_its_arguments():
    assert repr(call()).startswith("paged(q=<[5, 4, 8]>, cache=(<[6, 2, 2, 8]>, <[6, 2, 2, 8]>), ")
    assert repr(sg.ragged(**ragged())).startswith("ragged(q=<[5, 4, 8]>, ")


def test_the_judges_take_the_arguments_of_the_calls():
    for judge, twin in (("judge_paged", "paged_attention"), ("judge_ragged", "ragged_attention")):
        assert set(documented(judge)) == set(documented(twin)) | {"arithmetic"}
    with pytest.raises(TypeError, match="judge_paged: arithmetic is missing"):
        _core.judge_paged(**paged(), out=call().run())
    with pytest.raises(TypeError, match="judge_ragged: no argument is called windows"):
        _core.judge_ragged(**ragged(), out=call().run(), arithmetic="fa3", windows=3)
