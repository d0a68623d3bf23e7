"""The checks of the sources report a planted violation, and only that."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import layers  # noqa: E402
import prices  # noqa: E402
import sizes  # noqa: E402


def run(script, *args):
    done = subprocess.run([sys.executable, SCRIPTS / script, *map(str, args)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.put("src/core/rng.h", '#include <vector>\nint f() { return 1; }\n')

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


class TestTargets(unittest.TestCase):
    def targets(self, regex):
        code, out = run("test_targets.py", regex)
        self.assertEqual(code, 0)
        return out.split()

    def test_a_name_leads_to_the_program_that_has_it(self):
        self.assertEqual(self.targets("^Mask.WindowZeroSeesOnlySelf$"), ["attn_tests"])
        self.assertEqual(self.targets("^Panels/Footprints.ACustomMaskIsRead"), ["kernels_tests"])
        self.assertEqual(self.targets("tools.names"), ["shadowgraph_cli"])
        self.assertEqual(self.targets("fuzz_safetensors"), ["fuzz_safetensors"])

    def test_what_happened_upstream_is_asked_for_together(self):
        self.assertEqual(self.targets("upstream"), ["upstream_tests"])

    def test_programs_that_only_some_presets_have_need_all(self):
        self.assertEqual(self.targets("^FastBodies"), ["all"])

    def test_what_no_program_has_needs_all(self):
        self.assertEqual(self.targets("package.installed"), ["all"])
        self.assertEqual(self.targets("NoSuchTest"), ["all"])


class BuildCost(Tree):
    def test_lines_of_headers_count_in_each_file_that_includes_them(self):
        self.put("h.h", "int h;\n" * 10)
        for name in "ab":
            self.put(f"{name}.cc", '#include "h.h"\nint f();\n')
        self.put("build.ninja", "rule cc\n  command = cc -MD -MT $out -MF $out.d -o $out -c $in\n"
                                "build a.o: cc a.cc\nbuild b.o: cc b.cc\nbuild all: phony a.o b.o\n")
        for limit, expected in ((22, 0), (21, 1)):
            code, out = run("build_cost.py", self.root, "all", limit)
            self.assertEqual(code, expected, out)
            self.assertIn("reads 22 lines in 2 files", out)


class Layers(Tree):
    def reports(self, name, text, *expected):
        self.put(name, text)
        code, out = run("layers.py", self.root)
        self.assertEqual(code, 1, out)
        for part in expected:
            self.assertIn(part, out)

    def test_allowed_edges_are_silent(self):
        self.put("include/shadowgraph/attention/lse.h", '#include "shadowgraph/dtype.h"\n')
        self.put("src/fuzz/random.cc", '#include "core/rng.h"\n#include "oracle/oracle.h"\n')
        self.put("tests/kernels/a_test.cc", '#include "oracle/oracle.h"\n#include "kernels/a.h"\n')
        code, out = run("layers.py", self.root)
        self.assertEqual(code, 0, out)
        self.assertIn("6 includes", out)
        self.assertIn("0 against", out)

    def test_kernels_do_not_see_the_oracle(self):
        self.reports("src/kernels/a.cc", '\n#include "oracle/oracle.h"\n',
                     "src/kernels/a.cc:2: kernels -> oracle")

    def test_oracle_does_not_see_kernels(self):
        self.reports("src/oracle/a.cc", '#include "kernels/a.h"\n', "src/oracle/a.cc:1: oracle -> kernels")

    def test_core_does_not_see_a_public_header_of_attn(self):
        self.reports("src/core/a.h", '#include "shadowgraph/attention/lse.h"\n', "core -> attn")

    def test_public_headers_hide_src(self):
        self.reports("include/shadowgraph/engine/batch.h", '#include "core/rng.h"\n', "public header")

    def test_an_unlisted_module_or_header_is_seen(self):
        self.reports("src/misc/a.cc", '#include <vector>\n', "src/misc/a.cc belongs to no module")
        self.reports("include/shadowgraph/extra.h", '#include <vector>\n', "extra.h belongs to no module")

    def test_the_library_needs_no_third_party(self):
        self.reports("src/attn/a.cc", '#include <Eigen/Dense>\n', "attn -> <Eigen/Dense>")

    def test_the_page_on_architecture_has_the_table(self):
        page = (SCRIPTS.parent / "docs/architecture.md").read_text(encoding="utf-8")
        for module, below in layers.ALLOWED.items():
            self.assertIn(f"| `{module}` | {', '.join(below) + ' ' if below else ''}|", page)

    def test_nothing_to_check_is_not_clean(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(run("layers.py", empty)[0], 1)


class References(Tree):
    PAGE = "docs/graphs" ".md"  # wrong citations are cut in two here, or this file would have some

    def setUp(self):
        super().setUp()
        self.put("src/core/refs.inc", 'SG_REF("fa.I-28", "A sentence.")\nSG_REPOSITORY("sglang", "sgl-project/sglang")\n')
        self.put("src/faults/a.cc", '    {"K31", "CE", "title", "fa.I-28 sglang#26512"},\n')
        self.put("src/conformance/programs_a.cc", '{"G12", "title"},\n')
        self.put("docs/metadata.md", "# Metadata\n")
        self.put("scripts/references.py", "")
        self.put("docs/graphs.md", "# Graphs\n\n## The gate\n\n**One path.** Text.\n")
        self.put("src/core/a.h", f'// K31, graph.G12. See {self.PAGE} "The\n// gate", "One path".\n')
        self.assertEqual(run("references.py", "--write", self.root)[0], 0)

    def reports(self, name, text, expected):
        self.put(name, text)
        code, out = run("references.py", self.root)
        self.assertEqual((code, expected in out), (1, True), out)

    def test_what_resolves_is_silent(self):
        code, out = run("references.py", self.root)
        self.assertEqual(code, 0, out)
        self.assertIn("1 rows, 3 ids", out)

    def test_an_unknown_id_is_named_with_its_place(self):
        for unknown in ("fa.I-" "29", "fi.I-" "28", "graph.G" "13", "verification." "Z", "K" "32"):
            self.reports("src/core/a.h", f"\n// Stands on {unknown}.\n", f"src/core/a.h:2: {unknown} is no row")

    def test_a_row_that_nothing_cites_is_named(self):
        self.put("src/core/refs.inc", 'SG_REF("fa.I-28", "A sentence.")\nSG_REF("fa.I-" "01", "Another.")\n'.replace('" "', ""))
        self.assertIn("nothing cites fa.I-" "01", run("references.py", "--write", self.root)[1])

    def test_a_document_that_is_not_in_the_tree_is_named(self):
        self.reports("src/core/a.h", "// See docs/else" ".md.\n", "docs/else" ".md is not in the tree")
        self.reports("src/core/a.h", "// Tested by tests/core/no_test.cc.\n", "tests/core/no_test.cc is not in the tree")
        self.reports("src/core/a.h", "// DESIG" 'N "The one path"\n', "outside the repository")
        self.reports("src/core/a.h", f'// See {self.PAGE} "The door".\n', 'no heading "The door"')

    def test_a_link_has_a_repository(self):
        self.reports("src/faults/a.cc", '    {"K31", "CE", "title", "fa.I-28 vlln#26512"},\n', "vlln#26512")

    def test_the_page_is_the_list(self):
        self.reports("docs/references.md", "# References\n", "is not the list")

    def whole(self, head, rows):
        """What is said of a table with such a head and rows."""
        self.put("src/core/refs.inc", f"// Whole: {head}.\n" + rows + 'SG_REPOSITORY("sglang", "sgl-project/sglang")\n')
        return run("references.py", "--write", self.root)

    def test_a_whole_list_has_every_number_and_each_is_held(self):
        one, two = 'SG_REF("fa.I-28", "A sentence.")\n', 'SG_REF("fa.I-" "29", "Another.")\n'.replace('" "', "")
        head = "fa.I-28 to fa.I-" "29, graph.G12 to graph.G12, K31 to K31"
        self.assertIn("fa.I-" "29 is missing", self.whole(head, one)[1])
        # A document, and a comment beside the code, hold nothing.
        self.put("docs/metadata.md", "# Metadata\n\nfa.I-" "29\n")
        self.put("src/faults/b.cc", "// fa.I-" "29\n")
        code, out = self.whole(head, one + two)
        self.assertEqual(code, 1, out)
        self.assertIn("test holds fa.I-" "29, and it has no reason", out)
        self.assertIn("fa 2, G 1, K 1: 1 uncited", out)
        self.put("tests/backends/a_test.cc", "/// fa.I-" "29.\n")
        code, out = self.whole(head, one + two)
        self.assertEqual(code, 0, out)
        self.assertIn("fa 2, G 1, K 1: 0 uncited, 0 cannot be violated here", out)

    def test_a_graph_rule_is_a_program_or_a_test_and_a_fault_is_planted(self):
        row = 'SG_REF("fa.I-28", "A sentence.")\n'
        self.assertIn("graph.G" "13 is missing", self.whole("graph.G12 to graph.G" "13, K31 to K31", row)[1])
        self.assertIn("K" "32 is missing", self.whole("K31 to K" "32", row)[1])
        rule = row + 'SG_REF("graph.G" "13", "A rule.")\n'.replace('" "', "")
        self.put("src/graph/a.cc", "// G" "13\n")
        self.assertIn("test holds graph.G" "13", self.whole("graph.G12 to graph.G" "13", rule)[1])
        self.put("tests/graph/a_test.cc", "TEST(Patterns, G" "13_Something) {}\n")
        code, out = self.whole("graph.G12 to graph.G" "13", rule)
        self.assertEqual(code, 0, out)

    def test_a_reason_stands_in_for_whoever_would_hold_it(self):
        row = 'SG_REF_IMPOSSIBLE("fa.I-28", "A sentence.", "no twin has it yet")\n'
        self.put("src/faults/a.cc", '    {"K31", "CE", "title", "sglang#26512"},\n')
        code, out = self.whole("fa.I-28 to fa.I-28", row)
        self.assertEqual(code, 0, out)
        self.assertIn("fa 1: 0 uncited, 1 cannot be violated here", out)
        self.assertIn("| `fa.I-28` | A sentence. Cannot be violated here, because no twin has it yet. |",
                      (self.root / "docs/references.md").read_text(encoding="utf-8"))
        # What something holds can be violated.
        self.put("src/faults/a.cc", '    {"K31", "CE", "title", "fa.I-28 sglang#26512"},\n')
        code, out = self.whole("fa.I-28 to fa.I-28", row)
        self.assertEqual(code, 1, out)
        self.assertIn("fa.I-28 cannot be violated, and a law, field, fault or test cites it", out)

    def test_the_lists_of_this_repository_are_whole(self):
        code, out = run("references.py", SCRIPTS.parent)
        self.assertEqual(code, 0, out)
        self.assertIn("fa 98, fi 110, G 160, K 90: 0 uncited", out)


class OneDefinition(Tree):
    def test_a_type_that_two_files_define_for_all_is_named(self):
        self.put("src/check/a.h", "namespace shadowgraph {\n\nstruct Run {\n};\n\n}  // namespace shadowgraph\n")
        self.put("src/graph/b.cc", "namespace shadowgraph {\n\nclass Run final : public Base {\n};\n\n"
                                   "}  // namespace shadowgraph\n")
        code, out = run("one_definition.py", self.root)
        self.assertEqual(code, 1, out)
        self.assertIn("src/check/a.h:3: shadowgraph::Run is defined in src/graph/b.cc:3, too", out)

    def test_two_specialisations_of_one_template_are_two_types_and_one_that_stands_twice_is_named(self):
        one = "namespace shadowgraph {\n\ntemplate <>\nstruct Words<%s> {\n};\n\n}  // namespace shadowgraph\n"
        self.put("src/check/a.h", one % "DType")
        self.put("src/graph/b.cc", one % "Step::Kind")
        code, out = run("one_definition.py", self.root)
        self.assertEqual(code, 0, out)
        self.put("src/graph/c.cc", one % "DType")
        code, out = run("one_definition.py", self.root)
        self.assertEqual(code, 1, out)
        self.assertIn("shadowgraph::Words<DType> is defined in src/graph/c.cc:4, too", out)

    def test_unnamed_namespaces_other_namespaces_members_and_declarations_are_silent(self):
        self.put("src/check/a.h", "namespace shadowgraph {\n\nstruct Run {\n  struct State;\n};\nclass Pool;\n\n"
                                  "}  // namespace shadowgraph\n")
        self.put("src/check/a.cc", "namespace shadowgraph {\n\nstruct Run::State {\n};\n\n}  // namespace shadowgraph\n")
        self.put("src/graph/b.cc", "namespace shadowgraph {\nnamespace {\n\nstruct Run {\n};\n\n}  // namespace\n\n"
                                   "struct Pool {\n};\n\n}  // namespace shadowgraph\n")
        self.put("src/graph/c.cc", "namespace shadowgraph::testing {\n\nstruct Run {\n};\n\n"
                                   "}  // namespace shadowgraph::testing\n")
        code, out = run("one_definition.py", self.root)
        self.assertEqual(code, 0, out)
        self.assertIn("3 types", out)


class Edges(Tree):
    def setUp(self):
        super().setUp()
        self.put("src/core/edges.h", "enum class Axis {\n  kKeys,\n  kQueryRows,\n};\n")

    def refused(self, code, words):
        self.put("src/kernels/a.cc", code)
        run("edges.py", "--write", self.root)
        status, out = run("edges.py", self.root)
        self.assertEqual(status, 1, out)
        self.assertIn(words, out)

    def test_constants_and_sizes_in_comparisons_need_a_word(self):
        for code in ("constexpr int kTile = 64;\n", "constexpr int kTile =\n    64;\n", "if (n < 96) f();\n",
                     "constexpr int kA = 4, kB = 2 * kA;\n", "return n / 16;\n"):
            self.refused(code, "src/kernels/a.cc:1: ")

    def test_an_axis_that_there_is_not_is_an_error(self):
        self.refused("constexpr int kTile = 64;  // edge: apples\n", "apples is no axis")

    def test_the_list_holds_what_stands_beside_them(self):
        self.put("include/shadowgraph/a.h", "constexpr int kPage = 16;\n")
        self.put("src/kernels/a.cc", "// edge: keys, query_rows\nconstexpr int kTiles[] = {4 * kPage, 128};\n"
                                     "constexpr int kBits = 12;  // no edge: bits\nreturn n / 8 + (n == 99);\n")
        code, out = run("edges.py", self.root)
        self.assertEqual(code, 1)
        self.assertIn("--write", out)
        self.assertEqual(run("edges.py", "--write", self.root)[0], 0)
        rows = [line for line in (self.root / "src/core/edges.inc").read_text().splitlines() if line.startswith("SG")]
        self.assertEqual(rows, [f'SG_EDGE("kernels/a.cc", k{axis}, {size})' for axis in ("Keys", "QueryRows")
                                for size in (64, 128)])
        self.assertEqual(run("edges.py", self.root)[0], 0)


class Sizes(Tree):
    def body(self, lines):
        return "".join(f"  use({i});\n" for i in range(lines - 2))

    def test_the_limit_itself_is_allowed(self):
        self.put("src/core/a.cc", "void f() {\n" + self.body(60) + "}\n")
        self.put("src/core/b.cc", "//\n" * 500)
        code, out = run("sizes.py", self.root)
        self.assertEqual(code, 0, out)
        self.assertIn("b.cc: 500 lines, note", out)

    def test_a_long_file_is_an_error(self):
        self.put("src/core/b.cc", "//\n" * 501)
        code, out = run("sizes.py", self.root)
        self.assertEqual(code, 1)
        self.assertIn("src/core/b.cc: 501 lines, limit 500", out)

    def test_a_long_function_is_an_error_wherever_it_stands(self):
        self.put("src/core/a.h", "namespace a {\nstruct S : B {\n public:\n"
                 "  template <class T>\n  void f(T x) const {\n" + self.body(61) + "  }\n};\n}\n")
        code, out = run("sizes.py", self.root)
        self.assertEqual(code, 1)
        self.assertIn("src/core/a.h:5: f has 61 lines, limit 60", out)

    def test_only_kernel_bodies_may_reach_90(self):
        text = "void f() {\n" + self.body(90) + "}\n"
        self.put("src/kernels/a.inl", text)
        self.assertEqual(run("sizes.py", self.root)[0], 0)
        self.put("src/attn/a.inl", text)
        self.assertEqual(run("sizes.py", self.root)[0], 1)

    def test_functions_are_told_from_other_braces(self):
        text = ('const int a[] = {1, 2};\nenum class E { kA };\nstruct S {\n  S() : x{1}, y(2) {\n  }\n'
                '  int x = {0};\n};\n// void no() {\nconst char* s = "void no() {";\n'
                'TEST(A, B) {\n  auto f = [](int v) { return v; };\n}\n')
        sizes_found = sorted(size for _, _, size in sizes.cpp_functions(text) if size > 1)
        self.assertEqual(sizes_found, [2, 3])  # S::S and TEST


class Prices(Tree):
    def setUp(self):
        super().setUp()
        self.put("src/backends/paged/base.h", "class PagedBackend : public Backend {\n};\n")
        self.put("src/backends/paged/toy.h", "class Toy final : public PagedBackend {\n};\n")
        self.put("src/backends/registry.cc", '#include "backends/paged/toy.h"\n')
        self.put("src/backends/backends.inc", "SG_BACKEND(toy, Toy{})\n")
        self.put("src/io/recorded/kinds.inc", 'SG_RECORDED_KIND("toy", "decode", "", read_toy)\n')
        self.put("src/io/recorded/toy.cc", "void read_toy(CaseReader& r, RecordedCase* c) {\n}\n")
        self.put("src/check/laws.inc", 'SG_METADATA_LAW("len.total", judge_totals)\n')
        self.put("src/check/laws/totals.cc", "void judge_totals(const MetaFacts& m, LawReport& r) {\n}\n")
        self.put("src/faults/toys.cc", 'constexpr Fault kToys[] = {\n    {"K01", "OOBW", "t", "r", "", a([] {\n    })},\n};\n')
        self.put("src/launch/toy.h", "template <class V>\nvoid visit_args(V& v, ToyCall& c) {\n}\n")

    def judged(self, dearer=None):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = prices.main(self.root, dearer or {})
        self.assertEqual(code, 0 if "prices: 0 over" in out.getvalue() else 1)
        return out.getvalue()

    def add(self, name, text):
        self.put(name, (self.root / name).read_text(encoding="utf-8") + text)

    def test_each_kind_is_told_with_its_dearest(self):
        self.add("src/backends/paged/toy.h", "//\n" * 98)
        out = self.judged()
        self.assertIn("prices: 0 over the limit", out)
        self.assertIn("twin: 1, limit 100, the dearest 100 (Toy)", out)

    def test_a_kind_of_which_none_is_found_is_an_error(self):
        self.put("src/check/laws.inc", "\n")
        self.assertIn("law: found none", self.judged())

    def test_a_long_twin_is_named_with_its_parts_and_without_another_of_a_longer_name(self):
        self.put("src/backends/paged/toy_fill.cc", "//\n" * 99)
        self.assertIn("toy.h: twin Toy costs 101, limit 100", self.judged())
        self.put("src/backends/paged/toy_fill.cc", "//\n" * 60)
        self.add("src/backends/paged/toy.h", "//\n" * 40)
        self.assertIn("twin Toy costs 102, limit 100", self.judged())
        self.put("src/backends/paged/toy_fill.h", "class ToyFill final : public PagedBackend {\n};\n")
        self.assertIn("prices: 0 over", self.judged())

    def test_a_twin_that_many_files_name_is_an_error(self):
        self.put("src/check/a.cc", "// Toy\n")
        self.put("src/check/b.cc", 'const char* name = "Toy";\n')
        self.put("tests/backends/toy_test.cc", "Toy toy;\n")
        self.put("src/backends/paged/more.h", "class More final : public Toy {\n};\n")
        self.put("src/fuzz/c.cc", "Toy toy;\n")
        self.assertIn("prices: 0 over", self.judged())
        self.put("src/fuzz/d.cc", '#include "backends/paged/toy.h"\n')
        self.assertIn("files Toy costs 5, limit 4", self.judged())

    def test_a_recorded_kernel_has_one_row_and_a_short_reader(self):
        self.add("src/io/recorded/kinds.inc", 'SG_RECORDED_KIND("toy", "decode", "other", read_toy)\n')
        self.add("src/io/recorded/toy.cc", "//\n" * 59)
        out = self.judged()
        self.assertIn('"toy", "decode" has 2 rows', out)
        self.assertIn("recorded toy.cc costs 61, limit 60", out)

    def test_a_long_law_is_named(self):
        self.add("src/check/laws/totals.cc", "void judge_rows() {\n" + "  f();\n" * 39 + "}\n")
        self.assertIn("totals.cc:3: law judge_rows costs 41, limit 40", self.judged())

    def test_a_long_fault_is_named_in_its_row_or_beside_it(self):
        body = "  f();\n" * 14
        self.add("src/faults/toys.cc", 'constexpr Fault kMore[] = {\n    {"K02", "a {", "t", "r", "", a([] {\n' + body +
                 "    })},\n};\nstruct Slow : Tap {\n  void step() {\n" + body + "  }\n};\n")
        out = self.judged()
        self.assertIn("toys.cc:6: fault K02 costs 16, limit 15", out)
        self.assertIn("fault Slow costs 16, limit 15", out)

    def test_a_second_visitor_of_a_call_is_an_error(self):
        self.put("src/fuzz/members.h", "void visit_members(V& v, ToyCall& c) {\n}\nvoid visit_args(V& v, Part& p) {\n}\n"
                                       "void visit_fields(V& v, Part& p) {\n}\n")
        self.assertIn("prices: 0 over", self.judged())
        self.put("src/fuzz/more.h", "void visit_args(V& v, ToyCall& c) {\n}\nvoid visit_shapes(V& v, ToyCall& c) {\n}\n")
        out = self.judged()
        for name in ("visit_args", "visit_shapes"):
            self.assertIn(f"{name} is one more visitor of ToyCall", out)

    def test_a_dearer_price_is_a_limit_and_ends_when_nothing_needs_it(self):
        self.add("src/backends/paged/toy.h", "//\n" * 118)
        self.assertIn("prices: 0 over", self.judged({("twin", "Toy"): (120, "why")}))
        self.assertIn("costs 120, limit 119", self.judged({("twin", "Toy"): (119, "why")}))
        self.assertIn("law gone stands in DEARER", self.judged({("law", "gone"): (50, "why")}))


class Comments(Tree):
    def judged(self, name, text):
        self.put(name, text)
        code, out = run("comments.py", self.root)
        self.assertEqual(code, 1 if "0 against" not in out else 0)
        return out

    def test_a_verbless_opening_is_an_error(self):
        self.assertIn('src/core/a.h:2: a comment opens with "Of"',
                      self.judged("src/core/a.h", "int f();\n  /// Of each row.\nint g();\n"))

    def test_of_inside_a_comment_is_not(self):
        self.assertIn("0 against", self.judged("src/core/a.h", "/// The sum.\n/// Of all rows it takes the live ones.\nint g();\n"))

    def test_a_source_without_a_header_says_what_it_does(self):
        self.assertIn("src/core/a_fill.cc:1: no header of its own", self.judged("src/core/a_fill.cc", "int f();\n"))
        self.assertIn("0 against", self.judged("src/core/a_fill.cc", "// Fills a.\nint f();\n"))

    def test_a_source_with_a_header_and_a_test_need_no_sentence(self):
        self.put("src/core/a.h", "// A.\n")
        self.put("include/shadowgraph/b.h", "// B.\n")
        for name in ("src/core/a.cc", "src/core/b.cc", "tests/core/c_test.cc"):
            self.assertIn("0 against", self.judged(name, "int f();\n"))


class InternalLinkage(Tree):
    def compile(self, text, path="isa/avx2.cc"):
        source = self.put(path, text)
        target = source.with_suffix(".cc.o")
        subprocess.run([os.environ.get("CXX", "c++"), "-O3", "-c", source, "-o", target], check=True)
        return target

    def test_a_weak_symbol_is_seen(self):
        code, out = run("internal_linkage.py", self.compile("inline int f() { return 1; }\nint (*g)() = f;\n"))
        self.assertEqual(code, 1)
        self.assertIn("W f()", out)

    def test_internal_linkage_is_silent(self):
        code, out = run("internal_linkage.py", self.compile("static int f() { return 1; }\nint (*g)() = f;\n"))
        self.assertEqual(code, 0, out)

    def test_the_peer_eigen_shares_nothing_but_its_own_namespace(self):
        path = "bench.dir/peer_eigen.cc"
        text = "namespace %s { inline int f() { return 1; } }\nint (*g)() = %s::f;\n"
        self.assertEqual(run("internal_linkage.py", self.compile(text % (("EigenForAvx512",) * 2), path))[0], 0)
        code, out = run("internal_linkage.py", self.compile(text % (("Eigen",) * 2), path))
        self.assertEqual(code, 1)
        self.assertIn("W Eigen::f()", out)


class Isa(Tree):
    """scripts/isa.sh, with small scripts in place of the programs that it builds and runs."""

    def program(self, path, text):
        file = self.put(path, "#!/bin/sh\n" + text)
        file.chmod(0o755)

    def ran(self, kernels):
        self.program("bin/cmake", "exit 0\n")
        self.program("build/tools/shadowgraph", "printf 'name used\\nold now\\nnew not on this machine\\n'\n")
        self.program("build/tests/kernels_tests", kernels)
        self.program("build/tests/fuzz_tests", 'echo "[==========] 1 test from 1 test suite ran."; echo "[  PASSED  ] 1 test."\n')
        done = subprocess.run([SCRIPTS / "isa.sh", "run", self.root / "out"], text=True, capture_output=True,
                              env={**os.environ, "BUILD": str(self.root / "build"),
                                   "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"})
        return done.returncode, done.stdout

    def test_each_instruction_set_of_the_machine_has_its_counts(self):
        code, out = self.ran('echo "[==========] 7 tests from 2 test suites ran. (3 ms total)"\n'
                             'echo "[  PASSED  ] 5 tests."\necho "[  SKIPPED ] 2 tests, listed below:"\n')
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"old +kernels_tests +7 ran +5 passed +0 failed +2 skipped +exit 0\n")
        self.assertRegex(out, r"old +fuzz_tests +1 ran +1 passed +0 failed +0 skipped +exit 0\n")
        self.assertNotIn("new  ", out)

    def test_a_failure_or_no_test_is_an_error(self):
        code, out = self.ran('echo "[==========] 7 tests from 2 test suites ran."\necho "[  FAILED  ] 1 test, listed below:"\nexit 1\n')
        self.assertEqual(code, 1)
        self.assertRegex(out, r"old +kernels_tests +7 ran +0 passed +1 failed +0 skipped +exit 1\n")
        self.assertEqual(self.ran('echo "[==========] 0 tests from 0 test suites ran."\n')[0], 1)
        self.assertEqual(self.ran("exit 0\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
