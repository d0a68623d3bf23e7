#!/usr/bin/env python3
"""Checks how comments begin. Usage: comments.py [ROOT]; exit 1 if one breaks a rule.

A comment does not open with a verbless "Of ...": it names its subject. A source file without a header of its own
opens with a sentence that says what the file does; a test is named by its laws.
"""

import pathlib
import re
import sys

from common import source_files

VERBLESS = re.compile(r"^\s*//+ Of ")


def without_sentence(file: pathlib.Path, path: str, text: str, headers: set[str]) -> bool:
    """Has the file neither a header of its own nor an opening comment?"""
    if file.suffix != ".cc" or path.startswith("tests/") or text.startswith("// "):
        return False
    return file.with_suffix(".h").name not in headers


def main(root: pathlib.Path) -> int:
    files = source_files(root, (".h", ".cc", ".inl", ".inc", ".cu", ".cuh"))
    public = {f.name for f in files if f.suffix == ".h" and f.relative_to(root).parts[0] == "include"}
    wrong = 0
    for file in files:
        path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        own = public | {f.name for f in file.parent.glob("*.h")}
        if without_sentence(file, path, text, own):
            wrong += 1
            print(f"{path}:1: no header of its own, and no sentence that says what it does")
        lines, before = text.splitlines(), ""
        for number, line in enumerate(lines, 1):
            if VERBLESS.match(line) and not before.lstrip().startswith("//"):
                wrong += 1
                print(f"{path}:{number}: a comment opens with \"Of\": name its subject")
            before = line
    print(f"comments: {len(files)} files, {wrong} against the rules")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
