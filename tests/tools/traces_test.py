"""Laws of `check` on engine traces. Usage: traces_test.py BINARY TRACE_FOLDER."""

import collections
import glob
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BINARY = ""
TRACES = ""
CLEAN, FINDINGS, USAGE, BAD_INPUT, INTERNAL = 0, 1, 2, 3, 4


def run(*args):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def flat(data):
    """The numbers of nested lists, one after the other."""
    return [x for item in data for x in flat(item)] if isinstance(data, list) else [data]


def with_number(data, at, value):
    """Nested lists with another number, by its place in flat(data)."""
    if not isinstance(data, list):
        return value if at == 0 else data
    changed = []
    for item in data:
        changed.append(with_number(item, at, value))
        at -= len(flat(item))
    return changed


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

    def test_a_folder_passes_over_no_trace_whose_backend_stands_late(self):
        wrong = self.line(expect={"max_seq_len_k": 1})
        late = {"id": "late", "source": {"notes": "x" * 5000}, **wrong}
        self.written(self.line(), name="a.jsonl")
        self.written(late, name="late.jsonl")
        self.write("pretty.jsonl", json.dumps(wrong, indent=1).encode())
        report = self.report(self.folder)
        self.assertEqual([(os.path.basename(f["path"]), f["flagged"]) for f in report["files"]],
                         [("a.jsonl", 0), ("late.jsonl", 1), ("pretty.jsonl", 1)])

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
        bad, = [f for f in report["findings"] if f["case"] == waivers]
        self.assertEqual((bad["id"], bad["where"]["row"]), ("io.waiver", 2))
        self.assertIn(f"check {self.file} --waive {waivers}", bad["reproduce"])
        self.report(self.file, "--waive", self.path("none"), expect=BAD_INPUT)
        self.report(self.file, "--waive", self.write("bytes.txt", b"* all\n\0\n"), expect=BAD_INPUT)

    def test_a_waiver_that_waives_nothing_is_said(self):
        waivers = self.write("known.txt", b"* all\n# no\nnosuch.law seen\n")
        code, out, _ = run("check", self.file, "--waive", waivers, "--quiet", "--max-findings", "0")
        self.assertEqual(code, CLEAN)
        self.assertIn(f"\n{waivers}: line 3, nosuch.law: waives nothing\n", out)
        self.assertNotIn("line 1", out)

    def test_bad_input_cannot_be_waived(self):
        path = self.write("x.jsonl", self.lines[0] + b"{\n")
        waivers = self.write("all.txt", b"* all\n")
        self.report(path, "--waive", waivers, expect=BAD_INPUT)

    def line(self, **changes):
        """A file of one line that agrees, changed."""
        line = {"id": "step-17", "backend": "flashattention", "mode": "decode", "phase": "eager",
                "config": {"page_size": 2, "max_context_len": 8},
                "input": {"req_to_token": {"dtype": "int32", "shape": [2, 8],
                                           "data": [[2, 3, 4, 5, 6, 0, 0, 0], [8, 9, 10, 0, 0, 0, 0, 0]]},
                          "req_pool_indices": [0, 1], "seq_lens": [5, 3]},
                "expect": {"cache_seqlens_int32": [5, 3], "max_seq_len_k": 5,
                           "page_table": {"dtype": "int32", "shape": [2, 3], "data": [[1, 2, 3], [4, 5, 0]]}}}
        for member, value in changes.items():
            line[member] = {**line[member], **value} if isinstance(value, dict) else value
        return line

    def written(self, *lines, name="x.jsonl"):
        """A line whose id stands before it, too, gets one of its own."""
        ids = [line.get("id") for line in lines]
        named = [{**line, "id": f"{ids[i]}.{i}"} if ids[i] in ids[:i] else line for i, line in enumerate(lines)]
        return self.write(name, b"".join(json.dumps(line).encode() + b"\n" for line in named))

    def test_plain_json_numbers_are_read(self):
        self.assertTrue(self.report(self.written(self.line()), expect=CLEAN)["ok"])
        report = self.report(self.written(self.line(expect={"cache_seqlens_int32": [5, 4]})))
        self.assertEqual([f["id"] for f in report["findings"]], ["len.kv_extent"])
        report = self.report(self.written(self.line(expect={"max_seq_len_k": 4})))
        self.assertEqual([f["id"] for f in report["findings"]], ["len.bound"])

    def test_what_nobody_looks_at_is_counted_and_named_with_quiet_too(self):
        path = self.written(self.line(config={"pagesize": 2}, expect={"cache_seqlens int32": [9, 9]}), self.line(raw_bs=1))
        code, out, _ = run("check", path, "--quiet")
        self.assertEqual(code, CLEAN)
        self.assertRegex(out, r"\nclean as far as judged: 2 cases judged, 0 findings, 3 fields left out, ")
        for said in ("config.pagesize: not known; did you mean page_size? (1 line)",
                     "raw_bs: not known; it belongs into input",
                     "cache_seqlens int32: not known; did you mean cache_seqlens_int32?"):
            self.assertIn(f"{path}: left out, {said}", out)
        report = self.report(path, expect=CLEAN)
        self.assertEqual((report["summary"]["left_out"], len(report["warnings"])), (3, 3))

    def test_another_backends_field_and_a_null_are_left_out_like_a_misspelt_one(self):
        path = self.written(self.line(expect={"block_kv_indices": [1], "cu_seqlens_q": None, "kv_indptr": None}))
        code, out, _ = run("check", path, "--quiet")
        self.assertEqual(code, CLEAN)
        self.assertRegex(out, r"\nclean as far as judged: 1 case judged, 0 findings, 3 fields left out, ")
        for said in ("block_kv_indices: no field of flashattention", "cu_seqlens_q: null",
                     "kv_indptr: no field of flashattention"):
            self.assertIn(f"{path}: left out, {said} (1 line)", out)
        self.assertEqual(self.report(path, expect=CLEAN)["summary"]["left_out"], 3)
        null_input = self.written(self.line(input={"positions": None}))
        self.assertEqual(self.report(null_input, expect=CLEAN)["summary"]["left_out"], 0)

    def test_a_composed_backend_is_skipped_and_its_parts_are_named_instead(self):
        for backend in ("flashattention_multi_step", "trtllm_mha_two_batch", "trtllm_mla_flashattention"):
            finding, = self.report(self.written(self.line(backend=backend)), expect=BAD_INPUT)["findings"]
            self.assertEqual(finding["id"], "io.nothing")
            self.assertIn("skipped, trace each part under its own backend's name (1 line)", finding["got"])

    def test_a_known_field_that_is_no_array_of_integers_is_bad_input(self):
        for value in ([5.0, 3.5], "5", [[5], 3], {"dtype": "int33", "shape": [2], "data": [5, 3]}, [True, 1]):
            report = self.report(self.written(self.line(), self.line(id="b", expect={"cache_seqlens_int32": value})),
                                 expect=BAD_INPUT)
            finding, = report["findings"]
            self.assertEqual((finding["id"], finding["case"], finding["where"]),
                             ("io.line", "b", {"field": "expect.cache_seqlens_int32", "row": 2}))
            self.assertEqual((report["files"][0]["agreed"], report["files"][0]["skipped"]), (1, 1))
            self.assertIn("--case b", finding["reproduce"])

    def test_a_type_that_kernels_do_not_read_is_a_finding_and_so_is_a_batch_that_contradicts_itself(self):
        wide = {"dtype": "int64", "shape": [2], "data": [5, 3]}
        finding, = self.report(self.written(self.line(expect={"cache_seqlens_int32": wide})))["findings"]
        self.assertEqual((finding["id"], finding["expected"], finding["got"]), ("trace.dtype", "int32", "int64"))
        for given, law in (({"req_pool_indices": [0, 0]}, "step.request"),
                           ({"out_cache_loc": [6]}, "len.total"), ({"out_cache_loc": [6, 11]}, "slot.write")):
            report = self.report(self.written(self.line(), self.line(input=given)))
            self.assertIn(law, [f["id"] for f in report["findings"]])
            self.assertEqual((report["files"][0]["agreed"], report["files"][0]["flagged"]), (1, 1))

    def test_words_that_there_are_not_are_bad_input_with_the_nearest(self):
        for changes, said in (({"mode": "decoding"}, "did you mean decode?"),
                              ({"phase": "reply"}, "did you mean replay?"),
                              ({"config": {"seq_lens_semantics": "prefix"}}, "did you mean prefix_only?")):
            finding, = self.report(self.written(self.line(**changes)), expect=BAD_INPUT)["findings"]
            self.assertEqual(finding["id"], "io.line")
            self.assertIn(said, finding["got"])

    def test_backends_without_a_twin_are_skipped_and_nothing_judged_is_not_clean(self):
        report = self.report(self.written(self.line(backend="torch_native")), expect=BAD_INPUT)
        self.assertEqual((report["files"][0]["skipped"], report["summary"]["unknown_backends"]), (1, 0))
        finding, = report["findings"]
        self.assertEqual(finding["id"], "io.nothing")
        self.assertIn("no twin of torch_native yet", finding["got"])

    def test_a_backend_that_nobody_knows_is_skipped_and_shows_in_the_verdict(self):
        path = self.written(self.line(), self.line(backend="flash_attention"))
        code, out, _ = run("check", path)
        self.assertEqual(code, CLEAN)
        self.assertIn("backend not known: flash_attention; did you mean flashattention? (1 line)", out)
        self.assertRegex(out, r"\nclean as far as judged: 1 case judged, 0 findings, 1 skipped \(1 of unknown backends\), ")

    def test_strict_makes_a_finding_of_each_thing_that_is_passed_over(self):
        clean = self.written(self.line(), name="clean.jsonl")
        self.report(clean, "--strict", expect=CLEAN)
        path = self.written(self.line(), self.line(id="b", expect={"colour": 1}),
                            self.line(id="c", backend="torch_native"))
        self.report(path, expect=CLEAN)
        report = self.report(path, "--strict")
        self.assertEqual([(f["id"], f["case"], f["where"].get("field"), f["got"], f["line"]) for f in report["findings"]],
                         [("left_out.unknown_name", "b", "colour", "not known", 2),
                          ("skip.backend", "c", None, "no twin of torch_native yet", 3)])
        self.assertEqual((report["summary"]["cases"], report["files"][0]["agreed"]), (2, 2))
        shown = subprocess.run(["bash", "-c", report["findings"][0]["reproduce"].replace("shadowgraph", BINARY, 1)],
                               capture_output=True)
        self.assertEqual(shown.returncode, FINDINGS)
        waivers = self.write("known.txt", b"skip.backend our own\nleft_out.* ours\n")
        self.report(path, "--strict", "--waive", waivers, expect=CLEAN)
        unused = self.write("unused.txt", b"# none\nlen.* ours\n")
        self.report(clean, "--waive", unused, expect=CLEAN)
        finding, = self.report(clean, "--strict", "--waive", unused)["findings"]
        self.assertEqual((finding["id"], finding["file"], finding["line"]), ("waiver.unused", unused, 2))
        self.assertIn("--waive " + unused, finding["reproduce"])

    def test_what_nothing_reads_is_named_with_the_reason_and_counts_as_nothing_passed_over(self):
        replay = self.line(phase="replay", expect={"max_seq_len_k": 4, "max_seq_len_q": 1})
        replay["config"]["max_bs"] = 1
        path = self.written(replay, {**replay, "id": "again"})
        report = self.report(path, "--strict", expect=CLEAN)
        self.assertEqual((report["summary"]["left_out"], report.get("passed_over")), (0, None))
        notes = "\n".join(report["files"][0]["notes"])
        reasons = {"max_seq_len_q": "a graph runs with the number of its capture; record that to judge it",
                   "config.max_bs": "seq_lens has a number for each row of the graph"}
        unread = report["files"][0]["unread"]
        self.assertLessEqual(reasons.items(), {u["field"]: u["why"] for u in unread}.items())
        self.assertEqual({(u["id"], u["file"], u["count"], u["line"]) for u in unread}, {("unread.field", path, 2, 1)})
        for said in ("not read, %s: %s; nothing to mend (2 lines) [unread.field]" % item for item in reasons.items()):
            self.assertIn(said, notes)
            self.assertIn(said, run("check", path)[1])

    # These have no live element in any recorded line; each says why.
    DEAD = {("cross_decode", "capture", "expect.encoder_page_table"): "encoders of a capture have no key",
            ("target_verify", "capture", "expect.expand.page_table"): "drafts of a capture have no key of their own"}

    def live_places(self, name, line):
        """Places that a key of the batch surely reads: the slots of the first request."""
        given = line["input"]
        table, row = given["req_to_token"], flat(given["req_pool_indices"]["data"])[:1]
        keys = flat(given["seq_lens"]["data"])[:1]
        first = flat(given["encoder_lens"]["data"])[0] if "encoder_lens" in given else 0
        if not row or not keys or name not in ("req_to_token", "full_to_swa"):
            return []
        columns = [row[0] * table["shape"][1] + first + i for i in range(keys[0])]
        return columns if name == "req_to_token" else [flat(table["data"])[i] for i in columns]

    def probes(self, line):
        """(name, line) with a wrong number at both ends and in the middle of each array, and for each scalar."""
        for part in ("input", "expect"):
            for name, field in line.get(part, {}).items():
                if not isinstance(field, int) and "data" not in field:
                    continue
                values = [field] if isinstance(field, int) else flat(field["data"])
                places = {place for of in (range(len(values)), self.live_places(name, line)) if of
                          for place in (of[0], of[len(of) // 2], of[-1])}
                for i in places:
                    for wrong in (values[i] + 1, 1 << 20, -2):
                        changed = json.loads(json.dumps(line))
                        if isinstance(field, int):
                            changed[part][name] = wrong
                        else:
                            changed[part][name]["data"] = with_number(field["data"], i, wrong)
                        yield part + "." + name, changed

    def test_each_key_and_field_is_read_or_named_as_unread(self):
        """A wrong number in one is noticed somewhere in a mode and phase, or the report says that nothing reads it."""
        lines = collections.defaultdict(list)
        flagged = {f["case"] for f in self.report(TRACES)["findings"]}
        for path in glob.glob(os.path.join(TRACES, "*.jsonl")):
            with open(path) as file:
                for line in map(json.loads, file):
                    if line["id"] not in flagged:
                        lines[line["backend"], line["mode"], line["phase"]].append(line)
        silent, probed = set(), 0
        for state, of_state in lines.items():
            names, changed = [], []
            for line in of_state[:3]:
                for name, probe in self.probes(line):
                    names.append(name)
                    changed.append({**probe, "id": "probe%d" % len(changed)})
            report = json.loads(run("check", self.written(*changed), "--format", "json", "--max-findings", "1000000")[1])
            noticed = {int(f["line"]) for f in report["findings"]}
            notes = report["files"][0].get("notes", [])
            told = {re.match(r"(?:not read|left out), ([^:]+):", note)[1] for note in notes if "skipped" not in note}
            read = {name for i, name in enumerate(names) if i + 1 in noticed}
            probed += len(names)
            silent |= {(state, name) for name in set(names) - read - told
                       if name.removeprefix("expect.") not in told and (*state[1:], name) not in self.DEAD}
        self.assertGreater(probed, 10000)
        self.maxDiff = None
        self.assertEqual(sorted(silent), [])

    def laws_of(self, run_of):
        items = json.loads(run("list", "laws", "--format", "json")[1])["items"]
        return {item["id"] for item in items if run_of in item["judged in"].split()}

    def test_the_report_counts_each_law_and_ends_with_those_that_judged_nothing(self):
        reports = sorted(glob.glob(os.path.join(TRACES, "..", "reports", "*.jsonl")))
        counts = self.report(TRACES, *reports, expect=FINDINGS)["laws"]
        self.assertLessEqual(self.laws_of("traces"), set(counts))
        self.assertEqual([law for law in self.laws_of("traces") if counts[law] == 0], [])
        self.assertNotIn("judged nothing", run("check", TRACES, *reports)[1])
        vectors = (os.path.join(TRACES, "..", name) for name in ("kernels", "linear", "reports/same_rows.safetensors"))
        counts = self.report(*vectors)["laws"]
        self.assertEqual([law for law in self.laws_of("vectors") if counts[law] == 0], [])
        path = self.written(self.line(expect={"cache_seqlens_int32": [5, 3]}))
        out = run("check", path)[1]
        self.assertRegex(out, r"laws that could judge and judged nothing, \d+ of \d+: .*plan\.\*")
        self.assertRegex(out, r"laws that cannot judge in this run, \d+: they are of calls, histories, programs, vectors")
        self.assertNotRegex(out, "judged nothing.*len.kv_extent")

    def test_every_format_counts_what_is_passed_over_alike_and_by_its_id(self):
        path = self.written(self.line(), self.line(id="b", expect={"colour": 1, "cu_seqlens_q": None}),
                            self.line(id="c", backend="torch_native"), self.line(id="d", backend="torch_native"),
                            self.line(id="e", backend="flash_attention"),
                            self.line(id="f", backend="trtllm_mha_two_batch"),
                            self.line(id="g", expect={"max_seq_len_k": 4}))
        ids = {"left_out.null": 1, "left_out.unknown_name": 1, "skip.backend": 2, "skip.unknown_backend": 1,
               "skip.composed": 1}
        text, junit, sarif, github, html = (run("check", path, "--format", name)[1]
                                            for name in ("text", "junit", "sarif", "github", "html"))
        report = self.report(path)
        summary = report["summary"]
        self.assertEqual({p["id"]: p["count"] for p in report["passed_over"]}, ids)
        counts = {name: summary[name] for name in ("cases", "flagged", "skipped", "left_out")}
        self.assertEqual(counts, {"cases": 3, "flagged": 1, "skipped": 4, "left_out": 2})
        self.assertRegex(text, r"\nnot clean: 3 cases judged, 1 finding, 4 skipped \(1 of unknown backends\), "
                               r"2 fields left out, ")
        suite = xml.etree.ElementTree.fromstring(junit)[0]
        properties = {p.get("name"): p.get("value") for p in suite.find("properties")}
        self.assertEqual({name: int(properties[name]) for name in counts}, counts)
        tests = {t.get("classname"): int(t.get("assertions")) for t in suite.iter("testcase") if t.find("skipped") is not None}
        self.assertEqual(tests, {"shadowgraph.check." + name: count for name, count in ids.items()})
        self.assertEqual((suite.get("skipped"), suite.get("failures")), (str(len(ids)), "1"))
        sarif_run, = json.loads(sarif)["runs"]
        self.assertEqual({name: sarif_run["properties"][name] for name in counts}, counts)
        notes = sarif_run["invocations"][0]["toolExecutionNotifications"]
        self.assertEqual({n["descriptor"]["id"]: n["properties"]["count"] for n in notes}, ids)
        for name in ids:
            self.assertIn(f"[{name}]", text)
            self.assertIn(f"[{name}]", html)
            self.assertEqual(github.count(f"title={name}::"), 1)
            self.assertEqual(run("explain", name)[0], CLEAN)

    def test_the_place_of_a_line_is_a_line_and_not_an_index(self):
        out = run("check", self.written(self.line(), self.line(mode="x")))[1]
        self.assertRegex(out, r"\n  where +line 2, mode\n")

    def test_other_files_are_read_or_refused_once_with_the_way_out(self):
        good, pretty = json.dumps(self.line()).encode(), json.dumps(self.line(), indent=1).encode()
        for name, content in (("a.json", good), ("pretty.json", pretty), ("bom.jsonl", b"\xef\xbb\xbf" + good),
                              ("trace.txt", b"\n" + good)):
            report = self.report(self.write(name, content), expect=CLEAN)
            self.assertEqual(report["summary"]["cases"], 1, name)
        pipe = "gzip -dc FILE | shadowgraph check -"
        for name, content, law, way in (("x.jsonl.gz", gzip.compress(good), "io.kind", pipe),
                                        ("x.json.gz", gzip.compress(good), "io.kind", pipe),
                                        ("two.json", pretty + b"\n" + pretty, "io.line", "jq -c . FILE"),
                                        ("list.json", b"[" + good + b"]", "io.line", "jq -c '.[]' FILE"),
                                        ("notes.txt", b"flagged\n", "io.kind", "JSON")):
            finding, = self.report(self.write(name, content), expect=BAD_INPUT)["findings"]
            self.assertEqual(finding["id"], law, name)
            self.assertIn(way, finding["expected"])

    def test_traces_come_through_a_pipe_too(self):
        good, wrong = json.dumps(self.line()), json.dumps(self.line(expect={"max_seq_len_k": 1}))
        for content, code in ((good, CLEAN), (wrong, FINDINGS), ("", BAD_INPUT)):
            done = subprocess.run([BINARY, "check", "-"], input=content, capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done.stdout)

    def test_cases_are_chosen_by_pattern_and_as_check_prints_them(self):
        path = self.written(*(self.line(id=name) for name in ("a-1", "a-2", "b")))
        for pattern, cases in (("a-*", 2), ("*", 3), (path + "#b", 1), (path + "#a*", 2)):
            self.assertEqual(self.report(path, "--case", pattern, expect=CLEAN)["summary"]["cases"], cases)
        self.assertEqual(run("check", path, "--case", "c*")[0], USAGE)
        self.written(self.line(id="c"), name="y.jsonl")
        report = self.report(self.folder, "--case", "c", expect=CLEAN)
        self.assertEqual([os.path.basename(f["path"]) for f in report["files"]], ["y.jsonl"])

    @unittest.skipUnless(sys.platform == "linux", "limits of memory")
    def test_memory_that_the_judge_lacks_is_no_skip(self):
        path = self.written(self.line())
        script = f"ulimit -v 2000000; {BINARY} check {path} --threads 1"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        if "Sanitizer" in done.stderr:
            self.skipTest("a sanitizer needs more than that to begin")
        self.assertIn(done.returncode, (BAD_INPUT, INTERNAL), done.stdout + done.stderr)
        self.assertNotIn("the twin refuses it", done.stdout)

    def test_the_readmes_finding_is_printed_so(self):
        root = os.path.join(os.path.dirname(__file__), "../..")
        with open(os.path.join(root, "README.md")) as f:
            shown = re.search(r"    error len\.kv_extent \S+\n.*?\n\n", f.read(), re.S)[0]
        path, case = re.search(r"check (\S+) --case (\S+)", shown).groups()
        done = subprocess.run([BINARY, "check", path, "--case", case], cwd=root, capture_output=True, text=True)
        self.assertEqual(done.returncode, FINDINGS)
        self.assertIn(re.sub("(?m)^    ", "", shown), done.stdout)

    def test_the_page_on_traces_has_the_keys_and_its_examples_are_judged(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/traces.md")) as f:
            page = f.read()
        keys = json.loads(run("list", "keys", "--format", "json")[1])["items"]
        rows = ["| %s | `%s` | %s | %s |" % (k["of"], k["name"], k["value"], k["what"]) for k in keys
                if not k["of"].startswith("recording") and not k["what"].startswith(("not read", "for people"))]
        self.assertEqual([r for r in page.splitlines() if r.startswith(("| line |", "| config |", "| input |", "| call |"))], rows)
        lines = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.S)]
        steps = "\n".join(map(json.dumps, lines))
        report = self.report(self.write("steps.jsonl", steps.encode()), "--strict", expect=CLEAN)
        self.assertEqual((report["summary"]["cases"], report["summary"]["left_out"]), (3, 0))
        lines[0]["expect"]["block_tables"][0][1] = 20
        self.write("steps.jsonl", json.dumps(lines[0]).encode())
        shown = re.search(r"    error table\.unit .*?\n\n", page, re.S)[0]
        done = subprocess.run([BINARY, "check", "steps.jsonl"], cwd=self.folder, capture_output=True, text=True)
        self.assertIn(re.sub("(?m)^    ", "", shown), done.stdout)

    def test_the_text_has_a_row_for_every_mode_and_phase(self):
        out = run("check", self.file)[1]
        for step in {(json.loads(line)["mode"], json.loads(line)["phase"]) for line in self.lines}:
            self.assertRegex(out, r"%s +%s +\d" % step)


if __name__ == "__main__":
    BINARY, TRACES = os.path.abspath(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
