"""The command sr-jit, as ``srjit``, ``sr-jit`` and ``python -m srjit``."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command with the words of this process, and returns its exit status."""
    from . import _core

    # Ctrl-C ends the process at once, as it ends the program sr-jit.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["sr-jit", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
