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


# A kernel with everything that a case can have (docs/recordings.md, "What else a kernel may add"), row by row in float64. It is another
# statement of the terms than the engine's and the oracle's, and stands behind the page's own save().
TERMS_PROGRAM = """
def positions(q_len, kv_len):
    return kv_len - q_len + np.arange(q_len)[:, None], np.arange(kv_len)[None]


def attend_with(terms, q, k, v, scale, request, first_key):
    q_len, kv_len, group = len(q), len(k), q.shape[1] // k.shape[1]
    at, key = positions(q_len, kv_len)
    ahead = key - at
    out, lse = np.zeros(q.shape), np.zeros((q.shape[1], q_len))
    for h in range(q.shape[1]):
        kh = h // group
        one = lambda name: np.atleast_2d(terms[name])[request if np.ndim(terms[name]) == 2 else 0][kh] if name in terms else 1
        s = scale * terms.get("q_scale", 1) * one("k_scale") * (q[:, h].astype(float) @ k[:, kh].astype(float).T)
        if "temperature_len" in terms:
            n = terms["temperature_len"]
            s = s * np.where(at > n, np.log(np.maximum(at, 1)) / np.log(n), 1)
        if "alibi_slopes" in terms:
            far = {"linear": ahead, "distance": -abs(ahead), "sqrt": -np.sqrt(np.maximum(-ahead, 0))}[terms.get("alibi", "linear")]
            s = s + terms["alibi_slopes"][h] * far
        if "key_bias" in terms:
            s = s + terms["key_bias"][h, first_key:first_key + kv_len]
        if "qq_bias" in terms:
            n = len(terms["qq_bias"])
            for i in range(min(n, q_len)):
                for j in range(min(n, q_len)):
                    s[i, kv_len - q_len + j] += terms["qq_bias"][i, j]
        if "relative_bias" in terms:
            n = terms["relative_bias"].shape[1] // 2
            s = s + terms["relative_bias"][h][np.clip(ahead, -n, n) + n]
        seen = key <= at if terms.get("request_causal", [True, True])[request] else key >= 0
        if "attention_chunk" in terms:
            n = terms["attention_chunk"]
            seen = seen & (key // n >= at // n - terms.get("chunk_lookback", 0)) & (key // n <= at // n)
        if "bidirectional_ranges" in terms:
            begin, end = terms["bidirectional_indptr"][request:request + 2]
            for first, last in terms["bidirectional_ranges"][begin:end]:
                seen = seen | ((at >= first) & (at <= last) & (key >= first) & (key <= last))
        if "cache_leftpad" in terms:
            seen = seen & (key >= terms["cache_leftpad"][request])
        s = np.where(seen, s, -np.inf)
        top = s.max(axis=1, keepdims=True)
        p = np.exp(s - top)
        out[:, h] = p @ (v[:, kh].astype(float) * one("v_scale")) / p.sum(axis=1, keepdims=True) * terms.get("out_scale", 1)
        lse[h] = top[:, 0] + np.log(p.sum(axis=1))
    return out.astype(np.float32), lse.astype(np.float32)


q_lens, kv_lens, tables = [5, 4], [13, 9], [[3, 0, 5, 1], [2, 6, 4, 4]]
pool = [rng.standard_normal((8, page, kv_heads, dim)).astype(np.float32) for _ in "kv"]
queries = rng.standard_normal((9, heads, dim)).astype(np.float32)


def case(terms, made_with):
    rows = [attend_with(made_with, queries[f:f + n], *(x[tables[r]].reshape(-1, kv_heads, dim)[:kv_lens[r]] for x in pool),
                        dim**-0.5, r, 13 * r) for r, (f, n) in enumerate([(0, 5), (5, 4)])]
    out, lse = np.concatenate([o for o, _ in rows]), np.concatenate([l for _, l in rows], axis=1)
    more = {k: v for k, v in terms.items() if not isinstance(v, np.ndarray)}
    tensors = {"q": queries, "k_cache": pool[0], "v_cache": pool[1], "page_table": np.array(tables, np.int32), "out_gpu": out, "lse_gpu": lse,
               "cache_seqlens": np.array(kv_lens, np.int32), "cu_seqlens_q": np.array([0, 5, 9], np.int32)}
    if "qo_indptr_padded" in terms:
        at = np.r_[0:5, 7:11]
        for name, axis in (("q", 0), ("out_gpu", 0), ("lse_gpu", 1)):
            x = tensors[name]
            tensors[name] = np.full([12 if i == axis else n for i, n in enumerate(x.shape)], np.nan, np.float32)
            tensors[name][(slice(None),) * axis + (at,)] = x
    return ({**members, "batch": 2, "q_lens": q_lens, "kv_lens": kv_lens, **more},
            {**tensors, **{k: v for k, v in terms.items() if isinstance(v, np.ndarray)}})


hidden = rng.standard_normal((heads, 22)).astype(np.float32)
hidden[1, 3] = hidden[2, 15] = -np.inf
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
slopes = np.array([1, 0.5, 0.25, 0.125], np.float32)
every = {
    "slopes.missing": {"alibi_slopes": slopes},
    "slopes.missing 2": {"alibi_slopes": slopes, "alibi": "distance", "request_causal": np.array([0, 1], np.uint8)},
    "slopes.missing 3": {"alibi_slopes": slopes, "alibi": "sqrt"},
    "bias.missing": {"key_bias": hidden},
    "bias.missing 2": {"qq_bias": f32(3, 3)},
    "bias.missing 3": {"relative_bias": f32(heads, 7)},
    "temperature.missing": {"temperature_len": 4},
    "mask.chunks": {"attention_chunk": 4},
    "mask.chunks 2": {"attention_chunk": 4, "chunk_lookback": 1},
    "mask.ranges": {"bidirectional_ranges": np.array([[9, 12], [5, 7]], np.int32), "bidirectional_indptr": np.array([0, 1, 2], np.int32)},
    "causal.of_request": {"request_causal": np.array([1, 0], np.uint8)},
    "mask.leftpad": {"cache_leftpad": np.array([3, 2], np.int32)},
    "scale.kv_missing": {"k_scale": np.array([2, 0.5], np.float32), "v_scale": np.array([0.5, 3], np.float32)},
    "scale.kv_missing 2": {"k_scale": np.array([[2, 0.5], [1.5, 3]], np.float32)},
    "scale.rows_missing": {"q_scale": 3.0},
    "scale.rows_missing 2": {"out_scale": 0.25},
    "padded": {"qo_indptr_padded": np.array([0, 7, 12], np.int32)},
    "together": {"alibi_slopes": slopes, "key_bias": hidden, "relative_bias": f32(heads, 5), "qq_bias": f32(2, 2), "temperature_len": 5,
                 "attention_chunk": 4, "chunk_lookback": 1, "cache_leftpad": np.array([0, 3], np.int32), "out_scale": 0.5,
                 "v_scale": np.array([0.5, 3], np.float32), "qo_indptr_padded": np.array([0, 7, 12], np.int32)},
}
lowest = hidden.copy()
lowest[:, :3] = np.finfo(np.float32).min
lowest[1, 13:15] = -1e9
every["bias.missing 4"] = {"key_bias": lowest}
save("right.safetensors", {name: case(terms, terms) for name, terms in every.items()})
kept = ("request_causal",)
save("lost.safetensors", {name: case(terms, {k: v for k, v in terms.items() if k in kept and "slopes" in name})
                          for name, terms in every.items() if name not in ("padded", "together")})
"""


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

    def test_terms_are_those_of_numpy_and_each_is_missed_by_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            self.typed(folder, self.examples()[0] + TERMS_PROGRAM)
            code, out, _ = run("check", "right.safetensors", cwd=folder)
            self.assertEqual(code, 0, out)
            self.assertIn("19 cases judged, 0 findings", out)
            found = json.loads(run("check", "lost.safetensors", "--diagnose", "--format", "json", cwd=folder)[1])["findings"]
            first = {f["case"].split("#")[1]: f["diagnosis"][0]["mistake"] for f in found if f.get("diagnosis")}
            self.assertEqual(first, {name: name.split()[0] for name in first})
            self.assertEqual(len(first), 17, first)

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

    def test_terms_that_make_no_sense_are_refused_by_their_names(self):
        bad = {"alibi": '{"alibi": "sqrt"}', "qq_bias": '{"qq_bias": f32(2, 8)}', "relative_bias": '{"relative_bias": f32(heads, 4)}',
               "request_causal": '{"request_causal": np.array([0, 2], np.uint8)}',
               "bidirectional_ranges": '{"bidirectional_indptr": np.zeros(3, np.int32)}',
               "qo_indptr_padded": '{"qo_indptr_padded": np.array([0, 4, 9], np.int32)}',
               "k_scale": '{"k_scale": np.ones(3, np.float32)}', "temperature_len": '{"temperature_len": 1}',
               "key_bias": '{"key_bias": f32(heads, 21)}', "cache_leftpad": '{"cache_leftpad": np.zeros(3, np.int32)}'}
        made = "".join('save("%s.safetensors", {"bad": case(%s, {})})\n' % (name, terms) for name, terms in bad.items())
        with tempfile.TemporaryDirectory() as folder:
            self.typed(folder, self.examples()[0] + TERMS_PROGRAM.replace('if "qo_indptr_padded" in terms', "if False") + made)
            for name in bad:
                code, out, _ = run("check", name + ".safetensors", "--format", "json", cwd=folder)
                self.assertEqual(code, 3, (name, out))
                fields = {f["where"]["field"] for f in json.loads(out)["findings"]}
                self.assertEqual(fields, {"alibi_slopes"} if name == "alibi" else {name}, name)

    def test_terms_of_reported_kernels_are_named(self):
        expected = {"alibi": {"alibi-slopes-of-other-heads": "slopes.of_head", "alibi-forgotten": "slopes.missing"},
                    "head_scales": {"head-scales-lost": "scale.kv_missing", "head-scales-of-another-head": "scale.kv_of_head",
                                    "head-scales-first-for-all": "scale.kv_of_head"}}
        for name, named in expected.items():
            path = os.path.join(REPORTS, name + ".safetensors")
            code, out, _ = run("check", path, "--diagnose", "--format", "json")
            self.assertEqual(code, 1)
            found = {f["case"].split("#")[1]: [d["mistake"] for d in f["diagnosis"]] for f in json.loads(out)["findings"]}
            self.assertEqual(found, {case: [mistake] for case, mistake in named.items()})

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
