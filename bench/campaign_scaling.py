#!/usr/bin/env python3
"""Measures a ledger's cost: the same cases by the same number of processes, once cut among them beforehand and once taken from a
ledger, in turn. Each process has one thread. A time is from the first start to the last end. Prints a Markdown table; a
ratio above 1 says that the ledger was faster."""

import argparse
import os
import statistics
import subprocess
import tempfile
import time


def seconds_of(program, options):
    """options: those of each process."""
    common = [program, "fuzz", "--threads", "1", "--quiet"]
    start = time.monotonic()
    processes = [subprocess.Popen([*common, *own], stdout=subprocess.DEVNULL) for own in options]
    for process in processes:
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(process.args)}: exit {process.returncode}")
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="shadowgraph")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8, os.cpu_count()])
    parser.add_argument("--cases", type=int, default=1500, help="of each process")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| processes | static parts, cases/s | ledger, cases/s | ledger / static, each round | median |\n|---|---|---|---|---|")
    for processes in args.processes:
        all_cases, static, shared = args.cases * processes, [], []
        for seed in map(str, range(1, args.rounds + 1)):
            parts = [["--seed", seed, "--first", str(i * args.cases), "--cases", str(args.cases)] for i in range(processes)]
            static.append(seconds_of(args.program, parts))
            with tempfile.TemporaryDirectory() as ledger:
                shared.append(seconds_of(args.program, [["--seed", seed, "--ledger", ledger, "--cases", str(all_cases)]] * processes))
        ratios = [alone / together for alone, together in zip(static, shared)]
        rates = [all_cases / statistics.median(times) for times in (static, shared)]
        each = " ".join(f"{r:.3f}" for r in ratios)
        print(f"| {processes} | {rates[0]:.0f} | {rates[1]:.0f} | {each} | {statistics.median(ratios):.3f} |", flush=True)


if __name__ == "__main__":
    main()
