"""Tests of tools/coverage.py on a small report."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "coverage.py"


def run(records, *options):
    """Status and output for a repository `/r` and the records of its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "lcov"
        report.write_text("\n".join(records) + "\nend_of_record\n")
        done = subprocess.run([sys.executable, "-B", TOOL, "/r", report, *options], capture_output=True, text=True)
        return done.returncode, done.stdout


def source(path, times):
    return [f"SF:{path}"] + [f"DA:{line},{count}" for line, count in enumerate(times, 1)]


# One line of each other layer.
OTHERS = [record for layer in ("passes", "compiler", "runtime") for record in source(f"/r/{layer}/a.cpp", [1])]


class Coverage(unittest.TestCase):
    def test_enough_lines_of_each_layer_pass(self):
        status, output = run(source("/r/ir/a.cpp", [1] * 23 + [0, 0]) + OTHERS)
        self.assertEqual(status, 0)
        self.assertRegex(output, r"ir +25 +23 +92\.0%")
        self.assertRegex(output, r"all +28 +26 +92\.9%")

    def test_too_few_lines_of_one_layer_fail(self):
        status, output = run(source("/r/ir/a.cpp", [0] * 2) + source("/r/runtime/b.cpp", [1] * 98) + OTHERS)
        self.assertEqual(status, 1)
        self.assertIn("less than 92 % of the lines were run in: ir", output)

    def test_too_few_lines_fail_and_their_source_is_named(self):
        status, output = run(source("/r/ir/a.cpp", [1] * 22 + [0] * 3) + OTHERS, "--lines")
        self.assertEqual(status, 1)
        self.assertIn("22 of    25  ir/a.cpp", output)
        self.assertIn("ir/a.cpp: 23-25", output)

    def test_a_line_counts_once_in_several_programs(self):
        twice = source("/r/ir/a.h", [0, 1]) + ["end_of_record"] + source("/r/ir/a.h", [3, 0]) + OTHERS
        self.assertEqual(run(twice)[0], 0)

    def test_other_folders_do_not_count(self):
        status, output = run(source("/r/ir/a.cpp", [1]) + source("/r/tools/b.cpp", [0]) + source("/usr/c.h", [0]) + OTHERS)
        self.assertEqual(status, 0)
        self.assertRegex(output, r"all +4 +4 ")

    def test_no_lines_fail(self):
        self.assertEqual(run(source("/r/tools/b.cpp", [1]))[0], 1)


if __name__ == "__main__":
    unittest.main()
