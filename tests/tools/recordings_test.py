"""Laws of docs/recordings.md: what it shows is judged as it says. Usage: recordings_test.py BINARY REPORTS."""

import ast
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

BINARY, REPORTS = "", ""
PAGE = os.path.join(os.path.dirname(__file__), "../../docs/recordings.md")


def run(*args, cwd=None):
    """Exit code, stdout, stderr."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def page():
    with open(PAGE) as f:
        return f.read()


def python_with_numpy():
    """Debian's python3-numpy belongs to Debian's python3, which may not be the one that runs this."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    raise AssertionError("no Python with numpy: install python3-numpy")


class Recordings(unittest.TestCase):
    def examples(self):
        numpy, torch = re.findall(r"```python\n(.*?)```", page(), re.DOTALL)
        return numpy, torch

    def typed(self, folder, program):
        done = subprocess.run([python_with_numpy(), "-c", program], cwd=folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_numpy_example_as_it_stands_is_judged_and_clean(self):
        names = re.search(r"`shadowgraph check (.*?)` ends with `(.*?)`", page())
        with tempfile.TemporaryDirectory() as folder:
            self.typed(folder, self.examples()[0])
            self.assertEqual(sorted(os.listdir(folder)), sorted(names[1].split()))
            code, out, _ = run("check", *names[1].split(), cwd=folder)
            self.assertEqual(code, 0, out)
            self.assertIn(names[2], out)
            report = json.loads(run("check", *names[1].split(), "--format", "json", cwd=folder)[1])
            self.assertEqual({c["kernel"] for c in report["cases"]}, {"accepted"})

    def test_a_kernel_of_the_example_that_forgets_a_key_is_found(self):
        kept = "seen = len(k) - len(q) + i + 1"
        program = self.examples()[0]
        self.assertIn(kept, program)
        with tempfile.TemporaryDirectory() as folder:
            self.typed(folder, program.replace(kept, "seen = max(1, len(k) - len(q) + i)"))
            code, out, _ = run("check", "decode.safetensors", cwd=folder)
            self.assertEqual(code, 1)
            self.assertIn("num.recorded", out)

    def test_the_torch_example_is_python(self):
        torch = ast.parse(self.examples()[1])
        self.assertIn("record", [node.name for node in torch.body if isinstance(node, ast.FunctionDef)])

    def test_the_page_has_the_names_of_its_form(self):
        keys = [k for k in json.loads(run("list", "keys", "--format", "json")[1])["items"]
                if k["of"].startswith("recording ") and "fa2" in k["of"].split()]
        rows = ["| `%s` | %s | %s |" % (k["name"], k["value"].removeprefix("tensor ").replace("|", "\\|"), k["what"])
                for k in keys if k["value"] != "person"]
        self.assertEqual([line for line in page().splitlines() if re.match(r"\| `\w+` \| ", line)], rows)
        for key in keys:
            self.assertIn(f"`{key['name']}`", page())

    def test_the_page_is_found(self):
        self.assertIn("docs/recordings.md", run("check", "--help")[1])
        self.assertIn("docs/recordings.md", run("explain", "vector.case")[1])
        self.assertIn("docs/recordings.md", run("explain", "out_gpu")[1])
        self.assertIn("docs/recordings.md", run("explain", "recordings")[1])

    def test_what_nothing_reads_is_refused_with_the_name_that_is_meant(self):
        path = os.path.join(REPORTS, "empty_rows.safetensors")
        with open(path, "rb") as f:
            size, = struct.unpack("<Q", f.read(8))
            header, data = json.loads(f.read(size)), f.read()
        members = json.loads(header["__metadata__"]["empty-exact"])
        members["window_rihgt"] = 0
        header["__metadata__"]["empty-exact"] = json.dumps(members)
        text = json.dumps(header).encode()
        with tempfile.TemporaryDirectory() as folder:
            changed = os.path.join(folder, "a.safetensors")
            with open(changed, "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + data)
            code, out, _ = run("check", changed, "--case", "empty-exact")
        self.assertEqual(code, 3)
        self.assertIn("where     window_rihgt", out)
        self.assertIn("did you mean window_right?", out)
        self.assertIn("got       0, which nothing reads", out)

    def test_terms_that_cannot_be_judged_yet_are_refused_by_name(self):
        for name, fields in (("alibi", {"alibi_slopes"}), ("head_scales", {"k_scale", "v_scale"})):
            code, out, _ = run("check", os.path.join(REPORTS, name + ".safetensors"), "--format", "json")
            self.assertEqual(code, 3)
            self.assertEqual({f["where"]["field"] for f in json.loads(out)["findings"]}, fields)

    def test_the_last_line_counts_rows_that_a_kernel_marked(self):
        path = os.path.join(REPORTS, "empty_rows.safetensors")
        code, out, _ = run("check", path, "--case", "empty-lse-sentinel-not-asked")
        self.assertEqual(code, 0)
        self.assertIn("12 rows of no key marked by the kernel", out.splitlines()[-1])
        self.assertNotIn("marked", run("check", path, "--case", "empty-exact")[1])

    def test_the_list_of_arithmetics_says_which_recordings_each_is_the_preset_of(self):
        rows = {r["kernel"]: r["preset of"] for r in json.loads(run("list", "arithmetics", "--format", "json")[1])["items"]}
        self.assertEqual(rows["fa2"], "any of the form fa2")
        self.assertEqual(rows["flashinfer_decode"], "decode, fp8_decode, window_decode_...")
        self.assertEqual((rows["plain_f32"], rows["tensor_cores"]), ("", ""))

    def test_a_name_of_an_arithmetic_is_one_of_the_list(self):
        program = self.examples()[0].replace('"arithmetic": "plain_f32"', '"arithmetic": "plain_f23"')
        with tempfile.TemporaryDirectory() as folder:
            self.typed(folder, program)
            code, out, _ = run("check", "decode.safetensors", cwd=folder)
        self.assertEqual(code, 3)
        self.assertIn("did you mean plain_f32?", out)


if __name__ == "__main__":
    BINARY, REPORTS = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
