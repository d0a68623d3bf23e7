"""Hooks meet engines that are imported later, classes that are made later, plans of FlashInfer, and whole graphs of vLLM."""

import contextlib
import functools
import os
import subprocess
import sys
import types

import engine
import pytest
import torch

import shadowgraph as sg
import shadowgraph.flashinfer as flashinfer
import shadowgraph.torch

MODULE = """
class AttentionMetadataBuilder:
    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        raise NotImplementedError
    def build_for_drafting(self, common_attn_metadata, draft_index):
        return self.build(0, common_attn_metadata, fast_build=True)
    def build_for_cudagraph_capture(self, common_attn_metadata):
        return self.build(0, common_attn_metadata)
    def update_block_table(self, metadata, blk_table, slot_mapping):
        raise NotImplementedError
"""


def module(name, monkeypatch, **contents):
    made = types.ModuleType(name)
    vars(made).update(contents)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def vllm(tmp_path, monkeypatch):
    """A package on the path, which a test imports."""
    folder = tmp_path / "vllm" / "v1" / "attention"
    folder.mkdir(parents=True)
    (folder / "backend.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def builder_of(base, **slips):
    class Builder(base):
        kv_cache_spec = types.SimpleNamespace(block_size=2)

        def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
            c = common_attn_metadata
            fields = {"seq_lens": c.seq_lens, "block_table": c.block_table_tensor, "slot_mapping": c.slot_mapping}
            return types.SimpleNamespace(query_start_loc=c.query_start_loc, **fields | slips)

        def update_block_table(self, metadata, blk_table, slot_mapping):
            return types.SimpleNamespace(**vars(metadata) | {"block_table": blk_table, "slot_mapping": slot_mapping} | slips)

    return Builder()


def common(**more):
    fields = {
        "query_start_loc": torch.tensor([0, 1, 2, 2]), "seq_lens": torch.tensor([3, 1, 0]), "max_seq_len": 3,
        "block_table_tensor": torch.tensor([[4, 5, 9], [2, 0, 9], [0, 0, 0]]), "slot_mapping": torch.tensor([10, 4, -1]),
    }
    return types.SimpleNamespace(**fields | more)


def test_an_engine_that_is_imported_later_is_hooked_then_and_so_are_its_later_classes(tmp_path, vllm):
    with sg.record(tmp_path / "steps.jsonl") as rec:
        assert "is not imported" in rec.skipped["vllm"]
        from vllm.v1.attention.backend import AttentionMetadataBuilder

        assert "vllm" not in rec.skipped
        builder = builder_of(AttentionMetadataBuilder)
        builder.build(0, common())
        assert rec.steps == 1 and rec.report.ok, rec.report
    assert not any(hasattr(method, "__wrapped__") for method in vars(type(builder)).values())
    assert "__init_subclass__" not in vars(AttentionMetadataBuilder) and rec._hooks._imports not in sys.meta_path
    builder.build(0, common())
    assert rec.steps == 1


def test_a_process_that_only_has_the_entry_point_is_recorded(tmp_path, vllm):
    code = """if True:
        from shadowgraph.plugin import start
        start()
        start()  # engines call it in several places
        import sys
        assert "torch" not in sys.modules
        sys.path[:0] = sys.argv[1:]
        import test_adapters
        from vllm.v1.attention.backend import AttentionMetadataBuilder
        test_adapters.builder_of(AttentionMetadataBuilder).build(0, test_adapters.common())
        import torch
        assert torch.cuda.CUDAGraph.replay.__wrapped__ is not None
    """
    command = [sys.executable, "-c", code, str(tmp_path), os.path.dirname(__file__)]
    run = subprocess.run(command, env=os.environ | {"SHADOWGRAPH_RECORD": str(tmp_path / "out")}, capture_output=True, text=True)
    assert run.stderr.count("1 steps recorded and judged, 0 with findings") == 1, run.stderr
    assert [len(path.read_text().splitlines()) for path in (tmp_path / "out").iterdir()] == [1]


def test_drafts_and_other_tables_of_vllm_are_recorded_and_captures_are_not(tmp_path, vllm):
    from vllm.v1.attention.backend import AttentionMetadataBuilder

    other = {"blk_table": torch.tensor([[6, 7], [8, 0], [0, 0]]), "slot_mapping": torch.tensor([14, 16, -1])}
    for slips, found in (({}, set()), ({"slot_mapping": torch.tensor([11, 4, -1])}, {"slot.write"})):
        with sg.record(tmp_path / "steps.jsonl") as rec:
            builder = builder_of(AttentionMetadataBuilder, **slips)
            builder.build_for_cudagraph_capture(common())
            assert rec.steps == 0
            metadata = builder.build_for_drafting(common(), draft_index=1)
            builder.update_block_table(metadata, **other)
            builder.build(0, common(block_table_tensor=torch.zeros(3, 3)))
        assert rec.steps == 2 and {f.id for f in rec.report.findings} == found, rec.summary()
        assert "dummy run" in rec.skipped["vllm block 0"]
        builder.update_block_table(metadata, **other)
    with sg.record(tmp_path / "steps.jsonl") as rec:
        builder.update_block_table(metadata, **other)
        builder.kv_cache_spec = type("MambaSpec", (), {"block_size": 2})()
        builder.build(0, common())
    assert rec.steps == 0 and "states" in rec.skipped["vllm Builder"]
    assert "before they were recorded" in rec.skipped["vllm.update_block_table"]
    with sg.record(tmp_path / "steps.jsonl") as rec:
        builder_of(AttentionMetadataBuilder).build(0, common(encoder_seq_lens=torch.tensor([5, 5])))
    assert rec.steps == 0 and "encoder_seq_lens" in rec.skipped["vllm Builder"]


def test_whole_graphs_of_vllm_are_guarded_and_piecewise_ones_are_not(tmp_path, monkeypatch):
    FULL, PIECEWISE = types.SimpleNamespace(name="FULL"), types.SimpleNamespace(name="PIECEWISE")
    context = types.SimpleNamespace(cudagraph_runtime_mode=FULL, batch_descriptor="2 tokens", attn_metadata=None)

    class CUDAGraphWrapper:
        runtime_mode = FULL

        def __call__(self, *args):
            return args

    module("vllm.compilation.cuda_graph", monkeypatch, CUDAGraphWrapper=CUDAGraphWrapper)
    module("vllm.forward_context", monkeypatch, get_forward_context=lambda: context)

    def metadata():
        return {"layers.0": types.SimpleNamespace(block_table=torch.zeros(2, 4, dtype=torch.int32))}

    graph, held = CUDAGraphWrapper(), metadata()
    with sg.record(tmp_path / "steps.jsonl") as rec:
        assert graph(1) == (1,)  # a run without attention
        for context.attn_metadata in (held, held):
            graph()
        assert rec.report.ok
        context.attn_metadata = metadata()
        context.cudagraph_runtime_mode = PIECEWISE
        graph()
        piece = CUDAGraphWrapper()
        piece.runtime_mode = PIECEWISE
        for context.attn_metadata in (held, metadata()):
            piece()
        assert rec.report.ok
        context.cudagraph_runtime_mode = FULL
        graph()
    (finding,) = rec.report.findings
    assert (finding.id, finding.field, rec.failed) == ("graph.address_changed", "layers.0.block_table", 1)
    assert "graph 2 tokens" in rec.report.to("text")


def test_graphs_that_a_manager_replays_are_guarded_by_what_was_built_for_them(tmp_path, vllm, monkeypatch):
    from vllm.v1.attention.backend import AttentionMetadataBuilder

    class CudaGraphManager:
        graphs = {}

        def capture(self, descriptor, x):
            self.graphs[descriptor] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graphs[descriptor]):
                x + 1

        def run_fullgraph(self, descriptor):
            self.graphs[descriptor].replay()

    module("vllm.v1.worker.gpu.cudagraph_utils", monkeypatch, CudaGraphManager=CudaGraphManager)
    manager, held = CudaGraphManager(), common()
    with shadowgraph.torch.cpu_graphs(), sg.record(tmp_path / "steps.jsonl") as rec:
        target, draft = builder_of(AttentionMetadataBuilder), builder_of(AttentionMetadataBuilder)
        target.build_for_cudagraph_capture(held)
        manager.capture(3, held.seq_lens)
        target.build(0, held)
        manager.run_fullgraph(3)
        manager.run_fullgraph(3)  # nothing was built since
        draft.build(0, common())
        manager.run_fullgraph(3)  # another builder's are not of this graph
        assert rec.report.ok, rec.report
        target.build(0, common(seq_lens=held.seq_lens.clone()))
        manager.run_fullgraph(3)
    assert {f.id for f in rec.report.findings} == {"graph.address_changed"} and "graph 3" in rec.report.to("text")


LISTS = {"indptr": torch.tensor([0, 2, 3]), "indices": torch.tensor([4, 5, 2]), "last_page_len": torch.tensor([1, 1])}
SIZES = {"num_qo_heads": 1, "num_kv_heads": 1, "head_dim": 4, "page_size": 2}


def test_a_plan_of_flashinfer_is_joined_with_its_step(tmp_path):
    batch = sg.Batch.from_pages("decode", [[4, 5], [2]], [3, 1], page_size=2)
    with sg.stand_in("flashinfer"), sg.record(tmp_path / "steps.jsonl") as rec:
        decode, prefill = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None), flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
        assert rec.planned(decode) == {}
        decode.plan(**LISTS, **SIZES)
        assert rec.step(batch, **rec.planned(decode)).ok
        decode.begin_forward(**LISTS | {"last_page_len": torch.tensor([2, 1])}, **SIZES)
        assert [f.field for f in rec.step(batch, **rec.planned(decode)).findings] == ["last_page_len"]
        prefill.plan(torch.tensor([0, 2]), torch.tensor([0, 3]), 1, 1, 4)
        assert rec.planned(prefill).keys() == {"cu_seqlens_q", "cu_seqlens_k"}
    decode.plan(**LISTS, **SIZES)
    assert rec.planned(decode)["last_page_len"].tolist() == [2, 1]  # nobody listens


def test_a_partial_plan_stays_what_its_engine_compares(tmp_path, monkeypatch):
    using = module("sglang.srt.layers.attention.flashinfer_backend", monkeypatch, partial=functools.partial)
    with sg.stand_in("flashinfer"), sg.record(tmp_path / "steps.jsonl") as rec:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        wrapper.begin_forward = using.partial(flashinfer.fast_decode_plan, wrapper)
        assert wrapper.begin_forward.func == flashinfer.fast_decode_plan and isinstance(wrapper.begin_forward, functools.partial)
        assert using.partial(max, 3)(4) == 4
        wrapper.begin_forward(**LISTS, **SIZES)
        assert rec.planned(wrapper)["kv_indices"] is LISTS["indices"]
    assert using.partial is functools.partial


def test_a_replays_buffers_are_copied_behind_it(tmp_path, monkeypatch):
    engine.imported(monkeypatch)
    monkeypatch.setattr("shadowgraph.adapters.sglang.on_device", lambda value: True)  # as if they lay on a device
    with shadowgraph.torch.cpu_graphs(), sg.record(tmp_path / "steps.jsonl") as rec:
        served = engine.Engine()
        served.add()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            served.backend.buffers.cache_seqlens_int32.add_(0)
        served.step(graph=True)
        rec.is_due()  # another step is counted before this one is judged
        assert rec.steps == 0
        served.backend.buffers.cache_seqlens_int32[0] += 1  # what the graph reads is wrong, and was right when it was filled
        graph.replay()
        assert rec.steps == 1 and {f.id for f in rec.report.findings} == {"len.kv_extent"}
        assert '"step0"' in (tmp_path / "steps.jsonl").read_text()
        served.step(graph=True)
        served.step(graph=True)
        assert "no graph was replayed" in rec.skipped["replay"]
    with contextlib.suppress(RuntimeError):
        graph.replay()
    assert rec.steps == 1


def test_an_adapter_that_fails_before_or_behind_a_method_does_not_break_it(tmp_path):
    class Engine:
        def run(self):
            return "ran"

    def fails(*_):
        raise KeyError("of an adapter")

    with sg.record(tmp_path / "steps.jsonl") as rec:
        rec._hooks.wrap(Engine, "run", lambda *_: None, before=fails)
        assert Engine().run() == "ran" and "of an adapter" in rec.skipped["Engine.run"]
