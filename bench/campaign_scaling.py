#!/usr/bin/env python3
"""What a ledger costs: the same number of processes, once as static shards and once as the workers of a campaign, in turn.
Each has one thread and so many seconds; a rate is the sum of cases a second of all processes. Prints a Markdown table."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile


def start(program, seconds, seed, output, more):
    command = [program, "fuzz", "--seed", str(seed), "--seconds", str(seconds), "--threads", "1", "--quiet"]
    return subprocess.Popen([*command, "--format", "json", "--output", str(output), *more])


def rate(program, seconds, seed, options):
    """options: those of each process."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder) / f"{i}.json" for i in range(len(options))]
        processes = [start(program, seconds, seed, *pair) for pair in zip(outputs, options)]
        for process in processes:
            if process.wait() != 0:
                raise SystemExit(f"{' '.join(map(str, process.args))}: exit {process.returncode}")
        summaries = [json.loads(output.read_text())["summary"] for output in outputs]
    return sum((s["cases"] + s["skipped"]) / s["seconds"] for s in summaries)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="shadowgraph")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8, os.cpu_count()])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| processes | static shards, cases/s | ledger, cases/s | ledger / shards, each round | median |\n|---|---|---|---|---|")
    for processes in args.processes:
        shards, ledgers = [], []
        for seed in range(1, args.rounds + 1):
            shards.append(rate(args.program, args.seconds, seed, [["--shard", f"{i + 1}/{processes}"] for i in range(processes)]))
            with tempfile.TemporaryDirectory() as ledger:
                ledgers.append(rate(args.program, args.seconds, seed, [["--ledger", ledger]] * processes))
        ratios = [ledger / shard for ledger, shard in zip(ledgers, shards)]
        each = " ".join(f"{r:.3f}" for r in ratios)
        print(f"| {processes} | {statistics.median(shards):.0f} | {statistics.median(ledgers):.0f} | {each} | {statistics.median(ratios):.3f} |", flush=True)


if __name__ == "__main__":
    main()
