"""Hunting mutants: what comes of each, as a line and as a report. How one is tried is run.py's."""

import collections
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'define SHADOWGRAPH_VERSION "(.*)"', (ROOT / "include/shadowgraph/version.h").read_text()).group(1)


class Trouble(Exception):
    """No verdict about a mutant."""


def is_drawn(mutant):
    return mutant["id"].startswith("generated.")


def judged(killer_of, mutant):
    """Verdict and reason: the test that failed, the slip, or why it was not tried. A drawn one that does not build has
    no verdict: nobody chose it."""
    try:
        killer = killer_of(mutant)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return "" if is_drawn(mutant) else "never acted", str(trouble).partition(":\n")[0]
    return ("found", killer) if killer else ("missed", mutant["slip"])


def report_of(mutant, verdict, why, seed, reproduce, expected="a failing test"):
    """A report/1 of one mutant: the same bytes whoever tried it."""
    tried = verdict in ("found", "missed")
    row = {
        "id": mutant["id"], "title": mutant["slip"], "refs": [mutant["file"]],
        "verdict": verdict, "planted": tried, "why_not": "" if tried else why,
        "detected": verdict == "found", "by": [why] if verdict == "found" else [],
        "cases": 1, "seconds": 0, "reproducer": reproduce,
    }  # fmt: skip
    findings = []
    if verdict == "missed":
        law = re.search(r'SG_LAW\("fault.missed", kError, "", "([^"]*)"', (ROOT / "src/core/laws.inc").read_text())
        findings.append({
            "id": "fault.missed", "title": law.group(1), "severity": "error", "case": mutant["id"],
            "where": {"field": mutant["id"]}, "expected": expected,
            "got": "none: " + why, "refs": [mutant["file"]], "reproduce": reproduce,
        })  # fmt: skip
    summary = {"cases": 1, "findings": len(findings), "waived": 0, "skipped": 0, "unknown_backends": 0, "left_out": 0}
    return {
        "schema": "shadowgraph.report/1", "verb": "mutants", "version": VERSION, "seed": seed, "isa": "",
        "threads": 0, "arith": "", "ok": verdict == "found", "interrupted": False, "bad_input": False,
        "summary": {**summary, "seconds": 0}, "files": [], "coverage": [], "faults": [row], "findings": findings,
    }  # fmt: skip


def hunt(mutants, numbers, killer_of, keep):
    """Tries mutants by their numbers, and keeps what came of each: keep(number, verdict, why) is false if something
    else came of it before. Returns how often each verdict came."""
    counts = collections.Counter()
    print(f"{'mutant':34} {'seconds':>7}  killed by", flush=True)
    for number in numbers:
        start, mutant = time.monotonic(), mutants[number]
        verdict, why = judged(killer_of, mutant)
        text = "SURVIVED: " + why if verdict == "missed" else why
        print(f"{mutant['id']:34} {time.monotonic() - start:7.1f}  {text}", flush=True)
        counts[verdict] += 1
        if not keep(number, verdict, why):
            print(f"{mutant['id']}: another hunt came to another verdict, which stays", flush=True)
            counts["differs"] += 1
    tried = counts["found"] + counts["missed"] + counts["never acted"]
    print(f"{counts['found']} of {tried} mutants killed")
    return counts
