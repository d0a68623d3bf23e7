"""Stands in for vLLM's kernels: unified_attention, and of _custom_ops the caches' and merge_attn_states."""

from __future__ import annotations

import enum

from .. import _core
from .._flash import KV, attend, merge_two, options, paged
from .._tensors import as_f32, beside, expect, expect_alike, expect_f32, is_fp8
from .._upstream import dtype_name, empty, floats, host, integers, launch, number, offsets, per_head, refuse, wrong
from . import flash_attn as flash_attn


class KVQuantMode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3


def unified_attention(
    q,
    k,
    v,
    out,
    cu_seqlens_q,
    max_seqlen_q,
    seqused_k,
    max_seqlen_k,
    softmax_scale,
    causal,
    window_size,
    block_table,
    softcap,
    q_descale,
    k_descale,
    v_descale,
    seq_threshold_3D=None,
    num_par_softmax_segments=None,
    softmax_segm_output=None,
    softmax_segm_max=None,
    softmax_segm_expsum=None,
    alibi_slopes=None,
    output_scale=None,
    qq_bias=None,
    sinks=None,
    mm_prefix_range=None,
    rswa_prefix_lens=None,
    rswa_window=None,
    use_alibi_sqrt=False,
    kv_quant_mode=KVQuantMode.NONE,
    k_scale_cache=None,
    v_scale_cache=None,
    chunk_lookback=-1,
    use_td=False,
    mm_prefix_clamp_sliding_window=False,
):
    """Writes out [tokens, heads, dim]. k and v [pages, page, heads, dim]; k_descale, v_descale: of the cache, or one per
    request and head; k_scale_cache, v_scale_cache [pages, page, heads]: of int8. mm_prefix_range [batch, ranges, 2]: first
    and last token, which see each other; empty where equal."""
    expect("cu_seqlens_q", cu_seqlens_q, None)
    expect_alike("k", k, v=v)
    left_out = {"output_scale": output_scale, "rswa_prefix_lens": rswa_prefix_lens, "rswa_window": rswa_window}
    quantised = kv_quant_mode if kv_quant_mode > KVQuantMode.INT8_PER_TOKEN_HEAD else None
    left_out |= {"kv_quant_mode": quantised, "chunk_lookback": chunk_lookback + 1, "q_descale": None if is_fp8(q.dtype) else q_descale}
    left_out |= {"mm_prefix_clamp_sliding_window": mm_prefix_clamp_sliding_window and mm_prefix_range is not None}
    refuse("unified_attention", **left_out)
    if out is None or softmax_scale is None:
        raise ValueError(f"{'out' if out is None else 'softmax_scale'} is missing")
    keys = paged(k, v, block_table, seqused_k, **KV, page_table="block_table", cache_seqlens="seqused_k")
    if kv_quant_mode == KVQuantMode.INT8_PER_TOKEN_HEAD:
        keys = _int8(keys, k_scale_cache, v_scale_cache)
    more = {"sinks": floats(sinks), "qq_bias": qq_bias, "k_scales": _each_head(k_descale, k), "v_scales": _each_head(v_descale, k)}
    more["alibi"] = "sqrt" if use_alibi_sqrt else "linear"
    more["q_scale"] = None if q_descale is None else number(q_descale)
    more |= _bidirectional(mm_prefix_range, len(seqused_k))
    left = window_size[0]  # the kernel reads no other: without causal it goes to both sides
    layer = options(softmax_scale, causal, (left, -1 if causal else left), softcap, **more)
    queries = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "alibi_slopes": alibi_slopes}
    attend(q, keys, layer, **queries, out=out, with_lse=False, mixed=True)


def _each_head(descale, k):
    """A scale of the cache, or [batch, heads], as the engine takes it."""
    if descale is None or getattr(descale, "ndim", 0) == 2:
        return descale
    return lambda: [float(descale)] * k.shape[2]


def _int8(keys, k_scale_cache, v_scale_cache):
    if k_scale_cache is None or v_scale_cache is None:
        raise ValueError("INT8_PER_TOKEN_HEAD needs k_scale_cache and v_scale_cache")
    return keys._replace(scales=(k_scale_cache, v_scale_cache))


def _bidirectional(mm_prefix_range, batch):
    if mm_prefix_range is None:
        return {}
    expect("mm_prefix_range", mm_prefix_range, batch, None, 2)
    return {f"bidirectional_{name}": (lambda name=name: _ranges(mm_prefix_range, name)) for name in ("ranges", "indptr")}


def _ranges(mm_prefix_range, name):
    """int32 [ranges, 2] of all requests, or where each request's begin."""
    import numpy

    rows = [sorted((a, b) for a, b in row if a < b) for row in host(mm_prefix_range).tolist()]
    return numpy.array(sum(rows, []), numpy.int32).reshape(-1, 2) if name == "ranges" else offsets([len(row) for row in rows])


_CACHE_TYPES = {"auto": None, "fp8": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2", "bfloat16": None, "float16": None}


def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    """Stores key and value [tokens, heads, dim] in caches [pages, page, heads, dim], at slots of which those below 0 are
    dropped. Tokens behind slot_mapping are padding. Scales are of fp8: one, or one a head."""
    names = {"k": "key", "v": "value", "k_cache": "key_cache", "v_cache": "value_cache", "cache": "key_cache"}
    cache = (key_cache, value_cache, "NHD", 0)
    _store("reshape_and_cache_flash", (key, value), cache, slot_mapping, kv_cache_dtype, (k_scale, v_scale), names)


triton_reshape_and_cache_flash = reshape_and_cache_flash


def concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping, kv_cache_dtype, scale):
    """Stores kv_c [tokens, latent] and k_pe [tokens, rope], side by side, in a cache [pages, page, latent + rope]."""
    expect("kv_c", kv_c, None, None)
    expect("k_pe", k_pe, kv_c.shape[0], None)
    names = {"k": "kv_c", "k_cache": "kv_cache", "cache": "kv_cache"}
    expect_alike("kv_c", kv_c, k_pe=k_pe)
    latents = beside(kv_c, k_pe)[:, None]
    cache = (kv_cache, None, "MLA_LATENT", kv_c.shape[1])
    _store("concat_and_cache_mla", (latents, None), cache, slot_mapping, kv_cache_dtype, (scale, scale), names)


def _store(call, tokens, cache, slot_mapping, kv_cache_dtype, scales, names):
    if kv_cache_dtype not in _CACHE_TYPES:
        refuse(call, kv_cache_dtype=kv_cache_dtype)
    kv_dtype = _CACHE_TYPES[kv_cache_dtype]
    if kv_dtype is None:  # scales are of fp8 alone
        scales = (None, None)
        others = zip(("v", "k_cache", "v_cache"), (tokens[1], *cache[:2]))
        expect_alike(names["k"], tokens[0], **{names.get(n, n): t for n, t in others if t is not None})
    elif not all(is_fp8(t.dtype) or dtype_name(t.dtype) == "uint8" for t in cache[:2] if t is not None):
        raise wrong("input.dtype", "kv_cache_dtype", "the type of the cache, uint8 or float8", dtype_name(cache[0].dtype))
    k, v = (_scaled(t, s, len(slot_mapping)) for t, s in zip(tokens, scales))
    slots = integers(slot_mapping, "int64")
    whole = lambda: (*cache, 0, None, None, *(1.0 if s is None or per_head(s) else float(s) for s in scales))  # noqa: E731
    names = names | {"out_cache_loc": "slot_mapping"}
    launch(_core.store_kv, names, k=k, v=v, out_cache_loc=slots, cache=whole, kv_dtype=kv_dtype)


def _scaled(tokens, scale, count):
    """The tokens that have slots, divided by scales of their heads, which the engine's caches have not."""
    if tokens is None or not per_head(scale):
        return None if tokens is None else tokens[:count]
    expect("k_scale", scale, tokens.shape[1])
    return lambda: as_f32(tokens[:count]) / scale.reshape(-1, 1)


def merge_attn_states(
    output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None, prefill_tokens_with_context=None, output_scale=None
):
    """Writes output [tokens, heads, dim], and output_lse [heads, tokens] if there is one. The lse of both parts is natural,
    [heads, tokens]; tokens from prefill_tokens_with_context on have no prefix."""
    refuse("merge_attn_states", output_scale=output_scale)
    names = ("prefix_output", "prefix_lse", "suffix_output", "suffix_lse", "output", "output_lse")
    for name, lse in zip(names[1::2], (prefix_lse, suffix_lse, output_lse)):
        if lse is not None:
            expect(name, lse, *output.shape[1::-1])
            expect_f32(**{name: lse})
    prefix, suffix = (prefix_output, turned(prefix_lse)), (suffix_output, turned(suffix_lse))
    merged_lse = empty(output, tuple(output.shape[:2]), "float32") if output_lse is None else turned(output_lse)
    merge_two(prefix, suffix, output, merged_lse, names, first_rows=prefill_tokens_with_context)


def turned(lse):
    """[heads, tokens] as [tokens, heads]."""
    return lse.swapaxes(0, 1)
