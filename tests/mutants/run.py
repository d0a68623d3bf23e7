#!/usr/bin/env python3
"""Mutation test: every slip in mutants.json is planted alone in a copy of the repository, and the test programs must
see it. Exit: 0 all killed, 1 one survived, 2 a mutant is stale or does not build, or the tests fail without one."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import generate

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Who must see a mutant, quickest first, by the folder of its file: the first that fits.
PROGRAMS = (
    ("src/core/choices", ("core_tests",)),
    ("src/core/shrink", ("core_tests",)),
    ("src/graph/", ("graph_tests", "exhaustive_tests", "conformance_tests", "check_tests")),
    ("src/report/", ("report_tests",)),
    ("src/campaign/", ("campaign_tests",)),
    ("bench/", ("bench_tests",)),
    ("src/launch/", ("launch_tests", "backends_tests", "check_tests")),
    ("src/backends/", ("backends_tests", "check_tests")),
    ("src/attn/visit", ("launch_tests", "backends_tests", "check_tests")),
    ("src/attn/", ("attn_tests", "check_tests", "kernels_tests", "fuzz_tests")),
    ("src/kernels/linear", ("kernels_tests",)),
    ("src/runtime/", ("runtime_tests",)),
    ("src/testing/", ("testing_tests",)),
    ("src/io/", ("io_tests", "check_tests")),
    ("src/c_api/", ("c_api_tests",)),
    ("src/check/", ("check_tests", "oracle_tests")),
    ("src/fuzz/history/fault_matrix", ("faults_tests",)),
    ("src/fuzz/kernel/", ("testing_tests",)),
    ("src/fuzz/call/generate", ("fuzz_tests", "testing_tests")),
    ("src/fuzz/", ("fuzz_tests",)),
    ("src/faults/", ("faults_tests",)),
    ("", ("attn_tests", "kernels_tests", "fuzz_tests")),
)
FOLDERS = ("src/attn", "src/launch", "src/backends", "src/graph")  # of which slips are generated
ENVIRONMENT = {**os.environ, "SHADOWGRAPH_DEVICE_CALLS": "3"}
CONFIGURE = (
    "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DSHADOWGRAPH_UNITY=OFF",
    "-DSHADOWGRAPH_BUILD_TESTS=ON",
)  # fmt: skip
SECONDS_A_PROGRAM = 600


class Trouble(Exception):
    """What is no verdict about a mutant."""


def copy_repository(to):
    """All files of the working tree that git would keep; only what differs is written, so that builds are incremental."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        content, target = (ROOT / name).read_bytes(), to / name
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for path in [p for p in to.rglob("*") if p.is_file()]:
        if path.relative_to(to).as_posix() not in names:
            path.unlink()


def programs_for(mutant):
    return next(programs for where, programs in PROGRAMS if mutant["file"].startswith(where))


def build(folder, program, jobs):
    done = subprocess.run(["ninja", "-C", folder, f"-j{jobs}", program], capture_output=True, text=True)
    if done.returncode != 0:
        raise Trouble("does not build:\n" + done.stdout[-3000:])


def first_failure(folder, programs, jobs):
    """What the first failing program says failed, or None."""
    for program in programs:
        build(folder, program, jobs)
        command = [folder / "tests" / program, "--gtest_brief=1", "--gtest_fail_fast"]
        limits = {"timeout": SECONDS_A_PROGRAM, "env": ENVIRONMENT}
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", **limits)
        except subprocess.TimeoutExpired:
            return f"{program}: no end within {SECONDS_A_PROGRAM} s"
        if done.returncode == 0:
            continue
        failed = re.search(r"\[  FAILED  \] ([^\s,]+)", done.stdout)
        return f"{program}: {failed.group(1) if failed else f'exit {done.returncode}'}"
    return None


def mutated(text, mutant):
    if text.count(mutant["find"]) != 1:
        raise Trouble(f"stale: its text occurs {text.count(mutant['find'])} times in {mutant['file']}")
    return text.replace(mutant["find"], mutant["replace"])


def try_mutant(source, folder, jobs, mutant):
    """The test that kills the mutant, or None."""
    path = source / mutant["file"]
    original = path.read_text()
    path.write_text(mutated(original, mutant))
    try:
        return first_failure(folder, programs_for(mutant), jobs)
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", metavar="PREFIX", action="append", help="only mutants whose id begins so; may be repeated")
    parser.add_argument("--generate", type=int, metavar="N", help="instead of mutants.json, so many drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", action="append", help="of --generate; default src/attn, src/launch, src/backends, src/graph")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th mutant; give each shard a --build")
    parser.add_argument("--check", action="store_true", help="only see that every mutant still fits the sources")
    args = parser.parse_args()
    mutants = json.loads((ROOT / "tests/mutants/mutants.json").read_text())
    if args.generate:
        mutants = generate.generate(ROOT, args.folder or FOLDERS, args.generate, args.seed)
    unknown = [p for p in args.only or () if not any(m["id"].startswith(p) for m in mutants)]
    if unknown or len({m["id"] for m in mutants}) != len(mutants):
        parser.error(f"no such mutant: {', '.join(unknown)}" if unknown else "two mutants have one id")
    mutants = [m for m in mutants if m["id"].startswith(tuple(args.only or ("",)))]

    if args.check:
        for mutant in mutants:
            mutated((ROOT / mutant["file"]).read_text(), mutant)
        print(f"{len(mutants)} mutants fit the sources")
        return 0
    shard, shards = map(int, args.shard.split("/"))
    mutants = mutants[shard::shards]
    unfit = [m for m in mutants if m.get("needs", "") not in pathlib.Path("/proc/cpuinfo").read_text()]
    for mutant in unfit:
        print(f"{mutant['id']:34} skipped: this machine has no {mutant['needs']}")
    mutants = [m for m in mutants if m not in unfit]

    source, folder = args.build.resolve() / "src", args.build.resolve() / "out"
    copy_repository(source)
    survivors, troubled, unbuilt = [], [], []
    try:
        for mutant in mutants:
            mutated((source / mutant["file"]).read_text(), mutant)  # stale ones are told before the long part
        subprocess.run(["cmake", "-S", source, "-B", folder, *CONFIGURE], check=True, stdout=subprocess.DEVNULL)
        needed = dict.fromkeys(program for mutant in mutants for program in programs_for(mutant))
        if failed := first_failure(folder, needed, args.jobs):
            raise Trouble(f"without any mutant {failed} fails")
    except Trouble as trouble:
        print(f"{mutant['id'] if 'stale' in str(trouble) else 'base'}: {trouble}", file=sys.stderr)
        return 2
    print(f"{'mutant':34} {'seconds':>7}  killed by", flush=True)
    for mutant in mutants:
        start = time.monotonic()
        try:
            killer = try_mutant(source, folder, args.jobs, mutant)
            if killer is None:
                survivors.append(mutant)
        except Trouble as trouble:
            killer = "does not build" if args.generate else str(trouble)
            (unbuilt if args.generate else troubled).append(mutant)
        print(f"{mutant['id']:34} {time.monotonic() - start:7.1f}  {killer or 'SURVIVED: ' + mutant['slip']}", flush=True)
    judged = len(mutants) - len(unbuilt)
    print(f"{judged - len(survivors) - len(troubled)} of {judged} mutants killed")
    return 2 if troubled else 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
