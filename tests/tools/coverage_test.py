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


class Coverage(unittest.TestCase):
    def test_enough_lines_pass(self):
        status, output = run(source("/r/ir/a.cpp", [1] * 23 + [0, 0]))
        self.assertEqual(status, 0)
        self.assertRegex(output, r"ir +25 +23 +92\.0%")
        self.assertRegex(output, r"all +25 +23 +92\.0%")

    def test_too_few_lines_fail_and_their_source_is_named(self):
        status, output = run(source("/r/ir/a.cpp", [1] * 22 + [0] * 3), "--lines")
        self.assertEqual(status, 1)
        self.assertIn("22 of    25  ir/a.cpp", output)
        self.assertIn("ir/a.cpp: 23-25", output)

    def test_a_line_counts_once_in_several_programs(self):
        twice = source("/r/ir/a.h", [0, 1]) + ["end_of_record"] + source("/r/ir/a.h", [3, 0])
        self.assertEqual(run(twice)[0], 0)

    def test_other_folders_do_not_count(self):
        status, output = run(source("/r/ir/a.cpp", [1]) + source("/r/tools/b.cpp", [0]) + source("/usr/c.h", [0]))
        self.assertEqual(status, 0)
        self.assertRegex(output, r"all +1 +1 ")

    def test_no_lines_fail(self):
        self.assertEqual(run(source("/r/tools/b.cpp", [1]))[0], 1)


if __name__ == "__main__":
    unittest.main()
