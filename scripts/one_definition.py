#!/usr/bin/env python3
"""Names of types that two files of src/ define for all to see. Usage: one_definition.py [ROOT]; exit 1 if there are any.

The linker keeps one of two functions that are named alike, so one type's destructor may run on the other, or one's
fields be read as the other's: no compiler says so. Types that only one file needs stand in an unnamed namespace.
"""

import collections
import pathlib
import re
import sys

from common import source_files

TYPE = re.compile(r"^(?:template <.*> ?)?(?:struct|class|union|enum class|enum)\s+(?:\[\[\w+\]\]\s+)?(\w+(?:<[\w:, ]+>)?)(?!\w|::|<)[^;]*$")
NAMESPACE = re.compile(r"^(?:inline )?namespace(?:\s+([\w:]+))?\s*\{")
END = re.compile(r"^\}  // namespace")


def definitions(text: str) -> list[tuple[int, str]]:
    """(line, name with its namespaces, of a specialisation with its arguments) of each type at the beginning of a line,
    outside unnamed namespaces."""
    found, spaces, previous = [], [], ""
    for number, line in enumerate(text.split("\n"), 1):
        if at := NAMESPACE.match(line):
            if not line.rstrip().endswith("}"):
                spaces.append(at[1] or "")
        elif END.match(line):
            spaces.pop()
        elif (at := TYPE.match(line)) and "" not in spaces and "friend" not in previous:
            found.append((number, "::".join([*spaces, at[1]])))
        previous = line
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    homes = collections.defaultdict(list)
    # The vectors of each instruction set stand in the unnamed namespace of whoever includes them.
    files = [p for p in source_files(root, (".h", ".cc")) if p.relative_to(root).parts[0] in ("src", "include")
             and p.parent.name != "simd"]
    for path in files:
        for number, name in definitions(path.read_text(encoding="utf-8")):
            homes[name].append(f"{path.relative_to(root)}:{number}")
    twice = {name: at for name, at in homes.items() if len(at) > 1}
    for name, at in sorted(twice.items()):
        print(f"{at[0]}: {name} is defined in {', '.join(at[1:])}, too")
    print(f"one definition: {len(homes)} types of {len(files)} files, {len(twice)} more than once")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
