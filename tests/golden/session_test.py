"""session.py finds other output in sessions and on pages."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import session


class Outputs(unittest.TestCase):
    def wrong(self, name, text):
        """How many commands of a file have other output, where sr-jit is `echo`."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            program = pathlib.Path(folder) / "sr-jit"
            program.symlink_to("/bin/echo")
            file = pathlib.Path(folder) / name
            file.write_text(text, encoding="utf-8")
            check = session.check_page if file.suffix == ".md" else session.check_session
            return check(file, program)

    def session(self, text):
        return self.wrong("a.session", text)

    def page(self, text):
        return self.wrong("a.md", text)

    def test_output(self):
        self.assertEqual(self.session("prose\n  $ printf 'a\\nb\\n'\n  a\n  b\n"), (1, 0))
        self.assertEqual(self.session("  $ printf 'a\\nb\\n'\n  a\n  c\n"), (1, 1))
        self.assertEqual(self.session("  $ echo no >&2\n  no\n  $ echo a\n"), (2, 1))
        self.assertEqual(self.page("    $ printf 'a\\nb\\n'\n    a\n    b\n"), (1, 0))
        self.assertEqual(self.page("    $ printf 'a\\nb\\n'\n    a\n"), (1, 1))
        self.assertEqual(self.page("    $ printf 'a\\n'\n    a\n    b\n"), (1, 1))

    def test_statuses(self):
        self.assertEqual(self.session("  $ (exit 3)\n  [3]\n"), (1, 0))
        self.assertEqual(self.session("  $ (exit 3)\n"), (1, 1))
        self.assertEqual(self.session("  $ (exit 3) | cat\n"), (1, 1))

    def test_a_session_is_one_shell(self):
        self.assertEqual(self.session("  $ a() { sr-jit $1\n  > }\n  $ a b\n  b\n"), (2, 0))
        with self.assertRaises(SystemExit):
            self.session("  $ exit 0\n  $ echo a\n  a\n")

    def test_elisions(self):
        self.assertEqual(self.session("  $ echo 1 2 3\n  1 ... 3\n"), (1, 0))
        self.assertEqual(self.session("  $ echo 1 2 3\n  1 ... 4\n"), (1, 1))
        self.assertEqual(self.page("    $ seq 9\n    1\n    ...\n    5\n    ...\n"), (1, 0))
        self.assertEqual(self.page("    $ seq 9\n    1\n    ...\n    5\n"), (1, 1))
        self.assertEqual(self.page("    $ seq 15\n    1\n    ...\n    5\n"), (1, 1))

    def test_a_page_shows_what_is_typed(self):
        self.assertEqual(self.page("    $ sort\n    > b\n    > a\n    a\n    b\n"), (1, 0))

    def test_a_page_names_the_built_command(self):
        self.assertEqual(self.page("    $ build/release/sr-jit yes | tr y Y\n    Yes\n"), (1, 0))

    def test_two_in_a_block_and_text_between(self):
        self.assertEqual(self.page("    $ echo a\n    a\n    $ echo b\n    c\n\ntext\n\n    $ echo d\n    d\n"), (3, 1))

    def test_commands_without_output_are_not_run(self):
        self.assertEqual(self.page("    $ exit 3\n\n```\n$ echo a\nb\n```\n"), (0, 0))


if __name__ == "__main__":
    unittest.main()
