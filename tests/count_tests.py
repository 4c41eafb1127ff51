"""Counts the tests in a report that ctest or pytest wrote in JUnit's format.

    count_tests.py REPORT

Prints `PASSED FAILED SKIPPED`, and a line per case of ctest with failures on standard error. A case that is a program of
GoogleTest counts as the tests of its summary. One that fails without a failed test in its summary (a crash, a leak found
at the end), or has no test, is one failure; so is a case that was not run, unless it asked for that. A case of pytest is one
test. Exits with 1 if there is no case.
"""

import re
import sys
import xml.etree.ElementTree as tree

SUMMARY = re.compile(r"^\[  (PASSED|SKIPPED|FAILED)  ?\] (\d+) tests?\b", re.MULTILINE)


def numbers_of(case):
    """The numbers of passed, failed and skipped tests of a case."""
    status, reason = case.get("status"), case.find("skipped")
    if status is None:  # pytest
        failed = case.find("failure") is not None or case.find("error") is not None
        return (0, 1, 0) if failed else (0, 0, 1) if reason is not None else (1, 0, 0)
    if status == "notrun" and reason is not None and reason.get("message", "").startswith("SKIP_"):
        return 0, 0, 1
    found = {word: int(number) for word, number in SUMMARY.findall(case.findtext("system-out") or "")}
    passed, failed, skipped = (found.get(word, 0) for word in ("PASSED", "FAILED", "SKIPPED"))
    if status == "run":
        if not found:
            return 1, 0, 0
        return (passed, failed, skipped) if passed + failed + skipped > 0 else (0, 1, 0)
    return passed, max(failed, 1), skipped


def main():
    cases = list(tree.parse(sys.argv[1]).getroot().iter("testcase"))
    if not cases:
        sys.exit("there is no test in the report")
    numbers = [numbers_of(case) for case in cases]
    for case, (_, failed, _) in zip(cases, numbers):
        if failed:
            print("   FAILED:", case.get("name"), file=sys.stderr)
    print(*(sum(column) for column in zip(*numbers)))


if __name__ == "__main__":
    main()
