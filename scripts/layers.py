#!/usr/bin/env python3
"""Checks every #include against the table of modules. Usage: layers.py [ROOT]; exit 1 if an edge is not allowed.

A module may include what its line names, and whatever that may include. Public headers
(include/shadowgraph) belong to a module too and include nothing but public headers. The library
itself (core, attn, kernels, graph, launch, runtime, backends, testing) needs no header but its own and the standard library's.
"""

import pathlib
import re
import sys

from common import source_files

ALLOWED = {
    "core": [],
    "attn": ["core"],
    "kernels": ["attn"],
    "oracle": ["attn"],
    "graph": ["core"],
    "runtime": ["graph", "attn"],
    "testing": ["runtime"],
    "launch": ["kernels", "graph"],
    "backends": ["launch"],
    "conformance": ["graph", "io"],
    "check": ["backends", "runtime", "oracle"],
    "faults": ["check"],
    "io": ["attn"],
    "report": ["io"],
    "cuda": ["launch"],
    "fuzz": ["faults", "check", "io", "testing"],
    "campaign": ["report"],
    "c_api": ["fuzz", "report"],
}
PUBLIC = {
    "status": "core", "access": "core", "kernel": "graph", "device_api": "graph", "arena": "graph", "annotations": "graph", "graph": "graph",
    "sim_device": "graph", "cuda_device": "cuda", "device_errors": "graph", "device_calls": "graph", "dtype": "core", "tensor_view": "core", "version": "core",
    "huge_memory": "core",
    "recurrent": "attn", "layer_kind": "attn", "recurrent_layer": "attn", "sparse_layer": "attn", "batch": "attn", "engine": "attn", "params": "attn", "kv_cache": "attn", "lse": "attn", "promises": "attn", "attention": "attn",
    "indexer": "attn", "compress": "attn", "sparse": "attn", "v4_layer": "attn",
    "forward_mode": "attn", "conventions": "attn", "backend": "backends", "limits": "backends", "testing": "testing",
    "buffer_info": "backends", "launches": "launch", "judge": "check", "fuzz_backend": "fuzz", "shadowgraph": "backends",
}  # fmt: skip
LIBRARY = {"core", "attn", "kernels", "graph", "launch", "runtime", "backends", "testing"}
THIRD_PARTY = ("Eigen/", "fmt/", "nlohmann/", "CLI/", "gtest/", "rapidcheck", "benchmark/", "dlpack/")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def reach(module: str) -> set[str]:
    """The module itself and all that it may include."""
    found = {module}
    for below in ALLOWED[module]:
        found |= reach(below)
    return found


def home(path: str) -> tuple[str, str]:
    """Who owns a repository path: (module, kind); kind is src, public, or outside (tools, tests, ...)."""
    parts = path.split("/")
    if path == "include/shadowgraph.h":
        return "c_api", "public"
    if path.startswith("include/shadowgraph/"):
        return PUBLIC.get(pathlib.PurePath(path).stem, "?"), "public"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1], "src"
    return parts[0], "outside"


def judge(path: str, quoted: bool, target: str) -> str | None:
    """Why this include is wrong, or None."""
    module, kind = home(path)
    if kind == "outside":
        only_public = module == "examples" and quoted and "/" in target and not target.startswith("shadowgraph/")
        return "examples include public headers only" if only_public else None
    if module not in ALLOWED:
        return f"{path} belongs to no module of the table in scripts/layers.py"
    if not quoted:
        foreign = module in LIBRARY and target.startswith(THIRD_PARTY)
        return f"{module} -> <{target}>: the library stands on the standard library" if foreign else None
    is_public = target.startswith("shadowgraph/") or target == "shadowgraph.h"
    if kind == "public" and not is_public:
        return f'public header -> "{target}": public headers include public headers only'
    other = home("include/" + target)[0] if is_public else target.split("/")[0]
    if other not in ALLOWED:
        return f'"{target}" names no module: write "module/file.h"'
    if other not in reach(module):
        return f'{module} -> {other} ("{target}")'
    return None


def main(root: pathlib.Path) -> int:
    files = source_files(root, (".h", ".cc", ".inl"))
    edges, wrong = 0, 0
    for file in files:
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            edges += 1
            why = judge(path, include[1] == '"', include[2])
            if why:
                wrong += 1
                print(f"{path}:{number}: {why}")
    print(f"layers: {edges} includes in {len(files)} files, {wrong} against the table")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
