"""Plants suites that the test preset `tsan` should or should not name, and expects what check_thread_suites reports."""

import json
import unittest
from unittest import mock

from check_layers_test import planted
from check_thread_suites import faults

NAMED = ["Jobs", "Stream"]
JOBS = "TEST(Jobs, Run) {\n  std::thread([] {}).join();\n}\n"
STREAM = "TYPED_TEST(Stream, Runs) {}\n"
EXCEPTIONS = {"Registry": "why"}
REGISTRY = "TEST(Registry, IsShared) { std::async(f); }\n"


class ThreadSuites(unittest.TestCase):
    def found(self, files=None, named=tuple(NAMED)):
        pattern = rf"^runtime\.(\w+/)?({'|'.join(named)})\."
        presets = {"testPresets": [{"name": "asan"}, {"name": "tsan", "filter": {"include": {"name": pattern}}}]}
        all_files = {"CMakePresets.json": json.dumps(presets), "tests/runtime/tiers/jobs_test.cpp": JOBS,
                     "tests/runtime/stream_test.cpp": STREAM, "tests/passes/pass_test.cpp": REGISTRY, **(files or {})}
        with mock.patch.dict("check_thread_suites.EXCEPTIONS", EXCEPTIONS, clear=True), planted(all_files) as root:
            return list(faults(root))

    def test_all_that_is_named(self):
        self.assertEqual(self.found(), [])

    def test_suite_that_does_not_exist(self):
        self.assertEqual(self.found(named=[*NAMED, "Gone"]),
                         ["CMakePresets.json:1: the preset tsan names the suite Gone, which tests/runtime does not have"])

    def test_suite_that_is_not_named(self):
        for use in ["std::thread t(f);", "std::vector<std::thread> t;", "std::jthread t(f);", "auto f = std::async(g);",
                    "tbb::parallel_for(0, 3, f);", "oneapi::tbb::parallel_reduce(r);", "tbb::task_group g;"]:
            text = f"TEST(Alone, Runs) {{}}\nTEST_P(Shared,\n       Runs) {{\n  {use}\n}}\n"
            self.assertEqual(self.found({"tests/runtime/cache/a_test.cpp": text}),
                             ["tests/runtime/cache/a_test.cpp:4: the preset tsan does not name Shared, which has threads"], use)

    def test_use_outside_of_tests_is_one_of_every_suite(self):
        text = "void shared() { std::thread(f).join(); }\nTEST(A, Runs) {}\nTEST(B, Runs) {}\n"
        found = self.found({"tests/tools/a_test.cpp": text})
        self.assertEqual(found, [f"tests/tools/a_test.cpp:1: the preset tsan does not name {suite}, which has threads"
                                 for suite in "AB"])

    def test_what_starts_no_thread(self):
        text = ('TEST(Alone, Runs) {\n  // std::thread\n  f("std::thread");\n  std::thread::id id;\n'
                "  n = std::thread::hardware_concurrency() + tbb::this_task_arena::max_concurrency();\n}\n")
        self.assertEqual(self.found({"tests/runtime/a_test.cpp": text}), [])

    def test_slow_suite(self):
        self.assertEqual(self.found({"tests/runtime/a_test.cpp": JOBS.replace("Jobs", "JobsSlow")}), [])

    def test_exceptions_that_are_none(self):
        at = "tests/layers/check_thread_suites.py:1: Registry is no exception: "
        self.assertEqual(self.found({"tests/passes/pass_test.cpp": ""}), [at + "no such suite has threads"])
        self.assertEqual(self.found({"tests/runtime/a_test.cpp": REGISTRY}, [*NAMED, "Registry"]),
                         [at + "the preset tsan names it"])


if __name__ == "__main__":
    unittest.main()
