#!/usr/bin/env python3
"""Recall: which slips that nobody chose does `shadowgraph fuzz` find? Draws mutants of every room and operator, plants all in
one program behind a switch, and hunts each with the plain fuzzer, then with the backend that it concerns, for a fixed
processor time of one thread. On all cores, and resumable: what was judged stays in the folder's ledger. docs/mutation.md.
Exit: 0 enough were found, 1 too few, 2 the program does not build, 3 the folder is another hunt's, 130 interrupted."""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading

import schemata
from fuzzer import Fuzzer, Stopped
from hunt import ROOT, VERSION, Trouble, report_of
from ledger import Ledger, Refused

ROOMS = ("backends", "launch", "runtime", "kernels", "graph")
ENOUGH = {"plain": 0.90, "aimed": 0.95}
VERDICTS = ("found", "missed", "inert", "never acted")

# Who is aimed at, by the beginning of the file, the most likely first: the first row that fits.
AIMS = (
    ("src/kernels/recurrent", "kernels gdn mamba2"), ("src/kernels/sparse", "kernels dsa deepseek_v4"),
    ("src/kernels", "kernels flashattention"),
    ("src/backends/paged/flash_attention", "flashattention"), ("src/backends/paged/trtllm_mha", "trtllm_mha"),
    ("src/backends/paged/trtllm_mla", "trtllm_mla"), ("src/backends/paged/flash_mla", "flashmla"),
    ("src/backends/paged/cutlass_mla", "cutlass_mla"), ("src/backends/paged/cutedsl_mla", "cutedsl_mla"),
    ("src/backends/paged/dual_chunk", "dual_chunk"), ("src/backends/paged/ascend", "ascend"),
    ("src/backends/paged/mla_backend", "flashmla trtllm_mla"), ("src/backends/paged/", "trtllm_mha ascend"),
    ("src/backends/lists/flashinfer_mla", "flashinfer_mla"), ("src/backends/lists/flashinfer", "flashinfer flashinfer_mla"),
    ("src/backends/lists/triton", "triton"), ("src/backends/lists/aiter", "aiter"),
    ("src/backends/recurrent/mamba2", "mamba2"), ("src/backends/recurrent", "gdn mamba2 ascend_gdn"),
    ("src/backends/sparse/dsa", "dsa"), ("src/backends/sparse/deepseek_v4_hip", "deepseek_v4_hip"),
    ("src/backends/sparse/deepseek_v4", "deepseek_v4 deepseek_v4_hip"),
    ("src/backends/compose/hybrid_linear", "flashattention_gdn triton_kda"),
    ("src/backends/compose/hybrid", "trtllm_mha_flashattention flashinfer_flashattention_verify"),
    ("src/backends/compose/multi_step", "flashattention_multi_step flashinfer_multi_step"),
    ("src/backends/compose", "flashattention_two_batch flashinfer_two_batch gdn_two_batch"),
    ("src/backends/fill/csr", "flashinfer triton aiter"), ("src/backends/fill/packed", "flashinfer"),
    ("src/backends/fill", "flashattention flashinfer trtllm_mha"),
    ("src/backends", "flashattention flashinfer"), ("src/launch/ascend", "ascend"),
    ("src/launch/attention", "flashattention aiter"), ("src/launch/block", "deepseek_v4"),
    ("src/launch/compress", "deepseek_v4"), ("src/launch/gather_latents", "flashattention"), ("src/launch/gather_rows", "dsa"),
    ("src/launch/index", "dsa deepseek_v4"), ("src/launch/mla", "flashmla"), ("src/launch/rec", "gdn mamba2"),
    ("src/launch/state", "mamba2 gdn"), ("src/launch/scale", "dual_chunk"), ("src/launch/sparse", "dsa deepseek_v4_hip"),
    ("src/launch/tile", "flashinfer"), ("src/launch/partial", "flashinfer flashattention"), ("src/launch/triton", "triton"),
    ("src/launch/v4", "deepseek_v4"), ("src/launch/counters", "trtllm_mha"), ("src/launch/row_numbers", "trtllm_mha dsa"),
    ("src/launch", "flashattention flashmla"), ("src/runtime/state", "mamba2 gdn"),
    ("src/runtime/scheduler_states", "mamba2 gdn"), ("src/runtime", "flashattention flashinfer"),
    ("src/graph", "flashattention flashinfer mamba2"),
)  # fmt: skip


def aims_of(file):
    return next(names for begin, names in AIMS if file.startswith(begin)).split()


class Equivalent:
    """Slips that change nothing, with the reason: known by their line's text, so that they stay when lines move."""

    def __init__(self, path=ROOT / "tests/mutants/equivalent.json"):
        self.reasons = {self.key(e): e["why"] for e in json.loads(path.read_text())} if path.is_file() else {}

    @staticmethod
    def key(e):
        return tuple(e[name] for name in ("file", "text", "was", "becomes"))

    def why(self, mutant):
        return self.reasons.get(self.key(mutant))


class Reached:
    """Whose places a hunt runs: without a mutant the same as with one, until it acts. One run says it of all of them."""

    def __init__(self, fuzzer):
        self.fuzzer, self.lock, self.locks, self.known = fuzzer, threading.Lock(), {}, {}

    def by(self, backend):
        with self.lock:
            lock = self.locks.setdefault(backend, threading.Lock())
        with lock:
            if backend not in self.known:
                found, self.known[backend] = self.fuzzer.reached(backend)
                if found:
                    raise Trouble(f"without any mutant the program finds {found}")
            return self.known[backend]


def judge(fuzzer, reached, mutant, aims):
    """(verdict, by or why, seconds): found by the plain hunt, else by one that is aimed; else what the runs say of it."""
    runs = {}
    for backend in (None, *aims_of(mutant["file"])[:aims]):
        if mutant["switch"] not in reached.by(backend):
            continue
        run = fuzzer.hunt(mutant["switch"], backend)
        if run.found:
            how = f"aimed at {backend}" if backend else "plain"
            return "found", f"{how}: {run.found}", run.seconds
        runs[backend] = run
    seconds = sum(run.seconds for run in runs.values())
    if not any(run.acted for run in runs.values()):
        ran = any(run.ran for run in runs.values())
        return "never acted", "its place was run, and never gave another value" if ran else "its place was never run", seconds
    said = dict(fuzzer.verdict(mutant["switch"], backend) for backend in runs if backend != "kernels")
    if "inert" in said and not {"missed", "found"} & {*said}:
        return "inert", "it acted, and nothing that anything reads was changed", seconds
    return "missed", mutant["slip"] + (f" ({said['missed']})" if "missed" in said else ""), seconds


class Hunt:
    """Workers, one a core, each with a mutant of its own."""

    def __init__(self, args, plan, say):
        self.args, self.plan, self.say = args, plan, say
        self.program = args.folder / "shadowgraph"
        self.mutants = plan["mutants"]
        self.numbers = [i for i, m in enumerate(self.mutants) if m["id"].startswith(tuple(args.only or ("",)))]
        self.stop, self.lock, self.done, self.trouble = threading.Event(), threading.Lock(), 0, []
        self.reached = Reached(Fuzzer(self.program, args.seconds, self.stop))

    def ledger(self):
        text = json.dumps(self.plan, sort_keys=True).encode()
        options = {"verb": "recall", "version": VERSION, "mutants": hashlib.sha256(text).hexdigest(), "seconds": str(self.args.seconds),
                   "aims": str(self.args.aims)}  # fmt: skip
        return Ledger(self.args.ledger or self.args.folder / "ledger", {
            "options": options, "cases": len(self.mutants), "range": 1, "most_of_a_law": 0,
            "stale_seconds": self.args.stale_seconds, "case_seconds": 600, "corpus": [],
        })  # fmt: skip

    def work(self):
        ledger, fuzzer = self.ledger(), self.reached.fuzzer
        wanted = set(self.numbers)
        with contextlib.closing(ledger.claims(lambda number: number in wanted and not self.stop.is_set())) as numbers:
            for number in numbers:
                mutant = self.mutants[number]
                verdict, why, seconds = judge(fuzzer, self.reached, mutant, self.args.aims)
                fuzz = f"{self.program.name} fuzz --seed 1 --threads 1 --seconds {self.args.seconds:g}"
                reproduce = f"SHADOWGRAPH_MUTANT={mutant['switch']} {fuzz}"
                report = report_of(mutant, verdict, why, 1, reproduce, "a finding")
                report["faults"][0]["seconds"] = round(seconds, 2)
                ledger.publish(number, json.dumps(report, indent=2) + "\n")
                with self.lock:
                    self.done += 1
                    self.say(f"[{self.done}/{self.left}] {mutant['id']:28} {seconds:6.1f} s  {verdict}: {why}")

    def run(self, jobs):
        self.left = len(set(self.ledger().undone()) & set(self.numbers))
        threads = [threading.Thread(target=self.guarded) for _ in range(jobs if self.left else 0)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
        except KeyboardInterrupt:
            self.stop.set()
            for thread in threads:
                thread.join()
            raise
        if self.trouble:
            raise self.trouble[0]

    def guarded(self):
        try:
            self.work()
        except Stopped:
            pass
        except Exception as error:  # told by the main thread
            self.trouble.append(error)
            self.stop.set()

    def rows(self):
        """(mutant, row of its report) of all that are judged; `said` is what a missed one changed."""
        ledger = self.ledger()
        for number in self.numbers:
            path = ledger.done_of(number)
            if path.is_file():
                report = json.loads(path.read_text())
                said = [finding["got"].removeprefix("none: ") for finding in report["findings"]]
                yield self.mutants[number], {**report["faults"][0], "said": (said or [self.mutants[number]["slip"]])[0]}


def tallied(rows, equivalent):
    """Counts by (room, operator): those that change something, and how many of them each hunt finds."""
    counts = collections.defaultdict(collections.Counter)
    for mutant, row in rows:
        room, operator, _ = mutant["id"].split(".")
        verdict = "equivalent" if equivalent.why(mutant) and row["verdict"] != "found" else row["verdict"]
        plain = verdict == "found" and row["by"][0].startswith("plain")
        for key in ((room, operator), (room, ""), ("", operator), ("", "")):
            counts[key][verdict] += 1
            counts[key]["plain"] += plain
            counts[key]["hunted"] += verdict in ("found", "missed")
    return counts


def cell(count):
    return f"{count['plain']}+{count['found'] - count['plain']}/{count['hunted']}" if count["hunted"] else "-"


def table(counts):
    """Rows are operators, columns rooms; a cell: found plainly + found when aimed / those that act."""
    rooms = [room for room in ROOMS if (room, "") in counts]
    lines = ["".join(f"{name:>13}" for name in ("plain+aimed", *rooms, "together"))]
    for operator in sorted({o for _, o in counts if o}) + [""]:
        cells = [cell(counts[key]) if key in counts else "" for key in (*((room, operator) for room in rooms), ("", operator))]
        lines.append("".join(f"{text:>13}" for text in (operator or "together", *cells)))
    return "\n".join(lines)


def shares(counts):
    whole = counts[("", "")]
    return {"plain": whole["plain"] / max(1, whole["hunted"]), "aimed": whole["found"] / max(1, whole["hunted"])}


def tell(rows, equivalent, out):
    rows = list(rows)
    counts = tallied(rows, equivalent)
    print(table(counts), file=out)
    for verdict in VERDICTS[1:]:
        of_it = [(m, r) for m, r in rows if r["verdict"] == verdict]
        print(f"\n{verdict}: {len(of_it)}" if of_it else "", file=out)
        for mutant, row in of_it:
            reason = equivalent.why(mutant)
            print(f"  {mutant['id']:28} {row['said']}{f'  [equivalent: {reason}]' if reason else ''}", file=out)
    seconds = sorted(r["seconds"] for _, r in rows if r["verdict"] == "found")
    share, whole = shares(counts), counts[("", "")]
    others = ", ".join(f"{whole[v]} {v}" for v in ("inert", "equivalent", "never acted") if whole[v])
    print(f"{len(rows)} mutants judged, {whole['hunted']} act{': ' if others else ''}{others}; found {share['plain']:.1%} plainly, "
          f"{share['aimed']:.1%} with those that were aimed at; median {seconds[len(seconds) // 2] if seconds else 0:.1f} s", file=out)  # fmt: skip
    return share


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=400, metavar="N", help="how many are drawn (default 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="processor time of each hunt (default 30)")
    parser.add_argument("--aims", type=int, default=3, metavar="N", help="aim at so many backends, one after the other (default 3)")
    parser.add_argument("--room", action="append", choices=ROOMS, help="only of this room; may be given more than once")
    parser.add_argument("--only", action="append", metavar="PREFIX", help="hunt only those whose id begins so, as runtime.bound")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/recall",
                        help="the program, its plan, the ledger; copied to another machine with tests/mutants, it hunts there "
                        "without sources, compiler or network")  # fmt: skip
    parser.add_argument("--ledger", type=pathlib.Path, metavar="DIR", help="of this hunt; default the folder's own")
    parser.add_argument("--stale-seconds", type=float, default=60, metavar="S", help="a worker that is silent for so long is lost")
    parser.add_argument("--build-only", action="store_true", help="draw, plant and build, and hunt another time")
    parser.add_argument("--table", action="store_true", help="only show what the ledger has")
    return parser.parse_args()


def main():
    args = arguments()
    args.folder = args.folder.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def say(text):
        print(f"recall: {text}", file=sys.stderr, flush=True)

    try:
        plan = schemata.prepare(args.folder, args.mutants, args.seed, args.room or ROOMS, args.jobs, say)
        if args.build_only:
            return 0
        hunt = Hunt(args, plan, say)
        if not args.table:
            hunt.run(args.jobs)
        share = tell(hunt.rows(), Equivalent(), sys.stdout)
        return 0 if all(share[kind] >= ENOUGH[kind] for kind in ENOUGH) else 1
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        return 130
    except Trouble as trouble:
        say(str(trouble))
        return 2
    except Refused as refused:
        say(str(refused))
        return 3


if __name__ == "__main__":
    sys.exit(main())
