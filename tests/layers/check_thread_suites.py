#!/usr/bin/env python3
"""Checks that the test preset `tsan` names the suites in which several threads meet, and no suite that does not exist.

    check_thread_suites.py ROOT

A suite has threads if one of its tests, or code of its source outside of all tests, starts threads or runs a parallel
function of oneTBB. Those of tests/<layer>/ must be in the filter of the preset, be in EXCEPTIONS, or end in Slow, which
sanitizers leave out. Prints one line per violation, `file:line: message`, and exits with 1 if there is any.
"""
import json
import pathlib
import re
import sys

from check_lengths import code_of, functions_of
from rooms import LAYERS
from violations import conclude

TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),", re.MULTILINE)
THREADS = re.compile(r"\bstd::(?:j?thread|async)\b(?!::)|\bpthread_create\b|\btbb::(?:parallel_\w+|task_group|task_arena)\b")

# Suites with threads that the preset does not run, and why.
EXCEPTIONS = {
    "AbandonedPrograms": "test_tools is not built for this preset; the threads meet at one lock (compiler/kernels/assembler.cpp)",
    "LlvmFailures": "one thread at a time, in a process that ends by lack of memory",
    "Registry": "test_passes is not built for this preset; the registry is one lock (passes/pass.cpp)",
}


def named_suites(root):
    """The names in the last alternation of the preset's filter."""
    presets = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))["testPresets"]
    pattern = next(preset for preset in presets if preset["name"] == "tsan")["filter"]["include"]["name"]
    return re.findall(r"\(([\w|]+)\)", pattern)[-1].split("|")


def threads_of(text):
    """The line of a use of threads for each suite of a source that has one, and all its suites."""
    code = code_of(text)
    bodies = sorted(functions_of(text))
    tests = [(found[1], code.count("\n", 0, found.start()) + 1) for found in TEST.finditer(code)]
    ranges = [(suite, line, next(last for first, last in bodies if first >= line)) for suite, line in tests]
    suites, used = {suite for suite, _ in tests}, {}
    for found in THREADS.finditer(code):
        line = code.count("\n", 0, found.start()) + 1
        for suite in {suite for suite, first, last in ranges if first <= line <= last} or suites:
            used.setdefault(suite, line)
    return used, suites


def faults(root):
    """What is wrong with the preset's filter or with EXCEPTIONS, as text."""
    named, existing, threaded = set(named_suites(root)), set(), set()
    for layer in LAYERS:
        for path in sorted((root / "tests" / layer).rglob("*.cpp")):
            used, suites = threads_of(path.read_text(encoding="utf-8"))
            existing |= suites if layer == "runtime" else set()
            threaded |= set(used)
            for suite in sorted(set(used) - named - set(EXCEPTIONS)):
                if not suite.endswith("Slow"):
                    yield f"{path.relative_to(root)}:{used[suite]}: the preset tsan does not name {suite}, which has threads"
    for suite in sorted(named - existing):
        yield f"CMakePresets.json:1: the preset tsan names the suite {suite}, which tests/runtime does not have"
    for suite in sorted((set(EXCEPTIONS) - threaded) | (set(EXCEPTIONS) & named)):
        why = "the preset tsan names it" if suite in named else "no such suite has threads"
        yield f"tests/layers/check_thread_suites.py:1: {suite} is no exception: {why}"


def main():
    return conclude(faults(pathlib.Path(sys.argv[1]).resolve()),
                    "the preset tsan names all suites with threads")


if __name__ == "__main__":
    sys.exit(main())
