"""run_examples.py finds examples whose output is another."""

import pathlib
import tempfile
import unittest

from run_examples import check


class Examples(unittest.TestCase):
    def wrong(self, page):
        """Of a page with examples: which of them do not hold."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/page.md").write_text(page, encoding="utf-8")
            return [bool(difference) for _, difference in check(root, pathlib.Path("/bin/echo"))]

    def test_output(self):
        self.assertEqual(self.wrong("    $ printf 'a\\nb\\n'\n    a\n    b\n"), [False])
        self.assertEqual(self.wrong("    $ printf 'a\\nb\\n'\n    a\n    c\n"), [True])

    def test_missing_and_further_lines(self):
        self.assertEqual(self.wrong("    $ printf 'a\\nb\\n'\n    a\n"), [True])
        self.assertEqual(self.wrong("    $ printf 'a\\n'\n    a\n    b\n"), [True])

    def test_elisions(self):
        self.assertEqual(self.wrong("    $ seq 9\n    1\n    ...\n    5\n    ...\n"), [False])
        self.assertEqual(self.wrong("    $ seq 9\n    1\n    ...\n    5\n"), [True])

    def test_input(self):
        self.assertEqual(self.wrong("    $ sort\n    > b\n    > a\n    a\n    b\n"), [False])

    def test_standard_error(self):
        self.assertEqual(self.wrong("    $ echo no >&2\n    no\n"), [False])

    def test_the_command(self):
        self.assertEqual(self.wrong("    $ build/release/sr-jit yes | tr y Y\n    Yes\n"), [False])

    def test_two_in_a_block_and_text_between(self):
        self.assertEqual(self.wrong("    $ echo a\n    a\n    $ echo b\n    c\n\ntext\n\n    $ echo d\n    d\n"),
                         [False, True, False])

    def test_commands_without_output_are_not_run(self):
        self.assertEqual(self.wrong("    $ exit 3\n\n```\n$ echo a\nb\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
