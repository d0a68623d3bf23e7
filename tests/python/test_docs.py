"""The programs of docs/python.md print what the page says."""

import re
import subprocess
import sys

import pytest
from problems import ROOT

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n\nIt prints\n\n((?:    [^\n]*\n)+)", PAGE, re.DOTALL)


@pytest.mark.parametrize(("source", "printed"), PROGRAMS, ids=["check", "attention"])
def test_a_program_prints_what_the_page_says(source, printed):
    out = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert out == re.sub(r"^    ", "", printed, flags=re.MULTILINE)


def test_every_program_says_what_it_prints():
    assert PAGE.count("```python") == len(PROGRAMS)
