"""Laws of `list` and `explain`: what there is, and what each name says. Usage: names_test.py BINARY."""

import json
import os
import re
import subprocess
import sys
import unittest

BINARY = ""
CLEAN, USAGE = 0, 2


def run(*args, env=None):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


class ListAndExplain(unittest.TestCase):
    def test_every_kind_is_a_table_and_valid_json(self):
        for kind, name in (("kernels", "decode_paged"), ("laws", "num.bound"), ("invariants", "num.bound"), ("targets", "generic"),
                           ("programs", "G12"), ("arithmetics", "ours_portable")):
            code, out, _ = run("list", kind)
            self.assertEqual(code, CLEAN)
            self.assertIn(name, out)
            listing = json.loads(run("list", kind, "--format", "json")[1])
            self.assertEqual((listing["schema"], listing["kind"]), ("shadowgraph.list/1", kind))
            self.assertIn(name, str(listing["items"]))

    def test_lists_fit_a_terminal_as_far_as_their_words_do(self):
        for kind in ("keys", "arithmetics", "mistakes", "references"):
            lines = run("list", kind)[1].splitlines()
            self.assertLessEqual(max(map(len, lines)), 100, kind)
            words = " ".join(" ".join(item.values()) for item in json.loads(run("list", kind, "--format", "json")[1])["items"])
            self.assertGreater(len(words.split()), len(lines), kind)

    def test_words_are_for_people(self):
        mistakes = run("list", "mistakes")[1] + run("explain", "table.no_page", "table.shifted", "table.other_unit")[1]
        self.assertNotRegex(mistakes, "[{}]")
        self.assertIn("no page or slot of any pool", mistakes)
        arithmetics = json.loads(run("list", "arithmetics", "--format", "json")[1])["items"]
        for a in arithmetics:
            self.assertRegex(a["how it computes"], r"^[a-z].*\w$")
            self.assertNotRegex(a["how it computes"], r"[:={}]|0x", a["kernel"])
        computed = {a["kernel"]: a["how it computes"] for a in arithmetics}
        self.assertIn("tensor cores add 16 products", run("explain", "tensor_cores")[1])
        self.assertEqual(computed["flashinfer_merge"], "plain f32, in any order")
        self.assertIn("parts of at least 64 keys", computed["fa3_split"])
        self.assertNotEqual(computed["fa3"], computed["flashmla"])

    def test_a_name_of_an_arithmetic_and_of_a_form_is_both(self):
        out = run("explain", "fa2")[1]
        for part in ("fa2 (arithmetic)", "fa2 (form of recordings)", "\n  page_table: tensor i32 [batch, any]; pages of"):
            self.assertIn(part, out)
        self.assertNotRegex(run("explain", "page_table")[1], r"refs *\n")

    def test_every_listed_invariant_can_be_explained(self):
        items = json.loads(run("list", "laws", "--format", "json")[1])["items"]
        code, out, _ = run("explain", *(item["id"] for item in items))
        self.assertEqual(code, CLEAN)
        for item in items:
            self.assertIn(item["id"], out)
            self.assertIn(item["law"], out)
        self.assertEqual(out.count("How to mend it:"), len(items))

    def test_the_page_on_laws_has_the_list(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/laws.md")) as f:
            rows = [line for line in f if line.startswith("| `")]
        items = json.loads(run("list", "laws", "--format", "json")[1])["items"]
        self.assertEqual(rows, ["| `%s` | %s | %s | %s | %s |\n" % (i["id"], i["severity"], i["metadata"], i["judged in"], i["law"])
                                for i in items])

    def test_explain_in_json_has_the_same_words(self):
        item, = json.loads(run("explain", "len.capacity", "--format", "json")[1])["items"]
        text = run("explain", "len.capacity")[1]
        for key in ("id", "severity", "law", "mend", "judged in", "refs"):
            self.assertIn(item[key], text)

    def test_an_unknown_id_suggests_the_nearest_of_all_that_can_be_explained(self):
        meant = {"num.bond": "num.bound", "K3": "K31", "flashatention": "flashattention", "page_tabel": "page_table",
                 "fa.I" "3": "fa.I-03", "draft_extend_v3": "draft_extend_v2", "fa.I-" "999": "fa.I-",
                 "sglang#1": "sglang#", "K" "99": "K"}
        code, out, err = run("explain", *meant)
        self.assertEqual((code, out), (USAGE, ""))
        said = dict(re.findall(r"nothing is called '([^']+)' \(did you mean ([^)]*)\?\)", err))
        self.assertEqual(list(said), list(meant))
        for wrong, right in meant.items():
            self.assertIn(right, said[wrong])

    def test_whatever_a_list_or_a_reference_names_can_be_explained_in_any_case(self):
        names = set()
        words = " ".join(run("explain", "--help")[1].split())
        for kind in ("laws", "programs", "faults", "mistakes", "backends", "modes", "fields", "keys",
                     "references", "kernels", "arithmetics", "grids", "features", "targets"):
            self.assertIn(kind, words)
            for item in json.loads(run("list", kind, "--format", "json")[1])["items"]:
                names.update([next(item[key] for key in ("id", "name", "kernel") if key in item),
                              *item.get("refs", "").split()])
        # b and B are two keys of recordings: such names are asked for as they are.
        twice = {name.upper() for name in names if name.upper() in {n.upper() for n in names - {name}}}
        code, out, err = run("explain", *(name if name.upper() in twice else name.upper() for name in sorted(names)))
        self.assertEqual(code, CLEAN, err)
        at = -1
        for name in sorted(names):
            at = ("\n" + out).find("\n" + name + " (", at + 1)
            self.assertGreaterEqual(at, 0, name)

    def test_a_mistake_is_explained_as_outputs_and_as_metadata_show_it(self):
        mistakes = json.loads(run("list", "mistakes", "--format", "json")[1])["items"]
        out = run("explain", *(m["id"] for m in mistakes))[1]
        for m in mistakes:
            self.assertIn(f"{m['id']} (mistake)\n\n{m['what went wrong'] or m['in metadata']}.\n", out)
        both = [m for m in mistakes if m["what went wrong"] and m["in metadata"]]
        self.assertIn("extent.short_by_extend", [m["id"] for m in both])
        for m in both:
            self.assertIn(f"In metadata: {m['in metadata']}\n", out)

    def test_a_reference_that_nothing_can_break_says_why(self):
        rows = [r for r in json.loads(run("list", "references", "--format", "json")[1])["items"]
                if "Cannot be violated here, because" in r["what it says"]]
        self.assertGreater(len(rows), 0)
        for r in rows:
            self.assertIn(f"{r['id']} (reference)\n\n{r['what it says']}\n", run("explain", r["id"])[1])

    def test_several_ids_are_explained_in_their_order_and_an_unknown_one_hides_none(self):
        one, other = (run("explain", id)[1] for id in ("K31", "num.bound"))
        self.assertEqual(run("explain", "K31", "num.bound")[1], one + "\n" + other)
        code, out, err = run("explain", "K31", "num.bond", "num.bound", "sparse.chioce")
        self.assertEqual((code, out), (USAGE, one + "\n" + other))
        for said in ("nothing is called 'num.bond' (did you mean num.bound", "'sparse.chioce' (did you mean sparse.choice"):
            self.assertIn(said, err)
        documents = run("explain", "K31", "num.bound", "--format", "json")[1]
        one, other = (run("explain", id, "--format", "json")[1] for id in ("K31", "num.bound"))
        self.assertEqual(documents, one + other)

    def test_explanations_come_from_the_tables(self):
        for name, parts in (("K31", ("request 0's encoder length", "shadowgraph faults --id K31", "fa.I-43")),
                            ("graph.G112", ("G112 (", "Diagnosis: mem.uninit_read", "Laws that stand on it: mem.uninit_read")),
                            ("sglang#26512", ("https://github.com/sgl-project/sglang/issues/26512", "K01")),
                            ("fa.I-34", ("A table is in the unit that its kernel reads", "Laws that stand on it: table.unit",
                                         "trtllm_mha page_table")),
                            ("K48", ("K48 (fault)", "shadowgraph faults --id K48")),
                            ("cross_decode", ("In graphs: yes", "flashattention")),
                            ("extend", ("In graphs: no", "seq_lens in traces: full", "need: extend_seq_lens")),
                            ("draft_decode", ("seq_lens in traces: prefix_only", "need: num_steps; of a tree"))):
            out = run("explain", name)[1]
            for part in parts:
                self.assertIn(part, out)

    def test_a_family_is_the_laws_that_begin_so(self):
        laws = [i for i in json.loads(run("list", "laws", "--format", "json")[1])["items"] if i["id"].startswith("sparse.")]
        out = run("explain", "sparse.*")[1]
        self.assertEqual(out.split("\n\n", 1)[1], "Laws:\n" + "".join(f"  {i['id']}: {i['law']}\n" for i in laws))
        self.assertEqual(json.loads(run("explain", "sparse.*", "--format", "json")[1])["items"], laws)

    def test_a_buffer_is_explained_by_its_own_name_and_by_the_engines(self):
        asked = (
            ("page_table", "flashattention", ("page_table (field of traces)", "flashattention: [rows, pages]", "table.slot",
                                              "page_table (buffer)", "written by every fill", "read by  ")),
            ("cache_seqlens_int32", "flashattention as cache_seqlens", ("draft_decode",)),
            ("block_table", "flashattention as local_table", ("block_table (buffer)",)),
            ("eager/scheduler_metadata", "flashattention", ("scheduler_metadata (buffer)", "decode")),
            ("cu_seqlens_k", "trtllm_mha", ("cu_seqlens_k (buffer)",)))
        code, out, err = run("explain", *(name for name, _, _ in asked))
        self.assertEqual(code, CLEAN, err)
        texts = re.split(r"(?m)^(?=\S+ \([a-z ]+\)$)", out)
        for name, backend, parts in asked:
            of_name = "".join(text for text in texts if text.startswith(name.removeprefix("eager/") + " ("))
            for part in (f"\n  {backend}, ", *parts):
                self.assertIn(part, of_name)

    def test_a_feature_that_a_report_names_is_explained(self):
        for name, parts in (("histories topk", ("drafts are trees", "triton")), ("topk", ("topk (key", "drafts are trees")),
                            ("calls custom_mask packed", ("the mask of pairs is packed",))):
            out = run("explain", name)[1]
            for part in parts:
                self.assertIn(part, out)

    def test_fields_are_listed_of_all_backends_or_of_one(self):
        def backends(*args):
            return {i["backend"] for i in json.loads(run("list", "fields", *args, "--format", "json")[1])["items"]}

        self.assertLessEqual({"flashattention", "trtllm_mla"}, backends())
        self.assertEqual(backends("trtllm_mla"), {"trtllm_mla"})
        for args, said in ((("fields", "trtlm_mla"), "did you mean trtllm_mla?"), (("modes", "decode"), "only fields"),
                           (("fields", "flashmla_multi_step"), "its parts have")):
            code, out, err = run("list", *args)
            self.assertEqual((code, out), (USAGE, ""))
            self.assertIn(said, err)

    def test_a_scalar_is_judged_where_launches_read_it_and_a_plans_argument_always(self):
        fields = json.loads(run("list", "fields", "--format", "json")[1])["items"]
        rules = {f["rule"] for f in fields if f["shape"] == "number"}
        self.assertEqual(rules, {"at least, eager", "at least, eager and capture", "equal", "equal, eager",
                                 "nothing reads it"})
        self.assertFalse({f["rule"] for f in fields if f["shape"] != "number" and "eager" in f["rule"]})

    def test_the_page_on_traces_has_what_a_mode_needs(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/traces.md")) as f:
            page = f.read()
        modes = json.loads(run("list", "modes", "--format", "json")[1])["items"]
        self.assertIn("".join(f"| {m['name']} | {m['seq_lens']} | {m['needs']} |\n" for m in modes), page)
        prefixes = {m["name"] for m in modes if m["seq_lens"] == "prefix_only"}
        self.assertEqual(prefixes, {"target_verify", "draft_decode"})

    def test_a_mode_is_captured_if_a_fuzz_of_it_has_replays(self):
        modes = json.loads(run("list", "modes", "--format", "json")[1])["items"]
        captured = {mode["name"] for mode in modes if mode["captured"]}
        fuzz = run("fuzz", "--backend", "flashattention", "--cases", "40", "--format", "json")[1]
        rows = json.loads(fuzz)["coverage"]
        self.assertLessEqual({row["mode"] for row in rows if row["phase"] == "replay"}, captured)
        self.assertLessEqual({"decode", "draft_extend", "draft_extend_v2", "cross_decode"}, captured)
        self.assertEqual(captured & {"extend", "mixed", "cross_extend", "prebuilt"}, set())

    def test_the_current_target_can_be_chosen(self):
        out = run("list", "targets", "--format", "json", env={"SHADOWGRAPH_ISA": "generic"})[1]
        items = json.loads(out)["items"]
        self.assertEqual([i["name"] for i in items if i["used"] == "now"], ["generic"])


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
