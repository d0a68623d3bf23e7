"""Attention from Python: what is given reaches the engine, and what is refused is named."""

import numpy
import pytest
import torch
from problems import DIM, HEADS, KV_HEADS, KV_LENS, PAGE, Q_LENS, documented, paged, ragged, values

import shadowgraph as sg
from shadowgraph import _core

TOTAL = sum(Q_LENS)
MASKED = {
    "custom_mask": numpy.arange(sum(q * k for q, k in zip(Q_LENS, KV_LENS))) % 3 != 1,
    "mask_indptr": [0, Q_LENS[0] * KV_LENS[0], sum(q * k for q, k in zip(Q_LENS, KV_LENS))],
}
RANGES = {"causal": True, "bidirectional_ranges": [[1, 3]], "bidirectional_indptr": [0, 1, 1]}
# A call without each argument, and the argument. Out or lse must differ.
EFFECTS = {
    "sm_scale": ({}, {"sm_scale": 1.0}),
    "logits_soft_cap": ({}, {"logits_soft_cap": 1.0}),
    "causal": ({}, {"causal": True}),
    "window_left": ({}, {"window_left": 1}),
    "window_right": ({}, {"window_right": 1}),
    "sinks": ({}, {"sinks": [0.5] * HEADS}),
    "custom_mask": ({}, MASKED),
    "mask_heads": (MASKED, {"custom_mask": numpy.arange(23 * HEADS) % 5 != 1, "mask_heads": HEADS, "mask_indptr": [0, 60, 92]}),
    "lse_base2": ({}, {"lse_base2": True}),
    "lse_sink": ({"sinks": [0.5] * HEADS}, {"lse_sink": True}),
    "max_seqlen_q": ({}, {"max_seqlen_q": 1}),
    "alibi": ({"alibi_slopes": [0.5] * HEADS}, {"alibi": "distance"}),
    "alibi_slopes": ({}, {"alibi_slopes": [0.5] * HEADS}),
    "key_bias": ({}, {"key_bias": values(HEADS, sum(KV_LENS))}),
    "qq_bias": ({}, {"qq_bias": values(3, 3)}),
    "relative_bias": ({}, {"relative_bias": values(HEADS, 3)}),
    "temperature_len": ({}, {"temperature_len": 2}),
    "attention_chunk": ({}, {"attention_chunk": 2}),
    "chunk_lookback": ({"attention_chunk": 2}, {"chunk_lookback": 1}),
    "request_causal": ({}, {"request_causal": numpy.array([True, False])}),
    "cache_leftpad": ({}, {"cache_leftpad": [1, 0]}),
    "bidirectional_ranges": ({"causal": True}, RANGES),
    "bidirectional_indptr": (RANGES, {"bidirectional_indptr": [0, 0, 1]}),
    "k_scales": ({}, {"k_scales": [0.25] * KV_HEADS}),
    "v_scales": ({}, {"v_scales": [0.25] * KV_HEADS}),
    "q_scale": ({}, {"q_scale": 0.5}),
    "out_scale": ({}, {"out_scale": 0.5}),
    "seqused_q": ({}, {"seqused_q": [2, 1]}),
    "seqused_k": ({}, {"seqused_k": [4, 2]}),
}
# Those that have tests of their own.
APART = {"q", "cache", "k", "v", "page_table", "cache_seqlens", "kv_indptr", "kv_indices", "last_page_len", "cu_seqlens_q"}
APART |= {"mask_indptr", "cu_seqlens_k", "lse", "out", "dtype", "kv_dtype", "arith", "num_threads"}


def run(function, call):
    """(out, lse), with zeros where the call computes nothing."""
    out, lse = numpy.zeros((TOTAL, HEADS, DIM), numpy.float32), numpy.zeros((TOTAL, HEADS), numpy.float32)
    function(**call, out=out, lse=lse)
    return numpy.concatenate([out.ravel(), lse.ravel()])


@pytest.mark.parametrize("function", ["paged_attention", "ragged_attention"])
def test_every_documented_argument_has_a_test(function):
    assert set(documented(function)) - APART == set(EFFECTS)


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("make", [paged, ragged])
def test_argument_reaches_the_engine(name, make):
    before, added = EFFECTS[name]
    function = getattr(sg, make.__name__ + "_attention")
    try:
        without, given = run(function, make(**before)), run(function, make(**(before | added)))
    except sg.ShadowgraphError as error:
        assert (make, name) == (paged, "seqused_k") and "the page table has the lengths" in str(error)
    else:
        assert not numpy.array_equal(without, given)


@pytest.mark.parametrize("name", ["lse_base2", "lse_sink"])
def test_lse_has_arguments_that_leave_out_alone(name):
    before, added = EFFECTS[name]
    (out, lse), (same, other) = (sg.paged_attention(**paged(**more), lse=True) for more in (before, before | added))
    assert numpy.array_equal(out, same) and not numpy.array_equal(lse, other)


def test_arguments_differ_in_what_they_do():
    alone = [run(sg.paged_attention, paged(**added)).tobytes() for before, added in EFFECTS.values() if not before and "seqused_k" not in added]
    assert len(set(alone)) == len(alone) > 15


def test_arith_is_the_engines():
    half = torch.randn(64, 2, 32, 64).bfloat16()
    call = {"q": torch.randn(4, 16, 64).bfloat16(), "cache": (half.transpose(1, 2), half.transpose(1, 2)), "sm_scale": 1.0}
    call |= {"page_table": torch.arange(64, dtype=torch.int32).view(4, 16), "cache_seqlens": [500] * 4}
    portable = sg.paged_attention(**call)
    fast = sg.paged_attention(**call, arith="fast")
    assert torch.equal(fast, portable) == (sg.isa() not in ("avx512bf16", "amx"))


def test_lists_of_pages_are_the_table():
    call = paged()
    table = sg.paged_attention(**call)
    for name in ("page_table", "cache_seqlens"):
        call.pop(name)
    lists = sg.paged_attention(**call, kv_indptr=[0, 3, 5], kv_indices=[1, 3, 5, 2, 4], last_page_len=[1, 2])
    assert numpy.array_equal(lists, table)


def test_ragged_is_paged_without_pages():
    assert numpy.array_equal(sg.ragged_attention(**ragged(causal=True)), sg.paged_attention(**paged(causal=True)))


def test_layouts_hold_the_same_keys():
    call = paged()
    k, v = call["cache"]
    stacked = numpy.stack([k, v], axis=1)
    want = sg.paged_attention(**call)
    hnd = k.transpose(0, 2, 1, 3).copy(), v.transpose(0, 2, 1, 3).copy()
    for cache in (
        (*hnd, "HND"),
        sg.Cache(stacked, layout="STACKED_NHD"),
        (stacked.transpose(0, 1, 3, 2, 4).copy(), None, "STACKED_HND"),
        (stacked[:, 0], stacked[:, 1]),
    ):
        assert numpy.array_equal(sg.paged_attention(**call | {"cache": cache}), want)


def test_members_of_a_cache_reach_the_engine():
    call, (k, v) = paged(), paged()["cache"]
    plain = sg.paged_attention(**call)
    assert numpy.array_equal(sg.paged_attention(**paged(cache=sg.Cache(k, v, v_scale=2.0))), 2 * plain)
    assert not numpy.array_equal(sg.paged_attention(**paged(cache=sg.Cache(k, v, k_scale=2.0))), plain)
    latent = values(6, PAGE, DIM)
    out = sg.paged_attention(**paged(cache=sg.Cache(latent, layout="MLA_LATENT", head_dim_vo=4)))
    assert out.shape == (TOTAL, HEADS, 4)
    ones, scales = numpy.ones((6, PAGE, KV_HEADS, DIM), numpy.int8), numpy.full((6, PAGE, KV_HEADS), 3, numpy.float32)
    assert (sg.paged_attention(**paged(cache=sg.Cache(ones, ones, k_scales=scales, v_scales=scales))) == 3).all()
    with pytest.raises(sg.ShadowgraphError, match="input.shape: cache"):
        sg.paged_attention(**paged(cache=sg.Cache(k, v, layout="PANELS", head_dim_qk=7, head_dim_vo=8)))


@pytest.mark.parametrize("make", [paged, ragged])
def test_torch_and_numpy_give_the_same_bits(make):
    call = make(causal=True, lse=True)
    function = getattr(sg, make.__name__ + "_attention")
    to_torch = lambda a: torch.from_numpy(a) if isinstance(a, numpy.ndarray) else a  # noqa: E731
    both = {n: tuple(map(to_torch, a)) if isinstance(a, tuple) else to_torch(a) for n, a in call.items()}
    (out, lse), (torch_out, torch_lse) = function(**call), function(**both)
    assert type(out) is numpy.ndarray and type(torch_out) is torch.Tensor
    assert out.dtype == lse.dtype == numpy.float32 and torch_out.dtype == torch_lse.dtype == torch.float32
    assert numpy.array_equal(out, torch_out.numpy()) and numpy.array_equal(lse, torch_lse.numpy())


@pytest.mark.parametrize(("name", "dtype"), [("float16", torch.float16), ("bfloat16", torch.bfloat16)])
def test_out_has_the_type_of_q(name, dtype):
    call = paged()
    tensors = {"q": torch.from_numpy(call["q"]).to(dtype), "cache": tuple(torch.from_numpy(c).to(dtype) for c in call["cache"])}
    out, lse = sg.paged_attention(**call | tensors, lse=True)
    assert out.dtype == dtype and lse.dtype == torch.float32, name


def test_unsigned_integers_are_what_dtype_says():
    call = paged()
    q, (k, v) = torch.from_numpy(call["q"]).bfloat16(), (torch.from_numpy(c).bfloat16() for c in call["cache"])
    want = sg.paged_attention(**call | {"q": q, "cache": (k, v)})
    bits = [t.view(torch.int16).numpy().view(numpy.uint16) for t in (q, k, v)]
    got = sg.paged_attention(**call | {"q": bits[0], "cache": tuple(bits[1:])}, dtype="bf16", kv_dtype="bf16")
    assert got.dtype == numpy.uint16
    assert numpy.array_equal(got, want.view(torch.int16).numpy().view(numpy.uint16))
    for name, one in (("e4m3", 0x38), ("e5m2", 0x3C)):
        ones = numpy.full((6, PAGE, KV_HEADS, DIM), one, numpy.uint8)
        out = sg.paged_attention(**call | {"q": bits[0], "cache": (ones, ones)}, dtype="bf16", kv_dtype=name)
        assert out.dtype == numpy.uint16 and (out == 0x3F80).all()
        assert (sg.paged_attention(**call | {"cache": (ones, ones)}, kv_dtype=name) == 1).all()


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="torch has fp8 types from 2.1 on; NumPy's uint8 with kv_dtype takes the same way, and is tested above")
def test_torchs_fp8_is_taken_by_its_name():
    ones = torch.ones(6, PAGE, KV_HEADS, DIM)
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        cache = ones.to(getattr(torch, dtype))
        assert (sg.paged_attention(**paged(cache=(cache, cache))) == 1).all()


def test_a_decode_needs_no_offsets():
    call = paged(q=values(2, HEADS, DIM), cu_seqlens_q=None)
    assert sg.paged_attention(**call).shape == (2, HEADS, DIM)


def test_tensors_are_taken_as_they_lie():
    call = paged()
    want = sg.paged_attention(**call)
    wide = numpy.zeros((2, 9), numpy.int32)
    wide[:, :3] = call["page_table"]
    frozen = [c.copy() for c in call["cache"]]
    for c in frozen:
        c.flags.writeable = False
    q = torch.from_numpy(call["q"]).requires_grad_()
    more_heads = torch.zeros(TOTAL, 2 * HEADS, DIM)
    more_heads[:, ::2] = q.detach()
    for changed in ({"page_table": wide[:, :3]}, {"page_table": call["page_table"].tolist()}, {"cache": tuple(frozen)},
                    {"q": q}, {"q": more_heads[:, ::2]}, {"cu_seqlens_q": memoryview(call["cu_seqlens_q"])}):
        assert numpy.array_equal(numpy.asarray(sg.paged_attention(**call | changed)), want), changed


def test_tensors_of_another_library_come_by_dlpack():
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self):
            return self.array.__dlpack__()

    call = paged()
    other = {n: Other(call[n]) for n in ("q", "page_table", "cache_seqlens", "cu_seqlens_q")}
    out = sg.paged_attention(**call | other | {"cache": tuple(map(Other, call["cache"]))})
    assert numpy.array_equal(out, sg.paged_attention(**call))


def test_outputs_are_the_callers():
    call = paged()
    out, lse = torch.zeros(TOTAL, HEADS, DIM), torch.zeros(HEADS, TOTAL).t()
    where = out.data_ptr(), lse.data_ptr()
    got_out, got_lse = sg.paged_attention(**call, out=out, lse=lse)
    assert got_out is out and got_lse is lse and where == (out.data_ptr(), lse.data_ptr())
    want_out, want_lse = sg.paged_attention(**call, lse=True)
    assert numpy.array_equal(out.numpy(), want_out) and numpy.array_equal(lse.numpy(), want_lse)
    assert sg.paged_attention(**call, lse=False).shape == out.shape


def refusal(function, call):
    """The fields that findings name, or the text of another error."""
    try:
        function(**call)
    except sg.ShadowgraphError as error:
        return {f.field for f in error.findings}
    except (TypeError, ValueError) as error:
        return str(error)
    pytest.fail("nothing is refused")


NO_TENSORS = {"sm_scale", "logits_soft_cap", "causal", "window_left", "window_right", "mask_heads", "lse_base2", "lse_sink", "arith"}
NO_TENSORS |= {"num_threads", "max_seqlen_q", "alibi", "temperature_len", "attention_chunk", "chunk_lookback", "q_scale", "out_scale"}
NO_TENSORS |= {"dtype", "kv_dtype"}


@pytest.mark.parametrize("make", [paged, ragged])
def test_a_refusal_names_the_argument(make):
    function = getattr(sg, make.__name__ + "_attention")
    wrong = numpy.zeros((1, 1, 1, 1, 1, 1), numpy.complex64)
    for name in documented(function.__name__):
        call = make(**MASKED if name == "mask_indptr" else {})
        if name in ("kv_indptr", "kv_indices", "last_page_len"):
            call |= {"page_table": None, "kv_indptr": [0, 3, 5], "kv_indices": [1, 3, 5, 2, 4], "last_page_len": [1, 2]}
        bad = object() if name in NO_TENSORS - {"causal", "lse_base2", "lse_sink"} else wrong
        if name in ("causal", "lse_base2", "lse_sink"):
            continue  # every object is true or false
        named = refusal(function, call | {name: (bad, bad) if name == "cache" else bad})
        wanted = {"cache": "k_cache"}.get(name, name)
        assert wanted in named, (name, named)
        if name not in NO_TENSORS:
            for device in [torch.empty(1, device="meta")]:
                named = refusal(function, call | {name: (device, device) if name == "cache" else device})
                assert wanted in named, (name, named)


def test_a_refused_call_tells_every_finding_and_writes_nothing():
    out = numpy.full((TOTAL, HEADS, DIM), 7, numpy.float32)
    call = paged(out=out)
    call["page_table"][0, 1], call["page_table"][1, 0] = 99, -1
    with pytest.raises(sg.ShadowgraphError) as caught:
        sg.paged_attention(**call)
    assert isinstance(caught.value, AssertionError) and isinstance(caught.value, RuntimeError)
    first, second = caught.value.findings
    assert (first.id, first.field, first.row, first.col, first.got) == ("table.page_id", "page_table", 0, 1, "99")
    assert (second.row, second.col, second.expected) == (1, 0, "0 <= id < 6")
    assert first.text in str(caught.value) and (out == 7).all()


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"page_tables": 1}, TypeError, "no argument is called page_tables"),
        ({"q": None}, TypeError, "q is missing"),
        ({"sm_scale": None}, TypeError, "sm_scale is missing"),
        ({"cache": values(6, PAGE, KV_HEADS, DIM)}, TypeError, "cache is a .*expected a tuple"),
        ({"arith": "slow"}, ValueError, "arith is 'slow', expected one of portable, fast"),
        ({"cache": (values(6, PAGE, KV_HEADS, DIM),) * 2 + ("HDN",)}, ValueError, "layout is 'HDN'"),
        ({"window_left": 2**40}, OverflowError, "window_left"),
        ({"page_table": [[1, 2], [3]]}, ValueError, "page_table has rows of different lengths"),
        ({"cache_seqlens": [2**40, 1]}, ValueError, "cache_seqlens has a number of more than 32 bits"),
        ({"q": values(TOTAL, HEADS, DIM).astype(">f4")}, ValueError, "q is not in this machine's byte order"),
        ({"q": numpy.zeros((TOTAL, HEADS, DIM), "V0")}, ValueError, "q has elements of no size"),
        ({"cu_seqlens_q": "0, 3"}, TypeError, "cu_seqlens_q is a <class 'str'>"),
        ({"out": numpy.broadcast_to(numpy.float32(0), (TOTAL, HEADS, DIM))}, ValueError, "out is read-only"),
    ],
)
def test_a_call_that_no_program_should_make_says_why(changed, error, text):
    with pytest.raises(error, match=text):
        sg.paged_attention(**paged(**changed))


def test_arguments_are_given_once_and_by_name():
    call = paged()
    q = call.pop("q")
    with pytest.raises(TypeError, match="q is given twice"):
        sg.paged_attention(q, call.pop("cache"), q=q, **call)
    with pytest.raises(TypeError, match="3 arguments without a name, expected at most 2"):
        sg.paged_attention(q, paged()["cache"], call["page_table"])


def test_merged_halves_are_the_whole():
    v, s = values(5, 2, HEADS, DIM), values(5, 2, HEADS, seed=2)
    out, lse = sg.merge_states(v, s, lse=True)
    assert numpy.array_equal(sg.merge_states(v, s), out) and lse.shape == (5, HEADS)
    _, base2 = sg.merge_states(v, s, base2=True, lse=True)
    assert not numpy.array_equal(lse, base2)
    s[:, 1] = -numpy.inf
    assert numpy.array_equal(sg.merge_states(torch.from_numpy(v), torch.from_numpy(s)).numpy(), v[:, 0])
    with pytest.raises(sg.ShadowgraphError, match="input.shape: s"):
        sg.merge_states(v, s[:, 0])


def test_stored_tokens_are_in_the_cache_and_copied_pages_too():
    k, v = values(3, KV_HEADS, DIM), values(3, KV_HEADS, DIM, seed=2)
    cache = numpy.zeros((6, PAGE, KV_HEADS, DIM), numpy.float32), numpy.zeros((6, PAGE, KV_HEADS, DIM), numpy.float32)
    assert sg.store_kv(k, v, [11, -1, 4], cache, first_slot=2) is None
    for pool, new in zip(cache, (k, v)):
        flat = pool.reshape(-1, KV_HEADS, DIM)
        assert numpy.array_equal(flat[[11, 4]], new[[0, 2]]) and numpy.count_nonzero(flat) == 2 * KV_HEADS * DIM
    other = tuple(torch.zeros(6, KV_HEADS, PAGE, DIM) for _ in cache)
    assert sg.copy_kv(cache, (*other, "HND"), [5, 2], [0, 1]) is None
    assert numpy.array_equal(other[0][0].transpose(0, 1).numpy(), cache[0][5])
    sg.copy_kv(cache, (*other, "HND"))
    assert numpy.array_equal(other[1].transpose(1, 2).numpy(), cache[1])
    with pytest.raises(sg.ShadowgraphError, match="slot.range: out_cache_loc"):
        sg.store_kv(k, v, [99, 1, 2], cache)
    with pytest.raises(ValueError, match="k_cache is read-only"):
        sg.store_kv(k, v, [1, 2, 3], tuple(numpy.broadcast_to(numpy.float32(0), c.shape) for c in cache))
    with pytest.raises(sg.ShadowgraphError, match="input.shape: target cache"):
        sg.copy_kv(cache, (cache[0][:, :, :1], cache[1]), [0], [1])


def test_the_instruction_set_is_the_callers():
    best = sg.isa()
    want = sg.paged_attention(**paged())
    try:
        sg.set_isa("generic")
        assert sg.isa() == "generic" and numpy.array_equal(sg.paged_attention(**paged()), want)
    finally:
        sg.set_isa(best)
    with pytest.raises(ValueError, match="set_isa"):
        sg.set_isa("abacus")
    assert _core.abi_version() >> 16 == 1
