"""vLLM: what its builders make of CommonAttentionMetadata, and whether whole graphs are replayed with what they captured."""

from __future__ import annotations

import collections
import sys
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ..batch import Batch
from ..guard import Guard
from ..roles import SCALARS, named_roles
from . import Hooks

if TYPE_CHECKING:
    from ..recorder import Recorder

ENGINE = "vllm.v1.attention.backend"
_ELSEWHERE = ("encoder_seq_lens", "dcp_local_seq_lens")  # whose keys are not those of the step's requests, or not all
_REMEMBERED = 8  # results of builders, whose tables may be updated


class _Builders:
    """Wraps builders. built: their last metadata, since a graph was captured or replayed."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._results: collections.deque[tuple[Any, Any]] = collections.deque(maxlen=_REMEMBERED)
        self.built: dict[int, Any] = {}

    def take(self) -> dict[int, Any]:
        built, self.built = self.built, {}
        return built

    def build(self, builder: Any, metadata: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> None:
        self._built(builder, metadata, common_attn_metadata)

    def build_for_drafting(self, builder: Any, metadata: Any, common_attn_metadata: Any, draft_index: int) -> None:
        self._built(builder, metadata, common_attn_metadata)

    def build_for_cudagraph_capture(self, builder: Any, metadata: Any, common_attn_metadata: Any) -> None:
        self.built[id(builder)] = metadata  # its rows are dummies

    def update_block_table(self, builder: Any, metadata: Any, old: Any, blk_table: Any, slot_mapping: Any) -> None:
        common = next((common for result, common in self._results if result is old), None)
        if common is None:
            self._recorder.skip("vllm.update_block_table", "its metadata were built before they were recorded")
        else:
            self._built(builder, metadata, common, blk_table, slot_mapping)

    def _built(self, builder: Any, metadata: Any, common: Any, table: Any = None, slots: Any = None) -> None:
        self.built[id(builder)] = metadata
        self._results.append((metadata, common))
        if self._recorder.is_due(common.seq_lens):
            table = common.block_table_tensor if table is None else table
            _record(self._recorder, builder, metadata, common, table, getattr(common, "slot_mapping", None) if slots is None else slots)


class _Graphs:
    """A guard of whole graphs, whose findings are the recorder's."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._guard = Guard()
        self._known: dict[Hashable, frozenset[Any]] = {}

    def captured(self, graph: Hashable, metadata: Mapping[Any, Any]) -> None:
        self._guard.captured(graph, metadata)
        self._known[graph] = frozenset(metadata)

    def replayed(self, graph: Hashable, name: str, metadata: Mapping[Any, Any]) -> None:
        """Of other layers or builders than the capture's nothing is said."""
        if self._known.get(graph) == frozenset(metadata):
            self._recorder.found(name, self._guard.replaying(graph, metadata))

    def knows(self, graph: Hashable) -> bool:
        return graph in self._known


def _builders(hooks: Hooks) -> _Builders:
    kept: _Builders = hooks.kept.setdefault("vllm", _Builders(hooks.recorder))
    return kept


def install(hooks: Hooks) -> None:
    base, builders = sys.modules[ENGINE].AttentionMetadataBuilder, _builders(hooks)
    for name in ("build", "build_for_drafting", "build_for_cudagraph_capture", "update_block_table"):
        if hasattr(base, name):
            hooks.wrap(base, name, getattr(builders, name))
        else:
            hooks.recorder.skip(f"vllm.{name}", "this version has no such method")


def install_wrappers(hooks: Hooks) -> None:
    """Whole graphs of CUDAGraphWrapper; attention is no part of piecewise ones."""
    graphs = _Graphs(hooks.recorder)

    def called(wrapper: Any, *_: Any, **__: Any) -> None:
        context = sys.modules["vllm.forward_context"].get_forward_context()
        mode, metadata = context.cudagraph_runtime_mode, context.attn_metadata
        if mode != wrapper.runtime_mode or mode.name != "FULL" or not isinstance(metadata, Mapping):
            return
        graph = id(wrapper), context.batch_descriptor
        if graphs.knows(graph):
            graphs.replayed(graph, f"graph {context.batch_descriptor}", metadata)
        else:
            graphs.captured(graph, metadata)

    hooks.wrap(sys.modules["vllm.compilation.cuda_graph"].CUDAGraphWrapper, "__call__", called)


def install_managers(hooks: Hooks) -> None:
    """Graphs of CudaGraphManager, which replays them without a context: by what was built for each."""
    graphs, builders = _Graphs(hooks.recorder), _builders(hooks)

    def event(name: str, graph: Any) -> None:
        if name == "capture_end" and builders.built:
            graphs.captured(id(graph), builders.take())

    def replayed(manager: Any, _: Any, descriptor: Any) -> None:
        graphs.replayed(id(manager.graphs[descriptor]), f"graph {descriptor}", builders.take())

    hooks.on_graph.append(event)
    hooks.wrap(sys.modules["vllm.v1.worker.gpu.cudagraph_utils"].CudaGraphManager, "run_fullgraph", replayed)


MODULES = {
    ENGINE: install,
    "vllm.compilation.cuda_graph": install_wrappers,
    "vllm.v1.worker.gpu.cudagraph_utils": install_managers,
}


def _record(recorder: Recorder, builder: Any, metadata: Any, common: Any, table: Any, slots: Any) -> None:
    spec = builder.kv_cache_spec
    elsewhere = [name for name in _ELSEWHERE if getattr(common, name, None) is not None]
    if elsewhere or "Mamba" in type(spec).__name__:
        recorder.skip(f"vllm {type(builder).__name__}", f"its lengths are {elsewhere[0]}" if elsewhere else "its table holds states")
        return
    page_size, name = spec.block_size, recorder.last_name()
    pages = -(-int(getattr(common, "max_seq_len", table.shape[1] * page_size)) // page_size)
    arrays, names = named_roles(metadata)
    if slots is not None and "slots" not in arrays:
        arrays["slots"], names["slots"] = slots, "slot_mapping"
    if "page_table" in arrays:
        arrays["page_table"] = arrays["page_table"][:, :pages]
    truth = {" offsets": common.query_start_loc, " lens": common.seq_lens, " table": table[:, :pages]}

    def finish(host: Mapping[str, Any]) -> Any:
        offsets = host[" offsets"].tolist()
        q_lens = [b - a for a, b in zip(offsets, offsets[1:])]
        while q_lens and q_lens[-1] == 0:  # rows of padding
            q_lens.pop()
        lens = host[" lens"][: len(q_lens)].tolist()
        live = [row[: -(-n // page_size)] for row, n in zip(host[" table"][: len(q_lens)].tolist(), lens)]
        if any(0 in row for row in live):
            recorder.skip("vllm block 0", "it is nobody's: a dummy run, or keys before a window")
            return None
        mode = "decode" if all(n == 1 for n in q_lens) else "extend"
        batch = Batch.from_pages(mode, live, lens, q_lens, page_size=page_size)
        padded = len(q_lens) < len(offsets) - 1
        given = {role: host[role] for role in arrays if not (padded and role in SCALARS)}
        return recorder.record_due(batch, "replay" if padded else "eager", names, given, id=name)

    recorder.copied(name, truth | arrays, finish)
