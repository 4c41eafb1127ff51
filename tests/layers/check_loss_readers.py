"""Checks that tests/more_losses compiles again what reads the table of losses, and nothing else.

    check_loss_readers.py ROOT

A reader is a source whose code has the rows of ir/losses.def in it: it includes the table, or calls a template of
ir/losses.h, or a header does that it includes. One that is missing in the list would be linked
without the further rows.
"""

import pathlib
import re
import sys

from check_layers import includes_of
from violations import conclude

FOLDERS = ["ir", "passes", "compiler", "runtime", "tests/gpu_model", "tests/generators"]
DECLARES = "ir/losses.h"
READS = re.compile(r"^\s*#include \"ir/losses\.def\"|^(?!\s*//).*\b(lossTerm|rowTerm|withLossFormula|scaledLossFormula)\b", re.MULTILINE)


def reads_table(root, name):
    """Whether the file, or a header that it includes, reads the table."""
    seen, waiting = {DECLARES}, [name]
    while waiting:
        each = waiting.pop()
        if each in seen or not (root / each).is_file():
            continue
        seen.add(each)
        if READS.search((root / each).read_text(encoding="utf-8")):
            return True
        waiting += [other for _, quoted, other in includes_of(root / each) if quoted]
    return False


def readers(root):
    """The sources that read the table, relative to `root`."""
    sources = [path.relative_to(root).as_posix() for folder in FOLDERS for path in (root / folder).rglob("*.cpp")]
    return {name for name in sources if reads_table(root, name)}


def listed(root):
    """The sources that are compiled again."""
    text = (root / "tests/more_losses/CMakeLists.txt").read_text(encoding="utf-8")
    return set(re.search(r"set\(readers([^)]*)\)", text)[1].split())


def faults(root):
    """What is wrong with the list, as text."""
    for name in sorted(readers(root) - listed(root)):
        yield f"{name} reads the table of losses, but tests/more_losses/CMakeLists.txt does not list it"
    for name in sorted(listed(root) - readers(root)):
        yield f"{name} is listed in tests/more_losses/CMakeLists.txt, but does not read the table of losses"


def main():
    return conclude(faults(pathlib.Path(sys.argv[1]).resolve()),
                    "tests/more_losses compiles all readers of the table of losses")


if __name__ == "__main__":
    sys.exit(main())
