"""The JSON of attention_bench has what Google Benchmark's compare.py reads. Usage: google_benchmark_test.py BINARY."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BINARY = ""
NAME = "decode/bf16/h28_4/d64/b1/128"
REPETITIONS = 3


class GoogleBenchmark(unittest.TestCase):
    def test_repetitions_pair_by_name_and_have_both_times(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new.json")
            subprocess.run([BINARY, f"--benchmark_filter=^{NAME}/", "--benchmark_min_time=0.001",
                            f"--benchmark_repetitions={REPETITIONS}", f"--benchmark_out={path}",
                            "--benchmark_out_format=json"], check=True, capture_output=True)
            with open(path) as file:
                report = json.load(file)
        self.assertTrue(report["context"]["isa"])
        rows = [row for row in report["benchmarks"] if row["run_type"] == "iteration"]
        self.assertEqual([row["repetition_index"] for row in rows], list(range(REPETITIONS)))
        for row in rows:
            self.assertEqual((row["name"], row["run_name"], row["time_unit"]), (NAME + "/real_time",) * 2 + ("us",))
            self.assertNotIn("error_occurred", row)
            for key in ("real_time", "cpu_time", "kv_bytes", "flops"):
                self.assertGreater(row[key], 0, key)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
