"""pytest's plugin: the fixture metadata_checker, the marker metadata, --shadowgraph-report.

pytest loads it in every run, so it imports nothing of shadowgraph until it is used.
"""

import json
import os
import pathlib
import tempfile

import pytest

_FORMATS = ("text", "json", "junit", "sarif", "github", "html")
_REPORTS = pytest.StashKey[list]()
_TEST = pytest.StashKey[pytest.Item]()  # the one that runs: the fixture outlives it
_JUDGE_OPTIONS = {"max_context_len", "window_left", "pad_kv_lens", "engine", "units", "names"}


def _format_and_file(value):
    form, colon, file = value.partition(":")
    if form not in _FORMATS or not file:
        raise pytest.UsageError(f"--shadowgraph-report={value}: expected FORMAT:FILE, FORMAT one of {', '.join(_FORMATS)}")
    return form, file


def pytest_addoption(parser):
    group = parser.getgroup("shadowgraph")
    group.addoption("--shadowgraph-report", action="append", default=[], metavar="FORMAT:FILE", type=_format_and_file,
                    help=f"writes what metadata_checker found in this run; repeatable; {', '.join(_FORMATS)}")


def pytest_configure(config):
    config.stash[_REPORTS] = []
    config.addinivalue_line(
        "markers",
        "metadata(waive='LAW: reason', **options): options of metadata_checker's judge in this test "
        f"({', '.join(sorted(_JUDGE_OPTIONS))}), and laws that may be broken in it, with the reason; a list waives several",
    )


class _Checker:
    """Judges the metadata of a step and raises what it finds: metadata_checker(batch, kv_lens=lens, page_table=table)."""

    def __init__(self, stash):
        self.stash = stash

    def _marks(self):
        """Options of the judge, and ids of waived laws."""
        options, waived = {}, []
        for mark in reversed(list(self.stash[_TEST].iter_markers("metadata"))):
            given = dict(mark.kwargs)
            waive = given.pop("waive", [])
            for text in [waive] if isinstance(waive, str) else waive:
                law, _, reason = text.partition(":")
                if not reason.strip():
                    raise pytest.UsageError(f"metadata(waive={text!r}): expected 'LAW: reason'")
                waived.append(law.strip())
            if mark.args or not _JUDGE_OPTIONS >= given.keys():
                raise pytest.UsageError(f"metadata: {mark.args or sorted(given.keys() - _JUDGE_OPTIONS)}: no such option")
            options |= given
        return options, waived

    def __call__(self, batch, **arrays):
        __tracebackhide__ = True
        import shadowgraph

        options, waived = self._marks()
        report = shadowgraph.check(batch, **options | arrays)
        for finding in report.findings:
            if finding.id not in waived:
                self._keep(report, waived)
                raise shadowgraph.ShadowgraphError(report)

    def _keep(self, report, waived):
        """Hypothesis calls a test again and again: the last finding of a test is the shrunken one."""
        test = self.stash[_TEST].nodeid
        part = json.loads(report.to("json"))
        part["findings"] = [f | {"case": test} for f in part["findings"] if f["id"] not in waived]
        kept = self.stash[_REPORTS]
        kept[:] = [p for p in kept if p["findings"][0]["case"] != test] + [part]


@pytest.fixture(scope="session")
def metadata_checker(request):
    """Judges the metadata of a step and raises ShadowgraphError: metadata_checker(batch, kv_lens=lens, slots=slots).

    Arrays and options are those of shadowgraph.check."""
    return _Checker(request.config.stash)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.config.stash[_TEST] = item


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """xdist: a worker has ended."""
    node.config.stash[_REPORTS] += getattr(node, "workeroutput", {}).get("shadowgraph", [])


def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["shadowgraph"] = config.stash[_REPORTS]
    elif config.option.shadowgraph_report:
        _write(config.stash[_REPORTS], config.option.shadowgraph_report)


def _write(parts, wanted):
    import shadowgraph

    whole = json.loads(shadowgraph.Report(None).to("json"))
    whole["findings"] = [f for part in sorted(parts, key=lambda p: p["findings"][0]["case"]) for f in part["findings"]]
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
