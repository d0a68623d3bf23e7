#!/usr/bin/env python3
"""Checks what the repository cites. Usage: references.py [--write] [ROOT]; exit 1 if anything is wrong.

- Every id (fa.I-28, graph.G112, verification.E, K31) is a row of src/core/refs.inc, a program or a fault.
- Every row is cited somewhere, and every link (sglang#26512) names a repository of that file.
- Every page, and every file of a named folder, is in the tree; a page has the headings that are quoted behind its name.
- docs/references.md is the list; --write writes it.
"""

import pathlib
import re
import sys

from common import source_files

TABLE, PAGE = "src/core/refs.inc", "docs/references.md"
TEXT = (".h", ".cc", ".inl", ".inc", ".cu", ".cuh", ".py", ".sh", ".md", "/dev", "/.ci/run")
CITED = re.compile(r"\b(?:fa|fi)\.[A-Z]+-?\d+\w*|\bgraph\.G\d+\w*|\bverification\.[A-Z]\b|\bvectors\.[A-Z]+\b|\bK\d\d[a-z]?\b")
GRAPH_RULE = re.compile(r"\bG\d{2,3}(?=\b|_)")  # where graphs are the subject their prefix is left out
LINK = re.compile(r"\b([A-Za-z][\w.-]*)(?:#\d{2,}|@[0-9a-f]{7,8})\b")
NAMED_PAGE = re.compile(r"(?<![\w/.])((?:[\w.-]+/)*[\w.-]+\.md)\b")
NAMED_FILE = re.compile(r"(?<![\w/.])((?:src|include|tests|tools|scripts|bench|examples)/[\w./-]+\.(?:h|cc|inc|inl|py|sh|cuh?))\b")
QUOTED = re.compile(r'([\w/]+\.md),? ((?:"[^"]+"(?:, )?)+)')
OUTSIDE = re.compile(r"\bDESIG[N]\b|\bspe[c] (?:backends|graph|verif|faults)")
ROW = re.compile(r'^SG_REF\("([^"]+)", "(.*)"\)$', re.MULTILINE)


class Tree:
    def __init__(self, root: pathlib.Path):
        self.root = root
        files = source_files(root, TEXT[:-2])
        files += [p for p in (root / name.lstrip("/") for name in TEXT[-2:]) if p.is_file()]
        self.text = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in files}
        self.rows = ROW.findall(self.text.get(TABLE, ""))
        self.repositories = set(re.findall(r'^SG_REPOSITORY\("([^"]+)"', self.text.get(TABLE, ""), re.MULTILINE))
        self.known = {f"graph.{p}" for p in re.findall(r'\{"(G\d+)"', self.text_below("src/conformance/programs_"))}
        self.known |= set(re.findall(r'^ *\{"(K\w+)"', self.text_below("src/faults/"), re.MULTILINE))
        self.known |= {row[0] for row in self.rows}
        self.cited: set[str] = set()
        self.wrong: list[str] = []

    def text_below(self, folder: str) -> str:
        return "".join(text for name, text in self.text.items() if name.startswith(folder))

    def say(self, name: str, offset: int, text: str) -> None:
        self.wrong.append(f"{name}:{self.text[name].count(chr(10), 0, offset) + 1}: {text}")

    def check_ids(self, name: str, text: str) -> None:
        for match in CITED.finditer(text):
            self.check_id(name, match, match[0])
        if name.startswith(("src/graph/", "tests/graph/", "src/conformance/")):
            for match in GRAPH_RULE.finditer(text):
                self.check_id(name, match, f"graph.{match[0]}")
        if name.startswith(("src/core/laws.inc", "src/faults/")):
            for match in LINK.finditer(text):
                if match[1] not in self.repositories:
                    self.say(name, match.start(), f"{match[0]} is a link to no repository of {TABLE}")

    def check_id(self, name: str, match: re.Match, cited: str) -> None:
        self.cited.add(cited)
        if cited not in self.known:
            self.say(name, match.start(), f"{cited} is no row of {TABLE}, no program and no fault")

    def check_pages(self, name: str, text: str) -> None:
        here = (self.root / name).parent
        named = list(NAMED_PAGE.finditer(text))
        if not name.endswith((".py", ".sh")):
            named += [m for m in NAMED_FILE.finditer(text) if "NAME" not in m[1]]
        for match in named:
            if not any((folder / match[1]).is_file() for folder in (self.root, here, self.root / "docs")):
                self.say(name, match.start(), f"{match[1]} is not in the tree")
        for match in OUTSIDE.finditer(text):
            self.say(name, match.start(), f"{match[0]} is a document outside the repository")
        # A comment's sentence goes on behind the next line's mark.
        for match in QUOTED.finditer(re.sub(r"\n\s*(?://+|#)?[ \t]*", " ", text)):
            page = self.text.get(match[1], "")
            for heading in re.findall(r'"([^"]+)"', match[2]):
                if page and not re.search(rf"^(?:#+ |\*\*){re.escape(heading)}(?:\.|\W*$)", page, re.MULTILINE):
                    self.wrong.append(f'{name}: {match[1]} has no heading "{heading}"')

    def check(self) -> None:
        for name, text in self.text.items():
            if name not in (TABLE, PAGE):
                self.check_ids(name, text)
            self.check_pages(name, text)
        for row, _ in self.rows:
            if row not in self.cited:
                self.wrong.append(f"{TABLE}: nothing cites {row}")
        if self.text.get(PAGE, "") != self.page():
            self.wrong.append(f"{PAGE} is not the list of {TABLE}: python3 scripts/references.py --write")

    def page(self) -> str:
        head = ("# References\n\nWhat laws, fields, faults and comments cite by an id: `src/core/refs.inc`, written here by "
                "`scripts/references.py --write`.\n`shadowgraph explain ID` says who cites one. [Metadata](metadata.md) "
                "explains the words, [graphs](graphs.md) the rules that are programs.\n\n| id | what it says |\n|---|---|\n")
        return head + "".join(f"| `{row}` | {sentence} |\n" for row, sentence in self.rows)


def main(args: list[str]) -> int:
    write = "--write" in args
    roots = [a for a in args if a != "--write"]
    tree = Tree(pathlib.Path(roots[0] if roots else ".").resolve())
    if write:
        (tree.root / PAGE).write_text(tree.page(), encoding="utf-8")
        tree.text[PAGE] = tree.page()
    tree.check()
    print("\n".join(tree.wrong + [f"references: {len(tree.rows)} rows, {len(tree.cited)} ids in {len(tree.text)} files, "
                                  f"{len(tree.wrong)} wrong"]))
    return 1 if tree.wrong or not tree.rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
