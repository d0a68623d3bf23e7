"""The program `shadowgraph`."""

import sys


def main(argv: list[str] | None = None) -> int:
    """Runs the whole command line, and `doctor`, which only the wheel has, and returns its exit code."""
    from . import _core

    argv = sys.argv[1:] if argv is None else argv
    if argv == ["doctor"]:
        from .adapters import doctor

        print(doctor())
        return 0
    sys.stdout.flush()
    code = _core.main(["shadowgraph", *argv])
    if argv in ([], ["--help"], ["-h"], ["help"]):
        print("\nOf the wheel alone:\n  doctor     says which methods of the installed engines are hooked (docs/engine.md)")
    return code


if __name__ == "__main__":
    sys.exit(main())
