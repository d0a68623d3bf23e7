"""flashinfer.cascade: merges of partial results, and attention in levels of shared prefixes."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._upstream import check_shapes, empty, host, launch, stacked
from ._attend import same_type
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper, single_prefill_with_kv_cache


def _merge(parts: Any, names: dict[str, str], like: Any, out_dtype: Any = None) -> tuple[Any, Any]:
    """parts: () -> v [n, states, H, D] and s [n, states, H], read at the launch. Returns (v [n, H, D], s [n, H])."""
    out, lse = empty(like, like.shape[:1] + like.shape[-2:], out_dtype), empty(like, (like.shape[0], like.shape[-2]), "float32")

    def merge() -> None:
        v, s = parts()
        _core.merge_states(v, s, base2=True, out=out, lse=lse)

    launch(merge, names)
    return out, lse


def merge_state(v_a: Any, s_a: Any, v_b: Any, s_b: Any) -> Any:
    """v_a, v_b [n, H, D] and s_a, s_b f32 [n, H], to base 2, of disjoint keys: (v, s) of them together."""
    check_shapes(s_a=(s_a, v_a.shape[:-1]), v_b=(v_b, v_a.shape), s_b=(s_b, v_a.shape[:-1]))
    same_type(v_a=v_a, v_b=v_b)
    return _merge(lambda: (stacked([v_a, v_b], 1), stacked([s_a, s_b], 1)), {"v": "v_a", "s": "s_a"}, v_a)


def merge_state_in_place(v: Any, s: Any, v_other: Any, s_other: Any, mask: Any = None) -> None:
    """Writes merge_state's result to v and s, in rows where mask [n] is true."""
    check_shapes(s=(s, v.shape[:-1]), v_other=(v_other, v.shape), s_other=(s_other, v.shape[:-1]))
    same_type(v=v, v_other=v_other)
    if mask is not None:
        check_shapes(mask=(mask, v.shape[:1]))

    def merge() -> None:
        out, lse = _core.merge_states(stacked([v, v_other], 1), stacked([s, s_other], 1), base2=True, lse=True)
        rows = slice(None) if mask is None else host(mask) != 0
        v[rows], s[rows] = out[rows], lse[rows]

    launch(merge, {})


def merge_states(v: Any, s: Any) -> Any:
    """v [n, states, H, D], s f32 [n, states, H]: (v [n, H, D], s [n, H])."""
    return _merge(lambda: (v, s), {}, v)


class MultiLevelCascadeAttentionWrapper:
    """Each level is a paged prefill of its own; the last one may be causal. Parts are f32 until they are merged."""

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: Any = None,
        paged_kv_indptr_buf_arr: Any = None,
        paged_kv_indices_buf_arr: Any = None,
        paged_kv_last_page_len_buf_arr: Any = None,
    ) -> None:
        buffers = (qo_indptr_buf_arr, paged_kv_indptr_buf_arr, paged_kv_indices_buf_arr, paged_kv_last_page_len_buf_arr)
        self._use_cuda_graph = use_cuda_graph
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(
                float_workspace_buffer, kv_layout, use_cuda_graph, *(b[i] for b in buffers if use_cuda_graph)
            )
            for i in range(num_levels)
        ]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffers: Any = None) -> None:
        """There is no workspace."""

    def plan(
        self,
        qo_indptr_arr: Any,
        paged_kv_indptr_arr: Any,
        paged_kv_indices_arr: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
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
    ) -> None:
        """The lists name who shares each level, from the root of the tree, and the level's pages."""
        lists = zip(qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, strict=True)
        for level, (wrapper, arrays) in enumerate(zip(self._levels, lists, strict=True)):
            wrapper.plan(
                *arrays, num_qo_heads, num_kv_heads, head_dim, page_size, causal=causal and level == len(self._levels) - 1,
                pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left, logits_soft_cap=logits_soft_cap,
                q_data_type=q_data_type, kv_data_type=kv_data_type, o_data_type="float32",
            )  # fmt: skip

    begin_forward = plan

    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        """q [rows, H, D] to out likewise."""
        parts = [level.run(q, paged_kv_cache, return_lse=True) for level in self._levels]
        both = lambda: (stacked([v for v, _ in parts], 1), stacked([s for _, s in parts], 1))  # noqa: E731
        return _merge(both, {}, parts[0][0], q.dtype)[0]

    forward = run

    def end_forward(self) -> None:
        """Deprecated, and does nothing."""


class _SharedPrefix:
    """Keys that all requests share, packed, and their own ones, in pages: two parts, merged."""

    _kind: Any  # of the wrapper of the pages

    def __init__(self, float_workspace_buffer: Any, kv_layout: str = "NHD") -> None:
        self._pages, self._kv_layout = self._kind(float_workspace_buffer, kv_layout), kv_layout

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any) -> None:
        """There is no workspace."""

    def end_forward(self) -> None:
        """Deprecated, and does nothing."""

    def _merged(self, q: Any, k_shared: Any, v_shared: Any, unique_kv_cache: Any, sm_scale: Any = None, **more: Any) -> Any:
        own = self._pages.forward_return_lse(q, unique_kv_cache, sm_scale=sm_scale, **more)
        shared = single_prefill_with_kv_cache(
            q, k_shared, v_shared, kv_layout=self._kv_layout, sm_scale=sm_scale, return_lse=True
        )
        return merge_state(*shared, *own)[0]


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    _kind = BatchDecodeWithPagedKVCacheWrapper

    def begin_forward(
        self,
        unique_kv_indptr: Any,
        unique_kv_indices: Any,
        unique_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        data_type: Any = "float16",
    ) -> None:
        """Lists of the requests' own pages."""
        lists = unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len
        self._pages.plan(*lists, num_qo_heads, num_kv_heads, head_dim, page_size, data_type=data_type)

    def forward(self, q: Any, k_shared: Any, v_shared: Any, unique_kv_cache: Any) -> Any:
        """q [requests, H, D] to out likewise; k_shared and v_shared by kv_layout."""
        return self._merged(q, k_shared, v_shared, unique_kv_cache)


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    _kind = BatchPrefillWithPagedKVCacheWrapper

    def begin_forward(
        self,
        qo_indptr: Any,
        paged_kv_indptr: Any,
        paged_kv_indices: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
    ) -> None:
        """Lists of the requests' own pages."""
        lists = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        self._pages.plan(*lists, num_qo_heads, num_kv_heads, head_dim, page_size)

    def forward(
        self,
        q: Any,
        k_shared: Any,
        v_shared: Any,
        unique_kv_cache: Any,
        causal: bool = False,
        use_fp16_qk_reduction: bool = False,
        sm_scale: Any = None,
        rope_scale: Any = None,
        rope_theta: Any = None,
    ) -> Any:
        """q [rows, H, D] to out likewise; causal is for the requests' own keys."""
        return self._merged(q, k_shared, v_shared, unique_kv_cache, sm_scale, causal=causal)
