"""The program of docs/c.md compiles as C99 and prints what the page says. Usage: docs_test.py CC ROOT LIBRARY_FOLDER."""

import pathlib
import re
import subprocess
import sys
import tempfile


def main(compiler, root, library):
    page = (pathlib.Path(root) / "docs/c.md").read_text(encoding="utf-8")
    programs = re.findall(r"```c\n(.*?)```\n.*?\n((?:    [^\n]*\n)+)", page, re.DOTALL)
    assert programs, "the page has a program and what it prints"
    for source, printed in programs:
        with tempfile.TemporaryDirectory() as folder:
            file, program = pathlib.Path(folder) / "example.c", f"{folder}/example"
            file.write_text(source, encoding="utf-8")
            subprocess.run([compiler, "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{root}/include", str(file), "-o",
                            program, f"-L{library}", "-lshadowgraph_c", f"-Wl,-rpath,{library}"], check=True)
            out = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        wanted = re.sub(r"^    ", "", printed, flags=re.MULTILINE)
        assert out == wanted, f"the program prints\n{out}the page says\n{wanted}"
    print(f"{len(programs)} programs print what the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
