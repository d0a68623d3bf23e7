"""The tests of drivers share this: a page's commands, a campaign with a planted fault, the death of its workers, and its verdict.

A driver is whatever starts workers. It has a test here, NAME_test.py PROGRAM, and a page in docs/campaigns. The test runs
the page's commands: a block "```bash TITLE" is one, and the block "settings" gives the variables that they have.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "campaigns"
CLEAN, FINDINGS, USAGE, BAD_INPUT, INTERNAL = range(5)
SKIPPED = 77  # SKIP_RETURN_CODE of ctest

# Many short ranges, so that workers die with one in hand; a fault that a tenth of them finds.
CAMPAIGN = "--seed 7 --cases 600 --range 10 --stale-seconds 5 --plant K04"


class Page:
    """The commands of a driver's page."""

    def __init__(self, name):
        self.text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        self.blocks = dict(re.findall(r"^```bash (\w+)\n(.*?)^```$", self.text, re.M | re.S))

    def command(self, title, **settings):
        """A block as a script, with the page's settings at other values: all of them, and no other."""
        named = re.findall(r"^(\w+)=", self.blocks["settings"], re.M)
        assert sorted(named) == sorted(settings), (named, sorted(settings))
        lines = [f"{name}='{value}'" for name, value in settings.items()]
        return "\n".join(["set -eu", *lines, self.blocks[title]])


class Campaign(unittest.TestCase):
    """A test in a folder of its own, where the ledger "night" is, with `shadowgraph` on its PATH."""

    program = ""   # whose processes are workers
    cli = ""       # `shadowgraph`
    page = None
    expected = ""  # the report of one worker that nobody killed

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="drivers-"))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.ledger = self.folder / "night"
        (self.folder / "bin").mkdir()
        for program in {self.program, self.cli}:
            (self.folder / "bin" / pathlib.Path(program).name).symlink_to(program)
        self.env = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        self.addCleanup(self.kill_workers)

    # Commands.

    def start(self, script):
        """A running script; what it prints is in the files stdout and stderr."""
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            return subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                    stdout=out, stderr=err)

    def end(self, process, seconds=300):
        """Its exit code."""
        try:
            return process.wait(seconds)
        finally:
            process.kill()

    def run_script(self, script, seconds=300):
        """Exit code, stdout."""
        code = self.end(self.start(script), seconds)
        return code, (self.folder / "stdout").read_text("utf-8", "surrogateescape")

    def said(self):
        """The last script's words, for messages of failed assertions."""
        return (self.folder / "stderr").read_text("utf-8", "surrogateescape")[-4000:]

    def wait_for(self, condition, what, seconds=120):
        """The condition's first value that is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        return self.fail(f"no {what} in {seconds} s; {self.said()}")

    # Workers.

    def workers(self):
        """Processes of the program at this ledger, without the children that they fork."""
        parents = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if os.path.samefile(entry / "exe", self.program) and os.fsencode(self.ledger) in arguments:
                    parents[int(entry.name)] = _stat(entry.name)[1]
            except OSError:
                continue  # it ended, or is not ours
        return sorted(pid for pid, parent in parents.items() if parent not in parents)

    def range_of(self, pid):
        """The range that a worker has, and has not published."""
        for claim in self.ledger.glob("seg/*/claim/*"):
            try:
                worker = json.loads(claim.read_text())["worker"].split()
            except (OSError, ValueError):
                continue  # given back, or not written yet
            done = claim.parent.parent / "done" / f"{claim.name}.json"
            if claim.name.isdigit() and worker[1] == str(pid) and not done.exists():
                return int(claim.name)
        return None

    def stop_a_worker(self):
        """A worker that has a range, which it cannot publish any more: it is stopped."""
        for pid in self.workers():
            try:
                os.kill(pid, signal.SIGSTOP)
                while _stat(pid)[0] not in "TZX":
                    time.sleep(0.001)
                if self.range_of(pid) is not None:
                    return pid
                os.kill(pid, signal.SIGCONT)
            except (ProcessLookupError, FileNotFoundError):
                continue
        return None

    def kill_a_worker(self):
        """Kills a worker that has a range: the range is lost with it."""
        pid = self.wait_for(self.stop_a_worker, "worker that has a range")
        os.kill(pid, signal.SIGKILL)
        self.wait_for(lambda: pid not in self.workers(), "end of a worker that was killed")
        return pid

    def kill_workers(self):
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)

    # The verdict.

    def report(self, ledger):
        """Exit code and JSON of a ledger's report, without times; and both streams, for messages of failed assertions."""
        done = subprocess.run([self.cli, "merge-reports", str(ledger), "--format", "json"], capture_output=True,
                              text=True, timeout=300)
        return done.returncode, re.sub(r'"seconds": [\d.e+-]+', '"seconds": 0', done.stdout), done.stderr + done.stdout[-2000:]

    def assert_lost(self, least):
        """So many ranges or more were lost with their workers."""
        lines = [line for file in self.ledger.glob("lost/*") for line in file.read_text().splitlines()]
        self.assertGreaterEqual(len(lines), least, lines)

    def assert_complete(self):
        """The report of the ledger is that of one worker that nobody killed, byte for byte."""
        code, text, streams = self.report(self.ledger)
        self.assertEqual(code, FINDINGS, streams)
        self.assertEqual(text, self.expect())
        self.assertIn("K04", text)

    def assert_incomplete(self):
        code, _, streams = self.report(self.ledger)
        self.assertEqual(code, BAD_INPUT, streams)

    def expect(self):
        """The report of one worker that nobody killed; a test program makes it once."""
        if not Campaign.expected:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([self.cli, "fuzz", *CAMPAIGN.split(), "--ledger", folder + "/one", "--threads", "1"],
                                      capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, FINDINGS, done.stderr)
                code, Campaign.expected, streams = self.report(folder + "/one")
                self.assertEqual(code, FINDINGS, streams)
        return Campaign.expected


def _stat(pid):
    """State and parent of a process."""
    state, parent, *_ = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state, int(parent)


def need(*programs):
    """Skips a class of tests where one of them is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise unittest.SkipTest("not installed: " + ", ".join(missing))


def main():
    """NAME_test.py PROGRAM [CLI]; exit code 77: nothing could run here."""
    programs = [os.path.realpath(path) for path in sys.argv[1:]]
    Campaign.program, Campaign.cli = programs[0], programs[-1]
    result = unittest.main("__main__", argv=sys.argv[:1], exit=False, verbosity=2).result
    if result.skipped and result.wasSuccessful() and result.testsRun == 0:
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
