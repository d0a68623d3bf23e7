"""Laws of `check` on engine traces. Usage: traces_test.py BINARY TRACE_FOLDER."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
TRACES = ""
CLEAN, FINDINGS, BAD_INPUT = 0, 1, 3


def run(*args):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Traces(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.file = os.path.join(TRACES, "flashattention.current.jsonl")
        with open(self.file, "rb") as f:
            self.lines = f.read().splitlines(keepends=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content)
        return self.path(name)

    def report(self, *args, expect=FINDINGS):
        code, out, err = run("check", *args, "--format", "json")
        self.assertEqual(code, expect, err)
        return json.loads(out)

    def test_a_file_is_judged_line_by_line_and_adds_up(self):
        report = self.report(self.file)
        file, = report["files"]
        self.assertEqual((file["kind"], file["role"]), ("engine traces", "current"))
        self.assertEqual(file["cases"] + file["skipped"], len(self.lines))
        self.assertEqual(file["cases"], file["agreed"] + file["flagged"])
        for column in ("agreed", "flagged", "skipped"):
            self.assertEqual(file[column], sum(step[column] for step in file["steps"]))
        ids = {json.loads(line)["id"] for line in self.lines}
        self.assertEqual(len({f["case"] for f in report["findings"]} - ids), 0)
        self.assertEqual(len({f["case"] for f in report["findings"]}), file["flagged"])

    def test_a_finding_is_reproduced_by_its_command(self):
        finding = self.report(self.file)["findings"][0]
        shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)],
                               capture_output=True)
        self.assertEqual(shown.returncode, FINDINGS)
        self.assertIn(finding["got"].encode(), shown.stdout)

    def test_one_line_can_be_chosen(self):
        chosen = self.report(self.file)["findings"][0]["case"]
        report = self.report(self.file, "--case", chosen)
        self.assertEqual(report["summary"]["cases"], 1)
        self.assertEqual({f["case"] for f in report["findings"]}, {chosen})

    def test_a_bad_line_is_bad_input_and_stops_no_other(self):
        path = self.write("x.jsonl", self.lines[0] + b'{"id":\x00\n' + self.lines[1])
        report = self.report(path, expect=BAD_INPUT)
        bad = [f for f in report["findings"] if f["id"] == "io.line"]
        self.assertEqual([(f["case"], f["where"]["row"]) for f in bad], [(path, 2)])
        self.assertIn("column", bad[0]["got"])
        self.assertEqual(report["files"][0]["cases"], 2)

    def test_a_folder_holds_both_kinds_and_other_lines_are_passed_over(self):
        self.write("a.jsonl", self.lines[0])
        self.write("records.jsonl", b'{"program":"G001"}\n')
        report = self.report(self.folder, expect=CLEAN)
        self.assertEqual([os.path.basename(f["path"]) for f in report["files"]], ["a.jsonl"])

    def test_findings_can_be_waived_with_a_reason(self):
        flagged = self.report(self.file)["findings"]
        waivers = self.write("known.txt", b"# looked at\n\n*@" + flagged[0]["case"].encode() + b"  known, #1\n")
        report = self.report(self.file, "--waive", waivers)
        mine = [f for f in report["findings"] if f["case"] == flagged[0]["case"]]
        self.assertEqual({f["waived"] for f in mine}, {"known, #1"})
        self.assertEqual(report["summary"]["waived"], len(mine))
        self.assertEqual(report["summary"]["findings"], len(flagged) - len(mine))
        self.assertEqual(report["files"][0]["waived"], 1)
        everything = self.write("all.txt", b"* all\n")
        self.assertTrue(self.report(self.file, "--waive", everything, expect=CLEAN)["ok"])

    def test_a_waiver_needs_a_reason(self):
        waivers = self.write("known.txt", b"* all\ntable.slot\n")
        report = self.report(self.file, "--waive", waivers, expect=BAD_INPUT)
        self.assertEqual([f["where"]["row"] for f in report["findings"] if f["case"] == waivers], [2])
        self.report(self.file, "--waive", self.path("none"), expect=BAD_INPUT)

    def test_bad_input_cannot_be_waived(self):
        path = self.write("x.jsonl", self.lines[0] + b"{\n")
        waivers = self.write("all.txt", b"* all\n")
        self.report(path, "--waive", waivers, expect=BAD_INPUT)

    def test_backends_without_a_twin_are_skipped_and_nothing_judged_is_not_clean(self):
        line = json.loads(self.lines[0])
        line["backend"] = "tomorrow"
        path = self.write("x.jsonl", json.dumps(line).encode() + b"\n")
        report = self.report(path, expect=BAD_INPUT)
        self.assertEqual(report["files"][0]["skipped"], 1)
        self.assertIn("no twin of tomorrow yet", report["findings"][0]["got"])

    def test_the_text_has_a_row_for_every_mode_and_phase(self):
        out = run("check", self.file)[1]
        for step in {(json.loads(line)["mode"], json.loads(line)["phase"]) for line in self.lines}:
            self.assertRegex(out, r"%s +%s +\d" % step)


if __name__ == "__main__":
    BINARY, TRACES = os.path.abspath(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
