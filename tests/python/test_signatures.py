"""Drop-ins have upstream's signatures: names, order, kinds and defaults."""

import enum
import functools
import importlib
import inspect
import json

import pytest
from problems import ROOT

ENTRIES = json.loads((ROOT / "tests/data/python/signatures.json").read_text())
KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def found(module, name):
    return functools.reduce(getattr, name.split("."), importlib.import_module("shadowgraph." + module))


def text_of(default, module, text):
    """A default as its source has it: a name of the module, where it is one."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    if text is not None and text.isidentifier() and getattr(module, text, module) is default:
        return text
    return repr(default)


def signature(function, module, texts):
    """[(name, kind, default or None)], without the self of methods."""
    parameters = list(inspect.signature(function).parameters.values())
    if "." in function.__qualname__:
        parameters = parameters[1:]
    return [
        (p.name, KINDS[p.kind], None if p.default is p.empty else text_of(p.default, module, texts.get(p.name)))
        for p in parameters
    ]


@pytest.mark.parametrize("entry", [pytest.param(entry, id=f"{entry['module']}.{entry['name']}") for entry in ENTRIES])
def test_a_drop_in_has_the_signature_of_upstream(entry):
    function = found(entry["module"], entry["name"])
    wanted = [(p["name"], p["kind"], p.get("default")) for p in entry["parameters"]]
    texts = {name: default for name, _, default in wanted}
    module = importlib.import_module(function.__module__)
    assert signature(function, module, texts) == wanted


def test_there_are_fifty_signatures():
    assert len(ENTRIES) == 50


def test_a_wrong_signature_is_seen():
    def right(q, *, scale=None):
        pass

    wanted = [("q", "plain", None), ("scale", "keyword", "None")]
    right.__qualname__ = "right"
    assert signature(right, None, {}) == wanted
    for wrong in (lambda q, scale=None: 0, lambda q, *, scale: 0, lambda q, *, scale=1.0: 0, lambda k, *, scale=None: 0):
        wrong.__qualname__ = "wrong"
        assert signature(wrong, None, {}) != wanted
