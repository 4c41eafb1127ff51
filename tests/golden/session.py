"""Runs the shell commands of a session and compares what they print: session.py SR_JIT FILE [--update]

A line of FILE that begins with "  $ " is a command, "  > " goes on with it, and the indented lines that follow are its
output: standard output and standard error together, and "[N]" for an exit status other than 0. "..." stands for any
text, <BLANKLINE> for an empty line. All other lines are prose. The commands share a shell in an empty folder, in which
`sr-jit` is SR_JIT, and $ROOT is the repository. --update writes outputs that have changed into FILE.
"""

import doctest
import os
import pathlib
import re
import subprocess
import sys
import tempfile

END = "\x02end\x03"


def run(commands, program):
    """What each command prints."""
    script = "".join(f"{command}\nprintf '%s%s\\n' '{END}' $?\n" for command in commands)
    with tempfile.TemporaryDirectory() as folder:
        work, cache = f"{folder}/work", f"{folder}/cache"
        os.mkdir(work)
        environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": cache,
                       "ROOT": str(pathlib.Path(__file__).resolve().parents[2])}
        environment.pop("SRJIT_CACHE_DIR", None)
        done = subprocess.run(["/bin/sh", "-c", script], cwd=work, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    texts = re.split(END + r"(\d+)\n", done.stdout.decode(errors="backslashreplace"))
    for text, status in zip(texts[::2], texts[1::2]):
        text += "" if not text or text.endswith("\n") else "\n"
        yield text if status == "0" else f"{text}[{status}]\n"


def main():
    program, file = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    # Prose, commands and outputs in turn.
    parts = re.split(r"((?:^  \$ .*\n)(?:^  > .*\n)*)((?:^  (?!\$ ).*\n)*)", file.read_text() + "\n", flags=re.M)
    commands = [re.sub(r"^  [$>] ", "", part, flags=re.M).rstrip("\n") for part in parts[1::3]]
    checker, failed = doctest.OutputChecker(), 0
    outputs = list(run(commands, program))
    if len(outputs) != len(commands):
        sys.exit(f"{file}: the shell ended after {len(outputs)} of {len(commands)} commands")
    for i, got in enumerate(outputs):
        want = re.sub(r"^  ", "", parts[3 * i + 2], flags=re.M)
        if checker.check_output(want, got, doctest.ELLIPSIS):
            continue
        failed += 1
        print(f"$ {commands[i]}\n--- expected\n{want}--- printed\n{got}")
        parts[3 * i + 2] = "".join(f"  {line or '<BLANKLINE>'}\n" for line in got.splitlines())
    if failed and "--update" in sys.argv:
        file.write_text("".join(parts).rstrip("\n") + "\n")
    elif failed:
        sys.exit(f"{file}: {failed} of {len(commands)} commands print something else")


if __name__ == "__main__":
    main()
