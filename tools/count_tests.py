"""Counts the tests in a report that ctest wrote in JUnit's format.

    count_tests.py REPORT

Prints `PASSED FAILED SKIPPED`, and a line per failed case of ctest on standard error. A case that is a suite of GoogleTest
counts as the tests of its summary; one that ended before its summary is one failure. Exits with 1 if there is no test.
"""

import re
import sys
import xml.etree.ElementTree as tree

SUMMARY = re.compile(r"^\[  (PASSED|SKIPPED|FAILED)  ?\] (\d+) tests?\b", re.MULTILINE)


def numbers_of(case):
    """The numbers of passed, failed and skipped tests of a case."""
    status = case.get("status")
    if status not in ("run", "fail"):
        return 0, 0, 1
    found = {word: int(number) for word, number in SUMMARY.findall(case.findtext("system-out") or "")}
    failed = found.get("FAILED", 0)
    if status == "fail":
        return found.get("PASSED", 0) if failed else 0, max(failed, 1), found.get("SKIPPED", 0) if failed else 0
    return (found.get("PASSED", 0), 0, found.get("SKIPPED", 0)) if found else (1, 0, 0)


def main():
    totals = [0, 0, 0]
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.get("status") == "fail":
            print("   FAILED:", case.get("name"), file=sys.stderr)
        totals = [total + number for total, number in zip(totals, numbers_of(case))]
    if sum(totals) == 0:
        sys.exit("ctest found no test")
    print(*totals)


if __name__ == "__main__":
    main()
