"""Laws of planted faults on the command line: verdicts, exit codes, the matrix. Usage: faults_test.py BINARY."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

BINARY = ""
CLEAN, FINDINGS, USAGE, NOTHING = 0, 1, 2, 3


def run(*args):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def matrix(*args, expect=CLEAN):
    code, out, err = run("faults", "--matrix", *args, "--budget-seconds", "0.2", "--format", "json")
    assert code == expect, (code, err)
    return json.loads(out)


def pair(report, fault, backend):
    (found,) = [p for p in report["matrix"] if (p["fault"], p["backend"]) == (fault, backend)]
    return found


class Mutants(unittest.TestCase):
    """A folder as `./dev recall` leaves it, with a program that says what its mutants' numbers stand for."""

    SAYS = {1: "echo 'found: num.bound'", 2: "echo 'missed: store_kv reads something else; shadowgraph fuzz --choices 3'", 3: "echo 'inert: '",
            4: "echo 'never acted: '", 5: "kill -SEGV $$", 6: "sleep 60", 7: "exit 2", 8: "echo nonsense"}  # fmt: skip

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        program = os.path.join(self.folder.name, "mutant_verdict")
        with open(program, "w") as file:
            cases = "".join(f"{number}) {does};;\n" for number, does in self.SAYS.items())
            file.write(f'#!/bin/sh\nprintf "%s " "$@" >> {self.folder.name}/told\ncase $1 in\n{cases}esac\n')
        os.chmod(program, 0o755)
        self.plan([{"id": f"room.operator.{n}", "switch": n, "file": "src/a.cc", "line": n, "text": "", "slip": "< to <="} for n in self.SAYS])

    def plan(self, mutants):
        with open(os.path.join(self.folder.name, "plan.json"), "w") as file:
            json.dump({"seed": 1, "mutants": mutants}, file)

    def hunt(self, *args):
        code, out, err = run("faults", "--mutants", self.folder.name, "--budget-seconds", "2", "--format", "json", *args)
        return code, json.loads(out) if out else err

    def test_have_the_verdicts_of_faults(self):
        code, report = self.hunt("--threads", "4")
        self.assertEqual(code, FINDINGS, report)
        rows = {int(row["id"].rsplit(".", 1)[1]): row for row in report["faults"]}
        self.assertEqual([rows[n]["verdict"] for n in sorted(rows)],
                         ["found", "missed", "inert", "never acted", "found", "found", "found", "found"])
        self.assertEqual([rows[n]["by"] for n in (1, 5, 6, 7, 8)],
                         [["num.bound"], ["crash: Segmentation fault"], ["hang"], ["crash: exit code 2"], ["crash: no verdict"]])
        (missed,) = report["findings"]
        self.assertEqual((missed["id"], missed["case"]), ("fault.missed", "room.operator.2"))
        self.assertIn("store_kv reads something else", missed["got"])
        self.assertIn("src/a.cc:2: < to <=", missed["got"])

    def test_are_chosen_by_id_and_hunted_on_one_backend(self):
        code, report = self.hunt("--id", "room.operator.1", "--backend", "ascend", "--cases", "7")
        self.assertEqual((code, len(report["faults"])), (CLEAN, 1))
        with open(os.path.join(self.folder.name, "told")) as file:
            self.assertEqual(file.read(), "1 7 ascend ")
        self.assertEqual(self.hunt("--id", "room.operator.3")[0], NOTHING)

    def test_of_a_folder_that_has_none_are_refused(self):
        self.assertEqual(self.hunt("--id", "other")[0], USAGE)
        self.plan([{"id": "room.operator.1"}])
        code, report = self.hunt()
        self.assertEqual((code, report["findings"][0]["id"]), (NOTHING, "case.field"))
        self.assertEqual(run("faults", "--mutants", os.path.join(self.folder.name, "none"))[0], NOTHING)


class Matrix(unittest.TestCase):
    def test_a_pair_is_found_inert_or_never_acted_and_says_why(self):
        report = matrix("--id", "K11a", "--id", "K11", "--backend", "ascend", "--backend", "dsa", "--cases", "60")
        self.assertEqual([(p["fault"], p["backend"]) for p in report["matrix"]],
                         [("K11a", "ascend"), ("K11a", "dsa"), ("K11", "ascend"), ("K11", "dsa")])
        found, never, inert = pair(report, "K11a", "ascend"), pair(report, "K11a", "dsa"), pair(report, "K11", "dsa")
        self.assertEqual((found["verdict"], never["verdict"], inert["verdict"]), ("found", "never acted", "inert"))
        self.assertGreater(found["acted"], 0)
        self.assertTrue(found["by"])
        self.assertNotIn("why", found)
        self.assertEqual((never["acted"], never["cases"]), (0, 60))
        self.assertRegex(never["why"], r"^no ")
        self.assertNotIn("reproducer", never)
        self.assertGreater(inert["acted"], 0)
        self.assertIn("nothing that anything reads", inert["why"])

    def test_a_reproducer_shows_its_verdict_again(self):
        report = matrix("--id", "K11", "--backend", "ascend", "--backend", "dsa", "--cases", "60")
        for backend, expect in (("ascend", FINDINGS), ("dsa", NOTHING)):
            command = pair(report, "K11", backend)["reproducer"].split()
            self.assertEqual(command[0], "shadowgraph")
            code, out, _ = run(*command[1:])
            self.assertEqual(code, expect, out)
            if expect == NOTHING:
                self.assertRegex(out, r"\nK11 inert: it acted \d+ times? in 1 case, and nothing that anything reads was changed")
                self.assertRegex(out.splitlines()[-1], r"^K11 inert: 1 case judged, 0 findings")

    def test_where_nothing_is_found_nothing_is_proved(self):
        code, out, _ = run("faults", "--matrix", "--id", "K31", "--backend", "gdn", "--cases", "10")
        self.assertEqual(code, NOTHING)
        self.assertRegex(out.splitlines()[-1], r"^nothing was found: 10 cases judged, 0 findings")
        self.assertIn("K31    .", out)

    def test_text_has_a_legend_a_mark_for_each_pair_and_reasons(self):
        code, out, _ = run("faults", "--matrix", "--id", "K31", "--id", "K11a", "--backend", "ascend", "--backend", "gdn",
                           "--cases", "30")
        self.assertEqual(code, CLEAN)
        for part in ("2 faults x 2 backends: # found 1, ! missed 0, o inert 0, . never acted 3", "  1 ascend", "  2 gdn",
                     "fault  12  found", "K11a   #.      1", "K31    ..      0", "never acted\nfault  columns  why"):
            self.assertIn(part, out)

    def test_a_model_without_an_encoder_is_told_so(self):
        out = run("faults", "--matrix", "--id", "K31", "--backend", "flashattention", "--backend", "gdn", "--cases", "60")[1]
        self.assertRegex(out, r"(?m)^K31    2        no encoder$")

    def test_every_format_has_the_pairs(self):
        args = ("faults", "--matrix", "--id", "K31", "--backend", "gdn", "--cases", "5", "--format")
        suite = xml.fromstring(run(*args, "junit")[1].split("\n", 1)[1])
        (case,) = [c for c in suite.iter("testcase") if c.get("name") == "gdn"]
        self.assertRegex(case.find("skipped").get("message"), r"^never acted: ")
        self.assertIn("never acted", run(*args, "html")[1])
        notes = json.loads(run(*args, "sarif")[1])["runs"][0]["invocations"][0]
        self.assertEqual(notes["exitCode"], NOTHING)
        self.assertIn("nothing was found", notes["toolExecutionNotifications"][0]["message"]["text"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            run(*args, "json", "--output", path)
            merged = json.loads(run("merge-reports", path, "--format", "json")[1])
            self.assertEqual(merged["matrix"][0]["verdict"], "never acted")

    def test_what_belongs_to_the_matrix_is_refused_elsewhere(self):
        for args in (("--backend", "gdn"), ("--matrix", "--diagnose"),
                     ("--matrix", "--backend", "gdm"), ("--matrix", "--id", "X00")):
            code, out, err = run("faults", "--id", "K31", *args)
            self.assertEqual((code, out), (USAGE, ""), args)
            self.assertIn("--", err)


def rows(*args):
    """Rows without their seconds, and findings."""
    report = json.loads(run("faults", *args, "--format", "json", "--threads", "1")[1])
    return [{**row, "seconds": 0} for row in report["faults"]], report["findings"], report["summary"]["cases"]


class Verdicts(unittest.TestCase):
    def test_a_budget_of_histories_gives_a_row_that_depends_on_its_fault_alone(self):
        budget = ("--cases", "150", "--seed", "3")
        together = rows("--id", "K31", "--id", "K11", "--id", "K48", *budget)
        alone = [rows("--id", fault, *budget) for fault in ("K31", "K11", "K48")]
        self.assertEqual(together[0], [row for part in alone for row in part[0]])
        self.assertEqual(together[1], [finding for part in alone for finding in part[1]])
        self.assertEqual(together[2], sum(part[2] for part in alone))
        self.assertLessEqual(max(row["cases"] for row in together[0]), 150)

    def test_faults_of_which_nothing_is_proved_are_named(self):
        code, out, _ = run("faults", "--id", "K31", "--id", "K11", "--cases", "1", "--threads", "1", "--format", "json")
        report = json.loads(out)
        void = [f"{row['id']} {row['verdict']}" for row in report["faults"] if not row["planted"]]
        self.assertEqual((code, bool(void)), (NOTHING, True), report["faults"])
        self.assertEqual(report["void"], ", ".join(void))
        self.assertEqual([w.split(":")[0] for w in report["warnings"]], void)

    def test_a_fault_of_the_catalogue_has_its_verdict(self):
        code, out, _ = run("faults", "--id", "K31", "--format", "json", "--budget-seconds", "120")
        self.assertEqual(code, CLEAN)
        self.assertEqual(json.loads(out)["faults"][0]["verdict"], "found")
        out = run("faults", "--id", "K31", "--budget-seconds", "120")[1]
        self.assertRegex(out.splitlines()[-1], r"^1 planted fault found, none missed: \d+ cases judged")

    def test_an_inert_fault_proves_nothing(self):
        code, out, _ = run("fuzz", "--backend", "dsa", "--plant", "K11", "--cases", "40")
        self.assertEqual(code, NOTHING)
        self.assertRegex(out.splitlines()[-1], r"^K11 inert: \d+ cases judged, 0 findings")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
