"""Checks that ir/functions/polynomials.h is what Sollya writes: check_polynomials.py SOLLYA REPOSITORY."""

import difflib
import pathlib
import subprocess
import sys


def main():
    sollya, repository = sys.argv[1], pathlib.Path(sys.argv[2])
    folder = repository / "ir/functions"
    written = subprocess.run([sollya, folder / "polynomials.sollya"], capture_output=True, text=True, check=True)
    expected = (folder / "polynomials.h").read_text()
    if written.stdout == expected and not written.stderr:
        print("polynomials.h is current")
        return 0
    sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), written.stdout.splitlines(True),
                                               "polynomials.h", "written by Sollya"))
    print(written.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
