"""Tests of tests/count_tests.py on reports of ctest and pytest."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree as tree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from count_tests import numbers_of  # noqa: E402


def case(status, output="", skipped=None):
    element = tree.Element("testcase", name="a", status=status)
    if skipped is not None:
        tree.SubElement(element, "skipped", message=skipped)
    tree.SubElement(element, "system-out").text = output
    return numbers_of(element)


class NumbersOf(unittest.TestCase):
    def test_a_case_without_a_summary_is_one_test(self):
        self.assertEqual(case("run", "fine\n"), (1, 0, 0))
        self.assertEqual(case("fail", "Segmentation fault\n"), (0, 1, 0))

    def test_a_suite_counts_as_its_tests(self):
        self.assertEqual(case("run", "[  PASSED  ] 12 tests.\n"), (12, 0, 0))
        self.assertEqual(case("run", "[  PASSED  ] 1 test.\n[  SKIPPED ] 2 tests, listed below:\n[  SKIPPED ] A.B\n"), (1, 0, 2))
        self.assertEqual(case("fail", "[  PASSED  ] 3 tests.\n[  FAILED  ] 2 tests, listed below:\n"), (3, 2, 0))

    def test_a_suite_that_fails_otherwise_is_one_failure(self):
        self.assertEqual(case("fail", "[  PASSED  ] 3 tests.\nERROR: LeakSanitizer: detected memory leaks\n"), (3, 1, 0))
        self.assertEqual(case("fail", "[ RUN      ] A.B\nERROR: AddressSanitizer: heap-use-after-free\n"), (0, 1, 0))

    def test_a_filter_that_finds_no_test_is_a_failure(self):
        self.assertEqual(case("run", "[  PASSED  ] 0 tests.\n"), (0, 1, 0))

    def test_what_was_not_run_is_a_failure_unless_it_asked_for_that(self):
        self.assertEqual(case("notrun", skipped="SKIP_RETURN_CODE=77"), (0, 0, 1))
        self.assertEqual(case("notrun", "[  SKIPPED ] 1 test, listed below:\n", "SKIP_REGULAR_EXPRESSION_MATCHED"), (0, 0, 1))
        self.assertEqual(case("notrun", skipped="Unable to find executable"), (0, 1, 0))
        self.assertEqual(case("notrun"), (0, 1, 0))

    def test_a_case_of_pytest_is_one_test(self):
        def numbers(text):
            return numbers_of(tree.fromstring(f'<testcase name="test_x" time="0.1">{text}</testcase>'))

        self.assertEqual(numbers(""), (1, 0, 0))
        self.assertEqual(numbers('<failure message="no"/>'), (0, 1, 0))
        self.assertEqual(numbers('<error message="no"/>'), (0, 1, 0))
        self.assertEqual(numbers('<skipped type="pytest.skip" message="no torch"/>'), (0, 0, 1))


if __name__ == "__main__":
    unittest.main()
