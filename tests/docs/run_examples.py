"""Runs the commands that the pages for readers show with their output.

    run_examples.py ROOT COMMAND

Pages are ROOT/*.md and those in ROOT/docs and its folders. An example is a line `    $ command` of an indented block and the lines below it, to an
empty line: what the command writes, standard error included. `...` stands for any lines, and a line that begins with `> ` is
typed by the reader, so it is standard input. A command without such lines is not run. `build/release/sr-jit` is COMMAND,
and the current folder is ROOT. Prints each example whose output is another, and exits with 1 if there is any.
"""

import argparse
import difflib
import os
import pathlib
import shlex
import subprocess
import sys

SHOWN = "build/release/sr-jit"
INDENT, PROMPT, TYPED, ELISION = "    ", "$ ", "> ", "..."
LIMIT = 120  # seconds for one example


def examples_of(lines):
    """Yields (number of the command's line, command, lines below it)."""
    number, command, below = 0, None, []
    for at, line in enumerate([*lines, ""], start=1):
        text = line[len(INDENT):] if line.startswith(INDENT) else None
        if command is not None and (text is None or text.startswith(PROMPT)):
            if below:
                yield number, command, below
            command = None
        if text is not None and text.startswith(PROMPT):
            number, command, below = at, text[len(PROMPT):], []
        elif command is not None:
            below.append(text)


def matches(shown, written):
    """Whether the lines are equal, but for elisions."""
    if not shown:
        return not written
    if shown[0] != ELISION:
        return bool(written) and shown[0] == written[0] and matches(shown[1:], written[1:])
    return any(matches(shown[1:], written[at:]) for at in range(len(written) + 1))


def output_of(command, typed, root):
    # Not the caller's settings, nor their cache: what is found there could be another version's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SRJIT_")}
    environment["SRJIT_CACHE_DIR"] = ""
    try:
        ran = subprocess.run(["bash", "-c", command], cwd=root, env=environment, input=typed, text=True, timeout=LIMIT,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return [f"(it took more than {LIMIT} seconds)"]
    return ran.stdout.splitlines()


def check(root, program):
    """Yields (place, difference) of each example; there is no difference where it holds."""
    for page in [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]:
        for number, command, below in examples_of(page.read_text(encoding="utf-8").splitlines()):
            typed = "".join(f"{line[len(TYPED):]}\n" for line in below if line.startswith(TYPED))
            shown = [line for line in below if not line.startswith(TYPED)]
            written = output_of(command.replace(SHOWN, shlex.quote(str(program))), typed, root)
            good = matches(shown, written)
            yield f"{page.relative_to(root)}:{number}: {command}", [] if good else [
                *difflib.unified_diff(shown, written, "the page", "the command", lineterm="")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("command", type=pathlib.Path)
    arguments = parser.parse_args()
    count, wrong = 0, 0
    for place, difference in check(arguments.root, arguments.command.resolve()):
        count += 1
        if difference:
            wrong += 1
            print(place, *difference, sep="\n")
    print(f"{count} examples, {wrong} with other output")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
