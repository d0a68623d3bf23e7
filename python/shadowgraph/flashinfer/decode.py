"""flashinfer.decode: one query a request, or a few."""

from __future__ import annotations

import functools
from typing import Any

from .._upstream import host, integers, refuse, uniform_offsets
from . import _rotary as rotary
from ._attend import Wrapper, attend, heads_second, layer, paged, positional_options, scales
from ._rotary import Rope, rope
from ._trtllm import trtllm_batch_decode_with_kv_cache as trtllm_batch_decode_with_kv_cache

_LISTS = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
_NAMES = {
    "kv_indptr": "indptr",
    "kv_indices": "indices",
    "page_table": "indices",
    "k_cache": "paged_kv_cache",
    "v_cache": "paged_kv_cache",
}


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
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
        self._begin(use_cuda_graph, kv_layout, jit_args, **dict(zip(_LISTS, buffers)))
        self._use_tensor_cores = use_tensor_cores
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
        self._take_plan(
            call, indptr, indices, last_page_len, q_len_per_req, (num_qo_heads, head_dim), (page_size, num_kv_heads),
            rope(call, pos_encoding_mode, rope_scale, rope_theta), window_left, logits_soft_cap, sm_scale,
        )  # fmt: skip
        kv_data_type = data_type if kv_data_type is None else kv_data_type
        self._plan_types(q_data_type if data_type is None else data_type, kv_data_type, o_data_type)

    begin_forward = plan

    def _take_plan(
        self,
        call: str,
        indptr: Any,
        indices: Any,
        last_page_len: Any,
        q_len_per_req: int,
        q: tuple[int, int],
        cache: tuple[int, int],
        rotation: Rope | None,
        window_left: int,
        soft_cap: float | None,
        sm_scale: Any,
        indices_are_there: bool = False,
    ) -> None:
        """q [num_qo_heads, head_dim] and cache [page_size, num_kv_heads] are sizes."""
        page_size, batch_size = cache[0], len(host(last_page_len))
        if q_len_per_req < 1:
            raise ValueError(f"q_len_per_req is {q_len_per_req}, expected at least 1")
        if self._use_cuda_graph and self._q_len_per_req not in (None, q_len_per_req):
            raise ValueError(f"q_len_per_req is {q_len_per_req}, and was {self._q_len_per_req}: CUDA graphs keep it")
        if q_len_per_req > 1:
            pages = host(indptr)[1:] - host(indptr)[:-1]
            lens = (pages - 1) * page_size + host(last_page_len)
            if (lens < q_len_per_req).any():
                raise ValueError(f"q_len_per_req is {q_len_per_req}, more than the {lens.min()} keys of a request")
        values = dict(zip(_LISTS, (indptr, indices, last_page_len)))
        if indices_are_there and self._use_cuda_graph:
            del values["paged_kv_indices"]
        self._keep(batch_size, **values)
        self._q_len_per_req, self._requests = q_len_per_req, batch_size
        self._planned, self._rope = {"q": q, "paged_kv_cache": cache}, rotation
        self._layer = {"window_left": window_left, "logits_soft_cap": soft_cap, "sm_scale": sm_scale}

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
        call, each = "BatchDecodeWithPagedKVCacheWrapper.run", self._q_len_per_req
        terms = self._terms(
            call, window_left, sinks=sinks, args=args or None, kv_cache_sf=kv_cache_sf,
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
        )  # fmt: skip
        if q_len_per_req not in (None, each):
            raise ValueError(f"q_len_per_req is {q_len_per_req}, and was planned as {each}")
        if q.shape[0] != self._requests * each:
            raise ValueError(f"q has {q.shape[0]} rows, expected {self._requests} requests * q_len_per_req {each}")
        self._check_planned(q, paged_kv_cache)
        cache, head_dim_vo = paged(paged_kv_cache, self._kv_layout)
        lists = [integers(getattr(self, f"_{name}_buf")) for name in _LISTS]
        return attend(
            rotary.paged(self._rope), _NAMES, q, head_dim_vo, (out, lse, return_lse), self._o_dtype,
            cache=cache, **dict(zip(("kv_indptr", "kv_indices", "last_page_len"), lists)),
            cu_seqlens_q=None if each == 1 else uniform_offsets(self._requests, each), causal=each > 1,
            **terms, **self._held, **scales(call, self._layer["sm_scale"], q.shape[-1], q_scale, k_scale, v_scale),
        )  # fmt: skip

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
        self._rope = rope("BatchDecodeWithPagedKVCacheWrapper.forward", pos_encoding_mode, rope_scale, rope_theta)
        self._layer = {"window_left": window_left, "logits_soft_cap": logits_soft_cap, "sm_scale": sm_scale}
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
    self._take_plan(
        "fast_decode_plan", indptr, indices, last_page_len, q_len_per_req, (num_qo_heads, head_dim), (page_size, num_kv_heads),
        rope("fast_decode_plan", pos_encoding_mode, rope_scale, rope_theta), window_left, logits_soft_cap, sm_scale,
        indices_are_there=True,
    )  # fmt: skip
    if q_data_type is None:
        q_data_type = "float16" if data_type is None else data_type
    self._plan_types(q_data_type, data_type if kv_data_type is None else kv_data_type, None)


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
    rotation = rope(call, pos_encoding_mode, rope_scale, rope_theta)
    k, v = heads_second(k, kv_layout), heads_second(v, kv_layout)
    result = attend(
        rotary.ragged(rotation), {}, q[None], v.shape[-1], (None, None, return_lse), k=k, v=v, cu_seqlens_q=[0, 1],
        cu_seqlens_k=[0, k.shape[0]], **terms, **scales(call, sm_scale, q.shape[-1], q_scale, k_scale, v_scale),
    )  # fmt: skip
    return (result[0][0], result[1][0]) if return_lse else result[0]
