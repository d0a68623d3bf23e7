"""Small slips that nobody chose: one operator, constant or statement of a source changed at a time, drawn by a seed.
What they have in common with mutants.json is the form. Equivalent ones are among them: a survivor is looked at."""

import random
import re

# What a token may become. Only what stands in code, between spaces where the layout puts them.
SWAPS = (
    (r" < ", (" <= ", " >= ")), (r" <= ", (" < ",)), (r" > ", (" >= ", " <= ")), (r" >= ", (" > ",)),
    (r" == ", (" != ",)), (r" != ", (" == ",)), (r" \+ ", (" - ",)), (r" - ", (" + ",)), (r" \* ", (" / ",)),
    (r" / ", (" * ",)), (r" % ", (" / ",)), (r" && ", (" || ",)), (r" \|\| ", (" && ",)), (r" \+ 1\b", ("", " + 2")),
    (r" - 1\b", ("", " - 2")), (r" \+= ", (" -= ", " = ")), (r"\bstd::min\b", ("std::max",)),
    (r"\bstd::max\b", ("std::min",)), (r"\btrue\b", ("false",)), (r"\bfalse\b", ("true",)),
    (r"\bif \((?!constexpr)", ("if (!", )), (r"\(!", ("(",)), (r"\breturn \{\};", (";",)), (r"\bcontinue;", (";", "break;")),
    (r"(?<=[\[( ])0(?=[\]),;])", ("1",)), (r"(?<=[\[( ])1(?=[\]),;])", ("0", "2")),
)  # fmt: skip
# Calls whose whole statement may be left out.
STATEMENT = re.compile(r"^\s+(?:[\w.\[\]>-]+\([^;{}]*\)|[\w.\[\]>-]+ (?:=|\+=|\|=) [^;{}]*|(?:\+\+|--)[\w.\[\]>-]+);$")
NOT_CODE = re.compile(r'^\s*(//|#|template|namespace|using|static_assert|assert\(|inline constexpr std::string)|"')


def lines_of_code(text):
    """(number, line without its comment) of what runs: no comments, directives, declarations of names or texts."""
    for number, line in enumerate(text.split("\n")):
        if not NOT_CODE.search(line) and line.strip():
            yield number, line.split(" //")[0]


def changes(line):
    """Every other line that one slip makes of this one."""
    for pattern, others in SWAPS:
        for match in re.finditer(pattern, line):
            if pattern.startswith(r"\bif") and not line.rstrip().endswith((")", "{", ";")):
                continue  # its condition goes on in the next line
            for other in others:
                changed = line[: match.start()] + other + line[match.end() :]
                if other == "if (!":
                    changed = line[: match.start()] + negated(line[match.start() :])
                if changed and changed != line:
                    yield changed
    if STATEMENT.match(line):
        yield ";"


def negated(text):
    """if (c) rest -> if (!(c)) rest"""
    depth = 0
    for i, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == ")" and depth == 0:
            return "if (!(" + text[4:i] + "))" + text[i + 1 :]
    return ""


def in_context(lines, number):
    """The fewest lines around one that occur once."""
    text = "\n".join(lines)
    for around in range(40):
        first, last = max(0, number - around), number + around + 1
        if text.count("\n".join(lines[first:last])) == 1:
            return first, last
    return None


def mutants_of(name, text):
    lines = text.split("\n")
    for number, code in lines_of_code(text):
        place = in_context(lines, number)
        for changed in changes(code) if place else ():
            first, last = place
            changed_lines = [*lines[first:number], changed, *lines[number + 1 : last]]
            yield {
                "file": name, "find": "\n".join(lines[first:last]), "replace": "\n".join(changed_lines),
                "slip": f"{name}:{number + 1}: {code.strip()}  ->  {changed.strip()}",
            }  # fmt: skip


def generate(root, folders, count, seed):
    """As many of each folder's, of all places alike; always the same for a seed."""
    rng, chosen = random.Random(seed), []
    for i, folder in enumerate(folders):
        sources = sorted(p for p in (root / folder).rglob("*") if p.suffix in (".cc", ".h"))
        every = [m for p in sources for m in mutants_of(p.relative_to(root).as_posix(), p.read_text())]
        share = count // len(folders) + (i < count % len(folders))
        picked = sorted(rng.sample(range(len(every)), min(share, len(every))))
        chosen += [every[at] | {"id": f"generated.{folder.split('/')[-1]}.{seed}.{at}"} for at in picked]
    return chosen
