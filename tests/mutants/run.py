#!/usr/bin/env python3
"""Mutation test: every slip in mutants.json is planted alone in a copy of the repository, and the test programs must
see it. With --ledger any number of these, on any machines that see the folder, share the hunt, and `shadowgraph
merge-reports DIR` has its verdict; docs/mutation.md. Exit: 0 all killed, 1 one survived, 2 a mutant is stale or does
not build, or the tests fail without one, 3 the folder is another hunt's ledger."""

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import generate
from hunt import ROOT, VERSION, Trouble, hunt, report_of
from ledger import Ledger, Refused

# Who must see a mutant, quickest first, by the folder of its file: the first that fits.
PROGRAMS = (
    ("src/core/choices", ("core_tests",)),
    ("src/core/covering", ("core_tests",)),
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


def copy_repository(to, instead=None):
    """All files of the working tree that git would keep, and those of `instead`, by name; only what differs is written, so
    that builds are incremental. Returns a hash of them."""
    instead = instead or {}
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = sorted({name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()} | {*instead})
    tree = hashlib.sha256()
    for name in names:
        content, target = instead.get(name) or (ROOT / name).read_bytes(), to / name
        tree.update(f"{name}\0{len(content)}\0".encode() + content)
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for path in [p for p in to.rglob("*") if p.is_file()]:
        name = path.relative_to(to).as_posix()
        if name not in set(names) and not name.startswith("build/"):
            path.unlink()
    return tree.hexdigest()


def programs_for(mutant):
    return next(programs for where, programs in PROGRAMS if mutant["file"].startswith(where))


def mutated(text, mutant):
    if text.count(mutant["find"]) != 1:
        raise Trouble(f"stale: its text occurs {text.count(mutant['find'])} times in {mutant['file']}")
    return text.replace(mutant["find"], mutant["replace"])


class Copy:
    """A copy of the repository, and its build: of one process at a time."""

    def __init__(self, base, jobs):
        """Takes the first of base/0, base/1, ... that no process has: children hold the lock, too, so that one whose
        parent was killed is not built over."""
        for number in itertools.count():
            self.source, self.out = base.resolve() / str(number) / "src", base.resolve() / str(number) / "out"
            self.source.mkdir(parents=True, exist_ok=True)
            self.lock, self.jobs = (self.source.parent / "lock").open("w"), jobs
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        self.hash = copy_repository(self.source)

    def run(self, *command, **options):
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", pass_fds=(self.lock.fileno(),), **options
        )

    def build(self, program):
        done = self.run("ninja", "-C", self.out, f"-j{self.jobs}", program)
        if done.returncode != 0:
            raise Trouble("does not build:\n" + done.stdout[-3000:])

    def first_failure(self, programs):
        """The failure that the first failing program tells, or None."""
        for program in programs:
            self.build(program)
            try:
                done = self.run(
                    self.out / "tests" / program, "--gtest_brief=1", "--gtest_fail_fast",
                    timeout=SECONDS_A_PROGRAM, env=ENVIRONMENT,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"{program}: no end within {SECONDS_A_PROGRAM} s"
            if done.returncode == 0:
                continue
            failed = re.search(r"\[  FAILED  \] ([^\s,]+)", done.stdout)
            return f"{program}: {failed.group(1) if failed else f'exit {done.returncode}'}"
        return None

    def prepare(self, mutants):
        """Configures, and runs what these mutants need without any of them."""
        configured = self.run("cmake", "-S", self.source, "-B", self.out, *CONFIGURE)
        if configured.returncode != 0:
            raise Trouble("the copy is not configured:\n" + configured.stderr[-3000:])
        if failed := self.first_failure(dict.fromkeys(p for mutant in mutants for p in programs_for(mutant))):
            raise Trouble(f"without any mutant {failed} fails")

    def killer_of(self, mutant):
        """The test that kills the mutant, or None."""
        path = self.source / mutant["file"]
        original = path.read_text()
        path.write_text(mutated(original, mutant))
        try:
            return self.first_failure(programs_for(mutant))
        finally:
            path.write_text(original)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mutants",
                        help="copies of the sources and their builds, one for each hunt that runs; default build/mutants")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", metavar="PREFIX", action="append", help="only mutants whose id begins so; may be repeated")
    parser.add_argument("--generate", type=int, metavar="N", help="instead of mutants.json, so many drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", action="append", help="of --generate; default src/attn, src/launch, src/backends, src/graph")
    parser.add_argument("--ledger", type=pathlib.Path, metavar="DIR",
                        help="share the hunt with all that name this folder; may be killed and started again at any time")  # fmt: skip
    parser.add_argument("--stale-seconds", type=float, default=60, metavar="S",
                        help="with --ledger: who says nothing for so long is lost, and another one takes its mutant")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="only see that every mutant still fits the sources")
    args = parser.parse_args()
    args.folder = args.folder or list(FOLDERS)
    mutants = json.loads((ROOT / "tests/mutants/mutants.json").read_text())
    if args.generate:
        mutants = generate.generate(ROOT, args.folder, args.generate, args.seed)
    unknown = [p for p in args.only or () if not any(m["id"].startswith(p) for m in mutants)]
    if unknown or len({m["id"] for m in mutants}) != len(mutants):
        parser.error(f"no such mutant: {', '.join(unknown)}" if unknown else "two mutants have one id")
    return args, [m for m in mutants if m["id"].startswith(tuple(args.only or ("",)))]


def check(mutants):
    """Tells every stale mutant. Are there none?"""
    stale = 0
    for mutant in mutants:
        try:
            mutated((ROOT / mutant["file"]).read_text(), mutant)
        except Trouble as trouble:
            stale += 1
            print(f"{mutant['id']}: {trouble}", file=sys.stderr)
    return stale == 0


def open_ledger(args, mutants, sources):
    drawn = {"generate": str(args.generate), "seed": str(args.seed), "folder": " ".join(args.folder)}
    options = {"verb": "mutants", "version": VERSION, "sources": sources, "only": " ".join(args.only or ())}
    options |= drawn if args.generate else {}
    return Ledger(args.ledger, {
        "options": options, "cases": len(mutants), "range": 1, "most_of_a_law": 0,  # every survivor is listed
        "stale_seconds": args.stale_seconds, "case_seconds": SECONDS_A_PROGRAM, "corpus": [],
    })  # fmt: skip


def run(args, mutants):
    copy = Copy(args.build, args.jobs)
    again = f" --generate {args.generate} --seed {args.seed} --folder " + " --folder ".join(args.folder)
    command = f"python3 tests/mutants/run.py{again if args.generate else ''} --only "
    ledger = open_ledger(args, mutants, copy.hash) if args.ledger else None
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    fits = [m.get("needs", "") in flags for m in mutants]
    for mutant in (m for m, fit in zip(mutants, fits) if not fit):
        print(f"{mutant['id']:34} {'left to another machine' if ledger else 'skipped'}: this one has no {mutant['needs']}")
    numbers = [n for n in (ledger.undone() if ledger else range(len(mutants))) if fits[n]]
    if numbers:
        copy.prepare([mutants[n] for n in numbers])

    def keep(number, verdict, why):
        report = report_of(mutants[number], verdict, why, args.seed, command + mutants[number]["id"])
        return ledger is None or ledger.publish(number, json.dumps(report, indent=2) + "\n")

    with contextlib.closing(ledger.claims(fits.__getitem__) if ledger else (n for n in numbers)) as shared:
        counts = hunt(mutants, shared, copy.killer_of, keep)
    if ledger:
        print(f"{len(list(ledger.undone()))} of {len(mutants)} are left; shadowgraph merge-reports {args.ledger}")
    return 2 if counts["never acted"] else 1 if counts["missed"] or counts["differs"] else 0


def main():
    args, mutants = arguments()
    if not check(mutants):
        return 2
    if args.check:
        print(f"{len(mutants)} mutants fit the sources")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(args, mutants)
    except KeyboardInterrupt:
        return 130
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 2
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
