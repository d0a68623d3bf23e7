"""pytest's plugin and Hypothesis's strategies: what a user's own tests see."""

import json
import re

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
    misspelt = "metadata(waive='len.kv_extnt'): no such law; `shadowgraph list laws` has all"
    wrong = {
        "'len.kv_extent'": "expected 'LAW: reason'",
        "[], mode='decode'": "['mode']: no such option, expected some of waive, engine, max_context_len, modes, ",
        "'len.kv_extnt: dummy rows'": misspelt,
    }
    for waiver, why in wrong.items():
        pytester.makepyfile(MARKED.replace("WAIVER", waiver))
        run = pytester.runpytest_subprocess("-k", "waived")
        assert run.ret != 0 and why in run.stdout.str()


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


def test_a_report_has_what_the_judge_refused(pytester):
    pytester.makepyfile(BUILDER + """
@pytest.mark.metadata(waive="test.options: a refusal is none to waive")
def test_waived(metadata_checker):
    metadata_checker(BATCH, kvlens=[3, 1])

def test_it(metadata_checker):
    metadata_checker(BATCH, kvlens=[3, 1])
""")
    pytester.runpytest_subprocess("--shadowgraph-report=json:out.json").assert_outcomes(failed=2)
    whole = json.loads((pytester.path / "out.json").read_text())
    found = [(f["id"], f["case"].split("::")[1]) for f in whole["findings"]]
    assert not whole["ok"] and found == [("test.options", "test_it"), ("test.options", "test_waived")]


def test_a_clean_report_is_written_too(pytester):
    pytester.makepyfile("def test_it(): pass")
    run = pytester.runpytest_subprocess("--shadowgraph-report=json:clean.json")
    run.assert_outcomes(passed=1)
    assert json.loads((pytester.path / "clean.json").read_text())["ok"]
    assert pytester.runpytest_subprocess("--shadowgraph-report=pdf:x").ret == pytest.ExitCode.USAGE_ERROR


def test_a_failing_test_says_how_to_run_its_batch_again(pytester, monkeypatch):
    pytester.makepyfile(SLIP.replace("UNIT", "1").replace("page_sizes=[2]", "page_sizes=[2], max_requests=2").replace("def test", "def test_a_"))
    text = pytester.runpytest_subprocess("--shadowgraph-report=json:out.json").stdout.str()
    choices, again = re.search(r"reproduce: SHADOWGRAPH_CHOICES=([0-9.]+) pytest (\S+::test_a__builder)", text).groups()
    assert json.loads((pytester.path / "out.json").read_text())["findings"][0]["reproduce"].endswith(again)
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", choices)
    run = pytester.runpytest_subprocess(again)
    run.assert_outcomes(failed=1)
    assert "keys=[[2]]" in run.stdout.str()
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", "3,1")
    assert "SHADOWGRAPH_CHOICES is '3,1', expected numbers: 3.0.1" in pytester.runpytest_subprocess(again).stdout.str()
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", "9.9.9.9")
    assert "ValueError: SHADOWGRAPH_CHOICES is '9.9.9.9': no step of the modes" in pytester.runpytest_subprocess(again).stdout.str()
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", "0.0.0.0.1.1.0")
    assert "q_lens=[1, 1]" in pytester.runpytest_subprocess(again).stdout.str()


DRAWN = BUILDER + """
SEEN = set()

@pytest.mark.metadata(modes="extend", page_sizes=16)
class TestMarked:
    @given(batch=strategies.batches())
    def test_what_the_strategy_leaves_open(self, batch):
        assert (batch.mode, batch.page_size) == ("extend", 16)

    @pytest.mark.metadata(page_sizes=[8])
    @given(steps=strategies.histories(mode="decode"))
    def test_what_the_strategy_says_stays(self, metadata_checker, steps):
        assert {(batch.mode, batch.page_size) for batch in steps} == {("decode", 8)}
        metadata_checker(steps[0], kv_lens=steps[0].kv_lens)

@given(batch=strategies.batches())
def test_without_a_marker(batch):
    SEEN.add((batch.mode, batch.page_size))

def test_seen():
    assert SEEN == {("decode", 1), ("decode", 2), ("decode", 4)}

@pytest.mark.metadata(page_sizes=[3])
@given(batch=strategies.batches())
def test_wrong(batch):
    pass
"""


def test_a_marker_says_what_strategies_draw(pytester):
    pytester.makepyfile(DRAWN)
    run = pytester.runpytest_subprocess("--strict-markers", "-p", "no:randomly")
    run.assert_outcomes(passed=4, failed=1)
    assert "pool.shape: page_size is 3" in run.stdout.str()


RECORDED = BUILDER + """
def step(recorder, lens):
    recorder.step(BATCH, kv_lens=lens, slots=[10, 4])

def test_right(engine_recorder):
    step(engine_recorder, [3, 1])

def test_wrong(engine_recorder):
    step(engine_recorder, [3, 1])
    step(engine_recorder, [2, 1])

@pytest.mark.metadata(waive="len.kv_extent: prefix only")
def test_waived(engine_recorder):
    step(engine_recorder, [2, 1])

def test_nothing_is_recorded(engine_recorder):
    pass

def test_fails_by_itself(engine_recorder):
    step(engine_recorder, [3, 2])
    assert 1 == 2
"""

REFUSED = BUILDER + """
@pytest.mark.parametrize("wrong", [{"kvlens": [3, 1]}, {"kv_lens": [3, 1], "page_table": [[4], [2, 3]]}, {"kv_lens": None}])
def test_refused(engine_recorder, wrong):
    engine_recorder.step(BATCH, kv_lens=[3, 1])
    engine_recorder.step(BATCH, **wrong)
"""


def test_a_step_that_is_refused_fails_its_test(pytester):
    pytester.makepyfile(REFUSED)
    run = pytester.runpytest_subprocess("--shadowgraph-report=json:out.json")
    run.assert_outcomes(failed=3)
    found = json.loads((pytester.path / "out.json").read_text())["findings"]
    assert [f["id"] for f in found] == ["io.line", "skip.bad_input", "skip.no_field"]
    assert "kvlens; did you mean kv_lens?" in run.stdout.str() and "page_table has rows of different lengths" in run.stdout.str()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_what_an_engine_did_fails_its_test(pytester, workers):
    pytester.makepyfile(RECORDED)
    run = pytester.runpytest_subprocess("--shadowgraph-report=json:out.json", *workers)
    run.assert_outcomes(passed=2, failed=3)
    text = run.stdout.str()
    assert "\nlen.kv_extent: step1: kv_lens[0] is 2" in text and "_shadowgraph_pytest.py" not in text
    assert "\ntest.nothing: engine_recorder is none: " in text and " sglang: sglang." in text
    assert "assert 1 == 2" in text and "kv_lens[1] is 2" in text  # beside the test's own failure
    found = {f["case"].rpartition("::")[2]: f["id"] for f in json.loads((pytester.path / "out.json").read_text())["findings"]}
    assert found == {
        "test_wrong step1": "len.kv_extent",
        "test_nothing_is_recorded": "test.nothing",
        "test_fails_by_itself step0": "len.kv_extent",
    }


STALE = BUILDER + """
class Builder:
    # A slip: of a batch of as many requests as before only the lengths are copied.
    def __init__(self):
        self.table = None

    def build(self, batch):
        rows = table(batch, batch.page_size)
        if self.table is None or len(self.table) != len(rows):
            self.table = [row + [0] * (40 - len(row)) for row in rows]
        return {"kv_lens": batch.kv_lens, "page_table": self.table}

@settings(database=None, derandomize=True, max_examples=500)
@given(steps=strategies.histories(page_sizes=[2]))
def test_builder(metadata_checker, steps):
    builder = Builder()
    for batch in steps:
        metadata_checker(batch, **builder.build(batch))
"""


def test_a_stale_buffer_is_found_and_shrunk_to_two_steps(pytester, monkeypatch):
    pytester.makepyfile(STALE)
    run = pytester.runpytest_subprocess()
    run.assert_outcomes(failed=1)
    text = run.stdout.str()
    assert "ShadowgraphError: table." in text
    steps = re.search(r"steps=\[((?:.|\n)*?)\]\)?,\n", text)[1]
    assert steps.count("Batch('decode'") == 2, steps
    choices = re.search(r"SHADOWGRAPH_CHOICES=([0-9.]+)", text)[1]
    monkeypatch.setenv("SHADOWGRAPH_CHOICES", choices)
    pytester.runpytest_subprocess().assert_outcomes(failed=1)
    pytester.makepyfile(STALE.replace("if self.table is None or len(self.table) != len(rows):", "if True:"))
    monkeypatch.delenv("SHADOWGRAPH_CHOICES")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_run_inside_a_test_has_tests_of_its_own(pytester):
    inner = "def test_inner(metadata_checker):\n    pass\n"
    pytester.makeconftest("pytest_plugins = ['pytester']")
    pytester.makepyfile(BUILDER + f"""
@pytest.mark.metadata(waive="len.kv_extent: outer")
def test_outer(pytester, metadata_checker):
    pytester.makepyfile({inner!r})
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    metadata_checker(BATCH, kv_lens=[2, 1])
""")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_write_around_an_array_is_found(pytester):
    pytester.makepyfile(BUILDER + """
def test_it(metadata_checker):
    lens = sg.shadowed(2, "int32", "lens")
    lens[:] = [3, 1]
    metadata_checker(BATCH, kv_lens=lens)
    lens.base[-64:] = 0
    metadata_checker(BATCH, kv_lens=lens)
""")
    run = pytester.runpytest_subprocess()
    run.assert_outcomes(failed=1)
    assert "mem.red_zone: lens is a write of element 2, expected no write outside its 2 elements" in run.stdout.str()


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
        strategies.histories(mode="decoding")
    with pytest.raises(TypeError, match="no option of a scheduler: max_request"):
        strategies.batches(max_request=3)


@settings(max_examples=100, database=None)
@given(steps=strategies.histories(mode=["decode", "extend"], page_sizes=[2], max_requests=3, steps=8))
def test_drawn_histories_are_legal(steps):
    assert 1 <= len(steps) <= 8 and len({batch.choices for batch in steps}) == 1
    for batch in steps:
        assert sg.check(batch, kv_lens=batch.kv_lens, slots=batch.stored).ok and batch.page_size == 2


def test_requests_of_histories_grow_finish_and_leave_their_slots_to_others():
    def goes_on(steps):
        grown = any(b.keys[0][:-1] == a.keys[0] for a, b in zip(steps, steps[1:]))
        return grown and any(set(a.keys[0]) & set(b.keys[-1]) for a in steps for b in steps if a.keys[0][0] != b.keys[-1][0])

    quick = settings(max_examples=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    assert len(find(strategies.histories(max_requests=2), goes_on, settings=quick)) >= 3
