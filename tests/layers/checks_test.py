"""Every check can fail: plants violations, one at a time, in a small repository, and expects one message for each."""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import checks
import rooms
from checks import (CHECKS, MAX_FILES, MAX_LINES, Tree, functions_of, graph_of, includes, installed, kernel_keys, lengths,
                    loss_readers, picture, places, rows, targets, tests, thread_suites, words)

TABLES = {
    "ROOMS": {"compiler/loader": [], "compiler/target": [], "compiler/sass": ["compiler/target"],
              "compiler/direct": ["compiler/sass"], "runtime/cuda": [], "runtime/host": []},
    "DOORS": {"compiler/direct": ["emitter.h"]}, "TESTED_WITH": {"compiler/sass": ["compiler/direct"]},
    "FACADE": {"runtime/engine.h": ["runtime/cuda"], "runtime/engine_parts.h": []},
}
ROOMS, SASS = TABLES["ROOMS"], "compiler/sass"
PRESET = {"name": "tsan", "filter": {"include": {"name": r"^runtime\.(\w+/)?(Jobs|Stream)\."}}}
JOBS, ASYNC = "TEST(Jobs, Run) {\n  std::thread([] {}).join();\n}\n", "TEST(Registry, IsShared) { std::async(f); }\n"
EMITTER, DATA = '#include "compiler/direct/emitter.h"\n', '#include "tests/generators/data.h"\n'
READERS, LOSSES = "tests/more_losses/CMakeLists.txt", '#include "ir/losses.h"\n'
WORDS = TABLES["WORDS"] = dict.fromkeys(
    ["ir", "passes", "compiler", *list(ROOMS)[:4], "runtime", "runtime/cuda", "runtime/host", "tools"], "what?")
CLEAN = {
    "ir/ops.h": "#include <vector>\n", "ir/ops.def": "", "ir/losses.def": "",
    "ir/ops.cpp": '#include "ir/ops.h"\n#include <fmt/format.h>\n',
    "ir/losses.h": '#include "ir/losses.def"\nT lossTerm();\n', "ir/losses.cpp": LOSSES + '#include "ir/losses.def"\n',
    "passes/dag.cpp": '#include "ir/ops.h"\n',
    "compiler/jit.h": "#include <llvm/ExecutionEngine/Orc/LLJIT.h>\n#include <tbb/parallel_for.h>\n" + EMITTER,
    "compiler/loader/open.cpp": "#include <dlfcn.h>\n", "compiler/target/sm.h": "",
    "compiler/sass/encode.h": '#include "compiler/target/sm.h"\n', "compiler/direct/inner.h": "",
    "compiler/direct/emitter.h": '#include "compiler/sass/encode.h"\n#include "compiler/direct/inner.h"\n',
    "runtime/dataset.h": "", "runtime/engine.h": '#include "ir/ops.h"\n#include "runtime/dataset.h"\n',
    "runtime/engine.cpp": LOSSES + '#include "runtime/parts.h"\n// lossTerm() is called elsewhere\n',
    "runtime/parts.h": '#include "runtime/cuda/driver.h"\n', "runtime/cuda/driver.h": '#include "runtime/engine.h"\n',
    "runtime/cuda/launch.h": "DirectGrid grid;\n", "runtime/cuda/launch.cpp": "", "runtime/host/run.h": '#include "runtime/dataset.h"\n',
    "tools/main.cpp": '#include "runtime/engine.h"\n#include <CLI/CLI.hpp>\n', "tools/bench/main.cpp": DATA,
    "tools/CMakeLists.txt": "file(GLOB texts *.txt)\n", "tests/generators/data.h": "", "tests/generators/data.cpp": "",
    "tests/generators/CMakeLists.txt": "file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)\n",
    "tests/gpu_model/memory.h": "withLossFormula(x);\n", "tests/gpu_model/kernels.cpp": '#include "tests/gpu_model/memory.h"\n',
    READERS: "set(readers ir/losses.cpp tests/gpu_model/kernels.cpp)\n",
    "tests/ir/ops.cpp": '#include "ir/ops.h"\n' + DATA, "tests/compiler/sass/a.cpp": '#include "compiler/sass/encode.h"\n' + EMITTER,
    "tests/runtime/host/jobs_test.cpp": JOBS, "tests/runtime/slow_test.cpp": JOBS.replace("Jobs", "JobsSlow"),
    "tests/runtime/stream_test.cpp": "TYPED_TEST(Stream, Runs) {}\n", "tests/passes/pass_test.cpp": ASYNC,
    "tests/runtime/none_test.cpp": 'TEST(None, Runs) {\n  // std::thread\n  f("std::thread");\n  std::thread::id id;\n'
                                   "  n = std::thread::hardware_concurrency() + tbb::this_task_arena::max_concurrency();\n}\n",
    "CMakeLists.txt": "add_subdirectory(tests/generators)\n", "CMakePresets.json": json.dumps({"testPresets": [{"name": "a"}, PRESET]}),
    "tests/CMakeLists.txt": "add_subdirectory(gpu_model)\n",
}
INSTALLED = ["ir/ops.h", "runtime/dataset.h", "runtime/engine.h"]
HASHED = {name for name in CLEAN if name.startswith(("ir/", "passes/", "compiler/", "runtime/cuda/launch"))}
LINES = "  call();\n" * (MAX_LINES - 2)  # of a body whose braces are on lines of their own


def without(name, text, instead=""):
    return {name: CLEAN[name].replace(text, instead)}


# A check, files beside or instead of those of CLEAN, words of its only violation, and other tables of rooms.py.
VIOLATIONS = [
    (places, {"scripts/a.sh": ""}, ["scripts:1:"]),
    (places, {"ir/utils/a.h": ""}, ["ir/utils:1:"]),
    (places, {"compiler/attic/a.h": ""}, ["compiler/attic is no room"]),
    (places, {"compiler/sass/sass_print.h": ""}, ["repeats"]),
    (includes, {"ir/a.cpp": '\n#include "passes/dag.h"\n'}, ["ir/a.cpp:2:", "to the right of ir/"]),
    (includes, {"compiler/direct/a.cpp": "#include <dlfcn.h>\n"}, ["compiler/direct/a.cpp:1:", "only for compiler/loader/"]),
    (includes, {"ir/a.cpp": '#include "ops.h"\n'}, ["ir/a.cpp:1:", "from the root"]),
    (includes, {"ir/a.cpp": '#include "ir/nothing.h"\n'}, ["does not exist"]),
    (includes, {"tools/a.cpp": "#include <srjit/ir/ops.h>\n"}, ["installed spelling"]),
    (includes, {"passes/a.cpp": "#include <llvm/IR/Module.h>\n"}, ["of LLVM", "from compiler/ on"]),
    (includes, {"passes/a.cpp": "#include <tbb/parallel_for.h>\n"}, ["oneTBB"]),
    (includes, {"compiler/a.cpp": "#include <cuda.h>\n"}, ["CUDA", "from runtime/ on"]),
    (includes, {"runtime/host/a.cpp": '#include "runtime/cuda/driver.h"\n'}, ["runtime/host/a.cpp:1:", "not for runtime/host/"]),
    (includes, {"compiler/sass/a.cpp": EMITTER}, ["which may include compiler/target of"]),
    (includes, {"runtime/cuda/a.cpp": '#include "compiler/sass/encode.h"\n'}, ["may include no room of compiler/"]),
    *((includes, {source: '#include "compiler/direct/inner.h"\n'}, [f"{source}:1:", "no door of compiler/direct/", "direct/emitter.h"])
      for source in ["compiler/a.cpp", "runtime/dataset.cpp", "tools/a.cpp"]),
    (includes, {"runtime/host/a.cpp": '#include "runtime/engine.h"\n'}, ["runtime/host/a.cpp:1:", "for users of runtime/"]),
    (includes, {"runtime/engine_parts.h": "", "runtime/host/a.cpp": '#include "runtime/engine_parts.h"\n'}, ["for users of runtime/"]),
    (includes, {"runtime/host/a.cpp": '#include "runtime/parts.h"\n'}, ["no room's to include"]),
    (includes, {"tools/a.cpp": DATA}, ["tools/a.cpp:1:", "from the root"]),
    (installed, {"runtime/engine.h": "#include <fmt/format.h>\n"}, ["runtime/engine.h:1:", "in an installed header"]),
    (installed, {"ir/private.h": "", "ir/ops.h": '#include "ir/private.h"\n'}, ["ir/ops.h:1:", "not installed"]),
    (installed, {"runtime/a.h": '#include "ir/b.h"\n', "ir/b.h": '#include "ir/ops.def"\n'}, ["runtime/a.h:1:", "reads ir/ops.def"]),
    (tests, {"tests/ir/ops.cpp": '#include "runtime/engine.h"\n'}, ["to the right of tests of ir/"]),
    (tests, {"tests/generators/data.h": '#include "tests/generators/work.h"\n',
             "tests/generators/work.h": '#include "runtime/engine.h"\n'}, ["tests/ir/ops.cpp:2:", '"runtime/engine.h", which']),
    (tests, {}, ["a.cpp:2:", "not for tests of compiler/sass/"], {"TESTED_WITH": {}}),
    (rows, without("compiler/direct/emitter.h", '#include "compiler/sass/encode.h"'), ["direct may include compiler/sass, and does not"]),
    (rows, without("tests/compiler/sass/a.cpp", EMITTER), ["tests of compiler/sass", "TESTED_WITH for compiler/direct"]),
    (rows, {}, ["direct/inner.h is a door that nobody includes"], {"DOORS": {"compiler/direct": ["emitter.h", "inner.h"]}}),
    *((rows, {}, [f"{SASS} includes {other}, which is not named before it"], {"ROOMS": {**ROOMS, SASS: ["compiler/target", other]},
      "TESTED_WITH": {}}) for other in ["compiler/direct", SASS]),
    *((words, {}, [expected], {"WORDS": table}) for expected, table in [
        ("ROOMS: ir", {name: text for name, text in WORDS.items() if name != "ir"}), ("ROOMS: ir/b", {**WORDS, "ir/b": "what?"}),
        ("the order", dict(reversed(WORDS.items())))]),
    (targets, {"tools/CMakeLists.txt": "\nfile(GLOB sources CONFIGURE_DEPENDS *.cpp)\n"}, ["tools/CMakeLists.txt:2:", "use GLOB_RECURSE"]),
    (targets, {"tools/cmake/a.cmake": "\nfile(GLOB sources\n  a/*.h b/*.cpp)\n"}, ["tools/cmake/a.cmake:2:"]),
    (targets, {"CMakeLists.txt": ""}, ["tests/generators:1:", "no CMakeLists.txt adds it"]),
    (lengths, {f"runtime/host/{number}.def": "" for number in range(MAX_FILES)}, [f"runtime/host:1: has {MAX_FILES + 1} files"]),
    *((lengths, {"ir/a.cpp": text}, ["ir/a.cpp:1: cannot find its functions"]) for text in ["void f() {\n", "}\n"]),
    *((lengths, {name: f"{first}class A:\n    def f():\n" + "        call()\n" * MAX_LINES}, [f"{name}:{2 + first.count(chr(10))}: a"])
      for name, first in [("tests/a/b.py", ""), ("tools/bench/plot", "#!/usr/bin/env python3\n")]),
    (thread_suites, without("tests/runtime/stream_test.cpp", "Stream", "River"), ["CMakePresets.json:1:", "Stream, which tests/runtime"]),
    (thread_suites, {"tests/passes/pass_test.cpp": ""}, ["checks.py:1: Registry is no exception: no such suite"]),
    (thread_suites, {"tests/runtime/a_test.cpp": ASYNC, **without("CMakePresets.json", "Jobs", "Jobs|Registry")}, ["preset tsan names it"]),
    (thread_suites, {"tests/tools/a.cpp": "void shared() { std::thread(f).join(); }\nTEST(A, Runs) {}\n"}, ["a.cpp:1:", "not name A,"]),
    *((thread_suites, {"tests/runtime/a.cpp": f"TEST(A, B) {{}}\nTEST_P(Shared,\n  B) {{\n  {use}\n}}\n"}, ["a.cpp:4:", "not name Shared,"])
      for use in ["std::thread t(f);", "std::vector<std::thread> t;", "std::jthread t(f);", "auto f = std::async(g);",
                  "tbb::parallel_for(0, 3, f);", "oneapi::tbb::parallel_reduce(r);", "tbb::task_group g;"]),
    (loss_readers, {"passes/a.cpp": LOSSES + "lossTerm(x);\n"}, ["passes/a.cpp:1: reads the table of losses"]),
    *((loss_readers, without(READERS, name), [f"{name}:1: reads"]) for name in ["ir/losses.cpp", "tests/gpu_model/kernels.cpp"]),
    (loss_readers, without(READERS, ")", " runtime/engine.cpp)"), ["runtime/engine.cpp does not read"]),
    *((kernel_keys, {name: "DirectArguments a;\n"}, [f"{name}:1: decides the code"]) for name in ["ir/a.cc", "runtime/host/run.h"]),
    (picture, {"compiler/sass/a.cpp": '#include "compiler/loader/b.h"\n'}, ["docs/rooms.svg:1:", "--draw"]),
    (picture, {}, ["docs/rooms.svg:1:"], {"WORDS": {**WORDS, "ir": "why?"}}),
]


@contextlib.contextmanager
def planted(files, tables=None, hashed=HASHED):
    """A tree of CLEAN with these files, where rooms.py has these tables beside TABLES."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(rooms, **{**TABLES, **(tables or {})}), \
         mock.patch.object(checks, "EXCEPTIONS", {"Registry": "why"}):
        root = pathlib.Path(folder).resolve()
        for name, text in {**CLEAN, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        yield Tree(root, INSTALLED, hashed)


class Checks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with planted({}) as tree:
            CLEAN["docs/rooms.svg"] = f"<svg/>\n<!--\n{graph_of(tree)}\n-->\n"

    def long(self, text):
        with planted({"ir/a.cpp": text}) as tree:
            return list(lengths(tree))

    def test_clean_repository(self):
        with planted({}) as tree:
            self.assertEqual([violation for check in CHECKS for violation in check(tree)], [])

    def test_each_violation(self):
        self.assertEqual({row[0] for row in VIOLATIONS}, set(CHECKS))
        for check, files, expected, *tables in VIOLATIONS:
            with self.subTest(check=check.__name__, files=files), planted(files, *tables) as tree:
                found = list(check(tree))
                self.assertEqual(len(found), 1, found)
                for words in expected:
                    self.assertIn(words, found[0])

    def test_hashed_files(self):
        for name in HASHED:
            with planted({}, hashed=HASHED - {name}) as tree:
                self.assertEqual(list(kernel_keys(tree)), [f"{name}:1: decides the code of kernels, but is not in the hash of their keys"])
        for name, why in [("ir/moved.h", "does not exist"), ("runtime/dataset.h", "decides no code")]:
            with planted({}, hashed=HASHED | {name}) as tree:
                self.assertEqual(list(kernel_keys(tree)), [f"{name}:1: is in the hash of kernels' keys, but {why}"])

    def test_only_tracked_files_count(self):
        with planted({"stray.txt": "", "build/a.txt": ""}) as tree:
            self.assertEqual(list(places(tree)), ["stray.txt:1: has no place at the top level"])
            for command in [["init", "-q"], ["add", *CLEAN]]:
                subprocess.run(["git", "-C", tree.root, *command], check=True)
            self.assertEqual(Tree(tree.root).names, sorted(CLEAN))

    def test_long_functions(self):
        self.assertEqual(self.long(f"void f() {{\n{LINES}}}\n"), [])
        for head in ["TEST(Suite, Case)", "template <class T>\nT f(T x) requires(sizeof(T) > 4)", "bool operator==(A a, B b)",
                     "auto f(int a = 3) -> int", "struct A f()", "A::A() : b_{0}, c_(1)", "A::A() : b_{g({1, 2})}",
                     "A::A(int b)\n    : b_(b), c_([] {\n return 1; }())", "constexpr auto f = []", "auto f = [](int a)",
                     "const int a = []", "void f() {\n  g([] {\n  });\n}\nvoid g()"]:
            self.assertEqual(len(self.long(f"{head} {{\n{LINES}\n}};\n")), 1, head)
        for scope in ["namespace a::b {", "namespace {", 'extern "C" {', "class alignas(16) A final : public B {\n public:",
                      "template <class T, int n = f(3)>\nstruct A {", "struct A {\n  enum class E : int { kA };"]:
            self.assertEqual(len(self.long(f"{scope}\nvoid f() const {{\n{LINES}\n}}\n}};\n")), 1, scope)
            self.assertEqual(self.long(f"{scope}\nint x_{{3}};\nvoid f() {{\n{LINES}}}\nvoid g() {{\n{LINES}}}\n}};\n"), [], scope)
        self.assertIn(f":1: a function of {MAX_LINES + 2} lines", *self.long(f"void f() {{\n{LINES}  g([] {{\n  }});\n}}\n"))
        for head in ["const std::vector<A> table =", "const A table[f(3)] =", "enum class E : int", "struct A", "namespace a"]:
            self.assertEqual(self.long(f"{head} {{\n{LINES}\n\n}};\n"), [], head)

    def test_signs_that_are_not_braces(self):
        for text in ["// {", "/* {\n{ */", '"{\\"{"', "'{'", "'\\''", "1'000", 'R"({"{)"', 'R"x({)"{)x"', "#define A {", "#define A \\\n {",
                     "// a \\\n {", "u8'{'", "'\\\"'"]:
            self.assertEqual(list(functions_of(f"void f() {{\n{text}\n}}\n")), [(1, 3 + text.count("\n"))], text)


if __name__ == "__main__":
    unittest.main()
