#!/usr/bin/env python3
"""What ELF files ask of the system that loads them. Usage: portable.py [--at-most GLIBC] FILE...; prints the platform tag.

A tag `manylinux_2_34_x86_64` says: the files run on any Linux whose C library is glibc 2.34 or later. So they need
nothing else but libraries that lie beside them, and the part of GCC's own library that is as old. Exit 1 if they need
more, or a later glibc than --at-most says.
"""

import argparse
import pathlib
import platform
import re
import subprocess
import sys

EVERYWHERE = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s)\.so\.\d|ld-linux[\w-]*\.so\.\d")
LATEST_GCC = (7, 0)  # symbols of libgcc_s that came later (GCC 12: 12.0.0) are newer than glibc 2.34

Version = tuple[int, ...]


class NotPortable(Exception):
    """Says what the files need that not every Linux has."""


def _readelf(option: str, file: pathlib.Path) -> str:
    return subprocess.run(["readelf", option, "--wide", file], capture_output=True, text=True, check=True).stdout


def libraries(file: pathlib.Path) -> set[str]:
    """Names of the libraries that a file needs, without those that are everywhere."""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", _readelf("--dynamic", file))
    return {name for name in needed if not EVERYWHERE.fullmatch(name)}


def latest(file: pathlib.Path, library: str) -> Version:
    """The latest version of a library's symbols that a file needs; (0,) if none."""
    found = re.findall(rf"Name: {library}_([\d.]+)\s", _readelf("--version-info", file))
    return max((tuple(map(int, version.split("."))) for version in found), default=(0,))


def tag(files: list[pathlib.Path], at_most: Version | None = None) -> str:
    """The platform tag of files that are installed beside each other."""
    beside = {file.name for file in files}
    wrong = []
    for file in files:
        wrong += [f"{file}: needs {name}" for name in sorted(libraries(file) - beside)]
        for library, limit in (("GLIBC", at_most), ("GCC", LATEST_GCC)):
            version = latest(file, library)
            if limit and version > limit:
                wrong.append(f"{file}: needs {library}_{'.'.join(map(str, version))}, may need {'.'.join(map(str, limit))}")
    glibc = max(latest(file, "GLIBC") for file in files)
    if glibc == (0,):
        wrong.append(f"{', '.join(map(str, files))}: ask nothing of glibc")
    if wrong:
        raise NotPortable("\n".join(wrong))
    return f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at-most", metavar="GLIBC", type=lambda text: tuple(map(int, text.split("."))))
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    try:
        print(tag(options.files, options.at_most))
    except NotPortable as why:
        print(why, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
