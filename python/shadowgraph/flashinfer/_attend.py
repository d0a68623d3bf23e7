"""FlashInfer's calls of attention share this: outputs, base-2 LSE, scales, and the buffers of a plan."""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .._upstream import (
    HELD, dtype_name, empty, fill, floats, held, integers, is_torch, launch, number, per_head, product, refuse, swap, wrong,
)  # fmt: skip
from ..cache import Cache
from ._positions import Positions, positions

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
    """q [n, H, D] to out [n, H, head_dim_vo] and f32 LSE [n, H], if it is asked for or given. outputs: (out, lse, return_lse)."""
    out, lse, return_lse = outputs
    if out is None or (lse is None and return_lse):
        shape = q.shape
        n, heads = shape[:2] if len(shape) == 3 else (0, 0)  # a wrong q is refused by the engine
        if out is None:
            out = empty(q, (n, heads, head_dim_vo), o_dtype)
        if lse is None and return_lse:
            lse = empty(q, (n, heads), "float32")
    launch(function, names, q=q, out=out, lse=lse, lse_base2=lse_base2, lse_sink=True, **arguments)
    return (out, lse) if return_lse else out


def check_workspace(**buffers: Any) -> None:
    """Upstream's kernels ask for 16 bytes."""
    for name, buffer in buffers.items():
        if is_torch(buffer) and buffer.numel() and buffer.data_ptr() % 16:
            raise ValueError(f"{name} must be 16-byte aligned")


def check_layout(kv_layout: str) -> None:
    if kv_layout not in ("NHD", "HND"):
        raise KeyError(f"Invalid kv_layout {kv_layout}")


def same_type(**tensors: Any) -> None:
    """Kernels read all of them as values of the first one's type."""
    (first, like), *rest = tensors.items()
    for name, tensor in rest:
        if tensor.dtype != like.dtype:
            raise wrong("input.dtype", name, f"{dtype_name(like.dtype)}, as {first}", dtype_name(tensor.dtype))


def paged(kv: Any, kv_layout: str, name: str = "paged_kv_cache") -> tuple[Cache, int]:
    """A cache, (K, V) or K and V stacked in one tensor, and head_dim_vo. Pages of one token may lack their axis."""
    check_layout(kv_layout)
    if isinstance(kv, (tuple, list)):
        k, v = kv
        if k.dtype != v.dtype:
            raise wrong("input.dtype", name, f"values of {dtype_name(k.dtype)}, as keys", dtype_name(v.dtype))
        if len(k.shape) == 3:
            k, v = (x[:, None] if kv_layout == "NHD" else x[:, :, None] for x in (k, v))
        return Cache(k, v, kv_layout), v.shape[-1]
    if len(kv.shape) == 4:
        kv = kv[:, :, None] if kv_layout == "NHD" else kv[:, :, :, None]
    return Cache(kv, layout="STACKED_" + kv_layout), kv.shape[-1]


def scales(call: str, sm_scale: Any, q: Any, k: Any, v: Any) -> dict[str, Any]:
    """Scales of scores, q, K and V: numbers are factors of scores and of out, those of heads the engine's."""
    if per_head(q):
        refuse(call, q_scale=q)
    by_head = {name: floats(value) for name, value in (("k_scales", k), ("v_scales", v)) if per_head(value)}
    return {
        "sm_scale": product(sm_scale, q, None if per_head(k) else k),
        "out_scale": product(None if per_head(v) else v),
        **by_head,
    }


def layer(call: str, *, logits_soft_cap: Any = None, sinks: Any = None, window_left: int = -1, **refused: Any) -> dict[str, Any]:
    """Terms of a layer. refused: what is computed only if it is left out."""
    refuse(call, **refused)
    soft_cap = 0.0 if logits_soft_cap is None or logits_soft_cap <= 0 else logits_soft_cap
    return {"logits_soft_cap": soft_cap, "window_left": -1 if window_left < 0 else window_left, "sinks": floats(sinks)}


def skipping(threshold: Any) -> Any:
    """The threshold of a softmax that skips keys, or None if those weigh less than f32 rounds away."""
    return None if threshold is not None and threshold <= 2**-30 else threshold


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


class Wrapper:
    """Keeps what plan was given, as it lies; with CUDA graphs in the caller's buffers, which runs read."""

    _attention: Callable[[Positions], Any]  # what computes, by positions
    _names: dict[str, str]  # upstream's, by the engine's
    _lists: dict[str, str]  # of arrays of plan, by the engine's
    _layer: dict[str, Any] | None = None  # the engine's arguments that plan fixed
    _plan_info: Any = ()  # upstream's tests ask for one
    _rows: int | None = None  # of q, the most that a graph was planned for
    _right: list[Any] | None = None  # types that fit the plan
    _int_workspace_buffer: Any = None  # engines share it among wrappers; nothing lies in it

    def _begin(self, float_workspace_buffer: Any, use_cuda_graph: bool, kv_layout: str, jit_args: Any, **buffers: Any) -> None:
        check_layout(kv_layout)
        check_workspace(float_workspace_buffer=float_workspace_buffer)
        # a variant of upstream's own: run takes (sinks, sm_scale) by position
        self._takes_sinks = jit_args is not None and len(jit_args) > 11 and jit_args[11] == "AttentionSink"
        refuse(type(self).__name__, jit_args=None if self._takes_sinks else jit_args)
        self._use_cuda_graph, self._kv_layout = use_cuda_graph, kv_layout
        for name, buffer in buffers.items():
            if use_cuda_graph and buffer is None:
                raise ValueError(f"{name}_buffer should be a tensor in CUDA graph mode")
            if use_cuda_graph and buffer is not None and dtype_name(buffer.dtype) != "int32":
                raise ValueError(f"{name}_buffer is {dtype_name(buffer.dtype)}, and kernels read int32")
            setattr(self, f"_{name}_buf", buffer)
        # rows of the graph: the first buffer holds offsets
        self._fixed_batch_size = len(next(iter(buffers.values()))) - 1 if use_cuda_graph else 0

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
            if value.shape[0] > buffer.shape[0]:
                raise ValueError(f"{name} has {value.shape[0]} entries, its buffer only {buffer.shape[0]}")
        for name, value in values.items():
            fill(getattr(self, f"_{name}_buf"), value)

    def _keep_rows(self, qo_indptr: Any) -> None:
        """The rows of q; those of a graph's first plan are the most that it takes."""
        rows = int(qo_indptr[-1])
        if self._use_cuda_graph and rows > (rows if self._rows is None else self._rows):
            raise ValueError(f"qo_indptr has {rows} rows in all, and the first plan of the CUDA graph {self._rows}")
        self._rows = max(rows, self._rows or 0) if self._use_cuda_graph else rows

    def _plan_types(self, q_data_type: Any, kv_data_type: Any, o_data_type: Any, data_type: Any = None) -> None:
        """A default, upstream's float16, also lets f32 in, of which upstream has no kernels."""
        self._any_f32 = isinstance(q_data_type, str) and q_data_type == "float16"
        if data_type is not None:
            q_data_type = data_type if self._any_f32 or q_data_type is None else q_data_type
            kv_data_type = data_type if kv_data_type is None else kv_data_type
        kv_data_type = q_data_type if kv_data_type is None else kv_data_type
        self._types = {"q_data_type": q_data_type, "kv_data_type": kv_data_type, "o_data_type": o_data_type}
        self._held = {name: kind for name, kind in held(q_data_type, kv_data_type).items() if kind is not None}
        self._o_dtype = o_data_type
        self._right = None

    def _check_types(self, **tensors: Any) -> None:
        """By names of upstream: q and what begins with it is of plan's q_data_type, out of o_data_type, all else of kv_data_type."""
        dtypes = [None if tensor is None else tensor.dtype for tensor in tensors.values()]
        if self._right is not None and all(map(operator.is_, dtypes, self._right)):
            return
        for (name, tensor), dtype in zip(tensors.items(), dtypes):
            option = "q_data_type" if name[0] == "q" else "o_data_type" if name == "out" else "kv_data_type"
            planned = self._types[option]
            if planned is None and option == "o_data_type":
                planned = dtypes[0]  # q's
            if tensor is None or planned is None:
                continue
            got, planned = dtype_name(dtype), dtype_name(planned)
            unnamed = not is_torch(tensor) and got in ("uint16", "uint8") and planned in HELD  # NumPy lacks names
            if got != planned and not unnamed and not (self._any_f32 and got == "float32" and name != "out"):
                raise ValueError(f"{name}.dtype is {got}, and {option} was planned as {planned}")
        self._right = dtypes

    def _plan_layer(
        self, head_dim: int, window_left: int, logits_soft_cap: Any, sm_scale: Any, positions: Positions, **more: Any
    ) -> None:
        """Terms of the layer, and lists as the engine takes them. more: causality or masks."""
        self._function = self._attention(positions)
        lists = {}
        for name, kept in self._lists.items():
            array = getattr(self, f"_{kept}_buf")
            kind = dtype_name(getattr(array, "dtype", "int32"))
            if "int" not in kind:
                raise wrong("input.dtype", self._names.get(name, name), "int32", kind)
            lists[name] = integers(array)
        soft_cap = 0.0 if logits_soft_cap is None or logits_soft_cap <= 0 else logits_soft_cap
        window_left = -1 if window_left < 0 else window_left
        self._head_dim = head_dim
        self._window_left, self._logits_soft_cap, self._sm_scale = window_left, soft_cap, sm_scale  # vLLM reads them
        self._layer = {
            "sm_scale": number(sm_scale, head_dim**-0.5), "window_left": window_left, "logits_soft_cap": soft_cap, **lists, **more,
        }  # fmt: skip

    def _forward(
        self, call: str, window_left: int, soft_cap: Any, sm_scale: Any, mode: str, rope_scale: Any, rope_theta: Any, **more: Any
    ) -> None:
        """A layer of forward's own in place of plan's; more: what of it stays."""
        stays = self._planned_layer(call) | more
        rotation = positions(call, mode, rope_scale, rope_theta, soft_cap)
        self._plan_layer(self._head_dim, window_left, soft_cap, sm_scale, rotation)
        own = self._planned_layer(call)
        self._layer = stays | {name: own[name] for name in ("sm_scale", "window_left", "logits_soft_cap")}

    def _planned_layer(self, call: str) -> dict[str, Any]:
        if self._layer is None:
            raise RuntimeError(f"{call}: plan comes before it")
        return self._layer

    def _run(
        self, call: str, q: Any, head_dim_vo: int, outputs: tuple[Any, Any, bool], q_scale: Any, k_scale: Any, v_scale: Any,
        args: tuple[Any, ...] = (), window_left: int | None = None, sinks: Any = None, **tensors: Any,
    ) -> Any:  # fmt: skip
        """The plan's layer, but for the run's own window, sinks and scales. args: of a variant of its own."""
        layer = self._planned_layer(call) | tensors
        if args and self._takes_sinks:
            sinks, layer["sm_scale"] = args[0], number(args[1])
        elif args:
            refuse(call, args=args)
        if window_left is not None:
            layer["window_left"] = -1 if window_left < 0 else window_left
        if sinks is not None:
            layer["sinks"] = floats(sinks)
        if q_scale is not None or k_scale is not None or v_scale is not None:
            layer |= scales(call, layer["sm_scale"], q_scale, k_scale, v_scale)
        return attend(self._function, self._names, q, head_dim_vo, outputs, self._o_dtype, **layer, **self._held)

    def _plan_sizes(self, q: tuple[int, int], page_size: int, num_kv_heads: int) -> None:
        """q: num_qo_heads, head_dim."""
        self._q_sizes = q
        self._kv_sizes = (page_size, num_kv_heads, q[1]) if self._kv_layout == "NHD" else (num_kv_heads, page_size, q[1])

    def _check_planned(self, q: Any, k: Any, out: Any) -> None:
        """q and a paged cache have the types, heads, sizes and pages of the plan."""
        if q.shape[1:] != self._q_sizes:
            raise wrong("input.shape", "q", f"[num_qo_heads, head_dim] {list(self._q_sizes)}, as planned", str(list(q.shape[1:])))
        if k.shape[-3:] != self._kv_sizes:
            sizes = "page_size, num_kv_heads" if self._kv_layout == "NHD" else "num_kv_heads, page_size"
            expected = f"[{sizes}, head_dim] {list(self._kv_sizes)}, as planned"
            raise wrong("input.shape", "paged_kv_cache", expected, str(list(k.shape[-3:])))
        self._check_types(q=q, paged_kv_cache=k, out=out)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffer: Any = None, **more: Any) -> None:
        """There is no workspace."""
        check_workspace(float_workspace_buffer=float_workspace_buffer, int_workspace_buffer=int_workspace_buffer)

    def workspace_size(self, *args: Any, **options: Any) -> tuple[int, int]:
        """Bytes that a plan of these arguments asks for: there is no workspace, and nobody allocates none."""
        return 16, 16

    def end_forward(self) -> None:
        """Deprecated, and does nothing."""


def heads_second(tensor: Any, kv_layout: str) -> Any:
    """K or V of one request as [n, Hk, D]."""
    check_layout(kv_layout)
    return swap(tensor, 0, 1) if kv_layout == "HND" else tensor
