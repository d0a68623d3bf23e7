"""pytest's plugin: the fixtures metadata_checker and engine_recorder, the marker metadata, --shadowgraph-report.

pytest loads it in every run, so it imports nothing of shadowgraph until it is used.
"""

import json
import os
import pathlib
import shlex
import tempfile

import pytest

_FORMATS = ("text", "json", "junit", "sarif", "github", "html")
_REPORTS = pytest.StashKey[dict]()  # by test
_JUDGED = pytest.StashKey[bool]()  # whether a test's recorder was
_JUDGE_OPTIONS = {"max_context_len", "window_left", "pad_kv_lens", "engine", "units", "names"}
_DRAWN = {"modes", "page_sizes"}
_running = []  # the test that runs: metadata_checker outlives it, and strategies have no fixtures


def _format_and_file(value):
    form, colon, file = value.partition(":")
    if form not in _FORMATS or not file:
        raise pytest.UsageError(f"--shadowgraph-report={value}: expected FORMAT:FILE, FORMAT one of {', '.join(_FORMATS)}")
    return form, file


def pytest_addoption(parser):
    group = parser.getgroup("shadowgraph")
    group.addoption("--shadowgraph-report", action="append", default=[], metavar="FORMAT:FILE", type=_format_and_file,
                    help=f"writes what the fixtures found in this run; repeatable; {', '.join(_FORMATS)}")


def pytest_configure(config):
    config.stash[_REPORTS] = {}
    config.addinivalue_line(
        "markers",
        "metadata(waive='LAW: reason', modes=..., page_sizes=..., **options): laws that may be broken in this test, with the "
        "reason (a list waives several); what shadowgraph's strategies draw in it where they do not say it themselves; "
        f"options of metadata_checker's judge ({', '.join(sorted(_JUDGE_OPTIONS))})",
    )


def _known(law):
    from shadowgraph import _core

    try:
        _core.report_new([(law, "", -1, -1, "", "")])
    except ValueError:
        raise pytest.UsageError(f"metadata(waive={law!r}): no such law; `shadowgraph list laws` has all") from None
    return law


def _marks(item):
    """What the markers of a test say, the nearest last, and the ids of laws that are waived."""
    options, waived = {}, set()
    for mark in reversed(list(item.iter_markers("metadata"))):
        given = dict(mark.kwargs)
        waive = given.pop("waive", [])
        for text in [waive] if isinstance(waive, str) else waive:
            law, _, reason = text.partition(":")
            if not reason.strip():
                raise pytest.UsageError(f"metadata(waive={text!r}): expected 'LAW: reason'")
            waived.add(_known(law.strip()))
        unknown = given.keys() - _JUDGE_OPTIONS - _DRAWN
        if mark.args or unknown:
            expected = ", ".join(["waive", *sorted(_JUDGE_OPTIONS | _DRAWN)])
            raise pytest.UsageError(f"metadata: {mark.args or sorted(unknown)}: no such option, expected some of {expected}")
        options |= given
    return options, waived


def drawn_in_this_test():
    """For strategies: modes and page_sizes, if the running test has them."""
    options = _marks(_running[-1])[0] if _running else {}
    return {name: options[name] for name in _DRAWN & options.keys()}


def _keep(item, report, again="", refused=False):
    """Keeps what was found in a test, for the report of the run; false where all of it is waived, which no refusal is."""
    waived = set() if refused else _marks(item)[1]
    part = json.loads(report.to("json"))
    part["findings"] = [_placed(f, item.nodeid, again) for f in part["findings"] if f["id"] not in waived]
    if part["findings"]:  # Hypothesis calls a test again and again: its last finding is the shrunken one
        item.config.stash[_REPORTS][item.nodeid] = part
    return bool(part["findings"])


def _placed(finding, test, again):
    case = f"{test} {finding['case']}" if finding.get("case") else test
    return finding | {"case": case} | ({"reproduce": again} if again else {})


class _Checker:
    """Judges the metadata of a step and raises what it finds: metadata_checker(batch, kv_lens=lens, page_table=table)."""

    def __call__(self, batch, **arrays):
        __tracebackhide__ = True
        import shadowgraph
        from shadowgraph.shadows import red_zones

        item = _running[-1]
        options = {name: value for name, value in _marks(item)[0].items() if name not in _DRAWN}
        again = f"SHADOWGRAPH_CHOICES={batch.choices} pytest {shlex.quote(item.nodeid)}" if batch.choices else ""
        try:
            report = shadowgraph.check(batch, **options | arrays)
        except shadowgraph.ShadowgraphError as error:
            _keep(item, error.report, again, refused=True)
            raise
        written = red_zones()
        if written is not None:
            report = shadowgraph.Report(shadowgraph._core.report_add(written, report._handle))
        if not report.ok and _keep(item, report, again):
            error = shadowgraph.ShadowgraphError(report)
            if again:
                error.args = (f"{error}\n  reproduce: {again}",)
            raise error


@pytest.fixture(scope="session")
def metadata_checker():
    """Judges the metadata of a step and raises ShadowgraphError: metadata_checker(batch, kv_lens=lens, slots=slots).

    Arrays and options are those of shadowgraph.check."""
    return _Checker()


@pytest.fixture
def engine_recorder(request, tmp_path):
    """Records and judges the steps of every engine that is imported, while the test runs; its findings fail the test,
    as a step that is refused does, and recording nothing. It is a shadowgraph.Recorder: an engine of your own calls engine_recorder.step."""
    import shadowgraph

    with shadowgraph.record(tmp_path / "steps.%p.jsonl") as recorder:
        yield recorder
    item = request.node
    if not item.stash.get(_JUDGED, False) and recorder.steps + len(recorder.refused):  # the test itself failed
        report = _report_of(recorder)
        if _keep(item, report):
            item.add_report_section("teardown", "engine_recorder", str(report))


def _report_of(recorder):
    """What a recorder found. A step that it refused is a finding, too, and that nothing was recorded."""
    import shadowgraph

    whole = recorder.report
    for name, refused in recorder.refused.items():
        whole = shadowgraph.Report(shadowgraph._core.report_add(whole._handle, refused._handle, name))
    if recorder.steps or recorder.refused:
        return whole
    skipped = "; ".join(f"{name}: {reason}" for name, reason in recorder.skipped.items())
    why = "no hooked method was called" if recorder.hooked or not skipped else skipped
    found = ("test.nothing", "engine_recorder", -1, -1, "a step that is recorded in this process", f"none: {why}")
    return shadowgraph.Report(shadowgraph._core.report_new([found]))


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item):
    """Behind the test itself, if it passed."""
    recorder = getattr(item, "funcargs", {}).get("engine_recorder")
    if recorder is not None:
        item.stash[_JUDGED] = True
        report = _report_of(recorder)
        if not report.ok and _keep(item, report):
            pytest.fail(str(report), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    _running.append(item)  # behind the test that runs pytest in this process
    yield
    _running.pop()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """xdist: a worker has ended."""
    node.config.stash[_REPORTS] |= getattr(node, "workeroutput", {}).get("shadowgraph", {})


def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["shadowgraph"] = config.stash[_REPORTS]
    elif config.option.shadowgraph_report:
        _write(config.stash[_REPORTS], config.option.shadowgraph_report)


def _write(parts, wanted):
    import shadowgraph

    whole = json.loads(shadowgraph.Report(None).to("json"))
    whole["findings"] = [finding for _, part in sorted(parts.items()) for finding in part["findings"]]
    whole["ok"] = not whole["findings"]
    whole["summary"] |= {"cases": max(1, len(parts)), "findings": len(whole["findings"])}
    with tempfile.TemporaryDirectory() as folder:
        joined = pathlib.Path(folder, "report.json")
        joined.write_text(json.dumps(whole))
        for form, file in wanted:
            pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
            code = shadowgraph._core.main(["shadowgraph", "merge-reports", os.fspath(joined), "--format", form, "--output", file, "--quiet"])
            if code > 1:
                raise pytest.UsageError(f"--shadowgraph-report={form}:{file}: not written")
