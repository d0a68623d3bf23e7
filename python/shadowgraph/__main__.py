"""The program `shadowgraph`."""

import sys


def main(argv: list[str] | None = None) -> int:
    """Runs the whole command line and returns its exit code."""
    from . import _core

    sys.stdout.flush()
    return _core.main(["shadowgraph", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
