"""A kernel's results against the twin's oracle: a call is described once, run by whoever can, and judged by a bound.

docs/kernel.md begins with an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _core
from ._copies import on_device
from ._upstream import dtype_name
from .report import Report, ShadowgraphError


def on_host(value: Any) -> Any:
    """A tensor of a device as one of the CPU; tuples likewise."""
    if isinstance(value, tuple):
        parts = map(on_host, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.detach().cpu() if on_device(value) else value


@dataclass(frozen=True, repr=False)
class Call:
    """A call of attention: `arguments` are those of `twin`, shadowgraph.paged_attention or ragged_attention."""

    arguments: dict[str, Any]
    twin: Callable[..., Any]
    judge: Callable[..., Any]

    def run(self, **more: Any) -> Any:
        """What the twin computes: out, or with lse=True (out, lse)."""
        return self.twin(**self.on_host(), **more)

    def on_host(self) -> dict[str, Any]:
        return {name: on_host(value) for name, value in self.arguments.items()}

    def changed(self, **arguments: Any) -> Call:
        return Call({**self.arguments, **arguments}, self.twin, self.judge)

    def __repr__(self) -> str:
        shown = (f"{name}={_short(value)}" for name, value in self.arguments.items())
        return f"{'paged' if self.twin is _core.paged_attention else 'ragged'}({', '.join(shown)})"


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    return f"<{list(value.shape)}>" if hasattr(value, "shape") else repr(value)


_PAGES = {2: ("page_table", "cache_seqlens"), 3: ("kv_indptr", "kv_indices", "last_page_len")}


def paged(q: Any, cache: Any, pages: Any = None, *, sm_scale: float | None = None, **arguments: Any) -> Call:
    """Describes attention over a paged cache.

    pages     (page_table, cache_seqlens) or (kv_indptr, kv_indices, last_page_len), if they are not given by name
    sm_scale  1 / sqrt(head_dim_qk), if it is left out

    Other arguments are those of paged_attention: causal, window_left, lse_base2, cu_seqlens_q, ..."""
    if pages is not None:
        if not isinstance(pages, tuple) or len(pages) not in _PAGES:
            raise TypeError("paged: pages is no tuple (page_table, cache_seqlens) or (kv_indptr, kv_indices, last_page_len)")
        arguments |= dict(zip(_PAGES[len(pages)], pages))
    if not isinstance(cache, tuple) or len(cache) < 2:
        raise TypeError("paged: cache is no tuple (k_cache, v_cache, ...) and no Cache")
    return _described(_core.paged_attention, _core.judge_paged, sm_scale, q=q, cache=cache, **arguments)


def ragged(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *, sm_scale: float | None = None, **arguments: Any) -> Call:
    """Describes attention over packed keys and values, as ragged_attention takes them. sm_scale as in paged."""
    arguments |= {"k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    return _described(_core.ragged_attention, _core.judge_ragged, sm_scale, q=q, **arguments)


def _described(twin: Callable[..., Any], judge: Callable[..., Any], sm_scale: float | None, **arguments: Any) -> Call:
    try:
        twin(**dict.fromkeys(arguments))  # an unknown name is refused before what is missing
    except TypeError as error:
        if "no argument is called" in str(error):
            raise
    arguments["sm_scale"] = float(arguments["q"].shape[-1]) ** -0.5 if sm_scale is None else sm_scale
    return Call(arguments, twin, judge)


def matches(out: Any, lse: Any, reference: Call, *, arithmetic: str = "plain_f32") -> Report:
    """The findings of assert_matches."""
    return Report(reference.judge(**reference.on_host(), out=on_host(out), lse=on_host(lse), arithmetic=arithmetic))


def hint(out: Any, lse: Any, reference: Call, arithmetic: str) -> str:
    """A line of wrong results that another arithmetic gives: tensor cores round weights to q's type, plain_f32 does not."""
    if arithmetic != "plain_f32" or dtype_name(reference.arguments["q"].dtype) not in ("float16", "bfloat16", "uint16"):
        return ""
    right = matches(out, lse, reference, arithmetic="tensor_cores").ok
    return 'arithmetic="tensor_cores" accepts these results: f32 accumulators, weights rounded to q\'s type' if right else ""


def raise_with(report: Report, line: str) -> None:
    """Raises ShadowgraphError if there are findings, and says a line behind them."""
    __tracebackhide__ = True
    if not report.ok:
        error = ShadowgraphError(report)
        error.args = ("\n  ".join(filter(None, [str(report), line])),)
        raise error


def assert_matches(out: Any, lse: Any, reference: Call, *, arithmetic: str = "plain_f32") -> None:
    """Raises ShadowgraphError unless each element of out, and of lse where it is not None, is within the error bound that
    is derived from the kernel's arithmetic, of what a float64 oracle computes for the call that paged or ragged describes.

    out         [total_q, num_qo_heads, head_dim_vo]
    lse         f32 [total_q, num_qo_heads], any strides; to base e unless the call says lse_base2
    arithmetic  how the kernel computes: "plain_f32", "tensor_cores", "fa2", "fa3", ... (`shadowgraph list arithmetics`)

    The error names the worst element, its request, both values and the bound, and which known mistake would give these
    results. Tensors of a device are copied to the CPU."""
    __tracebackhide__ = True
    if not isinstance(reference, Call):
        raise TypeError(f"assert_matches: reference is a {type(reference).__name__}, expected a call that paged or ragged describes")
    report = matches(out, lse, reference, arithmetic=arithmetic)
    raise_with(report, "" if report.ok else hint(out, lse, reference, arithmetic))
