#!/usr/bin/env python3
"""Cuts a small, varied part out of recorded engine traces, line by line and bit by bit.

Lines of a file are grouped by what they exercise; each round takes the shortest line left of every group that fits.
The same inputs and budget give the same files.

    scripts/cut_traces.py --budget 1000000 --out tests/data/traces flashattention.*.jsonl
"""

import argparse
import json
import pathlib


def group(line: dict) -> tuple:
    config, expect = line["config"], line["expect"]
    return (
        line["mode"],
        line["phase"],
        config.get("page_size", 1) > 1,
        config.get("topk", 0) > 1,
        config.get("window") is not None,
        "full_to_swa" in line["input"],
        len(line["input"]["seq_lens"]["data"]) > 1,
        "chunk" in config,
        config.get("seq_lens_semantics"),
        "exception" in expect,
        bool(line.get("triton_oob")),
        any(isinstance(v, dict) and "extent_exceeds_width" in v for v in expect.values()),
    )


def cut(path: pathlib.Path, budget: int, keep: set[str], rounds: int) -> list[str]:
    lines = path.read_text().splitlines()
    groups: dict[tuple, list[int]] = {}
    for i, text in enumerate(lines):
        line = json.loads(text)
        groups.setdefault((group(line), line["base"] in keep), []).append(i)
    for members in groups.values():
        members.sort(key=lambda i: len(lines[i]))
    rare_first = sorted(groups.values(), key=len)
    chosen: list[int] = []
    for turn in range(min(rounds, len(lines))):
        for members in rare_first:
            if turn < len(members) and len(lines[members[turn]]) < budget:
                chosen.append(members[turn])
                budget -= len(lines[members[turn]]) + 1
    return [lines[i] for i in sorted(chosen)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--budget", type=int, required=True, help="bytes of all files together")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=1 << 30, help="lines of a group, at the most")
    parser.add_argument("--keep", action="append", default=[], help="base of a line that is a group of its own")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    total = sum(path.stat().st_size for path in args.files)
    for path in args.files:  # half of it alike, half by size
        budget = args.budget // 2 // len(args.files) + args.budget // 2 * path.stat().st_size // total
        lines = cut(path, budget, set(args.keep), args.rounds)
        (args.out / path.name).write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
