"""Laws of the command line: exit codes, formats, hostile names, Ctrl-C. Usage: cli_test.py BINARY VECTOR_FOLDER."""

import glob
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = ""
VECTORS = ""
VERBS = ("fuzz", "check", "conformance", "bench", "list", "explain", "merge-reports")
CLEAN, FINDINGS, USAGE, BAD_INPUT, INTERNAL = 0, 1, 2, 3, 4


def run(*args, env=None, cwd=None):
    """Exit code, stdout, stderr. Bytes that are not UTF-8 survive as surrogates."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
                          env={**os.environ, **(env or {})}, cwd=cwd)
    return done.returncode, *(s.decode("utf-8", "surrogateescape") for s in (done.stdout, done.stderr))


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def controls(text):
    return [c for c in text if (ord(c) < 0x20 and c != "\n") or 0x7F <= ord(c) < 0xA0]


class Folder(unittest.TestCase):
    """A test with a scratch folder of its own."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content)
        return self.path(name)


class Help(unittest.TestCase):
    def test_help_mentions_every_verb_the_exit_codes_and_the_environment(self):
        code, out, _ = run("--help")
        self.assertEqual(code, CLEAN)
        for word in (*VERBS, "3 bad input", "SHADOWGRAPH_ISA", "NO_COLOR", "OMP_NUM_THREADS"):
            self.assertIn(word, out)

    def test_help_of_every_verb_has_examples(self):
        for verb in VERBS:
            code, out, _ = run(verb, "--help")
            self.assertEqual(code, CLEAN)
            self.assertIn("Examples:\n  shadowgraph " + verb, out)

    def test_verbs_that_run_something_take_the_common_options(self):
        for verb in ("fuzz", "check", "conformance", "bench"):
            out = run(verb, "--help")[1]
            for option in ("--format", "--output", "--seed", "--threads", "--isa", "--arith", "--color", "--quiet",
                           "--max-findings", "--version"):
                self.assertIn(option, out)

    def test_help_says_what_a_limit_on_findings_limits(self):
        self.assertRegex(run("fuzz", "--help")[1], r"--max-findings N +Stop after N findings")
        self.assertRegex(run("check", "--help")[1], r"--max-findings N +List at most N findings")

    def test_version_says_how_it_was_built(self):
        for args in (("--version",), ("check", "--version")):
            code, out, _ = run(*args)
            self.assertEqual(code, CLEAN)
            self.assertRegex(out, r"shadowgraph \d+\.\d+\.\d+\n")
            for word in ("compiler", "generic", "OpenMP"):
                self.assertIn(word, out)


class Usage(Folder):
    def refused(self, *args, said=(), **kwargs):
        code, out, err = run(*args, **kwargs)
        self.assertEqual((code, out), (USAGE, ""), (args, err))
        for word in said:
            self.assertIn(word, err)
        return err

    def test_what_is_not_understood_is_refused(self):
        self.refused(said=["a verb is missing"])
        self.refused("--bogus", said=["--bogus"])
        self.refused("check", said=["PATH"])
        self.refused("check", "x", "--bogus", said=["--bogus", "shadowgraph check --help"])
        self.refused("list", said=["KIND"])
        self.refused("list", "unicorns", said=["unicorns", "kernels"])
        self.refused("check", "x", "--format", "xml", said=["xml", "json"])
        self.refused("check", "x", "--arith", "exact", said=["exact", "portable"])
        self.refused("check", "x", "--seed", said=["--seed"])

    def test_a_verb_that_is_nearly_right_is_suggested(self):
        self.refused("chekc", "x", said=["'chekc' is not a verb", "did you mean check?"])

    def test_numbers_are_whole_and_in_range(self):
        for option, bad in (("--threads", ("0", "-1", "1.5", "0x2", " 2", "2 ", "1e3", "", "99999999999999999999")),
                            ("--seed", ("-1", "18446744073709551616", "one")), ("--max-findings", ("-3", "many"))):
            for text in bad:
                self.refused("check", "x", f"{option}={text}", said=[option])

    def test_a_fuzz_run_that_could_judge_nothing_is_refused(self):
        for option in ("--max-findings=0", "--cases=0", "--seconds=0"):
            self.refused("fuzz", option, said=[option.split("=")[0]])

    def test_unknown_instruction_set_is_refused_with_the_known_ones(self):
        self.refused("check", "x", "--isa", "sparc", said=["--isa", "sparc", "generic"])
        self.refused("check", "x", said=["SHADOWGRAPH_ISA", "sparc"], env={"SHADOWGRAPH_ISA": "sparc"})

    def test_an_output_that_cannot_be_written_is_refused_before_the_work(self):
        self.refused("check", "x", "--output", self.folder, said=["is a folder"])
        self.refused("check", "x", "--output", self.path("none/report"), said=["no folder"])

    def test_control_characters_of_the_command_line_stay_off_the_terminal(self):
        err = self.refused("check", "x", "--\x1b]0;evil\x07")
        self.assertEqual(controls(err), [])
        self.assertIn(r"\x1b", err)


class BadInput(Folder):
    """Every refusal: exit 3, one finding that names what and where, a whole report and nothing half-written."""

    def findings(self, *args):
        code, out, err = run("check", *args, "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["ok"], report["bad_input"]), (BAD_INPUT, False, True), err)
        self.assertTrue(report["findings"])
        for finding in report["findings"]:
            for key in ("id", "title", "severity", "case", "where", "expected", "got", "refs", "reproduce"):
                self.assertIn(key, finding)
            self.assertTrue(finding["expected"] and finding["got"] and finding["where"]["field"])
        return report["findings"]

    def test_a_missing_file(self):
        finding, = self.findings(self.path("missing.safetensors"))
        self.assertEqual(finding["id"], "io.open")
        self.assertIn("missing.safetensors", finding["case"])

    def test_a_folder_without_vectors(self):
        self.assertEqual(self.findings(self.folder)[0]["id"], "io.kind")

    def test_a_fifo_is_refused_without_waiting(self):
        os.mkfifo(self.path("f.safetensors"))
        self.assertEqual(self.findings(self.path("f.safetensors"))[0]["id"], "io.open")

    def test_a_truncated_file(self):
        header = {"__metadata__": {}, "case000/q": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
        for name, content in (("empty", b""), ("no_header", b"\x01\0\0"), ("short", safetensors(header, bytes(15)))):
            finding = self.findings(self.write(name + ".safetensors", content))[0]
            self.assertTrue(finding["id"].startswith("io."), finding)

    def test_a_shape_of_2_to_the_63(self):
        header = {"x": {"dtype": "F32", "shape": [2**63], "data_offsets": [0, 4]}}
        finding = self.findings(self.write("huge.safetensors", safetensors(header, bytes(4))))[0]
        self.assertIn("9223372036854775808", json.dumps(finding))

    def test_a_case_without_its_fields(self):
        header = {"__metadata__": {"case000": json.dumps({"mode": "decode"})},
                  "case000/page_table": {"dtype": "I32", "shape": [0, 0], "data_offsets": [0, 0]}}
        findings = self.findings(self.write("poor.safetensors", safetensors(header)))
        self.assertGreater(len(findings), 1, "all that is missing is said at once")
        self.assertEqual({f["id"] for f in findings}, {"vector.case"})

    def test_nothing_that_could_be_judged(self):
        header = {"__metadata__": {"case000": json.dumps({"kind": "tomorrow's"}), "case001": json.dumps({"mode": "x"})}}
        paths = [self.write(name, safetensors(header)) for name in ("a.safetensors", "b.safetensors")]
        findings = self.findings(*paths)
        self.assertEqual([(f["id"], f["case"]) for f in findings], [("io.nothing", path) for path in paths])
        for finding in findings:
            self.assertIn("kind not known yet: tomorrow's, x", finding["got"])
        chosen = self.findings(*paths, "--case", "case001")
        self.assertNotIn("tomorrow's", chosen[0]["got"])
        # An instruction set forced by the environment stands behind it.
        self.assertIn(f"shadowgraph check {paths[0]} {paths[1]} --case case001", chosen[0]["reproduce"])

    def test_the_report_is_written_whole_and_nothing_else_is_left(self):
        bad = self.write("bad.safetensors", b"nonsense, but longer than eight bytes")
        report = self.path("report.json")
        code, out, _ = run("check", bad, "--format", "json", "--output", report)
        self.assertEqual((code, out), (BAD_INPUT, ""))
        with open(report) as f:
            self.assertEqual(json.load(f)["schema"], "shadowgraph.report/1")
        self.assertEqual(sorted(os.listdir(self.folder)), ["bad.safetensors", "report.json"])

    def test_names_with_control_characters_are_escaped_in_text(self):
        path = self.write("evil\x1b[31m\x07\n.safetensors", b"nonsense, but longer than eight bytes")
        for target in (path, self.folder):
            code, out, err = run("check", target)
            self.assertEqual(code, BAD_INPUT)
            self.assertEqual(controls(out + err), [])
            self.assertIn(r"evil\x1b[31m\x07\x0a.safetensors", out)

    def test_the_command_that_reproduces_survives_a_hostile_name(self):
        self.write("a 'b'; $(touch pwned) \\ \n.safetensors", b"nonsense, but longer than eight bytes")
        finding = self.findings(self.folder)[0]
        shown = subprocess.run(["bash", "-c", "shadowgraph() { \"$BINARY\" \"$@\"; }; " + finding["reproduce"]],
                               env={**os.environ, "BINARY": BINARY}, capture_output=True, cwd=self.folder)
        self.assertEqual(shown.returncode, BAD_INPUT)
        self.assertIn(finding["got"].encode(), shown.stdout)
        self.assertFalse(os.path.exists(self.path("pwned")))


class Vectors(Folder):
    """On recorded vectors of real kernels."""

    REPORT_KEYS = ("schema", "verb", "version", "seed", "isa", "threads", "arith", "ok", "summary", "files", "cases",
                   "findings")

    def setUp(self):
        super().setUp()
        self.files = sorted(glob.glob(os.path.join(VECTORS, "**", "*.safetensors"), recursive=True))
        if not self.files:
            self.skipTest("no *.safetensors in " + VECTORS)
        self.judged = [f["path"] for f in self.report(VECTORS)["files"] if f["cases"] > 0]
        self.smallest = min(self.judged, key=os.path.getsize)

    def report(self, *args, **kwargs):
        code, out, err = run("check", *args, "--format", "json", **kwargs)
        self.assertIn(code, (CLEAN, FINDINGS), err)
        return json.loads(out)

    def test_a_folder_is_judged_and_adds_up(self):
        report = self.report(VECTORS)
        for key in self.REPORT_KEYS:
            self.assertIn(key, report)
        self.assertEqual([f["path"] for f in report["files"]], self.files)
        self.assertEqual(report["summary"]["cases"], sum(f["cases"] for f in report["files"]))
        self.assertEqual(report["summary"]["cases"], len(report["cases"]))
        self.assertGreater(report["summary"]["cases"], 0)
        self.assertEqual((report["findings"], report["ok"]), ([], True))
        for f in report["files"]:
            self.assertEqual((f["kind"], f["cases"]), ("kernel vectors", f["agreed"] + f["flagged"]))

    def test_a_planted_fault_makes_what_was_recorded_of_it(self):
        code, out, _ = run("check", VECTORS, "--plant", "K36", "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["findings"]), (CLEAN, []))
        self.assertGreater(len(report["cases"]), 0)
        for case in report["cases"]:
            self.assertEqual(case["kind"], "swa_merge")
            self.assertLessEqual(case["twin_error_over_bound"], 1)
        # A fault that stands on no case's path proves nothing.
        code, out, _ = run("check", VECTORS, "--plant", "K01")
        self.assertEqual(code, BAD_INPUT)
        self.assertIn("K01 never acted", out)

    def test_one_case_can_be_chosen_and_has_the_same_figures(self):
        whole = self.report(self.smallest)["cases"]
        chosen = whole[len(whole) // 2]
        for name in (chosen["case"].split("#")[-1], chosen["case"]):
            one, = self.report(self.smallest, "--case", name)["cases"]
            self.assertEqual(one, chosen)
        self.assertEqual(self.report(self.smallest, "--case", "*")["cases"], whole)

    def test_a_case_that_does_not_exist_is_refused(self):
        code, out, err = run("check", self.smallest, "--case", "case999999")
        self.assertEqual((code, out), (USAGE, ""))
        self.assertIn("case999999", err)

    def test_threads_and_instruction_sets_do_not_change_a_figure(self):
        cases = self.report(self.smallest, "--threads", "1")["cases"]
        self.assertEqual(self.report(self.smallest, "--threads", "3", "--isa", "generic")["cases"], cases)

    def test_a_bad_file_stops_no_other(self):
        bad = self.write("bad.safetensors", b"nonsense, but longer than eight bytes")
        code, out, _ = run("check", bad, self.smallest, "--format", "json")
        report = json.loads(out)
        self.assertEqual(code, BAD_INPUT)
        self.assertEqual([f["cases"] > 0 for f in report["files"]], [False, True])
        self.assertEqual({f["case"] for f in report["findings"]}, {bad})

    def test_a_file_of_unknown_kinds_is_skipped_beside_one_that_is_judged(self):
        unknown = self.write("new.safetensors", safetensors({"__metadata__": {"case000": '{"kind":"new"}'}}))
        report = self.report(unknown, self.smallest)
        self.assertEqual((report["ok"], [f["skipped"] for f in report["files"]]), (True, [1, 0]))

    def with_metadata(self, name, change):
        """A copy of the smallest file, under that name, with its cases' metadata changed."""
        with open(self.smallest, "rb") as f:
            content = f.read()
        size, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        change(header["__metadata__"])
        return self.write(name, safetensors(header, content[8 + size:]))

    def test_a_bad_case_stops_no_other_of_its_file(self):
        whole = [c["case"].split("#")[-1] for c in self.report(self.smallest)["cases"]]
        bad, good = whole[0], whole[1:]
        path = self.with_metadata("x" * 200 + ".safetensors", lambda cases: cases.update({bad: '{"kind": 7, "kind": 8}'}))
        code, out, _ = run("check", path, "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["bad_input"]), (BAD_INPUT, True))
        self.assertEqual([c["case"] for c in report["cases"]], [f"{path}#{case}" for case in good])
        self.assertEqual({f["case"] for f in report["findings"]}, {f"{path}#{bad}"})
        self.assertEqual((report["files"][0]["cases"], report["files"][0]["skipped"]), (len(good), 1))
        for finding in report["findings"]:
            shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)],
                                   capture_output=True)
            self.assertEqual(shown.returncode, BAD_INPUT)
            self.assertIn(finding["got"].encode(), shown.stdout)
        self.assertEqual(len(self.report(path, "--case", good[0])["cases"]), 1, "the bad case was not asked for")

    def test_names_of_kinds_stay_off_the_terminal(self):
        def rename(cases):
            for case, text in cases.items():
                cases[case] = json.dumps({**json.loads(text), "kind": "dense_evil\x1b[31m\u202e"})

        path = self.with_metadata("evil.safetensors", rename)
        code, out, err = run("check", path)
        self.assertEqual((code, controls(out + err)), (CLEAN, []))

    def test_the_command_that_reproduces_names_the_instruction_set_that_was_forced(self):
        path = self.corrupt("out_gpu", "out")
        for args, env in (((), {"SHADOWGRAPH_ISA": "generic"}), (("--isa", "generic"), {})):
            report = json.loads(run("check", path, *args, "--format", "json", env=env)[1])
            self.assertEqual(report["isa"], "generic")
            for finding in report["findings"]:
                self.assertTrue(finding["reproduce"].endswith(" --isa generic"), finding["reproduce"])

    def test_a_result_that_is_wrong_is_a_finding_and_repeats(self):
        path = self.corrupt("out_gpu", "out")
        code, out, _ = run("check", path, "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["ok"]), (FINDINGS, False))
        finding = next(f for f in report["findings"] if f["id"] == "num.recorded")
        self.assertIn(path + "#case", finding["case"])
        shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)],
                               capture_output=True)
        self.assertEqual(shown.returncode, FINDINGS)
        self.assertIn(b"num.recorded", shown.stdout)

    def test_a_page_id_out_of_range_is_bad_input(self):
        path = self.corrupt("page_table", "kv_indices")
        code, out, _ = run("check", path, "--format", "json")
        report = json.loads(out)
        self.assertEqual((code, report["bad_input"]), (BAD_INPUT, True))
        finding = next(f for f in report["findings"] if f["id"] == "table.page_id")
        self.assertTrue(finding["where"]["field"] and finding["got"])

    def corrupt(self, *names):
        """A copy of a file in which the first tensor of one of these names begins with bytes 0x7b."""
        for source in self.judged:
            with open(source, "rb") as f:
                content = bytearray(f.read())
            size, = struct.unpack("<Q", content[:8])
            header = json.loads(content[8:8 + size])
            for name, tensor in sorted(header.items()):
                if name.split("/")[-1] in names:
                    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
                    if end > begin:
                        content[begin:min(end, begin + 16)] = b"\x7b" * (min(end, begin + 16) - begin)
                        return self.write("corrupt.safetensors", bytes(content))
        self.skipTest(f"no tensor {names}")

    def test_text_ends_with_a_verdict_and_begins_with_the_seed(self):
        code, out, err = run("check", self.smallest, "--seed", "77")
        self.assertEqual((code, err), (CLEAN, ""))
        self.assertTrue(out.startswith("seed 77 "))
        self.assertTrue(out.splitlines()[-1].startswith("clean: "))
        self.assertNotIn("\x1b", out)

    def test_colours_are_a_choice(self):
        self.assertIn("\x1b[", run("check", self.smallest, "--color", "always")[1])
        self.assertNotIn("\x1b[", run("check", self.smallest, "--color", "never")[1])

    def test_output_goes_to_the_file_only_and_replaces_it(self):
        target = self.write("report.txt", b"old")
        code, out, _ = run("check", self.smallest, "--output", target)
        self.assertEqual((code, out), (CLEAN, ""))
        with open(target) as f:
            self.assertIn("clean: ", f.read())
        self.assertEqual(os.listdir(self.folder), ["report.txt"])


class RecurrentVectors(Folder):
    FOLDER = property(lambda self: os.path.join(os.path.dirname(os.path.normpath(VECTORS)), "linear"))

    def test_every_case_is_judged_and_who_departs_is_said(self):
        code, out, _ = run("check", self.FOLDER, "--format", "json")
        report = json.loads(out)
        self.assertEqual(code, CLEAN, report["findings"][:3])
        systems = {c["kind"].split()[0] for c in report["cases"]}
        self.assertEqual(systems, {"gdn", "kda", "conv", "mamba2", "lightning", "dsa", "dsv4", "dualchunk"})
        departs = [c for c in report["cases"] if c.get("known_wrong")]
        self.assertTrue(departs)
        for c in report["cases"]:
            for who in ("error_over_bound", "gpu_error_over_bound"):
                self.assertLessEqual(c.get(who, 0), 1, c["case"])

    def test_a_planted_fault_has_no_path_there(self):
        code, out, _ = run("check", self.FOLDER, "--plant", "K36")
        self.assertEqual(code, BAD_INPUT, out)
        self.assertIn("not on the planted fault's path", out)


class Terminal(Folder):
    """Progress and Ctrl-C, on a pseudo-terminal where it matters."""

    def start(self, *args, stderr=subprocess.DEVNULL):
        return subprocess.Popen([BINARY, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)

    def test_ctrl_c_ends_a_long_fuzz_with_a_report(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            process = self.start("fuzz", "--seconds", "600", "--format", "json")
            time.sleep(2)
            process.send_signal(how)
            out, _ = process.communicate(timeout=60)
            report = json.loads(out)
            self.assertEqual((process.returncode, report["ok"], report["interrupted"]), (CLEAN, True, True))
            self.assertGreater(report["summary"]["cases"], 0)

    def test_ctrl_c_ends_a_long_check_with_what_was_judged(self):
        files = sorted(glob.glob(os.path.join(VECTORS, "*.safetensors")))
        if not files:
            self.skipTest("no *.safetensors in " + VECTORS)
        process = self.start("check", *files * 2000, "--format", "json")
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual((process.returncode, report["interrupted"]), (CLEAN, True))
        self.assertLess(len(report["files"]), 2000 * len(files))
        self.assertEqual(report["summary"]["cases"], len(report["cases"]))

    def shown_on_terminal(self, *args):
        """What a run writes to a terminal on stderr."""
        terminal, child_side = pty.openpty()
        process = self.start(*args, stderr=child_side)
        os.close(child_side)
        shown = b""
        try:
            while select.select([terminal], [], [], 60)[0]:
                more = os.read(terminal, 65536)
                if not more:
                    break
                shown += more
        except OSError:  # the other side was closed
            pass
        os.close(terminal)
        process.communicate(timeout=60)
        return shown.decode()

    def test_progress_is_one_line_that_leaves_nothing(self):
        shown = self.shown_on_terminal("fuzz", "--seconds", "1")
        for word in ("cases", "/s", "findings", "%"):
            self.assertIn(word, shown)
        self.assertNotIn("\n", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"))

    def test_no_progress_when_quiet_or_without_a_terminal(self):
        self.assertEqual(self.shown_on_terminal("fuzz", "--seconds", "1", "--quiet"), "")
        self.assertEqual(run("fuzz", "--seconds", "1")[2], "")


class Output(unittest.TestCase):
    """Results that cannot be written: one sentence and exit code 4, never silence."""

    COMMANDS = ("--help", "--version", "check --help", "list invariants", "explain num.bound", "fuzz --cases 3",
                "check /nowhere")

    def shell(self, script):
        done = subprocess.run(["bash", "-c", script], env={**os.environ, "BINARY": BINARY}, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=300)
        return done.returncode, done.stderr.decode()

    def test_a_full_closed_or_broken_stdout_is_said(self):
        for command in self.COMMANDS:
            for script in (f"$BINARY {command} >/dev/full", f"$BINARY {command} >&-",
                           f"(sleep 0.2; $BINARY {command}; echo $? >&2) | true"):
                code, err = self.shell(script)
                if "|" in script:
                    err, code = err.splitlines()[0] + "\n", int(err.splitlines()[-1])
                self.assertEqual(code, INTERNAL, (script, err))
                self.assertRegex(err, r"\Ashadowgraph: cannot write to stdout: [A-Z].*\n\Z", script)

    def test_a_full_or_closed_stderr_changes_no_exit_code(self):
        for where in ("/dev/full", "&-"):
            for command, code in (("bogus", USAGE), ("check x --bogus", USAGE), ("list invariants", CLEAN),
                                  ("list invariants >/dev/full", INTERNAL), ("fuzz --cases 3", CLEAN)):
                self.assertEqual(self.shell(f"$BINARY {command} 2>{where}")[0], code, (command, where))


if __name__ == "__main__":
    BINARY, VECTORS = (os.path.abspath(p) for p in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
