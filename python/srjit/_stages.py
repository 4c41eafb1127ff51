"""What the compiler makes of an expression, stage by stage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

from ._errors import Error, InvalidError

_COMMANDS = {
    "passes": ("passes", "--print-after", "all"),
    "bytecode": ("bytecode",),
    "bytecode_host": ("bytecode", "--host"),
    "llvm": ("llvm",),
    "llvm_host": ("llvm", "--host"),
    "asm": ("asm",),
    "ptx": ("ptx",),
    "sass": ("sass",),
    "sass_direct": ("sass", "--tier", "direct"),
}


class Stages(Mapping):
    """Texts by the name of a stage, each made when it is read; see `stages`."""

    def __init__(self, expression: str, options: tuple[str, ...]):
        self._expression = expression
        self._options = options

    def __getitem__(self, stage: str) -> str:
        # A process of its own: the command may end where LLVM has a fatal error, and writes to standard output.
        done = subprocess.run([sys.executable, "-m", "srjit", *_COMMANDS[stage], *self._options, "--", self._expression],
                              capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        if done.returncode in (1, 2):
            raise InvalidError(done.stderr.strip())
        raise Error(done.stderr.strip(), "machine")

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def stages(expression: str, *, precision: str = "f32", math: str = "precise") -> Stages:
    """What the compiler makes of an expression: a mapping from the name of a stage to text.

    ``"passes"`` (the graph after each pass), ``"bytecode"`` and ``"bytecode_host"`` (programs of the interpreters),
    ``"llvm"``, ``"ptx"`` and ``"sass"`` (of a GPU's kernel; SASS needs a CUDA toolkit, ``"sass_direct"`` does not),
    ``"llvm_host"`` and ``"asm"`` (of this processor's). The command ``srjit`` has all options.

    Raises:
        InvalidError: When a stage is read: the text is no expression.
        Error: When a stage is read: something that the stage needs is missing.

    Examples:
        >>> print(stages("x0*x1 + 2")["ptx"])  # doctest: +SKIP
    """
    return Stages(expression, ("--precision", precision, "--math", math))
