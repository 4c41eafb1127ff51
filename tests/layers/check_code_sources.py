"""Checks that the hash in the keys of kernels covers all sources that determine their code.

    check_code_sources.py ROOT LIST

LIST has the files that the build hashes (compiler/CMakeLists.txt), one a line. A file that has moved must still be there.
"""

import pathlib
import sys

LAYERS = ["ir", "passes", "compiler"]
SOURCES = {".h", ".cpp", ".def"}


def missing(root, listed):
    """The sources below `root` that determine code and are not `listed`."""
    needed = {path for layer in LAYERS for path in (root / layer).rglob("*") if path.suffix in SOURCES}
    return sorted(needed - listed)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = {pathlib.Path(line).resolve() for line in pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").split("\n") if line}
    for path in missing(root, listed):
        print(f"{path.relative_to(root)} decides the code of kernels, but is not in the hash of their keys")
    for path in sorted(path for path in listed if not path.is_file()):
        print(f"{path} is in the hash of kernels' keys, but does not exist")
    return 1 if missing(root, listed) or not all(path.is_file() for path in listed) else 0


if __name__ == "__main__":
    sys.exit(main())
