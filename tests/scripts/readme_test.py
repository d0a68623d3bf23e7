"""What documentation names is there: the README's C++ in programs that are compiled and run, commands, paths, tests."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_cpp_is_part_of_an_example(self):
        blocks = re.findall(r"```cpp\n(.*?)```", README, re.DOTALL)
        self.assertTrue(blocks)
        programs = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.cc")]
        for block in blocks:
            self.assertTrue(any(block in program for program in programs), block)

    def test_every_command_of_dev_exists(self):
        commands = set(re.findall(r"\./dev (\w+)", README))
        self.assertLessEqual({"fuzz", "test"}, commands)
        dev = (ROOT / "dev").read_text(encoding="utf-8")
        for command in commands:
            self.assertIn(f"cmd_{command}()", dev)

    def test_every_path_exists(self):
        paths = set(re.findall(r"\b((?:src|tests|examples|include|docs)/[\w./]+\w)", README))
        self.assertTrue(paths)
        for path in paths:
            self.assertTrue((ROOT / path).exists(), path)

    def test_every_test_that_a_source_names_exists(self):
        for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "include").rglob("*")]):
            if path.suffix not in (".h", ".cc", ".inl"):
                continue
            for named in re.findall(r"\btests/\w+/\w+\.(?:cc|h|py)\b", path.read_text(encoding="utf-8")):
                self.assertTrue((ROOT / named).exists(), f"{path.relative_to(ROOT)} names {named}")


if __name__ == "__main__":
    unittest.main()
