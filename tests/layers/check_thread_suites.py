#!/usr/bin/env python3
"""Checks that the suites that the test preset `tsan` names are suites of tests/runtime.

    check_thread_suites.py ROOT

Exit status: 0 if each exists, else 1.
"""
import json
import pathlib
import re
import sys

TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)


def named_suites(root):
    """The names in the last alternation of the preset's filter."""
    presets = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))["testPresets"]
    pattern = next(preset for preset in presets if preset["name"] == "tsan")["filter"]["include"]["name"]
    return re.findall(r"\(([\w|]+)\)", pattern)[-1].split("|")


def suites_of_tests(root):
    return {suite for path in (root / "tests/runtime").rglob("*.cpp")
            for suite in TEST.findall(path.read_text(encoding="utf-8"))}


def main():
    root = pathlib.Path(sys.argv[1])
    missing = sorted(set(named_suites(root)) - suites_of_tests(root))
    for suite in missing:
        print(f"CMakePresets.json:1: the preset tsan names the suite {suite}, which tests/runtime does not have")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
