"""Batches, their judge, reports and recorded steps from Python."""

import json
import random

import numpy
import pytest
import torch

import shadowgraph as sg
from shadowgraph import Batch, _core

DECODE = {"keys": [[8, 9, 10], [4]], "q_lens": [1, 1], "page_size": 2, "pool_pages": 8}
RIGHT = {"kv_lens": [3, 1], "q_lens": [1, 1], "cu_seqlens_q": [0, 1, 2], "cu_seqlens_k": [0, 3, 4], "slots": [10, 4]}
RIGHT |= {"page_table": [[4, 5], [2, 0]], "max_seqlen_q": 1, "max_seqlen_k": 3}
LISTS = {"kv_indptr": [0, 2, 3], "kv_indices": [4, 5, 2], "last_page_len": [1, 1]}


def decode():
    return Batch.from_slots("decode", **DECODE)


def test_a_batch_is_what_a_scheduler_knows():
    batch = decode()
    assert (batch.mode, batch.page_size, batch.pool_pages, batch.rows, batch.requests) == ("decode", 2, 8, 2, 2)
    assert (batch.prefix_lens, batch.q_lens, batch.kv_lens) == ([2, 0], [1, 1], [3, 1])
    assert (batch.cu_seqlens_q, batch.keys, batch.stored) == ([0, 1, 2], [[8, 9, 10], [4]], [10, 4])
    assert str(batch) == "decode, page_size 2, prefix_lens [2, 0], q_lens [1, 1]"
    assert numpy.array_equal(numpy.asarray(batch.array("kv_lens")), [3, 1])
    with pytest.raises(AttributeError, match="no attribute 'kv_len'"):
        batch.kv_len


def test_slots_pages_and_tables_make_the_same_truth():
    slots = decode()
    pages = Batch.from_pages("decode", [torch.tensor([4, 5]), [2]], [3, 1], [1, 1], page_size=2, pool_pages=8)
    table = Batch.from_table(
        "decode", numpy.array([[4, 0, 0], [8, 9, 10]], numpy.int16), [1, 0], torch.tensor([3, 1]), page_size=2, pool_pages=8
    )
    assert pages == table == slots and hash(table) == hash(slots)
    for name in ("kv_lens", "q_lens", "keys", "stored", "cu_seqlens_q", "page_size", "pool_pages", "mode"):
        assert getattr(pages, name) == getattr(table, name) == getattr(slots, name)
    for changed in ({"page_size": 1}, {"pool_pages": 9}, {"keys": [[8, 9, 11], [4]]}, {"q_lens": [2, 1]}, {"out_cache_loc": [9, 4]}):
        assert Batch.from_slots("extend", **DECODE | changed) != Batch.from_slots("extend", **DECODE)
    assert slots != Batch.from_slots("extend", **DECODE) and slots != "decode"
    with pytest.raises(sg.ShadowgraphError, match=r"kv_lens\[0\] is 5, expected at most 4, the tokens of 2 pages of 2"):
        Batch.from_pages("decode", [[4, 5]], [5], page_size=2)


@pytest.mark.parametrize(
    ("batch", "printed"),
    [
        (decode(), "Batch('decode', page_size=2, prefix_lens=[2, 0], q_lens=[1, 1], keys=[[8, 9, 10], [4]], pool_pages=8)"),
        (
            Batch.from_slots("extend", [[1, 2, 3]], [2], out_cache_loc=[2, 4], positions=[0, 1]),
            "Batch('extend', page_size=1, prefix_lens=[1], q_lens=[2], keys=[[1, 2, 3]], positions=[0, 1], out_cache_loc=[2, 4])",
        ),
        (
            Batch.from_table("decode", [[1, 2, 3, 4, 0, 0]], [0], [2], encoder_lens=[2]),
            "Batch('decode', page_size=1, req_to_token=[[1, 2, 3, 4]], req_pool_indices=[0], seq_lens=[2], q_lens=[], encoder_lens=[2])",
        ),
        (
            Batch.from_table("decode", [[1, 2]], [0], [2], full_to_swa=[0, 3, 4], pool_pages=5),
            "Batch('decode', page_size=1, prefix_lens=[1], q_lens=[1], keys=[[1, 2]], pool_pages=5, full_to_swa=[0, 3, 4])",
        ),
        (Batch.from_slots("idle", []), "Batch('idle', page_size=1, prefix_lens=[], q_lens=[], keys=[])"),
    ],
    ids=str,
)
def test_repr_evaluates(batch, printed):
    assert repr(batch) == printed
    again = eval(printed)
    assert again == batch and repr(again) == printed and hash(again) == hash(batch)


MODES = ["extend", "decode", "mixed", "target_verify", "draft_extend", "draft_extend_v2", "draft_decode", "split_prefill"]


@pytest.mark.parametrize(
    "options", [{}, {"modes": MODES, "num_draft_tokens": 4, "num_steps": 3, "topk": 2}, {"max_encoder_len": 3}, {"window_left": 2}], ids=str
)
def test_repr_of_every_drawn_batch_evaluates(options):
    shown = set()
    for seed in range(200):
        for handle in _core.history_draw(json.dumps(options | {"steps": 6}), random.Random(seed).randrange):
            batch = Batch._of(handle)
            assert eval(repr(batch)) == batch
            shown.add(batch.mode)
    assert shown == set(options.get("modes", ["extend", "decode"]))


def test_prefixes_and_new_tokens_agree():
    assert Batch("extend", prefix_lens=[1], keys=[[1, 2, 3]]).q_lens == [2]
    with pytest.raises(sg.ShadowgraphError, match=r"q_lens is \[1\], expected \[2\]"):
        Batch("extend", prefix_lens=[1], q_lens=[1], keys=[[1, 2, 3]])
    with pytest.raises(ValueError, match="prefix_lens are for keys"):
        Batch("extend", prefix_lens=[1], req_to_token=[[1]], req_pool_indices=[0], seq_lens=[1])


def test_the_modes_are_those_of_the_library():
    with pytest.raises(ValueError) as refused:
        Batch("no mode", keys=[])
    modes = str(refused.value).partition("one of ")[2].split(", ")
    assert len(modes) > 9 and all(f'"{mode}"' in Batch.__init__.__doc__ for mode in modes)


def test_a_long_batch_has_a_short_repr():
    batch = Batch.from_table("decode", numpy.arange(8192).reshape(1, 8192), [0], [5000])
    assert repr(batch) == "<Batch decode, page_size 1, prefix_lens [4999], q_lens [1]>"


def test_a_batch_that_contradicts_itself_is_refused():
    with pytest.raises(sg.ShadowgraphError, match=r"len.extent: keys\[0\] is 2 tokens, expected >= 3 new tokens"):
        Batch.from_slots("extend", [[1, 2]], [3])
    with pytest.raises(sg.ShadowgraphError, match="len.batch: q_lens is missing"):
        Batch.from_slots("extend", [[1, 2]])
    with pytest.raises(sg.ShadowgraphError, match="kv_lens is a list of 2, expected one for each of the 1 requests"):
        Batch.from_pages("decode", [[4, 5]], [3, 1], page_size=2)
    with pytest.raises(ValueError, match=r"params.mode is Decode; did you mean decode\?, expected one of extend, decode, mixed"):
        Batch.from_slots("Decode", [[1]])
    with pytest.raises(TypeError, match="no argument is called kv_lens"):
        Batch.from_slots("decode", [[1]], kv_lens=[1])


@pytest.mark.parametrize("make", [list, numpy.array, torch.tensor])
def test_right_metadata_is_clean(make):
    arrays = {n: a if isinstance(a, int) else make(a) for n, a in (RIGHT | LISTS).items()}
    report = sg.check(decode(), **arrays)
    assert report.ok and report.findings == [] and str(report) == "clean"
    report.raise_()


WRONG = {
    "kv_lens": ([2, 1], "len.kv_extent"),
    "q_lens": ([1, 2], "len."),
    "cu_seqlens_q": ([0, 1, 1], "len."),
    "cu_seqlens_k": ([0, 2, 4], "len."),
    "page_table": ([[4, 6], [2, 0]], "table.slot"),
    "slots": ([9, 4], "slot.write"),
    "max_seqlen_q": (0, "len."),
    "max_seqlen_k": (2, "len."),
    "kv_indptr": ([0, 1, 3], "len."),
    "kv_indices": ([4, 6, 2], "table."),
    "last_page_len": ([2, 1], "len."),
}


def test_every_role_has_a_wrong_value():
    assert set(WRONG) == set(RIGHT) | set(LISTS)


@pytest.mark.parametrize("role", WRONG)
def test_wrong_metadata_is_found_by_its_own_name(role):
    value, law = WRONG[role]
    arrays = RIGHT | LISTS if role in LISTS else RIGHT
    report = sg.check(decode(), **arrays | {role: value}, names={role: "mine"})
    assert not report.ok
    found = [f for f in report.findings if f.field == "mine"]
    assert found and found[0].id.startswith(law), report
    with pytest.raises(sg.ShadowgraphError) as caught:
        report.raise_()
    assert caught.value.report is report and caught.value.findings == report.findings


def test_slots_where_pages_belong_are_named_so():
    report = sg.check(decode(), page_table=[[8, 9], [4, 0]])
    (finding,) = report.findings
    assert (finding.id, finding.field, finding.row, finding.col) == ("table.unit", "page_table", 0, 0)
    assert "K48" in finding.refs and finding.title and finding.mend and finding.severity == "error"
    assert sg.check(decode(), page_table=[[8, 9, 10], [4, 0, 0]], units={"page_table": 1}).ok


def test_the_batch_itself_is_judged():
    batch = Batch.from_slots("decode", [[8, 9, 10], [10]], [1, 1], page_size=2, pool_pages=8)
    assert "slot.duplicate" in {f.id for f in sg.check(batch).findings}


def test_rows_behind_the_batch_are_padding():
    padded = {"kv_lens": [3, 1, 4], "page_table": [[4, 5], [2, 0], [0, 0]]}
    assert not sg.check(decode(), **padded).ok
    assert sg.check(decode(), **padded, pad_kv_lens=(0, 4)).ok
    longest = Batch.from_slots("decode", [list(range(4, 9))])
    assert sg.check(longest, max_context_len=5).ok and not sg.check(longest, max_context_len=4).ok


REFUSED = [
    ({"kv_len": [3, 1]}, r"kv_len is no role; did you mean kv_lens\?, expected one of positions, kv_lens"),
    ({"kv_lens": numpy.float32([3, 1])}, "input.dtype: kv_lens is float32, expected integers or bool"),
    ({"kv_lens": numpy.float16([3, 1])}, "kv_lens is float16"),
    ({"kv_lens": torch.empty(2, dtype=torch.int32, device="meta")}, "input.device: kv_lens is on a device of another kind"),
    ({"page_table": numpy.zeros((1, 2, 2), int)}, "page_table is a tensor of 3 axes, expected 1 axis, or 2 of a table"),
    ({"swa_page_table": [[4], [2]]}, "swa_page_table: not judged: the batch has no full_to_swa"),
]


@pytest.mark.parametrize(("arrays", "text"), REFUSED)
def test_what_cannot_be_judged_is_refused(arrays, text):
    with pytest.raises(sg.ShadowgraphError, match=text):
        sg.check(decode(), **arrays)


def test_words_and_types_that_there_are_not_are_pythons_errors():
    for wrong, text in (
        (lambda: sg.check(decode(), kv_lens=[3, "a"]), "check: kv_lens holds 'a' at place 1, expected an integer"),
        (lambda: sg.check(decode(), kv_lens=[3, 1], pad_kv_lens=[0, 1]), r"pad_kv_lens is \[0, 1\], expected a tuple"),
        (lambda: sg.check({}), "batch is a <class 'dict'>, expected a shadowgraph.Batch"),
        (lambda: Batch("decode"), "keys are missing, or req_to_token with"),
        (lambda: Batch.from_slots("decode", [1, 2]), r"keys\[0\] is 1, expected a list for each request"),
        (lambda: Batch.from_slots("decode", [[1.5]]), "keys holds 1.5 at place 0, expected an integer"),
    ):
        with pytest.raises(TypeError, match=text):
            wrong()
    with pytest.raises(TypeError, match="kv_lens is a <class 'str'>"):
        sg.check(decode(), kv_lens="3, 1")
    with pytest.raises(ValueError, match=r"engine is SGLang; did you mean sglang\?, expected one of sglang, sglang_npu, any"):
        sg.check(decode(), engine="SGLang")
    with pytest.raises(ValueError, match="units has 'page_tabel', expected a role of this call: page_table"):
        sg.check(decode(), page_table=[[4, 5], [2, 0]], units={"page_tabel": 1})


# What is wrong, and what is said of it: whose slot it is, which page size was forgotten, how long an array is.
TOLD = [
    ({"kv_lens": 3}, "trace.shape: kv_lens is one number, expected a list"),
    ({"kv_lens": [[3, 1]]}, "trace.shape: kv_lens is [1, 2], expected a list"),
    ({"kv_lens": [3]}, "trace.shape: kv_lens is 1 element long, expected at least 2"),
    ({"page_table": [4, 2]}, "trace.shape: page_table is [2], expected a table [rows, columns]"),
    ({"max_seqlen_k": [3, 1]}, "trace.shape: max_seqlen_k is a list of 2, expected one number"),
    (
        {"kv_lens": [3, 1, 1], "page_table": [[4, 5], [2, 0]]},
        "trace.shape: page_table is 2 rows long, expected at least 3: the kernel runs 3 rows, as many as kv_lens has",
    ),
    (
        {"kv_indptr": [0, 2, 3], "kv_indices": [4, 5]},
        "table.capacity: kv_indices is 2 elements long: the kernel reads on behind the last, expected at least 3, where the "
        "offsets end row 1",
    ),
    (
        {"page_table": [[4], [2]]},
        "table.capacity: page_table[0] is 1 columns wide: the kernel reads on behind the last, expected at least 2 columns, for "
        "3 keys",
    ),
    ({"last_page_len": [0, 1]}, "len.last_page: last_page_len[0] is 0, expected 1, for 3 keys; any is 1 to 2"),
    (
        {"last_page_len": [2, 1]},
        "len.kv_extent: last_page_len[0] is 2: 2 pages of 2, the last with 2: 4 keys are read, expected 1, for 3 keys",
    ),
    (
        {"slots": [9, 4]},
        "slot.write: slots[0] is 9, the slot of token 1 of request 0, expected 10, the slot of token 2 of request 0",
    ),
    ({"slots": [11, 4]}, "slot.write: slots[0] is 11, a slot of no request, expected 10, the slot of token 2 of request 0"),
]


@pytest.mark.parametrize(("arrays", "text"), TOLD)
def test_findings_say_what_is_wrong(arrays, text):
    assert [f.text for f in sg.check(decode(), **arrays).findings] == [text]


def test_a_forgotten_page_size_is_named():
    batch = Batch.from_slots("decode", DECODE["keys"])
    (found,) = sg.check(batch, page_table=[[4, 5], [2, 0]]).findings
    assert found.id == "table.unit" and "the table is right with page_size 2, and the batch says 1" in found.text
    found = sg.check(batch, kv_indptr=[0, 2, 3], kv_indices=[4, 5, 2]).findings
    assert [f.id for f in found] == ["table.unit", "len.q_extent"]
    assert all("the offsets count pages of 2 tokens, and the batch says page_size 1" in f.text for f in found)
    assert [f.id for f in sg.check(batch, page_table=[[4, 5, 0], [3, 0, 0]]).findings] == ["table.slot"]


def test_integers_of_any_width_are_judged():
    for dtype in (numpy.int8, numpy.int16, numpy.uint16, numpy.uint32, numpy.uint64, numpy.int64):
        assert sg.check(decode(), kv_lens=numpy.array([3, 1], dtype)).ok
        assert sg.check(decode(), page_table=numpy.array([[4, 5], [3, 0]], dtype)).findings[0].id == "table.slot"


def test_a_report_has_the_forms_of_the_program():
    report = sg.check(decode(), kv_lens=[2, 1])
    assert json.loads(report.to("json"))["findings"][0]["id"] == "len.kv_extent"
    for form, begin in (("text", ""), ("junit", "<?xml"), ("sarif", "{"), ("github", "seed"), ("html", "<!")):
        assert report.to(form).lstrip().startswith(begin) and "len.kv_extent" in report.to(form)
    with pytest.raises(ValueError, match="pdf|none of text"):
        report.to("pdf")
    assert sg.Report(None).ok and "clean" in sg.Report(None).to("text")


def test_choices_draw_histories():
    options = json.dumps({"modes": ["decode"], "page_sizes": [2]})
    steps = [Batch._of(handle) for handle in _core.history_draw(options, lambda bound: bound // 2)]
    batch = steps[-1]
    assert len(steps) > 1 and batch.mode == "decode" and batch.page_size == 2 and batch.kv_lens == [23] and eval(repr(batch)) == batch
    assert sg.check(batch, kv_lens=batch.kv_lens).ok
    calls = []

    def fails(bound):
        calls.append(bound)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _core.history_draw(options, fails)
    assert len(calls) == 1
    with pytest.raises(ValueError, match=r"choose\(\d+\) is \d+"):
        _core.history_draw(options, lambda bound: bound)
    with pytest.raises(sg.ShadowgraphError, match="test.options: page_sizes"):
        _core.history_draw('{"page_sizes": 3}', lambda bound: 0)


def line(lens):
    """A recorded step: its line, and what is found."""
    step = _core.step_new("laws", "decode", "eager")
    _core.step_id(step, "mine")
    _core.step_config(step, "page_size", 2)
    _core.step_input(step, "req_to_token", [[8, 9, 10], [4, 0, 0]])
    _core.step_input(step, "req_pool_indices", torch.tensor([0, 1]))
    _core.step_input(step, "seq_lens", numpy.array([3, 1], numpy.int32))
    _core.step_input(step, "out_cache_loc", [10, 4])
    _core.step_role(step, "lengths", "kv_lens")
    _core.step_field(step, "lengths", lens)
    _core.step_field(step, "max_seqlen_k", 3)
    return _core.step_line(step), sg.Report(_core.step_judge(step))


def test_a_step_is_judged_and_written():
    text, report = line([3, 1])
    assert report.ok, report
    record = json.loads(text)
    assert record["id"] == "mine" and record["backend"] == "laws" and record["config"]["page_size"] == 2
    _, report = line([2, 1])
    assert [f.id for f in report.findings] == ["len.kv_extent"] and report.findings[0].field == "lengths"
    with pytest.raises(sg.ShadowgraphError, match="skip.unknown_backend"):
        _core.step_judge(_core.step_new("steam", "decode", "eager"))
    with pytest.raises(TypeError, match="no handle of a shadowgraph.step"):
        _core.step_line(decode()._handle)


def test_arrays_that_are_all_none_are_not_judged():
    batch = sg.Batch.from_slots("decode", [[0]])
    assert sg.check(batch).ok and sg.check(batch, kv_lens=[1], page_table=None).ok
    with pytest.raises(sg.ShadowgraphError, match="skip.no_field: page_table is None, and so are all others"):
        sg.check(batch, page_table=None, slots=None)


def test_a_decode_has_one_new_token_a_request_and_a_prefill_is_an_extend():
    with pytest.raises(sg.ShadowgraphError, match=r"len.q_extent: q_lens\[0\] is 2, expected 1, of a decode"):
        sg.Batch("decode", keys=[[8, 9, 10], [4]], q_lens=[2, 1])
    with pytest.raises(ValueError, match=r"prefill; did you mean extend\?, expected one of extend, decode"):
        sg.Batch("prefill", keys=[[8]], q_lens=[1])
