#!/usr/bin/env python3
"""Objects compiled for one instruction set define no symbol that the linker may share.

Usage: internal_linkage.py OBJECT...; looks at isa/avx*, isa/amx* and at the bench's units/avx*, units/amx* and peer_eigen. An
inline function or a template that such an object defines weakly could be the copy that the linker keeps for everybody:
an AVX-512 instruction then runs where there is no AVX-512. What peer_eigen alone has is in a namespace of its own.
"""

import re
import subprocess
import sys


def shared_symbols(path: str) -> list[str]:
    """Weak and unique definitions (nm types W, V and u), demangled."""
    listed = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True,
                            check=True).stdout
    return [line for line in listed.splitlines() if re.match(r"\s*[0-9a-f]+ [WVu] ", line)]


# The namespace that peer_eigen gives Eigen; and a pointer, no code, that every object with exceptions has.
OWN = re.compile(r"EigenForAvx512::|DW\.ref\.__gxx_personality_v0$")


def main(paths: list[str]) -> int:
    objects = [p for p in paths if re.search(r"(isa/a[vm]x|units/a[vm]x|bench\.dir/peer_eigen)[^/]*$", p)]
    wrong = 0
    for path in objects:
        for symbol in shared_symbols(path):
            if "peer_eigen" in path and OWN.search(symbol):
                continue
            wrong += 1
            print(f"{path}: {symbol}")
    print(f"internal linkage: {len(objects)} objects, {wrong} symbols that other objects may share")
    return 1 if wrong or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
