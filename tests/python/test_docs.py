"""The programs of the pages about Python print what the pages say."""

import re
import subprocess
import sys

import pytest
from problems import ROOT

PAGE = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("builder.md", "engine.md", "kernel.md", "python.md"))
BLOCK = r"```python\n((?:(?!```).*\n)+)```\n\n"
PROGRAMS = re.findall(BLOCK + r"It prints\n\n((?:    .*\n)+)", PAGE)

IDS = ["property", "record", "plan", "graph", "contents", "matches", "opcheck", "drop-in", "check", "attention"]


@pytest.mark.parametrize(("source", "printed"), PROGRAMS, ids=IDS)
def test_a_program_prints_what_the_page_says(source, printed, tmp_path):
    out = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert out == re.sub(r"^    ", "", printed, flags=re.MULTILINE)


TESTS = re.findall(BLOCK + r"It fails, among other lines, with\n\n((?:    .*\n)+)", PAGE)


@pytest.mark.parametrize(("source", "printed"), TESTS, ids=["steps", "histories"])
def test_a_test_fails_as_the_page_says(source, printed, pytester):
    pytester.makepyfile(test_builder=source)
    run = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--hypothesis-seed=3")
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines_random([f"*{line.strip().replace('[', '[[]')}*" for line in printed.splitlines()])


def test_every_program_says_what_it_does():
    assert PAGE.count("```python") == len(PROGRAMS) + len(TESTS)
