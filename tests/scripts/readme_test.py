"""What documentation names is there: the tour's C++ in programs that are compiled and run, commands, paths, links, tests."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = "\n".join([README, *((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("library.md", "commands.md"))])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Readme(unittest.TestCase):
    def test_cpp_is_part_of_an_example(self):
        blocks = re.findall(r"```cpp\n(.*?)```", TOUR, re.DOTALL)
        self.assertTrue(blocks)
        programs = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.[ch]*")]
        for block in blocks:
            self.assertTrue(any(block in program for program in programs), block)

    def test_every_command_of_dev_exists(self):
        commands = set(re.findall(r"\./dev (\w+)", TOUR))
        self.assertLessEqual({"fuzz", "test"}, commands)
        dev = (ROOT / "dev").read_text(encoding="utf-8")
        for command in commands:
            self.assertIn(f"cmd_{command}()", dev)

    def test_the_readme_is_a_tour(self):
        self.assertLessEqual(README.count("\n"), 120)

    def test_every_path_exists(self):
        for page in PAGES:
            for path in set(re.findall(r"`((?:src|tests|examples|include|docs|scripts|tools|bench)/[^`*\s:]+)`",
                                       page.read_text(encoding="utf-8"))):
                if not re.search(r"NAME|MODULE", path):
                    self.assertTrue((ROOT / path).exists(), f"{page.name}: {path}")

    def test_every_link_leads_to_a_heading(self):
        for page in PAGES:
            for target, anchor in set(re.findall(r"\]\(([\w./-]*)(#[\w-]+)?\)", page.read_text(encoding="utf-8"))):
                file = page.parent / target if target else page
                self.assertTrue(file.exists(), f"{page.name}: {target}")
                if anchor:
                    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
                    anchors = {"#" + re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
                    self.assertIn(anchor, anchors, f"{page.name}: {target}{anchor}")

    def test_every_test_that_a_source_names_exists(self):
        for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "include").rglob("*")]):
            if path.suffix not in (".h", ".cc", ".inl"):
                continue
            for named in re.findall(r"\btests/\w+/\w+\.(?:cc|h|py)\b", path.read_text(encoding="utf-8")):
                self.assertTrue((ROOT / named).exists(), f"{path.relative_to(ROOT)} names {named}")


if __name__ == "__main__":
    unittest.main()
