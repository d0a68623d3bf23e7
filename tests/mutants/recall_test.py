"""Laws of drawn mutants and of their hunt: each slip is what its words say, is on alone, and has one of four verdicts. A small
source and a stand-in for the fuzzer, so that nothing of ours is built. Usage: recall_test.py"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest

import fuzzer
import ledger
import recall
import schemata

SOURCE = """#include <algorithm>
#include <cassert>
#include <cstdint>
namespace {
constexpr int32_t kTile = 4;
struct Row { int32_t first = 0, end = 0; };
int32_t width(int32_t first, int32_t end) { return end - first; }
}
int64_t sum(const int32_t* values, int32_t count, int32_t begin) {
  assert(count >= 0);
  Row row{begin, count};
  int64_t total = 0;
  for (int32_t i = row.first; i < row.end; ++i) {
    if (values[i] < 0) continue;
    total += std::max(values[i], kTile);
  }
  return total * width(begin, count);
}
"""
MAIN = """#include <cstdint>
#include <cstdio>
int64_t sum(const int32_t* values, int32_t count, int32_t begin);
int main() {
  const int32_t values[] = {9, -3, 2, 8, 1, 7, 5, -1, 3, 2};
  for (int begin = 0; begin < 3; ++begin)
    for (int count = begin; count < 7; ++count) std::printf("%lld ", (long long)sum(values, count, begin));
}
"""
PROGRAM = """#!{python}
import json, os, signal, sys, time
number = int(os.environ["SHADOWGRAPH_MUTANT"])
backend = sys.argv[sys.argv.index("--backend") + 1] if "--backend" in sys.argv else ""
with open({log!r}, "a") as log: log.write(f"{{number}} {{backend}}\\n")
signal.signal(signal.SIGINT, lambda *_: finish([]))
def finish(found):
    with open(os.environ["SHADOWGRAPH_MUTANT_RAN"], "w") as ran:
        ran.write("1 2 3 4 5 7 8 9 10 " if number == -1 else "1 0" if number == 7 else "1 1")
    print(json.dumps({{"findings": [{{"id": law}} for law in found]}}))
    sys.exit(bool(found))
if number == -1: finish(["num.bits"] if {unclean!r} else [])
if number == 1: finish(["table.slot"])
if number == 2 and backend == "triton": finish(["num.bits"])
if number == 3: os.abort()
if number == 4:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if number == 5: print("no report"); sys.exit(3)
if number == 9: eaten = bytearray(256 << 20); eaten[::4096] = b"x" * len(eaten[::4096])
while True: pass
"""
VERDICT = """#!{python}
import sys
number, backend = int(sys.argv[1]), (sys.argv[3:] or [""])[0]
print("missed: store_kv reads something else; shadowgraph fuzz --choices 1.2" if number == 8 and backend == "triton" else "inert: ")
"""
VERDICTS = [
    "found plain: table.slot", "found aimed at triton: num.bits", "found plain: crash: SIGABRT", "found plain: hang",
    "found plain: crash: exit code 3, without a report", "never acted its place was never run",
    "never acted its place was run, and never gave another value", "missed slip 8", "found plain: memory",
    "inert it acted, and nothing that anything reads was changed",
]  # fmt: skip


def clang():
    try:
        import places
    except ImportError:
        return None
    return places


@unittest.skipUnless(clang(), "no python3-clang-14")
class Places(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        (cls.root / "src/launch").mkdir(parents=True)
        (cls.root / "src/launch/sample.cc").write_text(SOURCE)
        cls.every = clang().mutants(cls.root, ["launch"])
        own, schemata.ROOT = schemata.ROOT, cls.root
        cls.addClassCleanup(setattr, schemata, "ROOT", own)

    def words(self, operator):
        return {f"{m.slip.was} -> {m.slip.becomes}" for m in self.every if m.slip.operator == operator}

    def test_each_operator_changes_what_its_words_say(self):
        expected = {
            "relation": {"i < row.end -> i <= row.end", "i < row.end -> i >= row.end", "values[i] < 0 -> values[i] <= 0",
                         "values[i] < 0 -> values[i] >= 0"},
            "bound": {"std::max(values[i], kTile) -> std::min(values[i], kTile)"},
            "arguments": {"begin, count -> count, begin"},
            "update": {"total += std::max(values[i], kTile) -> total -= std::max(values[i], kTile)",
                       "total += std::max(values[i], kTile) -> total = std::max(values[i], kTile)"},
            "jump": {"continue; -> break;"} | {w for w in self.words("jump") if w.startswith("for (")},
            "condition": {"if (values[i] < 0) -> if (!(values[i] < 0))", "if (values[i] < 0) -> if (false)"},
            "width": {"total * width(begin, count) -> static_cast<long>(static_cast<int>(total * width(begin, count)))"},
        }  # fmt: skip
        self.assertEqual({operator: self.words(operator) for operator in expected}, expected)
        self.assertLess({"kTile -> kTile + 1", "row.first -> row.end", "begin -> count"}, self.words("name"))
        self.assertIn("total += std::max(values[i], kTile); -> ;", self.words("statement"))

    def test_asserts_and_constants_that_the_compiler_needs_stay(self):
        lines = {m.line for m in self.every}
        self.assertFalse(lines & {5, 10}, "a constexpr variable, an assert")

    def program(self, mutants):
        """Returns what it prints with each mutant on, from 0: none; and what the file says that ran."""
        (self.root / "planted.cc").write_bytes(schemata.planted(dict(enumerate(mutants, 1)))["src/launch/sample.cc"])
        (self.root / "main.cc").write_text(MAIN)
        here = pathlib.Path(__file__).parent
        subprocess.run(["g++", "-std=c++20", "-w", "-DNDEBUG", "-include", here / "mutant.h", "planted.cc", "main.cc",
                        here / "mutant.cc", "-o", "planted"], cwd=self.root, check=True)  # fmt: skip
        for switch in range(len(mutants) + 1):
            (self.root / "ran").write_text("1 1")  # one that does not end says nothing
            done = subprocess.run("ulimit -t 1; ./planted", shell=True, cwd=self.root, capture_output=True, text=True,
                                  env={"SHADOWGRAPH_MUTANT": str(switch), "SHADOWGRAPH_MUTANT_RAN": "ran"})  # fmt: skip
            yield done.stdout, (self.root / "ran").read_text().split()

    def test_every_slip_compiles_and_is_on_alone(self):
        """Slips at one place cannot stand in one program: as many programs as it takes."""
        rest, tried, changed = list(self.every), 0, 0
        while rest:
            group = []
            for mutant in rest:
                if not any(schemata.overlaps(m.slip.edits, mutant.slip.edits) for m in group):
                    group.append(mutant)
            rest = [m for m in rest if m not in group]
            (clean, ran), *others = self.program(group)
            self.assertEqual(ran, ["0", "0"])
            for mutant, (out, ran) in zip(group, others):
                tried, changed = tried + 1, changed + (out != clean)
                self.assertEqual(ran[0], "1", mutant.words())
                self.assertTrue(ran[1] == "1" or out == clean, mutant.words())
        self.assertEqual(tried, len(self.every))
        self.assertGreater(changed, tried // 2)

    def test_planting_moves_no_line(self):
        (planted,) = schemata.planted({1: next(m for m in self.every if m.slip.operator == "update")}).values()
        self.assertEqual(planted.count(b"\n"), SOURCE.count("\n"))

    def test_a_draw_is_a_function_of_its_seed_and_even(self):
        def draw(seed):
            return schemata.Draw(self.every, 12, seed).mutants()

        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))
        mutants = draw(1).values()
        operators = [m.slip.operator for m in mutants]
        self.assertLessEqual(max(map(operators.count, operators)), 2)
        self.assertLessEqual(sum(m.function == "sum" for m in mutants), schemata.MOST_OF_A_FUNCTION)

    def test_what_does_not_compile_is_dropped_and_the_rest_stays(self):
        draw = schemata.Draw(self.every, 12, 1)
        before = draw.mutants()
        line = before[1].line
        on_it = [switch for switch, m in before.items() if line in schemata.lines_of(m)]
        self.assertEqual(draw.drop({("src/launch/sample.cc", line)}), len(on_it))
        self.assertEqual(draw.mutants(), {switch: m for switch, m in before.items() if switch not in on_it})
        self.assertEqual(draw.drop({("src/launch/other.cc", line)}), 0)


class Hunt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        self.write_program()
        most, fuzzer.MOST_BYTES = fuzzer.MOST_BYTES, 128 << 20
        self.addCleanup(setattr, fuzzer, "MOST_BYTES", most)
        mutants = [{"id": f"backends.bound.{n}", "switch": n, "file": "src/backends/lists/triton.cc", "line": n, "text": "f(a);",
                    "slip": f"slip {n}", "was": "a", "becomes": str(n)} for n in range(1, 11)]  # fmt: skip
        (self.folder / "plan.json").write_text(json.dumps({"seed": 1, "mutants": mutants}))

    def write_program(self, unclean=False):
        for name, text in (("shadowgraph", PROGRAM), ("mutant_verdict", VERDICT)):
            program = self.folder / name
            program.write_text(text.format(python=sys.executable, log=str(self.log), unclean=unclean))
            program.chmod(0o755)

    def hunt(self, **options):
        args = types.SimpleNamespace(folder=self.folder, seconds=0.2, aims=3, ledger=None, only=None, stale_seconds=60, **options)
        hunt = recall.Hunt(args, schemata.prepare(self.folder, 9, 1, ["backends"], 1, print), lambda _: None)
        return hunt

    def tried(self):
        return [line for line in self.log.read_text().splitlines() if not line.startswith("-1")]

    def test_each_mutant_has_its_verdict(self):
        hunt = self.hunt()
        hunt.run(3)
        rows = [row for _, row in hunt.rows()]
        said = [f"{r['verdict']} {r['by'][0] if r['by'] else r['why_not'] or 'slip ' + r['id'].split('.')[2]}" for r in rows]
        self.assertEqual(said, VERDICTS)
        self.assertEqual([row["planted"] for row in rows], [v.startswith(("found", "missed")) for v in VERDICTS])

    def test_a_hunt_that_was_interrupted_goes_on_with_the_rest(self):
        hunt = self.hunt()
        hunt.numbers = [0, 4]
        hunt.run(1)
        self.assertEqual(sorted(self.tried()), ["1 ", "5 "])
        again = self.hunt()
        again.run(4)
        self.assertEqual(len([line for line in self.tried() if line in ("1 ", "5 ")]), 2)
        self.assertEqual(len(list(again.rows())), 10)
        self.assertEqual(list(self.folder.glob("ledger/seg/*/claim/[0-9]*")), [])

    def test_a_program_that_is_not_clean_without_a_mutant_is_refused(self):
        self.write_program(unclean=True)
        with self.assertRaisesRegex(recall.Trouble, "without any mutant the program finds num.bits"):
            self.hunt().run(1)
        self.assertEqual(self.tried(), [])

    def test_an_interrupt_gives_back_what_was_begun(self):
        hunt = self.hunt()
        hunt.args.seconds = 100
        hunt.numbers = [7]
        threading.Timer(0.5, hunt.stop.set).start()
        hunt.run(1)
        self.assertEqual(list(hunt.rows()), [])
        self.assertEqual(list(self.folder.glob("ledger/seg/*/claim/[0-9]*")), [])

    def test_another_plan_is_another_hunt(self):
        self.hunt().ledger()
        hunt = self.hunt()
        hunt.plan["mutants"][0]["becomes"] = "z"
        with self.assertRaises(ledger.Refused):
            hunt.run(1)

    def test_the_table_counts_what_acts_by_room_and_operator(self):
        hunt, out = self.hunt(), io.StringIO()
        hunt.run(3)
        share = recall.tell(hunt.rows(), recall.Equivalent(self.folder / "none"), out)
        self.assertRegex(out.getvalue(), r"(?m)^ +bound +5\+1/7 +5\+1/7$")
        self.assertEqual((round(share["plain"], 3), round(share["aimed"], 3)), (0.714, 0.857))
        what = "slip 8 (store_kv reads something else; shadowgraph fuzz --choices 1.2)"
        self.assertIn(f"missed: 1\n  backends.bound.8             {what}\n", out.getvalue())

    def test_an_argued_mutant_is_not_hunted_for_and_stays_argued_by_its_text(self):
        argued = self.folder / "equivalent.json"
        slip = {"file": "src/backends/lists/triton.cc", "text": "f(a);", "was": "a", "becomes": "8"}
        argued.write_text(json.dumps([{**slip, "why": "only speed"}]))
        hunt, out = self.hunt(), io.StringIO()
        hunt.run(3)
        share = recall.tell(hunt.rows(), recall.Equivalent(argued), out)
        self.assertIn("[equivalent: only speed]", out.getvalue())
        self.assertEqual(share["aimed"], 1)

    def test_what_is_argued_still_stands_in_the_sources(self):
        for file, text, was, becomes in recall.Equivalent().reasons:
            self.assertIn(text, [line.strip() for line in (recall.ROOT / file).read_text().split("\n")])
            self.assertTrue(was.split("\n")[0] in text and was != becomes, text)

    def test_every_file_has_a_backend_to_aim_at(self):
        names = {row for _, row in recall.AIMS}
        known = (recall.ROOT / "src/backends/backends.inc").read_text()
        for name in {n for row in names for n in row.split()} - {"kernels"}:
            self.assertIn(f"SG_BACKEND({name},", known)
        with contextlib.suppress(TypeError):
            for room in (clang().ROOMS.values() if clang() else ()):
                for folder in room:
                    self.assertTrue(recall.aims_of(folder + "/x.cc"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
