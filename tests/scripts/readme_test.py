"""The README's C++ example is part of a program that is compiled and run, and its commands exist."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_cpp_is_part_of_the_quickstart(self):
        blocks = re.findall(r"```cpp\n(.*?)```", README, re.DOTALL)
        self.assertTrue(blocks)
        program = (ROOT / "examples" / "quickstart.cc").read_text(encoding="utf-8")
        for block in blocks:
            self.assertIn(block, program)

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


if __name__ == "__main__":
    unittest.main()
