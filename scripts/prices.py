#!/usr/bin/env python3
"""Checks what an addition costs. Usage: prices.py [ROOT]; exit 1 where a thing costs more than LIMITS says.

twin      lines of the files of a backend that derives from a family's base
files     files that name such a backend, without those of backends that derive from it
recorded  lines of a file of readers or judges of recorded kernels, for each of them
law       lines of a function beside the functions of metadata_laws.inc
fault     lines of a row of the catalogue with its body, or of a function beside the rows
Besides, a recorded kernel has one row, and a kernel's call one visitor of each name in VISITORS.
What costs more for a good reason stands in DEARER, so that it cannot grow.
"""

import collections
import pathlib
import re
import sys

from common import source_files, without_comments_and_strings
from sizes import cpp_functions

FAMILIES = ("PagedBackend", "MlaBackend", "RecurrentBackend")
LIMITS = {"twin": 100, "files": 4, "recorded": 60, "law": 40, "fault": 15}
VISITORS = ("visit_args", "visit_members")  # the order of a call's members; their shapes
DEARER = {
    ("twin", "CuteDslMla"): (194, "ranks of context parallelism have lengths of their own"),
    ("twin", "FlashMla"): (176, "a schedule of parts, and the launches that follow it"),
    ("twin", "TrtllmMha"): (103, "its prefill kernel reads offsets of keys, too"),
    ("twin", "Mamba2"): (175, "chunks of a prefill"),
    ("twin", "Laws"): (155, "a buffer for each role that a trace may name"),
    ("twin", "FlashInferMla"): (145, "a planned launch of its own, and so no family"),
    ("files", "FlashMla"): (5, "a law judges its schedule"),
    ("recorded", "attention.cc"): (362, "seventeen kinds of dense calls have one judge"),
    ("recorded", "dual_chunk.cc"): (138, "three kinds of parts have one reader and one judge"),
    ("recorded", "flashinfer_parts.cc"): (115, "one case has five parts"),
    ("recorded", "indexer.cc"): (68, "four steps of one indexer share their pages"),
    ("recorded", "latents.cc"): (128, "three layouts of packed latents have one judge"),
    ("recorded", "recurrence.cc"): (134, "four families have one judge"),
    ("fault", "K27"): (21, "lengths, and the lists that they end"),
    ("fault", "K40"): (23, "the LSE's base changes where it is written and where it is read"),
    ("fault", "K59"): (24, "two lists of offsets"),
    ("fault", "K75"): (23, "a table is translated row by row"),
    ("fault", "K79"): (17, "a walk over a step's tokens"),
    ("fault", "DC5"): (19, "three parts of a chunk"),
    ("fault", "M09"): (18, "links of a tree"),
    ("fault", "M13"): (21, "a walk over runs of a chunk"),
    ("fault", "AcceptedOfTheLastRound"): (21, "a step is made anew"),
    ("fault", "Reallocated"): (19, "buffers move, with what they hold"),
    ("fault", "change_decays"): (20, "decays of a token or of a head"),
    ("fault", "chunk_of_part_tiles"): (19, "a list is cut anew"),
    ("fault", "from_the_top"): (17, "a mask is packed"),
    ("fault", "mask_bits_of_few_bits"): (19, "a mask is unpacked and packed"),
    ("fault", "merge_without_padding"): (21, "two kernels that merge"),
    ("fault", "store_before"): (17, "a kernel with a slip of its own"),
    ("fault", "store_whole_tiles"): (17, "a walk over tiles of queries"),
    ("fault", "values_before_window"): (22, "a walk over the keys before a window"),
}

_CLASS = re.compile(r"\bclass\s+(\w+)(?:\s+final)?\s*:\s*public\s+(\w+)[^;{]*\{")
_FAULT = re.compile(r'^ *\{"([A-Z]+\d+[a-z]?)"', re.MULTILINE)
_VISITOR = re.compile(r"\bvoid\s+(visit_\w+)\(\s*V\s*&\s*\w*,\s*(\w+)(?:<\w+>)?\s*&")


class Source:
    def __init__(self, root: pathlib.Path, file: pathlib.Path):
        self.path, self.text = file.relative_to(root), file.read_text(encoding="utf-8")
        self.code = without_comments_and_strings(self.text)
        self.lines = self.text.count("\n")

    def under(self, folder: str) -> bool:
        return self.path.as_posix().startswith(folder)


def _braced(code: str, start: int) -> tuple[int, int]:
    """From the brace at start: where its pair is, and how many lines they span."""
    depth = 0
    for i in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i, code.count("\n", start, i) + 1
    return len(code), code.count("\n", start) + 1


def twins(sources: list[Source]) -> list[tuple]:
    """(kind, name, cost, path) of backends that derive from a family's base, or stand in DEARER."""
    headers, bases = {}, {}
    for s in sources:
        if s.under("src/backends/") and s.path.suffix == ".h":
            for name, base in _CLASS.findall(s.code):
                headers[name], bases[name] = s.path, base

    def ancestors(name):
        while name := bases.get(name):
            yield name
    siblings = [n for n in headers if n not in FAMILIES and
                (("twin", n) in DEARER or set(ancestors(n)) & set(FAMILIES))]
    stems = {headers[n].stem for n in siblings}

    def is_own(s, name):
        stem = headers[name].stem
        return s.path.parent == headers[name].parent and (s.path.stem == stem or (
            s.path.stem.startswith(stem + "_") and s.path.stem not in stems))

    found = []
    for name in siblings:
        derived = [n for n in siblings if name in ancestors(n)]
        include = f'#include "{headers[name].relative_to("src").as_posix()}"'
        names = [s for s in sources if (include in s.text or re.search(rf"\b{name}\b", s.code)) and
                 not any(is_own(s, d) for d in derived)]
        found.append(("twin", name, sum(s.lines for s in sources if is_own(s, name)), headers[name]))
        found.append(("files", name, len(names), headers[name]))
    return found


def recorded(sources: list[Source]) -> tuple[list[tuple], list[str]]:
    """The files of readers and judges, and errors: kernels with two rows."""
    rows = [(s.path, m) for s in sources if s.path.suffix == ".inc"
            for m in re.findall(r'^SG_RECORDED_KIND\(("[^"]*", "[^"]*"), "[^"]*", (\w+)\)', s.text, re.MULTILINE)]
    readers = {reader for _, (_, reader) in rows}
    counts = collections.Counter(kind for _, (kind, _) in rows)
    errors = [f"{rows[0][0]}: {kind} has {n} rows" for kind, n in counts.items() if n > 1]
    found = []
    for s in sources:
        if s.path.suffix != ".cc" or "recorded" not in s.path.parts:
            continue
        own = [name for name, _, _ in cpp_functions(s.text) if name in readers or name == "judge_call"]
        if own:
            found.append(("recorded", s.path.name, -(-s.lines // len(own)), s.path))
    return found, errors


def laws(sources: list[Source]) -> list[tuple]:
    judges = {name for s in sources if s.path.suffix == ".inc"
              for name in re.findall(r'^SG_METADATA_LAW\("[^"]*", (\w+)\)', s.text, re.MULTILINE)}
    found = []
    for s in sources:
        functions = cpp_functions(s.text) if s.under("src/check/") and s.path.suffix == ".cc" else []
        if any(name in judges for name, _, _ in functions):
            found += [("law", name, size, f"{s.path}:{first}") for name, first, size in functions]
    return found


def faults(sources: list[Source]) -> list[tuple]:
    """Rows with their bodies; functions beside them, those of a struct under its name."""
    found = []
    for s in sources:
        rows = list(_FAULT.finditer(s.text)) if s.under("src/faults/") and s.path.suffix == ".cc" else []
        if not rows:
            continue
        for m in rows:
            line = s.text.count("\n", 0, m.start()) + 1
            found.append(("fault", m[1], _braced(s.code, s.text.index("{", m.start()))[1], f"{s.path}:{line}"))
        structs = [(m[1], s.code.count("\n", 0, m.start()) + 1, _braced(s.code, m.end() - 1)[1])
                   for m in re.finditer(r"\bstruct (\w+)[^;{}()]*\{", s.code)]
        for name, first, size in cpp_functions(s.text):
            owner = [n for n, begin, lines in structs if begin <= first < begin + lines]
            found.append(("fault", owner[0] if owner else name, size, f"{s.path}:{first}"))
    return found


def calls(sources: list[Source]) -> tuple[int, list[str]]:
    """How many calls of kernels there are, and errors: those with a second visitor."""
    visitors = collections.defaultdict(list)
    for s in sources:
        for m in _VISITOR.finditer(s.code):
            visitors[m[2]].append((m[1], f"{s.path}:{s.code.count(chr(10), 0, m.start()) + 1}"))
    errors, count = [], 0
    for call, all_of in visitors.items():
        is_call = any(name == "visit_members" or (name == "visit_args" and place.startswith("src/launch/"))
                      for name, place in all_of)
        count += is_call
        seen = set()
        for name, place in all_of if is_call else []:
            if name in seen or name not in VISITORS:
                errors.append(f"{place}: {name} is one more visitor of {call}")
            seen.add(name)
    return count, errors


def main(root: pathlib.Path, dearer: dict = DEARER) -> int:
    sources = [Source(root, p) for p in source_files(root, (".h", ".cc", ".inc", ".inl"))
               if p.relative_to(root).parts[0] in ("src", "include", "tools", "bench")]
    of_recorded, errors = recorded(sources)
    count, of_calls = calls(sources)
    errors += of_calls
    prices = [*twins(sources), *of_recorded, *laws(sources), *faults(sources)]
    for kind, name, cost, place in prices:
        limit = dearer.get((kind, name), (LIMITS[kind],))[0]
        if cost > limit:
            errors.append(f"{place}: {kind} {name} costs {cost}, limit {limit}")
    worst = collections.defaultdict(int)
    for kind, name, cost, _ in prices:
        worst[kind, name] = max(worst[kind, name], cost)
    errors += [f"scripts/prices.py: {kind} {name} stands in DEARER and costs {worst[kind, name]}"
               for kind, name in dearer if worst[kind, name] <= LIMITS[kind]]
    for kind, limit in LIMITS.items():
        cost, name = max(((cost, name) for (k, name), cost in worst.items() if k == kind), default=(0, "none"))
        some = sum(k == kind for k, _ in worst)
        print(f"{kind}: {some}, limit {limit}, the dearest {cost} ({name})")
        if not some:
            errors.append(f"{kind}: found none")
    print(f"call: {count}, one visitor of each name")
    print("\n".join([*errors, f"prices: {len(errors)} over the limit"]))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
