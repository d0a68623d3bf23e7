"""Laws of reports: every format is what its readers take. Usage: reports_test.py BINARY TRACE_FOLDER."""

import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import xml.etree.ElementTree

BINARY = ""
TRACES = ""
CLEAN, FINDINGS, USAGE, BAD_INPUT, INTERNAL = 0, 1, 2, 3, 4
TRACE = {"id": "step <1>", "backend": "unicorn", "mode": "decode", "phase": "eager", "config": {}, "input": {}, "expect": {}}


def run(*args):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    return done.returncode, *(s.decode("utf-8", "surrogateescape") for s in (done.stdout, done.stderr))


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

    def bad_lines(self):
        """A trace of which the third line is none, under a name that markup has to escape."""
        return self.write('a <b> & "c", 100%.jsonl', f"{json.dumps(TRACE)}\n\n{{\n".encode())


class Page(html.parser.HTMLParser):
    """Which tags are open, which were seen, and what asks for something from outside."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.outside = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.outside += [name for name, _ in attributes if name in ("src", "href", "srcset", "data", "action")]
        self.outside += [tag] if tag in ("script", "link", "iframe", "object") else []
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Formats(Folder):
    def test_junit_is_xml_that_adds_up(self):
        for args in (("check", self.bad_lines()), ("check", self.path("missing\x1b.safetensors")), ("fuzz", "--cases", "20"),
                     ("check", TRACES), ("conformance", "--case", "G01"), ("fuzz", "--exhaustive", "device-3")):
            code, out, err = run(*args, "--format", "junit")
            root = xml.etree.ElementTree.fromstring(out)
            suite, = root
            self.assertEqual((root.tag, suite.tag, suite.get("name")),
                             ("testsuites", "testsuite", "shadowgraph " + args[0]))
            tests = suite.findall("testcase")
            self.assertGreater(len(tests), 0, err)
            for of in (root, suite):
                self.assertEqual(int(of.get("tests")), len(tests))
                for attribute, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
                    self.assertEqual(int(of.get(attribute)), len(suite.findall("testcase/" + tag)))
            self.assertEqual(code == CLEAN, suite.get("failures") == "0", (code, out))
            for test in tests:
                self.assertTrue(test.get("name") and test.get("classname").startswith("shadowgraph." + args[0]))
                self.assertLessEqual(len(test), 1)

    def check_sarif(self, log):
        """What the schema of SARIF 2.1.0 requires, and what its readers look for. Returns the results."""
        self.assertEqual((log["version"], len(log["runs"])), ("2.1.0", 1))
        self.assertTrue(log["$schema"].endswith("sarif-2.1.0.json"))
        sarif, = log["runs"]
        driver = sarif["tool"]["driver"]
        self.assertEqual(driver["name"], "shadowgraph")
        self.assertEqual(len({rule["id"] for rule in driver["rules"]}), len(driver["rules"]))
        for rule in driver["rules"]:
            for key in ("shortDescription", "fullDescription", "help"):
                self.assertTrue(rule[key]["text"], rule)
            self.assertIn(rule["defaultConfiguration"]["level"], ("error", "warning", "note"))
        for invocation in sarif["invocations"]:
            self.assertIsInstance(invocation["executionSuccessful"], bool)
        for result in sarif["results"]:
            self.assertEqual(driver["rules"][result["ruleIndex"]]["id"], result["ruleId"])
            self.assertIn(result["level"], ("error", "warning", "note"))
            self.assertTrue(result["message"]["text"])
            for location in result.get("locations", []):
                if "physicalLocation" in location:
                    uri = location["physicalLocation"]["artifactLocation"]["uri"]
                    self.assertRegex(uri, r"\A(?:[A-Za-z0-9._~/:-]|%[0-9A-F]{2})+\Z")
                    self.assertGreater(location["physicalLocation"].get("region", {}).get("startLine", 1), 0)
            for suppression in result.get("suppressions", []):
                self.assertIn(suppression["kind"], ("inSource", "external"))
        return sarif["results"]

    def test_sarif_has_what_its_schema_requires(self):
        path = self.bad_lines()
        code, out, _ = run("check", path, "--format", "sarif")
        results = self.check_sarif(json.loads(out))
        self.assertEqual((code, [r["ruleId"] for r in results]), (BAD_INPUT, ["io.line"]))
        place = results[0]["locations"][0]["physicalLocation"]
        self.assertEqual(urllib.parse.unquote(place["artifactLocation"]["uri"]), "file://" + path)
        self.assertEqual(place["region"]["startLine"], 3)
        self.assertEqual(self.check_sarif(json.loads(run("fuzz", "--cases", "10", "--format", "sarif")[1])), [])

    def test_a_finding_on_a_trace_has_its_line(self):
        results = self.check_sarif(json.loads(run("check", TRACES, "--format", "sarif")[1]))
        self.assertTrue(results)
        for result in results:
            place = result["locations"][0]["physicalLocation"]
            with open(urllib.parse.unquote(place["artifactLocation"]["uri"]).removeprefix("file://")) as f:
                line = f.read().splitlines()[place["region"]["startLine"] - 1]
            self.assertEqual(json.loads(line)["id"], result["properties"]["case"])

    def test_github_gets_a_command_a_line(self):
        code, out, _ = run("check", self.bad_lines(), "--format", "github")
        self.assertEqual(code, BAD_INPUT)
        head, *commands = out.splitlines()
        self.assertTrue(head.startswith("seed 1  check"))
        for command in commands:
            self.assertRegex(command, r"\A::(error|warning|notice) [^:]*::.")
        self.assertIn('/a <b> & "c"%2C 100%25.jsonl,line=3,title=io.line ', commands[0])

    def test_html_is_one_file_that_needs_no_other(self):
        for args in (("check", self.bad_lines()), ("fuzz", "--cases", "20"), ("conformance", "--case", "G01")):
            page = Page()
            page.feed(run(*args, "--format", "html")[1])
            page.close()
            self.assertEqual((page.open, page.outside), ([], []))
            self.assertIn("table", page.seen)

    def test_a_list_is_text_or_json(self):
        for args in (("list", "kernels"), ("explain", "num.bound"), ("bench", "--list"), ("conformance", "--list")):
            code, out, err = run(*args, "--format", "junit")
            self.assertEqual((code, out), (USAGE, ""))
            self.assertIn("text", err)


class Joining(Folder):
    """Tests of joined reports share this."""

    def report(self, *args):
        code, out, err = run(*args, "--format", "json")
        self.assertIn(code, (CLEAN, FINDINGS, BAD_INPUT), err + out)
        return json.loads(out)

    def parts(self, count, *args):
        """Paths of the reports of all shards."""
        paths = [self.path(f"{i}-{count}.json") for i in range(1, count + 1)]
        for i, path in enumerate(paths, 1):
            code, _, err = run(*args, "--shard", f"{i}/{count}", "--format", "json", "--output", path)
            self.assertIn(code, (CLEAN, FINDINGS, BAD_INPUT), err)
        return paths

    def merged(self, *args, code=CLEAN):
        got, out, err = run("merge-reports", *args, "--format", "json")
        self.assertEqual(got, code, err + out)
        return json.loads(out)

    def assert_same_run(self, merged, whole):
        for report in (merged, whole):
            report["summary"].pop("seconds")
            report["coverage"].sort(key=lambda row: (row["backend"], row["mode"], row["phase"]))
            report["findings"].sort(key=lambda f: (f["case"], f["id"], json.dumps(f["where"])))
        self.assertEqual(merged, whole)


class Shards(Joining):
    """Parts of a run, joined, are the run."""

    def test_random_cases(self):
        args = ("fuzz", "--cases", "150", "--seed", "7", "--threads", "2")
        whole = self.report(*args)
        self.assertGreater(len(whole["coverage"]), 20)
        for count in (1, 2, 3):
            self.assert_same_run(self.merged(*self.parts(count, *args), "--complete"), dict(whole, summary=dict(whole["summary"])))

    def test_findings_of_a_planted_fault(self):
        args = ("fuzz", "--cases", "40", "--backend", "flashattention", "--plant", "K25", "--max-findings", "1000")
        reports = self.report(*args), self.merged(*self.parts(4, *args), code=FINDINGS)
        # A history is shrunk for so long: how far that comes is no law.
        whole, merged = ({(f["id"], f["case"].split(":")[0]) for f in r.pop("findings")} for r in reports)
        self.assertTrue(whole)
        self.assertEqual(merged, whole)
        self.assertEqual(reports[1]["coverage"], reports[0]["coverage"])

    def test_a_plant_is_judged_by_all_parts_together(self):
        args = ("fuzz", "--cases", "6", "--backend", "flashattention", "--plant", "K25", "--plant", "K17")
        whole, merged = self.report(*args), self.merged(*self.parts(3, *args), code=FINDINGS)
        self.assertEqual(merged["planted"], whole["planted"])
        self.assertEqual(list(merged["planted"]), ["K17", "K25"])
        for key in ("acted", "void", "changed", "warnings"):
            self.assertEqual(merged.get(key), whole.get(key), key)
        # Alone most parts have nothing that this plant changes.
        args = ("fuzz", "--cases", "8", "--backend", "kernels", "--plant", "K31")
        merged = self.merged(*self.parts(2, *args), code=BAD_INPUT)
        self.assertEqual((merged["planted"], merged["void"]), ({"K31": 0}, "K31 never acted"))
        self.assertEqual(len(merged["warnings"]), 1)

    def test_a_grid_of_steps_and_one_of_device_programs(self):
        for grid in (("decode", "--first", "100", "--cases", "300"), ("device-3",), ("call-mutate", "--first", "100", "--cases", "900")):
            args = ("fuzz", "--exhaustive", *grid, "--threads", "2")
            merged, whole = self.merged(*self.parts(3, *args), "--complete"), self.report(*args)
            # Each shard binds and captures what its steps share.
            judged, at_least = merged.pop("laws"), whole.pop("laws")
            self.assertEqual([law for law in at_least if not judged[law] >= at_least[law]], [])
            self.assert_same_run(merged, whole)

    def test_a_report_says_its_shard(self):
        one, two, three = self.parts(3, "fuzz", "--cases", "9")
        with open(two) as f:
            self.assertEqual(json.load(f)["shard"], "2/3")
        self.assertEqual(self.merged(three, one)["shard"], "1,3/3")
        self.assertIn("shard 2/3", run("merge-reports", two)[1].splitlines()[0])

    def test_ranges_joined_are_the_run(self):
        args = ("fuzz", "--seed", "7", "--threads", "1")
        whole = self.report(*args, "--first", "0", "--cases", "30")
        self.assertEqual(whole["range"], "0-29")
        self.assertNotIn("range", self.report(*args, "--cases", "2"))
        paths = []
        for first, cases in ((0, 10), (25, 5), (10, 15)):
            paths.append(self.path(f"{first}.json"))
            run(*args, "--first", str(first), "--cases", str(cases), "--format", "json", "--output", paths[-1])
        self.assert_same_run(self.merged(*paths, "--complete"), whole)
        self.assertEqual(self.merged(*paths[:2])["range"], "0-9,25-29")
        report = self.merged(*paths[:2], "--complete", code=BAD_INPUT)
        self.assertEqual(report["findings"][0]["got"], "without 10-24")
        report = self.merged(paths[0], paths[0], code=BAD_INPUT)
        self.assertIn(f"0-9, which {paths[0]} has", report["findings"][0]["expected"])

    def test_a_shard_that_has_no_case_says_so(self):
        code, out, _ = run("fuzz", "--cases", "2", "--shard", "3/3")
        self.assertEqual(code, BAD_INPUT)
        self.assertIn("none of these cases is of this shard", out)

    def test_what_is_no_shard_is_refused(self):
        for text in ("0/2", "3/2", "1", "1,2/3", "a/b", "1/0", ""):
            code, out, err = run("fuzz", "--cases", "1", "--shard", text)
            self.assertEqual((code, out), (USAGE, ""))
            self.assertIn("--shard", err)

    def test_parts_of_different_runs_are_refused_with_every_reason(self):
        mine, _ = self.parts(2, "fuzz", "--cases", "8")
        other = self.path("other.json")
        run("fuzz", "--cases", "8", "--seed", "2", "--shard", "1/2", "--format", "json", "--output", other)
        report = self.merged(mine, other, "--complete", code=BAD_INPUT)
        self.assertEqual([(f["id"], f["where"]["field"]) for f in report["findings"]],
                         [("io.shard", "seed"), ("io.shard", "shard"), ("io.shard", "shard")])
        broken = self.write("broken.json", b'{"schema": "shadowgraph.report/1", "verb": 7}')
        report = self.merged(mine, broken, self.path("missing.json"), code=BAD_INPUT)
        self.assertEqual({f["id"] for f in report["findings"]}, {"io.report", "io.open"})
        for finding in report["findings"]:
            shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)], capture_output=True)
            self.assertEqual(shown.returncode, BAD_INPUT)

    def test_one_report_in_every_format(self):
        path = self.path("report.json")
        run("check", TRACES, "--format", "json", "--output", path, "--max-findings", "1000")
        for form in ("text", "json", "junit", "sarif", "github", "html"):
            args = ("--format", form, "--max-findings", "1000")
            code, out, _ = run("merge-reports", path, *args)
            self.assertEqual(code, FINDINGS)
            took = r"[0-9.]+ s\b|time=\"[0-9.]+\"|<b>[0-9.]+</b>|\"seconds\": [0-9.]+"
            self.assertEqual(re.sub(took, "", out), re.sub(took, "", run("check", TRACES, *args)[1]))


class Ledgers(Joining):
    """A campaign's ledger, written by hand: four ranges of three cases."""

    ARGS = ("fuzz", "--seed", "7", "--threads", "1", "--backend", "flashattention", "--plant", "K25")

    def ledger(self, ranges, most_of_a_law=10, cases=12):
        folder = self.path("night")
        done = os.path.join(folder, "seg", "0", "done")
        os.makedirs(done)
        head = {"schema": "shadowgraph.ledger/1", "options": {"verb": "fuzz", "seed": "7"}, "cases": cases, "range": 3,
                "most_of_a_law": most_of_a_law, "stale_seconds": 60, "case_seconds": 60, "corpus": []}
        self.write("night/run.json", json.dumps(head).encode())
        for n in ranges:
            part = self.report(*self.ARGS, "--first", str(3 * n), "--cases", "3", "--max-findings", "1000")
            part["threads"], part["isa"], part["summary"]["seconds"] = 0, "", 0
            self.write(f"night/seg/0/done/{n}.json", json.dumps(part).encode())
        return folder

    def test_is_judged_as_one_run(self):
        whole = self.report(*self.ARGS, "--cases", "12", "--max-findings", "1000")
        folder = self.ledger(range(4))
        merged = self.merged(folder, code=FINDINGS)
        for key in ("planted", "acted", "coverage", "laws", "features"):
            got, want = (sorted(r[key], key=str) if key == "coverage" else r[key] for r in (merged, whole))
            self.assertEqual(got, want, key)
        self.assertEqual(merged["summary"]["cases"] + merged["summary"]["skipped"], 12)
        self.assertNotIn("range", merged)
        # The first failing cases of each law.
        self.assertEqual(merged["summary"]["findings"], len(merged["findings"]))

    def test_of_each_law_the_first_cases_are_listed(self):
        folder = self.ledger(range(4), most_of_a_law=1)
        merged = self.merged(folder, code=FINDINGS)
        first = {}
        for f in merged["findings"]:
            first.setdefault(f["case"], f["id"])
        self.assertEqual(len(set(first.values())), len(first))
        hidden = merged["summary"]["findings"] - len(merged["findings"])
        self.assertGreater(hidden, 0)
        self.assertIn(f"{hidden} failing cases are counted and not listed: of one law 1 are, the first ones", merged["warnings"])

    def test_without_all_ranges_it_has_no_verdict(self):
        folder = self.ledger([1])
        finding, = self.merged(folder, code=BAD_INPUT)["findings"]
        self.assertEqual((finding["id"], finding["got"]), ("io.ledger", "3 of 4 ranges have no result: 0, 2, 3"))
        shown = subprocess.run(["bash", "-c", finding["reproduce"].replace("shadowgraph", BINARY, 1)], capture_output=True)
        self.assertEqual(shown.returncode, BAD_INPUT)
        code, out, _ = run("merge-reports", folder, "--partial")
        self.assertEqual(code, FINDINGS)
        self.assertIn(f"\n{folder}: incomplete, 3 of 4 ranges have no result: 0, 2, 3\n", out)
        self.assertIn("3 cases judged", out.splitlines()[-1])

    def test_without_any_result_it_says_nothing(self):
        folder = self.ledger([], cases=0)
        report = self.merged(folder, code=BAD_INPUT)
        self.assertEqual(report["void"], "nothing was judged")

    def test_is_joined_alone(self):
        folder, part = self.ledger([]), self.path("part.json")
        for args in ((folder, part), (part, folder), (folder, folder), (part, "--partial"), (folder, "--partial", "--complete")):
            code, out, err = run("merge-reports", *args)
            self.assertEqual((code, out), (USAGE, ""), err)
        finding, = self.merged(self.folder, code=BAD_INPUT)["findings"]
        self.assertEqual(finding["id"], "io.ledger")


if __name__ == "__main__":
    BINARY, TRACES = (os.path.abspath(p) for p in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
