"""Checks that the hash that goes into the keys of kernels is made of all sources that decide their code, and of no other.

    check_code_sources.py ROOT LIST

LIST has the files that the build hashes (compiler/CMakeLists.txt), one per line. Those are all sources of LAYERS, and the
sources of runtime/ that launch direct code: each that names the arguments or the grid of a launch, and the header or
source of the same name.
"""

import pathlib
import re
import sys

from violations import conclude

LAYERS = ["ir", "passes", "compiler"]
SOURCES = {".h", ".cpp", ".cc", ".def"}
LAUNCH = re.compile(r"\bDirect(Arguments|Grid)\b")


def launches(path):
    """Whether the source, or its other half, names what a launch of direct code is given."""
    halves = [path.with_suffix(suffix) for suffix in (".h", ".cpp")]
    return any(LAUNCH.search(half.read_text(encoding="utf-8")) for half in halves if half.is_file())


def needed(root):
    """The sources below `root` that decide code."""
    sources = {layer: {path for path in (root / layer).rglob("*") if path.suffix in SOURCES} for layer in [*LAYERS, "runtime"]}
    return set().union(*(sources[layer] for layer in LAYERS), filter(launches, sources["runtime"]))


def faults(root, listed):
    """What is wrong with the list of hashed files, as text."""
    for path in sorted(needed(root) - listed):
        yield f"{path.relative_to(root)} decides the code of kernels, but is not in the hash of their keys"
    for path in sorted(listed - needed(root)):
        what = "decides no code of kernels" if path.is_file() else "does not exist"
        yield f"{path.relative_to(root)} is in the hash of kernels' keys, but {what}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    lines = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").split("\n")
    return conclude(faults(root, {pathlib.Path(line).resolve() for line in lines if line}),
                    "the hash of kernels' keys has all sources that decide their code")


if __name__ == "__main__":
    sys.exit(main())
