"""FlashInfer's calls of attention share this: outputs, base-2 LSE, scales, and the buffers of a plan."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .._upstream import empty, fill, floats, held, host, launch, number, per_head, product, refuse, swap, wrong
from ..cache import Cache

_F = TypeVar("_F", bound=Callable[..., Any])


def attend(
    function: Any,
    names: dict[str, str],
    q: Any,
    head_dim_vo: int,
    outputs: tuple[Any, Any, bool],
    o_dtype: Any = None,
    lse_base2: bool = True,
    **arguments: Any,
) -> Any:
    """q [n, H, D] to out [n, H, head_dim_vo] and, where it is asked for, f32 LSE [n, H]. outputs: (out, lse, return_lse)."""
    out, lse, return_lse = outputs
    n, heads = q.shape[:2] if len(q.shape) == 3 else (0, 0)  # a wrong q is refused by the engine
    if out is None:
        out = empty(q, (n, heads, head_dim_vo), o_dtype)
    if return_lse and lse is None:
        lse = empty(q, (n, heads), "float32")
    written = lse if return_lse else None
    launch(function, names, q=q, out=out, lse=written, lse_base2=lse_base2, lse_sink=True, **arguments)
    return (out, lse) if return_lse else out


def paged(kv: Any, kv_layout: str) -> tuple[Cache, int]:
    """A cache, (K, V) or K and V stacked in one tensor, and head_dim_vo."""
    if isinstance(kv, (tuple, list)):
        return Cache(kv[0], kv[1], kv_layout), kv[1].shape[-1]
    return Cache(kv, layout="STACKED_" + kv_layout), kv.shape[-1]


def scales(call: str, sm_scale: Any, head_dim: int, q: Any, k: Any, v: Any) -> dict[str, Any]:
    """Scales of q, K and V: numbers are factors of scores and of out, those of heads the engine's."""
    if per_head(q):
        refuse(call, q_scale=q)
    by_head = {name: floats(value) for name, value in (("k_scales", k), ("v_scales", v)) if per_head(value)}
    return {
        "sm_scale": product(number(sm_scale, head_dim**-0.5), q, None if per_head(k) else k),
        "out_scale": product(None if per_head(v) else v),
        **by_head,
    }


def layer(call: str, *, logits_soft_cap: Any = None, sinks: Any = None, window_left: int = -1, **refused: Any) -> dict[str, Any]:
    """Terms of a layer. refused: what is computed only if it is left out."""
    refuse(call, **refused)
    soft_cap = 0.0 if logits_soft_cap is None or logits_soft_cap <= 0 else logits_soft_cap
    return {"logits_soft_cap": soft_cap, "window_left": -1 if window_left < 0 else window_left, "sinks": floats(sinks)}


def positional_options(names: str) -> Callable[[_F], _F]:
    """plan's options may come by position, too: deprecated. names: in their order."""

    def decorate(plan: _F) -> _F:
        required = sum(
            p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in inspect.signature(plan).parameters.values()
        )
        order = names.split()

        @functools.wraps(plan)
        def wrapped(*args: Any, **options: Any) -> Any:
            args, more = args[:required], args[required:]
            if not more:
                return plan(*args, **options)
            if len(more) > len(order):
                most, given = required + len(order), required + len(more)
                raise TypeError(f"plan() takes {most} arguments by position, but {given} were given")
            by_place = dict(zip(order, more))
            for name in by_place.keys() & options.keys():
                raise TypeError(f"plan() got multiple values for argument '{name}'")
            warnings.warn(f"plan() takes {', '.join(by_place)} by name", DeprecationWarning, stacklevel=2)
            return plan(*args, **by_place, **options)

        return cast(_F, wrapped)

    return decorate


_MEANT = {"q": "[num_qo_heads, head_dim]", "paged_kv_cache": "[page_size, num_kv_heads]"}


class Wrapper:
    """Keeps what plan was given, as it lies; with CUDA graphs in the caller's buffers, which runs read."""

    _planned: dict[str, Any]  # shapes that run checks
    _layer: dict[str, Any]
    _qo_indptr_buf: Any
    _kv_indptr_buf: Any
    _kv_indices_buf: Any
    _kv_len_arr_buf: Any
    _int_workspace_buffer: Any = None  # engines share it among wrappers; nothing lies in it

    def _begin(self, use_cuda_graph: bool, kv_layout: str, jit_args: Any, **buffers: Any) -> None:
        if kv_layout not in ("NHD", "HND"):
            raise KeyError(f"Invalid kv_layout {kv_layout}")
        refuse(type(self).__name__, jit_args=jit_args)
        self._use_cuda_graph, self._kv_layout = use_cuda_graph, kv_layout
        for name, buffer in buffers.items():
            setattr(self, f"_{name}_buf", buffer)
        # rows of the graph: the first buffer holds offsets
        first = next(iter(buffers))
        if use_cuda_graph and buffers[first] is None:
            raise ValueError(f"{first}_buffer should be a tensor in CUDA graph mode")
        self._fixed_batch_size = len(buffers[first]) - 1 if use_cuda_graph else 0

    def _keep(self, batch_size: int, **values: Any) -> None:
        """Keeps arrays of plan: `paged_kv_indptr` in self._paged_kv_indptr_buf."""
        if not self._use_cuda_graph:
            for name, value in values.items():
                setattr(self, f"_{name}_buf", value)
            return
        if batch_size != self._fixed_batch_size:
            raise ValueError(
                f"The batch size should be fixed in CUDA graph mode: it is {batch_size}, and was {self._fixed_batch_size} initially"
            )
        for name, value in values.items():
            buffer = getattr(self, f"_{name}_buf")
            if buffer is None:
                raise ValueError(f"{name}_buffer should be a tensor in CUDA graph mode")
            if len(host(value)) > len(buffer):
                raise ValueError(f"{name} has {len(host(value))} entries, its buffer only {len(buffer)}")
        for name, value in values.items():
            fill(getattr(self, f"_{name}_buf"), value)

    def _plan_types(self, q_data_type: Any, kv_data_type: Any, o_data_type: Any) -> None:
        self._held = held(q_data_type, kv_data_type if kv_data_type is not None else q_data_type)
        self._o_dtype = o_data_type

    def _terms(self, call: str, window_left: int | None = None, **more: Any) -> dict[str, Any]:
        """The plan's terms, or the run's own window_left. more: sinks, and options that are refused."""
        planned = self._layer["window_left"]
        window_left = planned if window_left is None else window_left
        return layer(call, window_left=window_left, logits_soft_cap=self._layer["logits_soft_cap"], **more)

    def _check_planned(self, q: Any, kv: Any) -> None:
        """q and a paged cache have the heads, sizes and pages of the plan."""
        k = kv[0] if isinstance(kv, (tuple, list)) else kv
        first = len(k.shape) - 3
        page_size, num_kv_heads = (k.shape[first], k.shape[first + 1])[:: 1 if self._kv_layout == "NHD" else -1]
        found = {"q": (*q.shape[1:],), "paged_kv_cache": (page_size, num_kv_heads)}
        for name, got in found.items():
            if got != self._planned[name]:
                raise wrong("input.shape", name, f"{_MEANT[name]} {list(self._planned[name])}, as planned", str(list(got)))

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any = None, **more: Any) -> None:
        """There is no workspace."""

    def end_forward(self) -> None:
        """Deprecated, and does nothing."""


def heads_second(tensor: Any, kv_layout: str) -> Any:
    """K or V of one request as [n, Hk, D]."""
    return swap(tensor, 0, 1) if kv_layout == "HND" else tensor
