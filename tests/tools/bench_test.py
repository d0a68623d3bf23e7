"""Laws of the verb `bench`: what it says, not how fast anything is. Usage: bench_test.py BINARY."""

import copy
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

BINARY = ""
CLEAN, FINDINGS, USAGE, INTERNAL = 0, 1, 2, 4
# A small one with small probes, so that this takes no time where sanitizers make everything slow.
ROW = "decode_bf16_b1_4k_t1"
PROBES = ("--probe-mib", "32")


def run(*args, env=None, cpus=None):
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    done = subprocess.run([BINARY, "bench", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=500,
                          text=True, env={**os.environ, **(env or {})}, preexec_fn=pin)
    return done.returncode, done.stdout, done.stderr


def report_of(*args, env=None, cpus=None):
    code, out, err = run(*args, "--format", "json", env=env, cpus=cpus)
    assert code == CLEAN, err
    return json.loads(out)


@functools.cache
def one_round():
    """A report of one round of ROW. It is measured once, since the probes take seconds. Do not change it."""
    return report_of("--rows", ROW, *PROBES, "--rounds", "1", "--threads", "1")


class Bench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def test_a_row_has_the_keys_of_the_contract(self):
        report = one_round()
        self.assertEqual((report["schema"], report["verb"]), ("shadowgraph.report/1", "bench"))
        self.assertEqual((report["ok"], report["summary"]["cases"]), (True, 1))
        row, = report["bench"]
        for key, kind in {"shape": str, "ratio": float, "of": str, "ms": float, "gbps": float, "gflops": float,
                          "rounds": int, "quiet": bool, "goal": float, "goal_is": str, "reached": bool, "low": float,
                          "high": float, "threads": int, "dtype": str, "arith": str, "isa": str, "text": str,
                          "probes": dict}.items():
            self.assertIsInstance(row[key], kind, key)
        self.assertEqual((row["shape"], row["of"], row["threads"], row["goal"]), (ROW, "page_gather", 1, 1.0))
        self.assertLessEqual(row["low"], row["ratio"])
        self.assertLessEqual(row["ratio"], row["high"])
        self.assertGreater(row["ms"], 0)
        self.assertTrue(report["machine"]["cpu"])
        self.assertTrue(report["machine"]["OMP_WAIT_POLICY"])

    def test_one_round_is_never_quiet_and_no_goal_is_reached_by_it(self):
        row, = one_round()["bench"]
        self.assertEqual((row["quiet"], row["reached"]), (False, False))
        text = run("--rows", ROW, *PROBES, "--rounds", "1", "--threads", "1")[1]
        # Beside other work a probe may fall below its floor too: then the row is void, which is said first.
        self.assertRegex(text, f"(NOT QUIET, no figure to keep|void: ).*: {ROW}\n")
        self.assertTrue(text.splitlines()[-1].startswith("clean: 1 case judged"))

    def test_small_probes_make_a_row_over_memory_void(self):
        row, = report_of("--rows", ROW, "--probe-mib", "2", "--rounds", "1", "--threads", "1")["bench"]
        self.assertIn("last-level caches", row["void"])
        code, out, err = run("--peers", "--probe-mib", "2")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("--probe-mib", err)

    def test_every_probe_has_a_figure_or_a_reason(self):
        probes = one_round()["probes"]
        self.assertLessEqual({"stream_read", "page_gather", "fma_peak", "bf16_peak", "amx_peak"}, set(probes))
        for name, probe in probes.items():
            self.assertTrue("gbps" in probe or "gflops" in probe or probe["void"], name)

    def test_what_this_machine_cannot_run_is_void_and_says_why(self):
        # On one processor there is no second core.
        one = {min(os.sched_getaffinity(0))}
        code, out, _ = run("--rows", "scaling_prefill_2t", "--format", "json", cpus=one)
        report = json.loads(out)
        row, = report["bench"]
        self.assertIn(row["void"], ("needs 2 cores, there are 1", "needs 2 threads, there can be 1"))
        self.assertEqual((code, row["reached"], row["rounds"]), (CLEAN, False, 0))
        for key in ("ratio", "low", "high", "ms", "gbps", "gflops"):
            self.assertNotIn(key, row)
        self.assertEqual((report["summary"]["cases"], report["summary"]["skipped"]), (0, 1))
        _, out, err = run("--rows", "scaling_prefill_2t", "--threads", "2", cpus=one)
        self.assertTrue(out.splitlines()[-1].startswith("nothing was judged: 0 cases judged"))
        self.assertIn("2 threads are too many", err)

    def test_a_bound_first_thread_hides_no_processor(self):
        bound = report_of("--rows", ROW, *PROBES, "--rounds", "1", "--threads", "1", env={"OMP_PROC_BIND": "true"})
        self.assertEqual(one_round()["machine"]["cores"], bound["machine"]["cores"])

    def written(self, name, report):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            json.dump(report, file)
        return path

    def quiet_report(self):
        """A report whose row is quiet, whatever else this machine does: the figures are made up."""
        report = copy.deepcopy(one_round())
        report["bench"][0].update(ratio=0.8, low=0.795, high=0.805, quiet=True)
        report["bench"][0].pop("void", None)
        return report

    def test_two_reports_are_compared_without_a_run(self):
        old = self.quiet_report()
        old_path = self.written("old.json", old)
        code, out, err = run("--against", old_path, "--from", old_path)
        self.assertEqual(code, CLEAN, err)
        self.assertRegex(out, ROW + r" +same +0\.800 +0\.800 +1\.000\n")
        lost = json.loads(json.dumps(old))
        for key in ("ratio", "low", "high"):
            lost["bench"][0][key] *= 0.95
        lost["machine"]["cpu"] = "abacus"
        lost_path = self.written("lost.json", lost)
        code, out, _ = run("--against", old_path, "--from", lost_path, "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["against"]["file"]), (FINDINGS, old_path))
        self.assertEqual(report["against"]["rows"], [{"shape": ROW, "was": 0.8, "is": 0.76, "verdict": "lost"}])
        self.assertEqual(report["findings"][0]["id"], "bench.lost")
        self.assertIn("now abacus", report["warnings"][0])
        code, out, _ = run("--against", old_path, "--from", lost_path, "--rows", "prefill*")
        self.assertEqual(code, 3)
        self.assertIn("nothing was compared", out)

    def test_a_run_is_compared_with_an_older_report(self):
        old = self.written("old.json", self.quiet_report())
        code, out, _ = run("--rows", ROW, *PROBES, "--rounds", "1", "--threads", "1", "--against", old)
        self.assertEqual(code, 3)  # one round is never quiet
        self.assertRegex(out, ROW + " +not compared: new is (not quiet|void) ")

    def test_what_cannot_be_compared_is_refused_before_any_time_is_spent(self):
        fuzz = json.loads(subprocess.run([BINARY, "fuzz", "--cases", "1", "--quiet", "--format", "json"],
                                         capture_output=True, text=True, check=True).stdout)
        for path, law in ((os.path.join(self.folder, "none.json"), "io.open"),
                          (self.written("fuzz.json", fuzz), "io.report"),
                          (self.written("half.json", {"schema": "shadowgraph.report/1"}), "io.report")):
            code, out, _ = run("--against", path, "--format", "json")
            report = json.loads(out)
            self.assertEqual((code, report["findings"][0]["id"]), (3, law))
            self.assertNotIn("bench", report)
        code, out, err = run("--from", "new.json")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("--against", err)

    def test_peers_are_a_markdown_table_and_what_is_absent_is_said(self):
        args = ("--peers", "--rows", "prefill_bf16_fast_512", "--rounds", "1")
        code, out, err = run(*args, "--peer-library", os.path.join(self.folder, "libabacus.so"),
                             "--peer-times", self.written("torch.json", {"peer": "torch 9", "threads": 1, "ms": {
                                 "prefill_bf16_fast_512": 2.5}}))
        self.assertEqual(code, CLEAN, err)
        self.assertRegex(out, r"\| row \| ours, ms \|.* torch 9, ms \| torch 9 / ours \|\n")
        self.assertRegex(out, r"\| prefill_bf16_fast_512 \| [0-9.]+ \|.* 2\.5 \| [0-9.]+ \|\n")
        self.assertIn("libabacus.so", out)
        item, = json.loads(run(*args, "--format", "json")[1])["items"]
        self.assertEqual(item["row"], "prefill_bf16_fast_512")
        code, out, err = run("--peers", "--rows", "window*")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("dense", err)

    def test_a_row_that_does_not_exist_is_refused_with_the_nearest(self):
        code, out, err = run("--rows", "decode_f32_b1_4")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("decode_f32_b1_4k", err)
        for args in (("--rounds", "0"), ("--rounds", "x"), ("--plot", os.path.join(self.folder, "none")),
                     ("--rows", "decode*,zebra")):
            code, out, err = run(*args)
            self.assertEqual((code, out), (USAGE, ""), args)
            self.assertIn(args[0], err)

    def test_the_list_has_every_row_with_its_goal(self):
        items = json.loads(run("--list", "--format", "json")[1])["items"]
        rows = {item["row"]: item for item in items}
        self.assertEqual(rows["prefill_f32_2048_vs_openblas"]["of"], "peer:openblas")
        self.assertEqual(rows["ragged_f32"]["goal"], "<= 1.15")
        for item in items:
            self.assertTrue(item["what"])

    def test_the_list_has_the_rows_that_were_chosen(self):
        items = json.loads(run("--list", "--rows", "ragged*,scaling_*", "--format", "json")[1])["items"]
        self.assertEqual([i["row"] for i in items], ["ragged_f32", "scaling_prefill_2t", "scaling_decode_hot_2t"])
        code, out, err = run("--list", "--rows", "zebra")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("zebra", err)

    def test_a_plot_that_cannot_be_written_does_not_lose_the_report(self):
        os.mkdir(os.path.join(self.folder, "share_of_limit.svg"))
        code, out, err = run("--rows", ROW, *PROBES, "--rounds", "1", "--threads", "1", "--plot", self.folder, "--format", "json")
        self.assertEqual(code, INTERNAL)
        self.assertEqual(json.loads(out)["bench"][0]["shape"], ROW)
        self.assertIn("share_of_limit.svg", err)

    def test_ctrl_c_ends_with_what_there_is(self):
        process = subprocess.Popen([BINARY, "bench", *PROBES, "--rounds", "1000", "--format", "json"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(10)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        report = json.loads(out)
        self.assertEqual((process.returncode, report["interrupted"]), (CLEAN, True))
        self.assertLessEqual(len(report["bench"]), 2)
        last = report["bench"][-1]
        self.assertEqual(last["interrupted"], True)
        self.assertLess(last["rounds"], 1000)

    def test_after_ctrl_c_no_plot_is_overwritten(self):
        plot = os.path.join(self.folder, "share_of_limit.svg")
        with open(plot, "w") as old:
            old.write("old")
        process = subprocess.Popen([BINARY, "bench", "--rows", ROW, *PROBES, "--rounds", "1000", "--threads", "1", "--plot",
                                    self.folder],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   text=True)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        self.assertIn("interrupted", out)
        self.assertEqual(os.listdir(self.folder), ["share_of_limit.svg"])
        with open(plot) as still:
            self.assertEqual(still.read(), "old")

    def test_a_full_output_is_said(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BINARY, "bench", "--list"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 4)
        self.assertIn("cannot write", done.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
