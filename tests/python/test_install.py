"""What docs/install.md and docs/dump.md say of the wheel, and what the wheel asks of a system."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from problems import ROOT
from shadowgraph import _core

sys.path.insert(0, str(ROOT / "scripts"))
import portable  # noqa: E402

DUMP = (ROOT / "docs/dump.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
BESIDE = sorted(pathlib.Path(_core.__file__).parent.glob("*.so*"))


def indented(text):
    """The lines of the first indented block, without what depends on the machine: its line, and seconds."""
    block = re.search(r"(?:^(?:    .*)?\n)+", text[re.search(r"^    ", text, re.MULTILINE).start():], re.MULTILINE)[0]
    return comparable(re.sub(r"^    ", "", block, flags=re.MULTILINE))


def comparable(printed):
    return re.sub(r"\d+\.\d s$", "T s", re.sub(r"^seed .*\n\n?", "", printed, flags=re.MULTILINE), flags=re.MULTILINE).rstrip("\n")


def shell(command, folder):
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, timeout=120)


@pytest.fixture
def dumped(tmp_path):
    """The folder in which the page's program ran, and what it printed."""
    source = re.search(r"```python\n(.*?)```", DUMP, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=tmp_path)
    return tmp_path, done.stdout


def test_a_dump_is_judged_as_the_page_says(dumped):
    assert comparable(dumped[1]) == indented(DUMP.split("It prints,")[1])


def test_the_terminal_says_what_the_page_shows(dumped):
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", indented(DUMP.split("## From the terminal")[1]) + "\n", re.MULTILINE)
    assert len(commands) == 5
    for command, printed in commands:
        assert comparable(shell(command, dumped[0]).stdout) == printed.rstrip("\n"), command


def test_the_wheel_installs_as_the_page_says(tmp_path):
    (wheel,) = (ROOT / "build/dist").glob("*.whl")
    shutil.copy(wheel, tmp_path)
    done = shell(f"set -e\n{indented(INSTALL.split('## The wheel')[1])}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^clean: \d+ cases judged", done.stdout, re.MULTILINE)
    assert done.stdout.endswith(f"\n{importlib.metadata.version('shadowgraph')}\n")


def test_the_tag_is_what_the_symbols_ask_for():
    tag = re.search(r"Tag: cp310-abi3-(\w+)", importlib.metadata.distribution("shadowgraph").read_text("WHEEL"))[1]
    assert tag == portable.tag(BESIDE, at_most=(2, 34))


def test_openmps_library_is_the_only_one_beside_the_extension():
    assert portable.libraries(pathlib.Path(_core.__file__)) == {"libgomp.so.1"}
    assert [file.name for file in BESIDE] == ["_core.abi3.so", "libgomp.so.1"]


@pytest.mark.parametrize("first", ["from shadowgraph import _core", "ctypes.CDLL('libgomp.so.1')"])
def test_a_process_has_one_openmp(first):
    code = f"import ctypes; {first}; ctypes.CDLL('libgomp.so.1'); from shadowgraph import _core; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert len(set(re.findall(r"\S*libgomp\S*", maps))) == 1
