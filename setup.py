"""Builds the wheel: CMake makes the extension, setuptools packs it, and its symbols say which Linux it runs on.

SHADOWGRAPH_BUILD names a build folder that is configured already (./dev python: build/release), so that nothing is
compiled twice; else the extension gets a folder of its own.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))
import portable  # noqa: E402

VERSION = re.search(r'SHADOWGRAPH_VERSION "(.+)"', (ROOT / "include/shadowgraph/version.h").read_text())[1]
EXTENSION = "shadowgraph._core"


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        folder = os.environ.get("SHADOWGRAPH_BUILD")
        options = [] if folder else ["-DCMAKE_BUILD_TYPE=Release", "-DSHADOWGRAPH_BUILD_TOOLS=ON"]
        if not folder and shutil.which("ninja"):
            options.append("-GNinja")
        folder = folder or self.build_temp
        headers = f"-DSHADOWGRAPH_PYTHON_INCLUDE={sysconfig.get_path('include')}"
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, headers, *options], check=True)
        subprocess.run(["cmake", "--build", folder, "--target", "shadowgraph_python", "--parallel", str(os.cpu_count())], check=True)
        made, wanted = pathlib.Path(folder, "python/_core.abi3.so"), pathlib.Path(self.get_ext_fullpath(ext.name))
        wanted.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, wanted)
        # OpenMP's library lies beside it, under its own name: a process that has loaded the system's uses that one.
        loaded = subprocess.run(["ldd", made], capture_output=True, text=True, check=True).stdout
        for library in portable.libraries(made):
            shutil.copy(re.search(rf"{re.escape(library)} => (\S+)", loaded)[1], wanted.with_name(library))


class TaggedWheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        extension = pathlib.Path(self.get_finalized_command("build_ext").get_ext_fullpath(EXTENSION))
        if extension.exists():
            with contextlib.suppress(portable.NotPortable):
                platform = portable.tag(sorted(extension.parent.glob("*.so*")))
        return python, abi, platform


setup(
    version=VERSION,
    ext_modules=[Extension(EXTENSION, sources=[], py_limited_api=True)],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": TaggedWheel},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
