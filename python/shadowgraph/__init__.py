"""The CPU twin of GPU attention backends, and the checker of their metadata. docs/python.md begins with an example.

Importing this loads neither the extension nor torch nor NumPy: each name loads its own module when it is first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._core import (
        copy_kv as copy_kv,
        isa as isa,
        merge_states as merge_states,
        paged_attention as paged_attention,
        ragged_attention as ragged_attention,
        set_isa as set_isa,
        set_num_threads as set_num_threads,
        store_kv as store_kv,
    )
    from . import strategies as strategies, testing as testing
    from ._upstream import launcher as launcher
    from .batch import Batch as Batch
    from .cache import Cache as Cache
    from .guard import Guard as Guard
    from .judge import check as check
    from .matches import assert_matches as assert_matches, paged as paged, ragged as ragged
    from .opchecks import opcheck as opcheck
    from .recorder import Recorder as Recorder, record as record
    from .report import Finding as Finding, Report as Report, ShadowgraphError as ShadowgraphError
    from .shadows import shadowed as shadowed
    from .stand_ins import stand_in as stand_in

    __version__: str

_HOMES = {
    "assert_matches": "matches",
    "Batch": "batch",
    "Cache": "cache",
    "check": "judge",
    "copy_kv": "_core",
    "Finding": "report",
    "Guard": "guard",
    "isa": "_core",
    "launcher": "_upstream",
    "merge_states": "_core",
    "opcheck": "opchecks",
    "paged": "matches",
    "paged_attention": "_core",
    "ragged": "matches",
    "ragged_attention": "_core",
    "record": "recorder",
    "Recorder": "recorder",
    "Report": "report",
    "set_isa": "_core",
    "set_num_threads": "_core",
    "shadowed": "shadows",
    "ShadowgraphError": "report",
    "stand_in": "stand_ins",
    "store_kv": "_core",
}
_MODULES = ("strategies", "testing")
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    import importlib

    if name == "__version__":
        value = importlib.import_module("._core", __name__).version()
    elif name in _HOMES:
        value = getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module("." + name, __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "__version__"})
