"""The recorder sees what SGLang's builders made, drafts and plans too, and a twin judges it as it judges the recording."""

import json
import subprocess
import sys

import pytest
import sglang_steps
from problems import ROOT

import shadowgraph as sg

FILES = ["flashattention.current", "flashattention.latest", "triton.current", "triton.latest", "trtllm_mha.latest", "flashinfer.latest"]
MODES = ("decode", "extend", "mixed", "target_verify", "draft_decode", "draft_extend", "cross_decode", "cross_extend")


def recorded(line, path, older=False):
    backend, batch = sglang_steps.step(line)
    with sg.record(path) as rec:
        if line["phase"] == "eager":
            backend.init_forward_metadata(batch)
        elif older:
            sglang_steps.graph_before(backend, batch, line["phase"])
        else:
            backend.init_forward_metadata_out_graph(batch, in_capture=line["phase"] == "capture")
    return rec


def steps(name):
    for line in sglang_steps.lines(name):
        if line["mode"] in MODES and line["phase"] in ("eager", "capture", "replay") and "exception" not in line["expect"]:
            yield line


def program(path):
    """Ids of laws by line, as `shadowgraph check` finds them."""
    command = [sys.executable, "-m", "shadowgraph", "check", str(path), "--format", "json"]
    found = {}
    for finding in json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["findings"]:
        found.setdefault(finding["case"], set()).add(finding["id"])
    return found


@pytest.mark.parametrize("older", [False, True], ids=["newer methods", "older methods"])
@pytest.mark.parametrize("name", FILES)
def test_a_step_is_judged_as_its_recording_is(name, older, tmp_path, monkeypatch):
    sglang_steps.imported(monkeypatch)
    expected = program(ROOT / "tests" / "data" / "traces" / f"{name}.jsonl")
    seen = 0
    for line in steps(name):
        rec = recorded(line, tmp_path / "steps.jsonl", older)
        if line["backend"] == "flashinfer" and line["config"].get("window"):
            assert "two wrappers" in rec.skipped["FlashInferAttnBackend.init_forward_metadata"] and rec.steps == 0
            continue
        assert rec.steps == 1, (line["id"], rec.summary())
        found = {finding.id for finding in rec.report.findings}
        others = {"mem.out_of_bounds"}  # which a recorder of kernels saw
        if line["backend"] == "triton" and line["config"].get("window"):
            others |= {"len.kv_extent", "len.q_extent"}  # of the window's lists, which are not recorded
        assert found == expected.get(line["id"], set()) - others, (line["id"], rec.report)
        seen += 1
    assert seen > 2


def test_a_later_step_of_a_draft_has_a_token_more(tmp_path, monkeypatch):
    sglang_steps.imported(monkeypatch)
    line = next(line for line in steps("flashattention.latest") if line["mode"] == "draft_decode" and line["config"]["topk"] == 1)
    later = json.loads(json.dumps(line))
    later["config"]["step_id"] = 1
    assert {f.id for f in recorded(later, tmp_path / "steps.jsonl").report.findings} >= {"len.kv_extent"}
    for field in ("cache_seqlens_int32", "max_seq_len_k"):
        data = later["expect"][field]["data"]
        later["expect"][field]["data"] = data + 1 if isinstance(data, int) else [n + 1 for n in data]
    found = {f.id for f in recorded(later, tmp_path / "steps.jsonl").report.findings}
    assert found == {"table.capacity"}  # the recorded table has no column for it


def plant(line, field, change):
    """A line with a slip of one field."""
    wrong = json.loads(json.dumps(line))
    wrong["expect"][field]["data"] = change(wrong["expect"][field]["data"])
    return wrong


@pytest.mark.parametrize(
    ("mode", "field", "change", "law"),
    [
        ("decode", "cache_seqlens_int32", lambda data: [n - 1 for n in data], "len.kv_extent"),
        ("extend", "cu_seqlens_q", lambda data: [0, *[n + 1 for n in data[1:]]], "len.q_extent"),
        ("target_verify", "page_table", lambda data: [[n + 1 for n in row] for row in data], "table.slot"),
        ("draft_decode", "expand.page_table", lambda data: [[n + 1 for n in row] for row in data], "table.slot"),
        ("draft_decode", "expand.cache_seqlens_int32", lambda data: [n + 1 for n in data], "len.kv_extent"),
    ],
)
def test_a_slip_is_found_in_every_mode(mode, field, change, law, tmp_path, monkeypatch):
    sglang_steps.imported(monkeypatch)
    line = next(line for line in steps("flashattention.latest") if line["mode"] == mode and field in line["expect"])
    assert recorded(line, tmp_path / "steps.jsonl").report.ok
    found = recorded(plant(line, field, change), tmp_path / "steps.jsonl").report.findings
    assert law in {finding.id for finding in found}
