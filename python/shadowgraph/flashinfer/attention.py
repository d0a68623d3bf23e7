"""flashinfer.attention: decodes and prefills by one wrapper, and attention with sinks."""

from __future__ import annotations

from typing import Any

from .._upstream import host, refuse, wrong
from .prefill import BatchPrefillWithPagedKVCacheWrapper


class BatchAttention:
    """Requests of any number of queries against pages; kv_len_arr has their keys."""

    def __init__(self, kv_layout: str = "NHD", device: Any = "cuda") -> None:
        self._pages = BatchPrefillWithPagedKVCacheWrapper(None, kv_layout)

    def plan(
        self,
        qo_indptr: Any,
        kv_indptr: Any,
        kv_indices: Any,
        kv_len_arr: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int,
        page_size: int,
        causal: bool = False,
        sm_scale: Any = None,
        logits_soft_cap: float | None = None,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        use_profiler: bool = False,
    ) -> None:
        starts, lens = host(kv_indptr).astype("int64"), host(kv_len_arr)
        pages = -(-lens // page_size)
        if (starts[1:] - starts[:-1] != pages).any():
            row = int((starts[1:] - starts[:-1] != pages).argmax())
            raise wrong("len.q_extent", "kv_indptr", f"{pages[row]} pages of {lens[row]} keys", str(starts[row + 1] - starts[row]), row)
        last = (lens - (pages - 1) * page_size).astype("int32")
        self._soft_cap = logits_soft_cap or 0.0
        self._pages.plan(
            qo_indptr, kv_indptr, kv_indices, last, num_qo_heads, num_kv_heads, head_dim_qk, page_size, head_dim_vo=head_dim_vo,
            causal=causal, sm_scale=sm_scale, logits_soft_cap=logits_soft_cap, q_data_type=q_data_type, kv_data_type=kv_data_type,
        )  # fmt: skip

    def run(
        self,
        q: Any,
        kv_cache: Any,
        out: Any = None,
        lse: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        logits_soft_cap: float = 0.0,
        profiler_buffer: Any = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """q [rows, H, D]: (out, LSE to base 2), as a prefill's."""
        refuse("BatchAttention.run", kv_cache_sf=kv_cache_sf)
        if logits_soft_cap > 0 and self._soft_cap <= 0:
            raise ValueError(f"logits_soft_cap is {logits_soft_cap}, and was planned as {self._soft_cap}")
        return self._pages.run(q, kv_cache, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=True)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """A paged prefill whose run takes (q, cache, sinks, sm_scale)."""

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
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        q_data_type: Any = "bfloat16",
        kv_data_type: Any = "bfloat16",
        head_dim_qk: int = 128,
        head_dim_vo: int = 128,
        window_left: int = -1,
    ) -> None:
        refuse("BatchAttentionWithAttentionSinkWrapper", pos_encoding_mode=pos_encoding_mode)
        super().__init__(
            float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf, paged_kv_indices_buf,
            paged_kv_last_page_len_buf, custom_mask_buf, mask_indptr_buf, backend,
        )  # fmt: skip
        self._takes_sinks = True
