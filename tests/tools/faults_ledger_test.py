"""Laws of a hunt for planted faults that processes share. Usage: faults_ledger_test.py BINARY."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = ""
CLEAN, USAGE, OTHER, NOTHING = 0, 2, 3, 3
CHOSEN = ("--id", "K48", "--id", "K31", "--id", "K11", "--cases", "60", "--seed", "3")


def start(*args):
    return subprocess.Popen([BINARY, "faults", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def run(*args):
    """Exit code, stdout, stderr."""
    process = start(*args)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


class Ledger(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def work(self, name, *args):
        code, _, err = run("--ledger", self.folder / name, *CHOSEN, *args)
        self.assertEqual(code, CLEAN, err)

    def result(self, name):
        """The hunt's report. Nothing is proved of K31."""
        args = [BINARY, "merge-reports", self.folder / name, "--format", "json"]
        done = subprocess.run(args, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, NOTHING, done.stderr)
        return done.stdout

    def test_one_worker_comes_to_the_rows_of_a_run_alone(self):
        self.work("alone", "--threads", "1")
        joined = json.loads(self.result("alone"))
        plain = json.loads(run(*CHOSEN, "--threads", "1", "--format", "json")[1])
        rows = [{**row, "seconds": 0} for row in sorted(plain["faults"], key=lambda row: row["id"])]
        self.assertEqual(joined["faults"], rows)
        self.assertEqual([row["verdict"] for row in rows], ["found", "never acted", "found"])
        for key in ("void", "warnings", "findings"):
            self.assertEqual(joined[key], plain[key])
        self.assertEqual(joined["summary"]["cases"], plain["summary"]["cases"])

    def test_two_workers_of_which_one_is_killed_come_to_the_same(self):
        self.work("alone", "--threads", "1")
        shared = ("--ledger", self.folder / "shared", *CHOSEN, "--stale-seconds", "1")
        killed = start(*shared, "--threads", "1")
        while not list((self.folder / "shared").glob("seg/0/claim/*")):
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        workers = [start(*shared, "--threads", threads) for threads in ("1", "2")]
        for worker in workers:
            worker.communicate(timeout=600)
        self.assertEqual([worker.returncode for worker in workers], [CLEAN, CLEAN])
        self.assertEqual(self.result("shared"), self.result("alone"))

    def test_faults_of_a_range_come_to_the_same(self):
        self.work("alone", "--threads", "1")
        self.work("together", "--threads", "2", "--range", "2")
        self.assertEqual(self.result("together"), self.result("alone"))

    def test_other_faults_and_another_budget_are_another_hunt(self):
        self.work("alone")
        code, out, _ = run("--ledger", self.folder / "alone", "--id", "K48", "--cases", "61", "--seed", "3", "--format", "json")
        self.assertEqual(code, OTHER)
        self.assertEqual(sorted(f["where"]["field"] for f in json.loads(out)["findings"]), ["cases", "histories", "id"])

    def test_what_would_depend_on_the_machine_is_refused_with_its_reason(self):
        for args, reason in ((("--matrix",), "not pairs"), (("--clean-cases", "5"), "shadowgraph fuzz"),
                             (("--device", "cuda"), "simulated device"), (("--budget-seconds", "5"), "differ in speed")):
            code, out, err = run("--ledger", self.folder / "none", "--id", "K31", *args)
            self.assertEqual((code, out), (USAGE, ""), args)
            self.assertIn(args[0], err)
            self.assertIn(reason, err)
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
