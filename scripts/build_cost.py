#!/usr/bin/env python3
"""Holds what the program costs to build. Usage: build_cost.py BUILD_FOLDER TARGET [LIMIT]; exit 1 if it is over the limit.

Seconds depend on the machine. What they are made of does not: the lines that the compiler reads for a target, headers
included, over all its files. The program reads 5.0 million in groups of files, 27.2 million file by file.
"""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

LIMIT = 5_800_000


def compilations(folder: str, target: str) -> list[list[str]]:
    """The compiler's command for each object of a target, and of what it is linked from."""
    printed = subprocess.run(["ninja", "-C", folder, "-t", "commands", target], capture_output=True, text=True, check=True)
    commands = (shlex.split(line) for line in printed.stdout.splitlines() if re.search(r"\s-c\s", line))
    return [words[1:] if "ccache" in words[0] else words for words in commands]


def lines_read(folder: str, command: list[str]) -> tuple[int, str]:
    """Lines that are left of a file once its headers are in, and the file."""
    file = command[command.index("-c") + 1]
    preprocess = [*command[: command.index("-MD")], "-E", "-P", file]
    done = subprocess.run(preprocess, cwd=folder, capture_output=True, check=True)
    return done.stdout.count(b"\n"), os.path.basename(file)


def main(folder: str, target: str, limit: int = LIMIT) -> int:
    commands = compilations(folder, target)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read = sorted(pool.map(lambda command: lines_read(folder, command), commands), reverse=True)
    total = sum(lines for lines, _ in read)
    if over := total > limit:
        for lines, file in read[:10]:
            print(f"{file}: {lines} lines")
    print(f"build cost: {target} reads {total} lines in {len(read)} files, limit {limit}")
    return 1 if over or not read else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3], *map(int, sys.argv[3:4])))
