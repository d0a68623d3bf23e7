"""flashinfer.decode: one query a request, or a few."""

from __future__ import annotations

import functools
from typing import Any

from .._upstream import host, number, refuse, uniform_offsets
from . import _positions
from ._attend import Wrapper, attend, heads_second, layer, paged, positional_options, same_type, scales, skipping
from ._positions import Positions, positions
from ._trtllm import (
    trtllm_batch_decode_with_kv_cache as trtllm_batch_decode_with_kv_cache,
    trtllm_batch_decode_with_kv_cache_mla as trtllm_batch_decode_with_kv_cache_mla,
)

_LISTS = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
_NAMES = {
    "kv_indptr": "indptr",
    "kv_indices": "indices",
    "page_table": "indices",
    "k_cache": "paged_kv_cache",
    "v_cache": "paged_kv_cache",
}


def _uniform(requests: int, q_len: int) -> dict[str, Any]:
    """A request's q_len queries are causal; one needs no word."""
    return {"causal": True, "cu_seqlens_q": uniform_offsets(requests, q_len)} if q_len > 1 else {"causal": False, "cu_seqlens_q": None}


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    _attention = staticmethod(_positions.paged)
    _names = _NAMES
    _lists = dict(zip(("kv_indptr", "kv_indices", "last_page_len"), _LISTS))

    def __init__(
        self,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Any = None,
        paged_kv_indices_buffer: Any = None,
        paged_kv_last_page_len_buffer: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
    ) -> None:
        buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)
        self._begin(float_workspace_buffer, use_cuda_graph, kv_layout, jit_args, **dict(zip(_LISTS, buffers)))
        self._use_tensor_cores, self._backend = use_tensor_cores, backend
        self._q_len_per_req: Any = None

    @property
    def use_tensor_cores(self) -> bool:
        return self._use_tensor_cores

    @positional_options(
        "pos_encoding_mode window_left logits_soft_cap q_data_type kv_data_type o_data_type data_type sm_scale rope_scale "
        "rope_theta non_blocking block_tables seq_lens fixed_split_size disable_split_kv q_len_per_req"
    )
    def plan(
        self,
        indptr: Any,
        indices: Any,
        last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        window_right: int = 0,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        o_data_type: Any = None,
        data_type: Any = None,
        sm_scale: Any = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
        non_blocking: bool = True,
        block_tables: Any = None,
        seq_lens: Any = None,
        fixed_split_size: Any = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> None:
        """indptr counts pages. It is causal if q_len_per_req is above 1."""
        call = "BatchDecodeWithPagedKVCacheWrapper.plan"
        if q_len_per_req > 1:
            refuse(call, window_right=window_right)
        rotation = positions(call, pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
        lists = dict(zip(_LISTS, (indptr, indices, last_page_len)))
        self._take_plan(
            lists, q_len_per_req, (num_qo_heads, head_dim), page_size, num_kv_heads, rotation, window_left, logits_soft_cap, sm_scale
        )
        self._plan_types(q_data_type, kv_data_type, o_data_type, data_type)

    begin_forward = plan

    def _take_plan(
        self,
        lists: dict[str, Any],
        q_len_per_req: int,
        q: tuple[int, int],
        page_size: int,
        num_kv_heads: int,
        rotation: Positions,
        window_left: int,
        soft_cap: float | None,
        sm_scale: Any,
        indices_are_there: bool = False,
    ) -> None:
        """lists: indptr, indices and last_page_len by names of _LISTS. q: num_qo_heads, head_dim."""
        indptr, _, last_page_len = lists.values()
        batch_size = len(last_page_len)
        if q_len_per_req < 1:
            raise ValueError(f"q_len_per_req is {q_len_per_req}, expected at least 1")
        if self._use_cuda_graph and self._q_len_per_req not in (None, q_len_per_req):
            raise ValueError(f"q_len_per_req is {q_len_per_req}, and is frozen at {self._q_len_per_req} by CUDA graphs")
        if q_len_per_req > 1:
            pages = host(indptr)[1:] - host(indptr)[:-1]
            lens = (pages - 1) * page_size + host(last_page_len)
            if (lens < q_len_per_req).any():
                raise ValueError(
                    f"q_len_per_req is {q_len_per_req}, and a request has {lens.min()} keys: a query would see an empty KV range"
                )
        if indices_are_there and self._use_cuda_graph:
            del lists["paged_kv_indices"]
        self._keep(batch_size, **lists)
        self._q_len_per_req, self._requests = q_len_per_req, batch_size
        self._plan_sizes(q, page_size, num_kv_heads)
        self._plan_layer(q[1], window_left, soft_cap, sm_scale, rotation, **_uniform(batch_size, q_len_per_req))

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
        q_len_per_req: Any = None,
        skip_softmax_threshold_scale_factor: Any = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """q [requests * q_len_per_req, H, D]; out likewise, LSE to base 2 f32 [.., H]."""
        call, each, rows = "BatchDecodeWithPagedKVCacheWrapper.run", self._q_len_per_req, {}
        self._planned_layer(call)
        refuse(
            call, kv_cache_sf=kv_cache_sf,
            skip_softmax_threshold_scale_factor=skipping(skip_softmax_threshold_scale_factor),
        )  # fmt: skip
        if self._backend in ("trtllm-gen", "cute-dsl"):  # whose runs may have another q_len_per_req than their plan
            each = q.shape[0] // max(self._requests, 1) if q_len_per_req is None else q_len_per_req
            rows = _uniform(self._requests, each)
        elif q_len_per_req not in (None, each):
            raise ValueError(f"q_len_per_req is {q_len_per_req}, and was planned as {each}")
        if q.shape[0] != self._requests * each:
            raise ValueError(f"q has {q.shape[0]} rows, expected {self._requests} requests * q_len_per_req {each}")
        cache, head_dim_vo = paged(paged_kv_cache, self._kv_layout)
        self._check_planned(q, cache.k_cache, out)
        outputs = out, lse, return_lse
        return self._run(call, q, head_dim_vo, outputs, q_scale, k_scale, v_scale, args, window_left, sinks, cache=cache, **rows)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(
        self,
        q: Any,
        paged_kv_cache: Any,
        pos_encoding_mode: str = "NONE",
        q_scale: Any = None,
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
        call = "BatchDecodeWithPagedKVCacheWrapper.forward"
        self._forward(call, window_left, logits_soft_cap, sm_scale, pos_encoding_mode, rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    def __init__(
        self,
        workspace_buffer: Any,
        indptr_buffer: Any,
        indices_buffer: Any,
        last_page_len_buffer: Any,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
    ) -> None:
        super().__init__(
            workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer, last_page_len_buffer
        )


def fast_decode_plan(
    self: Any,
    indptr: Any,
    indices: Any,
    last_page_len: Any,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: Any = None,
    kv_data_type: Any = None,
    data_type: Any = None,
    sm_scale: Any = None,
    rope_scale: Any = None,
    rope_theta: Any = None,
    non_blocking: bool = True,
    fixed_split_size: Any = None,
    disable_split_kv: bool = False,
    q_len_per_req: int = 1,
    global_override_indptr_cpu: Any = None,
) -> None:
    """plan of the wrapper `self`, for replays: with CUDA graphs the indices are in the caller's buffer already."""
    if q_len_per_req > 1 and self._layer is None:
        raise ValueError(f"q_len_per_req is {q_len_per_req}: fast_decode_plan needs a prior plan with it")
    rotation = positions("fast_decode_plan", pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
    self._take_plan(
        dict(zip(_LISTS, (indptr, indices, last_page_len))), q_len_per_req, (num_qo_heads, head_dim), page_size, num_kv_heads,
        rotation, window_left, logits_soft_cap, sm_scale, indices_are_there=True,
    )  # fmt: skip
    self._plan_types("float16" if q_data_type is None else q_data_type, kv_data_type, None, data_type)


def single_decode_with_kv_cache(
    q: Any,
    k: Any,
    v: Any,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: Any = None,
    rope_scale: Any = None,
    rope_theta: Any = None,
    return_lse: bool = False,
) -> Any:
    """q [H, D] to out [H, D], and LSE [H]."""
    call = "single_decode_with_kv_cache"
    terms = layer(call, logits_soft_cap=logits_soft_cap, window_left=window_left)
    rotation = positions(call, pos_encoding_mode, rope_scale, rope_theta, logits_soft_cap)
    same_type(k=k, v=v)
    k, v = heads_second(k, kv_layout), heads_second(v, kv_layout)
    result = attend(
        _positions.ragged(rotation), {}, q[None], v.shape[-1], (None, None, return_lse), k=k, v=v, cu_seqlens_q=[0, 1],
        cu_seqlens_k=[0, k.shape[0]], **terms, **scales(call, number(sm_scale, q.shape[-1] ** -0.5), q_scale, k_scale, v_scale),
    )  # fmt: skip
    return (result[0][0], result[1][0]) if return_lse else result[0]
