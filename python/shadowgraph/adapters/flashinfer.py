"""FlashInfer: what its wrappers are planned with. A plan says nothing of the step, so the adapters of engines join both."""

from __future__ import annotations

import collections
import functools
import inspect
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from . import Hooks

_MADE = 64  # plans of one call
_PLANS = ("plan", "begin_forward")
_WRAPPERS = {
    "decode": ("BatchDecodeWithPagedKVCacheWrapper",),
    "prefill": ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper"),
    "mla": ("BatchMLAPagedAttentionWrapper",),
}
_ROLES = {
    "qo_indptr": "cu_seqlens_q",
    "indptr": "kv_indptr",
    "paged_kv_indptr": "kv_indptr",
    "kv_indptr": "kv_indptr",
    "indices": "kv_indices",
    "paged_kv_indices": "kv_indices",
    "kv_indices": "kv_indices",
    "last_page_len": "last_page_len",
    "paged_kv_last_page_len": "last_page_len",
    "kv_len_arr": "kv_lens",
}


class Plans:
    """The last plan of each wrapper, and those of the call underway."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.made: collections.deque[tuple[Any, dict[str, Any]]] = collections.deque(maxlen=_MADE)  # since somebody cleared it

    def note(self, function: Any, wrapper: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        plan = dict(inspect.signature(function).bind(wrapper, *args, **kwargs).arguments)
        self._last[wrapper] = plan
        self.made.append((wrapper, plan))

    def roles(self, wrapper: Any) -> dict[str, Any]:
        """Arrays of a wrapper's last plan by role, {} without one. A ragged wrapper's offsets count tokens."""
        plan = self._last.get(wrapper, {})
        ragged = "Ragged" in type(wrapper).__name__
        roles = {_ROLES[name]: value for name, value in plan.items() if name in _ROLES and value is not None}
        if ragged and "kv_indptr" in roles:
            roles["cu_seqlens_k"] = roles.pop("kv_indptr")
        return roles


def partial_of(plans: Plans) -> type:
    """functools.partial that notes plans. SGLang puts partial(fast_decode_plan, wrapper) in place of a wrapper's method, and
    asks for its `func` later: so the function stays as it is."""

    class Planned(functools.partial):  # type: ignore[type-arg]
        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            result = super().__call__(*args, **kwargs)
            if getattr(self.func, "__name__", "").startswith("fast_") and self.args:
                plans.note(self.func, self.args[0], (*self.args[1:], *args), {**self.keywords, **kwargs})
            return result

    return Planned


def install(hooks: Hooks, package: str = "flashinfer") -> None:
    plans = hooks.recorder.plans
    for module, names in _WRAPPERS.items():
        for name in names:
            wrapper = getattr(sys.modules.get(f"{package}.{module}", sys.modules[package]), name, None)
            if wrapper is None:
                hooks.recorder.skip(f"{package}.{name}", "this version has no such class")
                continue
            for method in _PLANS:
                if hasattr(wrapper, method):
                    hooks.wrap(wrapper, method, _noted(plans, getattr(wrapper, method)))


def _noted(plans: Plans, function: Any) -> Any:
    def after(wrapper: Any, _: None, *args: Any, **kwargs: Any) -> None:
        plans.note(function, wrapper, args, kwargs)

    return after


def install_partial(hooks: Hooks, module: str) -> None:
    hooks.replace(sys.modules[module], "partial", partial_of(hooks.recorder.plans))


_PARTIALS = ("sglang.srt.layers.attention.flashinfer_backend", "sglang.srt.layers.attention.flashinfer_mla_backend")
_OURS = "shadowgraph.flashinfer"
MODULES = {"flashinfer": install, _OURS: functools.partial(install, package=_OURS)} | {name: functools.partial(install_partial, module=name) for name in _PARTIALS}
