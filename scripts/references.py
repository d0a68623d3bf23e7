#!/usr/bin/env python3
"""Checks what the repository cites. Usage: references.py [--write] [ROOT]; exit 1 if anything is wrong.

- Every id (fa.I-28, graph.G112, verification.E, K31) is a row of src/core/refs.inc, a program or a fault.
- Every row is cited somewhere, and every link (sglang#26512) names a repository of that file.
- A list that the file's head says is whole ("fa.I-01 to fa.I-98") has every number. A law, a field, a fault or a test cites each, a
  program or a test is named after each graph rule, a fault is each K; or the row says why nothing here can break it, and then
  none of these cites it.
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
ROW = re.compile(r'^SG_REF\("([^"]+)", "(.*)"\)$|^SG_REF_IMPOSSIBLE\("([^"]+)", "(.*)", "(.*)"\)$', re.MULTILINE)
WHOLE = re.compile(r"((?:fa|fi)\.I-|graph\.G|K)(\d+) to \1(\d+)")  # "fa.I-01 to fa.I-98"
PROGRAM, FAULT = re.compile(r'\{"(G\d+)"'), re.compile(r'^ *\{"(K\d+)(\w*)"', re.MULTILINE)
NAMED_TEST = re.compile(r"^TEST\w*\(\w+, (G\d+)_", re.MULTILINE)
LISTS = ("src/core/laws.inc", "src/backends/", "src/faults/")  # where laws, fields and faults say what they stand on


class Tree:
    def __init__(self, root: pathlib.Path):
        self.root = root
        files = source_files(root, TEXT[:-2])
        files += [p for p in (root / name.lstrip("/") for name in TEXT[-2:]) if p.is_file()]
        self.text = {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in files}
        found = ROW.findall(self.text.get(TABLE, ""))
        self.rows = [(a or b, sentence or other, because) for a, sentence, b, other, because in found]
        self.repositories = set(re.findall(r'^SG_REPOSITORY\("([^"]+)"', self.text.get(TABLE, ""), re.MULTILINE))
        programs = {f"graph.{p}" for p in PROGRAM.findall(self.text_below("src/conformance/programs_"))}
        faults = FAULT.findall(self.text_below("src/faults/"))
        self.known = programs | {number + letter for number, letter in faults} | {row[0] for row in self.rows}
        self.holds = programs | {number for number, _ in faults} | self.held()
        self.cited: set[str] = set()
        self.wrong: list[str] = []
        self.counts = ""

    def text_below(self, folder: str) -> str:
        return "".join(text for name, text in self.text.items() if name.startswith(folder))

    def held(self) -> set[str]:
        """What laws, fields, faults and tests cite, and the graph rules that tests are named after."""
        ids: set[str] = set()
        for name, text in self.text.items():
            if name.startswith(LISTS):
                text = " ".join(re.findall(r'"[^"\n]*"', re.sub(r"//.*", "", text)))
            elif not (name.startswith("tests/") and name.endswith((".cc", ".h"))):
                continue
            ids |= set(CITED.findall(text))
            ids |= {f"graph.{rule}" for rule in NAMED_TEST.findall(text)}
        return ids

    def whole_lists(self) -> list[tuple[str, list[str]]]:
        """("fa", ["fa.I-01", ...]) and so on."""
        head = self.text.get(TABLE, "").partition("\nSG_REF")[0]
        return [({"fa.I-": "fa", "fi.I-": "fi", "graph.G": "G"}.get(prefix, prefix),
                 [f"{prefix}{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)])
                for prefix, first, last in WHOLE.findall(head)]

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
        for row, _, because in self.rows:
            if row not in self.cited and not because:
                self.wrong.append(f"{TABLE}: nothing cites {row}")
            if because and row in self.holds:
                self.wrong.append(f"{TABLE}: {row} cannot be violated, and a law, field, fault or test cites it")
        self.check_whole()
        if self.text.get(PAGE, "") != self.page():
            self.wrong.append(f"{PAGE} is not the list of {TABLE}: python3 scripts/references.py --write")

    def check_whole(self) -> None:
        """Sets self.counts."""
        excused = {row for row, _, because in self.rows if because}
        uncited = 0
        for _, ids in self.whole_lists():
            for one in ids:
                if one not in self.known:
                    self.wrong.append(f"{TABLE}: {one} is missing")
                elif one not in self.holds and one not in excused:
                    self.wrong.append(f"{TABLE}: no law, field, fault, program or test holds {one}, and it has no reason")
                else:
                    continue
                uncited += 1
        counts = ", ".join(f"{name} {len(ids)}" for name, ids in self.whole_lists())
        self.counts = f"{counts}: {uncited} uncited, {len(excused)} cannot be violated here"

    def page(self) -> str:
        head = ("# References\n\nWhat laws, fields, faults and comments cite by an id: `src/core/refs.inc`, written here by "
                "`scripts/references.py --write`.\n`shadowgraph explain ID` says who cites one. [Metadata](metadata.md) "
                "explains the words, [graphs](graphs.md) the rules that are programs.\n\n| id | what it says |\n|---|---|\n")
        reason = " Cannot be violated here, because {}."
        return head + "".join(f"| `{row}` | {sentence}{reason.format(because) if because else ''} |\n"
                              for row, sentence, because in self.rows)


def main(args: list[str]) -> int:
    write = "--write" in args
    roots = [a for a in args if a != "--write"]
    tree = Tree(pathlib.Path(roots[0] if roots else ".").resolve())
    if write:
        (tree.root / PAGE).write_text(tree.page(), encoding="utf-8")
        tree.text[PAGE] = tree.page()
    tree.check()
    print("\n".join(tree.wrong + [f"references: {len(tree.rows)} rows, {len(tree.cited)} ids in {len(tree.text)} files, "
                                  f"{len(tree.wrong)} wrong", f"references: {tree.counts}"]))
    return 1 if tree.wrong or not tree.rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
