"""pytest's plugin and Hypothesis's strategies: what a user's own tests see."""

import json

import pytest
from hypothesis import HealthCheck, find, given, settings

import shadowgraph as sg
from shadowgraph import strategies

BUILDER = """
import pytest, shadowgraph as sg
from hypothesis import given, settings
from shadowgraph import strategies

def table(batch, unit):
    width = max(map(len, batch.keys))
    return [[k[i] // unit for i in range(0, len(k), batch.page_size)] + [0] * (width - len(k[::batch.page_size])) for k in batch.keys]

BATCH = sg.Batch.from_slots("decode", [[8, 9, 10], [4]], page_size=2)
"""
SLIP = BUILDER + """
@settings(database=None, derandomize=True)
@given(batch=strategies.batches(page_sizes=[2]))
def test_builder(metadata_checker, batch):
    metadata_checker(batch, kv_lens=batch.kv_lens, page_table=table(batch, UNIT), slots=batch.stored)
"""


def test_a_right_builder_passes(pytester):
    pytester.makepyfile(SLIP.replace("UNIT", "batch.page_size"))
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_slip_shrinks_to_one_request_with_one_token(pytester):
    pytester.makepyfile(SLIP.replace("UNIT", "1"))
    run = pytester.runpytest_subprocess()
    run.assert_outcomes(failed=1)
    text = run.stdout.str()
    assert "ShadowgraphError: table.unit: page_table[0, 0] is 2" in text
    assert "batch=Batch('decode', page_size=2, prefix_lens=[0], q_lens=[1], keys=[[2]], pool_pages=" in text
    assert "judge.py" not in text and "_shadowgraph_pytest.py" not in text  # the traceback ends at the user's line


def test_a_run_without_the_fixture_imports_nothing_of_ours(pytester):
    pytester.makepyfile("import sys\ndef test_it():\n    assert not [m for m in sys.modules if m.startswith('shadowgraph')]")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


MARKED = BUILDER + """
@pytest.mark.metadata(waive=WAIVER)
def test_waived(metadata_checker):
    metadata_checker(BATCH, kv_lens=[2, 1])

@pytest.mark.metadata(pad_kv_lens=(0, 9))
def test_padded(metadata_checker):
    metadata_checker(BATCH, kv_lens=[3, 1, 9])

def test_not_padded(metadata_checker):
    metadata_checker(BATCH, kv_lens=[3, 1, 9])
"""


def test_a_marker_has_options_and_waivers_with_reasons(pytester):
    pytester.makepyfile(MARKED.replace("WAIVER", "'len.kv_extent: dummy rows'"))
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2, failed=1)
    for waiver, why in (("'len.kv_extent'", "expected 'LAW: reason'"), ("'', pages=2", r"no such option")):
        pytester.makepyfile(MARKED.replace("WAIVER", waiver))
        run = pytester.runpytest_subprocess("-k", "waived")
        assert run.ret != 0 and ("expected 'LAW: reason'" in run.stdout.str() or why in run.stdout.str())


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_report_has_every_tests_last_finding(pytester, workers):
    pytester.makepyfile(SLIP.replace("UNIT", "1") + "\ndef test_other(metadata_checker):\n    metadata_checker(BATCH, kv_lens=[2, 1])\n")
    reports = [f"--shadowgraph-report={form}:out/report.{form}" for form in ("json", "junit", "text", "sarif")]
    pytester.runpytest_subprocess(*reports, *workers).assert_outcomes(failed=2)
    whole = json.loads((pytester.path / "out/report.json").read_text())
    found = [(f["id"], f["case"].split("::")[1]) for f in whole["findings"]]
    assert found == [("table.unit", "test_builder"), ("len.kv_extent", "test_other")] and not whole["ok"]
    for form in ("junit", "text", "sarif"):
        assert "table.unit" in (pytester.path / f"out/report.{form}").read_text()


def test_a_clean_report_is_written_too(pytester):
    pytester.makepyfile("def test_it(): pass")
    run = pytester.runpytest_subprocess("--shadowgraph-report=json:clean.json")
    run.assert_outcomes(passed=1)
    assert json.loads((pytester.path / "clean.json").read_text())["ok"]
    assert pytester.runpytest_subprocess("--shadowgraph-report=pdf:x").ret == pytest.ExitCode.USAGE_ERROR


@settings(max_examples=200, database=None)
@given(batch=strategies.batches(mode=["decode", "extend"], page_sizes=[4], max_requests=3, max_context_len=16, max_extend_len=4))
def test_drawn_batches_are_legal_and_as_asked_for(batch):
    assert batch.mode in ("decode", "extend") and batch.page_size == 4 and 1 <= batch.rows <= 3
    assert max(batch.kv_lens) <= 16 and max(batch.q_lens) <= 4
    assert sg.check(batch, kv_lens=batch.kv_lens, slots=batch.stored).ok


@pytest.mark.parametrize(
    ("options", "wanted", "simplest"),
    [
        ({}, lambda b: b.rows == 2, lambda b: (b.kv_lens, b.page_size) == ([1, 1], 1)),
        ({"mode": "extend"}, lambda b: b.prefix_lens[0] > 0, lambda b: b.kv_lens == [2]),
        ({"mode": "extend", "shared_prefixes": True}, lambda b: b.rows == 2 and b.keys[0][0] == b.keys[1][0], lambda b: True),
        ({"mode": "target_verify", "num_draft_tokens": 2, "num_steps": 1}, lambda b: True, lambda b: b.q_lens == [2]),
    ],
    ids=["two", "prefix", "shared", "verify"],
)
def test_hypothesis_finds_and_shrinks(options, wanted, simplest):
    quick = settings(max_examples=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    assert simplest(find(strategies.batches(**options), wanted, settings=quick))


def test_wrong_options_are_refused_at_once():
    with pytest.raises(sg.ShadowgraphError, match="pool.shape: page_size is 3"):
        strategies.batches(page_sizes=[3])
    with pytest.raises(sg.ShadowgraphError, match="modes"):
        strategies.batches(mode="decoding")
