#!/usr/bin/env python3
"""The build targets that hold the tests which a regular expression of `ctest -R` names, one a line.

Usage: test_targets.py REGEX; prints `all` if a test of no single target may be meant.
"""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
MACRO = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE)
# Programs that every preset has stand at the beginning of a line; others depend on options.
PROGRAM = re.compile(r"^sg_tests\((\w+)", re.MULTILINE)
# The names of a folder's tests begin with this (tests/CMakeLists.txt).
BEGINNING = {"upstream": "upstream."}
PREFIX = re.compile(r"^\s*INSTANTIATE_\w+\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE)


def names_of(folder: pathlib.Path) -> list[str]:
    """Names of a folder's tests, without the values of their parameters."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*_test.cc")))
    prefixes: dict[str, list[str]] = {}
    for prefix, suite in PREFIX.findall(text):
        prefixes.setdefault(suite, []).append(prefix + "/")
    beginning = BEGINNING.get(folder.name, "")
    return [f"{beginning}{prefix}{suite}.{name}" for suite, name in MACRO.findall(text)
            for prefix in prefixes.get(suite, [""])]


def targets_of(regex: str) -> list[str]:
    is_meant = re.compile(regex).search
    folders = [folder.name for folder in sorted(TESTS.iterdir())
               if folder.is_dir() and any(map(is_meant, names_of(folder)))]
    if not set(folders) <= set(PROGRAM.findall((TESTS / "CMakeLists.txt").read_text(encoding="utf-8"))):
        return ["all"]
    found = [f"{folder}_tests" for folder in folders]
    found += [path.stem for path in sorted((TESTS / "fuzz").glob("fuzz_*.cc"))
              if is_meant(path.stem) and not path.stem.endswith("_test")]
    if any(is_meant(f"tools.{path.stem.removesuffix('_test')}") for path in (TESTS / "tools").glob("*_test.py")):
        found.append("shadowgraph_cli")
    # Tests of packages, symbols, scripts and README belong to no single target.
    return found if found else ["all"]


if __name__ == "__main__":
    print("\n".join(targets_of(sys.argv[1])))
