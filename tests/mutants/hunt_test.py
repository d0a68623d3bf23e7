"""Laws of a shared hunt: whoever dies, each mutant has one verdict. A fake hunt, so that nothing is built. Usage:
hunt_test.py BINARY: `shadowgraph`, which joins what came of it."""

import contextlib
import io
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import hunt
import ledger

COUNT, STALE = 24, 0.6
MUTANTS = [{"id": f"m{n:02}", "file": "src/a.cc", "slip": f"Slip {n}."} for n in range(COUNT)]
WORKER = "worker"
BINARY = ""


def killer_of(mutant, seconds=0.02):
    """Every fifth survives; one does not build."""
    number = int(mutant["id"][1:])
    print("trying", mutant["id"], flush=True)
    time.sleep(seconds)
    if number == 7:
        raise hunt.Trouble("does not build:\nat /a/path/of/this/machine")
    return None if number % 5 == 0 else f"a_tests: A.B{number}"


def opened(folder, **differing):
    run = {"options": {"verb": "mutants", "sources": "abc"}, "cases": COUNT, "range": 1, "most_of_a_law": 0,
           "stale_seconds": STALE, "case_seconds": 600, "corpus": []}
    options = differing.pop("options", {})
    return ledger.Ledger(folder, {**run, **differing, "options": {**run["options"], **options}})


def work(folder, seconds=0.02, kill=killer_of, fits=lambda _: True):
    shared = opened(folder)

    def keep(number, verdict, why):
        report = hunt.report_of(MUTANTS[number], verdict, why, 1, "run.py --only " + MUTANTS[number]["id"])
        return shared.publish(number, json.dumps(report, indent=2) + "\n")

    with contextlib.closing(shared.claims(fits)) as numbers:
        return hunt.hunt(MUTANTS, numbers, lambda mutant: kill(mutant, seconds), keep)


def quietly(*args, **options):
    """(what work returns, what it said)."""
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        return work(*args, **options), said.getvalue()


def start(folder, seconds=0.02):
    return subprocess.Popen([sys.executable, __file__, WORKER, folder, str(seconds)], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def wait_for_its_first(process):
    """The number of the mutant that it tries."""
    while not (line := process.stdout.readline()).startswith("trying"):
        assert line, "it ended"
    return int(line.split()[1][1:])


def results(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in pathlib.Path(folder).glob("seg/*/done/*")}


def tried(*outputs):
    return sorted(line.split()[0] for out in outputs for line in out.splitlines() if line.startswith("m") and line[1].isdigit())


class Hunt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.alone = pathlib.Path(folder.name) / "alone"
        cls.counts, _ = quietly(cls.alone, 0)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "shared"

    def claims(self):
        return list(self.folder.glob("seg/*/claim/[0-9]*"))

    def assertWhole(self):
        self.assertEqual(results(self.folder), results(self.alone))
        self.assertEqual(self.claims(), [])
        names = {re.sub(r"\d+", "N", path.relative_to(self.folder).as_posix()) for path in self.folder.rglob("*")}
        form = {"run.json", "seg", "seg/N", "seg/N/claim", "seg/N/done", "seg/N/done/N.json", "lost", "lost/N"}
        self.assertEqual(names - form, set(), "temporary files are left")

    def test_a_hunt_of_one_counts_each_verdict(self):
        self.assertEqual(self.counts, {"found": 18, "missed": 5, "never acted": 1})
        reports = [json.loads(text) for text in results(self.alone).values()]
        self.assertEqual(sorted(r["faults"][0]["id"] for r in reports), [m["id"] for m in MUTANTS])
        self.assertEqual(sorted(f["case"] for r in reports for f in r["findings"]), ["m00", "m05", "m10", "m15", "m20"])
        (unbuilt,) = [r["faults"][0] for r in reports if r["faults"][0]["id"] == "m07"]
        self.assertEqual((unbuilt["verdict"], unbuilt["planted"], unbuilt["why_not"]), ("never acted", False, "does not build"))

    def joined(self, *args):
        done = subprocess.run([BINARY, "merge-reports", self.folder, *args], capture_output=True, text=True)
        return done.returncode, done.stdout

    def test_merge_reports_has_the_verdict_of_the_hunt(self):
        quietly(self.folder, 0)
        code, out = self.joined()
        self.assertEqual(code, 1)
        self.assertRegex(out.splitlines()[-1], "^not noticed: m00, m05, m10, m15, m20: 24 cases judged, 5 findings")
        for row in (r"m03 +Slip 3\. +a_tests: A\.B3 ", r"m05 +Slip 5\. +NOTHING ", r"m07 never acted: does not build$"):
            self.assertRegex(out, f"(?m)^{row}")
        report = json.loads(self.joined("--format", "json")[1])
        self.assertEqual([row["id"] for row in report["faults"]], [m["id"] for m in MUTANTS])
        self.assertEqual(report["void"], "m07 never acted")

    def test_merge_reports_says_that_a_hunt_is_not_over(self):
        quietly(self.folder, 0, fits=lambda number: number != 3)
        self.assertEqual(self.joined()[0], 3)
        code, out = self.joined("--partial")
        self.assertEqual(code, 1)
        self.assertIn("incomplete, 1 of 24 ranges has no result: 3", out)

    def test_two_share_a_hunt_and_each_mutant_is_tried_once(self):
        outputs = [process.communicate(timeout=60)[0] for process in [start(self.folder), start(self.folder)]]
        self.assertEqual(tried(*outputs), [m["id"] for m in MUTANTS])
        self.assertWhole()

    def test_what_a_killed_worker_had_is_hunted_by_another_one(self):
        slow = start(self.folder, seconds=60)
        number = wait_for_its_first(slow)
        quick = start(self.folder)
        slow.kill()
        slow.communicate()
        self.assertEqual(tried(quick.communicate(timeout=60)[0]), [m["id"] for m in MUTANTS])
        self.assertWhole()
        (lost,) = (self.folder / "lost" / str(number)).read_text().splitlines()
        self.assertEqual((json.loads(lost)["at"], json.loads(lost)["alone"]), (number, False))

    def test_a_slow_worker_keeps_its_claim(self):
        slow = start(self.folder, seconds=3 * STALE)
        wait_for_its_first(slow)
        quick = start(self.folder)
        outputs = [quick.communicate(timeout=60)[0]]
        outputs.append(slow.communicate(timeout=60)[0])
        self.assertEqual(tried(*outputs), [m["id"] for m in MUTANTS])
        self.assertFalse((self.folder / "lost").exists())

    def test_a_worker_that_was_stopped_comes_too_late_and_changes_nothing(self):
        stopped = start(self.folder, seconds=STALE)
        number = wait_for_its_first(stopped)
        stopped.send_signal(signal.SIGSTOP)
        quietly(self.folder)
        stopped.send_signal(signal.SIGCONT)
        self.assertEqual(tried(stopped.communicate(timeout=60)[0]), [MUTANTS[number]["id"]])
        self.assertEqual(stopped.returncode, 0)
        self.assertWhole()

    def test_a_worker_that_is_interrupted_gives_its_mutant_back(self):
        slow = start(self.folder, seconds=60)
        wait_for_its_first(slow)
        slow.send_signal(signal.SIGINT)
        slow.communicate(timeout=60)
        self.assertEqual(self.claims(), [])
        quietly(self.folder)
        self.assertFalse((self.folder / "lost").exists())
        self.assertWhole()

    def test_another_verdict_is_told_and_the_first_stays(self):
        def other(mutant, seconds):
            (self.folder / "seg/0/done").mkdir(exist_ok=True)
            (self.folder / f"seg/0/done/{int(mutant['id'][1:])}.json").write_text("another one")
            return killer_of(mutant, seconds)

        counts, said = quietly(self.folder, kill=other)
        self.assertEqual(counts["differs"], COUNT)
        self.assertIn("m03: another hunt came to another verdict, which stays", said)
        self.assertEqual(set(results(self.folder).values()), {"another one"})
        self.assertEqual((self.folder / "differs/3/kept.json").read_text(), "another one")
        self.assertEqual((self.folder / "differs/3/other.json").read_text(), results(self.alone)["seg/0/done/3.json"])

    def test_what_does_not_fit_this_machine_is_left(self):
        counts, _ = quietly(self.folder, fits=lambda number: number != 3)
        self.assertEqual(counts["found"], 17)
        self.assertEqual(list(opened(self.folder).undone()), [3])

    def test_a_joined_segment_is_done(self):
        opened(self.folder)
        (self.folder / "seg").mkdir()
        (self.folder / "seg/0.json").write_text("{}")
        self.assertEqual(list(opened(self.folder).undone()), [])
        self.assertEqual(quietly(self.folder)[0], {})
        self.assertEqual(results(self.folder), {})

    def test_segments_have_256_ranges(self):
        shared = opened(self.folder, cases=600)
        self.assertEqual(sorted(shared.undone()), list(range(600)))
        shared.publish(256, "x")
        self.assertEqual(list(results(self.folder)), ["seg/1/done/256.json"])
        self.assertEqual(sorted(set(range(600)) - set(shared.undone())), [256])

    def test_another_hunt_is_refused_with_every_difference(self):
        opened(self.folder)
        opened(self.folder, corpus=["not compared"])
        with self.assertRaises(ledger.Refused) as refused:
            opened(self.folder, cases=25, stale_seconds=5, options={"sources": "def", "only": "m"})
        self.assertEqual(str(refused.exception).splitlines()[1:], [
            "cases: 25, and the ledger has 24", f"stale_seconds: 5, and the ledger has {STALE}",
            'only: "m", and the ledger has null', 'sources: "def", and the ledger has "abc"'])
        (self.folder / "run.json").write_text("[]")
        with self.assertRaises(ledger.Refused):
            opened(self.folder)

    def test_a_folder_of_other_things_is_refused(self):
        self.folder.mkdir()
        (self.folder / "corpus").mkdir()
        opened(self.folder)
        (self.folder / "run.json").unlink()
        (self.folder / "main.cc").touch()
        with self.assertRaisesRegex(ledger.Refused, "it has no run.json, but main.cc"):
            opened(self.folder)


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        with contextlib.suppress(KeyboardInterrupt):
            work(sys.argv[2], float(sys.argv[3]))
    else:
        BINARY = sys.argv.pop(1)
        unittest.main(verbosity=2)
