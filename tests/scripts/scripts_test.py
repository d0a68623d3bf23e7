"""The checks of the sources report a planted violation, and only that."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import layers  # noqa: E402
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


if __name__ == "__main__":
    unittest.main()
