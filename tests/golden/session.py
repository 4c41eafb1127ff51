"""Runs shell commands and compares what they print: session.py SR_JIT FILE... [--update]

A line of a session (.session) that begins with "  $ " is a command, "  > " goes on with it, and the indented lines that
follow are its output: standard output and standard error together, and "[N]" for an exit status other than 0, that of
the last part of a pipeline that failed. "..." stands for any text, <BLANKLINE> for an empty line. All other lines are
prose. The commands share a shell in an empty folder, in which `sr-jit` is SR_JIT, and $ROOT is the repository. --update
writes outputs that have changed into FILE.

On a page (.md) the indent is four, "> " is typed by the reader, a line "..." stands for any lines, and a command without
output is not run. Its folder is the repository, its `build/release/sr-jit` is SR_JIT, and its exit status does not count.
"""

import doctest
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
END = "\x02end\x03"
PAGE_SECONDS = 120  # for one command of a page
SESSION = re.compile(r"((?:^  \$ .*\n)(?:^  > .*\n)*)((?:^  (?!\$ ).*\n)*)", re.MULTILINE)
EXAMPLE = re.compile(r"^    \$ (.*)\n((?:^    (?!\$ ).*\n)+)", re.MULTILINE)


def shell(script, folder, seconds=None, **environment):
    """The output of a script without standard input. It is killed after `seconds`, if given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SRJIT_")}
    try:
        done = subprocess.run(["/bin/bash", "-c", script], cwd=folder, env={**kept, "ROOT": str(ROOT), **environment},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"(it took more than {seconds} seconds)\n"
    return done.stdout.decode(errors="backslashreplace")


def run(commands, program):
    """The output of each command of a session."""
    script = "set -o pipefail\n" + "".join(f"{command}\nprintf '%s%s\\n' '{END}' $?\n" for command in commands)
    with tempfile.TemporaryDirectory() as folder:
        work = f"{folder}/work"
        os.mkdir(work)
        printed = shell(script, work, PATH=f"{program.parent}:{os.environ['PATH']}", XDG_CACHE_HOME=f"{folder}/cache")
    texts = re.split(END + r"(\d+)\n", printed)
    if len(texts) != 2 * len(commands) + 1:
        sys.exit(f"the shell ended after {len(texts) // 2} of {len(commands)} commands: {texts[-1]}")
    for text, status in zip(texts[::2], texts[1::2]):
        text += "" if not text or text.endswith("\n") else "\n"
        yield text if status == "0" else f"{text}[{status}]\n"


def has_lines(want, got):
    """Whether the lines are those wanted; "..." stands for any number of them."""
    if not want:
        return not got
    if want[0] != "...":
        return got[:1] == want[:1] and has_lines(want[1:], got[1:])
    return any(has_lines(want[1:], got[at:]) for at in range(len(got) + 1))


def report(place, want, got):
    print(f"{place}\n--- expected\n{want}--- printed\n{got}")


def check_session(file, program):
    """The number of commands, and of those with other output."""
    parts = re.split(SESSION, file.read_text() + "\n")  # prose, commands and outputs in turn
    commands = [re.sub(r"^  [$>] ", "", part, flags=re.MULTILINE).rstrip("\n") for part in parts[1::3]]
    wrong = 0
    for i, got in enumerate(run(commands, program)):
        want = re.sub(r"^  ", "", parts[3 * i + 2], flags=re.MULTILINE)
        if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
            report(f"{file.name}: $ {commands[i]}", want, got)
            parts[3 * i + 2] = "".join(f"  {line or '<BLANKLINE>'}\n" for line in got.splitlines())
            wrong += 1
    if wrong and "--update" in sys.argv:
        file.write_text("".join(parts).rstrip("\n") + "\n")
    return len(commands), wrong


def check_page(file, program):
    examples = EXAMPLE.findall(file.read_text() + "\n")
    wrong = 0
    for command, below in examples:
        lines = [line[4:] for line in below.splitlines()]
        typed = "".join(f"{line[2:]}\n" for line in lines if line.startswith("> "))
        want = [line for line in lines if not line.startswith("> ")]
        script = command.replace("build/release/sr-jit", shlex.quote(str(program)))
        got = shell(f"printf %s {shlex.quote(typed)} | {{ {script}\n}}", ROOT, PAGE_SECONDS, SRJIT_CACHE_DIR="")
        if not has_lines(want, got.splitlines()):
            report(f"{file.name}: $ {command}", "".join(f"{line}\n" for line in want), got)
            wrong += 1
    return len(examples), wrong


def main():
    program, *files = [pathlib.Path(word).resolve() for word in sys.argv[1:] if word != "--update"]
    checks = [(check_page if file.suffix == ".md" else check_session)(file, program) for file in files]
    count, wrong = (sum(numbers) for numbers in zip(*checks))
    print(f"{count} commands, {wrong} with other output")
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main()
