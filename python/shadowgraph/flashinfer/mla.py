"""flashinfer.mla: absorbed latent attention, over two caches."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._upstream import (
    check_shapes, dtype_name, host, is_torch, joined, offsets, picked, refuse, uniform_offsets, used_pages, wrong,
)  # fmt: skip
from ..cache import Cache
from ._attend import Wrapper, attend
from ._trtllm import trtllm_batch_decode_with_kv_cache_mla as trtllm_batch_decode_with_kv_cache_mla

_NAMES = {
    "q": "q_nope",
    "k_cache": "ckv_cache",
    "cu_seqlens_q": "qo_indptr",
    "cache_seqlens": "kv_len_arr",
    "page_table": "kv_indices",
}


def _one_tensor(ckv: Any, kpe: Any) -> Any:
    """The latents that both caches are views of, or None."""
    if kpe.shape[-1] == 0:
        return ckv
    if not (is_torch(ckv) and is_torch(kpe)) or ckv.stride() != kpe.stride() or ckv.dtype != kpe.dtype:
        return None
    if kpe.data_ptr() != ckv.data_ptr() + ckv.shape[-1] * ckv.element_size() or ckv.stride(-1) != 1:
        return None
    return ckv.as_strided((*ckv.shape[:-1], ckv.shape[-1] + kpe.shape[-1]), ckv.stride())


def _attend(*, q: Any, q_pe: Any, ckv: Any, kpe: Any, kv_indptr: Any, kv_indices: Any, kv_len_arr: Any, **rest: Any) -> None:
    """paged_attention of [q_nope, q_pe] and [ckv, kpe]. Copies the pages that are used, if the caches lie apart."""
    starts, lens, page_size = host(kv_indptr), host(kv_len_arr), ckv.shape[1]
    if len(starts) <= len(lens):
        raise wrong("len.batch", "kv_indptr", f"{len(lens) + 1} entries", str(len(starts)))
    starts, pages = starts[: len(lens) + 1], -(-lens // page_size)  # entries behind them count for nothing
    last_page_len = (lens - (pages - 1) * page_size).astype("int32", copy=False)
    latents, lists = _one_tensor(ckv, kpe), {"kv_indptr": starts.astype("int32", copy=False), "kv_indices": kv_indices}
    if latents is None or (starts[1:] - starts[:-1] != pages).any():
        if (lens < 0).any():
            raise wrong("len.negative", "kv_len_arr", ">= 0", str(lens.min()), int(lens.argmin()))
        indices = host(kv_indices)
        used = used_pages([indices[a:b] for a, b in zip(starts, starts[1:])], pages, ckv.shape[0])
        ids = joined([uniform_offsets(0, 1)[1:], *(ids.astype("int32") for ids in used)], 0)
        if latents is None:
            latents, ids = joined([picked(ckv, ids), picked(kpe, ids)], 2), uniform_offsets(len(ids), 1)[:-1]
        if latents.shape[0] == 0 and ckv.shape[0]:
            latents = joined([ckv[:1], kpe[:1]], 2)
        lists = {"kv_indptr": offsets(pages), "kv_indices": ids}
    _core.paged_attention(
        q=joined([q, q_pe], 2) if q_pe.shape[-1] else q,
        cache=Cache(latents, layout="MLA_LATENT", head_dim_vo=ckv.shape[-1]),
        last_page_len=last_page_len,
        **lists,
        **rest,
    )


class BatchMLAPagedAttentionWrapper(Wrapper):
    _attention = staticmethod(lambda positions: _attend)
    _names = _NAMES
    _lists = {"cu_seqlens_q": "qo_indptr", "kv_indptr": "kv_indptr", "kv_indices": "kv_indices", "kv_len_arr": "kv_len_arr"}

    def __init__(
        self,
        float_workspace_buffer: Any,
        use_cuda_graph: bool = False,
        qo_indptr: Any = None,
        kv_indptr: Any = None,
        kv_indices: Any = None,
        kv_len_arr: Any = None,
        backend: str = "auto",
    ) -> None:
        self._backend = backend
        if backend == "cutlass":
            use_cuda_graph = False
        self._begin(
            float_workspace_buffer, use_cuda_graph, "NHD", None, qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr
        )

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_len_arr: Any,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: Any,
        q_data_type: Any,
        kv_data_type: Any,
        use_profiler: bool = False,
    ) -> None:
        """kv_indptr counts pages; kv_len_arr the keys of each request."""
        if dtype_name(kv_data_type).startswith("float8") and dtype_name(q_data_type) != "bfloat16":
            raise ValueError(f"latents of {dtype_name(kv_data_type)} want q_data_type=torch.bfloat16, not {dtype_name(q_data_type)}")
        lists = {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "kv_indices": kv_indices, "kv_len_arr": kv_len_arr}
        batch_size = len(qo_indptr) - 1
        if len(kv_indptr) > batch_size + 1:
            lists["kv_indptr"] = kv_indptr[: batch_size + 1]
        self._keep(batch_size, **lists)
        self._sizes = {
            "q_nope": (num_heads, head_dim_ckv),
            "q_pe": (num_heads, head_dim_kpe),
            "ckv_cache": (page_size, head_dim_ckv),
            "kpe_cache": (page_size, head_dim_kpe),
        }
        self._plan_types(q_data_type, kv_data_type, None)
        self._plan_layer(head_dim_ckv, -1, None, sm_scale, None, causal=causal)

    begin_forward = plan

    def run(
        self,
        q_nope: Any,
        q_pe: Any,
        ckv_cache: Any,
        kpe_cache: Any,
        out: Any = None,
        lse: Any = None,
        return_lse: bool = False,
        profiler_buffer: Any = None,
        kv_len: Any = None,
        page_table: Any = None,
        return_lse_base_on_e: bool = False,
        o_scale: Any = None,
        *,
        ckv_scale: Any = None,
        ckv_scale_arr: Any = None,
        kpe_scale: Any = None,
    ) -> Any:
        """q_nope [rows, H, ckv], q_pe [rows, H, kpe], caches [pages, page_size, ..]: out [rows, H, ckv], LSE f32 [rows, H]."""
        call, cutlass = "BatchMLAPagedAttentionWrapper.run", self._backend == "cutlass"
        if not cutlass:
            self._planned_layer(call)
            refuse(call, kv_len=kv_len, page_table=page_table)
        refuse(call, o_scale=o_scale, ckv_scale=ckv_scale, ckv_scale_arr=ckv_scale_arr, kpe_scale=kpe_scale)
        if q_pe.shape[:2] != q_nope.shape[:2] or kpe_cache.shape[:2] != ckv_cache.shape[:2]:
            check_shapes(
                q_pe=(q_pe, (*q_nope.shape[:2], q_pe.shape[-1])),
                kpe_cache=(kpe_cache, (*ckv_cache.shape[:2], kpe_cache.shape[-1])),
            )
        parts = {"q_pe": q_pe, "ckv": ckv_cache, "kpe": kpe_cache}
        if cutlass:  # without a plan; the scale is that of the heads before absorption
            outputs, names = (out, None, False), {"q": "q_nope", "k_cache": "ckv_cache", "kv_len_arr": "kv_len", "kv_indices": "page_table"}
            tables = {"kv_indptr": uniform_offsets(*page_table.shape), "kv_indices": page_table.reshape(-1), "kv_len_arr": kv_len}
            return attend(_attend, names, q_nope, q_nope.shape[-1], outputs, **parts, **tables, sm_scale=(128 + 64) ** -0.5)
        for name, tensor in (("q_nope", q_nope), ("q_pe", q_pe), ("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache)):
            if tensor.shape[1:] != self._sizes[name]:
                raise wrong("input.shape", name, f"[.., {str(self._sizes[name])[1:-1]}], as planned", str(list(tensor.shape)))
        self._check_types(q_nope=q_nope, q_pe=q_pe, ckv_cache=ckv_cache, kpe_cache=kpe_cache, out=out)
        outputs, base2 = (out, lse, return_lse), not return_lse_base_on_e
        return self._run(call, q_nope, q_nope.shape[-1], outputs, None, None, None, lse_base2=base2, **parts)
