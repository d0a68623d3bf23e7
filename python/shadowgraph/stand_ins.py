"""Drop-ins under upstream's names, so that an engine's own imports find them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import pkgutil
import sys
import types
from collections.abc import Iterator

# The modules of each package, and ours behind `shadowgraph.`; those of ours that are packages bring their own modules.
PACKAGES: dict[str, dict[str, str]] = {
    "flashinfer": {"flashinfer": "flashinfer"},
    "flash_attn": {"flash_attn": "flash_attn", "flash_attn.flash_attn_interface": "flash_attn"},
    "flash_attn_3": {"flash_attn_3": "flash_attn_3", "flash_attn_interface": "flash_attn_3"},
    "sgl_kernel": {"sgl_kernel": "sgl_kernel"},
    "vllm": {
        "vllm._custom_ops": "vllm",
        "vllm.v1.attention.ops.triton_merge_attn_states": "vllm",
        "vllm.v1.attention.ops.triton_reshape_and_cache_flash": "vllm",
        "vllm.v1.attention.ops.triton_unified_attention": "vllm",
        "vllm.vllm_flash_attn": "vllm.flash_attn",
        "vllm.vllm_flash_attn.flash_attn_interface": "vllm.flash_attn",
    },
}


def _modules(package: str) -> dict[str, types.ModuleType]:
    """Modules of a package by upstream's names."""
    found = {}
    for name, ours in PACKAGES[package].items():
        found[name] = module = importlib.import_module("shadowgraph." + ours)
        if name == package:
            for _, part, _ in pkgutil.iter_modules(getattr(module, "__path__", [])):
                if not part.startswith("_"):
                    found[f"{name}.{part}"] = importlib.import_module(f"{module.__name__}.{part}")
    return found


@contextlib.contextmanager
def stand_in(*packages: str) -> Iterator[None]:
    """`import flashinfer` and the like find ours: packages are of "flashinfer", "flash_attn", "flash_attn_3",
    "sgl_kernel" and "vllm", of which only the modules with kernels are replaced."""
    for package in packages:
        if package not in PACKAGES:
            raise ValueError(f"stand_in: {package!r} is none of {', '.join(PACKAGES)}")
    ours = {name: module for package in packages for name, module in _modules(package).items()}
    whole = [name for name in PACKAGES if name in ours]

    def replaced(name: str) -> bool:
        return name in ours or any(name == top or name.startswith(top + ".") for top in whole)

    before = {name: module for name, module in sys.modules.items() if replaced(name)}
    made = []
    for name in before:
        del sys.modules[name]
    sys.modules.update(ours)
    attributes = []
    try:
        for name in ours:  # a package above a module, where nobody has imported it
            parent, _, part = name.rpartition(".")
            while parent and parent not in whole:
                if parent not in sys.modules:
                    sys.modules[parent] = empty = types.ModuleType(parent)
                    empty.__spec__ = importlib.machinery.ModuleSpec(parent, None, is_package=True)
                    empty.__path__ = []
                    made.append(parent)
                holder = sys.modules[parent]
                attributes.append((holder, part, getattr(holder, part, None)))
                setattr(holder, part, sys.modules[f"{parent}.{part}"])
                parent, _, part = parent.rpartition(".")
        yield
    finally:
        for holder, part, old in reversed(attributes):
            setattr(holder, part, old) if old is not None else delattr(holder, part)
        for name in [n for n in sys.modules if replaced(n)] + made:
            sys.modules.pop(name, None)
        sys.modules.update(before)
