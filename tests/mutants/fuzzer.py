"""One hunt: the fuzzer in a process of its own, for a fixed processor time, so that a busy machine finds as much as an idle
one. A process that dies, or does not end, found its mutant as well."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_BYTES = 4 << 30  # of a run: a slip in a size takes all there is
GRACE_TIMES, GRACE_SECONDS = 2, 1  # its time again, to shrink what was found and to end
HISTORIES = 2000  # that are run with and without a mutant that nothing found
SECONDS_WAITING = 120  # without any processor time: then it waits for something
TIMES_ALONE = 200  # its time: one whose hunt was killed ends by itself


class Stopped(Exception):
    """The hunt was interrupted."""


@dataclasses.dataclass(frozen=True)
class Run:
    found: str  # the law, or how it ended; empty: nothing
    seconds: float  # processor time
    ran: bool  # the mutant's place was run
    acted: bool  # and something else came of it there


def seconds_of(pid):
    """Processor time and bytes in memory of a child."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE


class Fuzzer:
    def __init__(self, program, seconds, stop):
        self.program, self.seconds, self.stop = program, seconds, stop

    def run(self, command, switch):
        """(Run, exit code, output, what the file says that ran) with the mutant on: 0 is none."""
        with tempfile.TemporaryDirectory() as folder:
            ran = pathlib.Path(folder) / "ran"
            environment = {**os.environ, "SHADOWGRAPH_MUTANT": str(switch), "SHADOWGRAPH_MUTANT_RAN": str(ran),
                           "OMP_WAIT_POLICY": "passive"}  # fmt: skip
            with (pathlib.Path(folder) / "out").open("w+") as out:
                # In a group of its own: a Ctrl-C that ends it here would look as if it found nothing.
                child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
                try:
                    ended, seconds = self.watch(child)
                finally:
                    if child.poll() is None:
                        child.kill()
                        child.wait()
                out.seek(0)
                text = out.read()
            said = ran.read_text() if ran.is_file() else "1 1"  # it died
        return Run(ended, seconds, said.startswith("1"), said.endswith("1")), child.returncode, text, said

    def fuzz(self, switch, backend):
        at_most = str(TIMES_ALONE * (self.seconds + 1))
        command = [self.program, "fuzz", "--seed", "1", "--threads", "1", "--seconds", at_most, "--max-findings", "1",
                   "--format", "json", "--quiet", *(["--backend", backend] if backend else [])]  # fmt: skip
        run, code, text, said = self.run(command, switch)
        return dataclasses.replace(run, found=run.found or self.found(code, text)), said

    def hunt(self, switch, backend):
        return self.fuzz(switch, backend)[0]

    def reached(self, backend):
        """(what is found without a mutant, the switches of all whose places such a hunt runs)."""
        run, said = self.fuzz(-1, backend)
        return run.found, {int(switch) for switch in said.split()}

    def verdict(self, switch, backend):
        """The verdict of histories, by what their launches read and their outputs: (inert, missed, ..., what changed)."""
        command = [self.program.with_name("mutant_verdict"), str(switch), str(HISTORIES), *([backend] if backend else [])]
        run, code, text, _ = self.run(command, 0)
        verdict, _, why = text.strip().partition(":")
        return ("found", run.found or f"exit code {code}") if run.found or code != 0 else (verdict, why.strip())

    def watch(self, child):
        """How it had to be ended, if it had, and its processor time."""
        seconds, told, moved = 0.0, False, time.monotonic()
        while child.poll() is None:
            if self.stop.is_set():
                raise Stopped
            before = seconds
            try:
                seconds, size = seconds_of(child.pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if size > MOST_BYTES:
                return "memory", seconds
            if seconds >= self.seconds and not told:
                child.send_signal(signal.SIGINT)
                told = True
            moved = time.monotonic() if seconds != before else moved
            late = seconds >= (1 + GRACE_TIMES) * self.seconds + GRACE_SECONDS
            if late or time.monotonic() - moved > SECONDS_WAITING:
                return "hang", seconds
            time.sleep(0.05)
        return "", seconds

    @staticmethod
    def found(code, text):
        if code < 0:
            return f"crash: {signal.Signals(-code).name}"
        try:
            report = json.loads(text)
        except ValueError:
            return f"crash: exit code {code}, without a report"
        return report["findings"][0]["id"] if report["findings"] else ""
