"""What users install: one version, files for every Linux, an archive that runs alone, an action.

Usage: release_test.py PROGRAM, or, where nothing can be packed, release_test.py ARCHIVE Action.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import yaml
except ImportError:  # Debian's python3-yaml belongs to Debian's python3, which may not be the one that runs this
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import portable  # noqa: E402

PROGRAM = ARCHIVE = pathlib.Path()
TRACES = ROOT / "tests/data/traces/flashattention.current.jsonl"
PATH = "/usr/bin:/bin"


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


HEADER = dict(re.findall(r"#define SHADOWGRAPH_(VERSION\w*) \"?([\d.]+)", text_of("include/shadowgraph/version.h")))
VERSION = HEADER["VERSION"]


def packed(folder):
    subprocess.run([ROOT / "scripts/archive.sh", PROGRAM, folder], check=True)
    (file,) = folder.iterdir()
    return file


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compiled(self, name, source, *flags):
        (self.folder / "source.c").write_text(source)
        file = self.folder / name
        compiler = [shutil.which("cc") or os.environ["CC"], "-shared", "-fPIC", "-nostdlib", "-x", "c", self.folder / "source.c", "-x", "none"]
        subprocess.run([*compiler, *flags, "-o", file], check=True)
        return file


class Version(unittest.TestCase):
    def test_the_header_is_of_one_mind(self):
        self.assertEqual(VERSION, ".".join(HEADER[f"VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")))

    def test_the_changes_begin_with_it(self):
        self.assertEqual(re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.M)[0], VERSION)

    def test_the_program_says_it(self):
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.splitlines()[0], f"shadowgraph {VERSION}")

    def test_nothing_else_holds_it(self):
        for path in ("CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "setup.py", "dev", "action.yml", "scripts/archive.sh",
                     ".github/workflows/release.yml", "docs/install.md", "src/c_api/report.cc", "tools/program.cc"):
            self.assertNotIn(VERSION, text_of(path), path)


class Portable(Scratch):
    """The tag of a wheel is what its symbols ask for."""

    def library(self, name, versions, *flags):
        """A library with one symbol f of each version."""
        script = self.folder / f"{name}.map"
        script.write_text("".join(f"{v} {{ global: f{i}; }};\n" for i, v in enumerate(versions)))
        source = "".join(f"void f{i}(void) {{}}\n" for i, _ in enumerate(versions))
        return self.compiled(name, source, f"-Wl,--version-script={script}", f"-Wl,-soname,{name}", *flags)

    def user(self, *libraries, calls=1):
        source = "".join(f"void f{i}(void);\n" for i in range(calls)) + "void g(void) {" + "".join(f"f{i}();" for i in range(calls)) + "}"
        return self.compiled("user.so", source, *libraries)

    def test_the_latest_version_of_glibc_counts_by_number(self):
        user = self.user(self.library("libc.so.6", ["GLIBC_2.9", "GLIBC_2.34"]), calls=2)
        self.assertEqual(portable.tag([user]), f"manylinux_2_34_{os.uname().machine}")
        self.assertEqual(portable.tag([user], at_most=(2, 34)), portable.tag([user]))
        with self.assertRaisesRegex(portable.NotPortable, r"user.so: needs GLIBC_2.34, may need 2.33"):
            portable.tag([user], at_most=(2, 33))

    def test_a_library_must_be_everywhere_or_beside_it(self):
        self.library("libc.so.6", ["GLIBC_2.2.5"])
        other = self.library("libfmt.so.9", ["FMT_1"])
        user = self.user(other)
        with self.assertRaisesRegex(portable.NotPortable, "user.so: needs libfmt.so.9"):
            portable.tag([user])
        self.assertEqual(portable.libraries(user), {"libfmt.so.9"})
        with self.assertRaisesRegex(portable.NotPortable, "ask nothing of glibc"):
            portable.tag([user, other])

    def test_gccs_library_may_not_be_later_than_glibc(self):
        for version, is_late in (("GCC_4.2.0", False), ("GCC_12.0.0", True)):
            libc = self.library("libc.so.6", ["GLIBC_2.17"])
            libc.rename(self.folder / "libc6")
            gcc = self.library("libgcc_s.so.1", [version])
            late = f"needs {version}" if is_late else "ask nothing of glibc"
            with self.assertRaisesRegex(portable.NotPortable, late):
                portable.tag([self.user(gcc)])


class Archive(Scratch):
    """The program, alone in a folder."""

    def test_it_needs_the_c_library_alone(self):
        portable.tag([PROGRAM], at_most=(2, 34))

    def test_it_runs_where_nothing_else_is_and_the_same_program_gives_the_same_bytes(self):
        file = ARCHIVE
        self.assertEqual(file.name, f"shadowgraph-{VERSION}-linux-{os.uname().machine}.tar.xz")
        self.assertEqual(file.read_bytes(), packed(self.folder / "again").read_bytes())
        self.assertLess(file.stat().st_size, 8 * 2**20)
        with tarfile.open(file) as archive:
            archive.extractall(self.folder)
        top = self.folder / file.name.removesuffix(".tar.xz")
        self.assertLessEqual({"LICENSE", "NOTICE", "CHANGELOG.md", "README.md", "docs", "bin"}, {path.name for path in top.iterdir()})
        run = lambda *args: subprocess.run(["bin/shadowgraph", *args], cwd=top, env={}, capture_output=True, text=True, timeout=120)
        self.assertEqual(run("explain", "table.slot").returncode, 0)
        sets = run("list", "targets").stdout
        if os.uname().machine == "x86_64":
            for name in ("generic", "avx2", "avx512", "avx512bf16"):
                self.assertRegex(sets, rf"(?m)^{name}\s")
        fuzzed = run("fuzz", "--cases", "200", "--isa", "generic")
        self.assertEqual(fuzzed.returncode, 0, fuzzed.stdout + fuzzed.stderr)
        self.assertRegex(fuzzed.stdout, r"clean: \d+ cases judged")

    def test_the_page_unpacks_and_runs_it(self):
        shutil.copy(ARCHIVE, self.folder)
        commands = "".join(re.findall(r"^    (.*\n)", text_of("docs/install.md").split("## The archive")[1].split("##")[0], re.M))
        done = subprocess.run(["bash", "-ec", commands], cwd=self.folder, env={"PATH": PATH}, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^clean: \d+ cases judged")

    def test_a_program_that_needs_more_is_not_packed(self):
        source = self.folder / "more.cc"
        source.write_text("#include <iostream>\nint main() { std::cout << 1; }\n")
        subprocess.run(["c++", source, "-o", self.folder / "more"], check=True)
        done = subprocess.run([ROOT / "scripts/archive.sh", self.folder / "more", self.folder / "out"], capture_output=True, text=True)
        self.assertIn("needs libstdc++.so.6", done.stderr)
        self.assertFalse((self.folder / "out").exists())


class Action(Scratch):
    """Steps of action.yml, as a runner takes them: each a shell of its own, which knows the others by files alone."""

    @classmethod
    def setUpClass(cls):
        cls.action = yaml.safe_load(text_of("action.yml"))

    def value(self, text, known):
        def expression(match):
            words = match[1].split(" || ")
            return next((known[word] for word in words if known[word]), "")

        return re.sub(r"\$\{\{ (.+?) \}\}", expression, str(text))

    def run_action(self, path=PATH, **inputs):
        """Exit code of the first step that fails, or 0; all that the steps printed; outputs of the action; what is uploaded."""
        given = {name: about["default"] for name, about in self.action["inputs"].items()} | inputs
        known = {f"inputs.{name}": value for name, value in given.items()}
        known |= {"github.token": "secret", "github.action_path": str(ROOT), "github.action_repository": "", "github.repository": "a/b"}
        files = {name: self.folder / name.lower() for name in ("GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        (self.folder / "work").mkdir(exist_ok=True)
        printed, uploaded, code = "", None, 0
        for step in self.action["runs"]["steps"]:
            if "if" in step:
                name, wanted = re.fullmatch(r"(\S+) == '(\w+)'", step["if"]).groups()
                if known[name] != wanted:
                    continue
            if "uses" in step:
                uploaded = {key: self.value(value, known) for key, value in step["with"].items()}
                continue
            for file in files.values():
                file.touch()
            env = {name: str(file) for name, file in files.items()} | {"RUNNER_TEMP": str(self.folder), "HOME": str(self.folder)}
            env["PATH"] = ":".join([*files["GITHUB_PATH"].read_text().split(), path])
            env |= {name: self.value(text, known) for name, text in step.get("env", {}).items()}
            before = files["GITHUB_OUTPUT"].read_text()
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.folder / "work",
                                  env=env, capture_output=True, text=True, timeout=300)
            printed += done.stdout + done.stderr
            for line in files["GITHUB_OUTPUT"].read_text()[len(before):].splitlines():
                name, value = line.split("=", 1)
                known[f"steps.{step['id']}.outputs.{name}"] = value
            code = code or done.returncode
            if code:
                break
        outputs = {name: self.value(about["value"], known) for name, about in self.action["outputs"].items()} if "steps.judge.outputs.report" in known else {}
        return code, printed, outputs, uploaded

    def test_findings_fail_the_job_after_they_are_annotated_and_uploaded(self):
        code, printed, outputs, uploaded = self.run_action(command=f"check '{TRACES}'", archive=str(ARCHIVE), upload="true")
        self.assertEqual(code, 1, printed)
        self.assertRegex(printed, rf"(?m)^::error file={TRACES},line=8,title=table.unit")
        self.assertIn('"version": "2.1.0"', pathlib.Path(uploaded["sarif_file"]).read_text())
        self.assertIn("table.unit", pathlib.Path(outputs["report"]).read_text())
        self.assertIn("not clean", (self.folder / "github_step_summary").read_text())

    def test_the_pages_step_is_one_of_its_steps(self):
        (step,) = yaml.load(re.search(r"```yaml\n(.*?)```", text_of("docs/install.md"), re.S)[1], yaml.BaseLoader)
        (self.folder / "work/traces").mkdir(parents=True)
        shutil.copy(TRACES, self.folder / "work/traces")
        self.assertLessEqual(set(step["with"]), set(self.action["inputs"]))
        code, printed, _, uploaded = self.run_action(archive=str(ARCHIVE), **step["with"])
        self.assertEqual((code, uploaded["category"]), (1, "shadowgraph"), printed)
        self.assertIn(f"::error file=traces/{TRACES.name},line=8", printed)

    def test_a_clean_run_passes_and_uploads_nothing_unasked(self):
        code, printed, outputs, uploaded = self.run_action(command="fuzz --cases 50", archive=str(ARCHIVE))
        self.assertEqual((code, uploaded), (0, None), printed)
        self.assertNotIn("::error", printed)
        self.assertIn("clean: ", (self.folder / "github_step_summary").read_text())

    def test_arguments_are_words_and_not_a_program(self):
        code, printed, _, _ = self.run_action(command="check '$(touch ran)' \"a b\"", archive=str(ARCHIVE))
        self.assertEqual(code, 3, printed)
        self.assertFalse((self.folder / "work/ran").exists())
        self.assertIn("a b", printed)
        self.assertEqual(self.run_action(command="check 'open", archive=str(ARCHIVE))[0], 1)

    def test_what_the_action_does_not_do_is_refused(self):
        code, printed, _, _ = self.run_action(command="bench", archive=str(ARCHIVE))
        self.assertEqual((code, printed.strip()), (2, "::error::command is bench; check or fuzz"))
        self.assertEqual(self.run_action(command="check nowhere.jsonl", archive=str(ARCHIVE))[0], 3)
        self.assertNotEqual(self.run_action(archive="nowhere.tar.xz")[0], 0)

    def test_without_an_archive_it_is_the_releases_of_the_same_version(self):
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "gh").write_text(f'#!/bin/sh\necho "$@" >"$0.args"\nwhile [ "$1" != --output ]; do shift; done\ncp {ARCHIVE} "$2"\n')
        (tools / "gh").chmod(0o755)
        code, printed, _, _ = self.run_action(path=f"{tools}:{PATH}", command="fuzz --cases 5")
        self.assertEqual(code, 0, printed)
        asked = (tools / "gh.args").read_text()
        self.assertTrue(asked.startswith(f"release download v{VERSION} --repo a/b --pattern *-linux-{os.uname().machine}.tar.xz"), asked)


class Workflows(unittest.TestCase):
    """Their grammar is actionlint's to judge; what they say of this tree is judged here."""

    def steps(self):
        for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
            for job in yaml.safe_load(path.read_text())["jobs"].values():
                for step in job["steps"]:
                    yield path.name, job, step
        for step in yaml.safe_load(text_of("action.yml"))["runs"]["steps"]:
            yield "action.yml", {}, step

    def test_their_scripts_are_sound(self):
        for name, job, step in self.steps():
            self.assertEqual(len({"run", "uses"} & set(step)), 1, step)
            if "run" in step:
                shell = "sh" if "container" in job else "bash"
                script = re.sub(r"\$\{\{.*?\}\}", "x", step["run"])
                done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
                for program in re.findall(r"(?:^|\s)(\./dev|\.ci/run)\b", script):
                    self.assertTrue(os.access(ROOT / program, os.X_OK))
            else:
                self.assertRegex(step["uses"], r"^[\w-]+/[\w/-]+@v\d+$")

    def test_every_night_has_every_step_of_the_full_test(self):
        nightly = yaml.safe_load(text_of(".github/workflows/nightly.yml"))
        steps = re.search(r"full_steps=\((.*?)\)", text_of("dev"), re.S)[1].split()
        self.assertEqual(nightly["jobs"]["full"]["strategy"]["matrix"]["step"], steps)


if __name__ == "__main__":
    PROGRAM = ARCHIVE = pathlib.Path(sys.argv.pop(1)).resolve()
    with tempfile.TemporaryDirectory() as made:
        if not PROGRAM.name.endswith(".tar.xz"):
            ARCHIVE = packed(pathlib.Path(made))
        unittest.main()
