"""A program that has all drawn mutants, each behind a switch, so that a hunt needs no build: draws them by a seed, of every
room and operator alike, writes them into a copy of the sources, and builds it."""

import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import subprocess

from hunt import ROOT, Trouble
from run import copy_repository

HERE = pathlib.Path(__file__).resolve().parent
SHARES = {"backends": 30, "launch": 25, "runtime": 20, "kernels": 15, "graph": 10}
MOST_OF_A_FUNCTION = 6


def overlaps(one, other):
    return any(a < d and c < b or (a, b) == (c, d) for a, b, _ in one for c, d, _ in other)


class Draw:
    """Mutants of each room and operator, in an order by lot."""

    def __init__(self, every, count, seed):
        self.strata, self.chosen, self.dropped = collections.defaultdict(list), [], 0
        for number, mutant in enumerate(every):
            self.strata[mutant.id].append((number, mutant))
        for name in self.strata:
            random.Random(f"{seed} {name}").shuffle(self.strata[name])
        rooms = {name.split(".")[0] for name in self.strata}
        whole = sum(SHARES[room] for room in rooms)
        self.wanted = {room: round(count * SHARES[room] / whole) for room in rooms}
        self.fill()
        self.chosen.sort()
        self.switches = {number: switch for switch, (number, _) in enumerate(self.chosen, 1)}  # stay when others are dropped

    def fits(self, mutant):
        same = [m for _, m in self.chosen if m.file == mutant.file]
        return (not any(overlaps(m.slip.edits, mutant.slip.edits) for m in same)
                and sum(m.function == mutant.function for m in same) < MOST_OF_A_FUNCTION)  # fmt: skip

    def next_of(self, name):
        while self.strata[name]:
            number, mutant = self.strata[name].pop()
            if self.fits(mutant):
                return number, mutant
        return None

    def fill(self):
        """Round by round one of each operator, until each room has what it should have."""
        for room, wanted in sorted(self.wanted.items()):
            names = sorted(name for name in self.strata if name.startswith(room + "."))
            have = collections.Counter(m.id for _, m in self.chosen if m.room == room)
            while have.total() < wanted and any(self.strata[name] for name in names):
                name = min((n for n in names if self.strata[n]), key=have.__getitem__)
                if (taken := self.next_of(name)) is not None:
                    self.chosen.append(taken)
                    have[name] += 1

    def drop(self, places):
        """Those on these lines. How many?"""
        bad = [c for c in self.chosen if any((c[1].file, line) in places for line in lines_of(c[1]))]
        self.chosen = [c for c in self.chosen if c not in bad]
        self.dropped += len(bad)
        return len(bad)

    def mutants(self):
        """By their switches, in the order of the sources."""
        return {self.switches[number]: dataclasses.replace(m, id=f"{m.id}.{number}") for number, m in self.chosen}


def lines_of(mutant):
    source = (ROOT / mutant.file).read_bytes()
    return {source.count(b"\n", 0, at) + 1 for begin, end, _ in mutant.slip.edits for at in (begin, end)}


def planted(mutants):
    """The changed files; mutants by their switches."""
    edits = collections.defaultdict(list)
    for switch, mutant in mutants.items():
        for begin, end, text in mutant.slip.edits:
            text = re.sub(r"\bON\b", f"sg_is({switch})", re.sub(r"\bACTS\b", f"sg_acts({switch})", text))
            edits[mutant.file].append((begin, end, text))
    files = {}
    for name, of_file in edits.items():
        source = (ROOT / name).read_bytes()
        for begin, end, text in sorted(of_file, reverse=True):
            lost = source.count(b"\n", begin, end) - text.count("\n")  # lines stay where they are
            source = source[:begin] + text.encode() + b"\n" * max(0, lost) + source[end:]
        files[name] = source
    return files


def write(mutants, to):
    """The copy. Only the library is compiled otherwise: what judges it stays in the compiler's cache."""
    own = {f"src/core/{name}": (HERE / name).read_bytes() for name in ("mutant.h", "mutant.cc")}
    options = "\ntarget_compile_options(shadowgraph PRIVATE -O2 -w -include core/mutant.h)\n"
    cmake = {"src/CMakeLists.txt": (ROOT / "src/CMakeLists.txt").read_bytes() + options.encode()}
    once = {"tests/mutants/mutant.cc": b"// The library has it here.\n"}
    copy_repository(to, {**planted(mutants), **own, **cmake, **once})


def run_logged(log, *command, cwd):
    environment = {**os.environ, "CCACHE_BASEDIR": str(cwd), "CCACHE_NOHASHDIR": "1"}
    with log.open("w") as file:
        return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=cwd, env=environment).returncode == 0


def build(folder, draw, jobs, say):
    """Builds the copy without what does not compile, and returns the mutants that are left."""
    source, log = folder / "src", folder / "build.log"
    while True:
        mutants = draw.mutants()
        write(mutants, source)
        say(f"building {len(mutants)} mutants in one program, {draw.dropped} did not compile (log: {log})")
        if not run_logged(log, "cmake", "--preset", "release", cwd=source):
            raise Trouble(f"the copy is not configured: {log}")
        ninja = ("nice", "-n", "5", "ninja", "-C", "build/release", "-k0", f"-j{jobs}", "shadowgraph_cli", "mutant_verdict")
        if run_logged(log, *ninja, cwd=source):
            return mutants
        said = log.read_text(errors="replace").replace(f"{source}/", "").replace("../", "")
        errors = re.findall(r"(?m)^(\S+):(\d+):\d+: error", said)
        if not draw.drop({(file, int(line)) for file, line in errors}):
            raise Trouble(f"the copy does not build: {log}")


def plan_of(mutants, seed, rooms, drawn_from, dropped):
    """In an order by lot, so that a hunt that is half done is a fair sample."""
    rows = [{"id": m.id, "switch": switch, "file": m.file, "line": m.line, "text": m.text, "slip": m.words(),
             "was": m.slip.was, "becomes": m.slip.becomes} for switch, m in mutants.items()]  # fmt: skip
    random.Random(seed).shuffle(rows)
    return {"seed": seed, "rooms": list(rooms), "drawn_from": drawn_from, "dropped": dropped, "mutants": rows}


def prepare(folder, count, seed, rooms, jobs, say):
    """Draws, plants and builds, unless it is done. Returns the plan."""
    plan, built = folder / "plan.json", folder / "src/build/release"
    if not plan.is_file():
        try:
            import places  # clang's Python module: a hunt goes without
        except ImportError as error:
            raise Trouble(f"drawing needs the Debian package python3-clang-14, and its python3: {error}") from error
        folder.mkdir(parents=True, exist_ok=True)
        say("reading the sources")
        every = places.mutants(ROOT, rooms)
        draw = Draw(every, count + count // 20, seed)  # some do not compile
        mutants = build(folder, draw, jobs, say)
        for program in (built / "tools/shadowgraph", built / "tests/mutant_verdict"):
            shutil.copy2(program, folder / program.name)
        plan.write_text(json.dumps(plan_of(mutants, seed, rooms, len(every), draw.dropped), indent=1) + "\n")
    return json.loads(plan.read_text())
