"""The entry point of vLLM and SGLang: SHADOWGRAPH_RECORD=FOLDER records each process of an engine.

SHADOWGRAPH_EVERY=N: only every Nth step.
"""

import os


def start() -> None:
    """Returns at once where SHADOWGRAPH_RECORD is unset. Raises nothing in the engine."""
    folder = os.environ.get("SHADOWGRAPH_RECORD")
    if not folder:
        return
    import atexit
    import sys

    try:
        from .recorder import Recorder

        os.makedirs(folder, exist_ok=True)
        recorder = Recorder(os.path.join(folder, "steps-%p.jsonl"), every=int(os.environ.get("SHADOWGRAPH_EVERY", "1")))
        recorder.__enter__()
        atexit.register(lambda: print(f"shadowgraph: {recorder.summary()}", file=sys.stderr))
    except Exception as error:
        print(f"shadowgraph: nothing is recorded: {error}", file=sys.stderr)
