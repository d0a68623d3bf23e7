"""flashinfer.prefill: many queries a request, against a paged cache or packed keys."""

from __future__ import annotations

import functools
from typing import Any

from .._upstream import host, number, offsets, pack_bits, product, refuse, wrong
from . import _positions
from ._attend import Wrapper, attend, heads_second, layer, paged, same_type, scales, skipping
from ._positions import positions
from ._trtllm import (
    trtllm_batch_context_with_kv_cache as trtllm_batch_context_with_kv_cache,
    trtllm_ragged_attention_deepseek as trtllm_ragged_attention_deepseek,
)

_LISTS = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
_PAGED_NAMES = {
    "cu_seqlens_q": "qo_indptr",
    "kv_indptr": "paged_kv_indptr",
    "page_table": "paged_kv_indices",
    "kv_indices": "paged_kv_indices",
    "last_page_len": "paged_kv_last_page_len",
    "k_cache": "paged_kv_cache",
    "v_cache": "paged_kv_cache",
}
_RAGGED_NAMES = {"cu_seqlens_q": "qo_indptr", "cu_seqlens_k": "kv_indptr"}


def _bits(custom_mask: Any, packed_custom_mask: Any, sizes: Any) -> tuple[Any, Any]:
    """Masks of requests as bits, and where each begins; sizes: [batch] pairs of queries and keys."""
    if packed_custom_mask is None:
        pairs = len(host(custom_mask).reshape(-1))
        if pairs != sum(sizes):
            raise wrong("mask.size", "custom_mask", f"{sum(sizes)} pairs of queries and keys", str(pairs))
        return pack_bits(custom_mask, sizes)
    bits, starts = host(packed_custom_mask), offsets([-(-int(size) // 8) for size in sizes])
    if len(bits) < starts[-1]:
        raise wrong("mask.size", "packed_custom_mask", f"{starts[-1]} bytes", str(len(bits)))
    return bits, starts


def _item_masks(prefix_lens: Any, places: Any, row_len: int, qo_indptr: Any, kv_lens: Any) -> Any:
    """Masks of prompts with several items behind a prefix: an item sees the prefix and itself. places [requests * row_len]: of each
    token behind the prefix in its item, 0 of the delimiter before it, which is seen by none of them."""
    import numpy

    q_lens, places = numpy.diff(host(qo_indptr)), host(places).astype("int64")
    prefix_lens = numpy.broadcast_to(host(prefix_lens).astype("int64"), q_lens.shape)  # one may be for all
    masks = [numpy.zeros(0, bool)]
    for row, (prefix, q_len, kv_len) in enumerate(zip(prefix_lens, q_lens, kv_lens, strict=True)):
        if kv_len - prefix > len(places) - row * row_len:
            raise wrong("mask.size", "token_pos_in_items_ptr", f"{row * row_len + kv_len - prefix} places", str(len(places)))
        at, key = numpy.arange(kv_len - q_len, kv_len)[:, None], numpy.arange(kv_len)
        own = places[row * row_len + (at - prefix).clip(0)] if kv_len > prefix else at
        masks.append(((key <= at) & ((at < prefix) | (key < prefix) | (at < key + own))).reshape(-1))
    return numpy.concatenate(masks)


def refuse_cudnn(call: str, backend: str) -> None:
    """Its offsets count elements, and its layouts are others."""
    refuse(call, backend=backend if backend == "cudnn" else None)


class _Prefill(Wrapper):
    """Masks, and the layer of a plan."""

    def _begin_mask(self, custom_mask_buf: Any, mask_indptr_buf: Any) -> None:
        self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf

    def _keep_mask(self, custom_mask: Any, packed_custom_mask: Any, batch_size: int, qo_indptr: Any, kv_lens: Any) -> None:
        """Keeps masks as bits, each request on a byte; kv_lens [batch]."""
        mask = custom_mask if packed_custom_mask is None else packed_custom_mask
        if mask is None:
            if not self._use_cuda_graph:
                self._custom_mask_buf = None
            return
        qo_indptr = host(qo_indptr)
        sizes = (qo_indptr[1:] - qo_indptr[:-1]).astype("int64") * kv_lens
        bits, starts = _bits(custom_mask, packed_custom_mask, sizes)
        if self._use_cuda_graph and self._custom_mask_buf is None:
            raise ValueError("custom_mask_buf should be a tensor in CUDA graph mode, if there is a custom mask")
        self._keep(batch_size, custom_mask=bits, mask_indptr=starts)

    def _seen(self, causal: bool) -> dict[str, Any]:
        """The mask of runs, or their causality."""
        self._causal = causal  # vLLM reads it
        bits, starts = self._custom_mask_buf, self._mask_indptr_buf
        if bits is None:
            return {"causal": causal}
        if not self._use_cuda_graph:
            return {"custom_mask": bits, "mask_indptr": starts.astype("int64")}
        return {"custom_mask": lambda: bits[: int(starts[-1])], "mask_indptr": lambda: host(starts).astype("int64")}


class BatchPrefillWithPagedKVCacheWrapper(_Prefill):
    _attention = staticmethod(_positions.paged)
    _names = _PAGED_NAMES
    _lists = dict(zip(("cu_seqlens_q", "kv_indptr", "kv_indices", "last_page_len"), ("qo_indptr", *_LISTS)))

    def __init__(
        self,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        paged_kv_indptr_buf: Any = None,
        paged_kv_indices_buf: Any = None,
        paged_kv_last_page_len_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        buffers = (paged_kv_indptr_buf, paged_kv_indices_buf, paged_kv_last_page_len_buf)
        refuse_cudnn("BatchPrefillWithPagedKVCacheWrapper", backend)
        self._begin(float_workspace_buffer, use_cuda_graph, kv_layout, jit_args, qo_indptr=qo_indptr_buf, **dict(zip(_LISTS, buffers)))
        self._begin_mask(custom_mask_buf, mask_indptr_buf)

    def plan(
        self,
        qo_indptr: Any,
        paged_kv_indptr: Any,
        paged_kv_indices: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: Any = None,
        packed_custom_mask: Any = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: Any = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        block_tables: Any = None,
        max_token_per_sequence: Any = None,
        max_sequence_kv: Any = None,
        fixed_split_size: Any = None,
        disable_split_kv: bool = False,
    ) -> None:
        """paged_kv_indptr counts pages. With a custom mask causal does nothing."""
        call = "BatchPrefillWithPagedKVCacheWrapper.plan"
        refuse(call, prefix_len_ptr=prefix_len_ptr if self._use_cuda_graph else None)
        rotation = positions(call, pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
        batch_size = len(qo_indptr) - 1
        self._keep_rows(qo_indptr)
        if custom_mask is not None or packed_custom_mask is not None or prefix_len_ptr is not None:
            starts = host(paged_kv_indptr).astype("int64")
            pages = starts[1:] - starts[:-1]
            kv_lens = ((pages - 1) * page_size + host(paged_kv_last_page_len)) * (pages > 0)
        else:
            kv_lens = None
        if prefix_len_ptr is not None:
            custom_mask = _item_masks(prefix_len_ptr, token_pos_in_items_ptr, token_pos_in_items_len, qo_indptr, kv_lens)
            packed_custom_mask = None
        self._keep_mask(custom_mask, packed_custom_mask, batch_size, qo_indptr, kv_lens)
        lists = dict(zip(_LISTS, (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)))
        self._keep(batch_size, qo_indptr=qo_indptr, **lists)
        self._plan_sizes((num_qo_heads, head_dim_qk), page_size, num_kv_heads)
        self._plan_layer(head_dim_qk, window_left, logits_soft_cap, sm_scale, rotation, **self._seen(causal))
        self._plan_types(q_data_type, kv_data_type, o_data_type)

    begin_forward = plan

    def run(
        self,
        q: Any,
        paged_kv_cache: Any,
        *args: Any,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        enable_pdl: Any = None,
        window_left: int | None = None,
        sinks: Any = None,
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: Any = None,
        use_fp16_softmax: Any = None,
        uses_spcompress: Any = None,
    ) -> Any:
        """q [rows, H, D]; out likewise, LSE to base 2 f32 [rows, H]."""
        call = "BatchPrefillWithPagedKVCacheWrapper.run"
        self._planned_layer(call)
        refuse(
            call, kv_cache_sf=kv_cache_sf, uses_spcompress=uses_spcompress,
            skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor),
        )  # fmt: skip
        cache, head_dim_vo = paged(paged_kv_cache, self._kv_layout)
        self._check_planned(q, cache.k_cache, out)
        outputs = out, lse, return_lse
        return self._run(call, q, head_dim_vo, outputs, q_scale, k_scale, v_scale, args, window_left, sinks, cache=cache)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Any,
        paged_kv_cache: Any,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: Any = None,
        v_scale: Any = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: Any = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
        return_lse: bool = False,
    ) -> Any:
        """Deprecated: run, with a layer of its own in place of plan's."""
        call = "BatchPrefillWithPagedKVCacheWrapper.forward"
        more = self._seen(causal)
        self._forward(call, window_left, logits_soft_cap, sm_scale, pos_encoding_mode, rope_scale, rope_theta, **more)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class BatchPrefillWithRaggedKVCacheWrapper(_Prefill):
    _attention = staticmethod(_positions.ragged)
    _names = _RAGGED_NAMES
    _lists = {"cu_seqlens_q": "qo_indptr", "cu_seqlens_k": "kv_indptr"}

    def __init__(
        self,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        kv_indptr_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        refuse_cudnn("BatchPrefillWithRaggedKVCacheWrapper", backend)
        self._begin(float_workspace_buffer, use_cuda_graph, kv_layout, jit_args, qo_indptr=qo_indptr_buf, kv_indptr=kv_indptr_buf)
        self._begin_mask(custom_mask_buf, mask_indptr_buf)

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: Any = None,
        packed_custom_mask: Any = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: Any = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        fixed_split_size: Any = None,
        disable_split_kv: bool = False,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        max_token_per_sequence: Any = None,
        max_sequence_kv: Any = None,
        v_indptr: Any = None,
        o_indptr: Any = None,
    ) -> None:
        """kv_indptr counts tokens. With a custom mask causal does nothing."""
        call = "BatchPrefillWithRaggedKVCacheWrapper.plan"
        refuse(call, prefix_len_ptr=prefix_len_ptr if self._use_cuda_graph else None, v_indptr=v_indptr, o_indptr=o_indptr)
        rotation = positions(call, pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
        self._keep_rows(qo_indptr)
        starts = host(kv_indptr).astype("int64")
        kv_lens = starts[1:] - starts[:-1]
        if prefix_len_ptr is not None:
            custom_mask = _item_masks(prefix_len_ptr, token_pos_in_items_ptr, token_pos_in_items_len, qo_indptr, kv_lens)
            packed_custom_mask = None
        self._keep_mask(custom_mask, packed_custom_mask, len(starts) - 1, qo_indptr, kv_lens)
        self._keep(len(starts) - 1, qo_indptr=qo_indptr, kv_indptr=kv_indptr)
        head_dim_vo = head_dim_qk if head_dim_vo is None else head_dim_vo
        self._sizes = {"q": (num_qo_heads, head_dim_qk), "k": (num_kv_heads, head_dim_qk), "v": (num_kv_heads, head_dim_vo)}
        self._plan_layer(head_dim_qk, window_left, logits_soft_cap, sm_scale, rotation, **self._seen(causal))
        self._plan_types(q_data_type, kv_data_type, o_data_type)

    begin_forward = plan

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        *args: Any,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        o_scale: Any = None,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        enable_pdl: Any = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """q [rows, H, D], k [keys, Hk, D], v [keys, Hk, Dv]; out [rows, H, Dv], LSE to base 2 f32 [rows, H]."""
        call = "BatchPrefillWithRaggedKVCacheWrapper.run"
        self._planned_layer(call)
        refuse(call, o_scale=o_scale, kv_cache_sf=kv_cache_sf)
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            if tensor.shape[1:] != self._sizes[name]:
                raise wrong("input.shape", name, f"[.., {str(self._sizes[name])[1:-1]}], as planned", str(list(tensor.shape)))
        self._check_types(q=q, k=k, v=v, out=out)
        return self._run(call, q, v.shape[-1], (out, lse, return_lse), q_scale, k_scale, v_scale, args, k=k, v=v)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Any,
        k: Any,
        v: Any,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: Any = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
        return_lse: bool = False,
    ) -> Any:
        """Deprecated: run, with a layer of its own in place of plan's."""
        call = "BatchPrefillWithRaggedKVCacheWrapper.forward"
        more = self._seen(causal)
        self._forward(call, window_left, logits_soft_cap, sm_scale, pos_encoding_mode, rope_scale, rope_theta, **more)
        return self.run(q, k, v, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


def single_prefill_with_kv_cache(
    q: Any,
    k: Any,
    v: Any,
    scale_q: Any = None,
    scale_k: Any = None,
    scale_v: Any = None,
    o_dtype: Any = None,
    custom_mask: Any = None,
    packed_custom_mask: Any = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: Any = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: Any = None,
    rope_theta: Any = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> Any:
    """One request: q [n, H, D], k and v by kv_layout; masks [n, keys], flat or not, or bits."""
    call = "single_prefill_with_kv_cache"
    terms = layer(
        call, logits_soft_cap=logits_soft_cap, window_left=window_left, kv_cache_sf=kv_cache_sf
    )
    rotation = positions(call, pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
    same_type(k=k, v=v)
    k, v = heads_second(k, kv_layout), heads_second(v, kv_layout)
    seen: dict[str, Any] = {"causal": causal}
    if custom_mask is not None or packed_custom_mask is not None:
        pairs = q.shape[0] * k.shape[0]

        seen = {"custom_mask": lambda: _bits(custom_mask, packed_custom_mask, [pairs])[0], "mask_indptr": [0, -(-pairs // 8)]}
    found = scales(call, number(sm_scale, q.shape[-1] ** -0.5), scale_q, scale_k, scale_v)
    for name, value in (("sm_scale", k_scale), ("out_scale", v_scale)):
        found[name] = product(found[name], value)
    return attend(
        _positions.ragged(rotation), {}, q, v.shape[-1], (None, None, return_lse), o_dtype, k=k, v=v, cu_seqlens_q=[0, q.shape[0]],
        cu_seqlens_k=[0, k.shape[0]], **seen, **terms, **found,
    )  # fmt: skip


single_prefill_with_kv_cache_return_lse = functools.partial(single_prefill_with_kv_cache, return_lse=True)
