"""Plants functions and folders that are too large, and what only looks like one, and expects what check_lengths reports."""

import unittest

from check_lengths import MAX_FILES, MAX_LINES, full_folders, functions_of, long_functions
from check_layers_test import planted

LINES = "  call();\n" * (MAX_LINES - 2)  # of a body whose braces are on lines of their own


def body(head, more="", end="}"):
    """A function of MAX_LINES lines, and those of `more`."""
    return f"{head} {{\n{LINES}{more}{end}\n"


class LongFunctions(unittest.TestCase):
    def found(self, text, name="ir/a.cpp"):
        with planted({name: text}) as root:
            return list(long_functions(root))

    def test_length(self):
        self.assertEqual(self.found(body("void f()")), [])
        self.assertEqual(self.found("\n" + body("void f()", "\n")),
                         [f"ir/a.cpp:2: a function of {MAX_LINES + 1} lines: at most {MAX_LINES}"])

    def test_heads(self):
        for head in ["TEST(Suite, Case)", "template <class T>\nT f(T x) requires(sizeof(T) > 4)", "bool operator==(A a, B b)",
                     "auto f(int a = 3) -> int", "struct A f()", "A::A() : b_{0}, c_(1)", "A::A() : b_{g({1, 2})}",
                     "A::A(int b)\n    : b_(b), c_([] {\n return 1; }())", "constexpr auto f = []", "auto f = [](int a)"]:
            self.assertEqual(len(self.found(body(head, "\n"))), 1, head)
        self.assertEqual(len(self.found(body("const int a = []", "\n", "}();"))), 1)

    def test_functions_in_scopes(self):
        for scope in ["namespace a::b {", "namespace {", 'extern "C" {', "class alignas(16) A final : public B {\n public:",
                      "template <class T, int n = f(3)>\nstruct A {", "struct A {\n  enum class E : int { kA };"]:
            self.assertEqual(len(self.found(scope + "\n" + body("void f() const", "\n") + "};\n")), 1, scope)
            functions = body("int x_{3};\n  void f()") + body("void g()")
            self.assertEqual(self.found(scope + "\n" + functions + "};\n"), [], scope)

    def test_a_lambda_is_part_of_its_function(self):
        self.assertEqual(self.found(body("void f()", "  g([] {\n  });\n")),
                         [f"ir/a.cpp:1: a function of {MAX_LINES + 2} lines: at most {MAX_LINES}"])

    def test_what_is_no_function(self):
        for head in ["const std::vector<A> table =", "const A table[f(3)] =", "enum class E : int", "struct A", "namespace a"]:
            self.assertEqual(self.found(body(head, "\n\n", "};")), [], head)

    def test_signs_that_are_not_braces(self):
        for text in ["// {", "/* {\n{ */", '"{\\"{"', "'{'", "'\\''", "1'000", 'R"({"{)"', 'R"x({)"{)x"', "#define A {", "#define A \\\n {",
                     "// a \\\n {", "u8'{'", "'\\\"'"]:
            self.assertEqual(list(functions_of(f"void f() {{\n{text}\n}}\n")), [(1, 3 + text.count("\n"))], text)

    def test_braces_that_do_not_match(self):
        for text in ["void f() {\n", "}\n"]:
            found = self.found(text)
            self.assertEqual(len(found), 1, found)
            self.assertIn("cannot find its functions", found[0])

    def test_scripts(self):
        for name, first in [("tests/a/b.py", ""), ("tools/bench/plot", "#!/usr/bin/env python3\n")]:
            script = f"{first}class A:\n    def f():\n" + "        call()\n" * MAX_LINES
            self.assertEqual(self.found(script, name),
                             [f"{name}:{3 if first else 2}: a function of {MAX_LINES + 1} lines: at most {MAX_LINES}"])
        self.assertEqual(self.found("#!/bin/sh\ndef(\n", "tools/run"), [])


class FullFolders(unittest.TestCase):
    def found(self, names):
        with planted({name: "" for name in names}) as root:
            return list(full_folders(root))

    def test_files_of_a_folder(self):
        files = [f"runtime/gpu/{number}.cpp" for number in range(MAX_FILES - 1)] + ["runtime/gpu/0.h"]
        self.assertEqual(self.found([*files, "runtime/gpu/CMakeLists.txt", "runtime/gpu/deep/a.h", "runtime/a.h"]), [])
        self.assertEqual(self.found([*files, "runtime/gpu/a.def"]),
                         [f"runtime/gpu:1: has {MAX_FILES + 1} files of code: at most {MAX_FILES}, then it is divided"])


if __name__ == "__main__":
    unittest.main()
