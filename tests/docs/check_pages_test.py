"""check_pages.py finds the faults of pages made for it."""

import pathlib
import tempfile
import unittest

from check_pages import check

PROGRAM = """\
int main() {
  int a = 1;
  if (a > 0) {
    ++a;
  }

  return a;
}
"""


class Pages(unittest.TestCase):
    def found(self, page):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs/examples").mkdir(parents=True)
            (root / "docs/examples/main.cpp").write_text(PROGRAM, encoding="utf-8")
            (root / "README.md").write_text("# Read me\n\n## `One` and two\n", encoding="utf-8")
            (root / "docs/page.md").write_text(page, encoding="utf-8")
            return list(check(root))

    def test_code_of_a_program(self):
        self.assertEqual(self.found("```cpp\nint a = 1;\n\nif (a > 0) {\n  ++a;\n}\n\nreturn a;\n```\n"), [])

    def test_each_language_has_its_own_programs(self):
        self.assertEqual(self.found("```c\nint a = 1;\n```\n"),
                         ["docs/page.md:2: no program of docs/examples has this code"])

    def test_other_code(self):
        self.assertEqual(self.found("```cpp\nint a = 1;\n\nreturn 0;\n```\n"),
                         ["docs/page.md:4: no program of docs/examples has this code"])

    def test_a_line_left_out(self):
        self.assertEqual(len(self.found("```cpp\nif (a > 0) {\n}\n```\n")), 1)

    def test_other_indentation_within(self):
        self.assertEqual(len(self.found("```cpp\nif (a > 0) {\n++a;\n}\n```\n")), 1)

    def test_another_order(self):
        self.assertEqual(len(self.found("```cpp\nreturn a;\n\nint a = 1;\n```\n")), 1)

    def test_other_languages_are_not_checked(self):
        self.assertEqual(self.found("```cmake\nproject(p)\n```\n\n    int b;\n"), [])

    def test_links(self):
        self.assertEqual(self.found("# Page\n[a](../README.md#one-and-two), [b](#page), [c](https://example.org/)\n"), [])

    def test_links_without_a_target(self):
        self.assertEqual(self.found("# Page\n[a](other.md)\n[b](../README.md#three) [c](#three)\n"),
                         ["docs/page.md:2: no file other.md", "docs/page.md:3: no heading #three in README.md",
                          "docs/page.md:3: no heading #three in page.md"])

    def test_paths(self):
        self.assertEqual(self.found("`docs/page.md:1`, `docs/` `docs/*/main.{cpp,cpp}` and `docs/examples\n"
                                    "--all`, ``docs/page.md``; `other/page.md`, `build/tests/none`\n"), [])

    def test_missing_paths(self):
        self.assertEqual(self.found("# Page\n`docs/page.md` and\n`docs/none.md`\n"),
                         ["docs/page.md:3: nothing has the path docs/none.md"])
        self.assertEqual(self.found("`docs/none.md:12`\n"), ["docs/page.md:1: nothing has the path docs/none.md"])
        self.assertEqual(self.found("`tests/*/none.*`\n"), ["docs/page.md:1: nothing has the path tests/*/none.*"])
        self.assertEqual(self.found("`docs/{page,none}.md`\n"), ["docs/page.md:1: nothing has the path docs/none.md"])

    def test_a_missing_path_behind_a_span_of_two_lines(self):
        self.assertEqual(self.found("`one\ntwo` and `ir/none.h`\n"), ["docs/page.md:2: nothing has the path ir/none.h"])

    def test_placeholders_are_not_checked(self):
        self.assertEqual(self.found("`tests/<layer>/`, `passes/NAME.cpp`, `tests/golden/NAME`\n"), [])
        self.assertEqual(len(self.found("`tools/README.md`\n")), 1)

    def test_paths_in_blocks_are_not_checked(self):
        self.assertEqual(self.found("```text\n`docs/none.md`\n```\n\n    `docs/none.md`\n"), [])


if __name__ == "__main__":
    unittest.main()
