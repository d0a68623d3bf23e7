"""Laws of the verb `conformance`. Usage: conformance_test.py BINARY RECORD_FOLDER."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = ""
RECORDS = ""
CLEAN, FINDINGS, USAGE, BAD_INPUT, INTERNAL = 0, 1, 2, 3, 4


def run(*args, env=None):
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300, text=True,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def report_of(*args, env=None):
    """Exit code and report."""
    code, out, err = run("conformance", *args, "--format", "json", env=env)
    try:
        return code, json.loads(out)
    except json.JSONDecodeError as error:
        raise AssertionError(err) from error


class Conformance(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.known = os.path.join(RECORDS, "known.jsonl")
        with open(self.known) as f:
            self.lines = [json.loads(line) for line in f]

    def write(self, *records):
        path = os.path.join(self.folder, "records.jsonl")
        with open(path, "w") as f:
            f.writelines(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records)
        return path

    def recorded(self, case, variant="n.global"):
        return json.loads(json.dumps(next(r for r in self.lines if (r["id"], r.get("variant")) == (case, variant))))

    def refused(self, *args, said):
        code, out, err = run("conformance", *args)
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn(said, err)

    def test_every_record_is_judged_and_the_report_adds_up(self):
        code, report = report_of("--records", self.known, "--seeds", "1")
        self.assertEqual((code, report["ok"], report["findings"]), (CLEAN, True, []))
        rows = {(row["id"], row["variant"]) for row in report["conformance"]}
        self.assertEqual(rows, {(r["id"], r["variant"]) for r in self.lines[1:]})
        self.assertEqual(report["summary"]["cases"], len(rows))
        self.assertEqual({(row["class"], row["status"]) for row in report["conformance"]},
                         {("E", "equal"), ("S", "in_set"), ("U", "diagnosed")})
        file, = report["files"]
        self.assertEqual((file["kind"], file["cases"], file["agreed"]), ("graph records", len(rows), len(rows)))
        self.assertIn("recorded on NVIDIA H200", file["notes"][0])

    def test_the_records_that_come_along_are_the_default(self):
        self.assertEqual(report_of("--case", "G12")[1]["files"][0]["cases"], 2)
        files = [os.path.basename(file["path"]) for file in report_of("--seeds", "1")[1]["files"]]
        self.assertEqual(files, ["known.jsonl", "more.jsonl"])
        path = self.write(self.recorded("G01"))
        os.mkdir(os.path.join(self.folder, "cuda_graph"))
        os.rename(path, os.path.join(self.folder, "cuda_graph", "known.jsonl"))
        report = report_of(env={"SHADOWGRAPH_VECTORS": self.folder})[1]
        self.assertEqual([row["id"] for row in report["conformance"]], ["G01"])

    def test_a_record_that_was_changed_is_a_finding_that_repeats(self):
        record = self.recorded("G12")
        record["steps"][2]["ret"] = 901
        path = self.write(record, self.recorded("G01"))
        code, report = report_of("--records", path)
        self.assertEqual((code, report["ok"]), (FINDINGS, False))
        self.assertEqual([row["status"] for row in report["conformance"]], ["differs", "equal"])
        self.assertIn("cudaStreamEndCapture ret: 0, recorded 901", report["conformance"][0]["why"])
        finding, = report["findings"]
        self.assertEqual((finding["id"], finding["case"]), ("conformance.record", "G12 n.global"))
        self.assertEqual(finding["reproduce"],
                         f"shadowgraph conformance --records {path} --case G12 --variant n.global")
        shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)],
                               capture_output=True)
        self.assertEqual(shown.returncode, FINDINGS)
        self.assertIn(b"recorded 901", shown.stdout)

    def test_a_program_that_does_not_exist_is_skipped_and_a_finding(self):
        record = self.recorded("G12")
        record["id"] = "G999"
        other = {**self.recorded("G12"), "variant": "n.global.tomorrow"}
        code, report = report_of("--records", self.write(record, other))
        self.assertEqual((code, report["summary"]["skipped"], report["summary"]["cases"]), (FINDINGS, 2, 0))
        for row, name in zip(report["conformance"], ("G999", "n.global.tomorrow")):
            self.assertEqual(row["status"], "skipped")
            self.assertIn(name, row["why"])

    def test_a_line_that_cannot_be_read_is_bad_input_and_stops_no_other(self):
        path = self.write(self.recorded("G01"), "{\n", self.recorded("G12"))
        code, report = report_of("--records", path)
        self.assertEqual((code, report["bad_input"]), (BAD_INPUT, True))
        self.assertEqual([row["id"] for row in report["conformance"]], ["G01", "G12"])
        self.assertEqual([f["case"] for f in report["findings"]], [path + ":2"])

    def test_what_holds_no_record_is_bad_input(self):
        for path, law in ((self.write(), "io.kind"), (os.path.join(self.folder, "missing"), "io.open")):
            code, report = report_of("--records", path)
            self.assertEqual((code, [f["id"] for f in report["findings"]]), (BAD_INPUT, [law]))

    def test_own_answers_are_written_whole_and_compare_equal(self):
        path = os.path.join(self.folder, "sim.jsonl")
        self.assertEqual(report_of("--case", "G12", "--case", "G53", "--record", path)[0], CLEAN)
        self.assertEqual(os.listdir(self.folder), ["sim.jsonl"])
        code, report = report_of("--records", path)
        self.assertEqual((code, {row["status"] for row in report["conformance"]}), (CLEAN, {"equal"}))
        self.assertIn("recorded on simulated", report["files"][0]["notes"][0])
        code, _, err = run("conformance", "--case", "G12", "--record", "/nowhere/sim.jsonl")
        self.assertEqual(code, INTERNAL)
        self.assertIn("/nowhere", err)

    def test_without_records_programs_run_and_the_report_says_so(self):
        code, report = report_of("--records", "none", "--case", "G12", "--case", "G133")
        self.assertEqual(code, CLEAN)
        self.assertEqual({(row["class"], row["status"]) for row in report["conformance"]},
                         {("E", "skipped"), ("U", "diagnosed")})
        self.assertIn("no record to compare with", report["files"][0]["notes"][0])

    def test_what_cannot_be_asked_is_refused(self):
        self.refused("--case", "G012", said="did you mean")
        self.refused("--case", "G12", "--variant", "n.relaxed", said="--variant")
        self.refused("--seeds", "0", said="--seeds")

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "there is a GPU")
    def test_without_a_gpu_one_line_says_so_and_the_cpu_goes_on(self):
        code, out, err = run("conformance", "--device", "cuda", "--case", "G12", "--format", "json")
        self.assertEqual(code, CLEAN)
        self.assertEqual({row["status"] for row in json.loads(out)["conformance"]}, {"equal"})
        self.assertRegex(err, r"(?m)^shadowgraph: .*CUDA.*: going on with the CPU$")

    def test_the_list_is_what_would_be_run(self):
        items = json.loads(run("conformance", "--case", "G12", "--list", "--format", "json")[1])["items"]
        self.assertEqual([(i["id"], i["class"], i["variant"]) for i in items],
                         [("G12", "E", "b.global"), ("G12", "E", "n.global")])

    def test_every_program_can_be_explained(self):
        items = json.loads(run("list", "programs", "--format", "json")[1])["items"]
        self.assertEqual({r["id"] for r in self.lines[1:]} - {i["id"] for i in items}, set())
        for item in items[::20]:
            code, out, _ = run("explain", item["id"])
            self.assertEqual(code, CLEAN)
            self.assertIn(item["title"], out)
        self.assertIn("mem.stale_generation", run("explain", "G134")[1])

    def test_ctrl_c_ends_a_long_run_with_what_was_judged(self):
        process = subprocess.Popen([BINARY, "conformance", "--seeds", "1000000", "--format", "json"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual((process.returncode, report["interrupted"]), (CLEAN, True))
        self.assertLess(report["summary"]["cases"], len(self.lines))


if __name__ == "__main__":
    BINARY, RECORDS = (os.path.abspath(p) for p in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
