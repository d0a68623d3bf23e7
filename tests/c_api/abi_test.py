"""The ABI is what abi.txt says. Usage: abi_test.py LIBRARY LAYOUT_PROGRAM [--write].

abi.txt only ever grows: a line that changes breaks programs that were compiled before. --write adds what is new.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "include/shadowgraph.h"


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library):
    """Every name that the library defines for others, with its version."""
    names = [line.split()[-1] for line in output_of("nm", "-D", "--defined-only", library).splitlines()]
    return sorted(name.replace("@@", " ") for name in names if name != "SHADOWGRAPH_1")


def declared():
    """Functions of the header."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    return sorted(re.findall(r"SG_API[^;(]*?\b(sg_\w+)\(", text))


def members():
    """Structs of the header with their members: each must be in layout.c."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = []
    for body, struct in re.findall(r"typedef struct \{(.*?)\} (sg_\w+);", text, re.DOTALL):
        names.append(struct)
        for line in body.split(";"):
            names += [f"{struct}.{member}" for member in re.findall(r"\b(\w+)\s*(?=,|$)", line.strip())]
    return names


def main(library, layout, write):
    problems = []
    symbols, places = exported(library), output_of(layout).splitlines()
    soname = re.search(r"SONAME.*\[(.*)\]", output_of("readelf", "-d", library))
    now = [f"soname {soname[1] if soname else 'none'}", *symbols, *places]
    known = (HERE / "abi.txt").read_text(encoding="utf-8").splitlines()
    if write:
        (HERE / "abi.txt").write_text("\n".join([*known, *(line for line in now if line not in known)]) + "\n", encoding="utf-8")
        return 0
    problems += [f"abi.txt has it, the library has not: {line}" for line in known if line not in now]
    problems += [f"the library has it, abi.txt has not: {line}" for line in now if line not in known]
    problems += [f"declared and not exported: {name}" for name in declared() if f"{name} SHADOWGRAPH_1" not in symbols]
    problems += [f"exported and not declared: {name}" for name in symbols if name.split()[0] not in declared()]
    problems += [f"layout.inc lacks it: {name}" for name in members() if name not in [p.split()[0] for p in places]]
    print("\n".join(problems) or f"{len(symbols)} functions and {len(places)} places are those of abi.txt")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--write"]))
