#!/usr/bin/env python3
"""Checks the size budget. Usage: sizes.py [ROOT]; exit 1 if a file or a function is over its limit.

Lines of a file: 150 is good, from 301 on it is named, from 501 on it is an error. Lines of a function's
body: 30 is good, from 61 on it is an error (91 in a kernel's body, src/kernels/*.inl).
"""

import ast
import pathlib
import re
import sys

from common import source_files, without_comments_and_strings

FILE_NOTE, FILE_LIMIT = 300, 500
FUNCTION_GOOD, FUNCTION_LIMIT, KERNEL_LIMIT = 30, 60, 90

_TYPE = re.compile(r"^\W*(?:\w+\s+)*?(?:struct|class|union|enum)\b[^()=]*$")
_NAME = re.compile(r"(operator\s*[^\s(]+|[~\w:]+)\s*\(")


def _without_templates(head: str) -> str:
    """Drops template <...> so that its `class T` is not taken for a type's head."""
    while (start := re.search(r"\btemplate\s*<", head)) is not None:
        depth, end = 1, start.end()
        while end < len(head) and depth:
            depth += {"<": 1, ">": -1}.get(head[end], 0)
            end += 1
        head = head[:start.start()] + head[end:]
    return head


def _kind(head: str) -> str:
    """What a brace after this text opens: a scope to look into, a function, or something else."""
    head = _without_templates(re.sub(r"\b(?:public|private|protected)\s*:", " ", head)).strip()
    if re.search(r"\bnamespace\b", head) or head.startswith("extern") or _TYPE.match(head):
        return "scope"
    return "function" if "(" in head and not head.endswith(("=", ",")) else "other"


def cpp_functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, lines of the body) of every function, members included."""
    code = without_comments_and_strings(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), code,
                  flags=re.MULTILINE)
    functions, stack, head, line = [], [], "", 1
    for char in code:
        inside = bool(stack) and stack[-1][0] != "scope"
        if char == "\n":
            line += 1
        if char == "{":
            stack.append(("inner" if inside else _kind(head), head, line))
            head = ""
        elif char == "}" and stack:
            kind, opened_by, first = stack.pop()
            if kind == "function":
                name = _NAME.search(_without_templates(opened_by))
                functions.append((name[1] if name else "?", first, line - first + 1))
            head = ""
        elif char == ";":
            head = ""
        elif not inside:
            head += char
    return functions


def python_functions(text: str) -> list[tuple[str, int, int]]:
    return [(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def main(root: pathlib.Path) -> int:
    files = source_files(root, (".h", ".cc", ".inl", ".py", ".sh"))
    files += [p for p in (root / "dev", root / ".ci/run") if p.is_file()]
    errors = notes = total = long = 0
    for file in files:
        path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > FILE_NOTE:
            over = lines > FILE_LIMIT
            errors, notes = errors + over, notes + (not over)
            print(f"{path}: {lines} lines, {'limit' if over else 'note from'} "
                  f"{FILE_LIMIT if over else FILE_NOTE}")
        is_kernel = path.startswith("src/kernels/") and path.endswith(".inl")
        limit = KERNEL_LIMIT if is_kernel else FUNCTION_LIMIT
        functions = []
        if file.suffix == ".py":
            functions = python_functions(text)
        elif file.suffix in (".h", ".cc", ".inl"):
            functions = cpp_functions(text)
        total += len(functions)
        long += sum(size > FUNCTION_GOOD for _, _, size in functions)
        for name, first, size in functions:
            if size > limit:
                errors += 1
                print(f"{path}:{first}: {name} has {size} lines, limit {limit}")
    print(f"sizes: {len(files)} files ({notes} over {FILE_NOTE} lines), {total} functions "
          f"({long} over {FUNCTION_GOOD} lines), {errors} over the limit")
    return 1 if errors or not total else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
