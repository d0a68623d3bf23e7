"""Drop-ins under upstream's names."""

import importlib
import importlib.util
import sys
import types

import pytest

import shadowgraph as sg
from shadowgraph.stand_ins import PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_of_a_package_is_found_and_gone_afterwards(package):
    before = dict(sys.modules)
    with sg.stand_in(package):
        for name, ours in PACKAGES[package].items():
            assert importlib.import_module(name) is importlib.import_module("shadowgraph." + ours)
            parent, _, part = name.rpartition(".")
            assert not parent or parent in PACKAGES or getattr(sys.modules[parent], part) is sys.modules[name]
    ours = {n: m for n, m in sys.modules.items() if not n.startswith("shadowgraph")}
    assert ours == {n: m for n, m in before.items() if not n.startswith("shadowgraph")}

def test_submodules_are_real_ones():
    with sg.stand_in("flashinfer"):
        import flashinfer
        from flashinfer.cascade import merge_state

        assert flashinfer.decode.fast_decode_plan is flashinfer.fast_decode_plan
        assert flashinfer.merge_state is merge_state

def test_code_that_asks_whether_a_package_is_there_is_answered():
    with sg.stand_in(*PACKAGES):
        assert all(importlib.util.find_spec(name) is not None for package in PACKAGES for name in (package, *PACKAGES[package]))
        assert importlib.util.find_spec("vllm.v1").submodule_search_locations == []
        for name in ("flashinfer", "flash_attn", "flash_attn_3"):
            assert importlib.import_module(name).__version__[0].isdigit()


def test_what_was_imported_before_comes_back():
    real, part = types.ModuleType("flashinfer"), types.ModuleType("flashinfer.decode")
    sys.modules |= {"flashinfer": real, "flashinfer.decode": part}
    try:
        with pytest.raises(KeyError), sg.stand_in("flashinfer"):
            assert sys.modules["flashinfer"] is not real and sys.modules["flashinfer.decode"] is not part
            raise KeyError
        assert sys.modules["flashinfer"] is real and sys.modules["flashinfer.decode"] is part
        assert "flashinfer.page" not in sys.modules
    finally:
        del sys.modules["flashinfer"], sys.modules["flashinfer.decode"]

def test_an_unknown_package_is_named():
    with pytest.raises(ValueError, match="stand_in: 'flashinfre' is none of flashinfer, flash_attn"):
        with sg.stand_in("flashinfre"):
            pass
