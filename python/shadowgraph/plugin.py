"""The entry point of vLLM and SGLang: SHADOWGRAPH_RECORD=FOLDER records each process of an engine.

SHADOWGRAPH_EVERY=N: only every Nth step, as shadowgraph.record has it.
"""

import os

_started: set[str] = set()  # folders


def start() -> None:
    """Returns at once where SHADOWGRAPH_RECORD is unset, and from the second call on. Raises nothing in the engine."""
    folder = os.environ.get("SHADOWGRAPH_RECORD")
    if not folder or folder in _started:
        return
    _started.add(folder)
    import atexit
    import sys

    try:
        from .recorder import Recorder

        os.makedirs(folder, exist_ok=True)
        every = os.environ.get("SHADOWGRAPH_EVERY")
        recorder = Recorder(os.path.join(folder, "steps-%p.jsonl"), every=int(every) if every else None)
        recorder.__enter__()
        atexit.register(lambda: print(f"shadowgraph: {recorder.summary()}", file=sys.stderr))
    except Exception as error:
        print(f"shadowgraph: nothing is recorded: {error}", file=sys.stderr)
