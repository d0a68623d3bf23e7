"""The guard names what a replay reads that is not its own, and is silent otherwise."""

import dataclasses
import types

import numpy
import pytest
import torch

import shadowgraph as sg


@dataclasses.dataclass
class Metadata:
    page_table: object
    cache_seqlens: object
    slot_mapping: object
    max_seq_len_k: int = 8


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


def tensors(library=torch):
    make = {torch: lambda *a: torch.tensor(a, dtype=torch.int32), numpy: lambda *a: numpy.array(a, numpy.int32)}[library]
    return Metadata(make([4, 5], [2, 0], [0, 0]), make(3, 1, 0), make(10, 4, -1))


def batch(lens=(3, 1)):
    keys = [[8, 9, 10, 11][: lens[0]], [4, 5][: lens[1]]]
    return sg.Batch.from_slots("decode", keys, [1, 1], page_size=2, pool_pages=8)


NESTS = {
    "dataclass": lambda m: m,
    "layers": lambda m: {f"layers.{i}": m for i in range(4)},
    "lists": lambda m: [[m], (m,)],
    "object": lambda m: types.SimpleNamespace(metadata=m, parent=None),
    "slots": lambda m: Slotted(m),
}


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("library", [torch, numpy])
def test_only_another_tensor_is_found_and_once_for_all_layers_that_share_it(nest, library):
    guard, metadata = sg.Guard(), tensors(library)
    guard.captured(3, NESTS[nest](metadata))
    metadata.cache_seqlens[0] = 2  # filled in place
    assert guard.replaying(3, NESTS[nest](metadata)).ok
    old, metadata.page_table = metadata.page_table, 0 + metadata.page_table
    report = guard.replaying(3, NESTS[nest](metadata))
    assert [f.id for f in report.findings] == ["graph.address_changed"]
    assert report.findings[0].field.endswith("page_table") and old is not None
    metadata.page_table = None
    assert [f.got for f in guard.replaying(3, NESTS[nest](metadata)).findings] == ["no tensor"]
    with pytest.raises(KeyError, match="graph 4 was not captured"):
        guard.replaying(4, metadata)


def test_a_layer_that_no_longer_shares_is_named():
    guard, shared, own = sg.Guard(), tensors(), tensors()
    guard.captured("g", {"layers": [shared, shared]})
    report = guard.replaying("g", {"layers": [shared, own]})
    assert [f.field for f in report.findings] == [f"layers.1.{n}" for n in ("page_table", "cache_seqlens", "slot_mapping")]


def test_shape_strides_and_dtype_are_the_captures():
    guard, metadata = sg.Guard(), tensors()
    guard.captured(0, metadata)
    whole = metadata.page_table
    for other in (whole[:2], whole.t(), whole.view(torch.float32)):
        metadata.page_table = other
        assert [f.id for f in guard.replaying(0, metadata).findings] == ["graph.topology_changed"]


def test_another_dtype_is_named_wherever_its_tensor_lies():
    guard, metadata = sg.Guard(), tensors()
    guard.captured(0, metadata)
    kept, metadata.cache_seqlens = metadata.cache_seqlens, metadata.cache_seqlens.long()
    (finding,) = guard.replaying(0, metadata).findings
    assert (finding.id, finding.field) == ("graph.topology_changed", "cache_seqlens")
    assert "torch.int32" in finding.expected and "torch.int64" in finding.got and kept is not None
    metadata.cache_seqlens = torch.zeros(4, dtype=torch.int32)  # another tensor, and longer
    assert [f.id for f in guard.replaying(0, metadata).findings] == ["graph.address_changed", "graph.topology_changed"]


@pytest.mark.parametrize("library", [torch, numpy])
def test_memory_that_was_freed_is_found(library):
    guard, metadata = sg.Guard(), tensors(library)
    whole = metadata.page_table
    metadata.page_table = whole[:2]
    guard.captured(0, metadata)
    metadata.page_table = whole[:2]  # another view of the same storage
    assert guard.replaying(0, metadata).ok
    del whole
    metadata.page_table = tensors(library).page_table[:2]
    assert "mem.use_after_free" in [f.id for f in guard.replaying(0, metadata).findings]


def test_a_number_that_kernels_got_by_value_may_not_change():
    for name in ("max_seq_len_k", "layers.*.max_seq_len_k"):
        guard, metadata = sg.Guard(scalars=[name]), tensors()
        guard.captured(0, {"layers": [metadata]})
        assert guard.replaying(0, {"layers": [metadata]}).ok
        metadata.max_seq_len_k = 9
        (finding,) = guard.replaying(0, {"layers": [metadata]}).findings
        assert (finding.id, finding.field, finding.got) == ("graph.baked_scalar", "layers.0.max_seq_len_k", "9")
    assert sg.Guard()._captures == {}


def test_a_captured_number_bounds_the_live_batch():
    metadata = tensors()
    for most, found in ((4, []), (3, ["len.bound"])):
        guard, metadata.max_seq_len_k = sg.Guard(scalars="max_seq_len_k"), most
        metadata.cache_seqlens[0] = 3
        guard.captured(0, metadata)
        metadata.cache_seqlens[0], metadata.slot_mapping[0] = 4, 11
        assert [f.id for f in guard.replaying(0, metadata, batch((4, 1))).findings] == found
        metadata.slot_mapping[0] = 10


def test_names_that_nobody_knows_are_told():
    guard = sg.Guard(scalars=["max_seq_len_k", "grid"])
    nest = {"lens": tensors().cache_seqlens, "logits": torch.zeros(2), "max_seq_len_k": 8}
    guard.captured(0, nest)
    assert guard.skipped.keys() == {"lens", "grid"}
    with pytest.warns(UserWarning, match="no tensor of this metadata has a role: grid, lens; guard.skipped"):
        assert guard.replaying(0, nest, batch()).ok
    guard = sg.Guard(roles={"lens": "kv_lens"})
    guard.captured(0, nest)
    nest["lens"][0] = 2
    assert guard.skipped == {} and [f.field for f in guard.replaying(0, nest, batch()).findings] == ["lens"]
    with pytest.raises(ValueError, match="roles: lens: expected one of .*kv_lens"):
        sg.Guard(roles={"my_lens": "lens"})


def test_lists_are_told_to_be_no_tensors():
    guard, nest = sg.Guard(), {"layer": {"page_table": [[4, 5], [2, 0]], "cache_seqlens": [3, 1], "max_seq_len_k": 8, "positions": None}}
    guard.captured(0, nest)
    assert guard.skipped.keys() == {"page_table", "cache_seqlens"} and "no tensor" in guard.skipped["page_table"]
    with pytest.warns(UserWarning, match="no tensor of this metadata has a role: page_table, cache_seqlens;"):
        assert guard.replaying(0, nest, batch()).ok
    with pytest.raises(TypeError, match="batch is a <class 'list'>, expected a shadowgraph.Batch"):
        guard.replaying(0, nest, [3, 1])


def test_roles_are_those_of_the_judge():
    from shadowgraph.roles import KNOWN, SCALARS

    def refusal(role):
        try:
            return str(sg.check(batch(), **{role: 4 if role in SCALARS else [0]}))
        except sg.ShadowgraphError as error:
            return str(error)

    unknown = refusal("lens")
    assert "lens" in unknown and [role for role in sorted(KNOWN) if refusal(role) == unknown.replace("lens", role)] == []


def test_a_number_of_an_object_that_layers_share_is_one_number():
    guard, metadata = sg.Guard(scalars=["max_seq_len_k"]), tensors()
    guard.captured(0, {"model.layers.0": metadata, 1: metadata})
    metadata.max_seq_len_k = 9
    assert [f.field for f in guard.replaying(0, {"model.layers.0": metadata, 1: metadata}).findings] == ["model.layers.0.max_seq_len_k"]


def test_contents_are_those_of_the_live_batch():
    guard, metadata = sg.Guard(), tensors()
    guard.captured(3, metadata)
    assert guard.replaying(3, metadata, batch()).ok
    # The next step: one more token of the first request, which a fill of its length forgot.
    metadata.slot_mapping[0] = 11
    ids = {f.id: f for f in guard.replaying(3, metadata, batch((4, 1))).findings}
    assert {"mem.stale_input", "len.kv_extent"} <= ids.keys()
    assert ids["mem.stale_input"].field == "cache_seqlens"
    metadata.cache_seqlens[0] = 4
    assert guard.replaying(3, metadata, batch((4, 1))).ok
    metadata.cache_seqlens[0] = 3  # another wrong value is not the step before's
    assert "mem.stale_input" not in [f.id for f in guard.replaying(3, metadata, batch((4, 1))).findings]


def test_stale_is_what_a_replay_or_the_capture_left():
    guard, metadata = sg.Guard(), tensors()
    metadata.cache_seqlens[0] = 2
    guard.captured(3, metadata)
    for when in ("at the capture", "in the replay before"):
        assert [f.got.partition(", as ")[2] for f in guard.replaying(3, metadata, batch()).findings if f.id == "mem.stale_input"] == [when]
    metadata.cache_seqlens[0] = 4  # wrong, and of this step
    assert "mem.stale_input" not in [f.id for f in guard.replaying(3, metadata, batch()).findings]
    larger = sg.Batch.from_slots("decode", [[2 * i] for i in range(2, 6)], [1] * 4, page_size=2, pool_pages=8)
    found = [f for f in guard.replaying(3, metadata, larger).findings if f.id == "mem.stale_input"]
    assert not any("long" in f.text for f in found), found


def test_a_wrapper_is_no_metadata():
    import shadowgraph.flashinfer as flashinfer

    wrapper, lists = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None), ([0, 1], [2], [1])
    guard, metadata = sg.Guard(), {"wrapper": wrapper, "lens": tensors().cache_seqlens}
    wrapper.plan(*map(torch.tensor, lists), 1, 1, 4, 2)
    guard.captured(0, metadata)
    wrapper.plan(*map(torch.tensor, lists), 1, 1, 4, 2)  # other tensors, which nothing captured
    assert guard.replaying(0, metadata).ok


def test_padding_writes_nobodys_slot():
    guard, metadata = sg.Guard(), tensors()
    guard.captured(3, metadata)
    metadata.slot_mapping[2] = 8  # a key of the first request
    (finding,) = guard.replaying(3, metadata, batch()).findings
    assert (finding.id, finding.field, finding.row) == ("slot.write", "slot_mapping", 2)


def test_the_guard_keeps_no_metadata_alive():
    import weakref

    guard, metadata = sg.Guard(scalars=["max_seq_len_k"]), tensors()
    guard.captured(0, metadata)
    alive = weakref.ref(metadata.page_table)
    del metadata
    assert alive() is None


def test_every_graph_of_a_class_is_watched():
    from shadowgraph.adapters.torch_graphs import watched

    class Base:
        replays = 0

        def capture_end(self):
            return "end"

        def replay(self):
            self.replays += 1

    class Graph(Base):
        def replay(self):
            super().replay()

    before, held, metadata = dict(vars(Graph)), tensors(), None
    guard = sg.Guard()
    with watched(guard, lambda: metadata["layers"], Graph) as reports:
        early = Graph()
        early.capture_end()  # nothing is known of its metadata
        metadata = {"layers": [held]}
        graph = Graph()
        assert graph.capture_end() == "end"
        graph.replay(), early.replay()
        assert reports == []
        metadata = {"layers": [tensors()]}
        graph.replay(), early.replay()
        metadata = None
        graph.replay()
    assert [[f.id for f in r.findings] for r in reports] == [["graph.address_changed"] * 3]
    assert all("TypeError" in guard.skipped[what] for what in ("a capture", "a replay"))
    assert graph.replays == 3 and dict(vars(Graph)) == before and Base.replay(graph) is None


def test_torchs_own_graphs_have_what_is_wrapped():
    from shadowgraph.adapters.torch_graphs import watched

    before = torch.cuda.CUDAGraph.replay
    with watched(sg.Guard(), dict):
        assert torch.cuda.CUDAGraph.replay is not before
    assert torch.cuda.CUDAGraph.replay is before
