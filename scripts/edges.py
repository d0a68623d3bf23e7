#!/usr/bin/env python3
"""Lists the sizes at which the code goes another way. Usage: edges.py [--write] [ROOT]; exit 1 if anything is wrong.

A constant of 8 or more, or a number that a size is compared with or divided by, has beside it (on its line, or on one of
its own before) what it is a size of, "// edge: keys, head_dim", or why nothing changes there, "// no edge: bytes of a line".
src/core/edges.inc is the list of all; --write writes it. Axes: the enumerators of src/core/edges.h.
"""

import ast
import pathlib
import re
import sys

from common import source_files, without_comments_and_strings

LIST, AXES = "src/core/edges.inc", "src/core/edges.h"
ROOMS = ("src/kernels/", "src/launch/", "src/backends/", "src/runtime/")
LANES = "src/kernels/simd/"  # loops over the lanes of a vector
LEAST = 8
HEAD = """// Every size at which the code goes another way, as `scripts/edges.py --write` finds it beside its definition:
// SG_EDGE(file, axis, size).
"""

NOTE = re.compile(r"//+ (?P<no>no )?edge: (?P<what>[^;\n]+)")
CONSTANT = re.compile(r"\bconstexpr\s+(?:static\s+)?(?:u?int\d*(?:_t)?|u?int\d+_t|size_t|long|unsigned)\s+([^;(]*=[^;]*)(?:;|$)")
ONE = re.compile(r"(\w+)(\[\d*\])?\s*=\s*(\{[^}]*\}|(?:\{[^}]*\}|\([^()]*\)|[^,{(])+)")
# A comparison's size, a divisor; bits of a byte are none.
LITERAL = re.compile(r" (?:<|>|<=|>=) (\d+)\b(?![.\w])|(?<![\w.])(\d+) (?:<|>|<=|>=) | [%/] (?!8\b)(\d+)\b(?![.\w])")


def value(text: str, known: dict) -> int | None:
    """Evaluates an expression of numbers and known constants."""
    text = re.sub(r"static_cast<[^<>]*>|\b(?:u?int\d+_t|size_t)\b(?=[{(])", "", text.replace("{", "(").replace("}", ")"))
    text = text.replace("sizeof(float)", "4").replace("/", "//")
    try:
        return _number(ast.parse(text.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError):
        return None


def _number(node: ast.expr, known: dict) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and known.get(node.id) is not None:
        return known[node.id]
    operators = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__,
                 ast.FloorDiv: int.__floordiv__, ast.LShift: int.__lshift__, ast.BitOr: int.__or__}
    if isinstance(node, ast.BinOp) and type(node.op) in operators:
        return operators[type(node.op)](_number(node.left, known), _number(node.right, known))
    raise ValueError


def constants(line: str) -> list[tuple[str, str]]:
    found = CONSTANT.search(line)
    return [(m[1], m[3]) for m in ONE.finditer(found[1])] if found else []


def sizes_of(text: str, known: dict) -> list[int]:
    """An initializer's numbers: one, or those of a list."""
    parts = text[1:-1].split(",") if text.startswith("{") else [text]
    return [n for n in (value(p, known) for p in parts) if n is not None]


def known_constants(texts: dict[str, str]) -> dict[str, dict]:
    """Gives each file its own constants, and those that one other file alone defines."""
    own: dict[str, dict] = {name: {} for name in texts}
    everywhere: dict = {}
    for _ in range(3):  # a constant may stand on another
        for name, text in texts.items():
            for constant, initializer in (c for line in text.splitlines() for c in constants(line)):
                number = value(initializer, {**everywhere, **own[name]})
                own[name][constant] = number
        everywhere = {}
        for found in own.values():
            for constant, number in found.items():
                everywhere[constant] = number if everywhere.get(constant, number) == number else None
    return {name: {**everywhere, **found} for name, found in own.items()}


class Edges:
    def __init__(self, root: pathlib.Path):
        files = source_files(root, (".h", ".cc", ".inl"))
        self.text = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in files}
        self.text = {n: t for n, t in self.text.items() if n.startswith(("src/", "include/"))}
        self.axes = re.findall(r"^  k(\w+)[,;]", self.text.get(AXES, ""), re.MULTILINE)
        self.rows: set[tuple[str, str, int]] = set()
        self.wrong: list[str] = []
        self.count = 0

    def read(self) -> None:
        code = {n: without_comments_and_strings(t) for n, t in self.text.items()}
        known = known_constants(code)
        for name, text in self.text.items():
            lines, coded = text.splitlines(), code[name].splitlines()
            for number, (line, said) in enumerate(zip(coded, lines)):
                if "constexpr" in line and line.endswith("="):
                    line, said = line + coded[number + 1], said + lines[number + 1]
                before = lines[number - 1].strip() if number else ""
                note = NOTE.search(said) or (NOTE.search(before) if before.startswith("//") else None)
                self.read_line(name, number + 1, line, note, known[name])

    def read_line(self, name: str, number: int, line: str, note: re.Match | None, known: dict) -> None:
        sizes = [n for _, text in constants(line) for n in sizes_of(text, known)]
        if "static_assert" not in line and "constexpr" not in line and not name.startswith(LANES):
            sizes += [int(next(g for g in m.groups() if g)) for m in LITERAL.finditer(line)]
        if not line.strip():
            return
        if note is None:
            if name.startswith(ROOMS) and any(n >= LEAST for n in sizes):
                self.wrong.append(f"{name}:{number}: {line.strip()}: an edge of what, or why none?")
            return
        self.count += 1
        if note["no"]:
            return
        for axis in re.split(r", | and ", note["what"].strip()):
            enumerator = "".join(word.capitalize() for word in axis.split("_"))
            if enumerator not in self.axes:
                self.wrong.append(f"{name}:{number}: {axis} is no axis of {AXES}")
            self.rows |= {(name.split("/", 1)[1], enumerator, n) for n in sizes if n > 1}

    def list(self) -> str:
        return HEAD + "".join(f'SG_EDGE("{file}", k{axis}, {size})\n' for file, axis, size in sorted(self.rows))


def main(root: pathlib.Path, write: bool) -> int:
    edges = Edges(root)
    edges.read()
    target = root / LIST
    if write:
        target.write_text(edges.list(), encoding="utf-8")
    if not target.is_file() or target.read_text(encoding="utf-8") != edges.list():
        edges.wrong.append(f"{LIST} is not what the sources say: scripts/edges.py --write")
    print("\n".join(edges.wrong), end="\n" if edges.wrong else "")
    print(f"edges: {edges.count} constants, {len(edges.rows)} sizes, {len(edges.wrong)} against the rules")
    return 1 if edges.wrong or not edges.rows else 0


if __name__ == "__main__":
    rest = [a for a in sys.argv[1:] if a != "--write"]
    sys.exit(main(pathlib.Path(rest[0] if rest else ".").resolve(), "--write" in sys.argv))
