"""Laws of campaigns on the command line, with real workers. Usage: ledger_test.py BINARY BAD_MACHINE, a library to be
preloaded or "none"; LedgerKill is long."""

import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY, BAD_MACHINE = "", ""
CLEAN, FINDINGS, USAGE, REFUSED, INTERNAL = 0, 1, 2, 3, 4
SEED = ("--seed", "7")


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="shadowgraph.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ledger = self.folder / "ledger"

    def arguments(self, *args, ledger=None):
        return [BINARY, "fuzz", *SEED, "--ledger", str(ledger or self.ledger), *args]

    def start(self, *args, ledger=None, **more):
        """A worker."""
        return subprocess.Popen(
            self.arguments(*args, ledger=ledger), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more
        )

    def work(self, *args, ledger=None, expect=CLEAN, **more):
        """The report that a worker prints."""
        done = subprocess.run(
            self.arguments("--format", "json", *args, ledger=ledger), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=600, **more
        )  # fmt: skip
        self.assertEqual(done.returncode, expect, done.stdout[-2000:] + done.stderr)
        return json.loads(done.stdout)

    def plain(self, *args):
        """The report of one uninterrupted run, without what a ledger leaves out."""
        command = [BINARY, "fuzz", *SEED, "--threads", "1", "--format", "json", *args]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        return self.bare(json.loads(done.stdout))

    def unnamed(self, report):
        """A report as a segment holds it: bits say which pairs of levels no case had, and no names do."""
        pairs = {kind: {key: value for key, value in of.items() if key != "unmet"} for kind, of in report["pairs"].items()}
        return {**report, "pairs": pairs}

    def bare(self, report):
        return {**report, "isa": "", "threads": 0, "summary": {**report["summary"], "seconds": 0}}

    def result(self, ledger=None):
        """The report of a complete campaign of one segment."""
        return self.bare(json.loads(((ledger or self.ledger) / "seg/0.json").read_text()))

    def verdict(self, ledger):
        """The campaign's, as merge-reports states it."""
        command = [BINARY, "merge-reports", str(ledger), "--format", "json"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        return self.bare(json.loads(done.stdout))

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)


class Ledger(Folder):
    def test_ledger_union(self):
        plain = self.plain("--cases", "120")
        for workers, children, size in ((1, 2, 16), (3, 1, 16), (7, 2, 64), (2, 4, 1)):
            with self.subTest(workers=workers, children=children, size=size):
                ledger = self.folder / f"{workers}-{children}-{size}"
                args = ("--cases", "120", "--range", str(size), "--threads", str(children))
                running = [self.start(*args, ledger=ledger) for _ in range(workers)]
                self.assertEqual({worker.wait(timeout=600) for worker in running}, {CLEAN})
                self.assertEqual(self.result(ledger), self.unnamed(plain))
                self.assertEqual(self.verdict(ledger), plain)

    def test_cases_that_run_alone_have_the_same_results(self):
        self.work("--cases", "48", "--range", "16", ledger=self.folder / "plain")
        (self.ledger / "lost").mkdir(parents=True)
        (self.ledger / "run.json").write_bytes((self.folder / "plain/run.json").read_bytes())
        note = json.dumps({"worker": "lost", "at": 3, "alone": False}) + "\n"
        (self.ledger / "lost/1").write_text(3 * note)
        self.work("--cases", "48", "--range", "16")
        self.assertEqual((self.ledger / "seg/0.json").read_bytes(), (self.folder / "plain/seg/0.json").read_bytes())

    def test_ledger_fault(self):
        fault = ("--plant", "K11a", "--backend", "ascend", "--cases", "4", "--max-findings", "100")
        plain = self.plain(*fault)
        self.assertTrue(plain["findings"])
        args = (*fault, "--range", "2", "--threads", "1", "--stale-seconds", "0.5")
        claim, lost = self.ledger / "seg/0/claim/0", self.ledger / "lost/0"
        for deaths in range(2):
            worker = self.start(*args)
            self.wait_for(lambda: claim.exists() and (deaths == 0 or lost.exists()))
            worker.kill()
            worker.wait()
        self.work(*args, expect=FINDINGS)
        self.assertEqual(lost.read_text().count("\n"), 2)
        self.assertEqual(self.result()["findings"], plain["findings"])
        self.assertEqual(self.result()["planted"], plain["planted"])
        self.assertTrue(any((self.ledger / "corpus").rglob("*.json")))

    def test_ledger_clock(self):
        if BAD_MACHINE == "none":
            self.skipTest("nothing can be preloaded")
        args = ("--cases", "120", "--range", "8", "--threads", "1", "--stale-seconds", "20")
        ahead = subprocess.run([sys.executable, "-c", "import time; print(time.time())"], capture_output=True, text=True,
                               env={**os.environ, "LD_PRELOAD": BAD_MACHINE, "BAD_CLOCK": "3600"})  # fmt: skip
        self.assertGreater(float(ahead.stdout), time.time() + 1800)
        running = []
        for ahead in (0, 3600, -3600):
            running.append(self.start(*args, env={**os.environ, "LD_PRELOAD": BAD_MACHINE, "BAD_CLOCK": str(ahead)}))
        self.assertEqual({worker.wait(timeout=600) for worker in running}, {CLEAN})
        self.assertEqual(self.result(), self.unnamed(self.plain("--cases", "120")))
        self.assertFalse((self.ledger / "lost").exists())

    def test_a_file_server_that_repeats_requests_loses_nothing(self):
        if BAD_MACHINE == "none":
            self.skipTest("nothing can be preloaded")
        args = ("--cases", "120", "--range", "2", "--threads", "1", "--stale-seconds", "1")
        bad = {**os.environ, "LD_PRELOAD": BAD_MACHINE, "BAD_REPLIES": "6"}
        running = [self.start(*args, env=bad) for _ in range(3)]
        self.assertLessEqual({worker.wait(timeout=600) for worker in running}, {CLEAN})
        self.work(*args)  # joins what is left to join
        self.assertEqual(self.result(), self.unnamed(self.plain("--cases", "120")))

    def test_ledger_full(self):
        def small_disk():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

        args = ("--cases", "32", "--range", "16", "--threads", "2", "--stale-seconds", "1")
        report = self.work(*args, expect=INTERNAL, preexec_fn=small_disk, restore_signals=False)
        self.assertIn("io.write", [f["id"] for f in report["findings"]])
        left = [p.name for p in self.ledger.rglob("*") if p.is_file() and "claim" not in str(p)]
        self.assertEqual(left, ["run.json"])
        self.work(*args)
        self.assertEqual(self.result(), self.unnamed(self.plain("--cases", "32")))

    def test_ctrl_c_in_one_process_group_gives_all_ranges_back(self):
        args = ("--cases", "100000", "--range", "5000", "--threads", "2")
        first = self.start(*args, start_new_session=True)
        self.wait_for(lambda: len(list(self.ledger.glob("seg/0/claim/*"))) >= 2)
        os.killpg(first.pid, signal.SIGINT)
        self.assertIn(first.wait(timeout=60), (CLEAN, REFUSED))
        self.wait_for(lambda: not list(self.ledger.glob("seg/0/claim/*")), 0.1)
        self.assertFalse((self.ledger / "lost").exists())

    def test_another_campaign_is_refused(self):
        self.work("--cases", "16", "--range", "16")
        report = self.work("--cases", "17", "--range", "8", "--backend", "ascend", expect=REFUSED)
        self.assertEqual(sorted(f["where"]["field"] for f in report["findings"]), ["cases", "chosen", "range"])
        self.assertEqual({f["id"] for f in report["findings"]}, {"io.ledger"})
        (self.folder / "full").mkdir()
        (self.folder / "full/thesis.tex").write_text("")
        self.work("--cases", "16", ledger=self.folder / "full", expect=REFUSED)

    def test_a_corpus_is_played_and_what_is_no_case_is_a_finding(self):
        (self.ledger / "corpus/num.bound").mkdir(parents=True)
        (self.ledger / "corpus/num.bound/0.json").write_text("no case")
        (self.ledger / "corpus/.hidden").mkdir()
        (self.ledger / "corpus/.hidden/0.json").write_text("no case")
        report = self.work("--cases", "16", "--range", "16", expect=FINDINGS)
        self.assertEqual({f["case"] for f in report["findings"]}, {"corpus/num.bound/0.json"})
        self.assertEqual(json.loads((self.ledger / "run.json").read_text())["corpus"], ["num.bound/0.json"])

    def test_a_worker_says_what_its_verdict_is_of(self):
        report = self.work("--cases", "16", "--range", "16")
        self.assertIn("complete, 1 of 1 ranges are done", report["warnings"][0])
        report = self.work("--cases", "16", "--range", "16")
        self.assertIn("verdict on 0 ranges", report["warnings"][0])


class Shards(Folder):
    def shard(self, expect=CLEAN, args=(), **environment):
        command = [BINARY, "fuzz", "--cases", "8", "--backend", "kernels", "--format", "json", *args]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr if expect == USAGE else json.loads(done.stdout).get("shard", "")

    def test_a_test_runner_that_shards_is_understood(self):
        status = self.folder / "status"
        self.assertEqual(self.shard(TEST_SHARD_INDEX="1", TEST_TOTAL_SHARDS="4", TEST_SHARD_STATUS_FILE=str(status)), "2/4")
        self.assertTrue(status.exists())

    def test_what_is_said_goes_before_it(self):
        two = {"TEST_SHARD_INDEX": "1", "TEST_TOTAL_SHARDS": "4"}
        self.assertEqual(self.shard(args=("--shard", "3/4"), **two), "3/4")
        self.assertEqual(self.shard(TEST_SHARD_INDEX="0", TEST_TOTAL_SHARDS="1"), "")

    def test_what_is_half_said_or_no_shard_is_refused(self):
        for index, count in (("1", None), (None, "4"), ("1", "many"), ("-1", "4"), ("4", "4"), ("", "4"), ("0", "0")):
            given = {"TEST_SHARD_INDEX": index, "TEST_TOTAL_SHARDS": count}
            with self.subTest(given):
                out = self.shard(USAGE, **{name: value for name, value in given.items() if value is not None})
                self.assertIn(f"'{index or ''}' of '{count or ''}' is no shard", out)

    def test_its_parts_are_the_run(self):
        cases = 0
        for index in range(3):
            done = subprocess.run([BINARY, "fuzz", "--cases", "8", "--format", "json"], capture_output=True, text=True, timeout=600,
                                  env={**os.environ, "TEST_SHARD_INDEX": str(index), "TEST_TOTAL_SHARDS": "3"})  # fmt: skip
            summary = json.loads(done.stdout)["summary"]
            cases += summary["cases"] + summary["skipped"]
        self.assertEqual(cases, 8)


class LedgerKill(Folder):
    def test_ledger_kill(self):
        cases = ("--cases", "1000")
        # Short ranges: a case of which three workers are lost while they run it alone is given up, as it should be.
        args = (*cases, "--range", "4", "--stale-seconds", "1")  # of one segment, which holds 256
        draw, killed, running, stopped, done = random.Random(5), 0, [], set(), False
        while not done:
            while len(running) < 3:
                running.append(self.start(*args, "--threads", str(1 + draw.randrange(2))))
            time.sleep(draw.uniform(1, 2.5))  # a worker needs a second before its first case
            one = draw.choice(running)
            if one.pid in stopped:
                stopped.discard(one.pid)
                one.send_signal(signal.SIGCONT)
            elif draw.random() < 0.3:
                stopped.add(one.pid)
                one.send_signal(signal.SIGSTOP)
            else:
                one.kill()
                killed += 1
            for worker in list(running):
                if worker.poll() is None:
                    continue
                running.remove(worker)
                stopped.discard(worker.pid)
                self.assertIn(worker.returncode, (CLEAN, -signal.SIGKILL))
                done |= worker.returncode == CLEAN
        for worker in running:
            worker.kill()
            worker.wait()
        self.work(*args)
        self.assertGreater(killed, 3)
        self.assertEqual(self.result(), self.unnamed(self.plain(*cases)))


if __name__ == "__main__":
    BINARY, BAD_MACHINE = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
