"""Builds the wheel: CMake makes the extension, setuptools packs it.

SHADOWGRAPH_BUILD names a build folder that is configured already (./dev python: build/release), so that nothing is
compiled twice; else the extension gets a folder of its own.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'SHADOWGRAPH_VERSION "(.+)"', (ROOT / "include/shadowgraph/version.h").read_text())[1]
PARTS_LEFT_OUT = [f"-DSHADOWGRAPH_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES")]


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        folder = os.environ.get("SHADOWGRAPH_BUILD")
        options = [] if folder else ["-DCMAKE_BUILD_TYPE=Release", *PARTS_LEFT_OUT]
        if not folder and shutil.which("ninja"):
            options.append("-GNinja")
        folder = folder or self.build_temp
        headers = f"-DSHADOWGRAPH_PYTHON_INCLUDE={sysconfig.get_path('include')}"
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, headers, *options], check=True)
        subprocess.run(["cmake", "--build", folder, "--target", "shadowgraph_python", "--parallel", str(os.cpu_count())], check=True)
        made, wanted = pathlib.Path(folder, "python/_core.abi3.so"), pathlib.Path(self.get_ext_fullpath(ext.name))
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, wanted)


setup(
    version=VERSION,
    ext_modules=[Extension("shadowgraph._core", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
