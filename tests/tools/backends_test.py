"""Laws of backends on the command line: listings, histories, planted faults, grids. Usage: backends_test.py BINARY."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = ""
CLEAN, FINDINGS, USAGE, BAD_INPUT = 0, 1, 2, 3


def run(*args):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def listed(kind):
    code, out, err = run("list", kind, "--format", "json")
    assert code == CLEAN, err
    listing = json.loads(out)
    assert (listing["schema"], listing["kind"]) == ("shadowgraph.list/1", kind), out
    return listing["items"]


class Fuzz(unittest.TestCase):
    def report(self, *args, expect=CLEAN):
        code, out, err = run("fuzz", *args, "--format", "json")
        self.assertEqual(code, expect, (args, err))
        report = json.loads(out)
        self.assertEqual((report["schema"], report["ok"]), ("shadowgraph.report/1", expect == CLEAN))
        return report

    def refused(self, *args, said):
        code, out, err = run("fuzz", *args)
        self.assertEqual((code, out), (USAGE, ""), (args, err))
        for word in said:
            self.assertIn(word, err)


class ReplayOfCalls(unittest.TestCase):
    """A file of one call; the fuzz target's seeds are some."""

    SEEDS = pathlib.Path(__file__).resolve().parents[1] / "fuzz/corpus/calls"

    def report(self, text, expect):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "call.json"
            path.write_text(text)
            code, out, err = run("replay", str(path), "--format", "json")
            self.assertEqual(code, expect, err)
            return json.loads(out)

    def test_a_call_runs_again(self):
        seeds = sorted(self.SEEDS.glob("*.json"))
        self.assertGreater(len(seeds), 3)
        for seed in seeds:
            self.assertEqual(self.report(seed.read_text(), CLEAN)["summary"]["cases"], 1)

    def test_what_is_found_is_said_with_the_file_and_what_cannot_run_is_refused(self):
        text = (self.SEEDS / "gdn-tree.json").read_text()
        # Data that is exact with a scale that is no power of two.
        (finding, *_) = self.report(text.replace('"scale": 1', '"scale": 0.3'), FINDINGS)["findings"]
        self.assertEqual(finding["id"], "num.exact")
        self.assertRegex(finding["reproduce"], r"^shadowgraph replay .*call\.json$")
        (finding,) = self.report(text.replace('"width": 4', '"width": 9'), BAD_INPUT)["findings"]
        self.assertEqual(finding["id"], "case.range")
        saved = self.report(text.replace('"law": ""', '"law": "num.exact"'), CLEAN)
        self.assertIn("num.exact, which is not found", saved["warnings"][0])
        path = str(self.SEEDS / "gdn-tree.json")
        self.assertEqual(run("replay", path, "--plant", "K31")[0], USAGE)


class ReplayOfHistories(unittest.TestCase):
    """K31 in a saved history: it changes a table in one step."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        run("fuzz", "--backend", "flashattention", "--plant", "K31", "--max-findings", "1", "--threads", "1", "--save-failures", cls.folder.name)
        (cls.path,) = (str(path) for path in pathlib.Path(cls.folder.name).glob("*.json"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def differs(self, *args, expect=FINDINGS):
        """What replay finds besides what K31 breaks."""
        code, out, err = run("replay", self.path, *args, "--format", "json")
        self.assertEqual(code, expect, (out, err))
        return [f for f in json.loads(out)["findings"] if f["id"] == "run.nondeterminism"]

    def test_every_step_is_shown_on_lines_of_its_own(self):
        code, out, _ = run("replay", self.path)
        self.assertEqual(code, FINDINGS)
        self.assertNotIn("\\x0a", out)
        self.assertTrue(any(line.startswith("step 2  ") for line in out.splitlines()), out)

    def test_a_run_is_as_itself_and_parts_from_a_clean_one_at_the_table_that_the_fault_changes(self):
        self.assertEqual(self.differs("--against", self.path), [])
        (found,) = self.differs("--clean", "--against", self.path)
        self.assertRegex(found["where"]["field"], r"^eager page_table\[1, 0\]$")
        self.assertRegex(found["case"], r"^step \d+$")
        self.assertRegex(found["expected"], r"^\d+ in ")
        self.assertNotEqual(found["got"], found["expected"].split()[0])
        self.assertIn("--clean --against", found["reproduce"])

    def test_a_digest_stands_for_a_run(self):
        planted, clean, fuzzed = (os.path.join(self.folder.name, name) for name in ("planted.txt", "clean.txt", "fuzzed.txt"))
        self.differs("--digest", planted)
        self.differs("--clean", "--digest", clean, expect=CLEAN)
        self.assertEqual(self.differs("--clean", "--against", clean, expect=CLEAN), [])
        (found,) = self.differs("--clean", "--against", planted)
        self.assertEqual(found["where"]["field"], "eager page_table")
        self.assertTrue(found["got"].startswith("hash "))
        choices = pathlib.Path(planted).read_text().splitlines()[1].split()[1]
        run("fuzz", "--choices", choices, "--backend", "flashattention", "--plant", "K31", "--digest", fuzzed)
        self.assertEqual(pathlib.Path(fuzzed).read_text(), pathlib.Path(planted).read_text())
        pathlib.Path(clean).write_text("shadowgraph.digest/1 x\nhistory 1.2\n")
        code, out, _ = run("replay", self.path, "--clean", "--against", clean, "--format", "json")
        self.assertEqual((code, json.loads(out)["findings"][0]["id"]), (BAD_INPUT, "io.kind"))


class Lists(unittest.TestCase):
    def test_every_kind_names_what_it_should(self):
        for kind, name in (("backends", "flashattention"), ("modes", "draft_extend_v2"), ("faults", "K31"),
                           ("grids", "decode")):
            code, out, _ = run("list", kind)
            self.assertEqual(code, CLEAN)
            self.assertRegex(out, r"(?m)^%s\b" % name)
            self.assertIn(name, [item.get("name", item.get("id")) for item in listed(kind)])

    def test_a_backend_serves_modes_that_exist(self):
        modes = {mode["name"] for mode in listed("modes")}
        for backend in listed("backends"):
            self.assertTrue(backend["modes"] and set(backend["modes"].split()) <= modes, backend)
            self.assertRegex(backend["page_size"], r"^(2\^n|\d+( \d+)*)$")

    def test_the_page_on_backends_has_the_list(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/backends.md")) as f:
            rows = [line for line in f if line.startswith("| `")]
        self.assertEqual(rows, ["| `%s` | %s | %s |\n" % (b["name"], b["page_size"], b["modes"])
                                for b in listed("backends")])

    def test_a_fault_names_the_thread_it_is_from_or_where_nobody_reported_it_the_law_that_it_breaks(self):
        for fault in listed("faults"):
            known = fault["id"].startswith("K")
            self.assertRegex(fault["refs"], r"^[\w.-]+[#@]\w+" if known else r"^([\w.-]+[#@]\w+|f[ai]\.I-\d+)", fault)

    def test_laws_of_backends_can_be_explained(self):
        for law in ("batch.mode", "batch.capacity", "table.unit", "len.baked_q", "graph.baked_scalar"):
            code, out, _ = run("explain", law)
            self.assertEqual(code, CLEAN)
            for part in (law + " (error)", "How to mend it:", "It stands on:"):
                self.assertIn(part, out)


class Histories(Fuzz):
    def test_only_the_chosen_backend_runs_in_both_phases_and_is_clean(self):
        report = self.report("--backend", "flashattention", "--cases", "20")
        self.assertEqual(report["summary"]["cases"] + report["summary"]["skipped"], 20)
        self.assertGreater(report["summary"]["cases"], 15)
        self.assertEqual({row["backend"] for row in report["coverage"]}, {"flashattention"})
        phases = {row["phase"] for row in report["coverage"]}
        self.assertTrue({"eager", "replay"} <= phases <= {"eager", "replay", "received"}, phases)

    def test_every_listed_backend_runs_its_own_modes_only(self):
        for backend in listed("backends"):
            rows = self.report("--backend", backend["name"], "--cases", "20")["coverage"]
            self.assertEqual({row["backend"] for row in rows}, {backend["name"]})
            self.assertLessEqual({row["mode"] for row in rows}, {*backend["modes"].split(), "prebuilt"})
            self.assertIn("eager", {row["phase"] for row in rows})

    def test_kernels_can_be_chosen_alone_and_beside_a_backend(self):
        replays = [row for row in self.report("--backend", "kernels", "--cases", "20")["coverage"]
                   if row["phase"] != "eager"]
        self.assertEqual(replays, [])
        both = self.report("--backend", "kernels", "--backend", "flashmla", "--cases", "20")["coverage"]
        names = {row["backend"] for row in both}
        self.assertTrue({"flashmla", "decode_paged"} <= names and "flashattention" not in names, names)

    def test_histograms_are_of_kernels_only(self):
        self.assertNotIn("keys (median", run("fuzz", "--backend", "flashmla", "--cases", "3")[1])
        self.assertIn("keys (median", run("fuzz", "--backend", "kernels", "--cases", "3")[1])

    def test_a_seed_and_number_are_one_history(self):
        rows = [self.report("--backend", "trtllm_mha", "--cases", "1", "--first", "5", "--threads", threads)["coverage"]
                for threads in ("1", "2")]
        self.assertEqual(rows[0], rows[1])

    def test_what_does_not_exist_is_refused_with_where_to_look(self):
        self.refused("--backend", "flashatention", said=["'flashatention'", "shadowgraph list backends"])
        self.refused("--plant", "X00", said=["'X00'", "shadowgraph list faults"])
        self.refused("--exhaustive", "decodes", said=["decodes", "verify"])

    def test_choices_are_numbers_with_dots_between(self):
        for bad in ("1.x", "1..2", ".1", "1.", "-1", "1,2", "99999999999"):
            self.refused("--choices=" + bad, said=["--choices", bad])
        self.refused("--choices", "1.2", "--seconds", "1", said=["--choices", "--seconds"])
        self.refused("--choices", "1.2", "--exhaustive", "decode", said=["--choices", "--exhaustive"])
        self.refused("--choices", "1.2", "--cases", "1", said=["--choices", "--cases"])
        self.refused("--choices", "1.2", "--first", "1", said=["--choices", "--first"])

    def test_choices_are_one_history(self):
        report = self.report("--choices", "0.1.3", "--backend", "flashattention")
        self.assertEqual(report["summary"]["cases"], 1)
        self.assertNotIn("warnings", report)
        self.assertEqual(report["coverage"], self.report("--choices", "0.1.3", "--backend", "flashattention")["coverage"])

    def test_choices_of_kernels_are_one_call(self):
        for choices in ("0", "8.3.0.1", "9.5.2.2.1"):
            report = self.report("--backend", "kernels", "--choices", choices)
            self.assertEqual(report["summary"]["cases"], 1)
            self.assertEqual(len(report["coverage"]), 1)
            self.assertNotIn("warnings", report)

    def test_choices_that_were_not_read_as_they_stand_are_said(self):
        for choices, said, code in (("0.9999.0", r"number 2 is 9999, out of range: read as \d+$", CLEAN),
                                    ("0." + "0." * 20000 + "7", r"\d+ of 20002 numbers not read", CLEAN),
                                    ("10010", r"number 1 is 10010, out of range: read as \d+$", BAD_INPUT),
                                    ("", r"the list is empty$", BAD_INPUT)):
            report = self.report("--choices", choices, expect=code)
            self.assertRegex(report["warnings"][0], "^--choices: " + said)
            out = run("fuzz", "--choices", choices, "--quiet")[1]
            self.assertRegex(out, r"(?m)^--choices: ")
            verdict = "clean" if code == CLEAN else "nothing of --choices was read"
            self.assertTrue(out.splitlines()[-1].startswith(verdict + ": 1 case judged, 0 findings"), out)
        self.assertNotIn("--choices", run("fuzz", "--choices", "0.0.0.1")[1])

    def test_what_has_no_histories_is_refused(self):
        self.refused("--exhaustive", "decode", "--backend", "kernels", said=["kernels have no histories"])
        self.refused("--exhaustive", "device-3", "--backend", "flashmla", said=["device-3"])
        self.refused("--exhaustive", "device-3", "--plant", "K31", said=["device-3"])

    def test_ctrl_c_ends_with_a_report(self):
        # A fault had no time to act: nothing is said of it.
        for args in (("--backend", "flashattention", "--seconds", "600"), ("--exhaustive", "extend"),
                     ("--backend", "kernels", "--plant", "K31", "--seconds", "600")):
            process = subprocess.Popen([BINARY, "fuzz", *args, "--threads", "1", "--format", "json"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            report = json.loads(process.communicate(timeout=60)[0])
            self.assertEqual((process.returncode, report["ok"], report["interrupted"]), (CLEAN, True, True), args)
            self.assertGreater(report["summary"]["cases"], 0)


class Planted(Fuzz):
    def again(self, finding):
        """Exit code and stdout of the command that a finding prints."""
        shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)],
                               capture_output=True, text=True, timeout=300)
        return shown.returncode, shown.stdout

    def test_a_fault_is_found_and_its_finding_repeats(self):
        for fault in ("K01", "K11a", "K13", "K36", "K64", "K77"):
            report = self.report("--plant", fault, "--max-findings", "1", "--seconds", "120", expect=FINDINGS)
            finding = report["findings"][0]
            self.assertRegex(finding["reproduce"], r"^shadowgraph fuzz --choices [\d.]+ --plant %s$" % fault)
            code, out = self.again(finding)
            self.assertEqual(code, FINDINGS)
            self.assertIn("error " + finding["id"], out)
            self.assertIn(finding["got"], out)

    def test_without_its_fault_the_same_history_is_clean(self):
        report = self.report("--backend", "flashattention", "--plant", "K31", "--max-findings", "1", "--seconds", "120",
                             expect=FINDINGS)
        self.assertEqual(report["findings"][0]["where"]["backend"], "flashattention")
        command = report["findings"][0]["reproduce"].replace(" --plant K31", "")
        self.assertEqual(self.again({"reproduce": command})[0], CLEAN)

    def readmes_finding(self):
        """Its lines, and the command that shows it again."""
        with open(os.path.join(os.path.dirname(__file__), "../../README.md")) as f:
            shown = re.search(r"    error \S+ seed .*?\n\n", f.read(), re.S)[0].splitlines()
        command, = [line.split(None, 1)[1] for line in shown if line.startswith("      reproduce ")]
        return shown, command

    def test_the_readmes_finding_is_printed_so(self):
        shown, command = self.readmes_finding()
        code, out = self.again({"reproduce": command})
        self.assertEqual(code, FINDINGS)
        for line in shown[1:-1]:
            self.assertIn(line.removesuffix(" …").strip(), out)

    def test_a_fault_that_a_grid_finds_repeats(self):
        report = self.report("--exhaustive", "draft", "--plant", "K04", "--max-findings", "1", expect=FINDINGS)
        finding = report["findings"][0]
        self.assertRegex(finding["reproduce"], r"^shadowgraph fuzz --exhaustive draft --backend flashattention "
                                               r"--first \d+ --cases 1 --plant K04$")
        self.assertEqual(finding["where"]["mode"], "draft_decode")
        self.assertEqual(len(set(finding["refs"])), len(finding["refs"]))
        code, out = self.again(finding)
        self.assertEqual(code, FINDINGS)
        for part in (finding["id"], finding["case"], finding["reproduce"], "1 case judged"):
            self.assertIn(part, out)

    def test_a_fault_that_never_acts_is_said_and_is_not_clean(self):
        for args in (("--backend", "trtllm_mha", "--cases", "3"), ("--backend", "kernels", "--cases", "3"),
                     ("--exhaustive", "decode", "--backend", "flashattention", "--cases", "3")):
            code, out, err = run("fuzz", *args, "--plant", "K31")
            self.assertEqual(code, BAD_INPUT, err)
            self.assertRegex(out, r"\nK31 never acted: no step of this run has what it changes")
            self.assertRegex(out.splitlines()[-1], r"^K31 never acted: 3 cases judged, 0 findings")

    def test_a_fault_that_is_found_is_said_with_the_law(self):
        code, out = self.again({"reproduce": self.readmes_finding()[1]})
        self.assertEqual(code, FINDINGS)
        self.assertRegex(out.splitlines()[-1], r"^K31: found by table\.slot, len\.kv_extent.*; not clean: 1 case judged, ")

    def test_a_fault_that_acts_and_is_not_noticed_fails(self):
        for number in range(40):
            code, out, _ = run("fuzz", "--backend", "flashmla", "--plant", "K17", "--first", str(number), "--cases", "1")
            if "K17 never acted" in out or "fault.missed" not in out:
                continue
            self.assertEqual(code, FINDINGS)
            self.assertRegex(out, r"none: it acted \d+ times? in 1 case; give it more cases: --cases")
            self.assertRegex(out.splitlines()[-1], r"^not noticed: K17: 1 case judged, 1 finding")
            return
        self.fail("it was noticed wherever it acted")

    def test_every_fault_that_never_acts_is_named_once(self):
        out = run("fuzz", "--backend", "kernels", "--cases", "1", "--plant", "K31", "--plant", "K04", "--plant", "K31")[1]
        self.assertRegex(out.splitlines()[-1], r"^K04 never acted, K31 never acted: 1 case judged")
        self.assertEqual(out.count("K31 never acted: no step"), 1)

    def test_a_history_of_which_the_backend_runs_nothing_is_no_case(self):
        runs = [run("fuzz", "--backend", "flashattention_two_batch", "--first", str(n), "--cases", "1")[:2]
                for n in range(40)]
        self.assertEqual({code for code, _ in runs}, {CLEAN, BAD_INPUT})
        for code, out in runs:
            judged = out.splitlines()[-1]
            if code == CLEAN:
                self.assertRegex(judged, r"^clean: 1 case judged, 0 findings, [\d.]+ s$")
                continue
            self.assertIn("the history has no step that its backend runs", out)
            self.assertRegex(judged, r"^nothing was judged: 0 cases judged, 0 findings, 1 skipped")
        report = self.report("--backend", "trtllm_mla_two_batch", "--cases", "30")
        self.assertEqual(report["summary"]["cases"] + report["summary"]["skipped"], 30)
        self.assertGreater(report["summary"]["skipped"], 0)


class Grids(Fuzz):
    def test_every_small_decode_runs_eagerly_and_as_a_replay_of_one_backend_after_the_other(self):
        steps, refused = 18576, 480  # one request has no two halves
        grid, = [g for g in listed("grids") if g["name"] == "decode"]
        self.assertEqual(int(grid["programs"]), steps)
        report = self.report("--exhaustive", "decode", "--backend", "flashattention", "--backend", "flashattention_two_batch")
        self.assertEqual((report["summary"]["cases"], report["summary"]["skipped"]), (2 * steps - refused, refused))
        self.assertEqual(report["coverage"], [
            {"backend": backend, "mode": "decode", "phase": phase, "cases": cases}
            for backend, cases in (("flashattention", steps), ("flashattention_two_batch", steps - refused))
            for phase in ("eager", "replay")])

    def test_the_text_ends_with_a_verdict(self):
        out = run("fuzz", "--choices", "0.0.0.1")[1]
        self.assertTrue(re.search(r"\nclean: 1 case judged, 0 findings, [\d.]+ s\n\Z", out), out)

    def test_a_part_of_a_grid_is_run_by_its_numbers(self):
        for grid, first, cases in (("decode", "100", 7), ("device-3", "100", 7), ("device-5", "1306820", 12), ("call-mutate", "100", 7)):
            report = self.report("--exhaustive", grid, "--first", first, "--cases", "7" if cases == 7 else "100")
            self.assertEqual(report["summary"]["cases"], cases)

    def test_a_grid_of_other_layers_runs_by_the_backends_that_have_them(self):
        report = self.report("--exhaustive", "states", "--shard", "1/400")
        self.assertEqual({row["backend"] for row in report["coverage"] if row["cases"]},
                         {"mamba2", "gdn", "kda", "lightning"})

    def test_a_run_that_judged_nothing_says_why_and_is_not_clean(self):
        for grid, args, why in (("decode", ("--backend", "flashmla"), "none of its steps is served"),
                                ("decode", ("--first", "18576"), "--first: decode has 18576 cases"),
                                ("device-3", ("--first", "3621"), "--first: device-3 has 3621 cases"),
                                ("device-3", ("--cases", "2", "--shard", "3/3"), "none of these cases is of this shard")):
            code, out, _ = run("fuzz", "--exhaustive", grid, *args)
            self.assertEqual(code, BAD_INPUT)
            self.assertIn(why, out)
            self.assertRegex(out.splitlines()[-1], "^nothing was judged: 0 cases")


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
