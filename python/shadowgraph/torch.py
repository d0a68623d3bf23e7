"""Stands in for scaled_dot_product_attention, torch.nn.attention.varlen, and CUDA graphs over CPU tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ._flash import attend, options, packed, paged
from ._tensors import each_alone, expect, same
from ._upstream import dtype_name, host, is_torch, refuse, uniform_offsets, wrong


def cpu_graphs() -> AbstractContextManager[None]:
    """While it lasts, torch.cuda.CUDAGraph captures and replays operations on CPU tensors, and drop-ins as their kernels."""
    from ._cpu_graphs import cpu_graphs as graphs

    return graphs()


class AuxRequest(NamedTuple):
    """The results that varlen_attn returns beside out."""

    lse: bool = False


def varlen_attn(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Any = None,
    block_table: Any = None,
    num_splits: int | None = None,
) -> Any:
    """out [tokens, heads, dim]; with return_aux.lse also lse [heads, tokens]. Causal is a window_size of (-1, 0), by the
    last query and key. With block_table, key and value are pages, and seqused_k has their lengths."""
    expect("cu_seq_q", cu_seq_q, None)
    names = {"q": "query", "k": "key", "v": "value", "cu_seqlens_q": "cu_seq_q", "cu_seqlens_k": "cu_seq_k"}
    names |= {"max_seqlen_q": "max_q", "max_seqlen_k": "max_k", "sm_scale": "scale"}
    if block_table is None:
        keys = packed(key, value, cu_seq_k, seqused_k)._replace(names=names)
    else:
        told = names | {"k_cache": "key", "v_cache": "value", "page_table": "block_table", "cache_seqlens": "seqused_k"}
        keys = paged(key, value, block_table, seqused_k, **told)
    _expect_groups("varlen_attn", query.shape[-2], keys.k.shape[-2], enable_gqa)
    with_lse = return_aux is not None and return_aux.lse
    layer, queries = options(scale, False, window_size), {"cu_seqlens_q": cu_seq_q, "max_seqlen_q": max_q, "max_seqlen_k": max_k}
    out, lse = attend(query, keys, layer, **queries, with_lse=with_lse)
    return (out, lse) if with_lse else out


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """query [..., heads, queries, dim], key and value [..., heads, keys, dim]: out [..., heads, queries, dim_v]. is_causal is
    top-left: query i sees keys 0 to i. attn_mask: True is seen; floats are added to logits."""
    refuse("scaled_dot_product_attention", dropout_p=dropout_p)
    if is_causal and attn_mask is not None:
        raise RuntimeError("attn_mask and is_causal=True exclude each other")
    lead = tuple(query.shape[:-2])
    expect("key", key, *lead[:-1], *(None,) * min(2, len(lead) + 1), query.shape[-1])
    expect("value", value, *key.shape[:-1], None)
    q, k, v = (_as_rows(t) for t in (query, key, value))
    _expect_groups("scaled_dot_product_attention", q.shape[2], k.shape[2], enable_gqa)
    (batch, queries, heads), length = q.shape[:3], k.shape[1]
    table, layer = each_alone(batch), options(scale, is_causal and queries == length)
    if is_causal and queries != length:
        attn_mask = host([[key <= row for key in range(length)] for row in range(queries)]).reshape(queries, length)
    if attn_mask is not None and dtype_name(attn_mask.dtype) not in ("bool", "float32", dtype_name(query.dtype)):
        raise wrong("input.dtype", "attn_mask", f"bool, float32 or {dtype_name(query.dtype)}, as query", dtype_name(attn_mask.dtype))
    if attn_mask is not None and dtype_name(attn_mask.dtype) == "bool":
        layer |= {"custom_mask": lambda: _mask(attn_mask, (batch, heads, queries, length)).reshape(-1), "mask_heads": heads}
        layer["mask_indptr"] = uniform_offsets(batch, heads * queries * length).astype("int64")
    elif attn_mask is not None:  # each query is a request, whose keys have the biases of its row
        layer["key_bias"] = lambda: _biases(_mask(attn_mask, (batch, heads, queries, length)))
        q, table = q.reshape(batch * queries, 1, *q.shape[2:]), table.repeat(queries, 0)
    names = {"k_cache": "key", "v_cache": "value", "q": "query", "page_table": "key", "cache_seqlens": "key"}
    names |= {"custom_mask": "attn_mask", "key_bias": "attn_mask", "sm_scale": "scale"}
    out, _ = attend(q, paged(k, v, table, same(length, len(table)), **names), layer, with_lse=False)
    out = out.reshape(batch, queries, heads, -1).swapaxes(1, 2)
    return out if len(lead) == 2 else out.reshape(*lead, queries, -1)


def _as_rows(tensor: Any) -> Any:
    """[..., heads, tokens, dim] as [batch, tokens, heads, dim]."""
    if len(tensor.shape) == 4:
        return tensor.swapaxes(1, 2)
    heads = tensor.shape[-3] if len(tensor.shape) > 2 else 1
    return tensor.reshape(-1, heads, *tensor.shape[-2:]).swapaxes(1, 2)


def _mask(mask: Any, shape: tuple[int, ...]) -> Any:
    """A mask as a NumPy array of [batch, heads, queries, keys], of which it may leave out the first or have one for all."""
    import numpy

    mask = host(mask.float() if is_torch(mask) and mask.is_floating_point() else mask)
    if mask.ndim > 4:
        mask = mask.reshape(-1, *mask.shape[-3:])
    try:
        return numpy.broadcast_to(mask, shape)
    except ValueError:
        raise wrong("input.shape", "attn_mask", f"one that fits {list(shape)}", str(list(mask.shape))) from None


def _biases(mask: Any) -> Any:
    """f32 [heads, keys of all queries] of [batch, heads, queries, keys]."""
    import numpy

    return numpy.ascontiguousarray(mask.swapaxes(0, 1).reshape(mask.shape[1], -1), numpy.float32)


def _expect_groups(call: str, heads: int, kv_heads: int, enable_gqa: bool) -> None:
    if heads != kv_heads and not enable_gqa:
        raise RuntimeError(f"{call}: {heads} heads of query and {kv_heads} of key need enable_gqa=True")
